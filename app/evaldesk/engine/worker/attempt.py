"""An attempt at a trial or a turn: its output, its progress, its pauses, and its grading.

Its trial thread writes, the main thread of the worker reads. `capture_output` replaces `sys.stdout` and `sys.stderr` of
a worker, so that user code's output is attributed to the attempt that printed it, bounded, and away from the frames.
Output that bypasses them (`os.write`, C code, child processes, threads that do not know their attempt) reaches file
descriptor 2, which the parent reads.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from evaldesk.agents.env_files import file_environment
from evaldesk.backports import UTC
from evaldesk.codec import msgspec
from evaldesk.engine.failures import failure
from evaldesk.llm.context import context_value
from evaldesk.llm.pacing import PACED
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import (
    Case,
    Criterion,
    ErrorRecord,
    Limits,
    StopReason,
    Transcript,
    TrialResult,
    TurnRecord,
    trial_verdict,
)
from evaldesk.model.transcript import broken_turn
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter
from evaldesk.wire import plain_text, value_scrubber

if TYPE_CHECKING:
    from evaldesk.llm import RetryWait

LOG_LIMIT = 64 * 1024
STDERR = 2
_numbers = itertools.count(1)


class Log:
    """The first and the last half of an output, of `limit` characters at most; `number` names its attempt."""

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self.number = next(_numbers)
        self._half = limit // 2
        self._head = ""
        self._tail: deque[str] = deque()
        self._n_tail = 0
        self._n_cut = 0

    def write(self, text: str) -> None:
        """Add `text`; the oldest part behind the first half is given up for it."""
        room = self._half - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        if not text:
            return
        self._n_cut += max(0, len(text) - self._half)
        text = text[-self._half :]
        self._tail.append(text)
        self._n_tail += len(text)
        while self._n_tail > self._half and len(self._tail) > 1:
            oldest = self._tail.popleft()
            self._n_tail -= len(oldest)
            self._n_cut += len(oldest)

    def text(self) -> str:
        """The kept text, with the size of the dropped part."""
        gap = f"\n… {self._n_cut} characters left out …\n" if self._n_cut else ""
        return plain_text(self._head + gap + "".join(tuple(self._tail)))


class Tail:
    """The last `limit` bytes or a little more of the output; cheap also for a flood of them."""

    def __init__(self, limit: int = LOG_LIMIT) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._n_bytes = 0

    def write(self, data: bytes) -> None:
        """Add `data` and drop the oldest."""
        self._pieces.append(data)
        self._n_bytes += len(data)
        while self._n_bytes - len(self._pieces[0]) >= self._limit:
            self._n_bytes -= len(self._pieces.popleft())

    def text(self) -> str:
        """The last `limit` bytes as text."""
        return b"".join(self._pieces)[-self._limit :].decode("utf-8", "replace")


CURRENT_LOG: ContextVar[Log | None] = ContextVar("current_log", default=None)


FORKED_IN: set[int] = set()
"""The attempts of this process that forked it and ran no other program: their children hold what it had open."""


def note_forks() -> None:
    """Note them from now on; a thread that does not know its attempt is none of them."""

    def note() -> None:
        if log := CURRENT_LOG.get():
            FORKED_IN.add(log.number)

    # A forked child holds the pipes of the trials beside it: decision 097.
    os.register_at_fork(after_in_parent=note)


class AttemptWriter(io.TextIOBase):
    """A text stream that writes to the log of the attempt that is current where it is called."""

    encoding = "utf-8"
    errors = "replace"

    @property
    def buffer(self) -> _AttemptBytes:
        """The same stream for bytes, as `sys.stdout.buffer`."""
        return _AttemptBytes()

    def write(self, text: str) -> int:
        """Write to the current log, or to file descriptor 2 where no attempt is current."""
        log = CURRENT_LOG.get()
        if log is None:
            _write_raw(text.encode("utf-8", "replace"))
        else:
            log.write(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Write one text after the other."""
        for line in lines:
            self.write(line)

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """File descriptor 2, so that child processes can be given this stream."""
        return STDERR

    def close(self) -> None:
        """Nothing: the stream outlives the code that prints."""


