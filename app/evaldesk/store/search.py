"""Which trials and cases of runs hold some words, from an index that follows the runs.

The index is made of what is stored, and can be made again at any time. Storing a trial does not touch it: the totals of
a run tell that there is something new in it. So it may be some seconds behind.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from evaldesk.errors import NotFoundError
from evaldesk.model import Case, TrialResult
from evaldesk.model.case_table import FoundCases
from evaldesk.model.stored import TrialKey
from evaldesk.store.database import StorePart
from evaldesk.store.runs import run_queries
from evaldesk.store.tables.failures import FINDING
from evaldesk.store.tables.runs import LABEL, LISTED, RUN, RUN_CASE, TRIAL, VISIBLE
from evaldesk.store.word_index import INBOX, Seen, WordIndex

# An index of another version is made again; no migration knows it: decision 140.
VERSION = 1
"""Of how texts are cut into words; the index of another version is made again."""
MAX_LETTERS = 100_000
"""So much of the texts of a trial, or of a case, is searched."""
MAX_WORDS = 6_000
MAX_WORD = 40
MOST_AT_ONCE = 50
"""Trials of one step."""
MOST_WORDS_ASKED = 16
TRIALS_OF_CASE = 4
"""Places that are read for each case of a search in one run; a case has one, and one for each trial."""

_CASE_BITS, _TRIAL_BITS = 20, 19
_COUNTED = ("n_passed", "n_failed", "n_errored", "n_unscored", "n_confirming", "n_confirming_todo", "n_duplicates")
_SUMMED = ("tokens_in", "tokens_out", "duration_ms")
_ONE = "\u3040-\u30ff\u3400-\u9fff"  # written without spaces: each character is a word
_WORD = re.compile(rf"[{_ONE}]|[^\W_{_ONE}]+")


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared: without case and accents, in their order, long ones cut."""
    if not text.isascii():
        text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return [word[:MAX_WORD] for word in _WORD.findall(text.casefold())]


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """A trial of a run, or a case of it where `trial_index` is None. Its `number` orders places, newer runs last."""

    run_id: int
    case_index: int
    trial_index: int | None = None

    @property
    def number(self) -> int:
        """The place as one number."""
        trial = 0 if self.trial_index is None else self.trial_index + 1
        return (self.run_id << _CASE_BITS | self.case_index) << _TRIAL_BITS | trial

    @property
    def has_number(self) -> bool:
        """Whether the place is within the bounds of the index: 16 million runs, 1,048,576 cases."""
        trial = 0 if self.trial_index is None else self.trial_index + 1
        return self.run_id >> 24 == self.case_index >> _CASE_BITS == trial >> _TRIAL_BITS == 0

    @classmethod
    def of(cls, number: int) -> SearchPosition:
        """The place with that number."""
        above, trial = number >> _TRIAL_BITS, number & (1 << _TRIAL_BITS) - 1
        return cls(above >> _CASE_BITS, above & (1 << _CASE_BITS) - 1, trial - 1 if trial else None)


def numbers_of(run_id: int) -> tuple[int, int]:
    """The first number of a run, and the one after its last."""
    return SearchPosition(run_id, 0).number, SearchPosition(run_id + 1, 0).number


@dataclass(frozen=True, slots=True)
class Note:
    """A person's note on a trial, of a label or of a finding."""

    place: SearchPosition
    text: str
    author: str


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """The newest places that hold all words. The texts of `n_behind` runs are not all searched yet."""

    places: Sequence[SearchPosition]
    n_behind: int


