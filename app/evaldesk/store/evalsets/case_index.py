"""The index of a large eval set: the place of each case in its file, and the facts for lists, forms and searches.

It is a file of SQLite of its own, named by the version of the set, and can be made again from the set at any time.
A case is read from the set itself and held to its digest, so a set that changes is never taken for the old one.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, overload
from weakref import finalize

import msgspec

from evaldesk.errors import DiskError, FormatError
from evaldesk.formats.adk.case import read_case
from evaldesk.formats.adk.evalset import AdkStream
from evaldesk.matching.case_facts import facts_of_case
from evaldesk.matching.case_version import case_version
from evaldesk.metrics.asserted import asserted_part
from evaldesk.model import Case, EvalSet
from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.evalset import CaseGroup, EditedCases, LargeCases, case_key, case_pieces
from evaldesk.model.stored import EvalSetFacts
from evaldesk.process_setup import gc_paused
from evaldesk.reading.json_stream import Item
from evaldesk.reading.regular_file import open_regular
from evaldesk.reading.strict_json import JsonPosition, parse_json
from evaldesk.wire import from_json, to_json

LAYOUT = 4
"""Of the tables, and of the parts and facts of a case; an index of another layout is made again."""
SUFFIX = f".{LAYOUT}.cases"
_STEP, _FACTS_STEP = 500, 5_000
N_FACTS = len(CaseFacts._fields)
_BETWEEN = "\x1f"
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE part (number INTEGER PRIMARY KEY, asserted TEXT NOT NULL UNIQUE, n INTEGER NOT NULL DEFAULT 0);
CREATE TABLE item (
    number INTEGER PRIMARY KEY, start INTEGER NOT NULL, length INTEGER NOT NULL, line INTEGER NOT NULL,
    place INTEGER NOT NULL, digest BLOB NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL,
    part INTEGER NOT NULL, n_turns INTEGER NOT NULL, app TEXT, text TEXT NOT NULL, version TEXT NOT NULL
);
CREATE TABLE health (
    number INTEGER PRIMARY KEY, line TEXT NOT NULL, leak TEXT NOT NULL, calls TEXT NOT NULL, state_keys TEXT NOT NULL
);
CREATE TABLE tag (number INTEGER NOT NULL, tag TEXT NOT NULL);
"""
_INDEXES = (
    "CREATE INDEX item_key ON item (key, number)",
    "CREATE INDEX item_part ON item (part, number)",
    "CREATE INDEX item_app ON item (app, number)",
    "CREATE INDEX tag_tag ON tag (tag, number)",
    "CREATE INDEX tag_number ON tag (number)",
)


_LEAST_LARGE, _MAX_LARGE = 200_000, 16_000_000
"""Bytes of cases that are read once, as long as there is room for them: a page of one takes up to a second."""
_PLACES = """
SELECT number, start, length, line, place, digest FROM item WHERE number IN (SELECT value FROM json_each(:numbers))
"""
_ROWS = """
SELECT item.number, start, length, digest, id, key, asserted,
health.line, leak, calls, state_keys, n_turns, app, text, version
FROM item JOIN part ON part.number = item.part JOIN health ON health.number = item.number
WHERE item.number >= :first AND item.number < :stop ORDER BY item.number
"""
_FACTS = """
SELECT line, leak, calls, state_keys FROM health WHERE number >= :first AND number < :stop ORDER BY number
"""
_TAGS_OF = "SELECT number, tag FROM tag WHERE number >= :first AND number < :stop ORDER BY rowid"
_IDS = """
SELECT number, id FROM item
WHERE (:groups IS NULL OR part IN (SELECT value FROM json_each(:groups))) AND number > :last
ORDER BY number LIMIT :limit
"""
_FOUND = """
FROM item
WHERE (:groups IS NULL OR part IN (SELECT value FROM json_each(:groups))) AND (:text = '' OR instr(text, :text))
AND (:tag = '' OR number IN (SELECT number FROM tag WHERE tag = :tag))
"""


def index_path(folder: Path, version: str) -> Path:
    """The index of that version of a set."""
    return folder / f"{version}{SUFFIX}"


def build_index(source: Path, folder: Path) -> EvalSetFacts:
    """Read a set once, write its index into the folder, and give the facts that lists show.

    Raises FormatError, NotStreamedError for another form of file, and OSError.
    """
    with open_regular(source) as file, gc_paused(), new_index(folder) as index:
        stream = AdkStream(file, source.name)
        for item, case in stream:
            index.add(item, case)
        return index.finish(stream.evalset, stream.digest[:32])


