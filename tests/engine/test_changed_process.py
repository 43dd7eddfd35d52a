"""A trial that changes its process - folder, environment, limits - is named, and no other trial is played in it."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.engine import LocalExecutor, frames
from evaldesk.engine.frames import Ended, frame_from_worker, grade_spec, grader_result, player_result
from evaldesk.engine.worker.attempt import CURRENT_LOG, FORKED_IN, Log, note_forks
from evaldesk.engine.worker.jobs import TrialJob
from evaldesk.model import AgentRef, TrialResult, TrialSpec
from evaldesk.process_setup import ProcessWatch

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

# Says what its process is like. Two trials with "together" in their message wait for one another, as files of this
# folder say it, so that they are under way at once; one that is played again does not wait.
AGENT = """
    import asyncio, os, pathlib, resource, socket, sys

    HERE = pathlib.Path(__file__).parent
    os.environ["SET_BY_THE_MODULE"] = "1"

    def look():
        with open("/proc/self/status") as status:
            umask = next(line for line in status if line.startswith("Umask")).split()[1]
        names = " ".join(sorted(os.environ))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        rest = sys.getrecursionlimit(), socket.getdefaulttimeout()
        return f"{os.getcwd()} {umask} {names} {limits} {rest} {sys.path}"

    def change(what):
        if what == "folder":
            os.chdir("/")
        if what == "environment":
            os.environ["OPENAI_BASE_URL"] = "http://127.0.0.1:9/secret"
        if what == "umask":
            os.umask(0o077)
        if what == "files":
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        if what == "recursion":
            sys.setrecursionlimit(5_000)
        if what == "timeout":
            socket.setdefaulttimeout(7.0)
        if what == "path":
            sys.path.insert(0, "/nowhere")

    async def agent(message):
        what, _, where = message.partition(" ")
        if where == "together":
            (HERE / f"{what}.began").touch()
            while len(list(HERE.glob("*.began"))) < 2:
                await asyncio.sleep(0.001)
            if what == "look":
                while not (HERE / "changed").exists():
                    await asyncio.sleep(0.001)
        change(what)
        if what not in ("look", "first"):
            (HERE / "changed").touch()
        return look()
