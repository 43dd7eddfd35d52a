"""The format "openai-evals", of small files and of large ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import ExportFiles, Imported, ReadOnly
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.openai_evals.archive import Placed, is_object, objects_of, streamed_objects, text
from evaldesk.integrations.openai_evals.evals import as_import, read_evals
from evaldesk.model.conclusion import counted
from evaldesk.reading.json_lines import write_lines
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
        return is_object(first[0] if isinstance(first, list) and first else first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows of all evals as cases and the runs of each. Raises FormatError."""
        notes, objects = Notes(), [*objects_of(data, source)]
        evals, archive = read_evals(lambda: objects, file_stem(source), notes)
        if not evals:
            raise FormatError(
                f"the file {_NO_ROWS}; name it together with the other files of the export", source=source
            )
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

    @classmethod
    def read_export(cls, files: ExportFiles) -> Imported:
        """As `read`, of all files of an export; they are read in three passes. Raises FormatError and UsageError."""
        notes, objects = Notes(), ExportObjects(files)
        evals, archive = read_evals(objects, file_stem(files.name), notes, rows=TrialRowsOnDisk)
        if not evals:
            raise FormatError(f"the export {_NO_ROWS}; add the files of its runs and output items", source=files.name)
        imported = as_import(evals, file_stem(files.name), archive, notes)
        n_files = counted(len(files.paths) - len(objects.other_paths), "file")
        words = f"{n_files} read together: their objects may stand in any of them."
        return replace(
            imported, understood=(words, *imported.understood), refused=(*imported.refused, *objects.sentences)
        )

    @staticmethod
    def join(parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
        """The objects of several small files, one a line, under the name of their eval. Raises FormatError."""
        objects = [value for name, data in parts for _, value in objects_of(data, name)]
        names = (text(each.get("name")) for each in objects if isinstance(each, dict) and each.get("object") == "eval")
        name = re.sub(r"\W+", "_", next(filter(None, names), ""))[:MAX_NAME].strip("_")
        return f"{name or file_stem(parts[0][0])}.jsonl", write_lines(objects, parts[0][0])


_NO_ROWS = "has no rows, runs or output items"
MAX_NAME = 80
MAX_LISTED = 5
"""Names of files without objects of OpenAI Evals that a sentence lists."""


@dataclass(slots=True)
class ExportObjects:
    """The objects of the files of an export, read anew at each call; `other_paths` are files of another kind.

    With `report`, the fault of a file is given to it at each call, and the objects before it count.
    """

    files: ExportFiles
    report: Callable[[str, FormatError], None] | None = None
    other_paths: tuple[str, ...] = ()

    def __call__(self) -> Iterator[Placed]:
        """The objects of all files. Raises FormatError, unless it is reported, and UsageError."""
        other_paths: list[str] = []
        for path in self.files.paths:
            n_objects = 0
            try:
                for n_objects, placed in enumerate(self._objects_in(path), 1):  # noqa: B007
                    yield placed
            except FormatError as error:
                if self.report is None:
                    raise
                self.report(path, error)
                continue
            if not n_objects:
                other_paths.append(path)
        self.other_paths = tuple(other_paths)

    @property
    def sentences(self) -> tuple[str, ...]:
        """A sentence about the files of another kind; none where there are none."""
        if not self.other_paths:
            return ()
        names = ", ".join([*self.other_paths[:MAX_LISTED], *(["…"] if len(self.other_paths) > MAX_LISTED else [])])
        return (f"{counted(len(self.other_paths), 'file')} without objects of OpenAI Evals: {names}.",)

    def _objects_in(self, path: str) -> Iterator[Placed]:
        """The objects of a file; none where its first value is not one of OpenAI Evals."""
        if not path.endswith(OpenAiEvals.suffixes):
            return
        if self.files.is_large(path):
            with self.files.open(path) as file, suppress(NotStreamedError):
                objects = streamed_objects(file, path)
                first = next(objects, None)
                if first and is_object(first[1]):
                    yield from chain([first], objects)
                return
        data = self.files.read(path)
        if OpenAiEvals.recognises(data, path):
            yield from objects_of(data, path)
