"""The common parts of all tables: one metadata with its names, moments in UTC, foreign keys that cascade."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, ForeignKeyConstraint, MetaData
from sqlalchemy.orm import registry
from sqlalchemy.types import TypeDecorator
from sqlmodel import SQLModel

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
}


class UtcTime(TypeDecorator[datetime]):
    """A moment: aware on the way in, aware and in UTC on the way out, independent of the database's form."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        aware = value.replace(tzinfo=UTC) if value and value.tzinfo is None else value
        return aware.astimezone(UTC) if aware else None


class Row(SQLModel, registry=registry(metadata=MetaData(naming_convention=_NAMES))):
    """The tables have a registry of their own: a user's SQLModel tables in the same process never meet them."""


def cascade(columns: list[str], parent: str, parent_columns: list[str]) -> ForeignKeyConstraint:
    """A foreign key whose rows go with the row they belong to."""
    return ForeignKeyConstraint(columns, [f"{parent}.{name}" for name in parent_columns], ondelete="CASCADE")


METADATA = Row.metadata