"""

CHANGES = {
    "folder": "the working folder from ",
    "environment": "the environment: OPENAI_BASE_URL",
    "umask": "the umask from ",
    "files": "RLIMIT_NOFILE from ",
    "recursion": "the recursion limit from ",
    "timeout": "the socket timeout from None to 7.0",
    "path": "sys.path",
}


def said(result: TrialResult) -> str:
    """The answer of the only turn."""
    assert result.status == "finished", result.error
    return result.transcript.turns[0].answer or ""


@pytest.mark.parametrize("change", CHANGES)
async def test_a_trial_that_changes_its_process_is_named_and_the_next_has_another(
    change: str, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(AGENT)
    executor = LocalExecutor(n_workers=1, concurrency=1)

    results = await play(executor, [trial(agent, i, (word,)) for i, word in enumerate(("first", change, "look"))], 1)
    await executor.close()

    assert results[1].changes.startswith(CHANGES[change])
    assert "secret" not in results[1].changes
    assert results[1].changes.count(" to (100, ") == (change == "files")  # a limit with two names is told once
    assert said(results[2]) == said(results[0]) != said(results[1])
    assert results[0].changes == results[2].changes == ""


def test_what_a_player_says_of_its_own_changes_is_dropped_and_what_was_seen_outlives_the_grader(trial: Trial) -> None:
    spec = trial(AgentRef("a", "a:agent"), 0)
    result = TrialResult(
        spec.run_id, spec.case_index, 0, "finished", "unscored", attempt=spec.attempt, changes="forged"
    )

    taken = player_result(spec, result)
    scored = grader_result(grade_spec(spec, replace(taken, changes="the umask")), result)

    assert (taken.changes, scored.changes) == ("", "the umask")


@pytest.mark.parametrize("change", CHANGES)
async def test_a_trial_beside_one_that_changes_the_process_is_played_again(
    change: str, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(AGENT)
    executor = LocalExecutor(n_workers=1, concurrency=2)
    words = (f"{change} together", "look together")

    results = await play(executor, [trial(agent, i, (word,)) for i, word in enumerate(words)], 2)
    alone = await play(executor, [trial(agent, 2, ("look",))], 1)
    await executor.close()

    assert CHANGES[change] in results[0].changes
    assert said(results[1]) == said(alone[2])
    assert results[1].changes == ""
    assert [results[at].attempt for at in (0, 1)] == [2, 2]


@pytest.mark.parametrize("whose", ["another's", "its own"])
def test_a_trial_whose_pipe_a_child_of_another_may_hold_is_played_again(
    whose: str, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = TrialJob(frames.Play(1, trial(AgentRef("a", "a:agent"))), lambda _: None, ProcessWatch())
    work.attempt.begin("play", 1.0)
    work.attempt.stop = "timed_out"
    note_forks()
    log = Log() if whose == "another's" else work.attempt.log

    def fork() -> None:
        CURRENT_LOG.set(log)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the tests have
            pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)

    copy_context().run(fork)
    frame = frame_from_worker(work.given_up("where it stands"))

    FORKED_IN.discard(log.number)

    assert isinstance(frame, Ended)
    is_held = whose == "another's"
    assert (frame.began_changed, frame.changed) == (is_held, ("a trial forked it",) * is_held)


async def test_no_trial_of_many_sees_the_folder_of_another(write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent(AGENT)
    executor = LocalExecutor(n_workers=2, concurrency=8)
    words = ["folder" if index in {3, 17} else "look" for index in range(40)]

    results = await play(executor, [trial(agent, i, (word,)) for i, word in enumerate(words)], 8)
    await executor.close()

    folders = {index: said(result).split()[0] for index, result in results.items()}
    assert {index for index, folder in folders.items() if folder == "/"} == {3, 17}
    assert {index for index, result in results.items() if result.changes} == {3, 17}


async def test_a_late_import_that_appends_the_working_folder_is_no_change(
    write_agent: Write, trial: Trial, play: Play
) -> None:
    source = "import os, sys\n\ndef agent(message):\n    {}\n    return str(os.getpid())\n"
    agent = write_agent(source.format("sys.path.append(os.getcwd()) if os.getcwd() not in sys.path else None"))
    executor = LocalExecutor(n_workers=1, concurrency=1)

    results = await play(executor, [trial(agent, index) for index in range(3)], 1)
    await executor.close()

    assert len({said(result) for result in results.values()}) == 1
    assert {result.changes for result in results.values()} == {""}


async def test_a_price_that_is_asked_for_late_costs_no_player(write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent(
        "import os\n\ndef agent(message):\n    from evaldesk.llm.client import open_litellm\n\n    open_litellm()\n"
        "    return str(os.getpid())\n"
    )
    executor = LocalExecutor(n_workers=1, concurrency=1)

    results = await play(executor, [trial(agent, index, timeout_s=120) for index in range(2)], 1)
    await executor.close()

    assert said(results[0]) == said(results[1])
    assert {result.changes for result in results.values()} == {""}


async def test_settings_that_the_module_of_an_agent_makes_are_no_change(
    write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(
        "import os, sys\n" + "os.chdir('/')\nsys.path.append('/nowhere')\nagent = lambda message: 'x'\n"
    )
    executor = LocalExecutor(n_workers=1, concurrency=2)

    results = await play(executor, [trial(agent, index) for index in range(4)], 2)
    await executor.close()

    assert [(result.changes, result.attempt) for result in results.values()] == [("", 1)] * 4


async def test_a_change_between_two_trials_is_of_neither(write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent("""
        import os, pathlib, threading, time

        HERE = pathlib.Path(__file__).parent

        def late():
            while not (HERE / "go").exists():
                time.sleep(0.001)
            os.chdir("/")
            (HERE / "gone").touch()

        def agent(message):
            if message == "start":
                threading.Thread(target=late, daemon=True).start()
            return os.getcwd()
    """)
    here = Path(agent.folder)
    executor = LocalExecutor(n_workers=1, concurrency=1)

    first = await play(executor, [trial(agent, 0, ("start",))], 1)
    (here / "go").touch()
    while not (here / "gone").exists():
        await asyncio.sleep(0.001)
    second = await play(executor, [trial(agent, 1, ("look",))], 1)
    await executor.close()

    assert said(first[0]) == said(second[1])
    assert (first[0].changes, second[1].changes, second[1].attempt) == ("", "", 2)
