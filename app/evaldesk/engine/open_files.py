"""The number of files that a process of ours may hold open."""

from __future__ import annotations

import resource
from contextlib import suppress

WANTED = 4096


def allow_open_files() -> None:
    """Raise the soft limit to WANTED, as far as the hard one lets it: macOS gives 256, and each open page is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
