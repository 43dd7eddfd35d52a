"""Whether actual calls match expected ones, under an order and a rule for the arguments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from evaldesk.errors import NotFoundError
from evaldesk.matching.alignment import Step, align_plain
from evaldesk.matching.rule import AnyCall, ArgsMode, CallRule, PlainCall, plain_calls
from evaldesk.matching.tolerance import Tolerance

Order: TypeAlias = Literal["exact", "in_order", "any_order", "unordered", "subset"]

ORDERS: tuple[Order, ...] = ("exact", "in_order", "any_order", "unordered", "subset")

_Inputs: TypeAlias = tuple[tuple[PlainCall, ...], tuple[PlainCall, ...], CallRule]
_EXACT = CallRule()


@dataclass(frozen=True)
class TrajectoryMatch:
    """How well actual calls match expected ones; every number is None when nothing was asserted.

    `score` is 1.0 or 0.0 under the asked order. `n_matched` is the size of a maximum one-to-one matching, `precision`
    its share of the actual calls, `recall` of the expected ones.
    """

    score: float | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    n_matched: int | None = None
    _inputs: _Inputs = field(default=((), (), _EXACT), repr=False)

    @cached_property
    def alignment(self) -> tuple[Step, ...]:
        """The steps of `align`, in which the rule of this match pairs the calls it accepts; empty when not asserted."""
        expected, actual, rule = self._inputs
        return align_plain(expected, actual, None if rule is _EXACT else rule)

    def because(self, step: Step) -> tuple[str, ...]:
        """Why the two calls of a step are taken for each other although their arguments differ; empty when not."""
        expected, actual, rule = self._inputs
        _, i, j = step
        return () if i is None or j is None else rule.because(expected[i], actual[j])


def match_trajectory(
    expected: Sequence[AnyCall] | None,
    actual: Sequence[AnyCall],
    *,
    order: Order = "exact",
    args: ArgsMode = "exact",
    args_overrides: Mapping[str, ArgsMode] | None = None,
    tolerance: Tolerance | None = None,
) -> TrajectoryMatch:
    """Match the calls an agent made with the expected ones; `expected=None` asserts nothing.

    Orders: `exact` same calls, same order; `in_order` extra calls allowed; `any_order` extra calls and any order;
    `unordered` no extra calls, any order; `subset` nothing but expected calls. Arguments: `exact`; `ignore`; `superset`
    at least the expected keys, at every depth; `subset` at most those; or a list of the keys to compare.
    `args_overrides` sets the mode of single tools, `tolerance` the other values that count as expected. Raises
    UsageError for unknown orders and modes and bad calls, MetricError where a pattern takes too long.
    """
    is_plain = args == "exact" and not args_overrides and not tolerance
    return match_by_rule(
        expected, actual, order, _EXACT if is_plain else CallRule(args, args_overrides or {}, tolerance or Tolerance())
    )


def match_by_rule(
    expected: Sequence[AnyCall] | None, actual: Sequence[AnyCall], order: Order, rule: CallRule
) -> TrajectoryMatch:
    """`match_trajectory` under a rule that is made already."""
    if order not in ORDERS:
        raise NotFoundError.among("order", str(order), ORDERS)
    actual_calls = plain_calls(actual, "actual")
    if expected is None:
        return TrajectoryMatch()
    expected_calls = plain_calls(expected, "expected")
    same = _n_same(expected_calls, actual_calls, rule)
    if same == len(expected_calls) == len(actual_calls):
        return TrajectoryMatch(1.0, 1.0, 1.0, 1.0, len(expected_calls), (expected_calls, actual_calls, rule))
    if rule.is_equivalence:
        is_held, n_matched = _by_class(expected_calls, actual_calls, order, rule, same)
    else:
        is_held, n_matched = _by_pair(expected_calls, actual_calls, order, rule)
    precision = n_matched / len(actual_calls) if actual_calls else 0.0
    recall = n_matched / len(expected_calls) if expected_calls else 1.0
    f1 = 2 * precision * recall / (precision + recall) if n_matched else 0.0
    return TrajectoryMatch(float(is_held), precision, recall, f1, n_matched, (expected_calls, actual_calls, rule))


def _n_same(expected: Sequence[PlainCall], actual: Sequence[PlainCall], rule: CallRule) -> int:
    """The number of calls that match one by one before the first mismatch."""
    n_same = 0
    for is_accepted in map(rule.accepts, expected, actual):
        if not is_accepted:
            break
        n_same += 1
    return n_same


def _by_class(
    expected: Sequence[PlainCall], actual: Sequence[PlainCall], order: Order, rule: CallRule, same: int
) -> tuple[bool, int]:
    """Whether the order holds, and the number of matches where each call of a class matches each other one."""
    wishes, calls = list(map(rule.key, expected[same:])), list(map(rule.key, actual[same:]))
    n_matched = same + _n_shared(wishes, calls)
    if order == "in_order":
        call_iterator = iter(calls)
        return n_matched == len(expected) and all(wish in call_iterator for wish in wishes), n_matched
    return _is_held(order, len(expected), len(actual), n_matched), n_matched


def _n_shared(wishes: Sequence[Hashable], calls: Sequence[Hashable]) -> int:
    counts: dict[Hashable, int] = {}
    for wish in wishes:
        counts[wish] = counts.get(wish, 0) + 1
    n_shared = 0
    for call in calls:
        n_left = counts.get(call)
        if n_left:
            counts[call] = n_left - 1
            n_shared += 1
    return n_shared


def _by_pair(
    expected: Sequence[PlainCall], actual: Sequence[PlainCall], order: Order, rule: CallRule
) -> tuple[bool, int]:
    """The same for any rule: every call with every other, and a maximum matching."""
    places: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(actual):
        places.setdefault(name, []).append(place)
    edges = [[place for place in places.get(wish[0], ()) if rule.accepts(wish, actual[place])] for wish in expected]
    n_matched = maximum_matching(edges)
    if order == "in_order":
        return _is_subsequence(edges), n_matched
    return _is_held(order, len(expected), len(actual), n_matched), n_matched


def _is_held(order: Order, n_expected: int, n_actual: int, n_matched: int) -> bool:
    """Whether the order holds, for lists that do not match call by call."""
    if order == "exact":
        return False
    if order == "subset":
        return n_matched == n_actual
    return n_matched == n_expected and (order == "any_order" or n_actual == n_expected)


def _is_subsequence(edges: Sequence[Sequence[int]]) -> bool:
    place = -1
    for suits in edges:
        place = next((index for index in suits if index > place), -1)
        if place < 0:
            return False
    return True


def maximum_matching(edges: Sequence[Sequence[int]]) -> int:
    """Size of a maximum matching, by breadth-first augmenting paths; `edges[i]` are the partners that suit i.

    The nodes of a failed search can never be freed again and are not searched twice.
    """
    owner: dict[int, int] = {}
    partners: dict[int, int] = {}
    dead: set[int] = set()
    for start in range(len(edges)):
        parents: dict[int, int] = {}
        free = _free_call(start, edges, owner, dead, parents)
        if free is None:
            dead.update(parents)
        while free is not None:
            wish = parents[free]
            owner[free] = wish
            partners[wish], free = free, partners.get(wish)
    return len(owner)


def _free_call(
    start: int, edges: Sequence[Sequence[int]], owner: Mapping[int, int], dead: set[int], parents: dict[int, int]
) -> int | None:
    queue = [start]
    for wish in queue:
        for call in edges[wish]:
            if call in parents or call in dead:
                continue
            parents[call] = wish
            if call not in owner:
                return call
            queue.append(owner[call])
    return None
