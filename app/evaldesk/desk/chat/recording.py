"""A chat session as a case: the proposed turns, the proposed name, and the assertions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile

from evaldesk.desk.chat.replays import is_cheap
from evaldesk.desk.evalsets.names import free_name, slug
from evaldesk.diff.state import state_diff
from evaldesk.matching import json_equal
from evaldesk.model import Case, Decision, Expected, JsonObject, SessionInit, ToolCall, Turn, TurnRecord
from evaldesk.model.decisions import ScriptedDecision, with_decisions
from evaldesk.model.stored import StoredSession
from evaldesk.transcripts.adk import kept_state

LEFT_OUT = {
    "error": "the agent did not finish this turn: it ended in an error",
    "timed_out": "the agent did not finish this turn: its time was up",
    "interrupted": "Evaldesk ended before the agent had answered",
    "unanswered": "no answer of the agent is stored for this turn",
    "cancelled": "this turn was stopped before the agent answered",
    "awaiting_approval": "the agent waited for a decision of a person and had not answered",
    "max_turns": "the agent was stopped: it called tools until the limit and never answered",
    "max_iterations": "the agent was stopped: it called tools until the limit and never answered",
    "stuck": "the agent was stopped in a loop and never answered",
    "context_window": "the agent filled the context window of its model and never answered",
    "budget": "the agent used up its budget and never answered",
    "content_filter": "a content filter refused the agent's request, so that it never answered",
    "usage_limit": "the agent reached a usage limit of its author and never answered",
    "refused_by_model": "the model refused to answer",
    "refused_by_guardrail": "a guardrail of the agent refused this turn",
}
MAX_NAMED = 10


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn of a session as a turn of a case; `why_left_out` is empty when it is proposed.

    `decisions` are a person's decisions in it, `edited_keys` the keys of the state that a person changed before it. A
    turn that `hides_calls` showed its answer alone.
    """

    turn: Turn
    why_left_out: str = ""
    decisions: tuple[Decision, ...] = ()
    edited_keys: tuple[str, ...] = ()
    hides_calls: bool = False

    @property
    def warning(self) -> str:
        """The parts of a session that a trial cannot repeat or that were not seen; empty without any."""
        sentences = []
        if self.edited_keys:
            names = _join_names(self.edited_keys)
            sentences.append(f"You changed {names} of the state before this turn. A trial does not do that.")
        if self.hides_calls:
            sentences.append("Only the answer of this turn was seen, so its calls are not expected.")
        return " ".join(sentences)


@dataclass(frozen=True, slots=True)
class Recording:
    """The proposal for adding a session to an eval set. `final_state` has only the keys that the agent alone changed.

    `unknown_start` are the keys whose value before turn 1 was not kept. `start_time` of the first turn is in seconds
    since 1970, None where it was not noted. A session that `is_cheap` is played again
    unasked.
    """

    case_id: str
    app_name: str
    user_id: str
    turns: tuple[RecordedTurn, ...]
    initial_state: JsonObject
    final_state: JsonObject
    unknown_start: tuple[str, ...] = ()
    recorded_at: datetime | None = None
    start_time: float | None = None
    is_cheap: bool = False

    @property
    def playable_case(self) -> Case:
        """The proposed case up to its first unfinished turn; without the final state where that came later."""
        finished = [*takewhile(lambda each: not each.why_left_out, self.turns)]
        is_end = all(each.why_left_out for each in self.turns[len(finished) :])
        case = self.case
        return replace(
            case, turns=case.turns[: len(finished)], final_state=case.final_state if is_end and finished else None
        )

    @property
    def initial_hint(self) -> str:
        """The proposed initial state, and notes on its gaps."""
        hint = "State before turn 1. Each trial starts from a copy."
        if not self.unknown_start:
            return hint
        return f"{hint} ADK keeps no first value of keys that a turn changed: {_join_names(self.unknown_start)}."

    @property
    def final_hint(self) -> str:
        """Which keys the proposed final state has."""
        turn_numbers = [index for index, turn in enumerate(self.turns, 1) if not turn.why_left_out]
        condition = "changed, and that you did not edit," if any(each.edited_keys for each in self.turns) else "changed"
        return f"Only the keys that {condition} by turn {turn_numbers[-1]}." if turn_numbers else "No turn is finished."

    @property
    def case(self) -> Case:
        """The proposed case, with the turns that are left out as well."""
        case = Case(
            id=self.case_id,
            turns=tuple(each_turn.turn for each_turn in self.turns),
            initial_session=SessionInit(self.app_name, self.user_id, self.initial_state),
            final_state=self.final_state or None,
        )
        decisions = ((index, each) for index, each_turn in enumerate(self.turns) for each in each_turn.decisions)
        return with_decisions(case, [ScriptedDecision(decision, index) for index, decision in decisions])


def record_session(session: StoredSession, *, app_name: str, used_ids: Container[str] = ()) -> Recording:
    """The proposal of `session` for an eval set whose case ids are `used_ids`."""
    states = (session.initial_state, *(record.state_after for record in session.turns))
    turns = tuple(map(_record_turn, session.turns, states))
    n_kept = max((index for index, turn in enumerate(turns, 1) if not turn.why_left_out), default=0)
    changes, edited_keys = (
        changed_keys(states[0], states[n_kept]),
        {key for turn in turns[:n_kept] for key in turn.edited_keys},
    )
    return Recording(
        case_id=propose_case_id(session.title, session.turns[0].query if session.turns else "", used_ids),
        app_name=app_name,
        user_id="user",
        turns=turns,
        initial_state=session.initial_state,
        recorded_at=session.updated_at,
        start_time=session.turns[0].start_time if session.turns else None,
        is_cheap=is_cheap(session.turns),
        final_state=kept_state({key: changes[key] for key in changes if key not in edited_keys}),
    )


def propose_case_id(title: str, first_message: str, used_ids: Container[str]) -> str:
    """The session's title as a name, or its first message where it has none; free among `used_ids`."""
    return free_name(slug(title or first_message, default="session"), used_ids)


def _join_names(keys: Sequence[str]) -> str:
    return ", ".join(keys[:MAX_NAMED]) + (", …" if len(keys) > MAX_NAMED else "")


def changed_keys(before: JsonObject, after: JsonObject) -> JsonObject:
    """The top-level keys of `after` that are new or have another value than in `before`."""
    return {key: value for key, value in after.items() if key not in before or not json_equal(before[key], value)}


def _record_turn(record: TurnRecord, before: JsonObject) -> RecordedTurn:
    edited_keys = tuple(change.key for change in state_diff(before, record.state_before))
    # A call's id is new each time: it is no part of an expectation.
    calls = None if record.known_calls is None else tuple(ToolCall(call.name, call.args) for call in record.known_calls)
    decisions = tuple(event.decision for event in record.events if event.kind == "decision" and event.decision)
    reason = LEFT_OUT.get(record.stop_reason, "") or (LEFT_OUT["error"] if record.error else "")
    if reason:
        # The missing events of an interrupted turn are no expectation.
        turn = Turn(record.query, Expected(tool_calls=calls or None), media=record.media)
        return RecordedTurn(turn, reason, decisions, edited_keys, record.hides_calls)
    expectation = Expected(tool_calls=calls, intermediate=record.intermediate, reference=record.answer or None)
    return RecordedTurn(
        Turn(record.query, expectation, media=record.media), "", decisions, edited_keys, record.hides_calls
    )
