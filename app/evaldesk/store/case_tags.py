"""The tags of cases that were changed at the desk, with their authors; of a data set they count beside its file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import delete, func, insert, literal, select

from evaldesk.errors import UsageError
from evaldesk.model.tagged_cases import TagAuthor, TagChange, TagEdit
from evaldesk.store.database import StorePart
from evaldesk.store.tables.case_tags import CASE_TAG
from evaldesk.store.tables.columns import upsert

AT_ONCE = 500
"""Cases that one statement asks for."""
MOST_TAGGED = 20_000
"""Tags of one data set that are kept in the database."""


class CaseTagStore(StorePart):
    """The tags of the cases of a workspace that a person changed at the desk."""

    def note(self, evalset_id: str, edits: Sequence[TagEdit], author: str, *, is_in_file: bool) -> None:
        """Note changes of tags, each over the earlier one of the same case and tag.

        Changes outside of the file decide from now on. Raises UsageError for more than MOST_TAGGED of one set.
        """
        if not edits:
            return
        now = self._clock()
        rows = [
            {
                "evalset_id": evalset_id,
                "case_id": edit.case_id,
                "tag": edit.tag,
                "is_added": edit.is_added,
                "is_in_file": is_in_file,
                "author": author,
                "changed_at": now,
            }
            for edit in edits
        ]
        with self._database.writing() as connection:
            statement = upsert(connection.dialect.name, CASE_TAG)
            new_values = {name: statement.excluded[name] for name in ("is_added", "is_in_file", "author", "changed_at")}
            connection.execute(
                statement.on_conflict_do_update(index_elements=list(CASE_TAG.primary_key), set_=new_values), rows
            )
            own = (CASE_TAG.c.evalset_id == evalset_id, CASE_TAG.c.is_in_file.is_(False))
            n = connection.scalar(select(func.count()).select_from(CASE_TAG).where(*own)) or 0
            if not is_in_file and n > MOST_TAGGED:
                raise UsageError(
                    f"at most {MOST_TAGGED:,} tags of a data set are kept, not {n:,}; write the others into its file",
                    field="tags",
                )

    def copy(self, evalset_id: str, copy_id: str) -> None:
        """Give a copy of a set the changes of its tags, with their authors."""
        names = [column.name for column in CASE_TAG.columns]
        rows = select(*(literal(copy_id) if name == "evalset_id" else CASE_TAG.c[name] for name in names))
        with self._database.writing() as connection:
            connection.execute(delete(CASE_TAG).where(CASE_TAG.c.evalset_id == copy_id))
            connection.execute(insert(CASE_TAG).from_select(names, rows.where(CASE_TAG.c.evalset_id == evalset_id)))

    def changes(self, evalset_id: str) -> Mapping[str, TagChange]:
        """The tags of a data set that are not in its file, by the ids of the cases."""
        columns = CASE_TAG.c
        rows = select(columns.case_id, columns.tag, columns.is_added).where(
            columns.evalset_id == evalset_id, columns.is_in_file.is_(False)
        )
        tags_by_id: dict[str, tuple[list[str], list[str]]] = {}
        with self._database.reading() as connection:
            for case_id, tag, is_added in connection.execute(rows.order_by(columns.changed_at, columns.tag)):
                tags_by_id.setdefault(case_id, ([], []))[0 if is_added else 1].append(tag)
        return {case_id: TagChange(tuple(tags), tuple(others)) for case_id, (tags, others) in tags_by_id.items()}

    def authors(self, evalset_id: str, tag: str, case_ids: Collection[str]) -> Mapping[str, TagAuthor]:
        """The newest change of a tag at the desk by the ids of the cases; a change by another program has none."""
        columns, ids = CASE_TAG.c, sorted(case_ids)
        known_authors: dict[str, TagAuthor] = {}
        with self._database.reading() as connection:
            for start in range(0, len(ids), AT_ONCE):
                some = (columns.evalset_id == evalset_id, columns.tag == tag)
                rows = select(columns.case_id, columns.author, columns.changed_at, columns.is_added).where(
                    *some, columns.case_id.in_(ids[start : start + AT_ONCE])
                )
                known_authors |= {case_id: TagAuthor(*values) for case_id, *values in connection.execute(rows)}
        return known_authors
