"""A worker is believed only as far as its job goes: a result that cannot be is the error of its trial alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.engine import ChatPlayers, InlineExecutor, LocalExecutor
from evaldesk.engine.driver.pool import _killed
from evaldesk.engine.driver.worker_process import Death
from evaldesk.engine.frames import grade_spec, grader_result, player_result
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Score,
    Transcript,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
    TurnSpec,
    Usage,
)
from evaldesk.model.transcript import MAX_NUMBER, UNKNOWN
from evaldesk.wire import MAX_TEXT

SPEC = TrialSpec(1, 2, 3, Case("c", (Turn("hello"),)), AgentRef("a", "a:a"))
RESULT = TrialResult(1, 2, 3, "finished", "passed", transcript=Transcript((TurnRecord("hello"),)))


def test_a_player_whose_result_is_refused_tells_nothing_of_its_calls() -> None:
    told = replace(RESULT, usages=(Usage("m", tokens_in=1, cost=0.0),))

    assert not player_result(SPEC, told).is_least
    assert player_result(SPEC, replace(told, case_index=1)).usages == (UNKNOWN,)


@pytest.mark.parametrize(("metric", "lacks"), [("final_response_match_v2", True), ("response_match_score", False)])
def test_a_grader_that_is_killed_tells_nothing_of_its_judges(metric: str, lacks: bool) -> None:
    spec = grade_spec(replace(SPEC, criteria=(Criterion(metric, 0.5),)), replace(RESULT, usages=(Usage("m"),)))

    killed = _killed(spec, Death("the worker process was ended by SIGKILL", ""))

    assert [(usage.role, usage.is_least) for usage in killed.usages[1:]] == [("judge", True)] * lacks


# The agent shares a process with the player, so it can change what the player sends.
FORGING = """
import re
import evaldesk.engine.worker.jobs as work

real = work.to_json

def forged(frame):
    data = real(frame)
    return re.sub({pattern!r}, {forged!r}, data, count=1) if b'"query":"forge"' in data else data

work.to_json = forged

def agent(message):
    return message
