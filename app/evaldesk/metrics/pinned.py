"""Pinned turns in scoring: nothing judges them; judges and functions read them with the conversation. (decision 517)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from evaldesk.matching import renumber_allowances
from evaldesk.model import Case, Score, TurnRecord
from evaldesk.model.pinned import judged_part, n_pinned, pins_turns

_EARLIER: ContextVar[tuple[TurnRecord, ...]] = ContextVar("evaldesk_earlier_turns", default=())
_TURN_NUMBER = re.compile(r"\A(Turn |Mean of \d+ turns; lowest is turn )(\d+)(?!\d)")
"""The number of a turn in sentences of metrics."""


def judged_case(case: Case) -> Case:
    """The case as its trials are judged, without pinned turns; one without any is given back itself."""
    if not pins_turns(case):
        return case
    part, n = judged_part(case), n_pinned(case)
    origins = [(at, [*range(len(turn.expected.tool_calls or ()))]) for at, turn in enumerate(part.turns, n)]
    return renumber_allowances(case, part, origins)


def moved_score(score: Score, n: int) -> Score:
    """The score at the place of its turn in the whole conversation, which begins with `n` pinned turns."""
    if not n:
        return score
    reason = _TURN_NUMBER.sub(lambda match: f"{match[1]}{int(match[2]) + n}", score.reason)
    return replace(score, turn=None if score.turn is None else score.turn + n, reason=reason)


def earlier_turns() -> tuple[TurnRecord, ...]:
    """The pinned turns before those that are judged here."""
    return _EARLIER.get()


@contextmanager
def after_pinned(turns: tuple[TurnRecord, ...]) -> Iterator[None]:
    """Have the judges inside read these turns before the ones that they judge."""
    token = _EARLIER.set(turns)
    try:
        yield
    finally:
        _EARLIER.reset(token)