@contextmanager
def new_index(folder: Path) -> Iterator[NewIndex]:
    """An index that is being made; it is gone afterwards if it was not finished. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / f".{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with closing(NewIndex(temporary)) as index:
            yield index
    except sqlite3.Error as error:
        words = f"the index of an eval set cannot be written: {error}; free some space and try again"
        raise DiskError(0, str(error), words) from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The indexed facts of one case without its place; `more` are facts that no list reads case by case."""

    length: int
    digest: bytes
    id: str
    key: str
    asserted: str
    facts: CaseFacts
    more: tuple[Any, ...]
    tags: tuple[str, ...]


class NewIndex:
    """An index that is being made."""

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-4096;" + _TABLES
        )
        self._database.execute("BEGIN")
        self._items: list[tuple[Any, ...]] = []
        self._tags: list[tuple[int, str]] = []
        self._facts: list[tuple[int, str, str, str, str]] = []
        self._parts: dict[str, int] = {}
        self.n = 0

    def copy(self, row: IndexRow, start: int, line: int, column: int) -> None:
        """The next case of the set as another index has it, at another place."""
        tags = [(self.n, tag) for tag in row.tags]
        part = self._part_number(row.asserted)
        self._put((start, row.length, line, column, row.digest, row.id, row.key, part, *row.more), tags, row.facts)

    def add(self, item: Item, case: Case) -> None:
        """The next case of the set."""
        app = case.initial_session and case.initial_session.app_name
        text = _BETWEEN.join(case_pieces(case)).casefold()
        places = (item.start, item.length, item.line, item.column, _digest(item.text.encode()))
        part = self._part_number(to_json(asserted_part(case)).decode())
        about = (case.id, case_key(case.id), part, len(case.turns), app, text, case_version(case))
        self._put((*places, *about), [(self.n, tag) for tag in case.tags], facts_of_case(case))

    def _put(self, values: tuple[Any, ...], tags: list[tuple[int, str]], facts: CaseFacts) -> None:
        self._items.append((self.n, *values))
        self._facts.append((self.n, *facts))
        self._tags += tags
        self.n += 1
        if len(self._items) >= _STEP:
            self._write()

    def finish(self, shell: EvalSet, version: str) -> EvalSetFacts:
        """Write the rest down to the disk and put the index in place."""
        self._write()
        database = self._database
        database.execute("UPDATE part SET n = (SELECT count(*) FROM item WHERE item.part = part.number)")
        for statement in _INDEXES:
            database.execute(statement)
        apps = database.execute("SELECT DISTINCT app FROM item WHERE app IS NOT NULL ORDER BY app")
        facts = EvalSetFacts(
            version=version,
            format="adk",
            evalset_id=shell.id,
            title=shell.name,
            description=shell.description,
            n_cases=self.n,
            n_turns=database.execute("SELECT coalesce(sum(n_turns), 0) FROM item").fetchone()[0],
            tags=tuple(tag for (tag,) in database.execute("SELECT DISTINCT tag FROM tag ORDER BY tag")),
            app_names=tuple(app for (app,) in apps),
        )
        rows = {"shell": shell, "facts": facts}
        database.executemany("INSERT INTO fact VALUES (?, ?)", [(name, to_json(rows[name]).decode()) for name in rows])
        database.execute("COMMIT")
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(self._path, index_path(self._path.parent, version))
        return facts

    def close(self) -> None:
        """Leave the file."""
        self._database.close()

    def _part_number(self, asserted: str) -> int:
        number = self._parts.get(asserted)
        if number is not None:
            return number
        if len(self._parts) >= _STEP:  # each case has rubrics of its own
            self._parts.clear()
        add = "INSERT INTO part (asserted) VALUES (?) ON CONFLICT DO UPDATE SET n = n RETURNING number"
        number = int(self._database.execute(add, (asserted,)).fetchone()[0])
        self._parts[asserted] = number
        return number

    def _write(self) -> None:
        self._database.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._items)
        self._database.executemany("INSERT INTO health VALUES (?, ?, ?, ?, ?)", self._facts)
        self._database.executemany("INSERT INTO tag VALUES (?, ?)", self._tags)
        self._items, self._facts, self._tags = [], [], []


