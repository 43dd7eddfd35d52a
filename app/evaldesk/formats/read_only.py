"""What formats have in common that are read and never written."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, RecordedRun
from evaldesk.model import EvalSet


class ReadOnly:
    """A format that is only read; `instead` says in which one to write."""

    title: ClassVar[str]
    instead: ClassVar[str]
    writes: ClassVar[tuple[Holding, ...]] = ()

    @classmethod
    def write(cls, what: EvalSet | RecordedRun) -> NoReturn:
        """Nothing is written in this format."""
        raise FormatError(f"{cls.title}: only read; {cls.instead}")
