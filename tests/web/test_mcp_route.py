"""The door for coding agents on an open desk: off unless asked for, and behind the guard as every page."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.agents.installed import skip_without
from tests.bound_processes import bound_python
from tests.web.conftest import PORT, TOKEN, ChatDesk

from evaldesk.errors import UsageError
from evaldesk.pages.door.fit import material_of
from evaldesk.pages.door.tools import tools_of
from evaldesk.settings import McpSettings, read_settings
from evaldesk.web.guard import KEY_OF_DOOR, guard_settings, mcp_key

OpenChat = Callable[..., ChatDesk]
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {mcp_key(TOKEN)}", "Cookie": ""}
OLD = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "codex", "version": "1"}}


@pytest.fixture
def open_door(open_chat: OpenChat, monkeypatch: pytest.MonkeyPatch) -> OpenChat:
    names = ("mcp", "agents", "sessions")
    monkeypatch.setattr("evaldesk.web.server.ROUTES", tuple(f"evaldesk.web.routes.{name}:routes" for name in names))
    return open_chat


def asked(chat: ChatDesk, method: str, params: Mapping[str, Any], **headers: str) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return chat.client.post("/mcp", json=message, headers=HEADERS | headers)


def test_a_client_lists_and_calls_tools_at_an_open_desk(open_door: OpenChat) -> None:
    skip_without("mcp")
    chat = open_door(mcp=McpSettings(serve=True, allow=("propose",)))

    begun = asked(chat, "initialize", OLD)
    assert begun.json()["result"]["serverInfo"]["name"] == "evaldesk"
    listed = asked(chat, "tools/list", {}).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == [*tools_of(frozenset({"propose"}))]
    called = asked(chat, "tools/call", {"name": "status", "arguments": {}}).json()["result"]
    assert material_of(called["content"][0]["text"])["n_runs"] == 0
    refused = asked(chat, "tools/call", {"name": "accept_proposal", "arguments": {"id": 1}}).json()["result"]
    assert refused["isError"]


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"name": "codex", "version": "1"}, "coding agent codex"),
        ({"name": "codex", "title": "Codex <b>", "version": "1"}, "coding agent Codex <b>"),
    ],
)
def test_a_client_of_an_older_revision_keeps_its_name(open_door: OpenChat, info: Any, name: str) -> None:
    skip_without("mcp")
    chat = open_door(mcp=McpSettings(serve=True, allow=("propose",)))
    others = asked(chat, "initialize", OLD | {"clientInfo": {"name": "another", "version": "1"}})
    session = asked(chat, "initialize", OLD | {"clientInfo": info}).headers["mcp-session-id"]
    assert session != others.headers["mcp-session-id"]

    clients = []
    for number, headers in enumerate(
        (
            {"mcp-session-id": session},
            {"mcp-session-id": "gone", "User-Agent": "claude-code/2.1 (cli)"},
            {"User-Agent": ""},
        )
    ):
        arguments = {"kind": f"kind {number}", "definition": "It is one."}
        asked(chat, "tools/call", {"name": "propose_kind", "arguments": arguments}, **headers)
        clients.append(chat.desk.store.client_proposals.list()[0].client)

    assert clients == [name, "coding agent claude-code", "a coding agent"]


@pytest.mark.parametrize(
    "body", ["", "[]", '{"method": "initialize"}', '{"method": "initialize", "params": 1}', "[" * 9_999]
)
def test_a_request_that_is_none_begins_no_session(open_door: OpenChat, body: str) -> None:
    skip_without("mcp")
    chat = open_door(mcp=McpSettings(serve=True))

    answer = chat.client.post("/mcp", content=body, headers=HEADERS | {"Content-Type": "application/json"})

    assert 400 <= answer.status_code < 500
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": "Bearer another-token-of-letters"}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 401),
        ({"Authorization": "", "Cookie": f"evaldesk-{PORT}={guard_settings(TOKEN, PORT).cookie_value}"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
        ({"Host": "evil.example"}, 400),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
    ids=[
        "wrong token",
        "no token",
        "token of the pages",
        "cookie of the pages",
        "other site",
        "other port",
        "other name",
        "cross-site",
    ],
)
def test_the_walls_of_the_desk_stand_before_the_door(open_door: OpenChat, headers: dict[str, str], status: int) -> None:
    chat = open_door(mcp=McpSettings(serve=True))

    assert asked(chat, "tools/list", {}, **headers).status_code == status


def test_the_door_is_closed_unless_the_settings_open_it(open_door: OpenChat) -> None:
    chat = open_door()

    assert asked(chat, "tools/list", {}).status_code == 404


def test_the_settings_of_a_folder_that_nobody_trusts_open_no_door(
    open_door: OpenChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = open_door(mcp=McpSettings(serve=True))
    monkeypatch.setattr("evaldesk.desk.desk.Desk.is_restricted", property(lambda _: True))

    assert asked(chat, "tools/list", {}).status_code == 404


@pytest.mark.server
def test_a_desk_prints_where_coding_agents_are_served_and_their_key(tmp_path: Path) -> None:
    skip_without("mcp")
    (tmp_path / "evaldesk.toml").write_text("[mcp]\nserve = true\n")
    command = [*bound_python("-m", "evaldesk"), "ui", "--no-open", "--port", "0", "--trust", "--token", TOKEN]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    desk = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    assert desk.stdout
    assert desk.stderr
    with desk, desk.stdout, desk.stderr:
        lines = [desk.stderr.readline(), desk.stderr.readline()]
        assert f"?token={TOKEN}" in desk.stdout.readline()
        address = lines[0].removeprefix("Coding agents are served at ").strip()
        name, _, key = lines[1].strip().partition(": ")
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": OLD}
        answer = httpx.post(address, json=message, headers={"Accept": HEADERS["Accept"], name: key}, timeout=300)
        home = httpx.get(address.removesuffix("mcp"), headers={name: key}, timeout=300)
        desk.terminate()

    assert TOKEN not in "".join(lines)
    assert answer.json()["result"]["serverInfo"]["name"] == "evaldesk"
    assert home.status_code == 401
    assert home.text == f"{KEY_OF_DOOR}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[mcp]\nserve = true\nallow = ["accept"]\n', "allow may have run and propose, got 'accept'"),
        ('[mcp]\nserve = true\nallow = ["run"]\n', "needs a budget"),
        ('[mcp]\nserve = "yes"\n', "mcp"),
        ("[mcp]\nopen = true\n", "mcp"),
    ],
)
def test_settings_of_the_door_are_checked(tmp_path: Any, text: str, words: str) -> None:
    (tmp_path / "evaldesk.toml").write_text(text)

    with pytest.raises(UsageError, match=words):
        read_settings(tmp_path, (tmp_path,), environment={})


def test_settings_of_the_door_are_read(tmp_path: Any) -> None:
    (tmp_path / "evaldesk.toml").write_text('[mcp]\nserve = true\nallow = ["run"]\nbudget = "5usd/day"\n')

    assert read_settings(tmp_path, (tmp_path,), environment={}).mcp == McpSettings(True, ("run",), "5usd/day")
