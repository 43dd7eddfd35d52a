"""From the judgement of single turns to the scores of a trial, where a turn may stay unscored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from evaldesk.metrics.judges.material import conversation_text, question_text
from evaldesk.metrics.judges.panel import gather_or_cancel
from evaldesk.metrics.judges.voting import mean_of
from evaldesk.metrics.metric import NOT_PLAYED
from evaldesk.metrics.pinned import earlier_turns
from evaldesk.metrics.scoring import judging, showing_images
from evaldesk.model import Case, JsonObject, Score, Transcript, Turn, TurnRecord


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judges' verdict on one turn or on a trial; `value` is None when their replies could not be read."""

    value: float | None
    reason: str
    details: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn to be judged: the expectation (`turn`, None in a played scenario), the played turn, those before it."""

    index: int
    turn: Turn | None
    record: TurnRecord
    before: tuple[TurnRecord, ...]

    def sections(self, answer: str) -> dict[str, str]:
        """The material for a judge of `answer`; the reference where the turn has one."""
        reference = self.turn.expected.reference if self.turn else None
        return {
            "EARLIER CONVERSATION": conversation_text(self.before),
            "QUESTION": question_text(self.record),
            **({} if reference is None else {"REFERENCE": reference}),
            "ANSWER": answer,
        }


Judge: TypeAlias = Callable[[TurnView], Awaitable[Judgement]]


async def judge_turns(
    metric: str,
    transcript: Transcript,
    case: Case,
    judge: Judge,
    *,
    is_asserted: Callable[[Turn], bool] = lambda _: True,
    low: float = 0.0,
) -> list[Score]:
    """A score for each asserted turn and one for the trial; a turn that was never played scores `low`.

    A case with a scenario has the turns that were played.
    """

    async def one(index: int, turn: Turn | None) -> Score:
        if index >= len(transcript.turns):
            return Score(metric, low, index, reason=NOT_PLAYED)
        before = (*earlier_turns(), *transcript.turns[:index])
        with showing_images(case, index + 1), judging(turn=index + len(earlier_turns())):
            judgement = await judge(TurnView(index, turn, transcript.turns[index], before))
        return Score(metric, judgement.value, index, reason=judgement.reason, details=judgement.details)

    turns: Sequence[Turn | None] = case.turns or [None] * len(transcript.turns)
    turns_to_judge = [(index, turn) for index, turn in enumerate(turns) if turn is None or is_asserted(turn)]
    scores = await gather_or_cancel(one(index, turn) for index, turn in turns_to_judge)
    return [*scores, whole_score(metric, scores, low=low)]


def whole_score(
    metric: str, scores: Sequence[Score], *, values: Sequence[float | None] | None = None, low: float = 0.0
) -> Score:
    """The mean of `values`, those of the turns unless given; unscored as soon as one of them is.

    ADK leaves out turns that could not be judged; its value is in the details where it differs.
    """
    values = [score.value for score in scores] if values is None else values
    if not scores:
        return Score(metric, low, reason=NOT_PLAYED)
    mean = mean_of(values)
    details: JsonObject = {"n_turns": len(scores)}
    unscored_turn = next((score for score in scores if score.value is None), None)
    if unscored_turn is not None or mean is None:
        text = unscored_turn.reason if unscored_turn else "no verdict"
        reason = f"Turn {(unscored_turn.turn or 0) + 1 if unscored_turn else 1} is unscored: {text}"
        return Score(metric, reason=reason, details={**details, "adk_value": mean})
    if len(scores) == 1:
        return Score(metric, mean, reason=scores[0].reason, details=details)
    worst = min(scores, key=lambda score: score.value or 0.0)
    reason = f"Mean of {len(scores)} turns; lowest is turn {(worst.turn or 0) + 1}: {worst.reason}"
    return Score(metric, mean, reason=reason, details=details)