class SearchStore(StorePart):
    """Full text search over the trials of a workspace."""

    @cached_property
    def _index(self) -> WordIndex:
        return self._database.dialect.word_index(self._database)

    @property
    def refusal(self) -> str:
        """Why trials are not searched here; empty where they are."""
        return self._index.refusal

    def size(self) -> int:
        """The bytes that the index takes on the disk."""
        return self._index.size()

    def find(self, query: str, limit: int = 20) -> FoundPlaces:
        """The places that hold all words of `query`, newest runs first; one of each case of a run."""
        words = words_of(query)[:MOST_WORDS_ASKED]
        if not words or self.refusal:
            return FoundPlaces((), 0)
        with self._database.reading() as connection:
            marks = _marks(connection)
        progress_by_run = self._index.indexed_runs()
        matches = map(SearchPosition.of, self._index.numbers(words, progress_by_run.keys() - marks.keys(), limit * 10))
        of_cases = {(place.run_id, place.case_index): place for place in reversed([*matches])}
        places = sorted(of_cases.values(), key=lambda place: -place.number)[:limit]
        return FoundPlaces(
            places, sum(progress_by_run.get(run_id, _NEVER).mark != mark for run_id, mark in marks.items())
        )

    def cases(self, run_ids: Sequence[int], query: str, limit: int) -> FoundCases:
        """The cases of these runs that hold all words of `query`, in the case itself or in one trial, at most `limit`.

        A run whose texts are not all searched yet has fewer.
        """
        words = words_of(query)[:MOST_WORDS_ASKED]
        if not words or self.refusal:
            return FoundCases({}, text=query.strip())
        cases_by_run, is_cut = {}, False
        spans = [numbers_of(run_id) for run_id in run_ids]
        of_runs = self._index.numbers_in(words, spans, limit * TRIALS_OF_CASE)
        for run_id, (first, _), numbers in zip(run_ids, spans, of_runs, strict=True):
            indexes = sorted({(number - first) >> _TRIAL_BITS for number in numbers})
            is_cut = is_cut or len(numbers) == limit * TRIALS_OF_CASE or len(indexes) > limit
            cases_by_run[run_id] = indexes[:limit]
        return FoundCases(cases_by_run, is_cut, query.strip())

    def n_behind(self, run_ids: Collection[int]) -> int:
        """The number of these runs whose texts are not all searched yet."""
        with self._database.reading() as connection:
            marks = _marks(connection, run_ids)
        progress_by_run = self._index.indexed_runs()
        return sum(progress_by_run.get(run_id, _NEVER).mark != mark for run_id, mark in marks.items())

    def notes(self, query: str, limit: int = 20) -> Sequence[Note]:
        """The notes of people with all words of `query`, newest first."""
        words = query.split()[:MOST_WORDS_ASKED]
        if not words:
            return ()
        label, finding = LABEL.c, FINDING.c
        of_trial = (label.run_id, label.case_index, label.trial_index)
        labels = select(*of_trial, label.note.label("text"), label.labeller.label("author"), label.labelled_at)
        of_trial = (finding.run_id, finding.case_index, finding.trial_index)
        findings = select(*of_trial, finding.note.label("text"), finding.author, finding.created_at)
        is_counted = finding.status == "counted"
        with self._database.reading() as connection:
            rows = [
                *_notes_with(connection, labels, label.run_id, label.note, label.labelled_at, words, limit),
                *_notes_with(
                    connection, findings.where(is_counted), finding.run_id, finding.note, finding.id, words, limit
                ),
            ]
        newest = sorted(rows, key=lambda row: row[-1], reverse=True)[:limit]
        return [Note(SearchPosition(*row[:3]), row.text, row.author) for row in newest]

    def catch_up(self, of_case: Callable[[Case], str], of_trial: Callable[[TrialResult], str]) -> Iterator[None]:
        """Bring the index up to date with the runs, a short step after each `next`; newest runs first.

        `of_case` and `of_trial` give the text of each. Runs that were removed leave the index first.
        """
        if self.refusal:
            return
        yield from self._forget_removed()
        with self._database.reading() as connection:
            marks = _marks(connection)
        progress_by_run = self._index.indexed_runs()
        for run_id in sorted(marks, reverse=True):
            progress = progress_by_run.get(run_id)
            if progress is None or progress.mark != marks[run_id]:
                yield from self._catch_up_with(run_id, marks[run_id], progress, of_case, of_trial)

    def forget_removed(self) -> None:
        """Take the runs that were removed for good out of the index."""
        if not self.refusal:
            for _ in self._forget_removed():
                pass

    def _forget_removed(self) -> Iterator[None]:
        progress_by_run = self._index.indexed_runs()
        if not progress_by_run:
            return
        with self._database.reading() as connection:
            run_ids = set(connection.scalars(select(RUN.c.id)))
        for run_id in progress_by_run.keys() - run_ids - {INBOX}:
            yield from self._forget(run_id)

    def _forget(self, run_id: int) -> Iterator[None]:
        while self._index.forget(run_id):
            yield

    def _catch_up_with(
        self,
        run_id: int,
        mark: str,
        progress: Seen | None,
        of_case: Callable[[Case], str],
        of_trial: Callable[[TrialResult], str],
    ) -> Iterator[None]:
        if progress is not None and _stable_part(progress.mark) != _stable_part(mark):
            progress = None
        if progress is None:
            yield from self._forget(run_id)
        if progress is None or progress.mark.endswith(_ONLY_CASES):
            yield from self._put_cases(run_id, _stable_part(mark), of_case)
            progress = None
        up_to = progress.up_to if progress else None
        with self._database.reading() as connection:
            n_cases, n_recorded, keys = _recorded_trials(connection, run_id, up_to)
        for some in _batches(keys):
            up_to = some[-1][1]
            results = self._trials(run_id, [key for key, _ in some])
            if results is None:
                return  # it was deleted meanwhile
            words = [(SearchPosition(run_id, *key), of_trial(result)) for key, result in results.items()]
            self._index.put(run_id, Seen(_stable_part(mark), up_to), _words_by_number(words))
            yield
        if progress is not None and self._index.count(run_id) < n_cases + n_recorded:
            yield from self._catch_up_with(run_id, mark, None, of_case, of_trial)  # a clock was set back
            return
        self._index.put(run_id, Seen(mark, up_to), [])
        yield

    def _put_cases(self, run_id: int, mark: str, of_case: Callable[[Case], str]) -> Iterator[None]:
        """Put the cases that are not there yet: who stopped in between goes on from there."""
        cases: Sequence[Case] = ()
        with suppress(NotFoundError), self._database.reading() as connection:
            cases = run_queries.snapshots(connection, run_id)
        for some in _batches([*enumerate(cases)][self._index.count(run_id) :]):
            words = [(SearchPosition(run_id, index), of_case(case)) for index, case in some]
            self._index.put(run_id, Seen(mark + _ONLY_CASES), _words_by_number(words))
            yield
        self._index.put(run_id, Seen(mark), [])

    def _trials(self, run_id: int, keys: Sequence[TrialKey]) -> Mapping[TrialKey, TrialResult] | None:
        with suppress(NotFoundError), self._database.reading() as connection:
            return run_queries.trials(connection, run_id, keys, is_whole=False)
        return None


