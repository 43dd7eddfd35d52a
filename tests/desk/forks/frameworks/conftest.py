"""The fixtures of agents and their endpoint, for forks of frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.conftest import endpoint, loaded, own_environment

from evaldesk.store import Store

__all__ = ["endpoint", "loaded", "own_environment"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(folder / "evaldesk.db") as opened:
        yield opened
