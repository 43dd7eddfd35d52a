"""Metrics of the agent's answers that need no reference: each answer, or the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from evaldesk.metrics.metric import Judgement, score_records
from evaldesk.model import Case, Score, Transcript, TurnRecord
from evaldesk.model.conclusion import counted

Turns: TypeAlias = Literal["each", "last"]

TURNS = (("each", "each answer"), ("last", "the last answer"))
NO_TURN = "No turn was played."


def score_answers(
    metric: str, transcript: Transcript, case: Case, turns: Turns, judge: Callable[[TurnRecord], Judgement]
) -> list[Score]:
    """One score for each turn of the case or of the transcript, or for the last one, and their mean.

    A turn that was never played scores 0.
    """
    n_turns = max(len(case.turns), len(transcript.turns))
    if not n_turns:
        return [Score(metric, reason=NO_TURN)]
    indexes = range(n_turns) if turns == "each" else (n_turns - 1,)
    return score_records(metric, transcript, dict.fromkeys(indexes, judge))


def part_of(n: int, n_all: int, noun: str, one: str, many: str) -> str:
    """`1 of 3 rubrics is met`, `2 of 3 rubrics are met`; `one` and `many` are the verbs for one and for more."""
    return f"{n:,} of {counted(n_all, noun)} {one if n == 1 else many}"
