"""Graders of OpenAI Evals that are computed here: `string_check`, `text_similarity` and `multi`.

`fuzzy_match` is the `ratio` of rapidfuzz: twice the common letters in order, over all letters. ROUGE is the F-measure
of rouge-score without stemming.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from evaldesk.errors import MetricError
from evaldesk.integrations.openai_evals.formulas import calculate
from evaldesk.integrations.openai_evals.templates import rendered

if TYPE_CHECKING:
    from evaldesk.model import Case, Transcript

ROUGE = {**{f"rouge_{n}": f"rouge{n}" for n in range(1, 6)}, "rouge_l": "rougeL"}
OPERATIONS = ("eq", "ne", "like", "ilike")
MAX_LETTERS = 20_000


def is_computed(grader: Mapping[str, Any]) -> bool:
    """Whether the grader, and each one of a formula, is computed here."""
    kind = grader.get("type")
    if kind == "string_check":
        return grader.get("operation") in OPERATIONS
    if kind == "text_similarity":
        return grader.get("evaluation_metric") in (*ROUGE, "fuzzy_match")
    return kind == "multi" and bool(_parts(grader)) and all(map(is_computed, _parts(grader).values()))


def grade(grader: Mapping[str, Any], transcript: Transcript, case: Case) -> float:
    """The score of a trial by the grader. Raises MetricError."""
    sample = sample_of(transcript)
    return score(grader, {"item": case.extra.get("item", {}), "sample": sample})


def sample_of(transcript: Transcript) -> dict[str, Any]:
    """The answer of the last turn as graders see it."""
    answer = transcript.turns[-1].answer if transcript.turns else ""
    return {"output_text": answer, "output": [{"role": "assistant", "content": answer}]}


def score(grader: Mapping[str, Any], values: Mapping[str, Any]) -> float:
    """The score by the grader for an item and a sample. Raises MetricError."""
    kind = grader.get("type")
    if kind == "multi":
        formula = grader.get("calculate_output")
        scores = {name: score(each, values) for name, each in _parts(grader).items()}
        return calculate(formula if isinstance(formula, str) else "", scores)
    answer, reference = (_text(grader.get(key), values) for key in ("input", "reference"))
    if kind == "string_check":
        return float(_holds(grader.get("operation"), answer, reference))
    if kind == "text_similarity":
        measure = f"{grader.get('evaluation_metric')}"
        return fuzzy_ratio(answer, reference) if measure == "fuzzy_match" else rouge(measure, reference, answer)
    raise MetricError(f"a grader of type {kind!r:.40} is not computed here")


def fuzzy_ratio(a: str, b: str) -> float:
    """Twice the longest common subsequence over the letters of both, 0 to 1. Two empty texts score 1."""
    if not a and not b:
        return 1.0
    if len(a) * len(b) > MAX_LETTERS**2:
        raise MetricError(f"{len(a):,} letters against {len(b):,} are too many for fuzzy_match")
    places: dict[str, int] = {}
    for at, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << at
    row = (1 << len(a)) - 1  # a bit for each letter of `a`, 0 where it is in the subsequence (Hyyroe 2004)
    for letter in b:
        common = row & places.get(letter, 0)
        row = (row + common) | (row - common)
    n_common = (~row & ((1 << len(a)) - 1)).bit_count()
    return 2 * n_common / (len(a) + len(b))


def rouge(measure: str, reference: str, answer: str) -> float:
    """The F-measure of a ROUGE. Raises MetricError for an unknown one."""
    if measure not in ROUGE:
        raise MetricError(f"{measure} is not computed here")
    name = ROUGE[measure]
    return float(_scorer(name).score(reference, answer)[name].fmeasure)


@cache
def _scorer(name: str) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([name])


def _holds(operation: object, answer: str, reference: str) -> bool:
    if operation == "eq":
        return answer == reference
    if operation == "ne":
        return answer != reference
    if operation == "like":
        return reference in answer
    if operation == "ilike":
        return reference.casefold() in answer.casefold()
    raise MetricError(f"string_check has the unknown operation {operation!r:.40}; it may be {', '.join(OPERATIONS)}")


def _text(template: object, values: Mapping[str, Any]) -> str:
    words, missing_fields = rendered(template if isinstance(template, str) else "", values)
    if missing_fields:
        raise MetricError(f"the item has no value for {missing_fields[0]}")
    return words


def _parts(grader: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    graders = grader.get("graders")
    if isinstance(graders, list):
        graders = {each.get("name"): each for each in graders if isinstance(each, dict)}
    return (
        {f"{name}": each for name, each in graders.items() if isinstance(each, dict)}
        if isinstance(graders, dict)
        else {}
    )
