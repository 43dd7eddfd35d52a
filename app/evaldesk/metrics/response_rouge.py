"""ROUGE-2 and ROUGE-L of each answer against its reference, over the words ADK's ROUGE-1 sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.rouge import score_rouge2, score_rouge_l
from evaldesk.metrics.rouge_judgement import rouge_judge
from evaldesk.metrics.turn_scores import has_reference, score_turns
from evaldesk.model import Case, Score, Transcript

_PAIRS = "{shared} of {expected} expected pairs of words, {given} given."
_IN_ORDER = "{shared} of {expected} expected words in their order, {given} given."


@dataclass(frozen=True, slots=True)
class ResponseRouge2:
    """Mean ROUGE-2 F-measure over the turns that have a reference; a text of one word has no pairs and scores 0."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_rouge_2",
        "Response word pairs",
        "Overlap of neighbouring words between answer and reference after stemming (ROUGE-2).",
        needs="reference",
        default_threshold=0.5,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """ROUGE-2 for each turn with a reference, and their mean."""
        judge = rouge_judge(score_rouge2, "pairs of words", _PAIRS)
        return score_turns(self.info.name, transcript, case, has_reference, judge)


@dataclass(frozen=True, slots=True)
class ResponseRougeL:
    """Mean ROUGE-L F-measure over the turns that have a reference."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_rouge_l",
        "Response word order",
        "Longest sequence of words shared by answer and reference after stemming (ROUGE-L).",
        needs="reference",
        default_threshold=0.7,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """ROUGE-L for each turn with a reference, and their mean."""
        judge = rouge_judge(score_rouge_l, "words", _IN_ORDER)
        return score_turns(self.info.name, transcript, case, has_reference, judge)
