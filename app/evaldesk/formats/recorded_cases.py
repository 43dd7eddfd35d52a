"""Cases that expect what a recorded session shows: values that change each time are asserted by matchers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from evaldesk.diff.repetition import changing_places, repeatable_case
from evaldesk.model import Case, Event, Transcript, TurnRecord
from evaldesk.model.json_text import json_line
from evaldesk.transcripts.adk import kept_state

MAX_OTHERS = 10
MAX_NAMED = 5


def repeatable_cases(
    cases: Sequence[Case], recorded_at: Mapping[str, float | None] | None = None
) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The cases with matchers in place of times, counters and ids, and a sentence on them where there is any.

    Sessions of the same messages and first state are compared with each other. `recorded_at` has the end of sessions by
    the ids of their cases, in seconds since 1970.
    """
    alike: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        alike.setdefault(_messages(case), []).append(case)
    new_cases: list[Case] = []
    words: list[str] = []
    for case in cases:
        others = islice((each for each in alike[_messages(case)] if each is not case), MAX_OTHERS)
        places = changing_places(case, [*map(_as_play, others)], recorded_at=(recorded_at or {}).get(case.id))
        new_cases.append(repeatable_case(case, _without_transient(case), places, {}))
        words += [f"{case.id}: {place.words} {place.why}" for place in places if place.part != "calls"]
    if not words:
        return tuple(new_cases), ()
    more = f"; and {len(words) - MAX_NAMED} more" if words[MAX_NAMED:] else ""
    sentence = f"Not expected as recorded, but by matchers: {'; '.join(words[:MAX_NAMED])}{more}."
    return tuple(new_cases), (sentence,)


def _without_transient(case: Case) -> Case:
    """The case without expected keys that only google-adk keeps."""
    if case.final_state is None or (state := kept_state(case.final_state)) == case.final_state:
        return case
    return replace(case, final_state=state or None)


def _messages(case: Case) -> tuple[str, ...]:
    return (json_line(dict(case.initial_state)), *(turn.query for turn in case.turns))


def _as_play(case: Case) -> Transcript:
    """The recorded calls, answers and final state of a case as a play of it."""
    turns = []
    for index, turn in enumerate(case.turns):
        calls = [Event("tool_call", call=call) for call in turn.expected.tool_calls or ()]
        answer = [Event("agent_message", text=turn.expected.reference)] if turn.expected.reference else []
        state = dict(case.final_state or {}) if index == len(case.turns) - 1 else {}
        turns.append(TurnRecord(turn.query, (*calls, *answer), case.initial_state, state))
    return Transcript(tuple(turns))
