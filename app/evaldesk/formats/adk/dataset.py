"""The format "agents-cli": an EvaluationDataset that `agents-cli eval generate` takes, in `tests/eval/datasets`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evaldesk.formats.adk.dataset_case import (
    DATASET,
    case_losses,
    dataset_cases,
    is_answered,
    is_dataset_case,
    read_case,
    write_case,
)
from evaldesk.formats.adk.form import AdkForm
from evaldesk.formats.adk.old import stem
from evaldesk.formats.exchange import Imported
from evaldesk.model import EvalSet
from evaldesk.model.conclusion import counted
from evaldesk.reading.shape import FORM, Field, Shape, form_of, read_object, write_object
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import read_list, read_mapping


class Dataset(AdkForm):
    """The format "agents-cli"."""

    name = DATASET
    title = "agents-cli dataset"
    suffixes = (".dataset.json",)

    @staticmethod
    def is_form_of(value: Any) -> bool:
        """Whether this is an object with cases of a dataset that no agent has answered, however wrong inside."""
        cases = dataset_cases(value)
        return any(map(is_dataset_case, cases)) and not any(map(is_answered, cases))

    @classmethod
    def read(cls, data: bytes, *, source: str) -> Imported:
        """The eval set of the file. Raises FormatError with line and JSON path."""
        imported = super().read(data, source=source)
        return replace(imported, understood=tuple(_words(imported.evalset))) if imported.evalset else imported

    @staticmethod
    def from_json(document: Document) -> EvalSet:
        """The cases of a dataset; the set is called after the file. Raises FormatError."""
        values, extra = read_object(_SET, JsonPosition(document), read_mapping(JsonPosition(document), document.value))
        return EvalSet(
            stem(document.source).removesuffix(".dataset"),
            cases=values["eval_cases"],
            extra={**extra, FORM: {**form_of(extra), "format": DATASET}},
        )

    @staticmethod
    def to_json(evalset: EvalSet) -> dict[str, Any]:
        """The object of a dataset."""
        return write_object(_SET, {"eval_cases": evalset.cases}, evalset.extra)

    @staticmethod
    def losses(evalset: EvalSet) -> tuple[str, ...]:
        """The parts of this set that a dataset cannot hold, one sentence each."""
        texts = {"name": evalset.name, "description": evalset.description}
        of_set = (f"the set's {key!r}: a dataset has cases only" for key, value in texts.items() if value)
        return (*of_set, *(loss for case in evalset.cases for loss in case_losses(case)))


def _words(evalset: EvalSet) -> list[str]:
    """Sentences on a first state, and on earlier messages of a conversation."""
    words = []
    if n_states := sum(bool(case.initial_state) for case in evalset.cases):
        words.append(
            f"The session of {counted(n_states, 'case')} starts with its state; Google's tools leave out that of "
            "session_input."
        )
    if n_continued := sum(len(case.turns) > 1 for case in evalset.cases):
        words.append(
            f"The earlier messages of {counted(n_continued, 'case')} are played again; agents-cli puts them into the "
            "session with the recorded answers."
        )
    return words


_SET = Shape(
    fields=(
        Field(
            "eval_cases",
            lambda place, raw: read_list(place, raw, read_case),
            lambda cases: [write_case(case) for case in cases],
            keeps_form=True,
        ),
    ),
    order=("eval_cases",),
    format=DATASET,
)
