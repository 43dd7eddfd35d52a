"""The format "openai-evals", of small files and of large ones."""

from __future__ import annotations

from typing import BinaryIO

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.openai_evals.archive import is_object, objects_of, streamed_objects
from evaldesk.integrations.openai_evals.evals import as_import, read_evals
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.transcripts.recorded import file_stem


class OpenAiEvals(ReadOnly):
    """The format "openai-evals"."""

    title = "OpenAI Evals"
    suffixes = (".json", ".jsonl")
    n_readings = 3
    instead = "write an eval set as adk, and a run as otel or atif"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the file, or its first line or entry, is an object of OpenAI Evals."""
        first = peek(data).first
        return is_object(first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows of all evals as cases and the runs of each. Raises FormatError."""
        notes, objects = Notes(), [*objects_of(data, source)]
        evals, archive = read_evals(lambda: objects, file_stem(source), notes)
        if not evals:
            raise FormatError("the file has no rows, runs or output items", source=source)
        return as_import(evals, file_stem(source), archive, notes)

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`; the rows are on the disk, and not in memory. Raises FormatError and NotStreamedError."""
        notes = Notes()
        evals, archive = read_evals(
            lambda: streamed_objects(file, source), file_stem(source), notes, rows=TrialRowsOnDisk
        )
        if not evals:
            raise NotStreamedError
        return as_import(evals, file_stem(source), archive, notes)
