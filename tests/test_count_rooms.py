"""The limits of `.ci/count_rooms.py`: a count at its limit is held, one above it is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("count_rooms", Path(__file__).parents[1] / ".ci/count_rooms.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_at_their_limits_are_held(rooms: ModuleType) -> None:
    assert [*rooms.exceeded(rooms.LIMITS)] == []


def test_each_count_above_its_limit_is_told(rooms: ModuleType) -> None:
    for what, limit in rooms.LIMITS.items():
        [sentence] = rooms.exceeded(rooms.LIMITS | {what: limit + 1})

        assert sentence.startswith(f"{what}: {limit + 1:,} are more than {limit:,};")
