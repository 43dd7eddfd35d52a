"""Cases that begin with pinned turns: recorded ones, which no trial plays and nothing judges. (decision 517)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evaldesk.errors import UsageError
from evaldesk.model.decisions import ScriptedDecision, scripted_decisions, with_decisions
from evaldesk.model.evalset import EXPECTED_OUTCOMES, Case, JsonValue

PINNED = "evaldesk_pinned"
"""The key of a case's `extra` with its pinned turns: `{"turns": [{"events": [...], "state_after": {...}}]}`."""
MOST_PINNED = 200


def n_pinned(case: Case) -> int:
    """The number of turns that the case pins; 0 where its key cannot be read."""
    value = case.extra.get(PINNED)
    turns = value.get("turns") if isinstance(value, Mapping) else None
    n = len(turns) if isinstance(turns, list | tuple) else 0
    return min(n, len(case.turns)) if case.scenario is None else n


def pinning(case: Case, places: Sequence[int]) -> Case:
    """The case whose first turns are pinned by those of its records at `places`, from 0; without any it pins none."""
    value = case.extra.get(PINNED)
    turns = value.get("turns") if isinstance(value, Mapping) else None
    if not isinstance(turns, list | tuple) or [*places] == [*range(len(turns))]:
        return case
    others = {key: each for key, each in case.extra.items() if key != PINNED}
    kept_turns: list[JsonValue] = [turns[place] for place in places]
    return replace(case, extra={**others, PINNED: {"turns": kept_turns}} if kept_turns else others)


def pins_turns(case: Case) -> bool:
    """Whether the case has pinned turns."""
    return PINNED in case.extra


def judged_part(case: Case) -> Case:
    """The case without its pinned turns, as trials of it are judged: decisions and outcomes of later turns move up.

    A case without pinned turns is given back itself. Accepted alternatives stay as they are.
    """
    if not pins_turns(case):
        return case
    n = n_pinned(case)
    extra = {key: value for key, value in case.extra.items() if key != PINNED}
    outcomes = extra.get(EXPECTED_OUTCOMES)
    if isinstance(outcomes, list):
        extra[EXPECTED_OUTCOMES] = [entry for raw in outcomes if (entry := _moved_outcome(raw, n)) is not None]
    part = replace(case, turns=case.turns[n:], extra=extra)
    try:
        scripted = scripted_decisions(case)
    except UsageError:  # such a case ends its trials with the reason
        return part
    if not any(each.turn is not None for each in scripted):
        return part
    moved_decisions = [
        each if each.turn is None else ScriptedDecision(each.decision, each.turn - n)
        for each in scripted
        if each.turn is None or each.turn >= n
    ]
    return with_decisions(part, moved_decisions)


def _moved_outcome(raw: JsonValue, n: int) -> JsonValue | None:
    """The outcome of a later turn by its number among the judged ones; None for a pinned turn."""
    turn = raw.get("turn") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or isinstance(turn, bool) or not isinstance(turn, int):
        return raw
    return {**raw, "turn": turn - n} if turn > n else None