"""
DEEP = b'"logs":"","deep":' + b"[" * 10_000 + b"]" * 10_000
NESTED = b'"query":"forge","state_after":{"k":' + b"[" * 300 + b"]" * 300 + b"}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pattern", "forged", "said"),
    [
        (rb'"case_index":\d+', b'"case_index":1', r"answered for run 1, case 1.* it was given run 1, case 0"),
        (rb'"attempt":\d+', rb'"attempt":77', "attempt 77; it was given"),
        (rb'"duration_ms":[\d.]+', b'"duration_ms":-5', "duration_ms must be a number from 0 to 2.*53, got -5"),
        (rb'"at_ms":[\d.]+', b'"at_ms":1e300', r"event\.at_ms must be a number from 0 to 2.*53, got 1e\+300"),
        (rb'"usages":\[\]', b'"usages":[{"model":"m","cost":-1000}]', r"usage\.cost must be a number from 0 to 2.*53"),
        (rb'"usages":\[\]', b'"usages":[{"model":"m","tokens_in":%d}]' % 2**70, r"usage\.tokens_in must be"),
        (rb'"logs":""', DEEP, "a line that is not a frame .nested deeper than 200 levels"),
        (rb'"query":"forge"', NESTED, "a line that is not a frame .nested deeper than 200 levels"),
        (rb'"logs":""', b'"logs":"\\\\ud800"', "a line that is not a frame"),
        (rb'"duration_ms":[\d.]+', b'"duration_ms":1e400', "a line that is not a frame"),
        (rb'"duration_ms":[\d.]+', b'"duration_ms":NaN', "a line that is not a frame"),
    ],
    ids=[
        "other case",
        "other attempt",
        "duration",
        "time",
        "cost",
        "tokens",
        "depth",
        "depth of a state",
        "surrogate",
        "too large",
        "NaN",
    ],
)
async def test_a_forged_result_errs_alone(
    write_agent: Callable[..., AgentRef], trial: Any, play: Any, pattern: bytes, forged: bytes, said: str
) -> None:
    agent = write_agent(FORGING.format(pattern=pattern, forged=forged))
    specs = [trial(agent, 0, ("forge",)), trial(agent, 1, ("honest",)), trial(agent, 2, ("honest",))]

    executor = LocalExecutor(1, 3)
    results = await play(executor, specs)
    await executor.close()

    assert [results[index].status for index in range(3)] == ["errored", "finished", "finished"]
    assert results[0].error
    with pytest.raises(ValueError, match=said):
        raise ValueError(results[0].error.message)


@pytest.mark.anyio
@pytest.mark.parametrize("bad", ["duration_ms", "at_ms"])
async def test_a_forged_time_ends_a_turn_of_a_chat(write_agent: Callable[..., AgentRef], bad: str) -> None:
    agent = write_agent(f"""
        import re
        import evaldesk.engine.worker.jobs as work

        real = work.to_json
        work.to_json = lambda frame: re.sub(rb'"{bad}":[0-9.]+', b'"{bad}":-1', real(frame))

        def agent(message):
            return message
        """)
    host = ChatPlayers()

    items = [item async for item in host.play_turn(TurnSpec("s", agent, "hello"))]

    await host.close()
    assert isinstance(items[-1], TurnRecord)
    assert items[-1].error
    assert items[-1].error.kind == "bad_number"
    assert f"{bad} must be a number from 0 to 2**53, got -1" in items[-1].error.message


numbers = st.one_of(st.floats(), st.integers(-(2**80), 2**80))


@given(numbers, numbers, numbers, st.lists(st.integers(0, MAX_NUMBER), max_size=4))
def test_what_is_accepted_holds_only_numbers_that_can_be(
    duration: float, at: float, value: float, tokens: list[int]
) -> None:
    turn = TurnRecord("hello", (Event("agent_message", at_ms=at, text="hi"),))
    usages = tuple(Usage("m", tokens_in=n, cost=float(n)) for n in tokens)
    scores = (Score("m", value),)
    given = replace(RESULT, duration_ms=duration, transcript=Transcript((turn,)), scores=scores, usages=usages)

    result = player_result(SPEC, given)
    scored = grader_result(
        grade_spec(SPEC, replace(RESULT, transcript=Transcript((turn,)))), replace(given, transcript=Transcript())
    )

    for found in (result, scored):
        if found.error:
            assert (found.status, found.verdict, found.error.kind) == ("errored", "errored", "bad_number")
    if not result.error:
        assert result == replace(given, scores=(), verdict="unscored")
        assert all(0 <= number <= MAX_NUMBER for number in (duration, at, result.tokens, result.cost or 0))
    if not scored.error:
        assert scored == given
        assert all(0 <= number <= MAX_NUMBER for number in (duration, scored.tokens, scored.cost or 0))
        assert abs(value) <= MAX_NUMBER


def test_a_result_that_can_be_is_taken_as_it_is() -> None:
    assert player_result(SPEC, RESULT) == replace(RESULT, verdict="unscored")


@pytest.mark.anyio
async def test_a_message_is_given_whole_or_its_trial_errs(
    write_agent: Callable[..., AgentRef], trial: Any, play: Any
) -> None:
    agent = write_agent("def agent(message):\n    return str(len(message))\n")
    specs = [trial(agent, 0, ("x" * MAX_TEXT,)), trial(agent, 1, ("hi", "x" * (MAX_TEXT + 1)))]

    results = await play(InlineExecutor(), specs)

    assert results[0].transcript.turns[0].answer == "1000000"
    assert results[1].error == ErrorRecord(
        "message_too_long", "the message of turn 2 has 1,000,001 characters; at most 1,000,000 are sent"
    )
    assert results[1].transcript.turns == ()
