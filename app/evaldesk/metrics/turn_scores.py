"""From the judgement of single turns to the scores of a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from evaldesk.model import Case, Expected, JsonObject, Score, Transcript, TurnRecord

Judgement: TypeAlias = tuple[float, str, JsonObject]

NOT_PLAYED = "This turn was never played."


def score_turns(
    metric: str,
    transcript: Transcript,
    case: Case,
    is_asserted: Callable[[Expected], bool],
    judge: Callable[[Expected, TurnRecord], Judgement],
) -> list[Score]:
    """One score for each asserted turn, and their mean for the trial; a turn that was never played scores 0."""
    scores: list[Score] = []
    for index, turn in enumerate(case.turns):
        if not is_asserted(turn.expected):
            continue
        if index < len(transcript.turns):
            value, reason, details = judge(turn.expected, transcript.turns[index])
            scores.append(Score(metric, value, index, reason=reason, details=details))
        else:
            scores.append(Score(metric, 0.0, index, reason=NOT_PLAYED))
    return [*scores, whole_score(metric, scores)]


def has_calls(expected: Expected) -> bool:
    """Whether the turn says which tools should be called; none is an answer, too."""
    return expected.tool_calls is not None


def has_reference(expected: Expected) -> bool:
    """Whether the turn has a right answer."""
    return expected.reference is not None


def mean(values: Sequence[float]) -> float:
    """The plain mean, added up from the left as ADK does: `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def whole_score(metric: str, scores: Sequence[Score]) -> Score:
    """The mean of the scores of turns, with the lowest in its reason; unscored without any value."""
    values = [score.value for score in scores if score.value is not None]
    if not values:
        return Score(metric, reason="No turn of this case is asserted.")
    worst = scores[values.index(min(values))]
    reason = worst.reason
    if len(values) > 1:
        reason = f"Mean of {len(values)} turns"
        reason += f", all {values[0]:.2f}." if min(values) == max(values) else f"; lowest is {_named(worst)}"
    return Score(metric, mean(values), reason=reason, details={"n_turns": len(values)})


def _named(score: Score) -> str:
    return f"turn {(score.turn or 0) + 1} with {score.value:.2f}: {score.reason}"
