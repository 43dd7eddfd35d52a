"""The alignment of a turn's calls that its metrics used, where they accepted other arguments than the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evaldesk.matching import Step, align
from evaldesk.model import Score, ToolCall

Pair: TypeAlias = tuple[int, int]

_OPS = frozenset({"=", "~", "-", "+", "moved"})


@dataclass(frozen=True, slots=True)
class Alignment:
    """Steps as `align` gives them; `because` says of a pair of calls why it was accepted with other arguments."""

    steps: tuple[Step, ...]
    because: Mapping[Pair, tuple[str, ...]] = field(default_factory=dict)


def agreed_alignment(expected: Sequence[ToolCall], actual: Sequence[ToolCall], scores: Sequence[Score]) -> Alignment:
    """The steps that every metric of the calls used on this turn; those of strict equality where they differ."""
    details = [score.details for score in scores if judges_calls(score)]
    pairs = [(each.get("steps"), each.get("accepted")) for each in details]
    if not pairs or any(each != pairs[0] for each in pairs):
        return Alignment(align(expected, actual))
    steps = _steps(pairs[0][0])
    # Steps of another tool, or of a user's own metric, may be of other calls.
    if sorted(i for _, i, _ in steps if i is not None) != list(range(len(expected))):
        return Alignment(align(expected, actual))
    if sorted(j for _, _, j in steps if j is not None) != list(range(len(actual))):
        return Alignment(align(expected, actual))
    return Alignment(tuple(steps), _because(pairs[0][1]))


def judges_calls(score: Score) -> bool:
    """Whether the score says how calls were compared."""
    return score.metric.startswith("tool_") and "n_expected" in score.details


def pair_of(i: int | None, j: int | None) -> Pair:
    """The key in `because` of a step."""
    return (-1 if i is None else i, -1 if j is None else j)


def _steps(value: Any) -> list[Step]:
    if not isinstance(value, list):
        return []
    return [(op, i, j) for op, i, j in (each for each in value if _is_step(each))]


def _is_step(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3 or value[0] not in _OPS:
        return False
    return all(index is None or type(index) is int for index in value[1:])


def _because(value: Any) -> dict[Pair, tuple[str, ...]]:
    found: dict[Pair, tuple[str, ...]] = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("because"), list):
            i, j = each.get("expected"), each.get("actual")
            if isinstance(i, int) and isinstance(j, int):
                found[i, j] = tuple(map(str, each["because"]))
    return found
