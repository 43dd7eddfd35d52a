"""What a desk goes on with once it is open."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.errors import WorkspaceError
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio


async def test_runs_that_cannot_be_taken_up_do_not_keep_the_desk_from_those_that_are_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing() -> None:
        pass

    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    desk = Desk(settings, Store.open(settings.database), cast("Any", SimpleNamespace(close=nothing)))
    is_attended = asyncio.Event()

    async def start_up() -> None:
        raise WorkspaceError("the disk is full")

    async def poll_requests(*, takes_up: bool) -> None:
        assert takes_up
        is_attended.set()

    monkeypatch.setattr(desk.runs, "start_up", start_up)
    monkeypatch.setattr(desk.runs, "poll_requests", poll_requests)
    try:
        with caplog.at_level(logging.WARNING, "evaldesk.desk"):
            await desk.go_on()
        await is_attended.wait()
    finally:
        await desk.close()

    assert "cannot be taken up: the disk is full" in caplog.text
