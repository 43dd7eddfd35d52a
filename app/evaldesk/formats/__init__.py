"""Floor 2: eval set files. Reading tells by its shape which format a file has; it never guesses after an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from evaldesk.durable_files import replace_file
from evaldesk.formats.adk import case as adk_case
from evaldesk.formats.adk import dataset_case
from evaldesk.formats.adk import old_case as adk_old_case
from evaldesk.formats.forms import EVALSET_FORMS, form_named, form_of_document, read_evalset
from evaldesk.model import Case, EvalSet, JsonValue
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.reading.shape import format_in, shown_extra
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json

__all__ = [
    "EVALSET_FORMS",
    "AdkObject",
    "case_from_json",
    "case_from_text",
    "case_to_json",
    "dump_evalset",
    "evalset_format",
    "format_of",
    "load_evalset",
    "losses",
    "parse_json",
    "read_evalset",
    "shown_extra",
    "write_evalset",
]


class AdkObject(Protocol):
    """An object of google-adk that its files hold, such as an EvalSet or an EvalConfig."""

    def model_dump_json(self, *, exclude_unset: bool = False) -> str:
        """The JSON text of a file."""


def write_evalset(evalset: EvalSet, format: str = "adk") -> bytes:  # noqa: A002
    """The bytes of a file in that format.

    Contents that the format cannot hold are left out; `losses` names them beforehand.
    """
    return form_named(format).write(evalset)


def losses(evalset: EvalSet, format: str) -> tuple[str, ...]:  # noqa: A002
    """The parts of this eval set that a file of that format would leave out, one sentence each; empty for none."""
    return form_named(format).losses(evalset)


def format_of(data: bytes, source: str) -> str:
    """The name of the format that the bytes mean to be in. Raises FormatError when they are no eval set at all."""
    return form_of_document(parse_json(data, source=source)).name


def evalset_format(evalset: EvalSet) -> str:
    """The name of the format the eval set was read in; "adk" when it was made here."""
    return format_in(evalset.extra)


def load_evalset(path: Path | str) -> EvalSet:
    """The eval set in the file at `path`: ADK's, or a data set or session of another tool (`docs/formats.md`).

    Raises FormatError, or OSError when there is no such file.
    """
    data = read_regular_file(Path(path))
    document = peek(data).document
    if any(form.is_form_of(document) for form in EVALSET_FORMS.values()):
        return read_evalset(data, source=str(path))
    from evaldesk.formats.files import read_other_evalset

    return read_other_evalset(data, str(path))


def dump_evalset(evalset: EvalSet, path: Path | str, format: str = "adk") -> None:  # noqa: A002
    """Write the eval set to the file at `path`, whole or not at all. Raises FormatError or OSError."""
    replace_file(Path(path), write_evalset(evalset, format))


def case_to_json(case: Case) -> dict[str, Any]:
    """The case as the JSON object it is in its file."""
    writers = {"adk-old": adk_old_case.write_case, dataset_case.DATASET: dataset_case.write_case}
    return writers.get(format_in(case.extra), adk_case.write_case)(case)


def case_from_json(value: JsonValue, source: str) -> Case:
    """The case that a JSON object of `case_to_json` says, of any form. Raises FormatError with the JSON path."""
    return _read_case(Document(value, "", source))


def case_from_text(text: str, source: str) -> Case:
    """The case that the JSON text says. Raises FormatError with line, column and JSON path."""
    return _read_case(parse_json(text.encode("utf-8", "surrogatepass"), source=source))


def _read_case(document: Document) -> Case:
    value = document.value
    is_old = isinstance(value, dict) and "data" in value and not {"eval_id", "evalId"} & set(value)
    reader = adk_old_case.read_case if is_old else adk_case.read_case
    if dataset_case.is_dataset_case(value):
        reader = dataset_case.read_case
    return reader(JsonPosition(document), value)
