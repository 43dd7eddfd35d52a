"""No secret of the environment leaves by any way: database, log, pages, reports, exports, terminal."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.agents.test_secrets import RANDOM, SECRET_VARIABLES
from tests.desk_client import DeskClient
from tests.islands import of_tools

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.exporting import run_formats
from evaldesk.formats.files import read_file
from evaldesk.settings import read_settings
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app
from evaldesk.wire import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cli.conftest import CommandFolder

pytestmark = of_tools("osmosis")

CORES = {name: f"{RANDOM[:-4]}{number:04d}" for number, name in enumerate(SECRET_VARIABLES)}
ENVIRONMENT = {name: text.replace(RANDOM, CORES[name]) for name, text in SECRET_VARIABLES.items()}
TELLING = """
import os
from base64 import b64encode
from urllib.parse import quote

NAMES = {names!r}

def root_agent(message, state):
    values = [os.environ[name] for name in NAMES]
    coded = [b64encode(value.encode()).decode() for value in values]
    coded += [value.encode().hex() for value in values] + [quote(value, safe="") for value in values]
    said = " and ".join([*values, *coded])
    state["said"] = values
    if message == "raise":
        raise ValueError(said)
    return f"{{message}}: {{said}}"
"""
TOKEN = "a-token-of-enough-letters"


@pytest.fixture
def telling(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """A place whose agent tells every secret; one case was typed with a secret in it."""
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    (place.agent / "agent.py").write_text(TELLING.format(names=list(ENVIRONMENT)))
    place.evalset("first", {"one": "one", "raise": f"the key is {ENVIRONMENT['OPENAI_API_KEY']}"})
    return place


@pytest.fixture
def ways(telling: CommandFolder) -> Mapping[str, str]:
    """What leaves, by the way it takes."""
    files = ("results.json", "rows.jsonl", "rows.csv")
    outputs = [word for name in files for word in ("-o", name)]
    played = telling.eval("first.evalset.json", *outputs, "--junit", "junit.xml", "--summary", "summary.md")
    found = {"terminal": played.output + played.stderr}
    found |= {name: (telling.folder / name).read_text() for name in (*files, "junit.xml", "summary.md")}
    found |= {f"run as {name}": telling.run("export", 1, "--format", name).output for name, _ in run_formats()}
    found |= {f"set as {name}": telling.run("export", "first", "--format", name).output for name in ("adk", "adk-old")}
    found |= {f"run {verb}": telling.run("run", verb, 1).output for verb in ("info", "logs")}
    with telling.store() as store:
        found["database"] = to_json(list(store.runs.trials(1, [(0, 0), (1, 0)]).values())).decode()
    return found | _pages(telling)


def _pages(place: CommandFolder) -> dict[str, str]:
    settings = read_settings(place.folder, (place.folder,), environment=ENVIRONMENT)
    desk = Desk.open(settings)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with DeskClient(
        create_app(desk, guard_settings(TOKEN, 80)), base_url="http://127.0.0.1", headers=headers
    ) as client:
        trials = ("/runs/1/cases/0/trials/0", "/runs/1/cases/1/trials/0")
        addresses = ("/runs/1", *trials, "/runs/1/exports", "/runs/1/file?format=csv")
        found = {f"page {address}": client.get(address).text for address in addresses}
        evalset = next(each.id for each in desk.evalsets.list() if each.name == "first")
        found["page of the export"] = client.get(f"/evalsets/{evalset}/exports").text
        found["download"] = client.get(f"/evalsets/{evalset}/file?format=adk").text
    return found


def _coded(value: str) -> tuple[str, str]:
    return b64encode(value.encode()).decode().rstrip("="), quote(value, safe="")


def test_no_secret_variable_leaves_by_any_way(ways: Mapping[str, str], telling: CommandFolder) -> None:
    typed = {"page /runs/1/cases/1/trials/0"}  # shows the case as a person typed it

    leaks = [
        f"{name} in {way}"
        for way, text in ways.items()
        for name, core in CORES.items()
        for form in (core, *_coded(ENVIRONMENT[name]), core.encode().hex())
        if form in text and not (way in typed and name == "OPENAI_API_KEY")
    ]

    assert len(CORES) >= 20
    assert len(ways) >= 20
    assert not leaks, "\n".join(leaks)
    assert "[DB_PASSWORD]" in ways["database"]
    assert "[MY_SETTING]" in ways["run as adk-results"]
    json.loads(ways["results.json"])


def test_an_export_lists_what_it_masked(telling: CommandFolder, ways: Mapping[str, str]) -> None:
    said = telling.run("export", "first", "-o", "out.json")
    of_run = telling.run("export", 1, "-o", "run.json").stderr.strip().removeprefix("evaldesk: ")

    assert said.stderr.strip() == "evaldesk: 1 value masked: OPENAI_API_KEY in case case_2."
    assert "the key is [OPENAI_API_KEY]" in (telling.folder / "out.json").read_text()
    assert ENVIRONMENT["OPENAI_API_KEY"] in (telling.folder / "first.evalset.json").read_text()
    assert (
        "1 value masked: OPENAI_API_KEY in case case_2. The eval set itself is unchanged." in ways["page of the export"]
    )
    assert "OPENAI_API_KEY in case case_2." in of_run
    assert f"{of_run} Each file has the name in brackets" in ways["page /runs/1/exports"]


def test_an_export_without_secrets_lists_nothing_and_is_unchanged(place: CommandFolder) -> None:
    place.evalset("plain", {"one": "a test of a password, Password=test"})

    said = place.run("export", "plain")

    assert said.stderr == ""
    assert "a test of a password, Password=test" in said.output


@pytest.mark.parametrize("target", ["out.jsonl", "out.parquet", "out.csv", "out.evalset.json"])
def test_a_converted_file_holds_no_secret_and_says_so(target: str, telling: CommandFolder) -> None:
    pytest.importorskip("pyarrow")

    said = telling.run("convert", "first.evalset.json", target)

    assert said.exit_code == 0, said.stderr
    assert "evaldesk: 1 value masked: OPENAI_API_KEY in case case_2." in said.stderr
    found = read_file((telling.folder / target).read_bytes(), target).evalset
    assert found
    assert [case.turns[0].query for case in found.cases] == ["one", "raise"]
    assert found.cases[1].turns[0].expected.reference == "the key is [OPENAI_API_KEY]"


def _rows(path: Path) -> Any:
    import pandas as pd

    return pd.read_parquet(path).to_dict("records")


def test_a_packed_export_of_an_eval_set_holds_no_secret(telling: CommandFolder) -> None:
    pytest.importorskip("pyarrow")

    said = telling.run("export", "first", "--format", "osmosis-parquet", "-o", "out.parquet")

    assert said.stderr.strip() == "evaldesk: 1 value masked: OPENAI_API_KEY in case case_2."
    assert "[OPENAI_API_KEY]" in str(_rows(telling.folder / "out.parquet"))


def test_packed_outputs_of_a_run_hold_no_secret(telling: CommandFolder) -> None:
    pytest.importorskip("pyarrow")
    path = telling.evalset("asked", {"one": "one"})
    path.write_text(path.read_text().replace("case_1", ENVIRONMENT["OPENAI_API_KEY"]))  # as a person typed it

    said = telling.eval(path, "-o", "rows.parquet", "-o", "rows.scores.parquet")

    assert "evaldesk: rows.parquet: 1 value masked: OPENAI_API_KEY." in said.stderr
    assert "evaldesk: rows.scores.parquet: 2 values masked: OPENAI_API_KEY." in said.stderr  # two scores
    for name in ("rows.parquet", "rows.scores.parquet"):
        rows = _rows(telling.folder / name)
        assert not [secret for secret, core in CORES.items() if core in str(rows)]
        assert rows[0]["case_id"] == "[OPENAI_API_KEY]"
