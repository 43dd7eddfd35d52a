"""`response_exact` and `response_contains`: the answer as text against its reference."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from evaldesk.metrics.metric import Judgement, MetricInfo, has_reference, score_turns
from evaldesk.metrics.option import option
from evaldesk.model import Case, Expected, Score, Transcript, TurnRecord

_LONGEST = 30


@dataclass(frozen=True, slots=True)
class _TextMetric:
    """1 or 0 for each turn, by its answer beside its reference."""

    ignore_case: bool = option(False, "switch", "Ignore case", "Take upper and lower case letters for the same.")

    info: ClassVar[MetricInfo]

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each turn with a reference, and their mean."""
        return score_turns(self.info.name, transcript, case, has_reference, self._judge)

    @abstractmethod
    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        """1 or 0, and why."""


@dataclass(frozen=True, slots=True)
class ResponseExact(_TextMetric):
    """1 for each turn whose answer is its reference, both without white space at the ends."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_exact",
        "Response, exact",
        "Share of turns whose answer is the reference, character by character.",
        needs="reference",
    )

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        reference, answer = (expected.reference or "").strip(), record.answer.strip()
        if _fold(answer, self.ignore_case) == _fold(reference, self.ignore_case):
            return 1.0, "The answer is the reference.", {}
        if not answer:
            return 0.0, "The agent gave no answer.", {}
        at = _first_difference(reference, answer, self.ignore_case)
        words = f"the answer has {_from(answer, at)}, the reference {_from(reference, at)}"
        return 0.0, f"They part at character {at + 1}: {words}.", {"first_difference": at}


@dataclass(frozen=True, slots=True)
class ResponseContains(_TextMetric):
    """1 for each turn whose answer contains its reference, without white space at the ends."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_contains",
        "Response contains",
        "Share of turns whose answer has the whole reference somewhere in it.",
        needs="reference",
    )

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        reference = (expected.reference or "").strip()
        if not reference:
            return 1.0, "The reference is empty, and every answer contains that.", {}
        if not record.answer.strip():
            return 0.0, "The agent gave no answer.", {}
        if _fold(reference, self.ignore_case) in _fold(record.answer, self.ignore_case):
            return 1.0, "The answer contains the reference.", {}
        return 0.0, f"The answer does not contain {_from(reference, 0)}.", {}


def _fold(text: str, ignore_case: bool) -> str:
    return text.casefold() if ignore_case else text


def _first_difference(reference: str, answer: str, ignore_case: bool) -> int:
    pairs = enumerate(zip(reference, answer, strict=False))
    shorter = min(len(reference), len(answer))
    return next((at for at, (a, b) in pairs if _fold(a, ignore_case) != _fold(b, ignore_case)), shorter)


def _from(text: str, at: int) -> str:
    piece = text[at : at + _LONGEST]
    return f"“{piece}{'…' if at + _LONGEST < len(text) else ''}”" if piece else "nothing more"
