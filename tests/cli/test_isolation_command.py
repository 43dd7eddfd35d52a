"""`isolation` of a run, an agent and a workspace: which one holds, what pages say of it, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import fake_docker
from tests.forked_commands import ForkedCommands
from tests.virtual_environments import make_environment

from evaldesk import evaluate
from evaldesk.errors import UsageError
from evaldesk.pages.runs.facts import all_facts
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.store import Store

AGENT = """
seen = []

def agent(message, state):
    seen.append(message)
    return f"{len(seen)} seen"
"""
CRITERION = {"response_match_score": 1.0}
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose agent remembers earlier trials, and two cases that pass where it does not."""
    home = tmp_path / "home"
    (home / "shop").mkdir(parents=True)
    (home / "shop" / "agent.py").write_text(AGENT)
    (home / "test_config.json").write_text(json.dumps({"criteria": CRITERION}))
    turn = {"user_content": {"parts": [{"text": "Go"}]}, "final_response": {"parts": [{"text": "1 seen"}]}}
    cases = [{"eval_id": name, "conversation": [turn]} for name in ("one", "two")]
    (home / "seen.evalset.json").write_text(json.dumps({"eval_set_id": "seen", "eval_cases": cases}))
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def command(commands: ForkedCommands) -> Command:
    return commands.run


def played(home: Path) -> list[tuple[str, int]]:
    """Isolation and passed trials of each run."""
    with Store.open(home / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        return [(run.config.isolation, run.counts.passed) for run in reversed(store.runs.list())]


@pytest.mark.server
def test_the_run_wins_over_the_agent_and_the_agent_over_the_workspace(shop: Path, command: Command) -> None:
    (shop / "evaldesk.toml").write_text(
        'isolation = "process"\n[agents.own]\ntarget = "shop"\nisolation = "shared"\n[agents.usual]\ntarget = "shop"\n'
    )
    words = ("seen.evalset.json", "--concurrency", "1")

    usual = command("eval", "usual", *words)
    command("eval", "own", *words)
    given = command("eval", "own", *words, "--isolation", "process", "--memory", "2048", "--processes", "3")
    informed = command("run", "info", "3")

    assert (usual.returncode, given.returncode) == (0, 0), usual.stdout + usual.stderr + given.stdout + given.stderr
    assert [isolation for isolation, _ in played(shop)] == ["process", "shared", "process"]
    assert [passed for _, passed in played(shop)][::2] == [2, 2]
    assert played(shop)[1][1] == 1
    assert "isolation=process" in informed.stdout
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        told = {fact.name: fact.text for fact in all_facts(store.runs.summary(3))}
    assert (told["Isolation"], told["Memory of a trial"], told["Processes of a trial"]) == ("process", "2048 MiB", "3")


@pytest.mark.server
def test_each_trial_has_a_container_of_its_own(
    shop: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker.need_namespaces()
    place = tmp_path / "docker"
    binaries = fake_docker.install(place)
    make_environment(place / "images" / "shop_7")
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")

    done = command("eval", "shop", "seen.evalset.json", "--image", "shop:7", "--isolation", "container")

    assert done.returncode == 0, done.stdout + done.stderr
    assert played(shop) == [("container", 2)]


LOCKED = """
import asyncio
import os

slots = asyncio.Semaphore(1)

async def agent(message):
    async with slots:
        await asyncio.sleep(0.02)
    return "1 seen"
"""
PLAYED_ALONE = (
    "this machine, in processes, one for each trial, because shop.agent.slots is an object of one event loop "
    "(asyncio.Semaphore)"
)


@pytest.mark.server
def test_an_agent_with_a_lock_of_one_loop_is_played_one_trial_a_process_from_then_on(
    shop: Path, command: Command
) -> None:
    (shop / "shop" / "agent.py").write_text(LOCKED)

    first = command("eval", "shop", "seen.evalset.json", "--n", "3")
    second = command("eval", "shop", "seen.evalset.json", "--n", "3")
    (shop / "shop" / "agent.py").write_text(
        LOCKED.replace("slots = asyncio.Semaphore(1)", "from contextlib import nullcontext as slots").replace(
            "async with slots:", "async with slots():"
        )
    )
    mended = command("eval", "shop", "seen.evalset.json", "--n", "3")

    assert [done.returncode for done in (first, second, mended)] == [0, 0, 0], first.stdout + first.stderr
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        runs = [store.runs.summary(number) for number in (1, 2, 3)]
    played_in = [next(fact.text for fact in all_facts(run) if fact.name == "Played in") for run in runs]
    assert played_in == [PLAYED_ALONE, PLAYED_ALONE, "this machine, in processes that trials share"]
    assert runs[0].n_played_again > 0 == runs[1].n_played_again
    assert {run.config.isolation for run in runs} == {"auto"}


SHARED_WORDS = (
    "Trials of one process share a module global that they change (shop.agent.seen), so they may depend on each other; "
    "with isolation = 'process' each begins anew."
)


@pytest.mark.server
def test_a_run_says_which_module_globals_its_trials_share(shop: Path, command: Command) -> None:
    words = ("seen.evalset.json", "--n", "3", "--concurrency", "1")

    shared = command("eval", "shop", *words, "--summary", "summary.md")
    alone = command("eval", "shop", *words, "--isolation", "process")
    informed = command("run", "info", "1")
    as_json = json.loads(command("run", "info", "1", "--json").stdout)

    assert SHARED_WORDS in shared.stdout
    assert "share" not in alone.stdout
    assert SHARED_WORDS in informed.stdout
    assert SHARED_WORDS.rstrip(".") in (shop / "summary.md").read_text("utf-8").replace("\\", "")
    assert as_json["data"]["shared_state"] == {"changed_globals": ["shop.agent.seen"], "loop_bound": ""}
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        pages = [read_run(store.runs, number, RunQuery()).reliability.detail for number in (1, 2)]
    assert [SHARED_WORDS in detail for detail in pages] == [True, False]


def test_evaluate_gives_each_trial_a_process(shop: Path) -> None:
    result = evaluate("shop", shop / "seen.evalset.json", criteria=CRITERION, concurrency=1, isolation="process")

    assert result.counts.passed == 2
    with pytest.raises(UsageError, match="an object stays in this process"):
        evaluate(lambda message: message, shop / "seen.evalset.json", isolation="process")


@pytest.mark.parametrize(
    ("text", "words", "problem"),
    [
        ("", ("--isolation", "container"), "isolation = 'container' needs an image"),
        ("", ("--memory", "512"), "memory_mib bounds a trial with a process of its own; add isolation = 'process'"),
        ("", ("--processes", "3"), "processes bounds a trial with a process of its own"),
        ("", ("--isolation", "process", "--memory", "10"), "memory of a trial in MiB: 256 to 1048576, not 10"),
        ('isolation = "none"\n', (), "isolation is one of auto, shared, process, sandbox, container, not 'none'"),
        ('[agents.a]\ntarget = "shop"\nisolation = 3\n', (), "[agents.a]: isolation is one of auto, shared, process"),
        ('[agents.a]\nmodel = "demo/dice"\nisolation = "process"\n', (), "isolation is for an agent with a target"),
    ],
)
def test_what_cannot_be_is_refused(
    shop: Path, command: Command, text: str, words: tuple[str, ...], problem: str
) -> None:
    (shop / "evaldesk.toml").write_text(text)

    done = command("eval", "shop", "seen.evalset.json", *words)

    assert done.returncode == 2, done.stdout + done.stderr
    assert problem in done.stderr
