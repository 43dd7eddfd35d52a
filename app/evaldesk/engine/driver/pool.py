"""A pool of worker processes that share trials: assigns them, and replays the trials of dead workers."""

from __future__ import annotations

import asyncio
import math
import secrets
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from evaldesk.engine.driver.grading_files import GradingFiles
from evaldesk.engine.driver.simulated_users import Conversation, SimulatedUsers
from evaldesk.engine.driver.worker_process import (
    Answer,
    Death,
    Purpose,
    Tasks,
    WarmPool,
    WorkerProcess,
    WorkerStartError,
)
from evaldesk.engine.driver.zygote import Zygote
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import (
    Ended,
    Fork,
    Grade,
    GradeSpec,
    NextMessage,
    Stop,
    UserMessage,
    cancelled,
    grader_result,
    play_frame,
    played_again,
    player_result,
    sent_to_grader,
    unplayed,
)
from evaldesk.engine.launch import OWN, Launcher
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S, Pause, asks_judges, grading_timeout_s
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec, TrialStatus
from evaldesk.model.run import Place, SharedState
from evaldesk.model.user_reply import UserReply
from evaldesk.process_setup import end_marked
from evaldesk.run_options import AUTO, SHARED, SHARING

MAX_FAILED_STARTS = 3
MAX_CHANGES = 1_000
MAX_LOSSES = 5
BESIDE_OTHERS = "it shared an object of one event loop with other trials of its process"


@dataclass(slots=True, eq=False)
class _Slot:
    """A place for one worker. `is_alone` while it has a trial that may have killed the worker before it.

    `informed` is the grader that has the copy of the user's functions and the variables. `moved_at` is when it answered
    last, or got work after it had none.
    """

    worker: WorkerProcess | None = None
    jobs: dict[int, TrialSpec | GradeSpec] = field(default_factory=dict)
    is_starting: bool = False
    is_alone: bool = False
    is_tainted: bool = False
    informed: WorkerProcess | None = None
    moved_at: float = 0.0


