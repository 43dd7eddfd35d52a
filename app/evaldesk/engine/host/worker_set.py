"""The workers for one kind of work, players or graders: their number, their trials, and what follows their death."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from evaldesk.engine.failures import failure
from evaldesk.engine.frames import Ended, Grade, GradeSpec, Play, Stop, cancelled, graded, played, player_spec, unplayed
from evaldesk.engine.host.process import Answer, Death, Purpose, WarmPool, WorkerProcess, WorkerStartError
from evaldesk.engine.launch import OWN, Launcher
from evaldesk.engine.worker.attempt import Pause, grading_timeout_s
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec, TrialStatus

MAX_FAILED_STARTS = 3
MAX_CHANGES = 1_000


@dataclass(slots=True, eq=False)
class _Slot:
    """A place for one worker. `is_alone` while it has a trial that may have killed the worker before it."""

    worker: WorkerProcess | None = None
    jobs: dict[int, TrialSpec | GradeSpec] = field(default_factory=dict)
    is_starting: bool = False
    is_alone: bool = False
    is_tainted: bool = False


class WorkerSet:
    """Up to `n_workers` processes with up to `concurrency` trials at once; `on_result` is called once for each trial.

    Another worker starts when each that is up has `n_before_next` trials. When a worker dies with several trials under
    way, each of them is tried again alone, so that only the one that killed it suffers. It is the same when one of them
    changed settings that all of them share, such as the working folder.
    """

    def __init__(
        self,
        n_workers: int,
        concurrency: int,
        on_result: Callable[[TrialSpec | GradeSpec, TrialResult], None],
        *,
        environment: Mapping[str, str],
        warm_pool: WarmPool | None,
        purpose: Purpose,
        launcher: Launcher = OWN,
        n_before_next: int = 1,
        ready: Sequence[WorkerProcess] = (),
    ) -> None:
        self.is_cancelled = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._on_result = on_result
        self._environment = environment
        self._warm_pool = warm_pool
        self._purpose = purpose
        self._launcher = launcher
        self._slots = [_Slot() for _ in range(max(1, min(n_workers, concurrency)))]
        self._n_threads = math.ceil(concurrency / len(self._slots))
        self._n_before_next = min(n_before_next, self._n_threads)
        self._waiting: deque[TrialSpec | GradeSpec] = deque()
        self._suspects: deque[TrialSpec | GradeSpec] = deque()
        for slot, worker in zip(self._slots, [worker for worker in ready if worker.is_up], strict=False):
            slot.worker = worker
            worker.hand_over(partial(self._on_answer, slot), partial(self._on_death, slot))
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_failed_starts = 0
        self._broken: ErrorRecord | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return [slot.worker.pid for slot in self._slots if slot.worker and not slot.is_starting]

    @property
    def pauses(self) -> list[Pause]:
        """The last known pauses of trials under way."""
        return [pause for slot in self._slots if slot.worker and slot.jobs for pause in slot.worker.pauses]

    def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial; it waits for a worker."""
        self._waiting.append(spec)
        self._pump()

    def stop(self) -> None:
        """Give back what waits, and stop every trial under way."""
        self.is_cancelled = True
        self._pump()
        for slot in self._slots:
            for key in slot.jobs:
                if slot.worker:
                    slot.worker.send(Stop(key))

    def kill(self, reason: str) -> None:
        """Kill the workers that still have trials."""
        for slot in self._slots:
            if slot.worker and slot.jobs:
                slot.worker.kill(reason)

    async def close(self) -> None:
        """End all workers; trials still under way end cancelled."""
        self.is_cancelled = True
        workers = [slot.worker for slot in self._slots if slot.worker]
        await asyncio.gather(*(worker.close() for worker in workers))
        if self._tasks:
            await asyncio.wait(self._tasks)
        for slot in self._slots:
            self._lose(slot, None)
        self._pump()

    def _pump(self) -> None:
        """Hand out waiting trials, as far as there is room; start workers where that helps."""
        if self.is_cancelled or self._broken:
            self._give_back_waiting()
            return
        while self._waiting or self._suspects:
            slot = self._best_slot()
            if (slot is None or len(slot.jobs) >= self._n_before_next) and self._start_one():
                continue
            if slot is None:
                return
            self._hand_to(slot)

    def _best_slot(self) -> _Slot | None:
        """The slot with the least work that can take the next trial; suspects need one that is idle."""
        n_threads = self._n_threads if self._waiting else 1
        open_slots = [
            slot
            for slot in self._slots
            if slot.worker and not (slot.is_starting or slot.is_alone or slot.is_tainted) and len(slot.jobs) < n_threads
        ]
        return min(open_slots, key=lambda slot: len(slot.jobs), default=None)

    def _hand_to(self, slot: _Slot) -> None:
        slot.is_alone = bool(self._suspects) and not slot.jobs
        spec = (self._suspects if slot.is_alone else self._waiting).popleft()
        key = secrets.randbelow(2**53)  # nobody who did not get the job can name it
        slot.jobs[key] = spec
        self.idle.clear()
        if slot.worker is None:
            raise AssertionError("only a slot with a worker is given work")
        try:
            if isinstance(spec, GradeSpec):
                slot.worker.send(Grade(key, spec), grading_timeout_s(spec.criteria, spec.limits))
            else:
                slot.worker.send(Play(key, player_spec(spec)), spec.limits.trial_timeout_s)
        except Exception as error:  # no frame says it: no worker would ever answer
            del slot.jobs[key]
            slot.is_alone = False
            self._give_back(spec, unplayed(spec, "errored", failure(error, "engine")))

    def _start_one(self) -> bool:
        """Fill an empty slot, if that helps; True when its worker is ready at once."""
        n_starting = sum(slot.is_starting for slot in self._slots)
        empty = next((slot for slot in self._slots if not slot.worker), None)
        n_waiting = math.ceil((len(self._waiting) + len(self._suspects)) / self._n_before_next)
        if empty is None or n_starting >= n_waiting:
            return False
        empty.is_tainted = False
        callbacks = partial(self._on_answer, empty), partial(self._on_death, empty)
        empty.worker = self._warm_pool.take(*callbacks) if self._warm_pool else None
        if empty.worker is not None:
            return True
        if self._n_failed_starts >= MAX_FAILED_STARTS and self.pids:
            return False  # those that are up do the work: nothing is won by trying without end
        empty.worker, empty.is_starting = WorkerProcess(*callbacks), True
        self._do(self._start(empty, empty.worker))
        return False

    async def _start(self, slot: _Slot, worker: WorkerProcess) -> None:
        try:
            await worker.start(self._environment, self._purpose, self._launcher)
            self._n_failed_starts = 0
        except WorkerStartError as error:
            slot.worker = None
            self._n_failed_starts += 1
            if self._n_failed_starts >= MAX_FAILED_STARTS and not self.pids:
                self._broken = ErrorRecord("worker_start", str(error), error.output)
        except Exception as error:  # of our own code, which would fail again
            slot.worker = None
            self._broken = failure(error, "worker_start")
            await worker.close()
        slot.is_starting = False
        if self.is_cancelled:
            await worker.close()
        self._pump()

    def _on_answer(self, slot: _Slot, frame: Answer) -> None:
        spec = slot.jobs.pop(frame.key, None) if isinstance(frame, Ended) else None
        if spec is None or not isinstance(frame, Ended):
            return
        if frame.changed and (slot.jobs or frame.began_changed):
            self._play_again(slot, spec)
            return
        slot.is_tainted |= frame.is_tainted or bool(frame.changed)
        slot.is_alone = False
        if slot.is_tainted and not slot.jobs and slot.worker:
            self._do(slot.worker.close())
            slot.worker = None
        checked = graded(spec, frame.result) if isinstance(spec, GradeSpec) else played(spec, frame.result)
        self._give_back(spec, _named(checked, frame.changed))
        self._pump()

    def _play_again(self, slot: _Slot, spec: TrialSpec | GradeSpec) -> None:
        """Retire a player in which one of several trials changed the process; alone, each shows whether it was that."""
        specs = [spec, *slot.jobs.values()]
        if slot.worker:
            self._do(slot.worker.close())
        slot.worker = None
        slot.jobs.clear()
        slot.is_alone = False
        self._suspects.extend(_again(each) for each in specs)
        self._pump()

    def _on_death(self, slot: _Slot, death: Death) -> None:
        slot.worker = None
        self._lose(slot, death)
        self._pump()

    def _lose(self, slot: _Slot, death: Death | None) -> None:
        """Decide on the trials whose worker is gone; without a death they were cancelled."""
        specs = list(slot.jobs.values())
        slot.jobs.clear()
        slot.is_alone = False
        if death is None or self.is_cancelled:
            for spec in specs:
                self._give_back(spec, cancelled(spec))
        elif len(specs) == 1:
            self._give_back(specs[0], _killed(specs[0], death))
        else:
            self._suspects.extend(_again(spec) for spec in specs)

    def _give_back_waiting(self) -> None:
        waiting = (*self._suspects, *self._waiting)
        self._suspects.clear()
        self._waiting.clear()
        for spec in waiting:
            is_broken = self._broken and not self.is_cancelled
            self._give_back(spec, unplayed(spec, "errored", self._broken) if is_broken else cancelled(spec))

    def _give_back(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        if not any(slot.jobs for slot in self._slots):
            self.idle.set()
        self._on_result(spec, result)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _killed(spec: TrialSpec | GradeSpec, death: Death) -> TrialResult:
    status: TrialStatus = "timed_out" if death.kind == "timed_out" else "errored"
    return unplayed(spec, status, ErrorRecord(death.kind, death.message, death.output))


def _named(result: TrialResult, changed: Sequence[str]) -> TrialResult:
    """The trial with a line in its log on what it changed; as a player says it, and so cut."""
    if not changed:
        return result
    sentence = f"This trial changed {'; '.join(changed)}"[:MAX_CHANGES]
    return replace(result, logs=f"{result.logs}\n{sentence}. Its player was retired.\n".lstrip("\n"))


def _again(spec: TrialSpec | GradeSpec) -> TrialSpec | GradeSpec:
    return spec if isinstance(spec, GradeSpec) else replace(spec, attempt=spec.attempt + 1)
