"""Connections and processes that an agent starts: a sign of calls that nobody sees."""

from __future__ import annotations

import sys
from functools import cache

from evaldesk.llm.retry_events import PLAYED_TURN, current_turns

_EVENTS = frozenset({"socket.connect", "subprocess.Popen", "os.posix_spawn", "os.exec"})
"""Audit events of Python. (https://docs.python.org/3/library/audit_events.html)"""


@cache
def watch_outside_calls() -> None:
    """Tell the current turn of connections and of started processes, from now on; a hook cannot be removed."""
    sys.addaudithook(_note_event)


def _note_event(event: str, _: object) -> None:
    if event in _EVENTS:
        turn = PLAYED_TURN.get()
        for each in [turn] if turn else current_turns():
            each.note_outside_call()