class IndexedCases(LargeCases):
    """The cases of the set `source` by its index. Any thread may ask."""

    def __init__(self, source: Path, index: Path) -> None:
        """Raises OSError when one of the two is not there."""
        self.source = source
        self._index = index
        self._file = open_regular(source)
        finalize(self, self._file.close)
        try:
            self._database = sqlite3.connect(
                f"{index.as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False, isolation_level=None
            )
            finalize(self, self._database.close)
            # One connection for all threads, which sqlite3 itself does not keep apart here.
            self._lock = Lock()
            self._large_cases: dict[int, tuple[int, Case]] = {}
            self._facts = dict(self._ask("SELECT name, value FROM fact"))
            self.facts = from_json(self._facts["facts"], EvalSetFacts)
        except (sqlite3.Error, FormatError, KeyError, msgspec.MsgspecError) as error:
            raise OSError(f"{index.name} cannot be read: {error}") from error

    @property
    def evalset(self) -> EvalSet:
        """The set, with these cases."""
        shell = from_json(self._facts["shell"], EvalSet)
        return EvalSet(shell.id, shell.name, shell.description, self, shell.extra)

    def __len__(self) -> int:
        return self.facts.n_cases

    @overload
    def __getitem__(self, index: int) -> Case: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Case, ...]: ...

    def __getitem__(self, index: int | slice) -> Case | tuple[Case, ...]:
        numbers = range(len(self))[index]
        if isinstance(numbers, int):
            return next(self.read([numbers]))
        return tuple(self.read(numbers))

    def __iter__(self) -> Iterator[Case]:
        return self.read(range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | IndexedCases) or len(other) != len(self):
            return NotImplemented if not isinstance(other, tuple | IndexedCases) else False
        return self is other or all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def ids(self, groups: Collection[int] | None = None) -> Iterator[str]:
        last = -1
        while rows := self._ask(_IDS, groups=_json_list(groups), last=last, limit=_STEP):
            yield from (case_id for _, case_id in rows)
            last = rows[-1][0]

    def versions(self) -> Iterator[tuple[str, str]]:
        rows = "SELECT number, id, version FROM item WHERE number > :last ORDER BY number LIMIT :limit"
        last = -1
        while items := self._ask(rows, last=last, limit=_STEP):
            yield from ((case_id, version) for _, case_id, version in items)
            last = items[-1][0]

    def case_facts(self) -> Iterator[CaseFacts]:
        # Numbers count from 0 without a gap, so a step ends where the next one begins.
        for first in range(0, len(self), _FACTS_STEP):
            yield from map(CaseFacts._make, self._ask(_FACTS, first=first, stop=first + _FACTS_STEP))

    def id_at(self, number: int) -> str:
        ((case_id,),) = self._ask("SELECT id FROM item WHERE number = :number", number=number)
        return str(case_id)

    def with_ids(self, ids: Collection[str]) -> tuple[Case, ...]:
        numbers = sorted(number for case_id in set(ids) for number in self.numbers_of(case_key(case_id)))
        return tuple(case for case in self.read(numbers) if case.id in ids)

    def numbers_of(self, key: str) -> list[int]:
        return [number for (number,) in self._ask("SELECT number FROM item WHERE key = :key ORDER BY number", key=key)]

    def repeated_ids(self) -> dict[str, tuple[int, ...]]:
        keys = self._ask("SELECT key FROM item GROUP BY key HAVING count(*) > 1 ORDER BY min(number)")
        numbers = [self.numbers_of(key) for (key,) in keys]
        return {self.id_at(each[0]): tuple(number + 1 for number in each) for each in numbers}

    def has_key(self, key: str) -> bool:
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(to_json(key)) >= 0

    def group_of(self, case_id: str) -> int:
        for number in self.numbers_of(case_key(case_id)):
            ((group,),) = self._ask("SELECT part FROM item WHERE number = :number", number=number)
            return int(group)
        raise KeyError(case_id)

    def groups(self) -> tuple[CaseGroup, ...]:
        return self._groups

    def search(
        self, text: str, tag: str, groups: Collection[int] | None, start: int, limit: int
    ) -> tuple[int, list[int]]:
        parameters = {"groups": _json_list(groups), "text": text, "tag": tag}
        ((n,),) = self._ask(f"SELECT count(*) {_FOUND}", **parameters)
        page = f"SELECT number {_FOUND} ORDER BY number LIMIT :limit OFFSET :start"
        return n, [number for (number,) in self._ask(page, **parameters, limit=limit, start=start)]

    def tags(self) -> Mapping[str, int]:
        return self._tags

    def first_app(self, names: Collection[str]) -> str:
        first = "SELECT app FROM item WHERE app IN (SELECT value FROM json_each(:names)) ORDER BY number LIMIT 1"
        rows = self._ask(first, names=_json_list(names))
        return str(rows[0][0]) if rows else ""

    @cached_property
    def _groups(self) -> tuple[CaseGroup, ...]:
        rows = self._ask("SELECT number, asserted, n FROM part WHERE n > 0 ORDER BY number")
        return tuple(CaseGroup(number, from_json(asserted, Case), n) for number, asserted, n in rows)

    @cached_property
    def _tags(self) -> Mapping[str, int]:
        counts = "SELECT tag, count(DISTINCT number), min(rowid) AS first FROM tag GROUP BY tag ORDER BY first"
        return {tag: n for tag, n, _ in self._ask(counts)}

    def raw(self, numbers: range) -> Iterator[tuple[bytes, IndexRow]]:
        """The bytes of some cases, and all that the index says of them."""
        for first in range(numbers.start, numbers.stop, _STEP):
            parameters = {"first": first, "stop": min(first + _STEP, numbers.stop)}
            tags: dict[int, list[str]] = {}
            for number, tag in self._ask(_TAGS_OF, **parameters):
                tags.setdefault(number, []).append(tag)
            for number, start, length, digest, case_id, key, asserted, *more in self._ask(_ROWS, **parameters):
                of_case, facts = tuple(tags.get(number, ())), CaseFacts(*more[:N_FACTS])
                row = IndexRow(length, digest, case_id, key, asserted, facts, tuple(more[N_FACTS:]), of_case)
                yield self._bytes(start, length, digest), row

    def splice(self, start: int, stop: int, cases: Sequence[Case]) -> SplicedCases:
        return SplicedCases([Span(self, range(len(self)))]).splice(start, stop, cases)

    def read(self, numbers: Iterable[int]) -> Iterator[Case]:
        """Some cases, in this order."""
        numbers_left = iter(numbers)
        while step := list(islice(numbers_left, _STEP)):
            rows = self._ask(_PLACES, numbers=_json_list(step))
            by_number = {row[0]: row for row in rows}
            for number in step:
                yield self._case(*by_number[number])

    def _case(self, number: int, start: int, length: int, line: int, column: int, digest: bytes) -> Case:
        if known_case := self._large_cases.get(number):
            self._bytes(start, length, digest)
            return known_case[1]
        data, name = self._bytes(start, length, digest), self.source.name
        document = parse_json(data, source=name)
        item = Item(document.value, document.text, name, ("eval_cases", number), start, length, line, column)
        case = read_case(JsonPosition(item), item.value)
        if _LEAST_LARGE <= length <= _MAX_LARGE:
            with self._lock:
                self._large_cases[number] = length, case
                while sum(n_bytes for n_bytes, _ in self._large_cases.values()) > _MAX_LARGE:
                    self._large_cases.pop(next(iter(self._large_cases)))
        return case

    def _bytes(self, start: int, length: int, digest: bytes) -> bytes:
        data = os.pread(self._file.fileno(), length, start)
        if _digest(data) != digest:
            reason = "the file changed while its cases were read; try again"
            raise FormatError(reason, source=self.source.name)
        return data

    def _ask(self, query: str, **values: object) -> list[Any]:
        try:
            with self._lock:
                return self._database.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            with suppress(OSError):
                self._index.unlink()
            reason = f"the index of the set was damaged ({error}) and is made again; try again"
            raise FormatError(reason, source=self.source.name) from error


