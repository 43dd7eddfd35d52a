"""The tables, declared once for SQLite and PostgreSQL; queries use the constants behind them.

Columns are only for values in SQL questions: a case, a transcript and a turn are one compressed JSON value each.
"""

from __future__ import annotations

from evaldesk.store.tables import (
    blames,
    case_tags,
    evalsets,
    experiments,
    failures,
    forks,
    imports,
    inbox,
    media,
    presets,
    proposals,
    queues,
    runs,
    sessions,
    set_versions,
    views,
)
from evaldesk.store.tables.columns import Row

__all__ = [
    "METADATA",
    "NUMBERED",
    "blames",
    "case_tags",
    "evalsets",
    "experiments",
    "failures",
    "forks",
    "imports",
    "inbox",
    "media",
    "presets",
    "proposals",
    "queues",
    "runs",
    "sessions",
    "set_versions",
    "views",
]

METADATA = Row.metadata
"""All tables; each of the modules above declares its own."""
NUMBERED = tuple(table for table in METADATA.sorted_tables if table.autoincrement_column is not None)
"""The tables that number their rows, and give no number twice."""
