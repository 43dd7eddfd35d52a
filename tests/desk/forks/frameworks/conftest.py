"""The fixtures of agents and their endpoint, for forks of frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.conftest import endpoint, loaded, own_environment
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without
from tests.desk.forks.conftest import SHOP

from evaldesk.engine.worker import player
from evaldesk.store import Store

__all__ = ["endpoint", "loaded", "own_environment"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(folder / "evaldesk.db") as opened:
        yield opened


@pytest.fixture
def play_by(
    endpoint: Endpoint,
    loaded: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str, str], None]:
    """Lets the agent of a source play, whose model is the endpoint; skips the test without its package."""

    def use_source(package: str, source: str) -> None:
        if package:
            skip_without(package)
        monkeypatch.setitem(player._agents, SHOP, loaded(source.replace("{address}", endpoint.address)))

    return use_source
