"""Functions of a user in a folder, and judges that reply what they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .judging import PANEL, Told
from .rewards import REWARDS


@pytest.fixture(autouse=True)
def own_modules(own_imports: None) -> None:
    """The functions that a test imports are forgotten after it."""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Has every judge reply what it is told, one reply after the other."""

    def install(*replies: str | Exception) -> Told:
        found = Told(replies)
        monkeypatch.setattr(PANEL, found)
        return found

    return install


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    return str(tmp_path)
