"""Accepting the actual as the expected: what is accepted is expected from then on, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.runs.accepting import StagedCase, _effect, left_out, one_of
from evaldesk.diff.acceptance import accept_changes, acceptable_changes, with_others
from evaldesk.matching import Tolerance, distance, json_equal, read_allowances
from evaldesk.metrics import score_trial
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Verdict,
)
from evaldesk.model.conclusion import trial_verdict

VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b", [1], {"x": 1}])
)
ARGS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.sampled_from(["n", "m", "a.b"]), VALUES, max_size=3)
CALLS = st.lists(st.builds(ToolCall, st.sampled_from(["roll", "check", "book"]), ARGS), max_size=4).map(tuple)
STATES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.sampled_from(["k", "l"]), VALUES, max_size=2)
EXPECTED = st.builds(Expected, tool_calls=st.none() | CALLS, reference=st.none() | st.sampled_from(["yes", "no", ""]))


@st.composite
def played(draw: st.DrawFn) -> tuple[Case, Transcript]:
    """A case, and what an agent did in some of its turns."""
    turns = draw(st.lists(EXPECTED, min_size=1, max_size=3))
    case = Case(
        "c", tuple(Turn(f"message {i}", each) for i, each in enumerate(turns)), final_state=draw(st.none() | STATES)
    )
    records = [
        TurnRecord(
            turn.query,
            events=tuple(Event("tool_call", call=call) for call in draw(CALLS))
            + tuple(Event("agent_message", text=text) for text in draw(st.sampled_from([(), ("yes",), ("maybe",)]))),
            state_after=draw(STATES),
        )
        for turn in case.turns[: draw(st.integers(0, len(turns)))]
    ]
    return case, Transcript(tuple(records))


@given(played())
def test_what_is_accepted_whole_leaves_no_difference(found: tuple[Case, Transcript]) -> None:
    case, transcript = found

    now = accept_changes(case, transcript, {each.key for each in acceptable_changes(case, transcript)})

    assert acceptable_changes(now, transcript) == ()


@given(played(), st.data())
def test_each_way_of_accepting_ends_the_difference_and_keeps_what_was_expected(
    found: tuple[Case, Transcript], data: st.DataObject
) -> None:
    case, transcript = found
    ways = {each.key: data.draw(st.sampled_from(each.ways)) for each in acceptable_changes(case, transcript)}

    now = accept_changes(case, transcript, ways)

    assert acceptable_changes(now, transcript) == ()
    answers = [(key, way) for key, way in ways.items() if key.endswith(".answer")]
    for key, way in answers:
        turn = int(key.partition(".")[0]) - 1
        kept = now.turns[turn].expected.reference == case.turns[turn].expected.reference
        assert kept == (way == "as_well")
    assert read_allowances(now) == () or any(way != "replace" for way in ways.values())


@pytest.mark.parametrize(
    ("expected", "actual", "far"),
    [(0.2, 0.3, 0.1), (1, 3, 2.0), (3, 1.5, 1.5), (True, 1, None), ("1", 1, None), (1e308, -1e308, None)],
)
def test_a_tolerance_is_as_small_as_it_can_be(expected: Any, actual: Any, far: float | None) -> None:
    assert distance(expected, actual) == far


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_tolerance_takes_the_number_it_was_made_of(expected: float, actual: float) -> None:
    found = distance(expected, actual)

    assert found is not None
    assert Tolerance(tolerances={"n": found}).reason("roll", "n", expected, actual)


@given(played(), st.data())
def test_a_part_is_written_and_the_rest_stays(found: tuple[Case, Transcript], data: st.DataObject) -> None:
    case, transcript = found
    offered = acceptable_changes(case, transcript)
    assert len({each.key for each in offered}) == len(offered)
    keys = data.draw(st.sets(st.sampled_from([each.key for each in offered]))) if offered else set()

    now = accept_changes(case, transcript, keys)

    assert accept_changes(case, transcript, set()) == case
    assert (now == case) == (not keys)
    for before, after in zip(case.turns, now.turns, strict=True):
        assert (before.expected.tool_calls is None) == (after.expected.tool_calls is None)
        assert (before.expected.reference is None) == (after.expected.reference is None)
    if not any(each.part in ("call", "calls") and each.key in keys for each in offered):
        left = {each.key for each in acceptable_changes(now, transcript)}
        assert left == {each.key for each in offered} - keys


def test_each_kind_of_difference_is_named() -> None:
    case = Case(
        "c",
        (
            Turn("a", Expected((ToolCall("roll", {"n": 6, "m": 1}), ToolCall("check", {})), reference="Yes.")),
            Turn("b", Expected((ToolCall("one"), ToolCall("two")))),
            Turn("c"),
        ),
        final_state={"total": 11, "gone": 1},
    )
    events: tuple[list[ToolCall], ...] = (
        [ToolCall("roll", {"n": 8, "k": 2}, id="x"), ToolCall("book", {})],
        [ToolCall("two"), ToolCall("one")],
        [],
    )
    transcript = Transcript(
        tuple(
            TurnRecord(
                turn.query,
                events=(*(Event("tool_call", call=call) for call in calls), Event("agent_message", text="No.")),
                state_after={"total": 12, "more": 1},
            )
            for turn, calls in zip(case.turns, events, strict=True)
        )
    )

    found = acceptable_changes(case, transcript)

    assert [(each.place, each.expected, each.actual) for each in found] == [
        ("Turn 1, roll, n", "6", "8"),
        ("Turn 1, roll, m", "1", None),
        ("Turn 1, roll, k", None, "2"),
        ("Turn 1, check", '{"name": "check", "args": {}}', None),
        ("Turn 1, book", None, '{"name": "book", "args": {}}'),
        ("Turn 1, answer", "Yes.", "No."),
        (
            "Turn 2, calls",
            '[{"name": "one", "args": {}}, {"name": "two", "args": {}}]',
            '[{"name": "two", "args": {}}, {"name": "one", "args": {}}]',
        ),
        ("Final state, total", "11", "12"),
        ("Final state, gone", "1", None),
    ]
    every = accept_changes(case, transcript, {each.key for each in found})
    [first, second, third] = every.turns
    assert first.expected.tool_calls is not None
    assert [dict(call.args) for call in first.expected.tool_calls] == [{"n": 8, "k": 2}, {}]
    assert all(call.id is None for call in first.expected.tool_calls)
    assert [call.name for call in second.expected.tool_calls or ()] == ["two", "one"]
    assert third == case.turns[2]
    assert every.final_state is not None
    assert json_equal(dict(every.final_state), {"total": 12})


def two_rolls(*calls: ToolCall) -> Transcript:
    return Transcript((TurnRecord("a", tuple(Event("tool_call", call=call) for call in calls)),))


def test_a_value_is_accepted_in_its_own_call_of_a_tool_that_is_expected_twice() -> None:
    case = Case("c", (Turn("a", Expected((ToolCall("roll", {"n": 6}), ToolCall("roll", {"n": 8})))),))
    trial = two_rolls(ToolCall("roll", {"n": 6}), ToolCall("roll", {"n": 20}))

    (change,) = acceptable_changes(case, trial)
    now = accept_changes(
        case, trial, {change.key: "as_well"}, (), [(two_rolls(*case.turns[0].expected.tool_calls or ()), ())]
    )

    assert change.place == "Turn 1, call 2 of roll, n"
    assert now.extra["also_accepted"] == [{"turn": 1, "tool": "roll", "call": 1, "argument": "n", "any_of": [20]}]
    assert acceptable_changes(now, two_rolls(ToolCall("roll", {"n": 20}), ToolCall("roll", {"n": 8})))


def test_a_value_that_several_trials_gave_is_accepted_once() -> None:
    case = Case("c", (Turn("a", Expected((ToolCall("roll", {"n": 6}),))),))
    trial, *others = (two_rolls(ToolCall("roll", {"n": n})) for n in (8, "8", 8, 9, 8))

    [change] = acceptable_changes(case, trial)
    now = accept_changes(case, trial, {change.key: "as_well"}, (), [(other, ()) for other in others])

    assert now.extra["also_accepted"] == [{"turn": 1, "tool": "roll", "argument": "n", "any_of": [8, "8", 9]}]


def test_a_call_that_is_accepted_before_it_moves_the_number_of_a_call() -> None:
    case = Case("c", (Turn("a", Expected((ToolCall("roll", {"n": 6, "m": 1}),))),))
    trial = two_rolls(ToolCall("roll", {"k": 1}), ToolCall("roll", {"n": 7, "m": 1}))
    ways: dict[str, Any] = {
        each.key: "as_well" if each.part == "argument" else "replace" for each in acceptable_changes(case, trial)
    }

    now = accept_changes(case, trial, ways)

    assert [each.call for each in read_allowances(now)] == [1]
    assert acceptable_changes(now, trial) == ()


EXACT = (Criterion("tool_exact", 1.0),)
BY_CALLS = RunConfig(AgentRef("a", "a"), "s", criteria=EXACT)


def staged(case: Case, *trials: Transcript) -> StagedCase:
    """A case and the trials of a run of it; the first one that failed offers its changes."""
    results = []
    for at, each in enumerate(trials):
        scores = score_trial(each, case, EXACT)
        results.append(TrialResult(1, 0, at, "finished", trial_verdict(scores, EXACT, None), "", each, scores))
    shown = next(each for each in results if each.verdict == "failed")
    return StagedCase("c", case, shown, acceptable_changes(case, shown.transcript, shown.scores), tuple(results))


ROLL = ToolCall("roll", {"n": 6})
OTHERS = ToolCall("roll", {"n": 7}), ToolCall("look")


@pytest.mark.parametrize(
    ("trials", "found"),
    [
        (5 * [(ROLL,)] + [(ROLL, OTHERS[1])], {"Turn 1, look": None}),
        (1 * [(ROLL,)] + 5 * [(ROLL, OTHERS[1])], {"Turn 1, look": "replace"}),
        (5 * [(ROLL,)] + [(OTHERS[0],)], {"Turn 1, roll, n": "as_well"}),
        (5 * [(ROLL,)] + [OTHERS], {"Turn 1, roll, n": "as_well", "Turn 1, look": None}),
        (1 * [(ROLL,)] + 5 * [OTHERS], {"Turn 1, roll, n": "as_well", "Turn 1, look": "replace"}),
        (5 * [(ROLL,)] + [(OTHERS[1],)], {"Turn 1, roll": None, "Turn 1, look": None}),
        (3 * [(OTHERS[1],)], {"Turn 1, roll": None, "Turn 1, look": None}),
        (3 * [()], {"Turn 1, roll": None}),
        (3 * [(ToolCall("roll"),)], {"Turn 1, roll, n": None}),
        ([(ROLL,), (ToolCall("roll"),)], {"Turn 1, roll, n": None}),
    ],
)
def test_the_ways_that_let_most_trials_pass_are_chosen_first(trials: Any, found: Any) -> None:
    case = Case("c", (Turn("a", Expected((ROLL,))),))

    shown = staged(case, *(two_rolls(*calls) for calls in trials))
    ways = shown.best(BY_CALLS) if shown.is_flaky else shown.kindest()

    assert {change.place: ways.get(change.key) for change in shown.offered} == found


@given(played())
def test_nothing_is_chosen_at_first_by_which_a_case_would_expect_less(found: tuple[Case, Transcript]) -> None:
    case, trial = found
    offered = acceptable_changes(case, trial)
    shown = StagedCase("c", case, TrialResult(1, 0, 0, "finished", "failed", "", trial), offered, ())

    now = shown.with_changes(shown.kindest())

    def n_calls(each: Case) -> list[int]:
        return [len(turn.expected.tool_calls or ()) for turn in each.turns]

    assert all(more >= before for more, before in zip(n_calls(now), n_calls(case), strict=True))
    assert {*(now.final_state or {})} == {*(case.final_state or {})}
    for before, after in zip(case.turns, now.turns, strict=True):
        assert bool(after.expected.reference) == bool(before.expected.reference) or not before.expected.reference


@given(CALLS.filter(bool), st.lists(CALLS, min_size=1, max_size=4))
def test_what_is_chosen_first_never_makes_fewer_trials_pass(expected: tuple[ToolCall, ...], made: Any) -> None:
    case = Case("c", (Turn("a", Expected(expected)),))
    trials = [two_rolls(*expected), *(two_rolls(*calls) for calls in made)]

    def n_passed(by: Case) -> int:
        return sum(score_trial(each, by, EXACT)[-1].value == 1.0 for each in trials)

    if n_passed(case) == len(trials):
        return
    found = staged(case, *trials)

    assert n_passed(found.with_changes(found.best(BY_CALLS))) >= n_passed(case)


def _trial_that_said(at: int, text: str, verdict: Verdict) -> TrialResult:
    record = TurnRecord("roll", (Event("agent_message", text=text),), state_after={"k": at})
    return TrialResult(1, 0, at, "finished", verdict, transcript=Transcript((record,)))


@pytest.mark.parametrize(
    ("way", "written", "left"),
    [
        ("replace", {"1.answer": "replace", "state.k": "replace"}, []),
        ("as_well", {"1.answer": "as_well"}, [("c", "Final state, k")]),
        ("ignore", {"state.k": "ignore"}, [("c", "Turn 1, answer")]),
    ],
)
def test_a_change_that_cannot_be_written_in_the_asked_way_is_left_and_named(
    way: str, written: dict[str, str], left: list[tuple[str, str]]
) -> None:
    case = Case("c", (Turn("roll", Expected(reference="9")),), final_state={"k": 9})
    trial = _trial_that_said(0, "8", "failed")
    offered = acceptable_changes(case, trial.transcript)
    cases = (StagedCase("0", case, trial, offered, (trial,)),)

    keys = one_of(cases, (), None, way)

    assert keys == {"0": written}
    assert [(case_id, places) for case_id, places, _ in left_out(cases, keys, (), None)] == left
    (state,) = left_out(cases, {"0": {}}, ("state",), None)
    assert state == ("c", "Final state, k", {"replace", "ignore"})


def test_what_a_trial_that_broke_off_said_is_not_accepted_as_well() -> None:
    case = Case("c", (Turn("roll", Expected(reference="9")),))
    failed, other = _trial_that_said(0, "8", "failed"), _trial_that_said(1, "7", "failed")
    trials = (failed, other, _trial_that_said(2, "", "errored"))
    [change] = acceptable_changes(case, failed.transcript)

    now = StagedCase("0", case, failed, (change,), trials).with_changes({change.key: "as_well"})

    assert [each.answer for each in read_allowances(now)] == ["8", "7"]


def test_errors_that_count_as_failures_count_before_and_after_a_change() -> None:
    turn = TurnRecord("hi", (Event("agent_message", text="yes"),))
    ended = [
        TrialResult(1, 0, 0, "finished", "failed", transcript=Transcript((turn,))),
        TrialResult(1, 0, 1, "errored", "errored", error=ErrorRecord("agent_raised", "no")),
    ]
    case = Case("c", (Turn("hi", Expected(reference="yes")),))
    config = RunConfig(AgentRef("a", "a:a"), "set", criteria=(Criterion("response_match_score", 0.5),))

    counted, without = (_effect(ended, case, replace(config, errors_are_failures=flag)) for flag in (True, False))

    assert (counted.before.scored, counted.after.scored, counted.after.passed) == (2, 2, 1)
    assert (without.before.scored, without.after.scored, without.after.passed) == (1, 1, 1)


def test_a_change_is_judged_by_the_tool_that_judged_the_run() -> None:
    turn = TurnRecord("hi", (Event("agent_message", text="yes"),))
    ended = [
        TrialResult(1, 0, 0, "finished", "failed", transcript=Transcript((turn,))),
        TrialResult(1, 0, 1, "errored", "failed", error=ErrorRecord("agent_raised", "no")),
    ]
    criteria = (Criterion("response_match_score", 0.5),)
    config = RunConfig(AgentRef("a", "a:a"), "set", criteria=criteria, compat="adk")

    same = _effect(ended, Case("c", (Turn("hi"),)), config)
    changed = _effect(ended, Case("c", (Turn("hi", Expected(reference="yes")),)), config)

    assert (same.n_changed, same.verdicts_after) == (0, ("failed", "failed"))
    assert changed.verdicts_after == ("passed", "failed")


def test_values_that_change_from_trial_to_trial_are_accepted_by_a_matcher() -> None:
    case = Case("c", (Turn("q", Expected(reference="Hi.")),), final_state={"t": 1_764_412_225.5, "n": 1, "fix": 3})

    def trial(index: int) -> TrialResult:
        state = {"t": 1_764_412_300.25 + index, "n": 5 + index, "fix": 4}
        transcript = Transcript((TurnRecord("q", (Event("agent_message", text="Hi."),), {}, state),))
        return TrialResult(1, 0, index, "finished", "failed", "", transcript)

    trials = tuple(map(trial, range(3)))
    changes = [acceptable_changes(case, each.transcript) for each in trials]
    offered = with_others(changes[0], [*changes[1], *changes[2]])
    shown = StagedCase("c", case, trials[0], offered, trials)

    ways = shown.kindest()
    now = shown.with_changes(ways)

    assert ways == {"state.t": "match", "state.n": "match", "state.fix": "replace"}
    assert now.extra["also_accepted"] == [{"state": "t", "later": True}, {"state": "n", "type": "integer"}]
    assert now.final_state == {"t": 1_764_412_225.5, "n": 1, "fix": 4}
    assert all(acceptable_changes(now, each.transcript) == () for each in trials)
