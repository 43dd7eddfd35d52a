"""Functions of a user in a folder, and judges that reply what they are told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .judging import PANEL, Told
from .rewards import REWARDS


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """Has every judge reply what it is told, one reply after the other."""

    def install(*replies: str | Exception) -> Told:
        found = Told(replies)
        monkeypatch.setattr(PANEL, found)
        return found

    return install


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    yield str(tmp_path)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    sys.modules.pop("own_rewards", None)
