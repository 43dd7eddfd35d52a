"""Keeps one warm worker for each agent, in which chat turns are played and agents describe themselves."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TypeAlias

from evaldesk.engine.driver.code_files import version_of
from evaldesk.engine.driver.worker_process import Answer, Death, Tasks, WorkerProcess, WorkerStartError
from evaldesk.engine.driver.zygote import Zygote
from evaldesk.engine.frames import Describe, Described, Failed, Fork, Happened, Speak, Stop, Talk, TurnEnded
from evaldesk.engine.launch import Launcher, launcher_of
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S
from evaldesk.errors import AgentError, BadNumberError, ConflictError
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    ErrorRecord,
    Event,
    ModelOptions,
    Prompts,
    StopReason,
    TurnRecord,
    TurnSpec,
)
from evaldesk.model.result_checks import check_prompts
from evaldesk.model.run import SharedState
from evaldesk.model.transcript import broken_turn, check_event, check_turn

MAX_WORKERS = 4


@dataclass(slots=True)
class _Turn:
    """A turn under way; `agent` is None until its worker is up."""

    key: int
    agent: AgentPlayer | None = None
    is_stopped: bool = False


class ChatPlayers:
    """Workers by agent; beyond `max_workers` the longest idle ones are closed.

    `check` raises for an agent that may not be imported. `loop_bound` has the objects of one event loop of
    agents, as turns that observe saw them.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        max_workers: int = MAX_WORKERS,
        check: Callable[[AgentRef], None] = lambda _: None,
    ) -> None:
        self.loop_bound: dict[AgentRef, str] = {}
        self._check = check
        self._environment = os.environ if environment is None else environment
        self._max_workers = max_workers
        self._players: dict[AgentRef, AgentPlayer] = {}
        self._retired: set[AgentPlayer] = set()
        self._locks: dict[AgentRef, asyncio.Lock] = {}
        self._turns: dict[str, _Turn] = {}
        self._descriptions: dict[AgentRef, tuple[str, AgentDescription]] = {}
        self._model_faults: dict[tuple[AgentRef, str, str], str] = {}
        self._tasks = Tasks()
        self._is_closed = False

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are kept."""
        return [agent.pid for agent in self._players.values()]

    async def describe(self, ref: AgentRef) -> AgentDescription:
        """The agent's description of itself; asked once for each version of its files.

        Raises AgentError with its trace.
        """
        version = await asyncio.to_thread(version_of, ref)
        entry = self._descriptions.get(ref)
        if entry and entry[0] == version:
            return entry[1]
        return (await self._describe(Describe(next_key(), ref))).description

    async def unpriced(self, ref: AgentRef, models: Sequence[str]) -> tuple[str, ...]:
        """Those of `models` without a known price where the agent is played. Raises AgentError."""
        return (await self._describe(Describe(next_key(), ref, models=tuple(models)))).unpriced

    async def model_fault(self, ref: AgentRef, model: str) -> str:
        """The reason why every call of a model would fail where the agent is played; empty where it may be called.

        Asked once for each version of the agent's files. Raises AgentError.
        """
        key = ref, await asyncio.to_thread(version_of, ref), model
        if key not in self._model_faults:
            self._model_faults[key] = (await self._describe(Describe(next_key(), ref, named_model=model))).model_fault
        return self._model_faults[key]

    async def warm(self, ref: AgentRef) -> None:
        """Start the agent's worker and import the packages of its turns. A failure is reported by the first turn."""
        with suppress(AgentError):
            await self._describe(Describe(next_key(), ref, warm=True))

    async def try_to_fork(self, ref: AgentRef) -> None:
        """Note in UNFORKED why the players of an agent are not forked, or that they are; its worker ends then.

        Raises WorkerStartError.
        """
        agent = await self._agent(ref)
        self._players.pop(ref, None)
        try:
            zygote = await agent.worker.make_zygote(Fork(next_key(), ref, None, ModelOptions()))
            if isinstance(zygote, Zygote):
                zygote.close()
        finally:
            await agent.close()

    def give_away(self, ref: AgentRef, version: str) -> WorkerProcess | None:
        """The agent's worker, from now on the caller's; None where none of that version of its files is idle."""
        agent = self._players.get(ref)
        if agent is None or agent.is_retired or agent.version != version or not agent.is_idle:
            return None
        del self._players[ref]
        return agent.worker

    async def play_turn(self, spec: TurnSpec) -> AsyncGenerator[Event | TurnRecord | Prompts, None]:
        """The events of the turn as they happen, partial ones too; at its end its Prompts, if any, and its TurnRecord.

        A failure of the agent is an error event and in the record. Leaving early stops the turn. Raises ConflictError
        when a turn of this session is under way.
        """
        if spec.session_id in self._turns:
            raise ConflictError("a turn of this session is under way; stop it first or wait for its end")
        turn = self._turns[spec.session_id] = _Turn(next_key())
        try:
            async with aclosing(self._play(spec, turn)) as items:
                async for item in items:
                    yield item
        finally:
            del self._turns[spec.session_id]
            self._tidy()

    async def stop_turn(self, session_id: str) -> None:
        """End the turn under way as cancelled; its events so far are kept. Without one, nothing."""
        turn = self._turns.get(session_id)
        if turn and not turn.is_stopped:
            turn.is_stopped = True
            if turn.agent:
                turn.agent.stop(turn.key)

    async def close(self) -> None:
        """End all workers; turns under way end with an error."""
        self._is_closed = True
        everyone = (*self._players.values(), *self._retired)
        self._players.clear()
        await asyncio.gather(*(agent.close() for agent in everyone))
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _describe(self, frame: Describe) -> Described:
        ref = frame.agent
        try:
            agent = await self._agent(ref)
        except WorkerStartError as error:
            raise AgentError(str(error), trace=error.output) from error
        async with aclosing(agent.ask(frame, LOAD_TIMEOUT_S)) as answers:
            answer = await anext(answers)
        self._tidy()
        if isinstance(answer, Described):
            self._descriptions[ref] = (agent.version, answer.description)
            return answer
        agent.is_retired = True  # so that the next look is a fresh one
        if isinstance(answer, Failed):
            raise AgentError(answer.error.message, trace=answer.error.trace)
        if isinstance(answer, Death):
            raise AgentError(answer.message, trace=answer.output)
        raise AgentError(f"the worker answered with {type(answer).__name__}")

    async def _play(self, spec: TurnSpec, turn: _Turn) -> AsyncGenerator[Event | TurnRecord | Prompts, None]:
        events: list[Event] = []
        error: ErrorRecord | None = None
        try:
            async with aclosing(self._answers(spec, turn)) as answers:
                async for answer in answers:
                    if isinstance(answer, Happened):
                        for event in answer.events:
                            check_event(event)
                            if not event.is_partial:
                                events.append(event)
                            yield event
                    elif isinstance(answer, TurnEnded):
                        check_turn(answer.record)
                        check_prompts(answer.prompts)
                        if answer.prompts:
                            yield answer.prompts.of_judges(is_wanted=False)
                        yield answer.record
                    elif isinstance(answer, Death):
                        error = ErrorRecord(answer.kind, answer.message, answer.output)
        except WorkerStartError as failed:
            error = ErrorRecord("worker_start", str(failed), failed.output)
        except BadNumberError as bad:
            error = ErrorRecord("bad_number", str(bad))
        if error:
            for item in _broken_off(spec, events, turn, error):
                yield item

    async def _answers(self, spec: TurnSpec, turn: _Turn) -> AsyncGenerator[Item, None]:
        """The worker's answer for the turn; a worker that was gone before it began is replaced once."""
        for is_last_try in (False, True):
            agent = turn.agent = await self._agent(spec.agent)
            if turn.is_stopped:
                yield Death("the turn was stopped before it began", "")
                return
            has_begun = False
            async with aclosing(agent.ask(Talk(turn.key, spec), spec.timeout_s)) as answers:
                async for answer in answers:
                    if isinstance(answer, Death) and not (has_begun or turn.is_stopped or is_last_try):
                        break
                    has_begun = True
                    if isinstance(answer, TurnEnded) and answer.loop_bound:
                        self.loop_bound[spec.agent] = SharedState(answer.loop_bound).bounded().loop_bound
                    if isinstance(answer, TurnEnded) and _is_import_error(answer.record):
                        agent.is_retired = True  # the next turn imports afresh, after any error
                    yield answer
                else:
                    return

    async def _agent(self, ref: AgentRef) -> AgentPlayer:
        """The agent's worker, started anew when its files changed. Raises WorkerStartError."""
        self._check(ref)
        async with self._locks.setdefault(ref, asyncio.Lock()):
            if self._is_closed:
                raise WorkerStartError("the desk is closing and starts no worker any more", "")
            version = await asyncio.to_thread(version_of, ref)
            agent = self._players.pop(ref, None)
            if agent and (agent.is_retired or agent.version != version):
                self._retired.add(agent)
                agent = None
            if agent is None:
                agent = AgentPlayer(version)
                await agent.start(self._environment, launcher_of(ref))
                if self._is_closed:
                    await agent.close()
                    raise WorkerStartError("the desk was closed while the worker started", "")
            self._players[ref] = agent  # put last: the order is that of use
            self._tidy(spared_ref=ref)
            return agent

    def _tidy(self, spared_ref: AgentRef | None = None) -> None:
        """Close surplus idle workers, but never that of the `spared_ref` agent."""
        idle = [ref for ref, agent in self._players.items() if agent.is_idle and ref != spared_ref]
        for ref in idle[: max(0, len(self._players) - self._max_workers)]:
            self._retired.add(self._players.pop(ref))
        for agent in [agent for agent in self._retired if agent.is_idle]:
            self._retired.discard(agent)
            self._tasks.begin(agent.close())


