"""A workspace in which everything is broken that `doctor --repair` mends, and what is in it when it is whole."""

from __future__ import annotations

from pathlib import Path

from tests.damaged_database import overwrite_index
from tests.desk.killed_trash import WHOLE, State, TrashPlace

from evaldesk.formats import write_evalset

DATA = write_evalset(WHOLE)
HALF = DATA[: DATA.index(b'"eval_id": "c"')]
TORN = b'{"evalset": "calc", "ca'
UNKNOWN = b"no label"

REPAIRED = State((("half_recovered", "ab"), ("pair", "ac")), ("kept",), ((1, 3),), ("cases", "chat", "eval set", "run"))


class BrokenPlace(TrashPlace):
    """The workspace of the trash, with a damaged database, half files and remains of killed writers."""

    def reset(self) -> None:
        """Everything as it was, broken."""
        super().reset()
        state = self.home / ".evaldesk"
        (state / "uploads").mkdir(exist_ok=True)
        (state / "trash" / ("0" * 16)).mkdir()
        (state / "trash" / ("1" * 16 + ".cases.json")).write_bytes(TORN)
        (state / "uploads" / f"{'0' * 24}.upload").write_bytes(UNKNOWN)
        (state / f".x.{'0' * 16}.evaldesk-tmp").write_bytes(b"x")
        (self.home / "half.evalset.json").write_bytes(HALF)
        overwrite_index(self.database)

    @property
    def database(self) -> Path:
        return self.settings.database_file

    def aside(self) -> list[bytes]:
        """The bytes that a repair moved aside, in order."""
        folder = self.home / ".evaldesk" / "trash"
        return sorted(path.read_bytes() for path in folder.glob("*.unreadable"))


MOVED = sorted([HALF, TORN, UNKNOWN])
