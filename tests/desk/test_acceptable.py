"""Accepting the actual as the expected: what is accepted is expected from then on, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.runs.accepting import StagedCase, effect_of, left_out, one_of
from evaldesk.diff.acceptance import AcceptableChange, Way, accept_changes, acceptable_changes, offered_changes
from evaldesk.errors import UsageError
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

    of_others = [(other, ()) for other in others]
    ways: dict[str, Way] = {each.key: "as_well" for each in offered_changes(case, trial, (), of_others)}
    now = accept_changes(case, trial, ways, (), of_others)

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
    return StagedCase(
        "c", case, shown, offered_of(case, [shown, *(each for each in results if each is not shown)]), tuple(results)
    )


def offered_of(case: Case, trials: Sequence[TrialResult]) -> tuple[AcceptableChange, ...]:
    """The changes of the first trial, with the values of the others that ended."""
    first, *others = trials
    ended = [(each.transcript, each.scores) for each in others if each.verdict != "errored"]
    return offered_changes(case, first.transcript, first.scores, ended)


ROLL = ToolCall("roll", {"n": 6})


def test_each_value_that_trials_gave_is_a_change_of_its_own_and_what_takes_all_is_one_more() -> None:
    case = Case("c", (Turn("a", Expected((ROLL,))),))
    values = [7, 8, 8, 9, 6]

    shown = staged(case, *(two_rolls(ToolCall("roll", {"n": value})) for value in values))

    offered = [(each.key, each.actual, each.n_trials, each.ways) for each in shown.offered]
    assert offered == [
        ("1.1.n", "7", 1, ("as_well", "replace")),
        ("other2.1.1.n", "8", 2, ("as_well", "replace")),
        ("other3.1.1.n", "9", 1, ("as_well", "replace")),
        ("all.1.1.n", "7", 4, ("within", "match", "ignore")),
    ]


@pytest.mark.parametrize(
    ("ways", "accepted", "expected"),
    [
        ({"1.1.n": "as_well"}, [7], 6),
        ({"other3.1.1.n": "as_well"}, [9], 6),
        ({"1.1.n": "as_well", "other2.1.1.n": "as_well"}, [7, 8], 6),
        ({"other2.1.1.n": "replace"}, [], 8),
        ({"other2.1.1.n": "replace", "1.1.n": "as_well"}, [7], 8),
        ({"other2.1.1.n": "within"}, [], 6),
    ],
    ids=["its own", "another's alone", "two of three", "another's instead", "both", "not its way"],
)
def test_only_the_chosen_values_are_accepted(ways: Any, accepted: list[int], expected: int) -> None:
    case = Case("c", (Turn("a", Expected((ROLL,))),))
    shown = staged(case, *(two_rolls(ToolCall("roll", {"n": value})) for value in (7, 8, 8, 9)))

    now = shown.with_changes(ways)

    assert [value for each in read_allowances(now) for value in each.any_of] == accepted
    (call,) = now.turns[0].expected.tool_calls or ()
    assert call.args == {"n": expected}


def test_two_values_do_not_replace_the_same_one() -> None:
    case = Case("c", (Turn("a", Expected((ROLL,))),))
    shown = staged(case, *(two_rolls(ToolCall("roll", {"n": value})) for value in (7, 8)))

    with pytest.raises(UsageError, match="Turn 1, roll, n: choose one value to replace the expected one"):
        shown.with_changes({"1.1.n": "replace", "other2.1.1.n": "replace"})


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


def test_what_a_trial_that_broke_off_said_is_not_offered() -> None:
    case = Case("c", (Turn("roll", Expected(reference="9")),))
    failed, other = _trial_that_said(0, "8", "failed"), _trial_that_said(1, "7", "failed")
    trials = (failed, other, _trial_that_said(2, "6", "errored"))
    shown = StagedCase("0", case, failed, offered_of(case, trials), trials)

    now = shown.with_changes({each.key: "as_well" for each in shown.offered})

    assert [each.actual for each in shown.offered if each.scope == "one"] == ["8", "7"]
    assert [each.answer for each in read_allowances(now)] == ["8", "7"]


def test_errors_that_count_as_failures_count_before_and_after_a_change() -> None:
    turn = TurnRecord("hi", (Event("agent_message", text="yes"),))
    ended = [
        TrialResult(1, 0, 0, "finished", "failed", transcript=Transcript((turn,))),
        TrialResult(1, 0, 1, "errored", "errored", error=ErrorRecord("agent_raised", "no")),
    ]
    case = Case("c", (Turn("hi", Expected(reference="yes")),))
    config = RunConfig(AgentRef("a", "a:a"), "set", criteria=(Criterion("response_match_score", 0.5),))

    counted, without = (effect_of(ended, case, replace(config, errors_are_failures=flag)) for flag in (True, False))

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

    same = effect_of(ended, Case("c", (Turn("hi"),)), config)
    changed = effect_of(ended, Case("c", (Turn("hi", Expected(reference="yes")),)), config)

    assert (same.n_changed, same.verdicts_after) == (0, ("failed", "failed"))
    assert changed.verdicts_after == ("passed", "failed")


def test_values_that_change_from_trial_to_trial_are_accepted_by_a_matcher() -> None:
    case = Case("c", (Turn("q", Expected(reference="Hi.")),), final_state={"t": 1_764_412_225.5, "n": 1, "fix": 3})

    def trial(index: int) -> TrialResult:
        state = {"t": 1_764_412_300.25 + index, "n": 5 + index, "fix": 4}
        transcript = Transcript((TurnRecord("q", (Event("agent_message", text="Hi."),), {}, state),))
        return TrialResult(1, 0, index, "finished", "failed", "", transcript)

    trials = tuple(map(trial, range(3)))
    shown = StagedCase("c", case, trials[0], offered_of(case, trials), trials)
    ways: Any = {each.key: each.ways[0] for each in shown.offered}
    now = shown.with_changes(ways)

    assert ways == {"state.t": "match", "state.n": "match", "state.fix": "replace"}
    assert now.extra["also_accepted"] == [{"state": "t", "later": True}, {"state": "n", "type": "integer"}]
    assert now.final_state == {"t": 1_764_412_225.5, "n": 1, "fix": 4}
    assert all(acceptable_changes(now, each.transcript) == () for each in trials)
