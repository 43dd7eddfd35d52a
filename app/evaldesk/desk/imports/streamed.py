"""Large files of cases, read case by case into an index, so that memory does not grow with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from evaldesk.durable_files import replace_file
from evaldesk.errors import FormatError
from evaldesk.formats.adk.evalset import AdkStream
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import recognised
from evaldesk.formats.import_words import Seen, with_words
from evaldesk.formats.osmosis.dataset import open_rows
from evaldesk.model import Case, EvalSet
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.store.evalsets.case_index import IndexedCases, index_path, new_index
from evaldesk.store.evalsets.large import MAX_SET, is_whole
from evaldesk.store.evalsets.set_writer import SetWriter
from evaldesk.transcripts.recorded import file_stem

HEAD = 64 * 1024
"""So much of a file shows its format."""
ROWS = ("osmosis-jsonl", "osmosis-csv")
_NAME = "set.evalset.json"


def read_streamed(path: Path, format_name: str | None = None) -> Imported | None:
    """The eval set of a large file; None where the file is to be read whole, also for the fault that it names then.

    Raises FormatError for a fault of a file that is too large for that, and OSError.
    """
    with path.open("rb") as file:
        n_bytes = path.stat().st_size
        if not path.is_file() or is_whole(n_bytes) or n_bytes > MAX_SET:
            return None
        name = format_name or _recognised(file.read(HEAD), path)
        file.seek(0)
        if name not in (*ROWS, "adk"):
            return None
        try:
            with TemporaryDirectory(prefix="evaldesk-") as folder:
                return (_adk if name == "adk" else _rows)(file, path, Path(os.path.realpath(folder)), name)
        except (NotStreamedError, UnicodeDecodeError):
            return None
        except FormatError:
            if name == "adk" and n_bytes > MAX_BYTES:
                raise
            return None


def _recognised(head: bytes, path: Path) -> str | None:
    if b'"eval_cases"' in head or b'"evalCases"' in head:
        return "adk" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else None
    return recognised(head[: head.rfind(b"\n") + 1], str(path))


def _adk(file: BinaryIO, path: Path, folder: Path, name: str) -> Imported:
    seen, stream = Seen(), AdkStream(file, str(path))
    with new_index(folder) as index:
        for item, case in stream:
            seen.add(case)
            index.add(item, case)
        facts = index.finish(stream.evalset, stream.digest[:32])
    cases = IndexedCases(Path(os.path.realpath(path)), index_path(folder, facts.version))
    return with_words(Imported(name, cases.evalset), seen)


def _rows(file: BinaryIO, path: Path, folder: Path, name: str) -> Imported:
    """The rows as cases of a set of ADK, which is written beside them. Raises FormatError for one that is not exact."""
    seen, reader = Seen(), open_rows(name, file, str(path))

    def cases() -> Iterator[Case]:
        for case, _ in reader:
            seen.add(case)
            yield case

    with new_index(folder) as index:
        writer = SetWriter(EvalSet(file_stem(str(path))), str(path), index, cases=cases())
        replace_file(folder / _NAME, writer)
    found = IndexedCases(folder / _NAME, index_path(folder, writer.version))
    if found.repeated_ids():
        raise FormatError("a case_id is there twice", source=str(path))
    return with_words(reader.imported(name, found.evalset), seen)
