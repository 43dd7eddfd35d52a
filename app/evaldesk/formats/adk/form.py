"""The common part of the forms of ADK's eval sets: one JSON value, and parts that an older form leaves out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.model import EvalSet, JsonValue
from evaldesk.reading.json_text import style_of, to_text
from evaldesk.reading.shape import FORM, form_of, format_in
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, parse_json
from evaldesk.transcripts.recorded import RecordedRun


class AdkForm(ABC):
    """A form in which an eval set is kept and edited in its own file. Its classes are not instantiated."""

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    writes: ClassVar[tuple[Holding, ...]] = ("evalset",)

    @classmethod
    def recognises(cls, data: bytes, source: str) -> bool:
        """Whether the bytes mean to be of this form, however wrong inside."""
        return cls.is_form_of(peek(data).document)

    @classmethod
    def read(cls, data: bytes, *, source: str) -> Imported:
        """The eval set of the file. Raises FormatError with line and JSON path."""
        return Imported(cls.name, cls.evalset_in(parse_json(data, source=source)))

    @classmethod
    def write(cls, what: EvalSet | RecordedRun) -> bytes:
        """The bytes of a file, without the parts that `losses` names. Raises FormatError."""
        if isinstance(what, RecordedRun):
            raise FormatError(f"{cls.title}: contains no run")
        style = form_of(what.extra).get("style", {}) if format_in(what.extra) == cls.name else {}
        return to_text(cls.to_json(what), style, what.id)

    @classmethod
    def evalset_in(cls, document: Document) -> EvalSet:
        """The eval set of a parsed file, with the style of its text. Raises FormatError."""
        evalset = cls.from_json(document)
        style = style_of(document.text)
        if not style:
            return evalset
        return replace(evalset, extra={**evalset.extra, FORM: {**form_of(evalset.extra), "style": style}})

    @staticmethod
    @abstractmethod
    def is_form_of(value: Any) -> bool:
        """Whether the JSON value means to be of this form, however wrong inside."""

    @staticmethod
    @abstractmethod
    def from_json(document: Document) -> EvalSet:
        """The eval set that the value of the document holds. Raises FormatError."""

    @staticmethod
    @abstractmethod
    def to_json(evalset: EvalSet) -> JsonValue:
        """The JSON value of the file. Raises FormatError when the form cannot hold this eval set at all."""

    @staticmethod
    @abstractmethod
    def losses(evalset: EvalSet) -> tuple[str, ...]:
        """The parts of this eval set that the file would leave out, one sentence each."""
