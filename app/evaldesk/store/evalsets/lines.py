"""The lines of eval set files in lists: read when a file is new or changed, and kept in the database until then.

A page does not wait for large files that nobody has read yet: a thread reads them, and their lines say so meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import SQLAlchemyError

from evaldesk import __version__
from evaldesk.errors import WorkspaceError
from evaldesk.model.stored import EvalSetFacts, EvalSetFile
from evaldesk.store.database import StorePart
from evaldesk.store.evalsets.found import FoundFile
from evaldesk.store.evalsets.names import stem_and_suffix
from evaldesk.store.tables.columns import replacing
from evaldesk.store.tables.evalsets import EVALSET_LINE
from evaldesk.wire import from_json, to_json

KEEPER = "lines of eval sets"
"""The name of the thread that reads and keeps what lists show; nothing that is asked depends on it."""
AT_ONCE = 512 * 1024
"""Bytes of new files that one list reads itself: some 60 ms."""
COARSEST_NS = 2_000_000_000
"""Of the times of files: one that is read so soon after a change may change again without another time."""
KEPT = timedelta(days=30)
"""The time after which the line of a file that is not found is removed."""


@dataclass(frozen=True, slots=True)
class Line:
    """The facts of a file with this stamp; None for another kind of file."""

    stamp: str
    facts: EvalSetFacts | None

    def is_of(self, file: FoundFile) -> bool:
        """Whether the file is as it was when it was read."""
        return self.stamp == _stamp(file)

    def at(self, file: FoundFile) -> EvalSetFile | None:
        """The line, with the place of the file today."""
        return None if self.facts is None else EvalSetFile(*_place(file), **_values(self.facts))


class LineStore(StorePart):
    """The lines that are kept in the database, by a digest of the path of their file."""

    def all(self) -> dict[str, Line]:
        """Every line that is kept and can be read."""
        lines = {}
        with self._database.reading() as connection:
            for row in connection.execute(select(EVALSET_LINE)):
                with suppress(msgspec.MsgspecError):
                    lines[row.place] = Line(
                        row.stamp, None if row.line == "null" else from_json(row.line, EvalSetFacts)
                    )
        return lines

    def moved_id(self, evalset_id: str) -> str:
        """The id that a desk gave the set when it renamed it, within the time that lines are kept; else empty."""
        with self._database.reading() as connection:
            stamps = select(EVALSET_LINE.c.stamp).where(EVALSET_LINE.c.place == _place_of_id(evalset_id))
            return (connection.scalar(stamps) or "").removeprefix(_TO)

    def keep(self, lines: Mapping[str, Line], places: Collection[str]) -> None:
        """Keep lines, and remove old ones of files that are not in `places`. Raises WorkspaceError."""
        rows = [
            {"place": place, "stamp": line.stamp, "read_at": self._clock(), "line": to_json(line.facts).decode()}
            for place, line in lines.items()
        ]
        with self._database.writing() as connection:
            connection.execute(replacing(connection.dialect.name, EVALSET_LINE), rows)
            old_places = select(EVALSET_LINE.c.place).where(EVALSET_LINE.c.read_at < self._clock() - KEPT)
            for place in set(connection.execute(old_places).scalars()) - {*places, *lines}:
                connection.execute(delete(EVALSET_LINE).where(EVALSET_LINE.c.place == place))


_TO = "to "


def note_moved(connection: Connection, evalset_id: str, new_id: str, now: datetime) -> None:
    """Note the id that a set has since it was renamed, for pages that have the old one, of whichever desk."""
    row = {"place": _place_of_id(evalset_id), "stamp": f"{_TO}{new_id}", "read_at": now, "line": "null"}
    connection.execute(replacing(connection.dialect.name, EVALSET_LINE), row)


def _place_of_id(evalset_id: str) -> str:
    return hashlib.sha256(f"id {evalset_id}".encode()).hexdigest()


class Lines:
    """The lines of files. Threads may share it.

    Without a `store` each file is read when it is asked for. `has_secrets` tells whether a JSON text must not be kept.
    """

    def __init__(
        self,
        read_facts: Callable[[FoundFile], EvalSetFacts | None],
        store: LineStore | None,
        has_secrets: Callable[[bytes], bool],
        sweep: Callable[[Collection[str]], None],
    ) -> None:
        self._read = read_facts
        self._store = store
        self._has_secrets = has_secrets
        self._sweep = sweep
        self._known: dict[str, Line] | None = None
        self._unread: dict[str, FoundFile] = {}
        self._unkept: dict[str, Line] = {}
        self._thread: Thread | None = None
        # Pages and the reading thread change these maps: decision 151.
        self._lock = Lock()

    def of(self, files: Collection[FoundFile]) -> list[EvalSetFile]:
        """The lines of all files there are; those of large new ones say that they are being read."""
        room = AT_ONCE
        lines: list[EvalSetFile | None] = []
        for file in files:
            if self._of(file) is None:
                new_line = self._new_line(file, room)
                room -= 0 if new_line and new_line.is_reading else file.size
                lines.append(new_line)
            else:
                lines.append(self.now(file))
        self._forget(files)
        self._follow()
        return [line for line in lines if line is not None]

    def of_one(self, file: FoundFile) -> EvalSetFile | None:
        """The line of one file; that of a large new one says that it is being read."""
        line = self._of(file)
        current_line = self._new_line(file, AT_ONCE) if line is None else line.at(file)
        self._follow()
        return current_line

    def _new_line(self, file: FoundFile, room: int) -> EvalSetFile | None:
        if self._store is None or file.size <= room:
            return self._read_now(file).at(file)
        with self._lock:
            self._unread[digest_of(file.path)] = file
        return EvalSetFile(*_place(file), is_reading=True)

    def tell(self, path: Path, facts: EvalSetFacts) -> None:
        """The facts of a file that was just written."""
        stat = path.lstat()
        file = FoundFile("", path, "", stat.st_size, stat.st_mtime_ns, stat.st_ino)
        with self._lock:
            self._known_lines()[digest_of(path)] = Line(_stamp(file), facts)

    def now(self, file: FoundFile) -> EvalSetFile | None:
        """The line of one file, read if need be."""
        line = self._of(file) or self._read_now(file)
        self._follow()
        return line.at(file)

    @property
    def is_busy(self) -> bool:
        """Whether something is still read or kept."""
        return self._thread is not None

    def _of(self, file: FoundFile) -> Line | None:
        with self._lock:
            line = self._known_lines().get(digest_of(file.path))
        return line if line and line.is_of(file) else None

    def _known_lines(self) -> dict[str, Line]:
        """The known lines, at first those of the database."""
        if self._known is None:
            self._known = {}
            if self._store:
                with suppress(WorkspaceError, SQLAlchemyError):
                    self._known = self._store.all()
        return self._known

    def _read_now(self, file: FoundFile) -> Line:
        place = digest_of(file.path)
        is_settled = file.modified_ns + COARSEST_NS < time.time_ns()
        line = Line(_stamp(file), self._read(file))
        with self._lock:
            self._known_lines()[place] = line
            self._unread.pop(place, None)
            if self._store and is_settled and not self._has_secrets(to_json(line.facts)):
                self._unkept[place] = line
        return line

    def _forget(self, files: Collection[FoundFile]) -> None:
        with self._lock:
            places = {digest_of(file.path) for file in files}
            self._known = {place: line for place, line in self._known_lines().items() if place in places}

    def _follow(self) -> None:
        """Read the remaining files in a thread, so that no page waits for the disk or the database's lock."""
        with self._lock:
            if self._thread is None and (self._unread or self._unkept):
                self._thread = Thread(target=self._work, name=KEEPER, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                file = next(iter(self._unread.values()), None)
                lines: dict[str, Line] = {}
                if file is None:
                    lines, self._unkept = self._unkept, lines
                if file is None and not lines:
                    self._thread = None
                    return
                places = list(self._known_lines())
            if file:
                self._read_now(file)
            elif self._store:
                with suppress(WorkspaceError, SQLAlchemyError):  # the next desk reads these files again
                    self._store.keep(lines, places)
                    all_lines = {**self._store.all(), **self._known_lines()}
                    self._sweep({line.facts.version for line in all_lines.values() if line.facts})


def digest_of(path: Path) -> str:
    """A name for the path that fits into every database."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _stamp(file: FoundFile) -> str:
    """Another version may read the same file otherwise."""
    return f"{__version__} {file.size} {file.modified_ns} {file.inode}"


def _place(file: FoundFile) -> tuple[str, str, str, Path, int, int]:
    return file.id, stem_and_suffix(file.path)[0], file.place, file.path, file.size, file.modified_ns


def _values(facts: EvalSetFacts) -> dict[str, Any]:
    return {field.name: getattr(facts, field.name) for field in fields(EvalSetFacts)}
