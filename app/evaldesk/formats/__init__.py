"""Floor 2: eval set files. Reading tells by its shape which format a file has; it never guesses after an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from evaldesk.durable_files import replace_file
from evaldesk.formats.adk import case as adk_case
from evaldesk.formats.adk import old_case as adk_old_case
from evaldesk.formats.case_keys import format_of_case
from evaldesk.model import Case, EvalSet, JsonValue
from evaldesk.reading.json_text import style_of, to_text
from evaldesk.reading.refusals import refusal
from evaldesk.reading.shape import FORM, form_of, shown_extra
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Document, Place, parse_json
from evaldesk.registry import Registry

__all__ = [
    "FORMATS",
    "Format",
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

FORMATS = Registry(
    "format",
    "evaldesk.formats",
    {
        "adk": "evaldesk.formats.adk.evalset:Adk",
        "adk-old": "evaldesk.formats.adk.old:OldList",
        "adk-flat": "evaldesk.formats.adk.old:FlatList",
    },
)


class Format(Protocol):
    """A form in which files hold eval sets."""

    def recognises(self, value: Any) -> bool:
        """Whether the JSON value means to be of this format, however wrong inside."""

    def read(self, document: Document) -> EvalSet:
        """The eval set. Raises FormatError."""

    def to_json(self, evalset: EvalSet) -> JsonValue:
        """The JSON value of the file. Raises FormatError when the format cannot hold this eval set at all."""

    def losses(self, evalset: EvalSet) -> tuple[str, ...]:
        """The parts of this eval set that the file would leave out, one sentence each."""


def read_evalset(data: bytes, *, source: str) -> EvalSet:
    """The eval set that a file holds. Raises FormatError with line and JSON path."""
    document = parse_json(data, source=source)
    evalset = _format(_recognised(document)).read(document)
    style = style_of(document.text)
    if not style:
        return evalset
    return replace(evalset, extra={**evalset.extra, FORM: {**form_of(evalset.extra), "style": style}})


def write_evalset(evalset: EvalSet, format: str = "adk") -> bytes:  # noqa: A002
    """The bytes of a file in that format.

    Contents that the format cannot hold are left out; `losses` names them beforehand.
    """
    style = form_of(evalset.extra).get("style", {}) if evalset_format(evalset) == format else {}
    return to_text(_format(format).to_json(evalset), style, evalset.id)


def losses(evalset: EvalSet, format: str) -> tuple[str, ...]:  # noqa: A002
    """The parts of this eval set that a file of that format would leave out, one sentence each; empty for none."""
    return _format(format).losses(evalset)


def format_of(data: bytes, source: str) -> str:
    """The name of the format that the bytes mean to be in. Raises FormatError when they are no eval set at all."""
    return _recognised(parse_json(data, source=source))


def evalset_format(evalset: EvalSet) -> str:
    """The name of the format the eval set was read in; "adk" when it was made here."""
    return str(form_of(evalset.extra).get("format", "adk"))


def load_evalset(path: Path | str) -> EvalSet:
    """The eval set in the file at `path`: ADK's, or a data set or session of another tool (`docs/formats.md`).

    Raises FormatError, or OSError when there is no such file.
    """
    with Path(path).open("rb") as file:
        data = file.read(MAX_RECORDED_BYTES + 1)
    whole = peek(data).whole
    if any(_format(name).recognises(whole) for name in FORMATS):
        return read_evalset(data, source=str(path))
    from evaldesk.formats.files import read_other_evalset  # it builds on this module

    return read_other_evalset(data, str(path))


def dump_evalset(evalset: EvalSet, path: Path | str, format: str = "adk") -> None:  # noqa: A002
    """Write the eval set to the file at `path`, whole or not at all. Raises FormatError or OSError."""
    replace_file(Path(path), write_evalset(evalset, format))


def case_to_json(case: Case) -> dict[str, Any]:
    """The case as the JSON object it is in its file."""
    write = adk_old_case.write_case if format_of_case(case) == "adk-old" else adk_case.write_case
    return write(case)


def case_from_json(value: JsonValue, source: str) -> Case:
    """The case that a JSON object of `case_to_json` says, old form or new. Raises FormatError with the JSON path."""
    return _read_case(Document(value, "", source))


def case_from_text(text: str, source: str) -> Case:
    """The case that the JSON text says. Raises FormatError with line, column and JSON path."""
    return _read_case(parse_json(text.encode("utf-8", "surrogatepass"), source=source))


def _read_case(document: Document) -> Case:
    value = document.value
    is_old = isinstance(value, dict) and "data" in value and not {"eval_id", "evalId"} & set(value)
    read = adk_old_case.read_case if is_old else adk_case.read_case
    return read(Place(document), value)


def _recognised(document: Document) -> str:
    name = next((name for name in FORMATS if _format(name).recognises(document.value)), None)
    if name is None:
        raise document.error(refusal(document.value))
    return name


def _format(name: str) -> Format:
    return cast("Format", FORMATS.load(name))
