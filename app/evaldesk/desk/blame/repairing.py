"""The repair test: another turn in place of the decisive one, from a passed trial of the same case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaldesk.errors import ConflictError, UsageError
from evaldesk.model import JsonValue, TurnRecord
from evaldesk.model.blame import Blame
from evaldesk.model.fork import MOST_EDITS, Edit, Fork, ForkPoint
from evaldesk.store import Store

REPAIRS = 20
"""Continuations of a repair test."""
_MOST_READ = 20


def repair_fork(store: Store, blame: Blame, n: int = REPAIRS) -> Fork:
    """The fork after the decisive turn, which has the turn of the passed trial with the nearest prefix in its place.

    Raises ConflictError without a decisive turn, UsageError where nothing is played after it or no trial passed.
    """
    plan, answer = blame.plan, blame.answer
    if blame.is_live or answer is None or answer.turn is None:
        raise ConflictError("this trial has no decisive turn to repair")
    turn = answer.turn
    if turn == plan.n_turns:
        raise UsageError(f"turn {turn} is the last one: nothing is played after it", field="turn")
    own = store.runs.trial(plan.run_id, *plan.key, is_whole=True).transcript.turns
    number, other = _nearest(store, blame, own, turn)
    edits = repair_edits(own[turn].state_before, other, f"trial {number + 1}")
    return Fork(ForkPoint(plan.run_id, *plan.key, turn + 1), edits, n=n, runs_tools=plan.runs_tools)


def repair_edits(state: Mapping[str, JsonValue], other: TurnRecord, name: str) -> tuple[Edit, ...]:
    """The edits that put another turn before a point, whose session state is `state`: calls, results, answer, state."""
    calls: list[JsonValue] = [{"name": call.name, "args": dict(call.args)} for call in other.tool_calls]
    edits = [Edit("assistant", text=other.answer or "", name=name, value=calls or None)]
    results = [event for event in other.events if event.kind == "tool_result" and not event.within]
    for at, call in enumerate(other.tool_calls, 1):
        event = next((each for each in results if each.call == call), None)
        if event is not None:
            results.remove(event)
            edits.append(
                Edit("tool_result", call=at, error=str(event.result))
                if event.is_error
                else Edit("tool_result", call=at, value=event.result)
            )
    if patch := patch_between(state, other.state_after):
        edits.append(Edit("state", value=patch))
    if len(edits) > MOST_EDITS:
        raise UsageError(
            f"the turn of {name} has {len(calls)} calls, more than {MOST_EDITS} edits can hold", field="edits"
        )
    return tuple(edits)


def patch_between(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> dict[str, Any]:
    """The merge patch that turns one state into another; empty for equal ones. (RFC 7396)"""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        earlier = before.get(key)
        if isinstance(value, Mapping) and isinstance(earlier, Mapping):
            if inner := patch_between(earlier, value):
                patch[key] = inner
        elif key not in before or earlier != value:
            patch[key] = value
    return patch


def _nearest(store: Store, blame: Blame, own: tuple[TurnRecord, ...], turn: int) -> tuple[int, TurnRecord]:
    """The passed trial of the case whose first turns are the same for longest, and its turn."""
    plan = blame.plan
    strip = store.runs.strips(plan.run_id, [plan.case_index])[0]
    keys = [(plan.case_index, at) for at, letter in enumerate(strip) if letter == "p"][:_MOST_READ]
    trials = store.runs.trials(plan.run_id, keys)
    usable = {at: each.transcript.turns for (_, at), each in trials.items() if len(each.transcript.turns) >= turn}
    if not usable:
        raise UsageError(f"no trial of this case that passed has a turn {turn}", field="turn")
    number = max(sorted(usable), key=lambda at: _n_alike(own[: turn - 1], usable[at]))
    return number, usable[number][turn - 1]


def _n_alike(own: tuple[TurnRecord, ...], other: tuple[TurnRecord, ...]) -> int:
    n = 0
    for mine, each in zip(own, other, strict=False):
        if (mine.query, mine.answer, mine.tool_calls) != (each.query, each.answer, each.tool_calls):
            break
        n += 1
    return n
