"""A desk with eval set files, behind the real application and its guard."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from httpx2 import Response
from tests.desk_client import DeskClient

from evaldesk.desk.desk import Desk
from evaldesk.engine import ChatPlayers
from evaldesk.model.evalset import case_key
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.evalsets.case_index import build_index
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

PORT = 8420
TOKEN = "a-token-of-enough-letters"

CALC: dict[str, Any] = {
    "eval_set_id": "calc",
    "x_team": "dice",
    "eval_cases": [
        {
            "eval_id": "roll/and check",
            "x_owner": "somebody",
            "conversation": [
                {
                    "invocation_id": "e-1",
                    "user_content": {"parts": [{"text": "Roll a die"}], "role": "user"},
                    "final_response": {"parts": [{"text": "You rolled 3"}], "role": "model"},
                    "intermediate_data": {
                        "tool_uses": [{"id": "c-1", "name": "roll_die", "args": {"sides": 6}}],
                        "intermediate_responses": [["dice", [{"text": "One moment."}]]],
                    },
                },
                {"invocation_id": "e-2", "user_content": {"parts": [{"text": "Thanks"}], "role": "user"}},
            ],
            "session_input": {"app_name": "dice", "user_id": "u", "state": {"rolls": [1, 2]}},
            "tags": ["smoke"],
        },
        {
            "eval_id": "quiet",
            "conversation": [
                {
                    "user_content": {"parts": [{"text": "Hello"}], "role": "user"},
                    "intermediate_data": {"tool_uses": []},
                }
            ],
        },
    ],
}


@dataclass
class Pages:
    """A browser without a script, the desk behind it, and the folder of its files."""

    client: DeskClient
    desk: Desk
    folder: Path

    def write(self, name: str, value: object) -> str:
        """Write an eval set file; gives the id of the set."""
        (self.folder / name).write_text(json.dumps(value, indent=2), "utf-8")
        return next(each.id for each in self.desk.evalsets.list() if each.path.name == name)

    def stored(self, name: str = "calc.evalset.json") -> Any:
        """What the file says now."""
        return json.loads((self.folder / name).read_text("utf-8"))

    def get(self, address: str, **headers: str) -> Response:
        return self.client.get(address, headers=headers)

    def post(self, address: str, fields: dict[str, Any] | None = None, **headers: str) -> Response:
        return self.client.post(address, data=fields or {}, headers=headers)

    def fields(self, address: str) -> dict[str, str]:
        """What a browser would send of the case form at that address."""
        answer = self.get(address)
        assert answer.status_code == 200
        return fields_of(answer.text)

    def case_address(self, set_id: str, case_id: str) -> str:
        return f"/evalsets/{set_id}/cases/{case_key(case_id)}"


def fields_of(text: str) -> dict[str, str]:
    """Inputs, text areas, chosen radios, ticks and options of the page's case form."""
    form = text[text.index('<form id="case-form"') :]
    form = form[: form.index("</form>")]
    found: dict[str, str] = {}
    for tag in re.findall(r"<input\b[^>]*>", form):
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if attributes.get("type") in {"radio", "checkbox"} and not re.search(r"\schecked\b", tag):
            continue
        if "name" in attributes:
            found[attributes["name"]] = html.unescape(attributes.get("value", ""))
    for name, value in re.findall(r'<textarea\b[^>]*\bname="([^"]+)"[^>]*>\n?(.*?)</textarea>', form, re.DOTALL):
        lines = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        found[name] = html.unescape(lines).replace("\n", "\r\n")
    for name, options in re.findall(r'<select\b[^>]*\bname="([^"]+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        found[name] = html.unescape(chosen[1]) if chosen else ""
    return found


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    monkeypatch.setattr("evaldesk.store.evalsets.large.indexed_facts", build_index)  # here, without another process
    folder = tmp_path / "evalsets"
    folder.mkdir()
    settings = Settings(workspace=tmp_path, roots=(tmp_path,), environment={"MODEL_API_KEY": "very-secret-value"})
    settings.state_folder.mkdir()
    store = Store.open(settings.database)
    desk = Desk(settings, store, cast("ChatPlayers", None))
    client = DeskClient(
        create_app(desk, guard_settings(TOKEN, PORT)),
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
        follow_redirects=False,
    )
    yield Pages(client, desk, folder)
    store.close()


@pytest.fixture
def calc(pages: Pages) -> str:
    """The id of an eval set with two cases."""
    return pages.write("calc.evalset.json", CALC)


@pytest.fixture
def address(pages: Pages, calc: str) -> str:
    """The editor of the first case."""
    return str(pages.case_address(calc, "roll/and check"))
