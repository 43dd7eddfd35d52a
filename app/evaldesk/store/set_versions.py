"""Versions of eval sets: noted once they differ from the version before, each content stored once. (decision 511)"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select

from evaldesk.errors import NotFoundError
from evaldesk.model import Case
from evaldesk.model.set_versions import Origin, SetContent, SetVersion, set_diff
from evaldesk.store.database import StorePart
from evaldesk.store.tables.columns import pack, unpack, upsert
from evaldesk.store.tables.runs import LISTED, RUN
from evaldesk.store.tables.set_versions import CASE_CONTENT, SET_VERSION

AT_ONCE = 500
"""Contents that one statement asks for."""
MOST_LISTED = 500
"""Versions of one set that a list shows."""
_LINE = [column for column in SET_VERSION.c if column.name not in ("codec", "data")]


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to note: its digest, its cases and its criteria, and how it came to be."""

    version: str
    content: SetContent
    n_cases: int
    origin: Origin
    author: str = ""
    note: str = ""
    revision: str = ""
    revision_author: str = ""


class SetVersionStore(StorePart):
    """The versions of the eval sets of a workspace, and the contents of their cases."""

    def note(
        self, evalset_id: str, version: NewVersion, contents: Callable[[Collection[str]], Mapping[str, Case]]
    ) -> bool:
        """Note a version unless the set has it already; gives whether it was noted.

        `contents` gives the contents of the cases with these digests, those of them that are to be stored.
        """
        if self.newest_digest(evalset_id) == version.version:
            return False
        lacking = self._lacking({digest for _, digest in version.content.cases})
        packed_cases = [
            {"digest": digest, "codec": codec, "data": data}
            for digest, case in contents(lacking).items()
            for codec, data in [pack(case)]
        ]
        with self._database.writing() as connection:
            before = _newest(connection, evalset_id)
            if before is not None and before.version == version.version:  # another process was quicker
                return False
            if packed_cases:
                adding = upsert(connection.dialect.name, CASE_CONTENT).on_conflict_do_nothing(index_elements=["digest"])
                connection.execute(adding, packed_cases)
            connection.execute(
                insert(SET_VERSION).values(_row(evalset_id, version, before) | {"noted_at": self._clock()})
            )
        return True

    def list(self, evalset_id: str, limit: int = MOST_LISTED) -> Sequence[SetVersion]:
        """The versions of a set, the newest first."""
        rows = select(*_LINE).where(SET_VERSION.c.evalset_id == evalset_id).order_by(SET_VERSION.c.id.desc())
        with self._database.reading() as connection:
            return [SetVersion(*row) for row in connection.execute(rows.limit(limit))]

    def count(self, evalset_id: str) -> int:
        """The number of versions of a set."""
        rows = select(func.count()).select_from(SET_VERSION).where(SET_VERSION.c.evalset_id == evalset_id)
        with self._database.reading() as connection:
            return connection.scalar(rows) or 0

    def newest_digest(self, evalset_id: str) -> str:
        """The version that was noted last; empty without any."""
        rows = select(SET_VERSION.c.version).where(SET_VERSION.c.evalset_id == evalset_id)
        with self._database.reading() as connection:
            return str(connection.scalar(rows.order_by(SET_VERSION.c.id.desc()).limit(1)) or "")

    def content(self, number: int) -> SetContent:
        """The cases and the criteria of a version by its number. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(
                select(SET_VERSION.c.codec, SET_VERSION.c.data).where(SET_VERSION.c.id == number)
            ).first()
        if row is None:
            raise NotFoundError("this version is not there any more")
        return unpack(row.codec, row.data, SetContent)

    def cases(self, digests: Collection[str]) -> dict[str, Case]:
        """The stored contents with these digests; one that is gone is missing."""
        sorted_digests, found_cases = sorted(set(digests)), dict[str, Case]()
        columns = CASE_CONTENT.c
        with self._database.reading() as connection:
            for start in range(0, len(sorted_digests), AT_ONCE):
                some = columns.digest.in_(sorted_digests[start : start + AT_ONCE])
                for row in connection.execute(select(CASE_CONTENT).where(some)):
                    found_cases[row.digest] = unpack(row.codec, row.data, Case)
        return found_cases

    def runs_of(self, evalset_id: str, limit: int) -> Sequence[tuple[int, str]]:
        """The newest runs of a set with the version that each played, the newest first."""
        columns = RUN.c
        rows = select(columns.id, columns.set_version).where(columns.evalset_id == evalset_id, LISTED)
        with self._database.reading() as connection:
            return [
                (row.id, row.set_version) for row in connection.execute(rows.order_by(columns.id.desc()).limit(limit))
            ]

    def _lacking(self, digests: Collection[str]) -> set[str]:
        lacking, sorted_digests = set(digests), sorted(digests)
        with self._database.reading() as connection:
            for start in range(0, len(sorted_digests), AT_ONCE):
                some = CASE_CONTENT.c.digest.in_(sorted_digests[start : start + AT_ONCE])
                lacking.difference_update(connection.scalars(select(CASE_CONTENT.c.digest).where(some)))
        return lacking


def _newest(connection: Connection, evalset_id: str) -> Any:
    rows = select(SET_VERSION).where(SET_VERSION.c.evalset_id == evalset_id)
    return connection.execute(rows.order_by(SET_VERSION.c.id.desc()).limit(1)).first()


def _row(evalset_id: str, version: NewVersion, before: Any) -> dict[str, Any]:
    earlier = SetContent() if before is None else unpack(before.codec, before.data, SetContent)
    is_counted = not (earlier.is_cut or version.content.is_cut)
    n = set_diff(earlier.cases, version.content.cases).n if is_counted else dict[str, int]()
    codec, data = pack(version.content)
    return {
        "evalset_id": evalset_id,
        "version": version.version,
        "author": version.author,
        "origin": version.origin,
        "note": version.note,
        "revision": version.revision,
        "revision_author": version.revision_author,
        "n_cases": version.n_cases,
        "n_added": n.get("added", 0),
        "n_changed": n.get("changed", 0),
        "n_removed": n.get("removed", 0),
        "n_renamed": n.get("renamed", 0),
        "codec": codec,
        "data": data,
    }
