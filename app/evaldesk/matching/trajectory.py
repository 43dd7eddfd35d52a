"""Whether actual calls match expected ones, under an order and a mode for the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from evaldesk.errors import NotFoundError
from evaldesk.matching.alignment import Step, align_plain
from evaldesk.matching.calls import AnyCall, PlainCall, plain_calls
from evaldesk.matching.json_equality import json_equal, objects_equal
from evaldesk.model import JsonObject

Order: TypeAlias = Literal["exact", "in_order", "any_order", "unordered", "subset"]
ArgsMode: TypeAlias = Literal["exact", "ignore", "superset", "subset"] | Sequence[str]

ORDERS: tuple[Order, ...] = ("exact", "in_order", "any_order", "unordered", "subset")
ARGS_MODES = ("exact", "ignore", "superset", "subset")


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
    _expected: tuple[PlainCall, ...] = field(default=(), repr=False)
    _actual: tuple[PlainCall, ...] = field(default=(), repr=False)

    @cached_property
    def alignment(self) -> tuple[Step, ...]:
        """The steps of `align`; empty when nothing was asserted."""
        return align_plain(self._expected, self._actual) if self.score is not None else ()


def match_trajectory(
    expected: Sequence[AnyCall] | None,
    actual: Sequence[AnyCall],
    *,
    order: Order = "exact",
    args: ArgsMode = "exact",
    args_overrides: Mapping[str, ArgsMode] | None = None,
) -> TrajectoryMatch:
    """Match the calls an agent made with the expected ones; `expected=None` asserts nothing.

    Orders: `exact` same calls, same order; `in_order` extra calls allowed; `any_order` extra calls and any order;
    `unordered` no extra calls, any order; `subset` nothing but expected calls. Arguments: `exact`; `ignore`;
    `superset` at least the expected keys, at every depth; `subset` at most those; or a list of the keys to compare.
    `args_overrides` sets the mode of single tools. Raises UsageError for unknown orders and modes and bad calls.
    """
    if order not in ORDERS:
        raise NotFoundError.among("order", str(order), ORDERS)
    for mode in (args, *(args_overrides or {}).values()):
        _check_mode(mode)
    made = plain_calls(actual, "actual")
    if expected is None:
        return TrajectoryMatch()
    wanted = plain_calls(expected, "expected")
    accepts = _rule(args, args_overrides or {})
    if len(wanted) == len(made) and all(map(accepts, wanted, made)):
        return TrajectoryMatch(1.0, 1.0, 1.0, 1.0, len(wanted), wanted, made)
    edges = [[index for index, call in enumerate(made) if accepts(wish, call)] for wish in wanted]
    n_matched = _maximum_matching(edges)
    precision = n_matched / len(made) if made else float(not wanted)
    recall = n_matched / len(wanted) if wanted else 1.0
    f1 = 2 * precision * recall / (precision + recall) if n_matched else 0.0
    score = float(_is_in_order(order, edges, len(made), n_matched))
    return TrajectoryMatch(score, precision, recall, f1, n_matched, wanted, made)


def _check_mode(mode: ArgsMode) -> None:
    if isinstance(mode, str) and mode not in ARGS_MODES:
        raise NotFoundError.among("argument mode", mode, ARGS_MODES)


def _rule(args: ArgsMode, overrides: Mapping[str, ArgsMode]) -> Callable[[PlainCall, PlainCall], bool]:
    if args == "exact" and not overrides:
        return lambda wish, call: wish[0] == call[0] and objects_equal(wish[1], call[1])
    return lambda wish, call: wish[0] == call[0] and _args_match(wish[1], call[1], overrides.get(wish[0], args))


def _args_match(expected: JsonObject, actual: JsonObject, mode: ArgsMode) -> bool:
    if mode == "ignore":
        return True
    if mode == "exact":
        return objects_equal(expected, actual)
    if mode == "superset":
        return _covers(actual, expected)
    if mode == "subset":
        return _covers(expected, actual)
    return all((key in expected) == (key in actual) and json_equal(expected.get(key), actual.get(key)) for key in mode)


def _covers(larger: object, smaller: object) -> bool:
    if isinstance(smaller, Mapping):
        return isinstance(larger, Mapping) and all(
            key in larger and _covers(larger[key], value) for key, value in smaller.items()
        )
    if isinstance(smaller, list | tuple):
        return isinstance(larger, list | tuple) and len(larger) == len(smaller) and all(map(_covers, larger, smaller))
    return json_equal(larger, smaller)


def _is_in_order(order: Order, edges: Sequence[Sequence[int]], n_made: int, n_matched: int) -> bool:
    """Whether the order holds, for lists that are not equal call by call; `edges[i]` are the calls that suit wish i."""
    if order == "exact":
        return False
    if order == "subset":
        return n_matched == n_made
    if order == "in_order":
        return _is_subsequence(edges)
    return n_matched == len(edges) and (order == "any_order" or n_made == len(edges))


def _is_subsequence(edges: Sequence[Sequence[int]]) -> bool:
    place = -1
    for suits in edges:
        place = next((index for index in suits if index > place), -1)
        if place < 0:
            return False
    return True


def _maximum_matching(edges: Sequence[Sequence[int]]) -> int:
    """Size of a maximum matching, by breadth-first augmenting paths.

    What a failed search has reached can never be freed again and is not searched twice.
    """
    owner: dict[int, int] = {}
    held: dict[int, int] = {}
    dead: set[int] = set()
    for start in range(len(edges)):
        reached: dict[int, int] = {}
        free = _free_call(start, edges, owner, dead, reached)
        if free is None:
            dead.update(reached)
        while free is not None:
            wish = reached[free]
            owner[free] = wish
            held[wish], free = free, held.get(wish)
    return len(owner)


def _free_call(
    start: int, edges: Sequence[Sequence[int]], owner: Mapping[int, int], dead: set[int], reached: dict[int, int]
) -> int | None:
    queue = [start]
    for wish in queue:
        for call in edges[wish]:
            if call in reached or call in dead:
                continue
            reached[call] = wish
            if call not in owner:
                return call
            queue.append(owner[call])
    return None
