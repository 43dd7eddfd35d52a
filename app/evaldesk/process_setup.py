"""What a process of ours sets of itself: when garbage is collected, and how many files it may hold open."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


WANTED = 4096


def allow_open_files() -> None:
    """Raise the soft limit to WANTED, as far as the hard one lets it: macOS gives 256, and each open page is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