class WorkerPool:
    """Up to `n_workers` processes with up to `concurrency` trials at once; `on_result` is called once for each trial.

    Another worker starts when each that is up has `n_before_next` trials, and has answered nothing for `slow_after_s`.
    When a worker dies with several trials under way, each of them is played again alone, so that only the trial that
    killed it suffers. It is the same when one of them changed settings that all of them share, such as the working
    folder. A worker that is not shared has one trial and ends after it. With isolation `auto` workers are shared until
    a player tells that the agent holds an object of one event loop.

    Players are forked from one import of the agent, where that is safe; else `unforked` has the reason.
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
        slow_after_s: float = 0.0,
        ready: Sequence[WorkerProcess] = (),
        isolation: str = SHARED,
        users: SimulatedUsers | None = None,
    ) -> None:
        self.is_cancelled = False
        self.idle = asyncio.Event()
        self.idle.set()
        self._on_result = on_result
        self._environment = environment
        self._warm_pool = warm_pool
        self._purpose = purpose
        self._launcher = launcher
        self._users = users
        self._is_shared = is_shared = isolation in SHARING
        self._is_auto = isolation == AUTO
        self._loop_bound = ""
        self._concurrency = concurrency
        self.unforked = ""
        self._zygote: Zygote | None = None
        self._zygote_worker: WorkerProcess | None = None
        self._retired_zygotes: list[tuple[Zygote, WorkerProcess]] = []
        self._forking: Literal["untried", "asked", "settled"] = "settled"
        self._slots = [_Slot() for _ in range(max(1, min(n_workers, concurrency)))]
        self._n_threads = math.ceil(concurrency / len(self._slots))
        self._n_before_next = min(n_before_next, self._n_threads)
        self._slow_after_s = slow_after_s
        self._looking: asyncio.TimerHandle | None = None
        self._queue: deque[TrialSpec | GradeSpec] = deque()
        self._conversations: dict[int, Conversation] = {}
        self._suspects: deque[TrialSpec | GradeSpec] = deque()
        is_warm = warm_pool is not None and warm_pool.has_idle
        if purpose == "player" and launcher.can_fork and not (is_shared and (len(self._slots) == 1 or is_warm)):
            self._forking = "untried"
        for slot, worker in zip(self._slots, [worker for worker in ready if worker.is_up], strict=False):
            slot.worker = worker
            worker.hand_over(partial(self._on_answer, slot), partial(self._on_death, slot))
        self._tasks = Tasks()
        self.grading_files: GradingFiles | None = None
        self.variables: dict[str, str] = {}
        self._n_failed_starts = 0
        self._broken: ErrorRecord | None = None
        self._last_loss = ""

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return [slot.worker.pid for slot in self._slots if slot.worker and not slot.is_starting]

    @property
    def zygote_pid(self) -> int:
        """Process id of the player that is forked for the others; 0 where there is none."""
        return self._zygote_worker.pid if self._zygote_worker else 0

    @property
    def pauses(self) -> list[Pause]:
        """The last known pauses of trials under way."""
        return [pause for slot in self._slots if slot.worker and slot.jobs for pause in slot.worker.pauses]

    @property
    def place(self) -> Place:
        """This machine, with its workers and the trials that they have."""
        n_workers, n_starting = len(self.pids), sum(slot.is_starting for slot in self._slots)
        return Place(
            self._launcher.place(socket.gethostname()),
            self._launcher.kind,
            n_workers,
            sum(len(slot.jobs) for slot in self._slots),
            "starting" if n_starting and not n_workers else "up",
            self._last_loss,
        )

    def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial; it waits for a worker."""
        self._queue.append(spec)
        if self._is_shared and self._forking == "untried":
            self._forking = "asked"
            asyncio.get_running_loop().call_soon(self._choose)  # when all are there that come at once
        self._pump()

    def prepare(self) -> None:
        """Have a first worker: it gets ready while the work for it is still being made."""
        if not (self.is_cancelled or self._broken or any(slot.worker for slot in self._slots)):
            slot = self._slots[0]
            if not self._take_warm(slot):
                slot.is_starting = True
                self._tasks.begin(self._start(slot, self._new_worker(slot), None))

    def stop(self) -> None:
        """Give back pending trials, and stop every trial under way."""
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
        own = [(self._zygote, self._zygote_worker)] if self._zygote and self._zygote_worker else []
        for zygote, worker in (*self._retired_zygotes, *own):
            zygote.close()
            await worker.close()
            end_marked(zygote.mark)
        for slot in self._slots:
            self._lose(slot, None)
        self._pump()

    def _pump(self) -> None:
        """Hand out waiting trials, as far as there is room; start workers where that helps."""
        if self.is_cancelled or self._broken:
            self._give_back_waiting()
            return
        if self._is_shared and self._forking == "asked":
            return
        while self._queue or self._suspects:
            slot = self._best_slot()
            is_needed = slot is None or len(slot.jobs) >= self._n_before_next
            if is_needed and self._are_slow() and self._start_one():
                continue
            if slot is None:
                self._look_again()
                return
            self._hand_to(slot)

    def _are_slow(self) -> bool:
        """Whether another worker is worth its start: not while one starts, or the others answer fast."""
        if not self._slow_after_s:
            return True
        before = asyncio.get_running_loop().time() - self._slow_after_s
        return not any(slot.is_starting or (slot.jobs and slot.moved_at > before) for slot in self._slots)

    def _look_again(self) -> None:
        """Look whether they are slow when nothing else happens meanwhile."""

        def look() -> None:
            self._looking = None
            self._pump()

        if self._slow_after_s and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(self._slow_after_s, look)

    def _best_slot(self) -> _Slot | None:
        """The slot with the least work that can take the next trial; suspects need an idle one."""
        n_threads = self._n_threads if self._queue else 1
        open_slots = [
            slot
            for slot in self._slots
            if slot.worker and not (slot.is_starting or slot.is_alone or slot.is_tainted) and len(slot.jobs) < n_threads
        ]
        return min(open_slots, key=lambda slot: len(slot.jobs), default=None)

    def _hand_to(self, slot: _Slot) -> None:
        slot.is_alone = bool(self._suspects) and not slot.jobs
        spec = (self._suspects if slot.is_alone else self._queue).popleft()
        key = secrets.randbelow(2**53)  # nobody who did not get the job can name it
        if not slot.jobs:
            slot.moved_at = asyncio.get_running_loop().time()
        slot.jobs[key] = spec
        self.idle.clear()
        if slot.worker is None:
            raise AssertionError("only a slot with a worker is given work")
        try:
            if isinstance(spec, GradeSpec):
                is_informed, slot.informed = slot.informed is slot.worker, slot.worker
                copy = self.grading_files.copy if self.grading_files and not is_informed else None
                grade = Grade(key, sent_to_grader(spec, copy, {} if is_informed else self.variables))
                slot.worker.send(grade, grading_timeout_s(spec.criteria, spec.limits))
            else:
                slot.worker.max_processes = spec.limits.processes
                slot.worker.n_given += 1
                self._conversations[key] = Conversation(spec)
                frame = play_frame(key, spec, is_shared=self._is_shared)
                slot.worker.send(frame, spec.limits.trial_timeout_s, _most_s(spec))
        except Exception as error:  # no frame says it: no worker would ever answer
            del slot.jobs[key]
            self._conversations.pop(key, None)
            slot.is_alone = False
            self._give_back(spec, unplayed(spec, "errored", failure(error, "engine")))

    def _choose(self) -> None:
        """Let the first player be forked for the others, unless there is work for one alone."""
        first = next((slot for slot in self._slots if slot.worker), self._slots[0])
        if self.is_cancelled or len(self._queue) < 2:
            self._forking = "settled"
            self._pump()
        else:
            first.is_starting = True
            self._tasks.begin(self._start(first, first.worker or self._new_worker(first), self._queue[0]))

    def _new_worker(self, slot: _Slot) -> WorkerProcess:
        slot.worker = WorkerProcess(partial(self._on_answer, slot), partial(self._on_death, slot))
        return slot.worker

    def _start_one(self) -> bool:
        """Fill an empty slot, if that helps; True when its worker is ready at once."""
        if self._forking == "asked":
            return False
        n_starting = sum(slot.is_starting for slot in self._slots)
        empty = next((slot for slot in self._slots if not slot.worker), None)
        n_waiting = math.ceil((len(self._queue) + len(self._suspects)) / self._n_before_next)
        if empty is None or n_starting >= n_waiting:
            return False
        empty.is_tainted = False
        if self._take_warm(empty):
            return True
        if self._n_failed_starts >= MAX_FAILED_STARTS and self.pids:
            return False  # those that are up do the work: nothing is won by trying without end
        spec = None
        if self._forking == "untried":
            self._forking, spec = "asked", (*self._suspects, *self._queue)[0]
        empty.is_starting = True
        self._tasks.begin(self._start(empty, self._new_worker(empty), spec))
        return False

    def _take_warm(self, slot: _Slot) -> bool:
        """Fill a slot with a worker that is ready; False where there is none."""
        if self._warm_pool and not self._zygote:
            slot.worker = self._warm_pool.take(partial(self._on_answer, slot), partial(self._on_death, slot))
        return slot.worker is not None

    async def _start(self, slot: _Slot, worker: WorkerProcess, spec: TrialSpec | GradeSpec | None) -> None:
        """Bring up the worker of a slot; with a `spec`, make it a zygote for its agent, where it can be one."""
        zygote = self._zygote if self._zygote and self._zygote.is_up else None
        if zygote and self._launcher.is_stale:
            zygote.retire()  # its forks would have its walls: decision 471
            zygote = None
        try:
            if isinstance(spec, TrialSpec):
                await self._try_to_fork(slot, worker, spec)
            else:
                environment = self._environment
                if self.grading_files:
                    await asyncio.to_thread(self.grading_files.check_own)
                    environment = {**environment, **await asyncio.to_thread(self.grading_files.variables)}
                await worker.start(environment, self._purpose, self._launcher, zygote=zygote)
            self._n_failed_starts = 0
        except WorkerStartError as error:
            slot.worker = None
            if zygote:
                zygote.retire()  # the next one is spawned
            else:
                self._n_failed_starts += 1
            if self._n_failed_starts >= MAX_FAILED_STARTS and not self.pids:
                self._broken = ErrorRecord("worker_start", str(error), error.output)
        except Exception as error:  # a changed file that grades, or our own code: it would fail again
            slot.worker = None
            self._broken = failure(error, "worker_start")
            await worker.close()
        slot.is_starting = False
        if spec is not None:
            self._forking = "settled"
        if self.is_cancelled:
            await worker.close()
        self._pump()

    async def _try_to_fork(self, slot: _Slot, worker: WorkerProcess, spec: TrialSpec) -> None:
        """Make the worker of a slot a zygote for the agent of that trial, or leave it a player."""
        if not worker.is_up:
            purpose: Purpose = self._purpose if self._is_shared else "zygote"
            await worker.start(self._environment, purpose, self._launcher, can_fork=True)
        fork = Fork(secrets.randbelow(2**53), spec.agent, spec.model, spec.model_options)
        zygote = await worker.make_zygote(fork)
        if isinstance(zygote, str):
            self.unforked = zygote
            slot.worker = worker if worker.is_up else None
        else:
            self._zygote, self._zygote_worker, slot.worker = zygote, worker, None
            worker.hand_over(lambda _: None, lambda _: zygote.close())

    def _send_next(self, slot: _Slot, question: NextMessage) -> None:
        """Answer a player whose turn ended; a simulated user takes its time."""
        conversation = self._conversations.get(question.key)
        if question.key not in slot.jobs or slot.worker is None or conversation is None:
            return
        if not conversation.is_simulated:
            slot.worker.send(UserMessage(question.key, conversation.next_of_script()))
        elif self._users and conversation.asking is None:
            conversation.asking = asyncio.create_task(self._ask_user(slot, conversation, question))

    async def _ask_user(self, slot: _Slot, conversation: Conversation, question: NextMessage) -> None:
        assert self._users  # noqa: S101 - a pool without them has graders
        try:
            reply, paced_s = await self._users.reply(conversation, question)
        except Exception as error:  # of our own code: without a message the trial would wait for ever
            reply, paced_s = UserReply(stop="user_error", error=failure(error, "engine")), 0.0
        conversation.asking = None
        if question.key in slot.jobs and slot.worker:
            slot.worker.send(UserMessage(question.key, reply, paced_s))

    def _forget_jobs(self, slot: _Slot) -> list[TrialSpec | GradeSpec]:
        """The jobs that the slot had, which no worker has any more."""
        specs = list(slot.jobs.values())
        for key in slot.jobs:
            self._end_conversation(key)
        slot.jobs.clear()
        return specs

    def _end_conversation(self, key: int) -> Conversation | None:
        conversation = self._conversations.pop(key, None)
        if conversation and conversation.asking:
            conversation.asking.cancel()
        return conversation

    def _on_answer(self, slot: _Slot, frame: Answer) -> None:
        if isinstance(frame, NextMessage):
            self._send_next(slot, frame)
            return
        spec = slot.jobs.pop(frame.key, None) if isinstance(frame, Ended) else None
        if spec is None or not isinstance(frame, Ended):
            return
        conversation = self._end_conversation(frame.key)
        slot.moved_at = asyncio.get_running_loop().time()
        is_believed = isinstance(spec, GradeSpec) or len(spec.losses) < MAX_LOSSES
        if frame.changed and (slot.jobs or frame.began_changed) and is_believed:
            self._play_again(slot, spec)
            return
        loop_bound = frame.result.shared_state.bounded().loop_bound
        if loop_bound and self._is_shared and self._is_auto and isinstance(spec, TrialSpec):
            is_alone = slot.worker is not None and slot.worker.n_given == 1
            self._end_sharing(loop_bound)
            if not is_alone and is_believed:
                self._queue.appendleft(_again(spec, BESIDE_OTHERS))
                self._close_worker(slot)
                self._pump()
                return
        slot.is_tainted |= frame.is_tainted or bool(frame.changed) or not self._is_shared
        slot.is_alone = False
        if slot.is_tainted and not slot.jobs and slot.worker:
            self._tasks.begin(slot.worker.close())
            slot.worker = None
        if isinstance(spec, GradeSpec):
            result = grader_result(spec, frame.result)
        else:
            result = player_result(spec, frame.result, is_cancelled=self.is_cancelled)
            if conversation and conversation.is_simulated:
                result = conversation.of_simulated(result)
        if self._loop_bound and isinstance(spec, TrialSpec):
            result = replace(result, shared_state=result.shared_state.joined(SharedState(self._loop_bound)))
        self._give_back(spec, _with_changes(result, frame.changed))
        self._pump()

    def _end_sharing(self, loop_bound: str) -> None:
        """Play each trial in a process of its own from now on, and those again that are beside or after others.

        The agent holds an object of one event loop: with those of other trials it may fail, or wait without end.
        """
        self._is_shared, self._loop_bound = False, loop_bound
        for slot in self._slots:
            if slot.jobs and slot.worker and slot.worker.n_given > 1:
                self._queue.extendleft(_again(spec, BESIDE_OTHERS) for spec in self._forget_jobs(slot))
                self._close_worker(slot)
            elif slot.worker and not slot.jobs and not slot.is_starting and slot.worker.n_given:
                self._close_worker(slot)
        self._slots += [_Slot() for _ in range(self._concurrency - len(self._slots))]
        self._n_threads = self._n_before_next = 1
        if self._zygote and self._zygote_worker:  # its import was not looked at as closely as one for single trials
            self._zygote.retire()
            self._retired_zygotes.append((self._zygote, self._zygote_worker))
            self._zygote = self._zygote_worker = None
        if self._launcher.can_fork and self._forking == "settled":
            self._forking = "untried"

    def _close_worker(self, slot: _Slot) -> None:
        if slot.worker:
            self._tasks.begin(slot.worker.close())
        slot.worker = None
        slot.is_alone = slot.is_tainted = False

    def _play_again(self, slot: _Slot, spec: TrialSpec | GradeSpec) -> None:
        """Retire a player in which one of several trials changed the process; alone, each shows whether it was that."""
        specs = [spec, *self._forget_jobs(slot)]
        if slot.worker:
            self._tasks.begin(slot.worker.close())
        slot.worker = None
        slot.is_alone = False
        self._suspects.extend(_again(each, "a trial beside it changed their process") for each in specs)
        self._pump()

    def _on_death(self, slot: _Slot, death: Death) -> None:
        if slot.worker:
            self._tasks.begin(slot.worker.wait_for_cleanup())  # its container is gone before the pool is closed
        slot.worker = None
        self._last_loss = f"lost a worker: {death.message}"[:MAX_CHANGES]
        self._lose(slot, death)
        self._pump()

    def _lose(self, slot: _Slot, death: Death | None) -> None:
        """Decide on the trials whose worker is gone; without a death they were cancelled."""
        specs = self._forget_jobs(slot)
        slot.is_alone = False
        if death is None or self.is_cancelled:
            for spec in specs:
                self._give_back(spec, cancelled(spec))
        elif len(specs) == 1:
            self._give_back(specs[0], _killed(specs[0], death))
        else:
            self._suspects.extend(_again(spec, death.message) for spec in specs)

    def _give_back_waiting(self) -> None:
        specs = (*self._suspects, *self._queue)
        self._suspects.clear()
        self._queue.clear()
        for spec in specs:
            is_broken = self._broken and not self.is_cancelled
            self._give_back(spec, unplayed(spec, "errored", self._broken) if is_broken else cancelled(spec))

    def _give_back(self, spec: TrialSpec | GradeSpec, result: TrialResult) -> None:
        if not any(slot.jobs for slot in self._slots):
            self.idle.set()
        self._on_result(spec, result)


def _killed(spec: TrialSpec | GradeSpec, death: Death) -> TrialResult:
    status: TrialStatus = "timed_out" if death.kind == "timed_out" else "errored"
    may_lack = isinstance(spec, TrialSpec) or asks_judges(spec.criteria)
    return unplayed(spec, status, ErrorRecord(death.kind, death.message, death.output), may_lack=may_lack)


def _with_changes(result: TrialResult, change_names: Sequence[str]) -> TrialResult:
    """The trial with its changes to the process, in the player's or grader's words, cut to a bound."""
    return replace(result, changes="; ".join(filter(None, (result.changes, *change_names)))[:MAX_CHANGES])


# A player's own clock is not believed beyond this: decision 228.
def _most_s(spec: TrialSpec) -> float:
    """How long its player may take; without end where calls wait for our own limits, which a player alone knows."""
    is_paced = any(options.rpm or options.tpm for options in (spec.model_options, spec.user.options))
    return math.inf if is_paced else LOAD_TIMEOUT_S + spec.limits.trial_timeout_s


def _again(spec: TrialSpec | GradeSpec, why: str) -> TrialSpec | GradeSpec:
    return spec if isinstance(spec, GradeSpec) else played_again(spec, why)
