"""Carries out trials on hosts that may be lost: a lost trial is innocent, and is played again on another host."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from evaldesk.engine.driver.worker_process import Tasks
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import GradeSpec, cancelled, played_again, unplayed
from evaldesk.engine.worker.attempt import Pause, active
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.integrations.ray.host import Answer, HostFacts, HostJob, host_job, key_of, own_versions
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec
from evaldesk.model.run import Place, PlaceState

MAX_LOSSES, MAX_REASON = 5, 300
POLL_S, SILENT_S = 2.0, 60.0
FIRST_HOST_S, NO_HOST_S = 600.0, 60.0
CANCEL_GRACE_S = 10.0
LEAST_DELAY_S, MOST_DELAY_S = 0.2, 2.0
GATHER_S, MAX_SENT = 0.002, 64
"""Trials for one host are sent together: after so many seconds, or when there are so many."""


class HostLostError(EvaldeskError):
    """A host, or its node, is gone; the message says which, as part of a sentence."""


class RemoteHost(Protocol):
    """A host that is up. Every method raises HostLostError once it is gone."""

    async def exchange(self, jobs: Sequence[HostJob]) -> Sequence[Answer]:
        """Hand over trials, and get ended ones: once there are some, or another call takes over waiting."""

    async def facts(self) -> HostFacts:
        """The host as it is now."""

    async def cancel(self) -> None:
        """End its trials as cancelled."""

    def kill(self) -> None:
        """End the host, if it is still there."""


class Cluster(Protocol):
    """Where hosts come to be."""

    @property
    def waits_for(self) -> str:
        """The requirement of a host that is not up yet: `a node with 4 free CPUs`."""

    async def connect(self) -> None:
        """Raises EvaldeskError where the cluster cannot be reached, or will not do."""

    async def open_host(self) -> RemoteHost:
        """A new host, which may wait for room. Raises HostLostError."""

    async def close(self) -> None:
        """End all hosts."""


@dataclass(slots=True, eq=False)
class _Job:
    """A trial that was submitted, and how often it was lost."""

    number: int
    spec: TrialSpec | GradeSpec
    n_losses: int = 0
    is_done: bool = False


@dataclass(slots=True, eq=False)
class _Up:
    """A host that is up, and the trials that it has, by their numbers; those of `unsent` go with the next call."""

    host: RemoteHost
    jobs: dict[int, _Job] = field(default_factory=dict)
    unsent: list[_Job] = field(default_factory=list)
    n_calls: int = 0
    sending: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one host; its next host has the same number."""

    number: int
    name: str
    up: _Up | None = None
    facts: HostFacts | None = None
    state: PlaceState = "starting"
    note: str = ""
    is_refused: bool = False
    loss: asyncio.Event = field(default_factory=asyncio.Event)


