"""The folder of a local run of Osmosis, or of one that was downloaded. (osmosis-ai 0.3.7; reference/osmosis.md 5.5)

index.jsonl or summary.jsonl     a row for each attempt
metrics.json                     the run, its threshold and its own summary
trajectories/row_R_run_N.json    the conversation of an attempt, as ATIF
artifacts/row_R_run_N/           files that the attempt made
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from evaldesk.errors import FormatError, NotFoundError
from evaldesk.formats.exchange import Imported, ResultFolder
from evaldesk.formats.files import load_format
from evaldesk.integrations.osmosis.results import OsmosisResults, attempts_in
from evaldesk.model import Case, Event, Expected, TrialResult, Turn, TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.transcripts.recorded import RecordedRun

ROWS = ("index.jsonl", "summary.jsonl")
METRICS = "metrics.json"
_ARTIFACT = re.compile(r"artifacts/row_(\d+)_run_(\d+)/(.+)")
MAX_NAMED = 20


class RunFolder:
    """An index with its metrics, trajectories and artifacts."""

    parts = "index.jsonl or summary.jsonl with metrics.json (Osmosis)"

    @staticmethod
    def holds(paths: Sequence[str]) -> bool:
        """Whether an index is there, beside metrics or trajectories."""
        has_rows = any(name in paths for name in ROWS)
        return has_rows and any(path == METRICS or path.startswith("trajectories/") for path in paths)

    @staticmethod
    def beside(main: str, paths: Sequence[str]) -> Sequence[str]:
        """All but the other index of the folder."""
        return [path for path in paths if path not in ROWS and path != main]

    @staticmethod
    def read_folder(folder: ResultFolder, outcome: str) -> Imported:
        """The run with the conversations of its attempts. Raises FormatError."""
        if outcome:
            raise FormatError("the files state which trials passed, so no outcome can be chosen", source=folder.name)
        rows = next(name for name in ROWS if name in folder.paths)
        files = [(f"{folder.name}/{rows}", folder.read(rows))]
        if METRICS in folder.paths:
            files.append((f"{folder.name}/{METRICS}", folder.read(METRICS)))
        source, data = OsmosisResults.join(files) if len(files) > 1 else files[0]
        imported = OsmosisResults.read(data, source=source)
        (run,) = imported.runs
        artifacts = defaultdict[tuple[int, int], list[str]](list)
        for match in filter(None, map(_ARTIFACT.fullmatch, folder.paths)):
            artifacts[int(match[1]), int(match[2])].append(match[3])
        names = attempts_in(data, source)
        new_run, unread = _with_trajectories(run, folder, names, artifacts)
        words = [word for word in imported.understood if "has no conversations" not in word]
        words.append(f"A trial passes when its reward reaches {run.criteria[0].threshold:g}." if run.criteria else "")
        if artifacts:
            n_files = sum(map(len, artifacts.values()))
            of = f"{counted(n_files, 'artifact')} of {counted(len(artifacts), 'trial')}"
            words.append(f"{of}: named in the trial, the files stay in the folder.")
        return replace(
            imported,
            runs=(new_run,),
            understood=tuple(filter(None, words)),
            refused=(*imported.refused, *unread),
        )


def _with_trajectories(
    run: RecordedRun,
    folder: ResultFolder,
    names: dict[tuple[int, int], str],
    artifacts: dict[tuple[int, int], list[str]],
) -> tuple[RecordedRun, list[str]]:
    """The run with turns from trajectories, and sentences on those that cannot be read."""
    try:
        atif = load_format("atif")
    except NotFoundError:
        atif = None
    indexes = sorted({row for row, _ in names})
    numbers = {row: sorted(each for other, each in names if other == row) for row in indexes}
    queries: dict[int, str] = {}
    results: list[TrialResult] = []
    unread: list[str] = []
    for result in run.results:
        row = indexes[result.case_index]
        key = (row, numbers[row][result.trial_index])
        path = f"trajectories/{names[key] or f'row_{key[0]}_run_{key[1]}.json'}"
        turns: tuple[TurnRecord, ...] = ()
        if path in folder.paths and atif is not None:
            try:
                turns = atif.read(folder.read(path), source=path).runs[0].results[0].transcript.turns
            except FormatError as error:
                unread.append(f"Left out: {path}: {error.reason}")
        if turns:
            queries.setdefault(result.case_index, turns[0].query)
        if key in artifacts:
            turns = _naming(turns, artifacts[key])
        results.append(replace(result, transcript=replace(result.transcript, turns=turns)) if turns else result)
    cases = tuple(_asking(case, queries.get(at, "")) for at, case in enumerate(run.cases))
    return replace(run, cases=cases, results=tuple(results)), unread[:MAX_NAMED]


def _asking(case: Case, query: str) -> Case:
    return replace(case, turns=(Turn(query, Expected()),)) if query else case


def _naming(turns: tuple[TurnRecord, ...], files: Sequence[str]) -> tuple[TurnRecord, ...]:
    """The turns with a line of log that names the artifacts."""
    more = f" and {len(files) - MAX_NAMED} more" if len(files) > MAX_NAMED else ""
    event = Event("log", author="artifacts", text=f"Artifacts: {', '.join(files[:MAX_NAMED])}{more}")
    *before, last = turns or (TurnRecord("", ()),)
    return (*before, replace(last, events=(*last.events, event)))
