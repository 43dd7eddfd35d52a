"""Matching and alignment against brute force."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.golden_values import golden

from evaldesk.matching import ORDERS, Tolerance, align, diff_args, json_equal, json_key, match_trajectory
from evaldesk.matching.json_equality import covers

from .matching_calls import Call, call

values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 2.5, "", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


objects = st.dictionaries(st.sampled_from("xyz"), values, max_size=2)


few_calls = st.lists(
    st.builds(call, st.sampled_from("ab"), x=st.sampled_from([0, 1, True, None]), y=st.sampled_from([0, 0.0, "0"])),
    max_size=6,
)


modes = st.sampled_from(["exact", "ignore", "superset", "subset", ["x"], ["x", "z"]])


@given(values, values)
def test_keys_are_equal_where_values_are(a: Any, b: Any) -> None:
    assert (json_key(a) == json_key(b)) == json_equal(a, b)
    assert json_key(a) != json_key(b) or hash(json_key(a)) == hash(json_key(b))


@given(values, values)
def test_json_equality_is_that_of_canonical_text(a: Any, b: Any) -> None:
    assert json_equal(a, b) == (canonical(a) == canonical(b))


@given(values)
def test_a_file_that_is_read_again_is_the_same(value: Any) -> None:
    again = json.loads(json.dumps([value, "a text", {"key": ["a text"]}]))
    whole = [value, "a text", {"key": ["a text"]}]

    assert json_equal(whole, again)
    assert json_equal(tuple(whole), again)
    assert json_key(whole) == json_key(again)
    assert covers(again, whole)
    assert not covers(again, [*whole, None])
    assert not covers([*again, None], whole)


@given(objects, objects)
def test_there_is_a_difference_exactly_where_arguments_differ(a: Any, b: Any) -> None:
    assert (diff_args(a, b) == ()) == json_equal(a, b)


@given(few_calls, few_calls, modes, st.dictionaries(st.sampled_from("ab"), modes, max_size=1), st.booleans())
def test_matching_equals_brute_force(
    expected: list[Call], actual: list[Call], args: Any, overrides: Any, is_near: bool
) -> None:
    rule = {"args": args, "args_overrides": overrides, "tolerance": Tolerance(tolerances={"x": 1.0} if is_near else {})}
    pairs = {
        (i, j)
        for i, wish in enumerate(expected)
        for j, made in enumerate(actual)
        if match_trajectory([wish], [made], **rule).score
    }
    best = most_pairs(pairs, len(expected), len(actual))
    in_order = any(
        all((i, j) in pairs for i, j in enumerate(chosen)) for chosen in combinations(range(len(actual)), len(expected))
    )
    is_exact = len(expected) == len(actual) and all((i, i) in pairs for i in range(len(expected)))

    found = {order: match_trajectory(expected, actual, order=order, **rule) for order in ORDERS}

    precision = best / len(actual) if actual else float(not expected)
    recall = best / len(expected) if expected else 1.0
    f1 = 2 * precision * recall / (precision + recall) if precision else 0.0
    assert {match.n_matched for match in found.values()} == {best}
    assert {(match.precision, match.recall, match.f1) for match in found.values()} == {(precision, recall, f1)}
    assert {order: match.score for order, match in found.items()} == {
        "exact": is_exact,
        "in_order": in_order,
        "any_order": best == len(expected),
        "unordered": best == len(expected) == len(actual),
        "subset": best == len(actual),
    }


def most_pairs(pairs: set[tuple[int, int]], n_left: int, n_right: int) -> int:
    """The size of the largest one-to-one choice of `pairs`, by trying every order of the longer side."""
    longer, shorter = max(n_left, n_right), min(n_left, n_right)
    flip = n_left > n_right
    return max(
        sum(((chosen[at], at) if flip else (at, chosen[at])) in pairs for at in range(shorter))
        for chosen in permutations(range(longer), shorter)
    )


def test_known_answers_are_those_of_brute_force() -> None:
    """The golden values, without the code under test; those of many calls or with rules for arguments aside."""
    known = golden("trajectory_cases")
    n_played = 0
    for row in known["cases"]:
        made, wishes = row["predicted"], row["reference"]
        has_rules = row["args_mode"] not in ("exact", "ignore") or row.get("args_overrides")
        if has_rules or wishes is None or max(len(made), len(wishes)) > 7:
            continue
        n_played += 1
        pairs = {
            (i, j)
            for i, wish in enumerate(wishes)
            for j, call in enumerate(made)
            if wish["name"] == call["name"]
            and (row["args_mode"] == "ignore" or canonical(wish.get("args") or {}) == canonical(call.get("args") or {}))
        }
        best = most_pairs(pairs, len(wishes), len(made))
        chosen = (dict(enumerate(each)) for each in combinations(range(len(made)), len(wishes)))
        answers = {
            "exact": len(wishes) == len(made) and all((at, at) in pairs for at in range(len(made))),
            "in_order": any(all(pair in pairs for pair in each.items()) for each in chosen),
            "any_order": best == len(wishes),
            "unordered": best == len(wishes) == len(made),
            "subset": best == len(made),
            "matched": best,
        }
        assert {name: row["expect"][name] for name in answers} == answers, row["id"]
    assert n_played > 20
    for row in known["alignment"]:
        paired = [(i, j) for op, i, j in row["ops"] if op in "=~"]
        assert paired == best_pairs(row["reference"], row["predicted"]), row["id"]


@given(few_calls, few_calls)
def test_alignment_equals_brute_force(expected: list[Call], actual: list[Call]) -> None:
    steps = align(expected, actual)

    pairs = [(i, j) for op, i, j in steps if op in "=~"]
    assert pairs == best_pairs(expected, actual)
    assert sorted(i for _, i, _ in steps if i is not None) == list(range(len(expected)))
    assert [j for _, _, j in steps if j is not None] == list(range(len(actual)))
    left, right = [i for op, i, _ in steps if op == "-"], [j for op, _, j in steps if op == "+"]
    assert not any(
        likeness(expected[i], actual[j]) == 1 for i in left for j in right if i is not None and j is not None
    )


def best_pairs(expected: list[Call], actual: list[Call]) -> list[tuple[int, int]]:
    """Every order-preserving pairing, tried in exact arithmetic: greatest likeness, then the smallest list."""
    choices = [
        list(zip(left, right, strict=True))
        for size in range(min(len(expected), len(actual)) + 1)
        for left in combinations(range(len(expected)), size)
        for right in combinations(range(len(actual)), size)
        if all(expected[i]["name"] == actual[j]["name"] for i, j in zip(left, right, strict=True))
    ]
    return min(choices, key=lambda pairs: (-sum(likeness(expected[i], actual[j]) for i, j in pairs), pairs))


def likeness(wish: Call, made: Call) -> Fraction:
    if canonical(wish) == canonical(made):
        return Fraction(1)
    if wish["name"] != made["name"]:
        return Fraction(0)
    keys = {*wish["args"], *made["args"]}
    equal = [key for key in keys if canonical([wish["args"].get(key)]) == canonical([made["args"].get(key)])]
    return Fraction(1, 2) + Fraction(49, 100) * Fraction(len(equal), len(keys))


def canonical(value: Any) -> str:
    """JSON text in which equal values read the same."""

    def number(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: number(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [number(inner) for inner in item]
        return float(item) if isinstance(item, int) and not isinstance(item, bool) else item

    return json.dumps(number(value), sort_keys=True)
