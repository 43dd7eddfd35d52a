"""Further plays of a recorded conversation, which show the values that change each time.

Earlier sessions and trials with the same messages are compared, and the conversation is played again in the chat's own
player. Nothing of a replay is stored: it is a look at the agent, and the run that follows has the trials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, takewhile
from uuid import uuid4

from evaldesk.desk.agents import AgentDesk, error_record
from evaldesk.desk.chat.sessions import TURN_TIMEOUT_S, TurnPlayer
from evaldesk.diff.repetition import ChangingPlace, changing_places
from evaldesk.errors import EvaldeskError
from evaldesk.matching import json_equal
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case, Transcript, TurnRecord, TurnSpec
from evaldesk.model.evalset import DECISIONS
from evaldesk.model.transcript import known_sum
from evaldesk.store import Store
from evaldesk.transcripts.adk import kept_state
from evaldesk.wire import value_scrubber

N_REPLAYS = 2
CHEAP_COST = 0.02
"""Dollars of a conversation that is played again without being asked for."""
QUICK_MS = 30_000.0
# Not stored, and started unasked only where it is cheap: decision 504.
MAX_TURNS = 20
MAX_SESSIONS = 200
MAX_RUNS = 10
MAX_CASES = 100
MAX_PLAYS = 10
MAX_REMEMBERED = 64


@dataclass(slots=True)
class Replays:
    """The further plays of one conversation: `earlier` ones of the store, and `new_plays` of `n` that were started.

    `error` is why a replay broke off, `cost` in dollars is None where it is not known.
    """

    earlier: tuple[Transcript, ...] = ()
    n: int = 0
    new_plays: list[Transcript] = field(default_factory=list)
    n_ended: int = 0
    error: str = ""

    @property
    def is_running(self) -> bool:
        """Whether a replay is under way."""
        return self.n_ended < self.n

    @property
    def plays(self) -> tuple[Transcript, ...]:
        """All plays to compare with."""
        return (*self.earlier, *self.new_plays)

    @property
    def cost(self) -> float | None:
        """The cost of the replays."""
        usages = [usage for play in self.new_plays for turn in play.turns for usage in turn.usages]
        return known_sum(usage.cost for usage in usages) if usages else 0.0


class ReplayDesk:
    """The replays of conversations that are added as cases, and of the cases that were made of them."""

    def __init__(self, store: Store, agents: AgentDesk, host: TurnPlayer) -> None:
        self._store = store
        self._agents = agents
        self._host = host
        self._scrubbed = value_scrubber(agents.environment)
        self._replays: dict[str, Replays] = {}
        self._of_cases: dict[tuple[str, str], tuple[str, float | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self, case: Case, agent_id: str, session_id: str = "") -> Replays:
        """The replays of the conversation of the case; earlier plays are looked for once. Reads the store."""
        key = _key(case, agent_id)
        if key not in self._replays:
            while len(self._replays) >= MAX_REMEMBERED:
                self._replays.pop(next(iter(self._replays)))
            self._replays[key] = Replays(tuple(islice(self._earlier(case, agent_id, session_id), MAX_PLAYS)))
        return self._replays[key]

    def start(self, case: Case, agent_id: str, n: int = N_REPLAYS) -> str:
        """Play the conversation `n` times more in the background; gives the reason where that cannot be.

        Nothing is started while replays of it are under way.
        """
        replays = self._replays.setdefault(_key(case, agent_id), Replays())
        if reason := unplayable_reason(case):
            return reason
        if replays.is_running:
            return ""
        try:
            agent = self._agents.get(agent_id)
            self._agents.check_trust(agent)
        except EvaldeskError as error:
            return str(error)
        replays.error = ""
        replays.n += n
        task = asyncio.create_task(self._play_all(case, agent_id, replays, n))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ""

    def note_case(self, case: Case, agent_id: str, place: tuple[str, str], recorded_at: float | None) -> None:
        """Remember that the case at `place`, its eval set and key, was made of the conversation."""
        self._of_cases.pop(place, None)
        self._of_cases[place] = (_key(case, agent_id), recorded_at)

    def keys_of_set(self, evalset_id: str) -> list[str]:
        """The keys of the cases of the set that were made of conversations, the newest first."""
        return [key for set_id, key in reversed(self._of_cases) if set_id == evalset_id]

    def of_case(self, place: tuple[str, str], case: Case) -> tuple[Replays, Sequence[ChangingPlace]] | None:
        """The replays of a case that was added, and the changing values that it asserts still; None without any."""
        key, recorded_at = self._of_cases.get(place, ("", None))
        replays = self._replays.get(key)
        if replays is None or not replays.n:
            return None
        plays = [play for play in replays.new_plays if _n_common(case, play) == len(case.turns)]
        return replays, [each for each in changing_places(case, plays, recorded_at=recorded_at) if each.others]

    async def close(self) -> None:
        """Stop the replays under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # One after the other: two at once have an event loop each in the one process of the chat, and an agent that holds
    # a client of one loop would answer otherwise than it does. (decision 504)
    async def _play_all(self, case: Case, agent_id: str, replays: Replays, n: int) -> None:
        for _ in range(n):
            await self._play(case, agent_id, replays)

    async def _play(self, case: Case, agent_id: str, replays: Replays) -> None:
        try:
            replays.new_plays.append(self._scrubbed(await self._transcript(case, agent_id)))
        except EvaldeskError as error:
            replays.error = str(error)
        except Exception as error:  # the user's agent is not ours: any exception becomes a sentence
            replays.error = error_record(error).message
        finally:
            replays.n_ended += 1

    async def _transcript(self, case: Case, agent_id: str) -> Transcript:
        """A play of all turns of the case from its first state. Raises EvaldeskError for one that breaks off."""
        agent, limits = self._agents.get(agent_id), self._agents.limits
        turns: tuple[TurnRecord, ...] = ()
        state, session = case.initial_state, case.initial_session
        session_id = f"replay-{uuid4().hex}"
        for number, turn in enumerate(case.turns, 1):
            spec = TurnSpec(
                session_id=session_id,
                agent=agent.ref,
                message=turn.query,
                state=state,
                turns=turns,
                app_name=agent.id,
                user_id=(session.user_id if session else "") or "user",
                model_options=self._agents.model_options,
                limits=limits,
                timeout_s=limits.turn_timeout_s or TURN_TIMEOUT_S,
                media=await asyncio.to_thread(self._store.media.with_bytes, turn.media) if turn.media else (),
            )
            record = None
            async for item in self._host.play_turn(spec):
                record = item if isinstance(item, TurnRecord) else record
            if record is None or record.error or record.stop_reason != "answered":
                reason = record.error.message if record and record.error else record.stop_reason if record else "no end"
                raise EvaldeskError(f"turn {number} of a replay ended with: {reason}")
            turns, state = (*turns, record), record.state_after
        return Transcript(turns)

    def _earlier(self, case: Case, agent_id: str, session_id: str) -> Iterator[Transcript]:
        """The sessions and trials of the agent that begin with the same messages and the same state."""
        sessions = self._store.sessions
        for summary in sessions.list(limit=MAX_SESSIONS):
            if summary.agent_id == agent_id and summary.id != session_id and 0 < summary.n_turns <= MAX_TURNS:
                play = Transcript(sessions.turns(summary.id, 0, len(case.turns)))
                if n_turns := _n_common(case, play):
                    yield Transcript(play.turns[:n_turns])
        for run in self._store.runs.list(agent_id=agent_id, limit=MAX_RUNS):
            if run.n_cases > MAX_CASES:
                continue
            for row in self._store.runs.case_rows(run.id, limit=MAX_CASES):
                other = self._store.runs.case(run.id, row.case_index)
                if other.turns and case.turns and other.turns[0].query == case.turns[0].query:
                    keys = [(row.case_index, index) for index in range(min(len(row.verdicts), MAX_PLAYS))]
                    for trial in self._store.runs.trials(run.id, keys).values():
                        if n_turns := _n_common(case, trial.transcript):
                            yield Transcript(trial.transcript.turns[:n_turns])


