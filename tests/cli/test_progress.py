"""What is told of a run while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaldesk.cli.eval import playing
from evaldesk.cli.eval.progress import LOG_EVERY_S, ProgressLog, left_words, progress_words, remaining_s
from evaldesk.model import AgentRef, Case, Counts, RunConfig, Turn
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store


@pytest.fixture
def summary(tmp_path: Path) -> RunSummary:
    """A run of 100 trials of which nothing was played yet."""
    with Store.open(tmp_path / "evaldesk.db") as store:
        config = RunConfig(AgentRef("a", "a:a"), "a", n=100)
        return store.runs.summary(store.runs.create(config, [Case("a", (Turn("hi"),))]))


def test_the_numbers_are_all_there(summary: RunSummary) -> None:
    moment = replace(summary, counts=Counts(100, 10, 1, 1), tokens_in=3000, tokens_out=400, cost=0.0123)

    assert progress_words(moment, 120.0) == (
        "12 of 100 done, 10 passed, 1 errored, 3,400 tokens, $0.0123, about 2 min left"
    )


def test_what_is_not_known_is_not_named(summary: RunSummary) -> None:
    assert progress_words(summary, None) == "0 of 100 done, 0 passed"
    assert progress_words(replace(summary, n_unpriced=3), None).endswith("cost not known")


def test_the_remaining_time_counts_only_what_this_session_played(summary: RunSummary) -> None:
    moment = replace(summary, counts=Counts(100, 60))

    assert remaining_s(moment, 50, 20.0) == 80.0
    assert remaining_s(moment, 60, 20.0) is None
    assert remaining_s(replace(summary, counts=Counts(100, 100)), 50, 20.0) is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (59.6, "60 s"), (120, "2 min"), (3599, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_the_time_left_is_said_in_words(seconds: float, words: str) -> None:
    assert left_words(seconds) == words


def test_a_log_gets_a_line_now_and_then(summary: RunSummary) -> None:
    now = 0.0
    lines: list[str] = []
    log = ProgressLog(lines.append, clock=lambda: now)

    for n_passed in range(31):
        now = n_passed * LOG_EVERY_S / 10
        log(replace(summary, counts=Counts(100, n_passed)))

    assert [line.split(",")[0] for line in lines] == ["10 of 100 done", "20 of 100 done", "30 of 100 done"]
    assert lines[0].endswith("about 2 min left")


def test_a_log_says_at_once_that_trials_wait_but_not_again_and_again(summary: RunSummary) -> None:
    lines: list[str] = []
    log = ProgressLog(lines.append, clock=iter((0.0, 1.0, 2.0, 3.0, 4.0)).__next__)

    for pause in ("", "2 trials wait: rate-limited until 12:03:05.", "", "1 trial waits: again."):
        log(summary, pause)

    assert lines == ["0 of 100 done, 0 passed; 2 trials wait: rate-limited until 12:03:05"]


def test_a_full_disk_is_told_in_the_progress_of_a_command(
    summary: RunSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    class Runs:
        async def run_to_end(self, _: object, on_progress: Callable[[RunSummary], None], **__: object) -> RunSummary:
            on_progress(summary)
            return summary

        def trouble(self, run_id: int) -> str:
            return f"1 finished trial of run {run_id} waits to be stored: the disk is full"

        def pause(self, run_id: int) -> str:
            return ""

    desk = SimpleNamespace(stored_runs=None, runs=Runs())
    job = SimpleNamespace(on_progress=lambda *_: None)

    asyncio.run(
        playing.play_plan(cast("Any", desk), cast("Any", job), cast("Any", None), is_quiet=False, max_cost=None)
    )

    assert "1 finished trial of run 1 waits to be stored: the disk is full" in capsys.readouterr().err
