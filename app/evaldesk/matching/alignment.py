"""The alignment of expected calls with actual ones, as the trial page draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from evaldesk.matching.json_equality import json_equal, objects_equal
from evaldesk.matching.rule import AnyCall, CallRule, PlainCall, plain_calls

Op: TypeAlias = Literal["=", "~", "-", "+", "moved"]
Step: TypeAlias = tuple[Op, int | None, int | None]

_MIN_LIKENESS = 0.995
_TIE = 1e-9
_MOST_PAIRS = 250_000


def align(
    expected: Sequence[AnyCall], actual: Sequence[AnyCall], *, rule: CallRule | Sequence[CallRule] | None = None
) -> tuple[Step, ...]:
    """Steps that turn the expected calls into the actual ones, as (op, expected index, actual index).

    Pairs keep their order and maximise similarity: an equal call counts 1 (`=`), the same tool with other arguments 0.5
    + 0.49 x the share of equal top-level arguments (`~`); ties go to the smallest indexes. The rest is missing (`-`),
    extra (`+`) or, where an equal call exists elsewhere, `moved`. A `rule` that accepts a call with other arguments
    makes it count 0.995: still `~` or `moved`, but paired before any that is not accepted. Several rules are those of
    the expected calls, one of each.

    Lists too long to be compared in a moment are taken as different between their common beginning and end.
    """
    return align_plain(plain_calls(expected, "expected"), plain_calls(actual, "actual"), rule)


def align_plain(
    expected: Sequence[PlainCall], actual: Sequence[PlainCall], rule: CallRule | Sequence[CallRule] | None = None
) -> tuple[Step, ...]:
    """`align` for calls that are plain already."""
    same = 0
    while same < min(len(expected), len(actual)) and _similarity(expected[same], actual[same]) == 1.0:
        same += 1
    if (len(expected) - same) * (len(actual) - same) > _MOST_PAIRS:
        return tuple(_steps(len(expected), len(actual), _common_ends(expected, actual, same), {}))
    rules = rule if isinstance(rule, Sequence) else [rule] * len(expected)
    alike = [[_similarity(expected[i], call, rules[i]) for call in actual] for i in range(same, len(expected))]
    pairs = [(index, index, True) for index in range(same)]
    pairs += [(i + same, j + same, is_equal) for i, j, is_equal in _best_pairs([row[same:] for row in alike])]
    return tuple(_steps(len(expected), len(actual), pairs, _origins_of_moved(alike, pairs, same)))


def _common_ends(expected: Sequence[PlainCall], actual: Sequence[PlainCall], same: int) -> list[tuple[int, int, bool]]:
    end, most = 0, min(len(expected), len(actual)) - same
    while end < most and _similarity(expected[-1 - end], actual[-1 - end]) == 1.0:
        end += 1
    ends = zip(range(len(expected) - end, len(expected)), range(len(actual) - end, len(actual)), strict=True)
    return [*((index, index, True) for index in range(same)), *((i, j, True) for i, j in ends)]


def _best_pairs(alike: Sequence[Sequence[float]]) -> list[tuple[int, int, bool]]:
    rows, columns = len(alike), len(alike[0]) if alike else 0
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            paired = alike[i][j] + best[i + 1][j + 1] if alike[i][j] else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs, start = [], 0
    for i in range(rows):
        for j in range(start, columns):
            if alike[i][j] and alike[i][j] + best[i + 1][j + 1] >= best[i][start] - _TIE:
                pairs.append((i, j, alike[i][j] == 1.0))
                start = j + 1
                break
    return pairs


def _similarity(wish: PlainCall, call: PlainCall, rule: CallRule | None = None) -> float:
    if wish[0] != call[0]:
        return 0.0
    if objects_equal(wish[1], call[1]):
        return 1.0
    if rule is not None and rule.accepts(wish, call):
        return _MIN_LIKENESS
    keys = {*wish[1], *call[1]}
    n_equal = sum(key in wish[1] and key in call[1] and json_equal(wish[1][key], call[1][key]) for key in keys)
    return 0.5 + 0.49 * n_equal / len(keys)


def _origins_of_moved(
    alike: Sequence[Sequence[float]], pairs: Sequence[tuple[int, int, bool]], same: int
) -> dict[int, int]:
    """For each actual call that is in no pair and was expected elsewhere, the place where it was expected."""
    paired, paired_actual = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
    left_over = [i for i in range(same, same + len(alike)) if i not in paired]
    origins: dict[int, int] = {}
    for least in (1.0, _MIN_LIKENESS):
        for j in range(len(alike[0]) if alike else 0):
            origin = next((i for i in left_over if alike[i - same][j] >= least), None)
            if origin is not None and j not in paired_actual and j not in origins:
                origins[j] = origin
                left_over.remove(origin)
    return origins


def _steps(
    n_expected: int, n_actual: int, pairs: Sequence[tuple[int, int, bool]], origins: Mapping[int, int]
) -> list[Step]:
    moved_indexes = {*origins.values()}
    steps: list[Step] = []
    i = j = 0
    for pair_i, pair_j, is_equal in [*pairs, (n_expected, n_actual, False)]:
        steps += [("-", index, None) for index in range(i, pair_i) if index not in moved_indexes]
        steps += [("moved", origins[at], at) if at in origins else ("+", None, at) for at in range(j, pair_j)]
        if pair_i < n_expected:
            steps.append(("=" if is_equal else "~", pair_i, pair_j))
        i, j = pair_i + 1, pair_j + 1
    return steps
