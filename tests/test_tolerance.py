"""What counts as the expected value of an argument: modes, tolerances, patterns and own rules."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from evaldesk.errors import MetricError, UsageError
from evaldesk.matching import CallRule, Tolerance, match_trajectory
from evaldesk.matching.tolerance import check_pattern, has_match

from .matching_calls import Call, call

Row = dict[str, Any]

PRICE = Tolerance(tolerances={"price": 0.1})


@pytest.mark.parametrize(
    ("expected", "actual", "tolerance", "score"),
    [
        pytest.param({"city": "Paris"}, {"city": "Lyon"}, Tolerance({"city": ["Lyon", "Nice"]}), 1.0, id="allowed"),
        pytest.param({"city": "Paris"}, {"city": "Rome"}, Tolerance({"city": ["Lyon", "Nice"]}), 0.0, id="not-allowed"),
        pytest.param({"city": "Paris"}, {"city": "Paris"}, Tolerance({"city": ["Lyon"]}), 1.0, id="expected-one-stays"),
        pytest.param({"n": 5}, {"n": True}, Tolerance({"n": [1]}), 0.0, id="true-is-no-allowed-one"),
        pytest.param({"city": "Paris"}, {}, Tolerance({"city": [None]}), 0.0, id="absent-is-not-null"),
        pytest.param(
            {"q": "x"}, {"q": "Weather in Rome"}, Tolerance(patterns={"q": "(?i)weather .*"}), 1.0, id="pattern"
        ),
        pytest.param({"q": "x"}, {"q": "the weather"}, Tolerance(patterns={"q": "weather"}), 0.0, id="pattern-of-all"),
        pytest.param({"q": "x"}, {"q": 7}, Tolerance(patterns={"q": ".*"}), 0.0, id="pattern-is-of-texts"),
        pytest.param({"price": 0.2}, {"price": 0.3}, PRICE, 1.0, id="tolerance-in-decimal"),
        pytest.param({"price": 0.2}, {"price": 0.31}, PRICE, 0.0, id="beyond-tolerance"),
        pytest.param({"price": 10**400}, {"price": 10**400 + 1}, PRICE, 0.0, id="tolerance-of-huge-numbers"),
        pytest.param({"price": 1}, {"price": True}, PRICE, 0.0, id="true-is-no-number"),
        pytest.param({"price": 1}, {"price": "1"}, PRICE, 0.0, id="text-is-no-number"),
        pytest.param({"price": 1, "x": 1}, {"price": 1.1, "x": 2}, PRICE, 0.0, id="the-rest-stays-strict"),
        pytest.param({"price": 1}, {"price": 9}, Tolerance(tolerances={"t/price": 8.0, "price": 0.0}), 1.0, id="tool"),
        pytest.param({"price": 1}, {"price": 9}, Tolerance(tolerances={"u/price": 8.0}), 0.0, id="another-tool"),
    ],
)
def test_accepted_values_count_as_the_expected_one(
    expected: Call, actual: Call, tolerance: Tolerance, score: float
) -> None:
    assert match_trajectory([call("t", **expected)], [call("t", **actual)], tolerance=tolerance).score == score


@pytest.mark.parametrize(
    ("args", "expected", "actual", "score"),
    [
        ("superset", {"price": 1}, {"price": 1.1, "x": 2}, 1.0),
        ("superset", {"price": 1, "x": 2}, {"price": 1.1}, 0.0),
        ("subset", {"price": 1, "x": 2}, {"price": 1.1}, 1.0),
        (["price"], {"price": 1, "x": 2}, {"price": 1.1, "x": 3}, 1.0),
        (["x"], {"price": 1, "x": 2}, {"price": 1.1, "x": 3}, 0.0),
        ("ignore", {"price": 1}, {}, 1.0),
    ],
)
def test_tolerance_goes_with_every_argument_mode(args: Any, expected: Call, actual: Call, score: float) -> None:
    assert match_trajectory([call("t", **expected)], [call("t", **actual)], args=args, tolerance=PRICE).score == score


@pytest.mark.parametrize(
    ("rule", "expected", "actual", "because"),
    [
        (CallRule(), {"x": 1}, {"x": 1.0}, ()),
        (CallRule(), {"x": 1}, {"x": 2}, ()),
        (CallRule("ignore"), {"x": 1}, {"x": 2}, ("arguments are ignored",)),
        (CallRule("superset"), {"x": 1}, {"x": 1, "y": 2}, ("more arguments are allowed",)),
        (CallRule("subset"), {"x": 1, "y": 2}, {"x": 1}, ("fewer arguments are allowed",)),
        (CallRule(["x"]), {"x": 1, "y": 2}, {"x": 1}, ("only x is compared",)),
        (CallRule(tolerance=PRICE), {"price": 1}, {"price": 1.1}, ("price is within 0.1",)),
        (CallRule(tolerance=Tolerance({"c": ["b"]})), {"c": "a"}, {"c": "b"}, ("c is an allowed value",)),
        (CallRule(tolerance=Tolerance(patterns={"c": "b+"})), {"c": "a"}, {"c": "bb"}, ("c matches its pattern",)),
    ],
)
def test_a_rule_says_why_it_accepts(rule: CallRule, expected: Call, actual: Call, because: tuple[str, ...]) -> None:
    assert rule.because(("t", expected), ("t", actual)) == because


def test_the_alignment_pairs_calls_that_the_rule_accepts() -> None:
    expected, actual = [call("s", q=1), call("b", id=7)], [call("b", id=7), call("s", q=2)]

    strict = match_trajectory(expected, actual, order="any_order")
    loose = match_trajectory(expected, actual, order="any_order", args_overrides={"s": "ignore"})

    assert strict.alignment == (("-", 0, None), ("=", 1, 0), ("+", None, 1))
    assert loose.alignment == (("=", 1, 0), ("moved", 0, 1))
    assert loose.because(("moved", 0, 1)) == ("arguments are ignored",)


def test_equal_calls_are_paired_before_accepted_ones() -> None:
    found = match_trajectory([call("s", q=1), call("s", q=2)], [call("s", q=2)], order="subset", args="ignore")

    assert found.alignment == (("-", 0, None), ("=", 1, 0))


def test_a_pattern_that_takes_ages_is_an_error_and_not_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.matching.tolerance.LIMIT_S", 0.05)
    tolerance = Tolerance(patterns={"q": "(x+x+)+y"})

    with pytest.raises(MetricError, match=r"takes more than 0.05 s on this text"):
        match_trajectory([call("t", q="")], [call("t", q="x" * 30_000)], tolerance=tolerance)


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"patterns": {"q": "("}}, "patterns", "the pattern of q is not a regular expression: missing )"),
        ({"patterns": {"q": "x" * 1001}}, "patterns", "the pattern of q has 1,001 characters; 1,000 are allowed"),
        ({"tolerances": {"n": -1}}, "tolerances", "the tolerance of n must be a number from 0 up, got -1"),
        ({"tolerances": {"n": float("nan")}}, "tolerances", "must be a number from 0 up, got nan"),
    ],
)
def test_impossible_tolerance_is_refused(options: Row, field: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Tolerance(**options)

    assert message in str(caught.value)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("pattern", "text", "is_whole", "is_found"),
    [
        ("b+", "abbc", False, True),
        ("b+", "abbc", True, False),
        ("a.*c", "abbc", True, True),
        ("c", "x" * 999_999 + "c", False, True),
    ],
)
def test_a_pattern_is_found_inside_a_text_or_matches_all_of_it(
    pattern: str, text: str, is_whole: bool, is_found: bool
) -> None:
    assert has_match(pattern, text, is_whole=is_whole) is is_found


def test_a_text_too_long_to_search_is_an_error() -> None:
    with pytest.raises(MetricError, match="1,000,001 characters are more than a regular expression may search"):
        has_match("c", "x" * 1_000_001)


@pytest.mark.parametrize(("n", "is_allowed"), [(1_000, True), (1_001, False)])
def test_a_pattern_has_so_many_characters_at_most(n: int, is_allowed: bool) -> None:
    with nullcontext() if is_allowed else pytest.raises(UsageError, match="has 1,001 characters; 1,000 are allowed"):
        check_pattern("x" * n, "the pattern", field="patterns")
