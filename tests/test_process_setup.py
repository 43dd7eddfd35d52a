"""The collector rests during large imports, and is as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from evaldesk.process_setup import freeze, gc_paused


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_inside_also_when_it_is_nested_or_fails() -> None:
    with gc_paused():
        with pytest.raises(ImportError), gc_paused():
            raise ImportError
        assert not gc.isenabled()

    assert gc.isenabled()


def test_a_collector_that_somebody_switched_off_stays_off() -> None:
    gc.disable()

    with gc_paused():
        pass

    assert not gc.isenabled()


def test_what_has_settled_is_not_looked_at_again() -> None:
    kept = [object()]
    assert any(found is kept for found in gc.get_objects())

    freeze()

    assert not any(found is kept for found in gc.get_objects())
