"""The door for coding agents, driven by the official client over standard input and output, and in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import INPUTS, PROPOSALS, files_of, lasting_budget, play_and_propose, rows_of

from evaldesk.desk.desk import Desk
from evaldesk.model.client_budget import Budget
from evaldesk.pages.door.fit import material_of
from evaldesk.pages.door.tools import FOR_PERSONS, TOOLS, Caller, tools_of
from evaldesk.settings import read_settings
from evaldesk.web.mcp_server import answer_text

EVERYTHING = frozenset({"run", "propose"})


@pytest.fixture
def played(place: CommandFolder) -> CommandFolder:
    skip_without("mcp")
    play_and_propose(place)
    return place


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that play submitted runs, which end before the test does."""
    processes: list[subprocess.Popen[bytes]] = []

    def begun(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen(*arguments, **options))
        return processes[-1]

    of_module = SimpleNamespace(Popen=begun, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr("evaldesk.desk.runs.handover.subprocess", of_module)
    yield processes
    for process in processes:
        process.wait(60)


@contextlib.asynccontextmanager
async def client_of(folder: Path, caller: Caller, name: str | None = None) -> AsyncIterator[Any]:
    """The official client in this process, at a server of the workspace; `name` is what it calls itself."""
    from mcp.client import Client
    from mcp_types import Implementation

    from evaldesk.web.mcp_server import build_server

    desk = Desk.open(read_settings(folder, (folder,), environment={}))

    async def opened() -> Desk:
        return desk

    try:
        info = None if name is None else Implementation(name=name, version="1")
        async with Client(build_server(opened, caller), client_info=info) as client:
            yield client
    finally:
        await desk.close()


def driven(folder: Path, caller: Caller, steps: Callable[[Any], Awaitable[Any]], name: str | None = None) -> Any:
    """The result of some steps with a client."""

    async def drive() -> Any:
        async with client_of(folder, caller, name) as client:
            return await steps(client)

    return asyncio.run(drive())


async def value_of(client: Any, name: str, inputs: Mapping[str, Any], *, is_error: bool = False) -> dict[str, Any]:
    """The value in the answer of a tool."""
    result = await client.call_tool(name, dict(inputs))
    (content,) = result.content
    assert bool(result.is_error) is is_error, content.text
    return material_of(content.text)


def test_the_official_client_drives_every_reading_and_proposing_tool(played: CommandFolder) -> None:
    async def steps(client: Any) -> None:
        for name, (inputs, _) in INPUTS.items():
            await value_of(client, name, inputs)
        for number, (name, inputs) in enumerate(PROPOSALS.items(), 2):
            answer = await value_of(client, name, inputs)
            assert (answer["proposal"], answer["is_joined"]) == (number, False), name
            assert (await value_of(client, name, inputs))["is_joined"], name
        shown = await value_of(client, "get_case", {"set": "words", "case": "case_2"})
        assert {each["kind"] for each in shown["proposals"]} == {"edit", "expectation", "finding"}

    driven(played.folder, Caller(allowed=EVERYTHING), steps)

    listed = json.loads(played.run("proposals", "list", "--json").stdout)
    *made, earlier = listed["items"]
    assert {each["client"] for each in made} == {"coding agent mcp"}
    assert [each["n_times"] for each in made] == [2] * len(PROPOSALS)
    assert earlier["n_times"] == 1


@pytest.mark.parametrize(
    "allowed",
    [frozenset(), frozenset({"run"}), frozenset({"propose"}), EVERYTHING],
    ids=lambda groups: "+".join(sorted(groups)) or "read",
)
def test_the_tools_are_exactly_those_that_are_allowed(played: CommandFolder, allowed: frozenset[str]) -> None:
    async def steps(client: Any) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [*tools_of(allowed)]
        assert all(tool.input_schema == TOOLS[tool.name].schema for tool in listed)
        for name in set(TOOLS) - set(tools_of(allowed)):
            assert "evaldesk mcp --allow" in (await value_of(client, name, {}, is_error=True))["error"]

    driven(played.folder, Caller(allowed=allowed), steps)


def test_a_client_that_reads_nothing_is_not_read_without_end(played: CommandFolder) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest

    from evaldesk.web.mcp_server import MAX_UNANSWERED, bounded_streams, build_server

    async def drive() -> tuple[int, list[Any]]:
        async def opened() -> Desk:
            raise AssertionError

        sending, reading = anyio.create_memory_object_stream[Any](2_000)
        writing, taking = anyio.create_memory_object_stream[Any](0)
        meta = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        messages = [JSONRPCRequest(jsonrpc="2.0", id=0, method="initialize", params=meta)]
        inputs = {"name": "get_docs", "arguments": {"topic": "metrics"}}
        messages += [JSONRPCRequest(jsonrpc="2.0", id=n, method="tools/call", params=inputs) for n in range(1, 301)]
        server = build_server(opened, Caller())

        async def serve() -> None:
            async with bounded_streams(reading, writing) as streams:
                await server.run(*streams, server.create_initialization_options())

        async with sending, taking, reading, writing, anyio.create_task_group() as tasks:
            for message in messages:
                sending.send_nowait(SessionMessage(message))
            tasks.start_soon(serve)
            with anyio.fail_after(60):
                while reading.statistics().current_buffer_used > len(messages) - MAX_UNANSWERED:
                    await anyio.lowlevel.checkpoint()
                for _ in range(2_000):
                    await anyio.lowlevel.checkpoint()
                n_left = reading.statistics().current_buffer_used
                answers = [(await taking.receive()).message.id for _ in messages]
            sending.close()
        return n_left, answers

    n_left, answers = asyncio.run(drive())

    assert n_left >= 301 - MAX_UNANSWERED - 2
    assert sorted(answers) == list(range(301))


def test_resources_and_prompts_are_there(played: CommandFolder) -> None:
    async def steps(client: Any) -> None:
        run = await client.read_resource("evaldesk://run/1")
        assert material_of(run.contents[0].text)["data"]["id"] == 1
        trial = await client.read_resource("evaldesk://run/1/case/case_2/trial/1")
        assert material_of(trial.contents[0].text)["verdict"] == "failed"
        for uri in ("evaldesk://run/99", "evaldesk://run/1/case/case_2/trial/7", "evaldesk://runs"):
            with pytest.raises(Exception, match=r"has no run 99|no trial 7|no resource"):
                await client.read_resource(uri)
        for name in ("diagnose", "diagnose_run"):
            with pytest.raises(Exception, match=r"did you mean 'diagnose_run'|run is missing"):
                await client.get_prompt(name, {})
        prompts = (await client.list_prompts()).prompts
        assert [each.name for each in prompts] == ["diagnose_run", "write_cases_for_tool", "before_merge"]
        text = (await client.get_prompt("diagnose_run", {"run": "1"})).messages[0].content.text
        assert "get_run for run 1" in text

    driven(played.folder, Caller(), steps)


@pytest.mark.server
def test_a_run_is_started_played_and_waited_for_within_the_budget(
    played: CommandFolder, drivers: list[subprocess.Popen[bytes]]
) -> None:
    async def steps(client: Any) -> None:
        agent = played.agent.name
        started = await value_of(client, "try_case", {"agent": agent, "set": "words", "case": "case_1", "n": 2})
        run = str(started["id"])
        assert (started["started_by"], started["status"] in ("pending", "running", "finished")) == (
            "coding agent mcp",
            True,
        )
        for _ in range(5):
            answer = await value_of(client, "wait", {"run": run, "seconds": 50})
            if answer["status"] == "finished":
                break
        assert (answer["status"], answer["summary"]["passed"]) == ("finished", 2)
        options = {"agent": agent, "set": "words", "options": {"pass_threshold": 0}}
        assert "is for a person" in (await value_of(client, "start_run", options, is_error=True))["error"]
        assert "started by a person" in (await value_of(client, "stop_run", {"run": "1"}, is_error=True))["error"]

    driven(played.folder, Caller(allowed=EVERYTHING, budget=lasting_budget(5)), steps)

    assert len(drivers) == 1


def test_the_official_client_drives_the_playing_tools_to_their_ends(
    played: CommandFolder, drivers: list[subprocess.Popen[bytes]]
) -> None:
    trial = {"run": "1", "case": "case_2", "trial": 1}

    async def final_item(client: Any, run: int) -> dict[str, Any]:
        for _ in range(5):
            answer = await value_of(client, "wait", {"run": str(run), "seconds": 50})
            if answer["status"] not in ("pending", "running"):
                break
        return answer

    async def steps(client: Any) -> None:
        fork = await value_of(client, "fork", trial | {"turn": 1, "n": 2})
        answer = await final_item(client, fork["result"]["run"])
        assert (answer["status"], answer["summary"]["failed"]) == ("finished", 2)
        started = await value_of(client, "start_run", {"agent": played.agent.name, "set": "words", "n": 20})
        await value_of(client, "stop_run", {"run": str(started["id"])})
        item = await final_item(client, started["id"])
        assert item["status"] in ("stopped", "finished")
        assert (await value_of(client, "stop_run", {"run": "1"}, is_error=True))["error"]
        for _ in range(600):
            blame = await value_of(client, "blame", trial | {"forks": 20})
            if blame["status"] not in ("planned", "running"):
                break
            await asyncio.sleep(0.2)
        assert blame["status"] not in ("planned", "running")
        assert blame == await value_of(client, "blame", trial)

    driven(played.folder, Caller(allowed=EVERYTHING), steps)

    assert len(drivers) == 3


def test_without_budget_left_no_run_begins(played: CommandFolder) -> None:
    async def steps(client: Any) -> None:
        inputs = {"agent": played.agent.name, "set": "words"}
        assert "is spent for this day" in (await value_of(client, "start_run", inputs, is_error=True))["error"]

    driven(played.folder, Caller(allowed=EVERYTHING, budget=lasting_budget(0)), steps)


@pytest.mark.parametrize("name", ["", " \n\x1b"], ids=["empty", "blank"])
def test_a_run_of_a_client_without_a_name_is_no_persons_run(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    inputs = {"agent": played.agent.name, "set": "words"}

    async def steps(client: Any) -> None:
        assert (await value_of(client, "start_run", inputs))["started_by"] == "a coding agent"
        assert (
            "is held by run 3 until the end; wait for it, or stop it"
            in (await value_of(client, "start_run", inputs, is_error=True))["error"]
        )

    driven(played.folder, Caller(allowed=EVERYTHING, budget=lasting_budget(5)), steps, name)


def test_a_run_that_a_command_starts_within_a_budget_counts_against_it(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    monkeypatch.setattr(Budget, "read", lambda _: lasting_budget(0.01))
    words = ("run", "start", played.agent.name, "words", "--json")

    of_person = played.run(*words)
    first = played.run(*words, "--budget", "0.01usd/day", "--by", "Claude Code")
    second = played.run(*words, "--budget", "0.01usd/day")

    assert (of_person.exit_code, first.exit_code) == (0, 0)
    assert json.loads(first.stdout)["started_by"] == "coding agent Claude Code"
    assert "is held by run 4 until the end" in str(second.exception)


def test_a_run_that_tells_no_cost_is_named_where_it_counts_as_all_that_was_left(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    monkeypatch.setattr(Budget, "read", lambda _: lasting_budget(5))
    agent = played.agent / "agent.py"
    agent.write_text(agent.read_text().replace("root_agent.tells_cost = True", ""))
    words = ("run", "start", played.agent.name, "words", "--case", "case_1", "--budget", "5usd/day")

    first = played.run(*words)
    played.run("run", "resume", "3")
    second = played.run(*words)

    assert first.exit_code == 0
    assert re.search(r"is spent for this day: run 3 tells no cost, .+ says tells_cost = true", str(second.exception))


def test_runs_that_are_asked_for_at_once_share_the_budget_of_the_day(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    inputs = {"agent": played.agent.name, "set": "words"}

    async def steps(client: Any) -> list[bool]:
        answers = await asyncio.gather(*(client.call_tool("start_run", inputs) for _ in range(3)))
        return [bool(each.is_error) for each in answers]

    assert sorted(driven(played.folder, Caller(allowed=EVERYTHING, budget=lasting_budget(5)), steps)) == [
        False,
        True,
        True,
    ]


def test_a_new_day_has_a_budget_of_its_own(played: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    inputs = {"agent": played.agent.name, "set": "words"}

    async def steps(client: Any) -> None:
        assert (await value_of(client, "start_run", inputs))["status"] == "pending"

    for _ in range(2):
        budget = Budget(5, lambda: datetime(2999, 1, 1, tzinfo=UTC))
        driven(played.folder, Caller(allowed=EVERYTHING, budget=budget), steps)


def test_two_clients_at_two_desks_share_the_budget_of_the_day(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    inputs = {"agent": played.agent.name, "set": "words"}
    caller = Caller(allowed=EVERYTHING, budget=lasting_budget(5))

    async def drive() -> list[bool]:
        async with client_of(played.folder, caller, "one") as one, client_of(played.folder, caller, "other") as other:
            answers = await asyncio.gather(*(each.call_tool("start_run", inputs) for each in (one, other)))
            return [bool(each.is_error) for each in answers]

    assert sorted(asyncio.run(drive())) == [False, True]


def test_more_runs_of_a_day_than_are_counted_are_refused(
    played: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    monkeypatch.setattr("evaldesk.desk.client_runs.MAX_RUNS_A_DAY", 1)
    inputs = {"agent": played.agent.name, "set": "words"}

    async def steps(client: Any) -> None:
        await value_of(client, "start_run", inputs)
        assert "1 runs this day" in (await value_of(client, "start_run", inputs, is_error=True))["error"]

    driven(played.folder, Caller(allowed=EVERYTHING, budget=lasting_budget(5)), steps)


def test_no_part_of_a_secret_is_left_where_a_long_answer_is_cut(place: CommandFolder) -> None:
    secret = "correct-horse-battery-staple"
    case = {"eval_id": "long", "conversation": [{"user_content": {"parts": [{"text": f"{secret} " * 2_000}]}}]}
    (place.folder / "secret.evalset.json").write_text(json.dumps({"eval_set_id": "secret", "eval_cases": [case]}))

    async def ask() -> tuple[str, bool]:
        desk = Desk.open(read_settings(place.folder, (place.folder,), environment={"DB_PASSWORD": secret}))

        async def opened() -> Desk:
            return desk

        try:
            return await answer_text(opened, Caller(), "get_case", inputs)
        finally:
            await desk.close()

    inputs = {"set": "secret", "case": "long", "max_tokens": 1_000}
    text, is_error = asyncio.run(ask())

    assert (is_error, "left_out" in text, "[DB_PASSWORD]" in text) == (False, True, True)
    assert [part for part in secret.split("-") if part in text] == []


def test_a_database_that_breaks_every_query_is_one_sentence_for_the_client(played: CommandFolder) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(played.folder / ".evaldesk/evaldesk.db")) as connection:
        connection.execute("ALTER TABLE proposal DROP COLUMN reply")

    async def steps(client: Any) -> None:
        answer = await value_of(client, "get_case", {"set": "words", "case": "case_2"}, is_error=True)
        assert answer["error"] == "the tool broke off; the log of Evaldesk has the trace"

    driven(played.folder, Caller(), steps)


def test_the_first_answer_needs_no_desk_and_builds_no_message_that_is_not_used() -> None:
    skip_without("mcp")
    code = """
import sys
import evaldesk.cli.door.mcp, evaldesk.cli.files.exchange_files
from evaldesk.pages.door.tools import TOOLS, Caller
from evaldesk.web.mcp_server import build_server, check_installed
check_installed()
build_server(None, Caller())
import mcp_types, pydantic
heavy = {"sqlalchemy", "litellm", "pandas", "evaldesk.desk.desk", "evaldesk.store"} & set(sys.modules)
heavy |= {"mcp.client", "mcp.server.mcpserver"} & set(sys.modules)
print(heavy, mcp_types.Tool.__pydantic_complete__, pydantic.BaseModel.model_config.get("defer_build"))
"""
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split() == ["set()", "False", "None"]


def test_the_documentation_is_read_without_a_desk(tmp_path: Path) -> None:
    skip_without("mcp")
    code = """
import asyncio, sys
import evaldesk.cli.door.mcp
from evaldesk.pages.door.tools import Caller
from evaldesk.web.mcp_server import answer_text
text, is_error = asyncio.run(answer_text(None, Caller(), "get_docs", {"topic": "coding-agents#limits"}))
heavy = {"sqlalchemy", "litellm", "pandas", "evaldesk.desk.desk", "evaldesk.store"} & set(sys.modules)
print(is_error, heavy, "keeps a coding agent from the bar" in text)
"""
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120
    )

    assert result.stdout.split() == ["False", "set()", "True"]


def test_the_package_is_complete_for_code_that_uses_it_after_the_server() -> None:
    skip_without("mcp")
    code = """
from evaldesk.web.mcp_server import check_installed
check_installed()
check_installed()
import mcp, mcp.server
print(mcp.client.__name__, mcp.server.MCPServer.__name__, hasattr(mcp, "nothing"), set(mcp.__all__) - set(dir(mcp)))
from mcp import ClientSession, StdioServerParameters
from mcp.server import Server
print(Server is mcp.server.lowlevel.Server, ClientSession is mcp.client.session.ClientSession)
"""
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.split("\n") == ["mcp.client MCPServer False set()", "True True", ""]


def test_after_500_random_calls_nothing_but_proposals_has_changed(played: CommandFolder) -> None:
    chance = random.Random(42)
    known = {name: inputs for name, (inputs, _) in INPUTS.items() if name != "list_agents"} | dict(PROPOSALS)
    values = ["1", "2", "99", "words", "case_1", "case_2", "", "../x", "\x1b[2J", "accept all", 0, -1, 10**9, None]
    values += [[], ["1", "2"], {}, {"conversation": None}, {"eval_id": "x"}, "verdict:failed", True, 1.5, "é" * 3_000]
    files, rows = files_of(played.folder), rows_of(played.folder)

    async def steps(client: Any) -> int:
        n_answers = 0
        for _ in range(500):
            name = chance.choice([*known, *known, *known, *FOR_PERSONS])
            inputs = dict(known.get(name, {}))
            for _ in range(chance.randrange(3)):
                keys = [*inputs, "run", "set", "case", "filter", "why", "patch", "limit", "cursor", "max_tokens"]
                inputs[chance.choice(keys)] = chance.choice(values)
            result = await client.call_tool(name, inputs)
            assert len(result.content[0].text.encode()) <= 8_000 * 3.5 or "max_tokens" in inputs
            material_of(result.content[0].text)
            assert "broke off" not in result.content[0].text, (name, inputs)
            n_answers += not result.is_error
        return n_answers

    n_answers = driven(played.folder, Caller(allowed=frozenset({"propose"})), steps)

    assert n_answers > 100
    assert files_of(played.folder) == files
    assert rows_of(played.folder) == rows


@pytest.mark.server
def test_the_process_writes_nothing_but_the_protocol_to_its_output(played: CommandFolder) -> None:
    from mcp import StdioServerParameters
    from mcp.client import Client

    command = [sys.executable, "-P", "-m", "evaldesk", "mcp", "--allow", "propose", "--workspace", str(played.folder)]

    async def drive() -> None:
        async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [*tools_of(frozenset({"propose"}))]
            answer = await value_of(client, "get_run", {"run": "1"})
            assert answer == json.loads(played.run("run", "info", "1", "--json").stdout)
            agents = await value_of(client, "list_agents", {})
            assert [each["id"] for each in agents["items"]] == [played.agent.name]

    asyncio.run(drive())


@pytest.mark.server
@pytest.mark.parametrize("reads_answers", [True, False], ids=["after its answers", "before its answers"])
def test_the_process_ends_when_its_client_is_gone(played: CommandFolder, *, reads_answers: bool) -> None:
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "gone", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": info},
        {"method": "notifications/initialized"},
        *(
            {"id": number, "method": "tools/call", "params": {"name": "get_run", "arguments": {"run": "1"}}}
            for number in range(2, 12)
        ),
    ]
    command = [sys.executable, "-P", "-m", "evaldesk", "mcp", "--workspace", str(played.folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            for message in messages:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            answers = [json.loads(process.stdout.readline()) for _ in range(11 if reads_answers else 1)]
            process.stdout.close()
            process.stdin.close()
            code = process.wait(60)
        finally:
            process.kill()
        assert [each["id"] for each in answers][:1] == [1]
        assert {each["id"] for each in answers} <= {*range(1, 12)}
        told = process.stderr.read()
        assert (code, told) == (0, "")
