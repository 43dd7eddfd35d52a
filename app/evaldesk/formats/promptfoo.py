"""The format "promptfoo": results of promptfoo, as one `.json` or with a row on each line.

A run for each prompt and provider. Rows with the same variables and assertions are trials of one case: promptfoo writes
repeats as tests of their own. (promptfoo/promptfoo src/types, results version 2 and 3)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.documents import read_documents
from evaldesk.formats.exchange import Imported, RecordedRun
from evaldesk.formats.import_words import counted
from evaldesk.formats.json_lines import Line
from evaldesk.formats.notes import Notes
from evaldesk.formats.peeking import peek
from evaldesk.formats.promptfoo_row import PASS, Row, read_row
from evaldesk.formats.read_only import ReadOnly
from evaldesk.formats.reading import read_list, read_mapping
from evaldesk.formats.recorded import file_stem, free_name, recorded_trial, trial_places
from evaldesk.formats.shape import ABSENT
from evaldesk.formats.strict_json import Place
from evaldesk.model import Case, Criterion, EvalSet, TrialResult

_ROW = {"promptIdx", "testIdx"}


class Promptfoo(ReadOnly):
    """The format "promptfoo"."""

    title = "promptfoo results"
    suffixes = (".json", ".jsonl")
    instead = "write a run as otel or atif"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a promptfoo file of results, or its first line is a row of one."""
        seen = peek(data)
        first = seen.whole if isinstance(seen.whole, dict) else seen.line if seen.whole is None else None
        if not isinstance(first, dict):
            return False
        results = first.get("results")
        return _is_row(first) or _is_summary(results) or ("evalId" in first and "results" in first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The tests as cases and a run for each prompt and provider. Raises FormatError."""
        notes = Notes()
        runs: dict[tuple[str, str], _Run] = {}
        for place, raw in _rows(data, source):
            row = read_row(place, raw, notes)
            runs.setdefault((row.provider, row.prompt), _Run(row.provider, row.prompt)).rows.append(row)
        if not runs:
            raise FormatError("the file has no results", source=source)
        return _imported(list(runs.values()), file_stem(source), notes)


@dataclass(slots=True)
class _Run:
    """The rows of one prompt with one provider."""

    provider: str
    prompt: str
    rows: list[Row] = field(default_factory=list)

    def recorded(self, stem: str, is_one_of_many: bool) -> RecordedRun:
        """The run with its cases, those with the same test being trials of one."""
        places = [place or (0, 0) for place in trial_places([(row.test, None) for row in self.rows])]
        cases: dict[int, Case] = {}
        taken: dict[str, int] = {}
        for row, (case_index, _) in zip(self.rows, places, strict=True):
            if case_index not in cases:
                cases[case_index] = row.case(free_name(row.description or f"test_{case_index + 1}", taken))
        names = dict.fromkeys(score.metric for row in self.rows for score in row.scores)
        criteria = (PASS, *(Criterion(name) for name in names if name != PASS.metric))
        return RecordedRun(
            name=f"{stem} {self.provider}" if is_one_of_many else stem,
            agent=self.provider or stem,
            cases=tuple(cases.values()),
            results=tuple(_result(row, place, criteria) for row, place in zip(self.rows, places, strict=True)),
            criteria=criteria,
            model=self.provider or None,
            note=f"Prompt: {self.prompt}"[:500] if self.prompt else "",
        )


def _rows(data: bytes, source: str) -> Iterator[tuple[Place, Any]]:
    for document in read_documents(data, source):
        place = Place(document)
        whole = read_mapping(place, document.value)
        if isinstance(document, Line) or _is_row(whole):
            yield place, whole
            continue
        results, at = whole.get("results", ABSENT), place.at("results")
        if isinstance(results, dict):
            results, at = results.get("results", ABSENT), at.at("results")
        yield from read_list(at, results, lambda inner, raw: (inner, raw))


def _imported(runs: Sequence[_Run], stem: str, notes: Notes) -> Imported:
    recorded = tuple(run.recorded(stem, len(runs) > 1) for run in runs)
    rows = [row for run in runs for row in run.rows]
    understood = ["A trial passes when promptfoo says so; scores and assertions inform."]
    if len(runs) > 1:
        understood.append(
            f"{counted(len(runs), 'run')}, one for each prompt and provider; the eval set is that of the first."
        )
    n_cached = sum(row.is_cached for row in rows)
    if n_cached:
        understood.append(
            f"{counted(n_cached, 'answer')} came from promptfoo's cache: repeats of one answer are not independent."
        )
    evalset = EvalSet(stem, cases=recorded[0].cases)
    return Imported("promptfoo", evalset, recorded, tuple(understood), (), notes.sentences)


def _result(row: Row, place: tuple[int, int], criteria: Sequence[Criterion]) -> TrialResult:
    return recorded_trial(
        place,
        row.turns,
        scores=row.scores,
        criteria=criteria,
        error=row.error,
        stop_reason="error" if row.error else "answered",
        duration_ms=row.duration_ms,
        usages=(row.usage,) if row.usage else (),
    )


def _is_row(raw: dict[str, Any]) -> bool:
    return raw.keys() >= _ROW


def _is_summary(raw: Any) -> bool:
    if isinstance(raw, dict):
        return "results" in raw and bool({"stats", "prompts", "table"} & set(raw))
    return isinstance(raw, list) and bool(raw) and isinstance(raw[0], dict) and "gradingResult" in raw[0]
