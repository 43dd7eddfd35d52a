"""What the trial page shows: calls, arguments, texts, state, and where a trial left its path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.runs.charts import pass_figure
from evaldesk.diff.divergence import first_divergence
from evaldesk.diff.state import state_diff, state_rows
from evaldesk.diff.text_diff import Segment, diff_text
from evaldesk.diff.turn_diff import call_outcomes, turn_diff
from evaldesk.model import Case, Change, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.statistics.intervals import pass_curve

ROLL, CHECK = ToolCall("roll_die", {"sides": 20}), ToolCall("check_prime", {"nums": [7, 12, 17]})


def marked(segments: Sequence[Segment] | None) -> str:
    """Segments as text, what is only on this side in brackets."""
    return "".join(s.text if s.kind == "same" else f"[{s.text}]" for s in segments or ())


def played(*calls: ToolCall, answer: str = "", **state: Any) -> TurnRecord:
    said = [Event("agent_message", text=answer)] if answer else []
    return TurnRecord("q", (*(Event("tool_call", call=call) for call in calls), *said), state_after=state)


@pytest.mark.parametrize(
    ("expected", "actual", "left", "right"),
    [
        pytest.param("a b", "a b", "a b", "a b", id="same"),
        pytest.param(
            "dice of different sizes, and check.",
            "dice of any size, and check.",
            "dice of [different sizes], and check.",
            "dice of [any size], and check.",
            id="words",
        ),
        pytest.param(
            "rolls, 7 and 17 are prime; 12 is not.",
            "rolls, 17 is prime.",
            "rolls, [7 and] 17 [are] prime[; 12 is not].",
            "rolls, 17 [is] prime.",
            id="punctuation-is-a-word",
        ),
        pytest.param("", "new text", "", "[new text]", id="nothing-expected"),
        pytest.param("gone", "", "[gone]", "", id="nothing-said"),
        pytest.param("a  b\n", "a b", "a  b\n", "a b", id="space-is-no-difference"),
        pytest.param("[7, 12, 17]", "[17]", "[[7, 12,] 17]", "[17]", id="json"),
    ],
)
def test_texts_are_compared_by_word(expected: str, actual: str, left: str, right: str) -> None:
    diff = diff_text(expected, actual)

    assert (marked(diff.expected), marked(diff.actual)) == (left, right)
    assert diff.is_same == (expected.split() == actual.split())


texts = st.text(st.sampled_from("ab c.,\n é字"), max_size=30)


@given(texts, texts)
def test_no_letter_of_a_text_is_lost(expected: str, actual: str) -> None:
    diff = diff_text(expected, actual)

    assert "".join(segment.text for segment in diff.expected) == expected
    assert "".join(segment.text for segment in diff.actual) == actual
    assert same_words(diff.expected) == same_words(diff.actual)
    assert {segment.kind for segment in diff.expected} <= {"same", "del"}
    assert {segment.kind for segment in diff.actual} <= {"same", "ins"}


def same_words(segments: Sequence[Segment]) -> str:
    return "".join("".join(segment.text.split()) for segment in segments if segment.kind == "same")


def test_very_long_texts_are_cut_between_common_ends() -> None:
    expected = "start " + "a b " * 2000 + "end"
    actual = "start " + "c d " * 2000 + "end"

    diff = diff_text(expected, actual)

    assert [segment.kind for segment in diff.actual] == ["same", "ins", "same"]
    assert diff.actual[-1].text.strip() == "end"


def test_long_lists_are_not_compared_comma_by_comma() -> None:
    expected, actual = (", ".join(map(str, range(start, start + 400))) for start in (0, 1000))

    diff = diff_text(expected, actual)

    assert [segment.kind for segment in (*diff.expected, *diff.actual)] == ["del", "ins"]


def test_long_texts_of_many_words_are_compared_word_by_word() -> None:
    expected = " ".join(f"w{number}" for number in range(3000))
    actual = expected.replace("w500 ", "other ").replace("w2500 ", "")

    diff = diff_text(expected, actual)

    assert [segment.text.strip() for segment in diff.expected if segment.kind == "del"] == ["w500", "w2500"]
    assert [segment.text.strip() for segment in diff.actual if segment.kind == "ins"] == ["other"]


def test_texts_of_hundreds_of_pages_are_not_compared() -> None:
    diff = diff_text("common " + "a" * 500_000, "common " + "b" * 500_000)

    assert [segment.kind for segment in (*diff.expected, *diff.actual)] == ["del", "ins"]


def test_calls_are_aligned_with_arguments_results_and_durations() -> None:
    record = TurnRecord(
        "q",
        (
            Event("tool_call", call=ToolCall("roll_die", {"sides": 20}, id="1")),
            Event("tool_call", call=ToolCall("check_prime", {"nums": [17], "fast": True}, id="2")),
            Event("tool_result", call=ToolCall("check_prime", id="2"), result="17 is prime.", duration_ms=1.0),
            Event("tool_result", call=ToolCall("roll_die", id="1"), result=17, duration_ms=2.0, is_error=True),
        ),
    )

    first, second = turn_diff(Expected((ROLL, CHECK)), record).calls

    assert (first.op, first.result, first.duration_ms, first.is_error) == ("=", 17, 2.0, True)
    assert (second.op, second.result, second.has_result) == ("~", "17 is prime.", True)
    assert [(arg.key, arg.op, marked(arg.expected), marked(arg.actual)) for arg in second.args] == [
        ("nums", "~", "[[7, 12,] 17]", "[17]"),
        ("fast", "+", "", "[true]"),
    ]


def test_arguments_that_differ_in_spaces_only_are_marked_whole() -> None:
    diff = turn_diff(Expected((ToolCall("a", {"x": "NYC"}),)), played(ToolCall("a", {"x": "NYC "})))

    (arg,) = diff.calls[0].args
    assert (marked(arg.expected), marked(arg.actual)) == ('["NYC"]', '["NYC "]')


def test_results_without_ids_belong_to_the_first_free_call_of_their_tool() -> None:
    calls = [Event("tool_call", call=ToolCall("roll_die", {"sides": sides})) for sides in (6, 8)]
    results = [Event("tool_result", call=ToolCall("roll_die"), result=value) for value in (3, 5)]

    diff = turn_diff(None, TurnRecord("q", (*calls, *results)))

    assert [row.result for row in diff.calls] == [3, 5]


def test_thousands_of_results_that_belong_to_no_call_are_looked_through_once() -> None:
    calls = [Event("tool_call", call=ToolCall("look", id=f"call {at}")) for at in range(20_000)]
    results = [Event("tool_result", call=ToolCall("look", id=f"result {at}"), result=at) for at in range(20_000)]

    found = call_outcomes(TurnRecord("q", (*calls, *results)))

    assert len(found) == 20_000
    assert {outcome for _, outcome in found} == {None}


def test_moved_missing_and_extra_calls_have_their_places() -> None:
    expected = Expected((ToolCall("a"), ToolCall("b"), ToolCall("c")))

    diff = turn_diff(expected, played(ToolCall("b"), ToolCall("a"), ToolCall("d")))

    places = [(row.op, row.expected_place, row.actual_place) for row in diff.calls]
    assert places == [("moved", 2, 1), ("=", 1, 2), ("-", 3, None), ("+", None, 3)]
    assert diff.summary == "3 calls, 1 missing, 1 extra, 1 moved"


@pytest.mark.parametrize(
    ("expected", "record", "summary", "differs"),
    [
        pytest.param(Expected(()), played(), "no calls", False, id="none"),
        pytest.param(Expected((ROLL,)), played(ROLL), "1 call", False, id="same"),
        pytest.param(
            Expected((ROLL, CHECK)), played(ROLL, ToolCall("check_prime")), "2 calls, 1 differs", True, id="~"
        ),
        pytest.param(Expected(), played(ROLL), "1 call, not asserted", False, id="not-asserted"),
        pytest.param(Expected((ROLL,)), None, "never played", True, id="never-played"),
        pytest.param(None, played(), "no calls, not asserted", False, id="nothing-expected"),
    ],
)
def test_a_turn_in_one_line(expected: Expected | None, record: TurnRecord | None, summary: str, differs: bool) -> None:
    diff = turn_diff(expected, record)

    assert (diff.summary, diff.differs) == (summary, differs)


def test_a_text_is_compared_only_with_a_reference() -> None:
    assert turn_diff(Expected(), played(answer="hi")).text is None
    assert turn_diff(Expected(reference=""), played(answer="hi")).text is not None
    assert turn_diff(Expected(reference="hi"), None).answer is None


def test_state_changes_tell_null_from_absent() -> None:
    changes = state_diff({"a": 1, "b": None, "c": 1}, {"a": 1.0, "c": True, "d": None})

    assert changes == (Change("b", None, None, True, False), Change("c", 1, True), Change("d", None, None, False, True))


def test_state_rows_say_what_was_expected_at_the_end() -> None:
    rolls, total, gone = state_rows({"rolls": [7, 12], "total": None}, {"rolls": [7, 12, 17], "total": None}, {"x": 1})

    assert (marked(rolls.before), marked(rolls.after), rolls.is_changed) == ("[7, 12]", "[7, 12[, 17]]", True)
    assert (total.is_changed, total.expected, total.is_as_expected) == (False, None, None)
    assert (gone.before, gone.after, gone.expected, gone.is_as_expected) == (None, None, "1", False)


def test_a_new_key_of_the_state_is_no_difference_of_text() -> None:
    (row,) = state_rows({}, {"new": [1]})

    assert (row.before, marked(row.after), row.is_changed) == (None, "[1]", True)


def case(*turns: Expected, **final_state: Any) -> Case:
    return Case("c", tuple(Turn("q", expected) for expected in turns), final_state=final_state or None)


@pytest.mark.parametrize(
    ("asked", "records", "said"),
    [
        pytest.param(
            case(Expected(()), Expected((ROLL, CHECK))),
            [played(), played(ROLL, ToolCall("check_prime", {"nums": [17]}))],
            "turn 2, call 2: check_prime was called with nums [17], expected [7, 12, 17]",
            id="other-arguments",
        ),
        pytest.param(
            case(Expected((ROLL,))),
            [played(ToolCall("roll_die", {"n": 1, "m": 2}))],
            "turn 1, call 1: roll_die was called without sides, expected 20, and 2 more",
            id="several-arguments",
        ),
        pytest.param(
            case(Expected((ROLL,))), [played()], "turn 1, call 1: roll_die was expected and not called", id="missing"
        ),
        pytest.param(
            case(Expected(())), [played(ROLL)], "turn 1, call 1: roll_die was called and not expected", id="extra"
        ),
        pytest.param(
            case(Expected((ToolCall("a"), ToolCall("b")))),
            [played(ToolCall("b"), ToolCall("a"))],
            "turn 1, call 1: b was expected as call 2",
            id="moved",
        ),
        pytest.param(case(Expected(), Expected()), [played()], "turn 2: it was never played", id="never-played"),
        pytest.param(
            case(Expected(), total=11), [played(total=None)], "final state: total is null, expected 11", id="state"
        ),
        pytest.param(case(Expected(), total=11), [played()], "final state: total is not set, expected 11", id="unset"),
        pytest.param(case(Expected((ROLL,)), Expected()), [played(ROLL), played(CHECK)], "None", id="none"),
    ],
)
def test_the_first_divergence_is_named(asked: Case, records: list[TurnRecord], said: str) -> None:
    assert str(first_divergence(asked, Transcript(tuple(records)))) == said


def test_a_failed_score_is_a_divergence_where_the_calls_agree() -> None:
    scores = [
        Score("response_match_score", 0.2, 0, passed=False, reason="1 of 9 expected words."),
        Score("response_match_score", 0.2, None, passed=False),
    ]

    found = first_divergence(case(Expected(reference="x")), Transcript((played(answer="y"),)), scores)

    assert str(found) == "turn 1: response_match_score: 1 of 9 expected words"


def test_the_two_curves_differ_without_colour() -> None:
    figure = pass_figure(pass_curve([(3, 1, 1), (3, 3, 1)]))

    at_k, hat_k = figure["data"]
    assert (at_k["name"], hat_k["name"]) == ("pass@k", "pass^k")
    assert at_k["line"]["dash"] != hat_k["line"]["dash"]
    assert at_k["marker"]["symbol"] != hat_k["marker"]["symbol"]
    assert at_k["y"] == pytest.approx([2 / 3, 5 / 6, 1.0])
    assert "color" not in str(figure).replace("bgcolor", "")
