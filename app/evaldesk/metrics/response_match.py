"""`response_match_score`: ROUGE-1 of each answer against its reference, as in ADK. (reference/adk.md 2.1)"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.rouge import score_rouge1
from evaldesk.metrics.rouge_judgement import rouge_judge
from evaldesk.metrics.turn_scores import has_reference, mean, score_turns
from evaldesk.model import Case, Score, Transcript

SENTENCE = "{shared} of {expected} expected words, {shared} of {given} given, after stemming."


@dataclass(frozen=True, slots=True)
class ResponseMatchScore:
    """Mean ROUGE-1 F-measure over the turns that have a reference.

    ADK gives a turn without a reference 0; here it is not asserted and left out of the mean. A reference that is the
    empty text scores 0, as in ADK.
    """

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_match_score",
        "Response match",
        "Overlap of words between answer and reference after stemming (ROUGE-1), as in ADK.",
        needs="reference",
        default_threshold=0.8,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """ROUGE-1 for each turn with a reference, and their mean."""
        judge = rouge_judge(score_rouge1, "words", SENTENCE)
        *turns, whole = score_turns(self.info.name, transcript, case, has_reference, judge)
        found = {score.turn: score.value or 0.0 for score in turns}
        values = [found.get(index, 0.0) for index in range(len(case.turns))]
        is_whole = len(transcript.turns) >= len(case.turns) > 0
        return [*turns, replace(whole, details={**whole.details, "adk_value": mean(values) if is_whole else None})]
