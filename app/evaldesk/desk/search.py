"""Full text search over trials and cases of runs, and the updates of its index."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.errors import EvaldeskError, NotFoundError
from evaldesk.model import Case, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import case_pieces
from evaldesk.secrets import scrubber
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.search import SearchPosition, words_of

log = logging.getLogger("evaldesk.desk")

LOOK_EVERY_S = 3.0
REST = 3.0
"""After a step so many times as long as it took: runs and pages go first."""
WHEN_INDEXED = "the index is made while a desk is open and trusts the folder"
LEAST_STEPS = 3
"""Who has hardly any time goes on nevertheless: the last trials of a run are put once more before it is done."""
FAULTS = (EvaldeskError, SQLAlchemyError, OSError, ValueError)
AROUND = 40
SHOWN = 160


@dataclass(frozen=True, slots=True)
class Hit:
    """A place that matches the typed text: its case, and the text before, at and after the match.

    `author` wrote it, where it is the note of a person.
    """

    place: SearchPosition
    case_id: str
    text: tuple[str, str, str]
    author: str = ""


@dataclass(frozen=True, slots=True)
class Hits:
    """The matches, newest first; `behind` says in words which runs are not searched."""

    texts: Sequence[Hit] = ()
    notes: Sequence[Hit] = ()
    behind: str = ""


class SearchDesk:
    """The full text search of a workspace."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._store = store
        self._scrubbed = scrubber(settings.environment)

    def find(self, query: str, limit: int) -> Hits:
        """The trials, the cases of runs and the notes that hold all words of `query`."""
        try:
            search = self._store.search
            matches = search.find(query, limit)
            notes = search.notes(query, limit)
        except FAULTS as error:
            log.warning("the texts of trials cannot be searched: %s", error)
            return Hits(behind="The texts of trials cannot be searched now; the log has the reason.")
        texts = self._text_hits(matches.places, query)
        note_hits = [hit for note in notes if (hit := self._note_hit(note.place, note.text, note.author, query))]
        return Hits(texts, note_hits, search.refusal or _behind(matches.n_behind))

    async def follow(self, is_open: Callable[[], bool]) -> None:
        """Keep the index up to date until it is cancelled, while `is_open`."""
        is_refused = False
        while True:
            try:
                if is_open():
                    await asyncio.to_thread(self.catch_up)
                is_refused = False
            except FAULTS as error:
                if not is_refused:
                    log.warning("the index of texts cannot be kept, which is tried again: %s", error)
                is_refused = True
            await asyncio.sleep(LOOK_EVERY_S)

    def catch_up(self, pause_factor: float = REST, most_s: float = math.inf) -> None:
        """Bring the index up to date in steps, with a rest after each; at most so many seconds, then as far as it is.

        The next call goes on from there.
        """
        steps = self._store.search.catch_up(self.case_text, self.trial_text)
        began = time.monotonic()
        end = began + most_s
        for number, _ in enumerate(steps, 1):
            now = time.monotonic()
            if now > end and number >= LEAST_STEPS:
                break
            time.sleep((now - began) * pause_factor)
            began = time.monotonic()

    def case_text(self, case: Case) -> str:
        """The searched text of a case, without secrets."""
        return self._scrubbed("\n".join(case_pieces(case)))

    def trial_text(self, result: TrialResult) -> str:
        """The searched text of a trial, without secrets."""
        return self._scrubbed("\n".join(trial_pieces(result)))

    def _text_hits(self, places: Sequence[SearchPosition], query: str) -> list[Hit]:
        """The hits at some places, those of a run read together; without those that were deleted a moment ago."""
        hits: dict[SearchPosition, Hit] = {}
        for run_id, group in groupby(sorted(places, key=lambda place: place.run_id), lambda place: place.run_id):
            of_run = list(group)
            keys = [(place.case_index, place.trial_index) for place in of_run if place.trial_index is not None]
            with suppress(NotFoundError):
                cases = self._store.runs.some_cases(run_id, [place.case_index for place in of_run])
                results = self._store.runs.trials(run_id, keys, is_whole=False) if keys else {}
                hits |= {place: hit for place in of_run if (hit := self._hit(place, cases, results, query))}
        return [hits[place] for place in places if place in hits]

    def _hit(
        self,
        place: SearchPosition,
        cases: Mapping[int, Case],
        results: Mapping[tuple[int, int], TrialResult],
        query: str,
    ) -> Hit | None:
        case = cases.get(place.case_index)
        if case is None:
            return None
        pieces = case_pieces(case)
        if place.trial_index is not None:
            result = results.get((place.case_index, place.trial_index))
            if result is None:
                return None
            pieces = list(trial_pieces(result))
        return Hit(place, case.id, snippet([self._scrubbed(piece) for piece in pieces], query))

    def _note_hit(self, place: SearchPosition, text: str, author: str, query: str) -> Hit | None:
        try:
            case_id = self._store.runs.case(place.run_id, place.case_index).id
        except NotFoundError:
            return None
        return Hit(place, case_id, snippet([self._scrubbed(text)], query), author)


def _behind(n_runs: int) -> str:
    if not n_runs:
        return ""
    return f"The texts of {counted(n_runs, 'run')} are not all searched yet; {WHEN_INDEXED}."


def trial_pieces(result: TrialResult) -> Iterator[str]:
    """The texts of a trial in which a search looks: messages, names of tools, and errors."""
    for turn in result.transcript.turns:
        yield turn.query
        for event in turn.events:
            if event.kind == "agent_message":
                yield event.text
            elif event.kind == "tool_call" and event.call:
                yield event.call.name
            elif event.error:
                yield event.error.message
    if result.error:
        yield result.error.message


def snippet(pieces: Sequence[str], query: str) -> tuple[str, str, str]:
    """The text before, at and after the match; of its first word where the phrase does not occur."""
    words = words_of(query)
    exact = re.compile(re.escape(query.strip()), re.IGNORECASE)
    for piece in pieces:
        if match := exact.search(piece):
            return _around(piece, *match.span())
    best = max(pieces, key=lambda piece: _n_held(piece, words), default="")
    for word in words:
        if match := re.search(re.escape(word), best, re.IGNORECASE):
            return _around(best, *match.span())
    return (shorter(best), "", "")


def shorter(text: str) -> str:
    """The beginning of a text in one line."""
    line = " ".join(text[: 2 * SHOWN].split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _n_held(piece: str, words: Sequence[str]) -> int:
    folded = " ".join(words_of(piece[:100_000]))
    return sum(word in folded for word in words)


def _around(text: str, start: int, end: int) -> tuple[str, str, str]:
    before, after = text[max(0, start - AROUND) : start], text[end : end + SHOWN]
    lines = [re.sub(r"\s+", " ", part) for part in (before, text[start:end], after)]
    return ("…" if start > AROUND else "") + lines[0], lines[1], lines[2] + ("…" if len(text) > end + SHOWN else "")
