"""Folders of eval set files for the tests."""

from __future__ import annotations

from pathlib import Path

from evaldesk.formats import write_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.store.evalsets.files import EvalSetFiles

SET = EvalSet("calc", cases=(Case("one", (Turn("hi"),), tags=("smoke",)), Case("two", (Turn("a"), Turn("b")))))
FLAT = b'[\n  {\n    "query": "hi",\n    "reference": "hello"\n  }\n]\n'


def put(root: Path, place: str, data: bytes | None = None) -> Path:
    """Write the eval set, or `data`, at `place` under `root`."""
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_evalset(SET) if data is None else data)
    return path


def places(files: EvalSetFiles) -> list[str]:
    """Where the files are that are listed."""
    return [file.place for file in files.list()]


def id_of(files: EvalSetFiles, place: str) -> str:
    """The id of the file at `place`."""
    return next(file.id for file in files.list() if file.place == place)
