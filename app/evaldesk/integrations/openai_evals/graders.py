"""Graders of OpenAI Evals: a criterion of ours where one is near, and words on the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.integrations.openai_evals.scoring import is_computed
from evaldesk.integrations.openai_evals.templates import item_field
from evaldesk.transcripts.recorded import read_number


@dataclass(frozen=True, slots=True)
class Grader:
    """One testing criterion; one that `is_computed` scores new runs, too.

    `field` is the field of an item that it compares with, `threshold` the score from which it passes.
    """

    name: str
    kind: str
    is_computed: bool = False
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
    words = _GIVEN.get(f"{kind}", "a type without a metric here; its given scores are kept")
    measure = raw.get("operation", raw.get("evaluation_metric", ""))
    if is_computed(raw):
        words = f"{measure} is computed in new runs" if measure else "the formula is computed in new runs"
        if kind == "text_similarity":
            words += "; near: OpenAI does not say how it cuts texts into words"
    elif kind in ("string_check", "text_similarity"):
        words = f"{measure} has no metric here; its given scores are kept"
    is_whole = kind in ("string_check", "label_model")
    return Grader(name, f"{kind}", is_computed(raw), 1.0 if is_whole else threshold, field, words)


_GIVEN: Mapping[str, str] = {
    "label_model": "a judge; new runs ask one of your own by its prompt",
    "score_model": "a judge; new runs ask one of your own by its prompt",
    "python": "source code; written as a function of yours, which runs in the process of the grader",
    "multi": "a formula over graders that are not all computed here; its given scores are kept",
    "endpoint": "an address; its given scores are kept",
    "azure_ai_evaluator": "an evaluator of Foundry; its given scores are kept",
}
