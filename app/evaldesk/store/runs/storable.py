"""Which results the database can hold, and what is stored of one that it cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from evaldesk.model import ErrorRecord, TrialResult
from evaldesk.store.runs.recording import Values, outcome, scores, trial_key
from evaldesk.store.tables import pack

MAX_INTEGER = 2**63 - 1
KIND = "unstorable"
_ENCODING_FAULTS = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


def storable_rows(results: Iterable[TrialResult]) -> list[tuple[TrialResult, Values]]:
    """Each result with its transcript row; one that the database cannot hold is an errored one that says why."""
    return [_storable(result) for result in results]


def unstorable(result: TrialResult, reason: str) -> tuple[TrialResult, Values]:
    """The errored result that is stored in place of one that the database cannot hold, and its row."""
    bare = result.without_content(ErrorRecord(KIND, f"the result cannot be stored: {reason}"))
    return bare, transcript_row(bare)


def transcript_row(result: TrialResult) -> Values:
    """The whole result as a row; made before the transaction, so that the write lock is held briefly."""
    codec, data = pack(result)
    return trial_key(result) | {"attempt": result.attempt, "codec": codec, "data": data}


def _storable(result: TrialResult) -> tuple[TrialResult, Values]:
    try:
        fault = _fault(result)
        if fault is None:
            return result, transcript_row(result)
    except _ENCODING_FAULTS as error:
        fault = f"{type(error).__name__}: {str(error)[:300]}"
    return unstorable(result, fault)


def _fault(result: TrialResult) -> str | None:
    """The first column that SQLite refuses or would change, by name; None when there is none."""
    columns = ((name, value) for row in (outcome(result), *scores(result)) for name, value in row.items())
    return next(filter(None, (_refused(name, value) for name, value in columns)), None)


def _refused(name: str, value: object) -> str | None:
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        return f"{name} is an integer of {value.bit_length()} bits; at most 2**63 - 1 is stored"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}; only finite numbers are stored"
    if isinstance(value, str) and not value.isascii() and _has_half_character(value):
        return f"{name} holds half of a character (a lone surrogate)"
    return None


def _has_half_character(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