def _is_import_error(record: TurnRecord) -> bool:
    return record.error is not None and record.error.kind == "agent_import"


def _broken_off(spec: TurnSpec, events: list[Event], turn: _Turn, error: ErrorRecord) -> list[Event | TurnRecord]:
    """The end of a turn whose worker is gone, made of its events so far."""
    before = spec.resumed.events if spec.resumed else ()
    state = spec.resumed.state_before if spec.resumed else spec.state
    if turn.is_stopped:
        return [broken_turn(spec.message, [*before, *events], state, "cancelled")]
    reason: StopReason = "timed_out" if error.kind == "timed_out" else "error"
    record = broken_turn(spec.message, [*before, *events], state, reason, error)
    return [record.events[-1], record]


Item: TypeAlias = Answer | Death

STOP_GRACE_S = 3.0

_keys = itertools.count(1)


def next_key() -> int:
    """A key that no other question has."""
    return next(_keys)


class AgentPlayer:
    """One worker for one agent as its files were when it started (`version`)."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.is_retired = False
        self.worker = WorkerProcess(self._on_answer, self._on_death)
        self._questions: dict[int, asyncio.Queue[Item]] = {}
        self._starting: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self.worker.pid

    @property
    def is_idle(self) -> bool:
        """Whether there is no request for an answer."""
        return not self._questions

    async def start(self, environment: Mapping[str, str], launcher: Launcher) -> None:
        """Start the worker. Raises WorkerStartError."""
        await self.worker.start(environment, launcher=launcher, can_fork=launcher.can_fork)

    async def start_once(self, environment: Mapping[str, str], launcher: Launcher) -> None:
        """As `start`, for callers that may come at the same time. Raises WorkerStartError to each."""
        if self._starting is None:
            self._starting = asyncio.create_task(self.start(environment, launcher))
        try:
            await asyncio.shield(self._starting)
        except WorkerStartError:
            self.is_retired = True
            raise

    async def ask(self, frame: Describe | Speak | Talk, timeout_s: float) -> AsyncGenerator[Item, None]:
        """The answers to `frame` as they come; the last is no Happened. Leaving early stops the work."""
        queue = self._questions[frame.key] = asyncio.Queue()
        item: Item | None = None
        try:
            self.worker.send(frame, timeout_s, timeout_s if isinstance(frame, Describe) else math.inf)
            while item is None or isinstance(item, Happened):
                item = await queue.get()
                yield item
        finally:
            try:
                if item is None or isinstance(item, Happened):
                    self.stop(frame.key)
                while item is None or isinstance(item, Happened):
                    item = await queue.get()
            finally:  # a caller that is cancelled twice does not wait for the end, and must not look busy without end
                del self._questions[frame.key]

    def stop(self, key: int) -> None:
        """End the turn of that key; a worker that does not listen is killed."""
        self.worker.send(Stop(key))
        asyncio.get_running_loop().call_later(STOP_GRACE_S, self._kill_if_asked, key)

    async def close(self) -> None:
        """End the worker; pending calls get the error."""
        await self.worker.close()
        self._on_death(Death("the worker process was closed", ""))

    def _kill_if_asked(self, key: int) -> None:
        if key in self._questions:
            self.worker.kill("did not stop when asked")

    def _on_answer(self, frame: Answer) -> None:
        if getattr(frame, "is_tainted", False):
            self.is_retired = True
        queue = self._questions.get(frame.key)
        if queue:
            queue.put_nowait(frame)

    def _on_death(self, death: Death) -> None:
        self.is_retired = True
        for queue in self._questions.values():
            queue.put_nowait(death)
