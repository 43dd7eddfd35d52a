"""Work on chat sessions and on what an agent says of itself, as a worker does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from evaldesk.agents.agent import close_kept
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import Describe, Described, Failed, FromWorker, Happened, Talk, TurnEnded
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S, Attempt
from evaldesk.engine.worker.loading import described, load, load_ready
from evaldesk.engine.worker.output import CURRENT_LOG, without_env_secrets
from evaldesk.engine.worker.player import play_turn, timed_out
from evaldesk.engine.worker.turn import OpenTurn, cut
from evaldesk.engine.worker.work import MAX_RESULT
from evaldesk.llm import price
from evaldesk.model import AgentDescription, ErrorRecord, Event, Session, TurnRecord
from evaldesk.wire import to_json

MAX_SESSIONS = 200

Send: TypeAlias = Callable[[FromWorker], None]

# What adapters remember of each session, the longest unused first; it lives as long as the process.
_memories: dict[str, dict[str, object]] = {}


class TurnWork:
    """Plays one turn of a chat session; the adapter's memory of the session lives as long as this process."""

    def __init__(self, frame: Talk, send: Send) -> None:
        self._frame = frame
        self._send = send
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Play the turn, telling each event as it happens."""
        CURRENT_LOG.set(self.attempt.log)
        spec = self._frame.spec
        self.attempt.begin("load", LOAD_TIMEOUT_S)
        session = self._session()
        try:
            agent = load_ready(spec.agent, spec.model, spec.model_options)
        except BaseException as error:
            return self._failed(failure(error, "agent_import"))
        self.attempt.begin("play", spec.timeout_s)
        record = await play_turn(agent, session, spec.message, attempt=self.attempt, show=self._show)
        return self._ended(record)

    def given_up(self, place: str) -> bytes:
        """The turn as far as it came."""
        if self.attempt.stop == "cancelled":
            turns = self.attempt.transcript().turns
            return self._ended(turns[-1], is_tainted=True) if turns else self._failed(None, is_tainted=True)
        timeout = timed_out(self.attempt.timeout_s, place)
        turns = self.attempt.transcript(timeout).turns
        if not turns:
            error = ErrorRecord("agent_import", f"not imported within {self.attempt.timeout_s:g} s", place)
            return self._failed(error, is_tainted=True)
        self._show(turns[-1].events[-1])
        return self._ended(turns[-1], is_tainted=True)

    def broken(self, error: BaseException | None) -> bytes:
        """A turn in which nothing happened but this."""
        return self._failed(failure(error, "engine") if error else None)

    def _session(self) -> Session:
        spec = self._frame.spec
        memory = _memories.pop(spec.session_id, {})
        _memories[spec.session_id] = memory
        while len(_memories) > MAX_SESSIONS:
            close_kept(_memories.pop(next(iter(_memories)), {}))
        return Session(
            id=spec.session_id,
            state=dict(spec.state),
            turns=list(spec.turns),
            app_name=spec.app_name,
            user_id=spec.user_id,
            model=spec.model,
            model_options=spec.model_options,
            limits=spec.limits,
            seed=spec.seed,
            is_streaming=True,
            memory=memory,
        )

    def _show(self, event: Event) -> None:
        self._send(Happened(self._frame.key, (without_env_secrets(event),)))

    def _failed(self, error: ErrorRecord | None, *, is_tainted: bool = False) -> bytes:
        spec = self._frame.spec
        session = Session(id=spec.session_id, state=dict(spec.state))
        turn = OpenTurn(session, spec.message, self.attempt.clock, self._show)
        if error:
            turn.fail(error)
        return self._ended(turn.record("error" if error else "cancelled"), is_tainted=is_tainted)

    def _ended(self, record: TurnRecord, *, is_tainted: bool = False) -> bytes:
        printed = self.attempt.log.text()
        if printed:
            event = Event("log", at_ms=record.duration_ms, author="output", text=printed)
            self._show(event)
            record = replace(record, events=(*record.events, event))
        record = without_env_secrets(record)
        frame = to_json(TurnEnded(self._frame.key, record, is_tainted))
        if len(frame) > MAX_RESULT:
            frame = to_json(TurnEnded(self._frame.key, cut(record, 1_000), is_tainted))
        return frame


class DescribeWork:
    """Imports an agent and asks what it is."""

    def __init__(self, frame: Describe) -> None:
        self._frame = frame
        self.attempt = Attempt()

    async def run(self) -> bytes:
        """Describe; where it is asked to be warm, import what the turns need first."""
        CURRENT_LOG.set(self.attempt.log)
        self.attempt.begin("load", LOAD_TIMEOUT_S)
        try:
            agent = (load_ready if self._frame.warm else load)(self._frame.agent)
            description = _without_secrets(described(agent, self._frame.agent))
            unpriced = tuple(model for model in self._frame.models if price(model, 1, 1) is None)
        except BaseException as error:
            return to_json(Failed(self._frame.key, without_env_secrets(failure(error, "agent_import"))))
        return to_json(Described(self._frame.key, description, unpriced))

    def given_up(self, place: str) -> bytes:
        """An agent whose import does not end."""
        error = ErrorRecord("agent_import", f"not imported within {self.attempt.timeout_s:g} s", place)
        return to_json(Failed(self._frame.key, error, is_tainted=True))

    def broken(self, error: BaseException | None) -> bytes:
        """An agent that cannot be described."""
        record = failure(error, "engine") if error else ErrorRecord("cancelled", "the description was cancelled")
        return to_json(Failed(self._frame.key, record))


def _without_secrets(description: AgentDescription) -> AgentDescription:
    """The description as it may leave this process; the names of variables are no values of them."""
    to_json(description)
    return replace(without_env_secrets(replace(description, variables=())), variables=description.variables)
