"""Eval sets that are too large to be held: opened by their index, and written case by case.

Smaller ones are one text, read and written whole. Which of the two a set is only its size decides.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import time

from evaldesk.errors import FormatError
from evaldesk.formats import write_evalset
from evaldesk.formats.adk.case import write_case
from evaldesk.model import EvalSet
from evaldesk.model.evalset import EditedCases
from evaldesk.model.stored import EvalSetFacts
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.json_text import to_text
from evaldesk.reading.regular_file import version_of
from evaldesk.store.evalsets.case_index import SUFFIX, IndexedCases, index_path, new_index
from evaldesk.store.evalsets.found import FoundFile
from evaldesk.store.evalsets.indexing import indexed_facts
from evaldesk.store.evalsets.set_writer import SetWriter

WHOLE = 1024 * 1024
"""The largest file that is read whole."""
DATA_SET = 64 * 1024 * 1024
"""The size of a file above which its cases are only selected, played, tagged, copied and exported by many at once."""
MAX_SET = 1024 * 1024 * 1024
UNUSED_S = 3_600
"""The time for which an index is kept that no known file has."""


def is_whole(n_bytes: int) -> bool:
    """Whether a file of that size is read whole."""
    return n_bytes <= WHOLE


def is_data_set(n_bytes: int) -> bool:
    """Whether a file of that size is a data set, which no step over many cases changes."""
    return n_bytes > DATA_SET


@dataclass(frozen=True, slots=True)
class WholeContent:
    """A small set as the bytes of its file."""

    data: bytes
    facts: None = None

    @property
    def version(self) -> str:
        """The version of the file."""
        return version_of(self.data)


class LargeSets:
    """The large sets of a workspace; `folder` is where their indexes are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One large file is indexed at a time, whoever asks for it: decision 151.
        self._building = Lock()

    def facts(self, file: FoundFile) -> EvalSetFacts:
        """The list facts of a large file, which is indexed for them.

        Raises FormatError, NotStreamedError for a file of another form, and OSError.
        """
        if file.size > MAX_SET:
            reason = f"the file has {file.size} bytes; at most {MAX_SET} are read"
            raise FormatError(reason, source=file.path.name)
        with self._building:
            return indexed_facts(file.path, self._folder)

    def open_cases(self, file: FoundFile, version: str) -> IndexedCases | None:
        """The cases of that version of a file; None where it has no index, or is not that version any more."""
        index = index_path(self._folder, version)
        with suppress(OSError):
            return IndexedCases(file.path, index)
        with suppress(FormatError, NotStreamedError, OSError):  # there is none, or it is damaged
            if self.facts(file).version == version:
                return IndexedCases(file.path, index)
        return None

    @contextmanager
    def content(self, evalset: EvalSet, source: str) -> Iterator[WholeContent | SetWriter]:
        """A set in ADK's new form as the `data` of a file, which are taken once. Raises FormatError, and OSError."""
        if is_small(evalset):
            yield WholeContent(write_evalset(evalset))
            return
        with new_index(self._folder) as index:
            yield SetWriter(evalset, source, index)

    def sweep(self, versions: Collection[str]) -> None:
        """Remove the indexes of versions that no file has, when they were not used for an hour."""
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                is_known = entry.name.removesuffix(SUFFIX) in versions
                if not is_known and entry.stat(follow_symlinks=False).st_mtime < time() - UNUSED_S:
                    os.unlink(entry.path)


def is_small(evalset: EvalSet) -> bool:
    """Whether the file of a set is read whole; the look ends with the case that exceeds the bound."""
    if isinstance(evalset.cases, EditedCases):
        return False
    n_bytes = 0
    for case in evalset.cases:
        n_bytes += len(to_text(write_case(case), {"indent": None}, evalset.id))
        if not is_whole(n_bytes):
            return False
    return is_whole(n_bytes)
