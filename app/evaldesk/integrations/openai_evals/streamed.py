"""Large exports of OpenAI Evals with one object a line: evals, runs and one row are in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO

from evaldesk.formats.exchange import Imported
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.openai_evals.archive import Archive, Placed, is_object, mapping, text
from evaldesk.integrations.openai_evals.evals import (
    ReadEval,
    Row,
    RowCases,
    RunTrials,
    as_import,
    file_content,
    read_row,
)
from evaldesk.integrations.openai_evals.graders import read_graders
from evaldesk.model import Case
from evaldesk.reading.json_lines import read_lines
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.transcripts.recorded import file_stem

ITEM = "eval.run.output_item"


def read_streamed(file: BinaryIO, source: str) -> Imported:
    """The rows of the eval as cases and its runs, in three passes: its objects, its output items, its other rows.

    Raises FormatError, and NotStreamedError for pages, lists and several evals, which are read whole.
    """
    notes, archive = Notes(), _Heads()
    for place, value in _objects(file, source):
        archive.take_head(place, value, notes)
    if len(archive.eval_ids()) != 1:
        raise NotStreamedError
    (eval_id,) = archive.eval_ids()
    place_and_raw = archive.evals.get(eval_id)
    raw = place_and_raw[1] if place_and_raw else {}
    criteria = raw.get("testing_criteria")
    each = ReadEval(
        text(raw.get("name")) or eval_id or file_stem(source),
        read_graders(criteria),
        tuple(one for one in criteria if isinstance(one, dict)) if isinstance(criteria, list) else (),
    )
    each.cases = _read_rows(file, source, archive, each, notes)
    if not each.cases:
        raise NotStreamedError
    return as_import([each], file_stem(source), archive, notes)


def _objects(file: BinaryIO, source: str) -> Iterator[Placed]:
    """The objects of the lines. Raises NotStreamedError for a line that holds several."""
    file.seek(0)
    for line in read_lines(file, source):
        if not isinstance(line.value, dict) or line.value.get("object") == "list":
            raise NotStreamedError
        yield JsonPosition(line), line.value


@dataclass(slots=True)
class _Heads(Archive):
    """The evals and runs of a file without their rows, and the runs that output items are of."""

    n_others: int = 0

    def take_head(self, place: JsonPosition, value: dict[str, Any], notes: Notes) -> None:
        """Take in an eval or a run, and count another row."""
        kind = value.get("object")
        if kind == ITEM:
            known_items = self.items.setdefault(text(value.get("run_id")), {})
            if not known_items:  # the first tells the eval of a run whose object is missing
                known_items[""] = [(place, {"eval_id": value.get("eval_id")})]
        elif kind == "eval.run" and is_object(value):
            self.n_others += any(True for _ in file_content(place, mapping(value.get("data_source"))))
            self.take(place, _without_content(value), notes)
        elif kind is None and is_object(value):
            self.n_others += 1
        else:
            self.take(place, value, notes)


def _without_content(run: dict[str, Any]) -> dict[str, Any]:
    """The run without the rows of its file."""
    source = mapping(run.get("data_source"))
    inner = mapping(source.get("source"))
    if "content" not in inner:
        return run
    other_keys = {name: value for name, value in inner.items() if name != "content"}
    return {**run, "data_source": {**source, "source": other_keys}}


@dataclass(slots=True)
class _CasesOnDisk(RowCases):
    """As RowCases: of a row its digest and the place of its case are in memory."""

    places: dict[bytes, int] = field(default_factory=dict)
    rows: TrialRowsOnDisk = field(default_factory=TrialRowsOnDisk)

    def case(self, place: JsonPosition, item: Mapping[str, Any], row: Row) -> Case:
        """The case of a row, the same for equal rows."""
        key = blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=16).digest()
        if key in self.places:
            return self.rows.case(self.places[key])
        case = self.new_case(place, item, row, len(self.places) + 1)
        self.places[key] = self.rows.place(case.id)
        self.rows.offer(self.places[key], case)
        return case


def _read_rows(file: BinaryIO, source: str, archive: _Heads, each: ReadEval, notes: Notes) -> Sequence[Case]:
    """The cases of all rows, with the runs added to the eval."""
    cases = _CasesOnDisk(each.graders, notes)
    runs: dict[str, RunTrials] = {}
    for run_id in archive.run_ids(archive.eval_ids()[0]):
        place, raw = archive.runs.get(run_id) or (None, {})
        if run_id in archive.items:
            runs[run_id] = RunTrials(run_id, raw, TrialRowsOnDisk())
        elif place is not None:
            notes.refuse("a run whose output items are not in the export", place)
    for place, value in _objects(file, source):
        run = runs.get(text(value.get("run_id"))) if value.get("object") == ITEM else None
        if run:
            run.add(place, value, text(value.get("id")) or f"{len(run.item_ids)}", cases, each)
    for run in runs.values():
        run.finish(each)
    for place, value in _objects(file, source) if archive.n_others else ():
        data, contents = mapping(value.get("data_source")), iter([(place, value)])
        if value.get("object") == "eval.run":
            contents = file_content(place, data)
        elif value.get("object") is not None or not is_object(value):
            continue
        for row_place, content in contents:
            item = mapping(content.get("item"))
            cases.case(row_place, item, read_row(item, data, content.get("sample"), row_place, notes))
    return cases.rows.finish()[0]