def unplayable_reason(case: Case) -> str:
    """Why a conversation cannot be played again; empty where it can."""
    if case.extra.get(DECISIONS):
        return "A person decided in this conversation, so it is not played again here. Its run plays the decisions."
    if not case.turns:
        return "No turn is finished."
    return f"It has more than {MAX_TURNS} turns." if len(case.turns) > MAX_TURNS else ""


def is_cheap(records: Sequence[TurnRecord]) -> bool:
    """Whether a conversation costs so little money and time that it is played again unasked; replayed calls are free.

    One without a seen model call is cheap where it was quick.
    """
    usages = [usage for record in records for usage in record.usages]
    duration_ms = sum(record.duration_ms for record in records)
    if not records or duration_ms > QUICK_MS:
        return False
    if not usages:
        return duration_ms <= QUICK_MS / 10
    cost = known_sum(0.0 if usage.is_replayed else usage.cost for usage in usages)
    return cost is not None and cost <= CHEAP_COST


def seconds_of(instant: datetime | None) -> float | None:
    """The time in seconds since 1970."""
    return instant.timestamp() if instant else None


def _key(case: Case, agent_id: str) -> str:
    """The name of a conversation: its agent, its messages and its first state."""
    turns = tuple(replace(turn, expected=type(turn.expected)(), rubrics=(), extra={}) for turn in case.turns)
    plain = Case("", turns, initial_session=case.initial_session and replace(case.initial_session, extra={}))
    return f"{agent_id} {case_version(plain)}"


def _n_common(case: Case, play: Transcript) -> int:
    """The finished turns that a play has in common with the case; 0 where it started from another state."""
    if not play.turns or not json_equal(kept_state(play.turns[0].state_before), kept_state(case.initial_state)):
        return 0
    pairs = zip(case.turns, play.turns, strict=False)
    return len([*takewhile(lambda pair: pair[0].query == pair[1].query and _is_finished(pair[1]), pairs)])


def _is_finished(record: TurnRecord) -> bool:
    return record.stop_reason == "answered" and not record.error
