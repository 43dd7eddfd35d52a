"""The start of a player is no part of the time of its trial: it is a span of its own, and the run counts it apart."""

from __future__ import annotations

from tests.store.conftest import End, Plan

from evaldesk.engine.worker.attempt import Attempt
from evaldesk.model import Transcript, TurnRecord
from evaldesk.pages.spans import START, spans_of
from evaldesk.pages.timeline import read_timeline
from evaldesk.store import Store


def test_a_trial_is_timed_from_the_end_of_its_import() -> None:
    now = [100.0]
    attempt = Attempt(clock=lambda: now[0])

    attempt.begin("load", 10)
    now[0] += 5
    attempt.begin("play", 10)
    now[0] += 1

    assert (attempt.start_ms, attempt.duration_ms) == (5000.0, 1000.0)


def test_an_attempt_that_never_played_has_a_start_alone() -> None:
    now = [100.0]
    attempt = Attempt(clock=lambda: now[0])

    attempt.begin("load", 10)
    now[0] += 5

    assert (attempt.start_ms, attempt.duration_ms) == (5000.0, 0.0)


def test_a_start_is_a_span_before_the_turns_unless_the_player_was_there() -> None:
    transcript = Transcript((TurnRecord("q", duration_ms=400.0),))

    cold, warm = spans_of(transcript, None, start_ms=4500.0), spans_of(transcript, None, start_ms=0.2)

    assert [(span.id, span.start_ms, span.end_ms) for span in cold] == [(START, 0.0, 4500.0), ("1", 4500.0, 4900.0)]
    assert [(span.id, span.start_ms, span.end_ms) for span in warm] == [("1", 0.0, 400.0)]


def test_the_run_and_the_time_line_count_the_start_apart(store: Store, plan: Plan, end: End) -> None:
    run_id = plan(n=2, n_cases=1)
    for index, start_ms in enumerate((4500.0, 0.0)):
        turns = Transcript((TurnRecord("q", duration_ms=400.0),))
        store.runs.record([end(run_id, 0, index, transcript=turns, duration_ms=400.0, start_ms=start_ms)])

    summary = store.runs.summary(run_id)
    line = read_timeline(store.runs, run_id, (0, 0), START)

    assert (summary.start_ms, summary.mean_ms) == (4500.0, 400.0)
    assert line.view is not None
    assert (line.view.title, line.rows[0].span.id) == ("Start of the player", START)