class _AttemptBytes(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        log = CURRENT_LOG.get()
        if log is None:
            _write_raw(raw)
        else:
            log.write(raw.decode("utf-8", "replace"))
        return len(raw)


def capture_output() -> None:
    """Make every print of this process go to the log of its attempt."""
    sys.stdout = AttemptWriter()
    sys.stderr = AttemptWriter()


def _write_raw(data: bytes) -> None:
    try:
        os.write(STDERR, data)
    except OSError:
        return  # there is no reader any more, and no other place for the message


T = TypeVar("T")


def without_env_secrets(value: T) -> T:
    """`value` with the secret values that came from `.env` files replaced by the names of their variables."""
    environment = file_environment()
    return value_scrubber(environment)(value) if environment else value


class Pause(msgspec.Struct, frozen=True):
    """A trial that waits: why, in a word or two, and until when, in seconds since the epoch."""

    why: str
    until: float


def pause_of(wait: RetryWait) -> Pause:
    """The pause that a model call makes before another attempt."""
    return Pause(wait.why, wait.until.timestamp())


def active(pauses: Iterable[Pause | None]) -> tuple[Pause, ...]:
    """The pauses that are not over yet."""
    now = time.time()
    return tuple(pause for pause in pauses if pause and pause.until > now)


def pauses_sentence(pauses: Iterable[Pause]) -> str:
    """`3 trials wait: rate-limited until 12:03:05.`, in local time; empty without any."""
    ordered_pauses = sorted(pauses, key=lambda pause: pause.until)
    if not ordered_pauses:
        return ""
    trials = "1 trial waits" if len(ordered_pauses) == 1 else f"{len(ordered_pauses):,} trials wait"
    whys = " or ".join(dict.fromkeys(pause.why for pause in ordered_pauses))
    until = datetime.fromtimestamp(ordered_pauses[-1].until, UTC).astimezone().strftime("%H:%M:%S")
    return f"{trials}: {whys} until {until}."


Clock: TypeAlias = Callable[[], float]
Phase: TypeAlias = Literal["load", "play", "grade"]

LOAD_TIMEOUT_S = 120.0
GRADE_TIMEOUT_S = 60.0
NO_DEADLINE = 1e9  # finite, since JSON knows no infinity


class TurnUnderWay(Protocol):
    """A turn that is being played and can give its events so far."""

    def record(self, stop_reason: StopReason) -> TurnRecord:
        """The turn up to now."""


@dataclass(slots=True)
class Attempt:
    """One attempt at a trial or a turn. `stop` is set before its task is cancelled and says why.

    Where it is not `is_told`, an agent that tells no usage may have called a model. With `tells_calls` it told a tool
    call of a turn itself, so that turns without one have none.
    """

    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    phase: Phase = "load"
    deadline: float = NO_DEADLINE
    timeout_s: float = 0.0
    stop: Literal["timed_out", "cancelled"] | None = None
    turns: list[TurnRecord] = field(default_factory=list)
    turn: TurnUnderWay | None = None
    log: Log = field(default_factory=Log)
    loading: float = 0.0
    play_start: float = 0.0
    pause: Pause | None = None
    prompts: PromptWriter | None = None
    is_told: bool = True
    tells_calls: bool = False

    def begin(self, phase: Phase, timeout_s: float) -> None:
        """Enter `phase`, which may take `timeout_s`."""
        self.phase = phase
        self.timeout_s = timeout_s
        self.deadline = self.clock() + timeout_s
        if phase == "load":
            self.loading = self.clock()
        elif phase == "play":
            self.play_start = self.clock()

    def waits(self, wait: RetryWait) -> None:
        """Keep the reason why a model call waits; called in the thread of the model calls."""
        self.pause = pause_of(wait)
        if wait.failure.kind == PACED:  # a limit of ours is no fault of the trial
            self.deadline += wait.seconds

    @property
    def seconds_left(self) -> float:
        """Until the deadline of the phase; negative beyond it."""
        return self.deadline - self.clock()

    @property
    def duration_ms(self) -> float:
        """Since play began; 0 before."""
        return round((self.clock() - self.play_start) * 1000, 3) if self.play_start else 0.0

    @property
    def start_ms(self) -> float:
        """From the request to the begin of play: the imports of the agent; 0 where nothing was to load."""
        play_time = self.play_start or self.clock()
        return round((play_time - self.loading) * 1000, 3) if self.loading else 0.0

    def transcript(self, error: ErrorRecord | None = None) -> Transcript:
        """The turns that ended, and the one under way as far as it came, which ended by `error`."""
        turns = tuple(self.turns)
        turn = self.turn
        if turn is None:
            return Transcript(turns)
        open_record = turn.record(self.stop or "error")
        last = broken_turn(
            open_record.query,
            open_record.events,
            open_record.state_before,
            open_record.stop_reason,
            error,
            open_record.duration_ms,
        )
        return Transcript((*turns, last))


JUDGE_TIMEOUT_S = 300.0


async def grade(
    result: TrialResult,
    case: Case,
    criteria: Sequence[Criterion],
    limits: Limits | None = None,
    *,
    strict: bool = False,
    keeps_prompts: bool = False,
) -> TrialResult:
    """`result` with scores, the usage of its judges, how they were asked, and the verdict.

    An unfinished trial is not scored.
    """
    from evaldesk.metrics import grade_trial

    if result.status != "finished":
        return replace(result, scores=(), verdict=trial_verdict((), criteria, result.error))
    with suppress(Exception, SystemExit):  # a function that cannot be imported is the error of its own score
        load_functions(criteria)
    timeouts = _timeouts(criteria, limits)
    prompts = PromptWriter() if keeps_prompts and timeouts else None
    try:
        with _keeping_calls(prompts, len(result.transcript.turns)) if prompts else nullcontext():
            grading = await grade_trial(result.transcript, case, criteria, timeouts=timeouts, strict=strict)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        error_record = failure(error, "grading_failed")
        return replace(result, status="errored", scores=(), verdict="errored", error=error_record)
    verdict = trial_verdict(grading.scores, criteria, result.error)
    usages = (*result.usages, *grading.usages)
    judge_prompts = prompts.prompts() if prompts else None
    return replace(result, scores=grading.scores, usages=usages, verdict=verdict, prompts=judge_prompts)


def _keeping_calls(prompts: PromptWriter, n_turns: int) -> AbstractContextManager[None]:
    """Keep the model calls that are made inside, each with the criterion and the turn that it is for."""
    from evaldesk.engine.worker.prompts import CallsAside
    from evaldesk.metrics.scoring import judged_here

    began_s = time.perf_counter()

    def place() -> CallPlace:
        criterion, turn = judged_here()
        return CallPlace(n_turns if turn is None else turn, round((time.perf_counter() - began_s) * 1000, 3), criterion)

    return context_value(PLAYED_TURN, CallsAside("judge", prompts, place))


def load_functions(criteria: Sequence[Criterion]) -> None:
    """Import the user's functions that `criteria` name, with something to import where osmosis_ai is not installed.

    Raises MetricError for a function with a wrong signature, and exceptions of an import.
    """
    from evaldesk.agents.standins import install_standins
    from evaldesk.metrics import is_function, load_function_of

    for criterion in filter(is_function, criteria):
        install_standins("osmosis")
        load_function_of(criterion)


def grading_timeout_s(criteria: Sequence[Criterion], limits: Limits | None = None) -> float:
    """How long grading may take: each judge and each function of the user has its own bound within."""
    return GRADE_TIMEOUT_S + sum(_timeouts(criteria, limits).values())


def asks_judges(criteria: Sequence[Criterion]) -> bool:
    """Whether a model judges one of them."""
    from evaldesk.metrics import is_metric, metric_info

    return any(is_metric(each.metric) and metric_info(each.metric).has_judge for each in criteria)


def _timeouts(criteria: Sequence[Criterion], limits: Limits | None) -> dict[str, float]:
    """Seconds by metric, for metrics that may have to wait."""
    from evaldesk.metrics import is_function

    judge_timeout = limits.judge_timeout_s if limits else None
    seconds_by_metric: dict[str, float] = {}
    for criterion in criteria:
        if is_function(criterion):
            seconds_by_metric[criterion.metric] = judge_timeout or GRADE_TIMEOUT_S
        elif asks_judges((criterion,)):
            seconds_by_metric[criterion.metric] = judge_timeout or JUDGE_TIMEOUT_S
    return seconds_by_metric
