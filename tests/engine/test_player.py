"""What becomes of a case when an agent is played, whatever the agent does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from tests.engine.scripted import REF, Scripted, echo, raising, yielding

from evaldesk.engine import grade, play_trial
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.errors import ModelError
from evaldesk.model import (
    Change,
    Criterion,
    ErrorRecord,
    Event,
    Session,
    ToolCall,
    TrialSpec,
    Usage,
)

pytestmark = pytest.mark.anyio


async def test_every_turn_is_played_in_one_session(trial: Callable[..., TrialSpec]) -> None:
    async def count(session: Session, message: str) -> AsyncIterator[Event]:
        yield Event("agent_message", text=f"{len(session.turns)} {message}")

    result = await play_trial(Scripted(count), trial(REF, queries=("a", "b")))

    assert result.status == "finished"
    assert result.stop_reason == "answered"
    assert [(turn.answer, turn.asked_by) for turn in result.transcript.turns] == [
        ("0 a", "scripted"),
        ("1 b", "scripted"),
    ]


async def test_events_are_stamped_by_the_clock_given(trial: Callable[..., TrialSpec]) -> None:
    ticks = itertools.count(100.0, 0.5)

    result = await play_trial(Scripted(echo), trial(REF), attempt=Attempt(clock=lambda: next(ticks)))

    stamps = [event.at_ms for event in result.transcript.turns[0].events]
    assert stamps[0] == 0
    assert stamps[1] > 0
    assert all(stamp % 500 == 0 for stamp in stamps)


async def test_the_case_keeps_its_initial_state(trial: Callable[..., TrialSpec]) -> None:
    async def deepen(session: Session, message: str) -> AsyncIterator[Event]:
        session.state["trip"]["days"].append(3)  # type: ignore[index,union-attr,call-overload]
        yield Event("agent_message", text="planned")

    spec = trial(REF, state={"trip": {"days": [1]}})

    result = await play_trial(Scripted(deepen), spec)

    assert spec.case.initial_state == {"trip": {"days": [1]}}
    assert result.transcript.turns[0].state_before == {"trip": {"days": [1]}}
    assert result.transcript.final_state == {"trip": {"days": [1, 3]}}


async def test_a_change_of_state_follows_the_event_that_made_it(trial: Callable[..., TrialSpec]) -> None:
    call = ToolCall("remember", {})

    async def remember(session: Session, message: str) -> AsyncIterator[Event]:
        yield Event("tool_call", call=call)
        session.state["seen"] = True
        del session.state["gone"]
        yield Event("tool_result", call=call, result=None)
        session.state["late"] = 1

    result = await play_trial(Scripted(remember), trial(REF, state={"seen": 1, "gone": None}))

    events = result.transcript.turns[0].events
    assert [event.kind for event in events] == [
        "user_message",
        "tool_call",
        "tool_result",
        "state_delta",
        "state_delta",
    ]
    assert events[3].changes == (Change("seen", 1, True), Change("gone", None, None, is_present=False))
    assert events[4].changes == (Change("late", None, 1, was_present=False),)


async def test_partial_text_is_shown_and_not_kept() -> None:
    shown: list[Event] = []
    agent = yielding(Event("agent_message", text="He", is_partial=True), Event("agent_message", text="Hello"))

    record = await play_turn(agent, Session("s"), "hi", attempt=Attempt(), show=shown.append)

    assert [event.text for event in shown] == ["hi", "He", "Hello"]
    assert [event.text for event in record.events] == ["hi", "Hello"]


async def test_usages_of_all_turns_are_those_of_the_trial(trial: Callable[..., TrialSpec]) -> None:
    usage = Usage("m", tokens_in=3, tokens_out=4, cost=0.5)

    result = await play_trial(yielding(Event("usage", usage=usage)), trial(REF, queries=("a", "b")))

    assert result.usages == (usage, usage)
    assert result.cost == 1.0


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        pytest.param(ValueError("no dice"), "agent_raised", "ValueError: no dice", id="exception"),
        pytest.param(SystemExit(3), "agent_raised", "SystemExit: 3", id="exit"),
        pytest.param(KeyboardInterrupt(), "agent_raised", "KeyboardInterrupt", id="interrupt"),
        pytest.param(GeneratorExit(), "agent_raised", "GeneratorExit", id="generator exit"),
        pytest.param(BaseException("base"), "agent_raised", "BaseException: base", id="base"),
        pytest.param(asyncio.CancelledError(), "agent_raised", "CancelledError", id="cancelled by nobody"),
        pytest.param(ModelError("slow down", kind="rate_limit"), "rate_limit", "slow down", id="model"),
    ],
)
async def test_what_an_agent_raises_ends_the_trial_as_a_value(
    trial: Callable[..., TrialSpec], error: BaseException, kind: str, message: str
) -> None:
    result = await play_trial(raising(error), trial(REF, queries=("a", "b")))

    assert (result.status, result.verdict, result.stop_reason) == ("errored", "errored", "error")
    assert result.error is not None
    assert (result.error.kind, result.error.message) == (kind, message)
    assert "scripted.py" in result.error.trace
    assert len(result.transcript.turns) == 1
    assert result.transcript.turns[0].answer == "before"


@pytest.mark.parametrize("bound", ["max_turns", "max_iterations"])
async def test_an_agent_at_its_bound_has_failed_and_not_broken(trial: Callable[..., TrialSpec], bound: str) -> None:
    agent = yielding(
        Event("agent_message", text="a"),
        Event("error", error=ErrorRecord(bound, "10 rounds and no answer")),
        Event("agent_message", text="a"),
    )
    spec = trial(REF, queries=("a", "b"))

    result = await grade(await play_trial(agent, spec), spec.case, (Criterion("response_match_score", 0.5),))

    assert (result.status, result.stop_reason, result.verdict, result.error) == ("finished", bound, "failed", None)
    [turn] = result.transcript.turns
    assert (turn.stop_reason, turn.answer) == (bound, "")
    assert [event.text for event in turn.events if event.kind == "log"] == ["10 rounds and no answer"]
    assert [(score.turn, score.value) for score in result.scores] == [(0, 0.0), (1, 0.0), (None, 0.0)]


async def test_an_error_event_ends_the_turn_and_the_trial(trial: Callable[..., TrialSpec]) -> None:
    error = ErrorRecord("lost", "10 rounds and no answer")

    result = await play_trial(
        yielding(Event("error", error=error), Event("agent_message", text="?")), trial(REF, queries=("a", "b"))
    )

    assert result.error == error
    assert result.stop_reason == "error"
    assert [event.kind for event in result.transcript.turns[0].events] == ["user_message", "error"]


async def test_a_scenario_without_anybody_to_play_it_says_so(trial: Callable[..., TrialSpec]) -> None:
    spec = trial(REF)
    spec = replace(spec, case=replace(spec.case, turns=(), scenario={"starting_prompt": "hi"}))

    result = await play_trial(Scripted(echo), spec)

    assert result.error is not None
    assert (result.status, result.error.kind) == ("errored", "no_user")


async def test_grading_is_apart_from_playing(trial: Callable[..., TrialSpec]) -> None:
    spec = trial(REF, queries=("roll a die",))
    played = await play_trial(Scripted(echo), spec)

    graded = await grade(played, spec.case, spec.criteria)

    assert (played.verdict, played.scores) == ("unscored", ())
    assert graded.verdict == "passed"
    assert {score.metric for score in graded.scores} == {"tool_trajectory_avg_score"}


async def test_a_trial_that_errored_is_not_scored(trial: Callable[..., TrialSpec]) -> None:
    spec = trial(REF)
    played = await play_trial(raising(ValueError("x")), spec)

    graded = await grade(played, spec.case, spec.criteria)

    assert (graded.verdict, graded.scores) == ("errored", ())
