"""The turns of a trial that can be forked, and the reasons against the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from evaldesk.agents import AGENTS
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, JsonValue, TrialResult, TurnRecord
from evaldesk.model.fork import ForkPoint, model_calls_of
from evaldesk.model.options import Recording
from evaldesk.store.runs.run_store import is_imported_agent

_NO_JSON = re.compile(
    r"<[\w.]+(?: object)? at 0x[0-9a-f]+>|<class '[\w.]+'>|<function .+ at 0x[0-9a-f]+>"
    r"|… nested deeper than \d+ levels|… more than \d+ parts|… an integer of \d+ bits"
)
"""Texts that stand for values outside of JSON in a recorded state."""
_CUT = re.compile(r"… \(\d[\d,]* more characters(?: were cut)?\)\Z|\A… \d+ events left out …\Z")
"""The end of a text that was cut, and the event in place of events that were left out."""


def check_point(point: ForkPoint, result: TrialResult, agent: AgentRef, *, tells_state: bool) -> None:
    """Raise UsageError for a point that the agent cannot be played on from, with the nearest one that it can be."""
    turns = result.transcript.turns
    if not turns:
        raise UsageError(f"{_trial_words(point)} has no turn, so there is nothing to play on from", field="turn")
    if not 1 <= point.turn <= len(turns):
        nearest = 1 if point.turn < 1 else len(turns)
        n = f"{len(turns):,} turns" if len(turns) > 1 else "1 turn"
        raise UsageError(f"{_trial_words(point)} has {n}; {_nearest(nearest)}", field="turn")
    reasons = [*_reasons(point.turn, turns, agent, tells_state=tells_state)]
    if reasons:
        usable = (
            turn
            for turn in range(point.turn - 1, 0, -1)
            if not any(_reasons(turn, turns, agent, tells_state=tells_state))
        )
        nearest = next(usable, 0)
        words = _nearest(nearest) if nearest else "no turn of this trial can be forked"
        raise UsageError(f"turn {point.turn}: {reasons[0]}; {words}", field="turn")


def check_call(point: ForkPoint, result: TrialResult, agent: AgentRef, recording: Recording) -> None:
    """Raise UsageError for a model call before which the agent cannot be played on; the turn itself can be forked.

    `recording` is that of the trial: calls before the point are answered from it.
    """
    call, turn = point.call or 0, result.transcript.turns[point.turn - 1]
    n_calls = model_calls_of(turn)
    place = f"call {call} of turn {point.turn}"
    kind = AGENTS.find(agent.kind)
    if not 1 <= call <= n_calls:
        counts = "has no model call" if not n_calls else f"has {n_calls:,} model call{'s'[: n_calls != 1]}"
        raise UsageError(f"{place}: the turn {counts}; {_nearest(point.turn)}", field="call")
    if call == 1:
        return
    if recording.mode == "off" or is_imported_agent(agent):
        reason = "the model calls of this trial were not recorded; a run with recording = 'record' keeps them"
    elif kind is not None and not kind.can_replay(agent):
        reason = f"a recording does not see the model calls of {kind.title}"
    elif not recording.tools and any(event.kind == "tool_result" for event in turn.own_events):
        reason = "the results of its tools were not recorded"
    else:
        return
    raise UsageError(f"{place}: {reason}; {_nearest(point.turn)}", field="call")


def can_fork(turn: int, result: TrialResult, agent: AgentRef, *, tells_state: bool) -> bool:
    """Whether a trial can be played on from before this turn."""
    turns = result.transcript.turns
    return 1 <= turn <= len(turns) and not any(_reasons(turn, turns, agent, tells_state=tells_state))


def _reasons(turn: int, turns: Sequence[TurnRecord], agent: AgentRef, *, tells_state: bool) -> Iterator[str]:
    """Why the trial cannot be played on from before this turn, counted from 1; nothing where it can be."""
    yield from _state_reasons(turns[turn - 1].state_before)
    if turn == 1:
        return
    kind = AGENTS.find(agent.kind)
    if kind is not None and not kind.takes_history:
        yield f"agents of {kind.title} keep their history themselves, and cannot be given the turns before"
    if not tells_state:
        yield "the file of this trial tells no session state"
    for number, earlier in enumerate(turns[: turn - 1], 1):
        if any(_CUT.search(text) for text in _texts(earlier)):
            yield f"turn {number} was too large to be stored whole"
        if earlier.error:
            yield f"turn {number} broke off: {earlier.error.kind}"


def _texts(turn: TurnRecord) -> Iterator[str]:
    yield turn.query
    for event in turn.events:
        yield event.text
        if isinstance(event.result, str):
            yield event.result


def _state_reasons(state: Mapping[str, JsonValue]) -> Iterator[str]:
    for key, value in state.items():
        if _has_no_json(value):
            yield f"the state {key!r} holds a value outside of JSON, which was not stored"


def _has_no_json(value: JsonValue) -> bool:
    if isinstance(value, str):
        return bool(_NO_JSON.fullmatch(value))
    if isinstance(value, Mapping):
        return any(_has_no_json(each) for each in value.values())
    return isinstance(value, list) and any(map(_has_no_json, value))


def tells_state(agent: AgentRef, turns: Sequence[TurnRecord]) -> bool:
    """Whether the trial was played here, or came in a file with session states."""
    return not is_imported_agent(agent) or any(
        turn.state_before or turn.state_after or any(event.kind == "state_delta" for event in turn.events)
        for turn in turns
    )


def _nearest(turn: int) -> str:
    return f"the nearest point that can be forked is before turn {turn}"


def _trial_words(point: ForkPoint) -> str:
    return f"trial {point.trial_index + 1} of run {point.run_id}"
