"""What a ROUGE metric says of a turn: its value, the counts behind it, and a sentence."""

from __future__ import annotations

from collections.abc import Callable

from evaldesk.metrics.rouge import RougeScore
from evaldesk.metrics.turn_scores import Judgement
from evaldesk.model import Expected, TurnRecord


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
