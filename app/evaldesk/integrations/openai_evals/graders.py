"""Graders of OpenAI Evals: a criterion of ours where one is near, and words on the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.integrations.openai_evals.templates import is_output, item_field
from evaldesk.transcripts.recorded import read_number

_ROUGE = {"rouge_1": "response_match_score", "rouge_2": "response_rouge_2", "rouge_l": "response_rouge_l"}
_STRINGS = {"eq": "response_exact", "like": "response_contains", "ilike": "response_contains"}


@dataclass(frozen=True, slots=True)
class Grader:
    """One testing criterion; `metric` is the criterion of ours that is near it, empty where there is none.

    `field` is the field of an item that it compares with, `threshold` the score from which it passes.
    """

    name: str
    kind: str
    metric: str = ""
    threshold: float | None = None
    field: str = ""
    words: str = ""
    id: str = ""


def read_graders(raw: object) -> tuple[Grader, ...]:
    """The graders of `testing_criteria`; an entry that is no object is left out."""
    entries: Sequence[object] = raw if isinstance(raw, list) else ()
    graders = ((each, _grader(each, number)) for number, each in enumerate(entries, 1) if isinstance(each, Mapping))
    return tuple(replace(grader, id=f"{each.get('id') or grader.name}") for each, grader in graders)


def _grader(raw: Mapping[str, Any], number: int) -> Grader:
    kind = raw.get("type") if isinstance(raw.get("type"), str) else "unknown"
    name = raw["name"] if isinstance(raw.get("name"), str) and raw.get("name") else f"{kind}_{number}"
    threshold, field = read_number(raw.get("pass_threshold")), item_field(raw.get("reference"))
    compares = is_output(raw.get("input")) and bool(field)
    if kind == "string_check":
        metric = _STRINGS.get(f"{raw.get('operation')}", "") if compares else ""
        words = f"operation {raw.get('operation')}"
    elif kind == "text_similarity":
        measure = f"{raw.get('evaluation_metric')}"
        metric = _ROUGE.get(measure, "") if compares else ""
        words = f"{measure}"
    else:
        return Grader(name, f"{kind}", threshold=threshold, words=_GIVEN.get(f"{kind}", "a type without a metric here"))
    near = f"near: `{metric}` computes it in new runs" if metric else "its given scores are kept; new runs have none"
    return Grader(name, f"{kind}", metric, 1.0 if kind == "string_check" else threshold, field, f"{words}; {near}")


_GIVEN: Mapping[str, str] = {
    "label_model": "a judge; its given scores are kept, its prompt is written beside the eval set",
    "score_model": "a judge; its given scores are kept, its prompt is written beside the eval set",
    "python": "source code; its given scores are kept, the source is written beside the eval set and is not run",
    "multi": "a formula over graders; its given scores are kept",
    "endpoint": "an address; its given scores are kept",
    "azure_ai_evaluator": "an evaluator of Foundry; its given scores are kept",
}