class Span(Sequence[Case]):
    """Some cases of a set that stand one after the other."""

    def __init__(self, cases: IndexedCases, numbers: range) -> None:
        self.cases = cases
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> Case: ...

    @overload
    def __getitem__(self, index: slice) -> Span: ...

    def __getitem__(self, index: int | slice) -> Case | Span:
        numbers = self.numbers[index]
        return self.cases[numbers] if isinstance(numbers, int) else Span(self.cases, numbers)

    def __iter__(self) -> Iterator[Case]:
        return self.cases.read(self.numbers)


class SplicedCases(EditedCases):
    """The cases of a large set, some of them taken out, and others put in between."""

    def __init__(self, parts: Iterable[Sequence[Case]]) -> None:
        self.parts = [part for part in parts if part]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @overload
    def __getitem__(self, index: int) -> Case: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Case, ...]: ...

    def __getitem__(self, index: int | slice) -> Case | tuple[Case, ...]:
        numbers = range(len(self))[index]
        if isinstance(numbers, int):
            ((case,),) = self._slices_between(numbers, numbers + 1)
            return case
        return tuple(self[number] for number in numbers)

    def __iter__(self) -> Iterator[Case]:
        return (case for part in self.parts for case in part)

    @property
    def inserted_cases(self) -> Sequence[Case]:
        return [case for part in self.parts if not isinstance(part, Span) for case in part]

    def splice(self, start: int, stop: int, cases: Sequence[Case]) -> SplicedCases:
        return SplicedCases([*self._slices_between(0, start), tuple(cases), *self._slices_between(stop, len(self))])

    def _slices_between(self, start: int, stop: int) -> Iterator[Sequence[Case]]:
        for part in self.parts:
            if start < stop and start < len(part) and stop > 0:
                yield part[max(start, 0) : min(stop, len(part))]
            start, stop = start - len(part), stop - len(part)


def _json_list(values: Collection[int] | Collection[str] | None) -> str | None:
    return None if values is None else to_json(list(values)).decode()


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]
