"""What a case accepts beside what it expects: every metric obeys, and ADK reads the file as before."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.other_tools import as_adk_reads
from evaldesk.diff.acceptance import acceptable_changes
from evaldesk.diff.divergence import accepted_state, first_divergence
from evaldesk.diff.state import state_rows
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats import dump_evalset, load_evalset
from evaldesk.matching import (
    Allowance,
    apply_allowances,
    json_equal,
    read_allowances,
    renumber_allowances,
    with_allowances,
)
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, EvalSet, Event, Expected, ToolCall, Transcript, Turn, TurnRecord

TOOLS = ("tool_trajectory_avg_score", "tool_exact", "tool_f1", "tool_unordered")


def case_of(*calls: ToolCall, answer: str | None = None, accepts: Any = None) -> Case:
    extra = {} if accepts is None else {"also_accepted": accepts}
    return Case("c", (Turn("hello", Expected(tuple(calls), reference=answer)),), extra=extra)


def trial_of(*calls: ToolCall, answer: str = "") -> Transcript:
    events = [*(Event("tool_call", call=call) for call in calls), Event("agent_message", text=answer)]
    return Transcript((TurnRecord("hello", tuple(events)),))


def book(**args: Any) -> ToolCall:
    return ToolCall("book", args)


ACCEPTED = [
    ({"any_of": ["Lyon", "Nice"]}, book(city="Paris", n=1), book(city="Nice", n=1), "city is an allowed value"),
    ({"within": 2}, book(city=10, n=1), book(city=8.5, n=1), "city is within 2"),
    ({"ignore": True}, book(city="Paris", n=1), book(city={"any": "thing"}, n=1), "city is ignored"),
    ({"ignore": True}, book(city="Paris", n=1), book(n=1), "city is ignored"),
    ({"ignore": True}, book(n=1), book(city="Paris", n=1), "city is ignored"),
]
REFUSED = [
    ({"any_of": ["Lyon"]}, book(city="Paris", n=1), book(city="Nice", n=1)),
    ({"any_of": ["Lyon"]}, book(city="Paris", n=1), book(city="Lyon", n=2)),
    ({"any_of": [1]}, book(city="Paris"), book(city=True)),
    ({"within": 2}, book(city=10), book(city=12.5)),
    ({"within": 2}, book(city=10), book(city="10")),
    ({"ignore": True}, book(city="Paris", n=1), book(n=2)),
    ({"ignore": True}, book(city="Paris"), ToolCall("look", {"city": "Paris"})),
]


@pytest.mark.parametrize("metric", TOOLS)
@pytest.mark.parametrize(("form", "wish", "call", "because"), ACCEPTED)
def test_every_metric_of_calls_accepts_it(metric: str, form: Any, wish: Any, call: Any, because: str) -> None:
    case = case_of(wish, accepts=[{"turn": 1, "tool": "book", "argument": "city"} | form])

    turn, whole = score_trial(trial_of(call), case, [Criterion(metric, 1.0)])

    assert (turn.value, whole.value) == (1.0, 1.0)
    assert because in turn.reason
    assert turn.details["accepted"] == [{"expected": 0, "actual": 0, "because": [because]}]
    assert acceptable_changes(case, trial_of(call), [turn, whole]) == ()


def test_a_metric_of_the_answer_tells_nothing_of_the_calls_that_were_accepted() -> None:
    accepts = [{"turn": 1, "tool": "book", "argument": "city", "ignore": True}]
    case = case_of(book(city="Paris"), answer="It is booked.", accepts=accepts)

    scores = score_trial(
        trial_of(book(city="Nice"), answer="It is booked."), case, [Criterion("response_match_score", 0.8)]
    )

    assert not any("ccepted" in score.reason or "accepted" in score.details for score in scores)


@pytest.mark.parametrize("metric", TOOLS)
@pytest.mark.parametrize(("form", "wish", "call"), REFUSED)
def test_nothing_else_is_accepted(metric: str, form: Any, wish: Any, call: Any) -> None:
    case = case_of(wish, accepts=[{"turn": 1, "tool": "book", "argument": "city"} | form])

    *_, whole = score_trial(trial_of(call), case, [Criterion(metric, 1.0)])

    assert whole.value == 0.0


@pytest.mark.parametrize("metric", TOOLS)
def test_one_of_two_calls_of_a_tool_accepts_more_and_without_its_number_both_do(metric: str) -> None:
    wanted = book(city="Paris", n=1), book(city="Rome", n=2)
    both = {"turn": 1, "tool": "book", "argument": "city", "any_of": ["Lyon"]}

    def value(accepts: Any, *calls: ToolCall) -> float | None:
        score = score_trial(trial_of(*calls), case_of(*wanted, accepts=[accepts]), [Criterion(metric, 1.0)])[-1]
        return None if score.value is None else float(score.value == 1.0)

    first, second = (book(city="Lyon", n=1), wanted[1]), (wanted[0], book(city="Lyon", n=2))
    assert [value(both, *calls) for calls in (first, second)] == [1.0, 1.0]
    assert [value(both | {"call": 0}, *calls) for calls in (first, second)] == [1.0, 0.0]
    assert [value(both | {"call": 1}, *calls) for calls in (first, second)] == [0.0, 1.0]
    assert [value(both | {"call": 2}, *calls) for calls in (first, second)] == [0.0, 0.0]


def test_two_entries_of_one_argument_are_joined() -> None:
    entry = {"turn": 1, "tool": "book", "argument": "city"}
    case = case_of(
        book(city="Paris"),
        accepts=[entry | {"any_of": ["Lyon"]}, entry | {"any_of": ["Nice"]}, entry | {"any_of": ["Rome"], "call": 0}],
    )

    for city in ("Lyon", "Nice", "Rome"):
        assert score_trial(trial_of(book(city=city)), case, [Criterion("tool_exact", 1.0)])[-1].value == 1.0
    (written,) = read_allowances(with_allowances(case, []))
    assert (written.any_of, written.call) == (("Lyon", "Nice", "Rome"), None)


@pytest.mark.parametrize(
    ("origins", "calls", "found"),
    [
        ([(0, [0, 1])], (book(n=1), book(n=2)), [(1, 1)]),
        ([(0, [1, 0])], (book(n=2), book(n=1)), [(1, 0)]),
        ([(0, [0])], (book(n=1),), []),
        ([(0, [1])], (book(n=2),), [(1, None)]),
        ([(0, [0, None, 1])], (book(n=1), book(n=3), book(n=2)), [(1, 2)]),
        ([(0, [0, 1])], (book(n=1), ToolCall("look")), []),
        ([(None, [None, None])], (book(n=1), book(n=2)), []),
        ([(0, [99, 1])], (book(n=1), book(n=2)), [(1, 1)]),
        ([(0, [])], (), []),
    ],
)
def test_it_goes_with_its_call(origins: Any, calls: Any, found: Any) -> None:
    accepts = [{"turn": 1, "tool": "book", "call": 1, "argument": "n", "ignore": True}]
    before = case_of(book(n=1), book(n=2), accepts=accepts)

    after = renumber_allowances(before, case_of(*calls, accepts=accepts), origins)

    assert [(each.turn, each.call) for each in read_allowances(after)] == found
    assert ("also_accepted" in after.extra) == bool(found)


def test_the_value_of_adk_stays_that_of_adk() -> None:
    case = case_of(book(city="Paris"), accepts=[{"turn": 1, "tool": "book", "argument": "city", "ignore": True}])

    *_, whole = score_trial(trial_of(book(city="Lyon")), case, [Criterion("tool_trajectory_avg_score", 1.0)])

    assert (whole.value, whole.details["adk_value"]) == (1.0, 0.0)
    assert "also_accepted" not in as_adk_reads(case).extra


def test_of_several_answers_the_nearest_counts() -> None:
    case = case_of(answer="It is Paris.", accepts=[{"turn": 1, "answer": "Both are fine."}])

    for said, value in (("It is Paris.", 1.0), ("Both are fine.", 1.0), ("Neither", 0.0)):
        *_, whole = score_trial(trial_of(answer=said), case, [Criterion("response_match_score", 0.8)])
        assert whole.value == value


def test_an_unreadable_entry_is_an_error_of_the_trial_and_never_a_pass() -> None:
    case = case_of(book(city="Paris"), accepts=[{"turn": 7, "tool": "book", "argument": "city", "ignore": True}])

    (score,) = score_trial(trial_of(book(city="Paris")), case, [Criterion("tool_exact", 1.0)])

    assert score.error is not None
    assert "also_accepted[0].turn must be the number of a turn, 1 to 1, got 7" in score.error.message


@pytest.mark.parametrize(
    ("accepts", "words"),
    [
        ({}, "must be a list"),
        ([1], "must be an object"),
        ([{"turn": True, "answer": ""}], "must be the number of a turn"),
        ([{"turn": 1}], "must name a tool and an argument"),
        ([{"turn": 1, "tool": "a", "argument": "b"}], "accepts nothing"),
        ([{"turn": 1, "tool": "a", "argument": "b", "any_of": "Paris"}], "must be a list of values"),
        ([{"turn": 1, "tool": "a", "argument": "b", "within": -1}], "a number from 0 up"),
        ([{"turn": 1, "tool": "a", "argument": "b", "within": True}], "a number from 0 up"),
        ([{"turn": 1, "tool": "a", "argument": "b", "ignore": 1}], "must be true or false"),
        ([{"turn": 1, "tool": "a", "argument": "b", "ignored": True}], "unknown key 'ignored'"),
        ([{"turn": 1, "answer": "x", "tool": "a"}], "alone with its turn"),
        ([{"turn": 1, "tool": "a", "argument": "b", "ignore": True, "call": -1}], "number of an expected call of 'a'"),
        ([{"turn": 1, "tool": "a", "argument": "b", "ignore": True, "call": False}], "number of an expected call"),
    ],
)
def test_a_file_with_a_wrong_key_is_refused_by_its_place(accepts: Any, words: str, tmp_path: Any) -> None:
    path = tmp_path / "set.evalset.json"
    dump_evalset(EvalSet("set", cases=(case_of(book(city="Paris"), accepts=accepts),)), path)

    with pytest.raises(FormatError, match=words):
        load_evalset(path)


VALUES: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", [1], {"x": 1}])
ALLOWANCES = st.lists(
    st.builds(
        Allowance,
        st.just(1),
        st.just("book"),
        st.sampled_from(["n", "m"]),
        st.lists(VALUES, min_size=1, max_size=2).map(tuple),
        st.none() | st.integers(0, 2),
        st.booleans(),
        st.none(),
        st.none() | st.integers(0, 2),
    )
    | st.builds(Allowance, st.just(1), answer=st.sampled_from(["a", "b"])),
    max_size=4,
)
CALLS = st.lists(
    st.builds(ToolCall, st.sampled_from(["book", "look"]), st.dictionaries(st.sampled_from(["n", "m"]), VALUES)),
    max_size=3,
)


@given(ALLOWANCES, CALLS, CALLS)
def test_an_accepted_alternative_never_fails_a_passing_trial(more: Any, wanted: Any, made: Any) -> None:
    plain, trial = case_of(*wanted), trial_of(*made)
    case = with_allowances(plain, more)

    before, after = (score_trial(trial, each, [Criterion("tool_exact", 1.0)])[-1].value for each in (plain, case))

    assert (after or 0) >= (before or 0)
    assert read_allowances(with_allowances(case, more)) == read_allowances(case)
    taken, _ = apply_allowances(case, trial)
    assert [call.name for call in taken.turns[0].expected.tool_calls or ()] == [call.name for call in wanted]


@given(ALLOWANCES)
def test_it_comes_back_from_a_file_of_adk(more: Any) -> None:
    case = with_allowances(case_of(book(city="Paris")), more)

    again = json.loads(json.dumps(case.extra))

    assert json_equal(again, dict(case.extra))
    assert read_allowances(Case("c", case.turns, extra=again)) == read_allowances(case)


def test_adk_reads_a_file_with_it(tmp_path: Any) -> None:
    adk = pytest.importorskip("google.adk.evaluation.eval_set")
    path = tmp_path / "set.evalset.json"
    accepts = [{"turn": 1, "tool": "book", "argument": "city", "any_of": ["Lyon"]}]
    dump_evalset(EvalSet("set", cases=(case_of(book(city="Paris"), accepts=accepts),)), path)

    found = adk.EvalSet.model_validate_json(path.read_text("utf-8"))

    assert found.eval_cases[0].model_dump()["also_accepted"] == accepts
    assert load_evalset(path).cases[0].extra["also_accepted"] == accepts


def test_the_agent_never_sees_it() -> None:
    from evaldesk.model.evalset import user_side

    assert "also_accepted" not in user_side(case_of(accepts=[])).extra
    with pytest.raises(UsageError):
        read_allowances(case_of(accepts={}))


STATE_ACCEPTED = [
    ({"state": "k", "later": True}, 1_764_412_225.5, 1_764_412_230, True),
    ({"state": "k", "later": True}, 1_764_412_225.5, 1_764_412_220, False),
    ({"state": "k", "later": True}, "2025-11-29 10:30:25", "2025-11-29T10:30:25", True),
    ({"state": "k", "later": True}, "2025-11-29", "2025-11-29 10:30:25", False),
    ({"state": "k", "later": "start"}, 1_764_412_225.5, 1_764_412_230, True),
    ({"state": "k", "later": "start"}, 1_764_412_225.5, 1_764_412_220, False),
    ({"state": "k", "type": "integer"}, 3, 4.0, True),
    ({"state": "k", "type": "integer"}, 3, True, False),
    ({"state": "k", "type": "any"}, 3, None, True),
    ({"state": "k", "pattern": "ORD-\\d+"}, "ORD-1", "ORD-22", True),
    ({"state": "k", "pattern": "ORD-\\d+"}, "ORD-1", "ORD-22x", False),
    ({"state": "k", "within": 0.5}, 1, 1.5, True),
    ({"state": "k", "at": "/id", "type": "string"}, {"id": "a", "n": 1}, {"id": "b", "n": 1}, True),
    ({"state": "k", "at": "/id", "type": "string"}, {"id": "a", "n": 1}, {"id": "b", "n": 2}, False),
    ({"state": "k", "at": "/0/id", "ignore": True}, [{"id": "a"}], [{}], True),
    ({"state": "k", "at": "/0/id", "type": "string"}, [{"id": "a"}], [], False),
]


@pytest.mark.parametrize(("entry", "expected", "actual", "passes"), STATE_ACCEPTED)
def test_a_key_of_the_final_state_accepts_values_by_a_matcher(
    entry: Any, expected: Any, actual: Any, passes: bool
) -> None:
    case = Case("c", (Turn("hello"),), final_state={"k": expected}, extra={"also_accepted": [entry]})
    trial = Transcript((TurnRecord("hello", (), {}, {"k": actual}),))

    (score,) = score_trial(trial, case, [Criterion("final_state_match", 1.0)])

    assert score.passed is passes
    assert (accepted_state(case, trial) == {"k": actual}) is passes
    assert [
        row.is_as_expected for row in state_rows({}, {"k": actual}, {"k": expected}, accepted_state(case, trial))
    ] == [passes]
    assert (acceptable_changes(case, trial) == ()) is passes
    assert (first_divergence(case, trial) is None) is passes


@pytest.mark.parametrize(
    ("start_time", "words"), [(1_764_412_220.0, "is a time after the start"), (None, "is a later time")]
)
def test_a_time_is_only_told_as_after_a_start_that_is_known(start_time: float | None, words: str) -> None:
    (allowance,) = read_allowances(case_of(accepts=[{"state": "k", "later": "start"}]))

    assert allowance.reason(1_764_412_225.5, 1_764_412_230, start_time) == words


def test_a_key_that_must_be_there_is_not_accepted_where_it_is_missing() -> None:
    case = Case("c", (Turn("q"),), final_state={"k": 1}, extra={"also_accepted": [{"state": "k", "type": "any"}]})

    assert accepted_state(case, Transcript((TurnRecord("q"),))) == {"k": 1}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"state": 1, "later": True}, "also_accepted[0].state"),
        ({"state": "k", "turn": 1, "later": True}, "also_accepted[0].state"),
        ({"state": "k", "at": "id", "later": True}, "also_accepted[0].at"),
        ({"state": "k", "type": "float"}, "also_accepted[0].type must be one of any, string"),
        ({"state": "k", "pattern": "("}, "also_accepted[0].pattern"),
        ({"state": "k", "later": 1}, "also_accepted[0].later"),
        ({"state": "k", "later": "end"}, "also_accepted[0].later"),
        ({"state": "k", "later": ["start"]}, "also_accepted[0].later"),
        ({"state": "k"}, "also_accepted[0] accepts nothing"),
        ({"turn": 1, "answer_pattern": "("}, "also_accepted[0].answer_pattern"),
    ],
)
def test_a_wrong_matcher_is_refused_with_its_place(entry: Any, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        read_allowances(Case("c", (Turn("q"),), final_state={"k": 1}, extra={"also_accepted": [entry]}))


def test_an_answer_passes_by_its_pattern() -> None:
    case = case_of(answer="Order 7 is late.", accepts=[{"turn": 1, "answer_pattern": "Order \\d+ is late\\."}])

    scores = [
        score_trial(trial_of(answer=text), case, [Criterion("response_match_score", 1.0)])[0].passed
        for text in ("Order 88 is late.", "Order 88 is here.")
    ]

    assert scores == [True, False]
    assert read_allowances(with_allowances(case, [])) == read_allowances(case)
