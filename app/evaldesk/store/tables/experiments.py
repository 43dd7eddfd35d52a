"""The table of experiments; their variants are runs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text
from sqlmodel import Field

from evaldesk.store.tables.columns import Row, UtcTime


class Experiment(Row, table=True):
    """An experiment. `plan` is an `ExperimentPlan` as JSON, `dropped` the variants dropped early with their blocks.

    `analysis` is that of the trials whose counts are `analysed`, as JSON; both empty before there is one.
    """

    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - as SQLAlchemy declares it

    id: int | None = Field(default=None, primary_key=True)
    name: str
    plan: str = Field(sa_type=Text)
    dropped: str = Field(sa_type=Text)
    analysed: str = Field(sa_type=Text)
    analysis: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)


EXPERIMENT = Row.metadata.tables["experiment"]