_NEVER = Seen("")
_ONLY_CASES = " cases"
"""The end of the mark of a run, some of whose cases are there and none of its trials."""


def _marks(connection: Connection, run_ids: Collection[int] | None = None) -> dict[int, str]:
    """The mark of each of these visible runs, or of all, which changes with each recorded trial."""
    columns = [RUN.c[name] for name in (*_COUNTED, *_SUMMED)]
    visible = select(RUN.c.id, RUN.c.created_at, *columns).where(LISTED)  # forks repeat the text of their parents
    rows = connection.execute(visible if run_ids is None else visible.where(RUN.c.id.in_(run_ids)))
    return {row[0]: f"{VERSION} {row[1].timestamp()} {'/'.join(map(str, row[2:]))}" for row in rows}


def _stable_part(mark: str) -> str:
    """The part of a mark that stays while the run goes on; in a replaced database another run may have its id."""
    return " ".join(mark.split()[:2])


def _recorded_trials(
    connection: Connection, run_id: int, up_to: datetime | None
) -> tuple[int, int, list[tuple[TrialKey, datetime]]]:
    """The numbers of cases and recorded trials of a run, and the trials since `up_to` in the order of recording."""
    columns = (TRIAL.c.case_index, TRIAL.c.trial_index, TRIAL.c.recorded_at)
    of_run = select(*columns).where(TRIAL.c.run_id == run_id, TRIAL.c.recorded_at.is_not(None))
    rows = [((case, trial), recorded_at) for case, trial, recorded_at in connection.execute(of_run)]
    n_cases = len(connection.scalars(select(RUN_CASE.c.case_index).where(RUN_CASE.c.run_id == run_id)).all())
    fresh = [row for row in rows if up_to is None or row[1] >= up_to]
    return n_cases, len(rows), sorted(fresh, key=lambda row: (row[1].astimezone(UTC), row[0]))


def _batches(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (rows[start : start + MOST_AT_ONCE] for start in range(0, len(rows), MOST_AT_ONCE))


def _words_by_number(texts: Sequence[tuple[SearchPosition, str]]) -> list[tuple[int, Collection[str]]]:
    return [
        (place.number, sorted(set(words_of(text[:MAX_LETTERS])))[:MAX_WORDS])
        for place, text in texts
        if place.has_number
    ]


def _notes_with(
    connection: Connection,
    rows: Select[Any],
    run_id: ColumnElement[int],
    text: ColumnElement[str],
    order: ColumnElement[Any],
    words: Sequence[str],
    limit: int,
) -> Sequence[Any]:
    holds = [text.icontains(word, autoescape=True) for word in words]
    matches = rows.join(RUN, (RUN.c.id == run_id) & VISIBLE).where(text != "", *holds)
    return connection.execute(matches.order_by(order.desc()).limit(limit)).all()
