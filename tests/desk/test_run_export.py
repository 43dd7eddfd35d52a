"""A run, given out part by part in each format: the same as a whole, in the memory of a few trials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.desk.evalsets import exporting
from evaldesk.desk.evalsets.exporting import export_run, recorded_run, run_formats, stream_run
from evaldesk.desk.runs import stored_runs
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.durable_files import create_file, replace_file
from evaldesk.errors import NotFoundError
from evaldesk.formats.files import names_for, run_parts, suffix_of, write_file
from evaldesk.model import AgentRef, Case, Event, RunConfig, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.reading.json_text import to_text
from evaldesk.store import Store

KEY = "sk-proj-7Qw2Lm9Xz4Rt6Yb8Nc1Vd3Fg5Hj0Kp"
ENVIRONMENT = {"OPENAI_API_KEY": KEY}
N_CASES = 30
N = 3


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[StoredRuns]:
    with Store.open(tmp_path / "evaldesk.db") as store:
        cases = [Case(f"case {at}", (Turn("hi"),)) for at in range(N_CASES)]
        run_id = store.runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=N), cases)
        store.runs.record([_trial(run_id, at, index) for at in range(N_CASES) for index in range(N) if at + index != 5])
        yield StoredRuns(store.runs)


def _trial(run_id: int, case_index: int, trial_index: int) -> TrialResult:
    said = f"two\r\nlines, {KEY}" if case_index in (4, 20) else f'"quoted", {case_index}'
    turn = TurnRecord("hi", (Event("agent_message", 0.0, "dice", said),))
    return TrialResult(run_id, case_index, trial_index, "finished", "passed", transcript=Transcript((turn,)))


def test_a_streamed_table_is_the_whole_one(runs: StoredRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PART", 300)
    whole = export_run(runs, 1, "csv", ENVIRONMENT)

    stream = stream_run(runs, 1, "csv", ENVIRONMENT)
    parts = list(stream.parts)

    assert len(parts) > 10
    assert b"".join(parts) == whole.data
    assert (stream.file_name, stream.masking_note) == (whole.file_name, whole.masking_note)
    assert stream.masking_note == "5 values masked: OPENAI_API_KEY in case case 4, case case 20."
    assert KEY.encode() not in whole.data


@pytest.mark.parametrize("format_name", names_for("run"))
def test_a_file_of_streamed_trials_is_that_of_trials_in_memory(
    runs: StoredRuns, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "CASES_AT_ONCE", 7)
    read = recorded_run(runs, 1)
    whole = write_file(replace(read, cases=tuple(read.cases), results=tuple(read.results)), format_name)

    parts = list(run_parts(read, format_name))

    assert b"".join(parts) == whole
    assert len(parts) > N_CASES
    assert all(case.id.encode() in whole for case in read.cases)
    if suffix_of(format_name).endswith(".json") and whole.startswith(b"{\n"):
        assert to_text(json.loads(whole), {}, "") == whole


@pytest.mark.parametrize("format_name", [name for name, _ in run_formats()])
def test_secrets_are_masked_and_named_in_every_format(runs: StoredRuns, format_name: str) -> None:
    found = export_run(runs, 1, format_name, ENVIRONMENT)

    assert KEY.encode() not in found.data
    says_answers = format_name not in ("criteria", "osmosis-results")
    assert found.masking_note.endswith("OPENAI_API_KEY in case case 4, case case 20.") == says_answers


def test_a_run_that_no_format_can_hold_is_refused_before_its_first_part(runs: StoredRuns) -> None:
    with pytest.raises(NotFoundError, match="adk-result"):
        stream_run(runs, 1, "adk-result", ENVIRONMENT)


@pytest.mark.parametrize(
    "format_name",
    [
        "csv",
        "adk-results",
        pytest.param("openhands", marks=of_tools("openhands")),
        pytest.param("atif", marks=of_tools("atif")),
        "otel",
    ],
)
def test_few_trials_are_in_memory_together(runs: StoredRuns, monkeypatch: pytest.MonkeyPatch, format_name: str) -> None:
    monkeypatch.setattr(stored_runs, "TRIALS_AT_ONCE", 6)
    monkeypatch.setattr(exporting, "PART", 1)
    asked, read = [], runs._store.trials

    def counted(run_id: int, keys: Any, **options: Any) -> Any:
        asked.append(len(keys))
        return read(run_id, keys, **options)

    monkeypatch.setattr(runs._store, "trials", counted)
    parts = stream_run(runs, 1, format_name, {}).parts

    assert len(list(islice(parts, 5))) == 5
    assert len(asked) <= 2  # the others are read when they are asked for
    list(parts)
    n_readings = 2  # in the second one the cases of the masked key are looked for
    assert (max(asked), sum(asked)) == (6, n_readings * (N_CASES * N - 3))


@pytest.mark.parametrize("format_name", ["csv", *names_for("run")])
def test_the_progress_of_a_file_is_told(runs: StoredRuns, format_name: str) -> None:
    told: list[tuple[int, int]] = []

    list(stream_run(runs, 1, format_name, ENVIRONMENT, watch=lambda *so_far: told.append(so_far)).parts)

    assert told == [(n, N_CASES) for n in range(N_CASES + 1)]


def test_a_table_that_is_broken_off_leaves_no_file(runs: StoredRuns, tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("old")

    def broken_off() -> Iterator[bytes]:
        yield from islice(stream_run(runs, 1, "csv", ENVIRONMENT).parts, 1)
        raise KeyboardInterrupt

    for write, path in ((create_file, tmp_path / "new.csv"), (replace_file, old)):
        with pytest.raises(KeyboardInterrupt):
            write(path, broken_off())

    assert old.read_text() == "old"
    assert sorted(path.name for path in tmp_path.glob("*csv*")) == ["old.csv"]
