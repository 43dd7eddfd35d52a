"""Seeded draws of conversations to read, with the sizes of their strata."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, insert, select

from evaldesk.errors import NotFoundError
from evaldesk.model.inbox import Draw, DrawItem, DrawStratum
from evaldesk.store.database import StorePart, execute_many
from evaldesk.store.tables.inbox import CONVERSATION_LABEL, DRAW, DRAW_ITEM
from evaldesk.wire import from_json, to_json

_I = DRAW_ITEM.c


class DrawStore(StorePart):
    """The draws of an inbox. A conversation leaves its draws when it is removed."""

    def create(
        self, filter_text: str, strata: Sequence[DrawStratum], items: Sequence[tuple[int, str]], seed: int, author: str
    ) -> int:
        """Store a draw: `items` are ids of conversations in the order of reading, each with the name of its stratum."""
        values = {"filter": filter_text, "strata": to_json(list(strata)).decode(), "seed": seed, "author": author}
        with self._database.writing() as connection:
            statement = insert(DRAW).values(values | {"drawn_at": self._clock()}).returning(DRAW.c.id)
            draw_id: int = connection.execute(statement).scalar_one()
            rows = [
                {"inbox_draw_id": draw_id, "place": place, "conversation_id": conversation_id, "stratum": stratum}
                for place, (conversation_id, stratum) in enumerate(items, start=1)
            ]
            execute_many(connection, insert(DRAW_ITEM), rows)
        return draw_id

    def get(self, draw_id: int, reader: str) -> Draw:
        """A draw with its conversations and the verdicts of the reader. Raises NotFoundError."""
        return self._draw(select(DRAW).where(DRAW.c.id == draw_id), reader, f"there is no draw {draw_id}")

    def newest(self, reader: str) -> Draw | None:
        """The draw that was made last; None without any."""
        try:
            return self._draw(select(DRAW).order_by(DRAW.c.id.desc()).limit(1), reader, "there is no draw")
        except NotFoundError:
            return None

    def list(self, limit: int = 20) -> builtins.list[Draw]:
        """The newest draws without their conversations, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(DRAW).order_by(DRAW.c.id.desc()).limit(limit)).all()
        return [_draw(row, ()) for row in rows]

    def _draw(self, statement: Any, reader: str, refusal: str) -> Draw:
        label = CONVERSATION_LABEL.c
        mine = and_(label.conversation_id == _I.conversation_id, label.labeller == reader)
        with self._database.reading() as connection:
            row = connection.execute(statement).first()
            if row is None:
                raise NotFoundError(refusal)
            items = select(_I.place, _I.conversation_id, _I.stratum, label.verdict).outerjoin(CONVERSATION_LABEL, mine)
            items = items.where(_I.inbox_draw_id == row.id).order_by(_I.place)
            return _draw(row, [DrawItem(*each[:3], verdict=each.verdict or "") for each in connection.execute(items)])


def _draw(row: Any, items: Sequence[DrawItem]) -> Draw:
    strata = tuple(from_json(row.strata, list[DrawStratum]))
    return Draw(row.id, row.filter, strata, row.seed, row.author, row.drawn_at, tuple(items))
