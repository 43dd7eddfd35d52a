"""What judges spend while a trial is graded: on the trial's account, whatever becomes of the metric that spent it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from evaldesk.model import Usage

_ACCOUNT: ContextVar[list[Usage] | None] = ContextVar("evaldesk_judge_account", default=None)


@contextmanager
def open_account() -> Iterator[list[Usage]]:
    """Collect what is spent inside, also by tasks that are started there."""
    usages: list[Usage] = []
    token = _ACCOUNT.set(usages)
    try:
        yield usages
    finally:
        _ACCOUNT.reset(token)


def spend(usage: Usage) -> None:
    """Note one call of a judge; without an open account nothing is noted."""
    usages = _ACCOUNT.get()
    if usages is not None:
        usages.append(replace(usage, role="judge"))
