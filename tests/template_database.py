"""New databases as copies of one: SQLite takes twice as long to make sixty tables as to copy them.

A test of the making itself uses the fixture `databases_made_anew`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from evaldesk.paths import make_private_file
from evaldesk.store import store

MAKE = store.create


@contextmanager
def copied_databases() -> Iterator[None]:
    """Let this process and its forks copy the database that the first of them makes for itself."""
    content = b""

    def create(path: Path, revision: str = store.HEAD) -> None:
        nonlocal content
        if revision != store.HEAD or (path.exists() and path.stat().st_size):
            MAKE(path, revision)
            return
        if not content:
            content = _made()
        make_private_file(path)
        path.write_bytes(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "create", create)
        yield


def _made() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        MAKE(path)
        return path.read_bytes()
