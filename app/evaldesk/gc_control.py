"""The garbage collector, kept from walking again and again over the objects of an import or of a large file."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_n_paused = 0


def freeze() -> None:
    """Let the collector pass over the present objects, for good: for a process of ours, which keeps its imports."""
    gc.freeze()


@contextmanager
def gc_paused() -> Iterator[None]:
    """No collection while something large is imported or read: it takes a third to half of the time, for nothing.

    May be nested, and entered by several threads at once; the last to leave starts the collector again. A collector
    that other code switched off stays off.
    """
    global _n_paused  # noqa: PLW0603
    with _lock:
        was_on = gc.isenabled() or _n_paused > 0
        _n_paused += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _n_paused -= 1
            if was_on and not _n_paused:
                gc.enable()
