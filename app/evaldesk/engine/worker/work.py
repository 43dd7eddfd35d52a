"""Work on trials, as a worker does it: carried out in a trial thread, answered by one encoded frame."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from evaldesk.engine.failures import failure
from evaldesk.engine.frames import Ended, Grade, GradeSpec, Play
from evaldesk.engine.host.results import cancelled, unplayed
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.grading import grade, grading_timeout_s
from evaldesk.engine.worker.output import CURRENT_LOG, without_env_secrets
from evaldesk.engine.worker.trial import given_up, run_trial
from evaldesk.engine.worker.turn import cut
from evaldesk.llm.retry_events import CURRENT_LISTENER
from evaldesk.model import ErrorRecord, Score, Transcript, TrialResult
from evaldesk.wire import plain, to_json

MAX_RESULT = 16 * 1024 * 1024


class Work(Protocol):
    """One piece of work; `attempt` says how far it is."""

    attempt: Attempt

    async def run(self) -> bytes:
        """Do it, in a trial thread; the frame that answers."""

    def given_up(self, place: str) -> bytes:
        """The frame that answers when the trial thread does not come back from `place`."""

    def broken(self, error: BaseException | None) -> bytes:
        """The frame that answers when `run` raised, or was cancelled before it began (None)."""


class TrialWork:
    """Plays and grades a trial."""

    def __init__(self, frame: Play) -> None:
        self._frame = frame
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Play, grade, encode."""
        return _ended(self._frame.key, await run_trial(self._frame.spec, self.attempt))

    def given_up(self, place: str) -> bytes:
        """What was played so far."""
        return _ended(self._frame.key, given_up(self._frame.spec, self.attempt, place), is_tainted=True)

    def broken(self, error: BaseException | None) -> bytes:
        """An errored or cancelled trial."""
        return _broken(self._frame, error)


class GradeWork:
    """Grades a trial that was played before."""

    def __init__(self, frame: Grade) -> None:
        self._frame = frame
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Grade, encode."""
        CURRENT_LOG.set(self.attempt.log)
        CURRENT_LISTENER.set(self.attempt.waits)
        spec = self._frame.spec
        self.attempt.begin("grade", grading_timeout_s(spec.criteria, spec.limits))
        return _ended(self._frame.key, await _graded(spec))

    def given_up(self, place: str) -> bytes:
        """The trial as it was, without scores."""
        error = ErrorRecord("grading_failed", f"not graded within {self.attempt.timeout_s:g} s", place)
        return _ended(self._frame.key, unplayed(self._frame.spec, "errored", error), is_tainted=True)

    def broken(self, error: BaseException | None) -> bytes:
        """The trial as it was, without scores."""
        return _broken(self._frame, error)


async def _graded(spec: GradeSpec) -> TrialResult:
    return await grade(spec.result, spec.case, spec.criteria, spec.limits, strict=spec.strict)


def _broken(frame: Play | Grade, error: BaseException | None) -> bytes:
    spec = frame.spec
    result = unplayed(spec, "errored", failure(error, "engine")) if error else cancelled(spec)
    return _ended(frame.key, result)


def _ended(key: int, result: TrialResult, *, is_tainted: bool = False) -> bytes:
    """The frame of a result, cut where it is too big, and whatever user metrics left in it made plain."""
    with suppress(Exception):  # what cannot be written yet is made plain below
        result = without_env_secrets(result)
    try:
        frame = to_json(Ended(key, result, is_tainted))
    except Exception:
        result = without_env_secrets(replace(result, scores=tuple(_plain_score(score) for score in result.scores)))
        frame = to_json(Ended(key, result, is_tainted))
    for limit in (10_000, 500):
        if len(frame) <= MAX_RESULT:
            return frame
        turns = tuple(cut(turn, limit) for turn in result.transcript.turns)
        frame = to_json(Ended(key, replace(result, transcript=Transcript(turns)), is_tainted))
    if len(frame) <= MAX_RESULT:
        return frame
    error = ErrorRecord("too_big", f"the transcript is bigger than {MAX_RESULT // 2**20} MiB even when it is cut")
    bare = replace(result, status="errored", verdict="errored", transcript=Transcript(), scores=(), error=error)
    return to_json(Ended(key, bare, is_tainted))


def _plain_score(score: Score) -> Score:
    details = plain(score.details)
    return replace(score, reason=str(plain(score.reason)), details=details if isinstance(details, dict) else {})
