"""ROUGE-2 and ROUGE-L of each answer against its reference, over the words ADK's ROUGE-1 sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.responses.rouge import RougeScore, score_rouge1, score_rouge2, score_rouge_l
from evaldesk.metrics.turn_scores import Judgement, has_reference, mean, score_turns
from evaldesk.model import Case, Expected, Score, Transcript, TurnRecord

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


def rouge_judge(
    measure: Callable[[str, str], RougeScore], unit: str, sentence: str
) -> Callable[[Expected, TurnRecord], Judgement]:
    """The judgement of a turn by `measure`, which compares `unit`; `sentence` has `shared`, `expected` and `given`."""

    def judge(expected: Expected, record: TurnRecord) -> Judgement:
        rouge = measure(expected.reference or "", record.answer)
        details = {
            "precision": rouge.precision,
            "recall": rouge.recall,
            "n_expected": rouge.n_expected,
            "n_given": rouge.n_given,
            "n_shared": rouge.n_shared,
        }
        return rouge.fmeasure, _reason(rouge, record.answer, unit, sentence), details

    return judge


def _reason(rouge: RougeScore, answer: str, unit: str, sentence: str) -> str:
    if not answer.strip():
        return "The agent gave no answer."
    if not rouge.n_expected:
        return f"The reference has no {unit} to compare with."
    if not rouge.n_given:
        return f"The answer has no {unit} to compare."
    return sentence.format(shared=rouge.n_shared, expected=rouge.n_expected, given=rouge.n_given)


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
