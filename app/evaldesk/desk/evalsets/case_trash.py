"""Files of the trash with cases of an eval set: deleted ones, and ones as they were before an edit and after it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from evaldesk.durable_files import make_folder, remove_file, replace_file
from evaldesk.errors import DiskError, EvaldeskError
from evaldesk.formats import case_from_json, case_to_json
from evaldesk.model import Case, JsonValue
from evaldesk.reading.regular_file import read_regular
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES
from evaldesk.wire import converted, from_json

_TOKEN = re.compile(r"[a-f0-9]{16}")

Row = TypeVar("Row")
Json = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class TrashFile(Generic[Row]):
    """The rows of one change of an eval set, and the time and the bytes of their file."""

    token: str
    evalset_id: str
    rows: Sequence[Row]
    changed_at: datetime
    n_bytes: int


@dataclass(frozen=True, slots=True)
class CaseTrash(Generic[Row]):
    """The files TOKEN.KIND.json of the folder, each `{"evalset": id, KIND: rows}`; a broken one is none."""

    folder: Path
    kind: str
    row_to_json: Callable[[Row], Json]
    row_from_json: Callable[[Json, str], Row]

    def write(self, token: str, evalset_id: str, rows: Sequence[Row]) -> None:
        """Put the rows of one change into a file. Raises DiskError."""
        make_folder(self.folder)
        text = json.dumps({"evalset": evalset_id, self.kind: list(map(self.row_to_json, rows))}, ensure_ascii=False)
        replace_file(self._path(token), text.encode())

    def rows(self, token: str, evalset_id: str) -> Sequence[Row]:
        """The rows of one change of that eval set; none for a token that is unknown or used up."""
        content = self._read(token)
        return content[1] if content and content[0] == evalset_id else ()

    def find(self, token: str) -> TrashFile[Row] | None:
        """The file of a token, of whichever eval set; None where there is none that can be read."""
        content = self._read(token)
        if content is None:
            return None
        try:
            stat = self._path(token).lstat()
        except OSError:
            return None
        return TrashFile(token, *content, datetime.fromtimestamp(stat.st_mtime, UTC), stat.st_size)

    def __contains__(self, token: str) -> bool:
        """Whether the token leads to a file that can be read."""
        return self._read(token) is not None

    def files(self) -> Iterator[TrashFile[Row]]:
        """All files, by their tokens; a broken one is left out."""
        for path in sorted(self.folder.glob(f"*.{self.kind}.json")):
            if file := self.find(path.name.partition(".")[0]):  # else it was restored meanwhile
                yield file

    def discard(self, token: str) -> None:
        """Remove a file for good; a disk that fails at this leaves it in the trash."""
        with suppress(DiskError):
            remove_file(self._path(token))

    def _read(self, token: str) -> tuple[str, Sequence[Row]] | None:
        """The eval set and the rows; None where there is no such file, or it is broken."""
        if not _TOKEN.fullmatch(token):
            return None
        path = self._path(token)
        try:
            content = from_json(read_regular(path, MAX_RECORDED_BYTES), dict[str, JsonValue])
            rows = converted(content.get(self.kind), list[Json])
            return converted(content.get("evalset"), str), [self.row_from_json(row, path.name) for row in rows]
        except (EvaldeskError, OSError, msgspec.MsgspecError):
            return None

    def _path(self, token: str) -> Path:
        return self.folder / f"{token}.{self.kind}.json"


def deleted_cases(folder: Path) -> CaseTrash[tuple[int, Case]]:
    """The trash of deleted cases, each with its place in its eval set."""
    return CaseTrash(
        folder,
        "cases",
        lambda row: {"index": row[0], "case": case_to_json(row[1])},
        lambda raw, name: (converted(raw.get("index"), int), case_from_json(converted(raw.get("case"), Json), name)),
    )


def edited_cases(folder: Path) -> CaseTrash[tuple[Case, Case]]:
    """The trash of edits: each case as it was before, and as the edit left it."""

    def read(raw: Json, name: str) -> tuple[Case, Case]:
        before, after = (case_from_json(converted(raw.get(key), Json), name) for key in ("before", "after"))
        return before, after

    return CaseTrash(folder, "edits", lambda row: {"before": case_to_json(row[0]), "after": case_to_json(row[1])}, read)


def added_cases(folder: Path) -> CaseTrash[Case]:
    """The undo of steps that put cases into an eval set: these cases, as the step left them."""
    return CaseTrash(folder, "added", lambda case: {"case": case_to_json(case)}, _case_of)


def _case_of(raw: Json, name: str) -> Case:
    return case_from_json(converted(raw.get("case"), Json), name)