class HostsExecutor:
    """Up to `concurrency` trials at once on `n_hosts` hosts of a cluster, which are opened with the first trial.

    A host that is lost is replaced, and its trials are played again on the least busy other one, up to MAX_LOSSES
    times. Hosts with other versions get no trial. When there has been no host for NO_HOST_S, everything is given back
    as cancelled, and `end_reason` says why.
    """

    def __init__(self, cluster: Cluster, concurrency: int, n_hosts: int, chance: random.Random | None = None) -> None:
        self.is_cancelled = False
        self.end_reason = ""
        self.grading_changes: Sequence[str] = ()  # each host copies what scores before its first trial
        self._cluster = cluster
        self._share = math.ceil(concurrency / n_hosts)
        self._slots = [_Slot(number, f"host {number}") for number in range(1, n_hosts + 1)]
        self._room = asyncio.Semaphore(concurrency)
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()
        self._queue: deque[_Job] = deque()
        self._jobs: set[_Job] = set()
        self._n_submitted = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_decided = asyncio.Event()
        self._failure: EvaldeskError | None = None
        self._tasks = Tasks()
        self._is_open = self._is_closed = False
        self._had_host = False
        self._chance = chance or random.Random()  # noqa: S311 - of delays

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """The reasons why trials under way wait, as the hosts told last."""
        return active(pause for slot in self._slots if slot.facts for pause in slot.facts.pauses)

    @property
    def places(self) -> tuple[Place, ...]:
        """The hosts."""
        return tuple(
            Place(
                slot.name,
                "host",
                slot.facts.n_workers if slot.facts and slot.up else 0,
                len(slot.up.jobs) if slot.up else 0,
                slot.state,
                self._note(slot),
            )
            for slot in self._slots
        )

    def _note(self, slot: _Slot) -> str:
        if slot.state == "starting":
            return f"waits for {self._cluster.waits_for}"
        return slot.note or (slot.facts.note if slot.facts and slot.up else "")

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Take a trial once there is room and a host is up. Raises EvaldeskError where the cluster will not do."""
        await self._room.acquire()
        try:
            if self._is_closed:
                raise UsageError("the executor is closed and takes no trial any more")
            await self._open()
        except BaseException:
            self._room.release()
            raise
        self._n_submitted += 1
        job = _Job(self._n_submitted, spec)
        self._jobs.add(job)
        self._idle.clear()
        if self.is_cancelled:
            self._give_back(job, cancelled(spec))
            return
        self._queue.append(job)
        self._pump()

    async def results(self) -> AsyncIterator[TrialResult]:
        """Results as they come, until `close`."""
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        """End all trials as cancelled; those of a host that does not answer, too."""
        self.is_cancelled = True
        self._is_decided.set()
        self._give_back_waiting()
        hosts = [slot.up.host for slot in self._slots if slot.up]
        stops = [asyncio.create_task(host.cancel()) for host in hosts]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), CANCEL_GRACE_S)
        for task in stops:
            task.cancel()
        await asyncio.gather(*stops, return_exceptions=True)
        self._give_back_all()

    async def close(self) -> None:
        """End all hosts; trials still under way end cancelled."""
        self.is_cancelled = self._is_closed = True
        self._is_decided.set()
        self._give_back_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._is_open:
            await self._cluster.close()
        self._results.put_nowait(None)

    async def _open(self) -> None:
        """Connect with the first trial, and wait until a host is up, or none will be."""
        if not self._is_open:
            self._is_open = True
            self._tasks.begin(self._start())
        await self._is_decided.wait()
        if self._failure:
            raise self._failure

    async def _start(self) -> None:
        try:
            await self._cluster.connect()
        except Exception as error:  # also one that Ray is not prepared for: without an end the run would wait for ever
            self._fail(error if isinstance(error, EvaldeskError) else EvaldeskError(f"no cluster: {error}"))
            return
        self._tasks.begin(self._watch_for_hosts())
        for slot in self._slots:
            self._tasks.begin(self._keep(slot))

    def _fail(self, error: EvaldeskError) -> None:
        """Refuse the run; where trials were played already, end it."""
        self._failure = error
        self._is_decided.set()
        if self._jobs:
            self._end(str(error))

    def _end(self, reason: str) -> None:
        """Take no more trials, and give back all as cancelled: they stay planned."""
        self.end_reason, self.is_cancelled = reason, True
        self._is_decided.set()
        self._give_back_all()

    async def _watch_for_hosts(self) -> None:
        """End everything when there has been no host for too long.

        Counted in waits and not by the clock: a driver that slept must not stop its run.
        """
        wait_s, without_s = min(POLL_S, NO_HOST_S / 4), 0.0
        while not self.is_cancelled:
            await asyncio.sleep(wait_s)
            without_s = 0.0 if any(slot.up for slot in self._slots) else without_s + wait_s
            limit_s = NO_HOST_S if self._had_host else FIRST_HOST_S
            if without_s > limit_s:
                notes = "; ".join(dict.fromkeys(filter(None, map(self._note, self._slots))))
                self._end(f"no host was up for {limit_s:g} s{f': {notes}' if notes else ''}.")

    async def _keep(self, slot: _Slot) -> None:
        """Have a host in the slot, as long as the run goes on."""
        n_tries = 0
        while not self.is_cancelled and not slot.is_refused:
            try:
                await self._bring_up(slot)
                n_tries = 0
                await self._watch(slot)
            except HostLostError as error:
                self._lose(slot, str(error))
            except Exception as error:  # of our own code, or of another version of it there: it would come again
                last_line = failure(error, "engine").message.strip().splitlines()[-1:]
                self._lose(slot, f"it cannot be used: {''.join(last_line)}"[:MAX_REASON])
                self._refuse(slot, f"{slot.name}: {slot.note}")
            n_tries += 1
            await asyncio.sleep(min(LEAST_DELAY_S * 2**n_tries, MOST_DELAY_S))

    async def _bring_up(self, slot: _Slot) -> None:
        slot.loss.clear()
        host = await self._cluster.open_host()
        try:
            facts = await host.facts()
        except BaseException:
            host.kill()
            raise
        other = other_versions(facts)
        slot.name = self._name(slot, facts.name)
        if other:
            host.kill()
            self._refuse(slot, f"{slot.name} {other}")
            return
        after = f"in the place of one that was lost: {slot.note}" if slot.state == "lost" else ""
        slot.up, slot.facts, slot.state, slot.note = _Up(host), facts, "up", after
        self._had_host = True
        self._is_decided.set()
        self._pump()

    def _refuse(self, slot: _Slot, why: str) -> None:
        slot.state, slot.note, slot.is_refused = "lost", why, True
        if all(each.is_refused for each in self._slots):
            self._fail(UsageError(f"no host will do: {why}. Install the same versions there.", field="on"))

    def _name(self, slot: _Slot, name: str) -> str:
        """The name of the machine, with the number of the host where it has several; the next host there keeps it."""
        if slot.facts and slot.facts.name == name:
            return slot.name
        is_taken = any(each.facts and each.facts.name == name for each in self._slots if each is not slot)
        return f"{name} #{slot.number}" if is_taken else name

    async def _watch(self, slot: _Slot) -> None:
        """Ask the host how it is, until it is lost. Raises HostLostError."""
        while slot.up and not self.is_cancelled:
            with suppress(TimeoutError):
                await asyncio.wait_for(slot.loss.wait(), POLL_S)
            if slot.up is None:
                return
            slot.facts = await _facts(slot.up.host)

    def _lose(self, slot: _Slot, why: str) -> None:
        """End the host, and play its trials again elsewhere."""
        up, slot.up, slot.state, slot.note = slot.up, None, "lost", why
        slot.loss.set()
        if up is None:
            return
        up.host.kill()
        self._queue.extendleft(up.unsent)
        for job in up.jobs.values():
            if job not in up.unsent:
                self._play_again(job, f"its host {slot.name} was lost: {why}")
        self._pump()

    def _pump(self) -> None:
        """Hand waiting trials to the least busy hosts that have room."""
        if self.is_cancelled:
            self._give_back_waiting()
            return
        hosts = [(slot, slot.up) for slot in self._slots if slot.up]
        while self._queue:
            slot, up = min(hosts, key=lambda each: len(each[1].jobs), default=(None, None))
            if slot is None or up is None or len(up.jobs) >= self._share:
                return
            job = self._queue.popleft()
            up.jobs[job.number] = job
            up.unsent.append(job)
            self._send_soon(slot, up)

    def _send_soon(self, slot: _Slot, up: _Up) -> None:
        if len(up.unsent) >= MAX_SENT:
            self._send(slot, up)
        elif up.sending is None:
            up.sending = asyncio.get_running_loop().call_later(GATHER_S, self._send, slot, up)

    def _send(self, slot: _Slot, up: _Up) -> None:
        if up.sending is not None:
            up.sending.cancel()
        up.sending = None
        if slot.up is up and up.jobs and not self._is_closed:
            jobs, up.unsent = up.unsent, []
            up.n_calls += 1
            self._tasks.begin(self._exchange(slot, up, jobs))

    async def _exchange(self, slot: _Slot, up: _Up, jobs: Sequence[_Job]) -> None:
        try:
            answers = await up.host.exchange([host_job(job.number, job.spec) for job in jobs])
        except HostLostError as error:
            if slot.up is up:
                self._lose(slot, str(error))
        except Exception as error:  # of our own code, or a host of another kind: nobody knows which trial it was
            self._give_back_failed(up, failure(error, "engine"))
        else:
            self._take(slot, up, answers)
        finally:
            up.n_calls -= 1
            self._pump()
            if up.jobs and not up.n_calls:
                self._send_soon(slot, up)  # somebody has to wait for the rest

    def _take(self, slot: _Slot, up: _Up, answers: Sequence[Answer]) -> None:
        for answer in answers:
            job = up.jobs.pop(answer.number, None)
            if job is None or slot.up is not up:
                continue  # it is played again on another host
            if answer.result is None:
                self._give_back(job, unplayed(job.spec, "errored", answer.error))
            else:
                self._give_back(job, check_result(job.spec, replace(answer.result, place=slot.name)))

    def _give_back_failed(self, up: _Up, error: ErrorRecord) -> None:
        jobs, up.jobs, up.unsent = up.jobs, {}, []
        for job in jobs.values():
            self._give_back(job, unplayed(job.spec, "errored", error))

    def _play_again(self, job: _Job, why: str) -> None:
        job.n_losses += 1
        if job.is_done:
            return
        if self.is_cancelled:
            self._give_back(job, cancelled(job.spec))
            return
        if isinstance(job.spec, TrialSpec):
            job.spec = played_again(job.spec, why)
        if job.n_losses >= MAX_LOSSES:
            error = ErrorRecord("host_lost", f"the trial was lost {job.n_losses} times; {why}")
            self._give_back(job, unplayed(job.spec, "errored", error))
            return
        delay_s = self._chance.uniform(LEAST_DELAY_S, min(LEAST_DELAY_S * 2**job.n_losses, MOST_DELAY_S))
        asyncio.get_running_loop().call_later(delay_s, self._wait_again, job)

    def _wait_again(self, job: _Job) -> None:
        if not job.is_done:
            self._queue.append(job)
            self._pump()

    def _give_back_waiting(self) -> None:
        """End unsent trials as cancelled, since a stopping host does not report them."""
        jobs = [*self._queue]
        self._queue.clear()
        for up in filter(None, (slot.up for slot in self._slots)):
            jobs += up.unsent
            for job in up.unsent:
                del up.jobs[job.number]
            up.unsent = []
        for job in jobs:
            self._give_back(job, cancelled(job.spec))

    def _give_back_all(self) -> None:
        self._queue.clear()
        for job in [*self._jobs]:
            self._give_back(job, cancelled(job.spec))

    def _give_back(self, job: _Job, result: TrialResult) -> None:
        if job.is_done:
            return
        job.is_done = True
        self._jobs.discard(job)
        if not self._jobs:
            self._idle.set()
        self._room.release()
        self._results.put_nowait(result)


async def _facts(host: RemoteHost) -> HostFacts:
    """The host as it is now. Raises HostLostError, also when it is silent, by waits as above."""
    answer = asyncio.ensure_future(host.facts())
    try:
        for _ in range(math.ceil(SILENT_S / POLL_S)):
            if (await asyncio.wait((answer,), timeout=POLL_S))[0]:
                return answer.result()
    finally:
        answer.cancel()
    raise HostLostError(f"it did not answer for {SILENT_S:g} s")


def other_versions(facts: HostFacts) -> str:
    """`has Evaldesk 0.2.0, here is 0.1.0`; empty where the versions are those of the driver."""
    for name, there, here in zip(("Python", "Evaldesk"), (facts.python, facts.evaldesk), own_versions(), strict=True):
        if there != here:
            return f"has {name} {there}, and here it is {here}"
    return ""


def check_result(spec: TrialSpec | GradeSpec, result: TrialResult) -> TrialResult:
    """The result, if it is one of that trial."""
    if (result.run_id, result.case_index, result.trial_index) == key_of(spec):
        return result
    return unplayed(spec, "errored", ErrorRecord("wrong_trial", "the host answered for another trial"))
