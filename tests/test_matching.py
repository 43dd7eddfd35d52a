"""Matching, alignment and argument differences: a table and the known answers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import UsageError
from evaldesk.matching import align, diff_args, match_trajectory
from evaldesk.model import ToolCall

from .matching_calls import Call, call

TABLE: dict[str, Any] = golden("trajectory_cases")

Row = dict[str, Any]


def rows(key: str) -> list[Any]:
    """The known answers under `key`."""
    return [pytest.param(row, id=row["id"]) for row in TABLE[key]]


def ratio(text: str | None) -> float | None:
    return None if text is None else float(Fraction(text))


@pytest.mark.parametrize("row", rows("cases"))
def test_known_matches(row: Row) -> None:
    expect = row["expect"]
    for order in ("exact", "in_order", "any_order", "unordered", "subset"):
        found = match_trajectory(
            row["reference"],
            row["predicted"],
            order=order,
            args=row["args_mode"],
            args_overrides=row.get("args_overrides"),
        )

        assert found.score == expect[order], order
        assert found.n_matched == expect["matched"]
        assert (found.precision, found.recall, found.f1) == pytest.approx(
            (ratio(expect["precision"]), ratio(expect["recall"]), ratio(expect["f1"]))
        )


@pytest.mark.parametrize("row", rows("alignment"))
def test_known_alignments(row: Row) -> None:
    steps = align(row["reference"], row["predicted"])

    assert [list(step) for step in steps] == row["ops"]
    assert match_trajectory(row["reference"], row["predicted"]).alignment == steps


def test_every_row_of_the_known_answers_is_played() -> None:
    played = {"cases", "turns", "alignment", "arg_diff"}  # the turns in tests/metrics/test_own_metrics.py

    assert {key for key, value in TABLE.items() if isinstance(value, list)} == played


@pytest.mark.parametrize("row", rows("arg_diff"))
def test_known_argument_differences(row: Row) -> None:
    changes = diff_args(row["expected"], row["actual"])

    assert [[change.op, change.pointer, change.expected, change.actual] for change in changes] == row["diff"]


A, B, C = call("a"), call("b"), call("c")


@pytest.mark.parametrize(
    ("expected", "actual", "order", "score"),
    [
        pytest.param([], [], "exact", 1.0, id="both-empty"),
        pytest.param([], [A], "exact", 0.0, id="no-tool-may-be-called"),
        pytest.param([], [A], "any_order", 1.0, id="extra-calls-allowed"),
        pytest.param([A], [], "in_order", 0.0, id="nothing-was-called"),
        pytest.param([A], [], "subset", 1.0, id="nothing-else-was-called"),
        pytest.param([A, B], [A, C, B], "in_order", 1.0, id="extra-in-the-middle"),
        pytest.param([A, B], [B, A], "in_order", 0.0, id="swapped-in-order"),
        pytest.param([A, B], [B, A], "unordered", 1.0, id="swapped-unordered"),
        pytest.param([A, B], [B, C, A], "unordered", 0.0, id="unordered-allows-no-extra"),
        pytest.param([A, A], [A], "any_order", 0.0, id="a-call-counts-once"),
        pytest.param([A], [A, A], "subset", 0.0, id="repeated-call-is-not-in-the-subset"),
        pytest.param(None, [A], "exact", None, id="not-asserted"),
    ],
)
def test_orders(expected: list[Call] | None, actual: list[Call], order: Any, score: float | None) -> None:
    assert match_trajectory(expected, actual, order=order).score == score


@pytest.mark.parametrize(
    ("expected", "actual", "args", "score"),
    [
        pytest.param({"n": 6}, {"n": 6.0}, "exact", 1.0, id="numbers-by-value"),
        pytest.param({"n": True}, {"n": 1}, "exact", 0.0, id="true-is-not-one"),
        pytest.param({"n": None}, {}, "exact", 0.0, id="null-is-not-absent"),
        pytest.param({"n": 2**53 + 1}, {"n": float(2**53)}, "exact", 0.0, id="big-integers-are-exact"),
        pytest.param({"n": 1}, {"m": 2}, "ignore", 1.0, id="ignored"),
        pytest.param({"o": {"a": 1}}, {"o": {"a": 1, "b": 2}, "p": 3}, "superset", 1.0, id="superset-at-depth"),
        pytest.param({"l": [1]}, {"l": [1, 2]}, "superset", 0.0, id="superset-keeps-array-length"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, "subset", 1.0, id="subset"),
        pytest.param({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["a"], 1.0, id="only-the-named-keys"),
        pytest.param({"b": 2}, {"b": 3}, ["a"], 1.0, id="a-named-key-absent-on-both-sides"),
    ],
)
def test_argument_modes(expected: Call, actual: Call, args: Any, score: float) -> None:
    assert match_trajectory([call("t", **expected)], [call("t", **actual)], args=args).score == score


def test_an_override_sets_the_mode_of_one_tool_only() -> None:
    expected = [call("search", q=1), call("book", id=7)]

    loose = match_trajectory(expected, [call("search", q=2), call("book", id=7)], args_overrides={"search": "ignore"})
    still_exact = match_trajectory(
        expected, [call("search", q=1), call("book", id=8)], args_overrides={"search": ["q"]}
    )

    assert loose.score == 1.0
    assert still_exact.score == 0.0


def test_calls_may_be_values_of_the_model() -> None:
    found = match_trajectory([ToolCall("a", {"x": 1}, id="1")], [{"name": "a", "args": {"x": 1}, "id": "2"}])

    assert found.score == 1.0


def test_absent_and_null_arguments_are_the_empty_object() -> None:
    assert match_trajectory([{"name": "a"}], [{"name": "a", "args": None}]).score == 1.0


def test_precision_and_recall_use_a_maximum_matching() -> None:
    expected = [call("s", q=1), call("s", q=1, page=2)]
    actual = [call("s", q=1, page=2), call("s", q=1)]

    found = match_trajectory(expected, actual, order="any_order", args="superset")

    assert (found.score, found.precision, found.recall, found.f1) == (1.0, 1.0, 1.0, 1.0)


def test_nothing_is_scored_where_nothing_is_asserted() -> None:
    found = match_trajectory(None, [A])

    assert (found.score, found.precision, found.recall, found.f1, found.alignment) == (None, None, None, None, ())


def test_moved_calls_stand_where_they_were_made() -> None:
    assert align([A, B, C], [B, C, A]) == (("=", 1, 0), ("=", 2, 1), ("moved", 0, 2))


@pytest.mark.parametrize("n_heads", [0, 2])
@pytest.mark.parametrize("n_tails", [0, 1, 2])
def test_very_long_lists_are_aligned_at_their_common_ends(
    n_heads: int, n_tails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.matching.alignment._MOST_PAIRS", 5)
    expected = [*[A] * n_heads, *(call("look", at=at) for at in range(3)), *[B] * n_tails]
    actual = [*[A] * n_heads, *(call("look", at=-1 - at) for at in range(2)), *[B] * n_tails]

    steps = align(expected, actual)

    ends = [*((at, at) for at in range(n_heads)), *((n_heads + 3 + at, n_heads + 2 + at) for at in range(n_tails))]
    assert [step[1:] for step in steps if step[0] == "="] == ends
    assert Counter(step[0] for step in steps if step[0] != "=") == {"-": 3, "+": 2}


def test_pointers_are_escaped() -> None:
    (change,) = diff_args({"a/b~c": {"d": 1}}, {"a/b~c": {"d": 2}})

    assert change.pointer == "/a~1b~0c/d"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": "exakt"}, "no order named 'exakt'; did you mean 'exact'"),
        ({"args": "ignored"}, "no argument mode named 'ignored'; did you mean 'ignore'"),
        ({"args_overrides": {"a": "sub"}}, "no argument mode named 'sub'"),
        ({"args": 5}, "args must be one of exact, ignore, superset, subset, or a list of keys, got 5"),
        ({"args": ["a", 1]}, "or a list of keys, got"),
        ({"expected": [{"args": {}}]}, "expected calls must be"),
        ({"actual": ["a"]}, "actual calls must be"),
        ({"actual": [{"name": "a", "args": [1]}]}, "actual call of a: args must be an object"),
    ],
)
def test_bad_requests_name_the_fault(arguments: Row, message: str) -> None:
    expected, actual = arguments.pop("expected", [A]), arguments.pop("actual", [A])

    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        match_trajectory(expected, actual, **arguments)


def test_many_interchangeable_calls_are_matched_quickly() -> None:
    expected = [call("t", **({"page": 1} if index % 2 else {})) for index in range(300)]
    actual = [call("t", page=1) for _ in range(200)]

    assert match_trajectory(expected, actual, order="subset", args="superset").n_matched == 200
