"""Cases that expect what a recorded session shows: values that change each time are asserted by matchers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice

from evaldesk.diff.repetition import changing_places, repeatable_case
from evaldesk.model import Case, Event, Transcript, TurnRecord
from evaldesk.model.json_text import json_line
from evaldesk.transcripts.adk import kept_state
from evaldesk.transcripts.recorded import ReadItems

MAX_OTHERS = 10
MAX_NAMED = 5
MAX_COMPARED = 100_000
"""Cases of a large file of which the places of equal messages are held in memory."""
LARGE_WORDS = (
    "Times, ids and values that differ between sessions of the same messages are expected by matchers, not as recorded."
)


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


def repeatable_items(cases: ReadItems[Case]) -> ReadItems[Case]:
    """The cases of a large file as `repeatable_cases` gives them, each made when it is read.

    The first MAX_COMPARED are compared with others of the same messages, which are read again.
    """
    places: dict[bytes, list[int]] = {}
    for at, case in enumerate(islice(cases, MAX_COMPARED)):
        own_places = places.setdefault(_digest(case), [])
        if len(own_places) <= MAX_OTHERS:
            own_places.append(at)

    def read(first: int) -> Iterator[Case]:
        for at, case in enumerate(cases.read(first), first):
            others = [cases[each] for each in places.get(_digest(case), ()) if each != at][:MAX_OTHERS]
            yield repeatable_case(case, _without_transient(case), changing_places(case, [*map(_as_play, others)]), {})

    return ReadItems(cases.n, read)


def _digest(case: Case) -> bytes:
    return blake2b("\0".join(_messages(case)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
