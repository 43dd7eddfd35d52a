"""Islands in tests that walk over all tools: such a test is skipped, or has a row less, where a folder was removed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def has_island(tool: str) -> bool:
    """Whether the folder of the tool is there."""
    return find_spec(f"evaldesk.integrations.{tool}") is not None


def island_module(name: str) -> Any:
    """The module `TOOL.module` of an island. Skips the test without the folder."""
    return pytest.importorskip(f"evaldesk.integrations.{name}", reason=f"the folder of {name} was removed")


def of_tools(*tools: str) -> pytest.MarkDecorator:
    """The mark of tests that play files or agents of these tools: they are skipped where one of the folders is gone."""
    gone = [tool for tool in tools if not has_island(tool)]
    return pytest.mark.skipif(bool(gone), reason=f"the folder of {', '.join(gone)} was removed")
