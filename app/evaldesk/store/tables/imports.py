"""The tables of imports: which are under way, and which runs came in with them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, Text
from sqlmodel import Field

from evaldesk.store.tables.columns import OfRun, Row, UtcTime, of_run


class ImportedRun(OfRun, table=True):
    """A run that came in a file; `digest` is of its content in the file, to find it again."""

    __table_args__ = (of_run(), Index(None, "digest", "run_id"), {"sqlite_with_rowid": False})

    digest: str


class ImportRecord(Row, table=True):
    """An import of runs. `stage` is `storing`, `ready` (all rows are there, hidden), or `naming` (they are shown).

    `owner` names the process that imports, which renews `leased_until`, in seconds of the database's clock. The eval
    set of the file is at `set_path`, `set_version` is of its bytes; both are empty without one.
    """

    __table_args__ = (Index(None, "status"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    status: str
    stage: str
    source: str
    owner: str
    set_id: str = ""
    set_path: str = ""
    set_version: str = ""
    n_total: int
    n_done: int = 0
    reason: str = Field(default="", sa_type=Text)
    created_at: datetime = Field(sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    leased_until: float | None = None


class ImportRun(OfRun, table=True):
    """A run of an import; it is hidden until the whole import is there."""

    __table_args__ = (of_run(), Index(None, "import_id", "run_id"), {"sqlite_with_rowid": False})

    import_id: int


IMPORT_RECORD = Row.metadata.tables["import_record"]
IMPORT_RUN = Row.metadata.tables["import_run"]
IMPORTED_RUN = Row.metadata.tables["imported_run"]
