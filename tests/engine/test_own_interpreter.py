"""Agents on an interpreter of their own: in a bare environment, with versions of packages that conflict with ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.islands import of_tools
from tests.virtual_environments import interpreter, make_environment

from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.launch import ProcessLauncher
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, Criterion, Event, TrialResult, TrialSpec, TurnRecord, TurnSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

# msgspec of the agent's environment is one that we cannot use; what lies beside Evaldesk must not be found.
AGENT = '''
    import os, subprocess, sys
    import litellm, msgspec
    from importlib.util import find_spec

    def agent(message, state):
        """Says where it is."""
        state["asked"] = state.get("asked", 0) + 1
        if message == "child":
            return subprocess.check_output(["python", "-c", "import sys; print(sys.prefix)"], text=True)
        if message == "spawn":
            from multiprocessing import get_context
            with get_context("spawn").Pool(1) as pool:
                return pool.apply(os.path.basename, ("/a/spawned",))
        if message == "path":
            return "finds " + " ".join(name for name in ("httpx", "starlette", "orjson") if find_spec(name))
        return f"{sys.prefix} {litellm.VERSION} {msgspec.VERSION} {os.environ.get('VIRTUAL_ENV')}"
'''


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shop") / ".venv"
    return str(make_environment(folder, litellm="1.60.0", msgspec="0.1.0"))


def environment_of(python: str) -> str:
    return str(Path(python).parents[1])


async def answers(host: ChatPlayers, ref: AgentRef, *messages: str) -> list[str]:
    found = []
    for message in messages:
        record = [item async for item in host.play_turn(TurnSpec("s", ref, message))][-1]
        assert isinstance(record, TurnRecord)
        texts = [event.text for event in record.events if isinstance(event, Event) and event.kind == "agent_message"]
        found.append(texts[0].strip() if texts else str(record.error))
    return found


@of_tools("osmosis")
async def test_a_trial_is_played_there_and_graded_here(
    python: str, write_agent: Write, trial: Make, play: Play, tmp_path: Path
) -> None:
    ref = replace(write_agent(AGENT), python=python)
    (tmp_path / "where.py").write_text(
        "import sys\nfrom osmosis_ai import osmosis_reward\n\n@osmosis_reward\n"
        "def grades(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:\n"
        f"    return float(sys.prefix == {sys.prefix!r} and solution_str.startswith({environment_of(python)!r}))\n"
    )
    graded_here = Criterion("where", 1.0, {"function": "where:grades", "root": str(tmp_path)})
    executor = LocalExecutor(2, 4, launcher=ProcessLauncher(python))

    specs = [replace(trial(ref, index), criteria=(graded_here,)) for index in range(3)]
    results = await play(executor, specs)
    await executor.close()

    assert [results[index].verdict for index in range(3)] == ["passed"] * 3, results[0]
    turn = results[0].transcript.turns[0]
    said = next(event.text for event in turn.events if event.kind == "agent_message")
    assert said == f"{environment_of(python)} 1.60.0 0.1.0 {environment_of(python)}"
    assert dict(turn.state_after or {}) == {"asked": 1}


async def test_a_chat_is_played_there(python: str, write_agent: Write, host: ChatPlayers) -> None:
    ref = replace(write_agent(AGENT), python=python)

    found = await answers(host, ref, "where", "child", "spawn", "path")

    where = environment_of(python)
    assert found == [f"{where} 1.60.0 0.1.0 {where}", where, "spawned", "finds"]


async def test_one_agent_on_two_interpreters_is_two_players(python: str, write_agent: Write, host: ChatPlayers) -> None:
    ref = write_agent("import sys\n\ndef agent(message):\n    return sys.prefix\n")

    assert await answers(host, ref, "where") == [sys.prefix]
    assert await answers(host, replace(ref, python=python), "where") == [environment_of(python)]


async def test_it_describes_itself_there(python: str, write_agent: Write, host: ChatPlayers) -> None:
    description = await host.describe(replace(write_agent(AGENT), python=python))

    assert (description.kind, description.description) == ("python", "Says where it is.")


async def test_an_interpreter_that_is_gone_is_named(write_agent: Write, host: ChatPlayers, tmp_path: Path) -> None:
    missing = str(tmp_path / "gone" / "bin" / "python")

    with pytest.raises(AgentError, match=f"the player on {missing} cannot be started"):
        await host.describe(replace(write_agent(AGENT), python=missing))


async def test_an_interpreter_that_is_too_old_says_so(write_agent: Write, host: ChatPlayers) -> None:
    old = interpreter("3.9") or interpreter("3.8")
    if old is None:
        pytest.skip("there is no Python older than 3.10 on this machine")

    with pytest.raises(AgentError, match=r"exit code 1: a player needs Python 3\.10 or newer, this is 3\.[89]"):
        await host.describe(replace(write_agent(AGENT), python=old))


STARTS = {
    "says why it does not start": ("echo the licence has expired >&2; exit 3", "exit code 3: the licence has expired"),
    "prints a line": (f'echo activating; exec {sys.executable} "$@"', ""),
    "prints without an end": (f'printf activating; exec {sys.executable} "$@"', ""),
    "prints no text": (f"printf '\\377{{}}\\n'; exec {sys.executable} \"$@\"", ""),
}


@pytest.mark.long
@pytest.mark.parametrize(("script", "said"), STARTS.values(), ids=STARTS)
async def test_an_interpreter_may_print_at_its_start_and_says_why_it_has_none(
    script: str, said: str, write_agent: Write, host: ChatPlayers, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    ref = replace(write_agent(AGENT), python=str(python))

    if said:
        with pytest.raises(AgentError, match=said):
            await host.describe(ref)
    else:
        assert (await host.describe(ref)).kind == "python"


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13", "3.14"])
async def test_a_trial_is_played_on_other_pythons(
    version: str, write_agent: Write, trial: Make, play: Play, tmp_path: Path
) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    python = str(make_environment(tmp_path / "venv", found))
    ref = replace(write_agent("import sys\n\nasync def agent(message):\n    return message\n"), python=python)
    executor = LocalExecutor(1, 4, launcher=ProcessLauncher(python))

    results = await play(executor, [trial(ref, index, ("one", "two")) for index in range(4)])
    await executor.close()

    assert [results[index].verdict for index in range(4)] == ["passed"] * 4, results[0]


async def test_variables_of_our_interpreter_do_not_reach_it(
    python: str, write_agent: Write, trial: Make, play: Play
) -> None:
    ref = replace(write_agent("import sys\n\ndef agent(message):\n    return message\n"), python=python)
    given = {**os.environ, "PYTHONHOME": "/nowhere", "VIRTUAL_ENV": "/ours"}

    host = ChatPlayers(environment=given)
    found = await answers(host, ref, "hello")
    await host.close()

    assert found == ["hello"]
