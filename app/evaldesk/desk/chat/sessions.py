"""Chat sessions: kept, and played one turn at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeAlias

from evaldesk.desk.agents import AgentDesk, FoundAgent, error_record
from evaldesk.desk.chat.running_turn import RunningTurn, TurnJournal, is_turn_played, owning_turn
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model import AskedBy, Case, Decision, ErrorRecord, Event, JsonObject, Prompts, TurnRecord, TurnSpec
from evaldesk.model.decisions import fits
from evaldesk.model.draft import OWN, with_draft
from evaldesk.model.media import MAX_MEDIA_COUNT, Media, with_names
from evaldesk.model.stored import Draft, OpenTurn, SessionSummary, StoredSession
from evaldesk.model.transcript import interrupted_turn
from evaldesk.model.trial_turns import MANY_TURNS
from evaldesk.reading.strict_json import kind_of, parse_json
from evaldesk.store import Store
from evaldesk.wire import value_scrubber

log = logging.getLogger("evaldesk.chat")

MAX_MESSAGE = 200_000
MAX_TITLE = 120
RECENT_TURNS = 50
"""Turns of a long chat that its page has at first."""
PAGE_SIZE = 200
PROPOSED_TITLE = 56
TURN_TIMEOUT_S = 300.0
STOP_S = 5.0
LOOK_S = 0.3
RENEW_S = 2.0
"""The time between two renewals of a turn, which are also when it learns that another process stops it."""
ANSWERING = "This session is still answering. Wait for the answer, or stop it."
Begin: TypeAlias = Callable[[str], None]
"""Stores the turn of an owner, before it is played."""


class TurnPlayer(Protocol):
    """The part of a worker that a session desk uses."""

    def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord | Prompts]:
        """The events of the turn as they happen, then how its models were asked, if that is known, and its record."""

    async def stop_turn(self, session_id: str) -> None:
        """Make the running turn of that session end soon, as cancelled."""


class SessionDesk:
    """The chat sessions of a workspace. A turn is played to its end whether anybody watches or not."""

    def __init__(self, store: Store, agents: AgentDesk, host: TurnPlayer) -> None:
        self._store = store
        self.changed_at, self.note_case = store.sessions.changed_at, store.sessions.note_case
        self.restore = store.sessions.restore
        self._agents = agents
        self._host = host
        self._environment = agents.environment
        self._turns: dict[str, RunningTurn] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def create(self, agent_id: str, state_text: str = "", title: str = "", draft: Draft = OWN) -> StoredSession:
        """A new session with an agent. Raises NotFoundError for the agent, FormatError for the state."""
        agent = self._agents.get(agent_id)
        stored_draft = value_scrubber(self._environment)(dict(draft))
        return self._store.sessions.create(agent.id, _clean(title), parse_state(state_text), stored_draft)

    async def begin(
        self, agent_id: str, state_text: str, title: str, message: str, draft: Draft = OWN
    ) -> StoredSession:
        """A new session whose first turn has begun; without a message it waits for one.

        All of its turns are played with the instructions of `draft`. Raises as `create`, and UsageError for the
        message, before anything is stored.
        """
        message = self._check_message(message, None) if message.strip() else ""
        if message:
            self._agents.check_trust(self._agents.get(agent_id))
        session = await asyncio.to_thread(self.create, agent_id, state_text, title, draft)
        if message:
            await self._start(session, message, None, "person", (), keeps=True)
        return session

    def list(self, before: str = "", limit: int = PAGE_SIZE) -> Sequence[SessionSummary]:
        """The sessions, last used first; `before` is the id of the last one of the page before."""
        return self._store.sessions.list(before=before, limit=limit)

    def get(self, session_id: str) -> StoredSession:
        """A session with its turns; an open turn that nobody plays is the last of them. Raises NotFoundError."""
        return _with_left_turn(self._stored(session_id))

    def recent(self, session_id: str) -> StoredSession:
        """The session as `get`; of many turns the last RECENT_TURNS, and the one before them. Raises NotFoundError."""
        read = partial(self._store.sessions.recent, session_id, MANY_TURNS, RECENT_TURNS + 1)
        return _with_left_turn(_settled(read))

    def _stored(self, session_id: str) -> StoredSession:
        return _settled(partial(self._store.sessions.get, session_id))

    def turns(self, session_id: str, first: int, end: int) -> Sequence[TurnRecord]:
        """The finished turns from an index up to another. Raises NotFoundError."""
        return self._store.sessions.turns(session_id, first, end)

    def rename(self, session_id: str, title: str) -> None:
        """Give a session another title. Raises UsageError for a blank one."""
        if not _clean(title):
            raise UsageError("A session needs a title.", field="title")
        self._store.sessions.rename(session_id, _clean(title))

    def delete(self, session_id: str) -> None:
        """Put a session aside; `restore` brings it back. Raises ConflictError while a turn of it runs."""
        self._refuse_while_played(session_id)
        self._store.sessions.delete(session_id)

    def set_state(self, session_id: str, state_text: str) -> None:
        """The initial state of the next turn. Raises FormatError, and ConflictError while a turn runs."""
        state = parse_state(state_text)
        self._refuse_while_played(session_id)
        self._store.sessions.set_state(session_id, state)

    def find_running_turn(self, session_id: str) -> RunningTurn | None:
        """The turn that is being played, or None."""
        return self._turns.get(session_id)

    async def elsewhere(self, session_id: str, wait_s: float = 0.0) -> AsyncIterator[OpenTurn]:
        """The turn that another process plays, again whenever it has grown, until it is over.

        Where there is none it waits for one, up to `wait_s`.
        """
        n_seen, until = -1, asyncio.get_running_loop().time() + wait_s
        while session_id not in self._turns:
            turn = await asyncio.to_thread(self._store.sessions.open_turn, session_id)
            if turn is None or not is_turn_played(turn):
                if n_seen >= 0 or asyncio.get_running_loop().time() >= until:
                    return
            elif len(turn.events) != n_seen:
                n_seen = len(turn.events)
                yield turn
            await asyncio.sleep(LOOK_S)

    async def start_turn(
        self,
        session_id: str,
        message: str,
        model: str | None = None,
        *,
        asked_by: AskedBy = "person",
        media: Sequence[Media] = (),
    ) -> RunningTurn:
        """Store a turn and start it; it goes on when its listener leaves.

        `model` is one of the settings' models, or None for the agent's own. Raises NotFoundError for the session or
        its agent, UsageError for the message, its media or the model, ConflictError while another turn of the session
        runs.
        """
        message = self._check_message(message, model, media)
        session = await asyncio.to_thread(self._stored, session_id)
        if media:
            self._check_media(await self._agents.get_described_agent(session.agent_id), media)
        return await self._start(session, message, model, asked_by, media, keeps=True)

    async def decide(self, session_id: str, question_id: str, decisions: Sequence[Decision]) -> RunningTurn:
        """Go on with the last turn of a session, which waits for a person: one decision for each thing that waits.

        `question_id` is the `asked_of` of the turn that the person saw. Raises ConflictError when the session does not
        wait, or waits for something else by now, UsageError for a decision that cannot be made.
        """
        session = await asyncio.to_thread(self._stored, session_id)
        self._refuse_while_running(session_id)
        last_turn = session.turns[-1] if session.turns and not session.open_turn else None
        if last_turn is None or not last_turn.open_requests or question_id != asked_of(last_turn):
            raise ConflictError("This turn does not wait for that decision any more. Reload the page.")
        if len(decisions) != len(last_turn.open_requests):
            raise UsageError("Decide every waiting call.")
        for call, decision in zip(last_turn.open_requests, decisions, strict=True):
            if not fits(decision, call):
                raise UsageError(f"{call.tool} cannot be decided by {decision.decision}.")
        used_models = [usage.model for usage in last_turn.usages if usage.model in self._agents.models]
        model, asked_by = used_models[-1] if used_models else None, last_turn.asked_by or "person"
        before = replace(session, turns=session.turns[:-1])
        return await self._start(
            before, last_turn.query, model, asked_by, last_turn.media, resumed=(last_turn, decisions)
        )

    async def ask_again(self, session_id: str) -> RunningTurn:
        """Play an interrupted turn anew, from its message and the state before it.

        Raises as `start_turn`, and ConflictError when the last turn is not an interrupted one.
        """
        session = await asyncio.to_thread(self._stored, session_id)
        open_turn = session.open_turn
        if open_turn is None or is_turn_played(open_turn):
            raise ConflictError("The last turn was not interrupted, so there is nothing to ask again.")
        model = open_turn.model if open_turn.model in self._agents.models else None
        if open_turn.turn_index < len(session.turns):  # it went on after a decision: it is asked from its message
            *before, last_turn = session.turns
            session = replace(session, turns=tuple(before), state=last_turn.state_before)
        return await self._start(session, open_turn.message, model, open_turn.asked_by, open_turn.media)

    async def branch(self, session_id: str, at: int, message: str | None = None) -> RunningTurn:
        """Send the message of the turn at index `at` again, or another one, in a new session with the turns before it.

        The session itself stays as it is. Its media and its model are those of the turn. Raises NotFoundError for the
        turn, UsageError for the message.
        """
        turns = await asyncio.to_thread(self.turns, session_id, at, at + 1)
        if not turns:
            raise NotFoundError(f"this session has no finished turn {at + 1}")
        (turn,) = turns
        text = turn.query if message is None else self._check_message(message, None, turn.media)
        origin = await asyncio.to_thread(self._store.sessions.recent, session_id, 0, 0)
        self._agents.check_trust(self._agents.get(origin.agent_id))
        title = _clean(f"{origin.title or propose_title(turn.query)}, again from turn {at + 1}")
        branch = await asyncio.to_thread(self._store.sessions.branch, session_id, at, title)
        used_models = [usage.model for usage in turn.usages if usage.model in self._agents.models]
        return await self._start(branch, text, used_models[-1] if used_models else None, "person", turn.media)

    async def _start(
        self,
        stored_session: StoredSession,
        message: str,
        model: str | None,
        asked_by: AskedBy,
        media: Sequence[Media],
        *,
        keeps: bool = False,
        resumed: tuple[TurnRecord, Sequence[Decision]] | None = None,
    ) -> RunningTurn:
        """Start a turn after those of the session; an interrupted one is kept before it, or goes.

        A `resumed` turn goes on by these decisions.
        """
        session = _with_left_turn(stored_session) if keeps else replace(stored_session, open_turn=None)
        session_id = session.id
        agent = self._agents.get(session.agent_id)
        self._agents.check_trust(agent)
        self._refuse_while_running(session_id)
        references = tuple(item.held() for item in media)
        earlier, decisions = resumed or (None, ())
        n_turns = len(session.turns)
        before = earlier.state_before if earlier else session.state
        turn = RunningTurn(session_id, n_turns, message, before, asked_by=asked_by, media=references, earlier=earlier)
        media_with_bytes, turns = await asyncio.to_thread(self._with_bytes, media, session.turns)
        spec = TurnSpec(
            session_id=session_id,
            agent=agent.ref,
            message=message,
            state=session.state,
            turns=turns,
            app_name=agent.id,
            model=model or None,
            model_options=with_draft(self._agents.model_options, session.draft),
            limits=self._agents.limits,
            timeout_s=self._agents.limits.turn_timeout_s or TURN_TIMEOUT_S,
            media=media_with_bytes,
            keeps_prompts=self._agents.keeps_prompts,
            resumed=earlier,
            decisions=tuple(decisions),
        )
        is_left = stored_session.open_turn is not None and session.open_turn is None
        kept_turn = session.turns[-1] if keeps and is_left else None
        left_owner = stored_session.open_turn.owner if stored_session.open_turn and is_left else ""
        stored_message = value_scrubber(self._environment)(message)

        def begin(owner: str) -> None:
            now = datetime.now(UTC)
            row = OpenTurn(turn.turn_index, owner, stored_message, model or "", asked_by, now, media=media_with_bytes)
            title = propose_title(stored_message or with_names("", references))
            self._store.sessions.begin_turn(
                session_id, row, title=title, orphan_owner=left_owner, finished_turn=kept_turn, open_record=earlier
            )

        self._turns[session_id] = turn
        storing = asyncio.get_running_loop().create_future()
        self._tasks[session_id] = asyncio.create_task(self._play(turn, spec, begin, storing))
        await asyncio.shield(storing)
        return turn

    async def stop(self, session_id: str) -> None:
        """Make the running turn of a session end, whichever process plays it; nothing happens when there is none."""
        if session_id in self._turns:
            await self._host.stop_turn(session_id)
        else:
            await asyncio.to_thread(self._store.sessions.ask_to_stop, session_id)

    async def close(self) -> None:
        """Stop every running turn and wait until each is stored."""
        tasks = list(self._tasks.values())
        if not tasks:
            return
        await asyncio.gather(*(self._host.stop_turn(key) for key in self._turns), return_exceptions=True)
        _, unfinished_tasks = await asyncio.wait(tasks, timeout=STOP_S)
        for task in unfinished_tasks:
            task.cancel()
        await asyncio.gather(*unfinished_tasks, return_exceptions=True)

    async def _play(self, turn: RunningTurn, spec: TurnSpec, begin: Begin, storing: asyncio.Future[None]) -> None:
        """Store the turn, play it, and store its record; `storing` gets the result of the first step."""
        sessions = self._store.sessions
        with owning_turn() as owner:
            try:
                await asyncio.to_thread(begin, owner)
                storing.set_result(None)
                journal = TurnJournal(sessions, turn, owner)
                keeping = asyncio.create_task(self._keep(turn.session_id, owner))
                try:
                    result, prompts = await self._record(turn, spec, journal)
                finally:
                    keeping.cancel()
                record = replace(result, asked_by=turn.asked_by, media=turn.media)
                await asyncio.to_thread(sessions.append_turn, turn.session_id, record, owner=owner, prompts=prompts)
            except Exception as error:  # the listeners of the turn get the error; the session goes on
                if not storing.done():
                    storing.set_exception(error)
                turn.fail(error)
            else:
                journal.show(len(journal.unseen))
                turn.finish(record)
            finally:
                if not storing.done():
                    storing.cancel()
                self._turns.pop(turn.session_id, None)
                self._tasks.pop(turn.session_id, None)

    async def _keep(self, session_id: str, owner: str) -> None:
        """Renew the turn until this is cancelled; stop it once another process asks for that, or took it over."""
        is_refused = False
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                is_over = await asyncio.to_thread(self._store.sessions.renew_turn, session_id, owner)
                is_refused = False
            except ConflictError:
                is_over = True
            except WorkspaceError as error:
                if not is_refused:
                    log.warning("a turn cannot be renewed, which is tried again: %s", error)
                is_refused = True
                continue
            if is_over:
                await self._host.stop_turn(session_id)

    async def _record(
        self, turn: RunningTurn, spec: TurnSpec, journal: TurnJournal
    ) -> tuple[TurnRecord, Prompts | None]:
        """Play the turn to its end; there is always a record of it."""
        record: TurnRecord | None = None
        prompts: Prompts | None = None
        scrubbed = value_scrubber(self._environment)
        writing = asyncio.create_task(journal.write())
        try:
            async for item in self._host.play_turn(spec):
                if isinstance(item, TurnRecord):
                    record = scrubbed(item)
                elif isinstance(item, Prompts):
                    prompts = scrubbed(item)
                else:
                    journal.take(scrubbed(item))
        except asyncio.CancelledError:
            return turn.broken_off(None, journal.unseen), prompts
        except Exception as error:  # the user's agent is not ours: any exception becomes a value
            return turn.broken_off(scrubbed(error_record(error)), journal.unseen), prompts
        finally:
            writing.cancel()
        worker_error = ErrorRecord("worker", "the agent's process ended before the turn did")
        return record or turn.broken_off(worker_error, journal.unseen), prompts

    def _check_media(self, agent: FoundAgent, media: Sequence[Media]) -> None:
        misfit = next((item for item in media if item.kind not in agent.takes), None)
        if misfit:
            accepted_kinds = " and ".join(agent.takes) or "text only"
            raise UsageError(f"{agent.name} takes {accepted_kinds}, and {misfit.title()} is neither.", field="media")

    def whole_case(self, case: Case) -> Case:
        """The case with the bytes of its media, which a session holds."""
        with_bytes = self._store.media.with_bytes
        return replace(
            case,
            turns=tuple(replace(turn, media=with_bytes(turn.media)) if turn.media else turn for turn in case.turns),
        )

    def _with_bytes(
        self, media: Sequence[Media], turns: tuple[TurnRecord, ...]
    ) -> tuple[tuple[Media, ...], tuple[TurnRecord, ...]]:
        """The media of a message, and the turns before it, with their bytes for the agent."""
        with_bytes, turns = self._store.media.with_bytes, self._store.media.results_whole(turns)
        return with_bytes(media), tuple(
            replace(turn, media=with_bytes(turn.media)) if turn.media else turn for turn in turns
        )

    def _check_message(self, message: str, model: str | None, media: Sequence[Media] = ()) -> str:
        message = message.replace("\r\n", "\n").strip()
        if not message and not media:
            raise UsageError("A message needs text or a file.", field="message")
        if len(media) > MAX_MEDIA_COUNT:
            raise UsageError(f"A message takes at most {MAX_MEDIA_COUNT} files.", field="media")
        if len(message) > MAX_MESSAGE:
            raise UsageError(f"The message has {len(message):,} characters; at most {MAX_MESSAGE:,}.", field="message")
        if model and model not in self._agents.models:
            raise UsageError(f"{model!r} is not among the models of the settings.", field="model")
        return message

    def _refuse_while_running(self, session_id: str) -> None:
        if session_id in self._turns:
            raise ConflictError(ANSWERING)

    def _refuse_while_played(self, session_id: str) -> None:
        self._refuse_while_running(session_id)
        if self.get(session_id).open_turn:
            raise ConflictError(ANSWERING)


def _settled(read: Callable[[], StoredSession]) -> StoredSession:
    """A session as it is read; its open turn is played, or was left by the process that played it.

    A turn can end after it was read as open and before its player is asked for: then it is read again.
    """
    session = read()
    while session.open_turn is not None and not is_turn_played(session.open_turn):
        left_owner, session = session.open_turn.owner, read()
        if session.open_turn is not None and session.open_turn.owner == left_owner:
            break
    return session


def _with_left_turn(session: StoredSession) -> StoredSession:
    """The session with an open turn that nobody plays any more as its last turn, which is interrupted."""
    open_turn = session.open_turn
    if open_turn is None or is_turn_played(open_turn):
        return session
    at = open_turn.turn_index - session.first
    before, after = session.turns[:at], session.turns[at:]
    events = (*(event for turn in after for event in turn.events), *open_turn.events)  # a turn that went on has some
    record = interrupted_turn(open_turn.message, events, session.state, open_turn.asked_by)
    state_before = after[0].state_before if after else record.state_before
    record = replace(record, state_before=state_before, media=open_turn.media)
    return replace(session, turns=(*before, record), open_turn=None)


def asked_of(turn: TurnRecord) -> str:
    """A fingerprint of the open requests of a turn; it differs once the turn went on."""
    return f"{len(turn.events)}-{len(turn.open_requests)}"


def parse_state(text: str) -> JsonObject:
    """The session state that a person typed; nothing typed is the empty one.

    Raises FormatError with line and column, both from 1, where the text is not JSON.
    """
    if not text.strip():
        return {}
    value = parse_json(text.encode("utf-8", "replace"), source="").value
    if not isinstance(value, dict):
        raise FormatError(f'The state must be an object such as {{"key": "value"}}, not {kind_of(value)}')
    return value


def propose_title(message: str) -> str:
    """The beginning of a message, cut at a word, as the title of its session."""
    words = " ".join(message.split())
    if len(words) <= PROPOSED_TITLE:
        return words
    head = words[: PROPOSED_TITLE - 1]
    return (head.rsplit(" ", 1)[0] if " " in head[20:] else head).rstrip(" ,;:.") + "…"


def _clean(title: str) -> str:
    return " ".join(title.split())[:MAX_TITLE].rstrip()
