"""The traces of a large file: on the disk until they are stored, with one conversation in memory at a time."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import finalize

from evaldesk.errors import FormatError
from evaldesk.formats import large_runs
from evaldesk.formats.exchange import MAX_ROW, Imported, imported_sessions
from evaldesk.formats.large_runs import AT_ONCE, TrialRowsOnDisk, in_words, scratch
from evaldesk.model import Criterion, RecordedPlan, TrialResult, trial_verdict
from evaldesk.model.conclusion import counted
from evaldesk.reading.notes import Notes
from evaldesk.transcripts.messages.chat import NO_TEXT
from evaldesk.transcripts.otel.span_messages import model_of
from evaldesk.transcripts.otel.spans import Span
from evaldesk.transcripts.otel.trace_turns import session_of
from evaldesk.transcripts.otel.traces import Conversation, conversations
from evaldesk.transcripts.recorded import RecordedRun, free_name
from evaldesk.transcripts.recorded_sessions import Session, case_of_session, criteria_of, read_note, trial_of_session
from evaldesk.wire import from_json, to_json

MAX_STEPS = 200_000
"""Steps of one conversation, which is read whole."""

_TABLES = """
CREATE TABLE name (number INTEGER PRIMARY KEY, text UNIQUE, "group" INT);
CREATE TABLE step (line INTEGER PRIMARY KEY, trace INT, span TEXT, data TEXT, UNIQUE (trace, span));
"""
_ADD = """
INSERT INTO step (trace, span, data) VALUES (?, ?, ?) ON CONFLICT (trace, span) DO UPDATE SET data = excluded.data
"""
_GROUP = """
SELECT step.data FROM name CROSS JOIN step ON step.trace = name.number WHERE name."group" = ? ORDER BY step.line
"""


class TracesOnDisk:
    """The steps of traces, each a list of JSON values; of one that comes twice the later counts.

    Traces that name the same conversation are a group. Raises DiskError when the disk is full.
    """

    def __init__(self) -> None:
        with in_words():
            self._database = large_runs.open_scratch(_TABLES)
        finalize(self, self._database.close)
        self._groups = array("q")
        self._last: tuple[str, int] = ("", -1)

    def add(self, trace_id: str, span_id: str, conversation: str, step: list[Any]) -> None:
        """Take in one step of a trace; `conversation` is empty where the step names none."""
        text, trace = self._last
        if text != trace_id or trace < 0:
            trace = self._number(trace_id)
            self._last = trace_id, trace
        if conversation:
            self._join(trace, self._number(conversation))
        with in_words():
            self._database.execute(_ADD, (trace, span_id, json.dumps(step, separators=(",", ":"))))

    def groups(self) -> Iterator[list[list[Any]]]:
        """The steps of each group, in the order of their rows. Raises FormatError for a group that is too large."""
        with in_words():
            numbers = range(len(self._groups))
            self._database.executemany(
                'UPDATE name SET "group" = ? WHERE number = ?', ((self._root(number), number) for number in numbers)
            )
            self._database.execute('CREATE INDEX name_group ON name ("group")')
        for number in numbers:
            if self._groups[number] == number and (steps := self._steps(number)):
                yield steps

    def _steps(self, group: int) -> list[list[Any]]:
        steps: list[list[Any]] = []
        n_bytes = 0
        with in_words():
            for (data,) in self._database.execute(_GROUP, (group,)):
                n_bytes += len(data)
                if n_bytes > MAX_ROW or len(steps) == MAX_STEPS:
                    bounds = f"{MAX_STEPS:,} steps or {MAX_ROW // 2**20} MiB"
                    raise FormatError(f"one conversation has more than {bounds}; leave it out of the file")
                steps.append(json.loads(data))
        return steps

    def _number(self, text: str) -> int:
        with in_words():
            row = self._database.execute("SELECT number FROM name WHERE text = ?", (text,)).fetchone()
            if row is not None:
                return int(row[0])
            number = len(self._groups)
            self._database.execute("INSERT INTO name (number, text) VALUES (?, ?)", (number, text))
        self._groups.append(number)
        return number

    def _root(self, number: int) -> int:
        """The first name of the group, with the way to it made shorter. (Tarjan 1975)"""
        groups = self._groups
        while groups[number] != number:
            groups[number] = groups[groups[number]]
            number = groups[number]
        return number

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        self._groups[second] = first


_SESSIONS = """
CREATE TABLE session (line INTEGER PRIMARY KEY, start REAL, id TEXT, case_id TEXT, number INT, judged INT, data BLOB);
"""
_ADD_SESSION = "INSERT INTO session (start, id, case_id, number, judged, data) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(slots=True)
class _Totals:
    """Facts of the sessions that are read, for the run of all of them."""

    n_spans: int = 0
    n_sessions: int = 0
    tells_calls: bool = False
    agents: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    criteria: dict[str, Criterion] = field(default_factory=dict)
    case_ids: set[str] = field(default_factory=set)
    plan: RecordedPlan | None = None


def imported_groups(format_name: str, groups: Iterator[Sequence[Span]], name: str, source: str) -> Imported:
    """The conversations in groups of spans, as `imported_spans` reads all spans of a file. Raises FormatError."""
    notes, totals = Notes(), _Totals()
    with scratch(_SESSIONS) as database:
        for spans in groups:
            totals.n_spans += len(spans)
            for conversation in conversations(spans, notes):
                if any(visit.steps or visit.note for visit in conversation.visits):
                    database.execute(_ADD_SESSION, _session_row(conversation, totals))
        if not totals.n_sessions:
            raise FormatError(nothing_words(totals.n_spans, notes), source=source)
        trials = TrialRowsOnDisk()
        _add_trials(trials, database, totals, notes.count(NO_TEXT))
    cases, results = trials.finish()
    agent, model = _commonest(totals.agents), _commonest(totals.models)
    run = RecordedRun(
        name,
        agent or name,
        cases,
        results,
        tuple(totals.criteria.values()),
        model or None,
        plan=totals.plan or RecordedPlan(),
    )
    subject = f"{counted(totals.n_sessions, 'conversation')} in {counted(totals.n_spans, 'span')}"
    return imported_sessions(format_name, run, subject, notes, frozenset(totals.case_ids))


def nothing_words(n_spans: int, notes: Notes) -> str:
    """Why a file of spans has no conversation."""
    reason = " ".join(notes.sentences) or "none has gen_ai.*, OpenInference or ADK attributes with messages"
    return f"none of {counted(n_spans, 'span')} describes the work of an agent: {reason}"


def _session_row(conversation: Conversation, totals: _Totals) -> tuple[Any, ...]:
    session = session_of(conversation)
    note = read_note(session.note)
    scores = note.scores if note else session.scores
    criteria = criteria_of([scores])
    case_id = note.case_id if note else session.case_id
    totals.n_sessions += 1
    totals.tells_calls = totals.tells_calls or any(turn.tool_calls for turn in session.turns)
    totals.agents.update(filter(None, [conversation.agent]))
    totals.models.update(model_of(step.span) for visit in conversation.visits for step in visit.steps if step.call)
    totals.criteria |= {criterion.metric: criterion for criterion in criteria}
    totals.case_ids |= {case_id} - {""}
    totals.plan = totals.plan or (note.plan if note else None)
    trial = trial_of_session(session, note, scores, criteria)
    start_ms = min(visit.start_ms for visit in conversation.visits)
    is_judged = bool(trial.error or (note and note.verdict))
    return start_ms, session.id, case_id, note.trial_index if note else None, is_judged, to_json(trial)


def _add_trials(trials: TrialRowsOnDisk, database: sqlite3.Connection, totals: _Totals, n_lost: int) -> None:
    """The sessions in the order of time, as `run_of_sessions` makes trials of them."""
    used_names = dict.fromkeys(totals.case_ids, 1)
    criteria = tuple(totals.criteria.values())
    rows = database.execute("SELECT id, case_id, number, judged, data FROM session ORDER BY start, line")
    while page := rows.fetchmany(AT_ONCE):
        for session_id, own_id, number, is_judged, data in page:
            result = from_json(data, TrialResult)
            case_id = own_id or free_name(session_id, used_names)
            session = Session(session_id, result.transcript.turns, n_lost=n_lost)
            if not is_judged:
                result = replace(result, verdict=trial_verdict(result.scores, criteria, None))
            place = trials.place(case_id)
            trials.offer(place, case_of_session(case_id, session, tells_calls=totals.tells_calls))
            trials.add(place, result, number)


def _commonest(names: Counter[str]) -> str:
    return next((name for name, _ in names.most_common(1)), "")
