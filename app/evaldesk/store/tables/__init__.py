"""The tables, declared once for SQLite and PostgreSQL, a module for each family; queries use these constants.

Columns are only for values that SQL asks for: a case, a transcript and a turn are one compressed JSON value each.
"""

from evaldesk.store.tables.base import METADATA
from evaldesk.store.tables.labels import LABEL
from evaldesk.store.tables.runs import (
    CASE_METRIC,
    CASE_SNAPSHOT,
    ERROR_GROUP,
    LAST_RUN,
    RUN,
    RUN_BASELINE,
    RUN_CASE,
    RUN_SOURCE,
    STRIP_OF,
    TO_DO,
)
from evaldesk.store.tables.sessions import SESSION, SESSION_CASE, SESSION_TURN
from evaldesk.store.tables.trials import SCORE, TRANSCRIPT, TRIAL

__all__ = [
    "CASE_METRIC",
    "CASE_SNAPSHOT",
    "ERROR_GROUP",
    "LABEL",
    "LAST_RUN",
    "METADATA",
    "RUN",
    "RUN_BASELINE",
    "RUN_CASE",
    "RUN_SOURCE",
    "SCORE",
    "SESSION",
    "SESSION_CASE",
    "SESSION_TURN",
    "STRIP_OF",
    "TO_DO",
    "TRANSCRIPT",
    "TRIAL",
]
