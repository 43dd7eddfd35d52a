"""A desk of runs that plays with executors of the test's own."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import Executor
from evaldesk.settings import Settings
from evaldesk.store import Store


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(place_of(request, folder / "evaldesk.db")) as opened:
        yield opened


@pytest.fixture
async def open_desk(store: Store, tmp_path: Path) -> AsyncIterator[OpenDesk]:
    """Opens a desk of runs that plays with the executors given, one for each time a run is taken up."""
    desks: list[RunDesk] = []

    def open_one(*executors: HandExecutor, **settings: Any) -> RunDesk:
        waiting = list(executors)
        desk = RunDesk(
            Settings(workspace=tmp_path, roots=(), models=("openai/big",), **settings),
            store,
            open_executor=lambda _: cast("Executor", waiting.pop(0)),
            chance=random.Random(3),
        )
        desks.append(desk)
        return desk

    yield open_one
    for desk in desks:
        await desk.close()
