"""`evaldesk eval` as a process: what it prints, how it ends, and what a desk makes of its runs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder

pytestmark = pytest.mark.server

PATIENCE_S = 120.0
QUERIES = ["case 1", "case 2", "case 3", "case 7"]
SAID = """\
✓ ✓  case_1
✓ ✓  case_2
! !  case_3
    trial 1 errored: ValueError: threes are not found
✗ ✗  case_7
    trial 1 failed: turn 1: response_match_score: 0 of 4 expected words, 0 of 1 given, after stemming
2 × agent_raised: ValueError: threes are not found
4 of 6 passed; 95 % CI 0–100 % (2 errored)
Run 1. `evaldesk open 1` shows it turn by turn.
case_3 (2 of 2 trials): errored here, failed by `adk eval`: a trial that broke off counts as failed there
Failed: every trial must pass: 4 of 8 trials passed (2 errored)
"""


def test_every_case_is_shown_with_what_went_wrong_first(brief: ServedFolder) -> None:
    path = brief.write_cases(QUERIES)

    ended = brief.run("eval", "brief", str(path), "--n", "2")

    assert (ended.stdout, without_progress(ended.stderr), ended.returncode) == (SAID, [], 1)


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        pytest.param(":case_1,case_2", 0, id="all passed"),
        pytest.param(":case_1, case_7", 1, id="one failed"),
        pytest.param(":case_3", 3, id="one errored"),
    ],
)
def test_the_exit_code_tells_the_verdict_of_the_chosen_cases(brief: ServedFolder, chosen: str, code: int) -> None:
    path = brief.write_cases(QUERIES)

    ended = brief.run("eval", "brief", f"{path}{chosen}")

    assert ended.returncode == code
    assert [case for case in QUERIES if case.replace(" ", "_") in ended.stdout] == [
        case for case in QUERIES if case.replace(" ", "_") in chosen
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["brief", "nowhere.json"], "nowhere.json is not a file", id="file"),
        pytest.param(["brief", "{set}:case_11"], "did you mean 'case_1'?", id="case"),
        pytest.param(["brief", "{set}:,"], "name a case after the colon", id="empty selection"),
        pytest.param(["breif", "{set}"], "breif", id="agent"),
        pytest.param(["samples/hello_word", "{set}"], "did you mean 'hello_world'?", id="sample"),
        pytest.param(["brief", "brief/agent.py"], "agent.py", id="no eval set"),
        pytest.param(["brief", "{set}", "--n", "0"], "--n", id="option"),
    ],
)
def test_wrong_usage_is_one_sentence_and_plays_nothing(brief: ServedFolder, arguments: list[str], said: str) -> None:
    path = brief.write_cases(QUERIES)

    ended = brief.run("eval", *(argument.replace("{set}", str(path)) for argument in arguments))

    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert brief.played == []


def test_an_agent_that_cannot_be_imported_shows_the_trace_of_its_own_code_when_asked(brief: ServedFolder) -> None:
    path = brief.write_cases(QUERIES)
    brief.write_agent("import pdf_tables\n\nroot_agent = pdf_tables.agent\n", "broken")

    ended = brief.run("eval", "broken", str(path), "--debug")

    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith("evaldesk: broken cannot be loaded: ")
    assert "No module named 'pdf_tables'" in ended.stderr
    assert 'broken/agent.py", line 1' in ended.stderr


def test_a_desk_on_the_same_workspace_shows_the_run_while_it_goes_on_and_after(
    brief: ServedFolder, wait_until: Callable[..., None]
) -> None:
    path = brief.write_cases([f"case {i}" for i in range(100)])
    brief.hold()
    server = brief.start()
    with started(brief, "eval", "brief", str(path), "--n", "3") as process:
        wait_until(lambda: "running" in server.get("/runs/1").text)
        refused = server.post("/runs/1/deletion")
        brief.let_go()
        output, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert refused.status_code in {409, 422}
    assert "240 of 270 passed" in output
    assert "240 of 270" in server.get("/runs").text
    assert "All 300 trials done" in server.get("/runs/1").text
    assert server.start_run() == 2


def test_an_interrupted_run_keeps_what_is_finished_and_is_resumed_in_the_desk(
    brief: ServedFolder, wait_until: Callable[..., None]
) -> None:
    path = brief.write_cases([f"case {i}" for i in range(100)])
    brief.hold()
    with started(brief, "eval", "brief", str(path), "--n", "5") as process:
        wait_until(lambda: len(brief.played) > 50)
        process.send_signal(signal.SIGINT)
        first = until_said(process, "Finishing")
        brief.let_go()
        _, errors = process.communicate(timeout=PATIENCE_S)
    brief.until_alone()
    with Store.open(brief.database, must_exist=True) as store:
        stopped = store.runs.summary(1)
    server = brief.start()
    before = server.get("/runs/1").text
    resumed = server.post("/runs/1/resumption")

    assert process.returncode == 130
    assert without_progress(first + errors) == [
        "Finishing the running trials; press Ctrl-C again to stop at once",
        f"Stopped: {stopped.n_done} of 500 trials are done and stored. Continue with: evaldesk run resume 1",
    ]
    assert stopped.status == "stopped"
    assert 0 < stopped.n_done < 500
    assert f"Resume {stopped.n_todo} trials" in before
    assert resumed.status_code == 303
    assert "All 500 trials done" in server.say_when_done(1)


@pytest.mark.torture
def test_a_killed_run_of_the_command_line_goes_on_when_a_desk_starts(
    brief: ServedFolder, wait_until: Callable[..., None]
) -> None:
    path = brief.write_cases([f"case {i}" for i in range(100)])
    brief.hold()
    with started(brief, "eval", "brief", str(path), "--n", "5") as process:
        wait_until(lambda: len(brief.played) > 50)
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    brief.until_alone()
    brief.let_go()

    page = brief.start().say_when_done(1)

    assert "All 500 trials done" in page


def started(place: ServedFolder, *arguments: str) -> subprocess.Popen[str]:
    """`evaldesk ARGUMENTS` in the workspace, going on; while the place holds, no trial of the last five cases ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "evaldesk", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment | {"HELD_FROM": "95"},
        cwd=place.workspace,
    )


def until_said(process: subprocess.Popen[str], word: str) -> str:
    """What the process says on its second stream up to the line that begins with `word`."""
    assert process.stderr is not None
    said = ""
    while not said.rpartition("\n")[0].rpartition("\n")[2].startswith(word):
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def without_progress(said: str) -> list[str]:
    """Its lines, but for those by which a run that takes long tells how far it is, and for its plan."""
    lines = [line for line in said.splitlines() if " done, " not in line]
    return [line for line in lines if not re.match(r"\d+ cases? x \d+ = |Smallest detectable |These cases ", line)]
