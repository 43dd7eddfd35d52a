"""The format "adk": an EvalSet as ADK 2.x reads and writes it. (google-adk 2.13 evaluation/eval_set.py)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from evaldesk.formats.adk.case import read_case, write_case
from evaldesk.formats.adk.dataset_case import dataset_cases, is_dataset_case
from evaldesk.formats.adk.form import AdkForm
from evaldesk.model import Case, EvalSet
from evaldesk.reading.fields import as_is, unless_none
from evaldesk.reading.json_stream import CHUNK, Item, NotStreamedError, StreamedList
from evaldesk.reading.shape import Field, Shape, read_object, write_object
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import read_list, read_mapping, read_optional_text, read_text, snake_case


class Adk(AdkForm):
    """The format "adk"."""

    name = "adk"
    title = "ADK eval set"
    suffixes = (".evalset.json",)

    @staticmethod
    def is_form_of(value: Any) -> bool:
        """Whether this is an object that means to be an EvalSet, however wrong inside."""
        if not isinstance(value, dict):
            return False
        keys = {snake_case(key) for key in value}
        if not keys & {"eval_cases", "eval_set_id"} or "eval_case_results" in keys:
            return False
        return not any(map(is_dataset_case, dataset_cases(value)))

    @staticmethod
    def from_json(document: Document) -> EvalSet:
        """The eval set of an ADK file. Raises FormatError."""
        values, extra = read_object(_SET, JsonPosition(document), _respell(document))
        return EvalSet(values["eval_set_id"], values["name"], values["description"], values["eval_cases"], extra)

    @staticmethod
    def to_json(evalset: EvalSet) -> dict[str, Any]:
        """The object of an eval set."""
        values = {
            "eval_set_id": evalset.id,
            "name": evalset.name,
            "description": evalset.description,
            "eval_cases": evalset.cases,
        }
        return write_object(_SET, values, evalset.extra)

    @staticmethod
    def losses(evalset: EvalSet) -> tuple[str, ...]:
        """Nothing: ADK's form holds all that an eval set can say."""
        return ()


class AdkStream:
    """The cases of a file of this form, one at a time in one pass; then `evalset` is the set without them.

    Raises FormatError as a whole reader does for a file with one fault; of several it may name another one first.
    Raises NotStreamedError for a file that is no eval set, or of another form.
    """

    def __init__(self, file: BinaryIO, source: str, *, chunk: int = CHUNK) -> None:
        self._list = StreamedList(file, source, lambda key: snake_case(key) == "eval_cases", chunk=chunk)
        self.evalset = EvalSet("")

    def __iter__(self) -> Iterator[tuple[Item, Case]]:
        for item in self._list:
            if is_dataset_case(item.value):
                raise NotStreamedError
            yield item, read_case(JsonPosition(item), item.value)
        if not Adk.is_form_of(self._list.shell.value):
            raise NotStreamedError
        self.evalset = Adk.evalset_in(self._list.shell)

    @property
    def span(self) -> tuple[int, int]:
        """Where in the bytes the list of cases begins and ends, without its brackets, once they are read."""
        return self._list.span

    @property
    def digest(self) -> str:
        """The SHA-256 of the file's bytes, once they are read."""
        return self._list.digest


def _respell(document: Document) -> dict[str, Any]:
    """The set with its own keys in snake_case, the only spelling in which ADK reads them at this level."""
    raw = read_mapping(JsonPosition(document), document.value)
    respelled = {snake_case(key) if _SET.field(key) else key: value for key, value in raw.items()}
    return respelled if len(respelled) == len(raw) else raw


def _read_cases(place: JsonPosition, raw: Any) -> tuple[Case, ...]:
    return read_list(place, raw, read_case)


_SET = Shape(
    fields=(
        Field("eval_set_id", read_text, as_is),
        Field("name", read_optional_text, unless_none),
        Field("description", read_optional_text, unless_none),
        Field("eval_cases", _read_cases, lambda cases: [write_case(case) for case in cases], keeps_form=True),
    ),
    order=("eval_set_id", "name", "description", "eval_cases", "creation_timestamp"),
)
