"""A large file of runs is read trial by trial: the same runs, words and faults, in the memory of a few trials."""

from __future__ import annotations

import gc
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.desk.test_streamed_files import peak_of
from tests.formats.test_exchange_contract import ODD, sample
from tests.islands import of_tools

from evaldesk.desk.imports import streamed
from evaldesk.desk.imports.files import read_path
from evaldesk.errors import DiskError, FormatError
from evaldesk.formats import large_runs
from evaldesk.formats.exchange import FORMATS, Imported, LargeRunFormat
from evaldesk.formats.files import load_format, read_file, suffix_of, write_file
from evaldesk.formats.recorded_cases import LARGE_WORDS
from evaldesk.model import Case, Criterion, Event, Score, Transcript, TrialResult, Turn, TurnRecord, Verdict
from evaldesk.reading.json_stream import StreamedList
from evaldesk.store.evalsets import large
from evaldesk.transcripts.recorded import LargeResults, RecordedRun, digest_of

LARGE = [name for name in FORMATS if isinstance(load_format(name), LargeRunFormat)]
every_format = pytest.mark.parametrize("name", LARGE)
every_format_of_ours = pytest.mark.parametrize("name", [name for name in LARGE if "run" in load_format(name).writes])
N_CASES, N = 6, 4


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WHOLE", -1)


def in_memory(imported: Imported) -> Imported:
    assert all(isinstance(run.results, LargeResults) for run in imported.runs)
    runs = tuple(replace(run, cases=tuple(run.cases), results=tuple(run.results)) for run in imported.runs)
    if imported.evalset is not None:
        imported = replace(imported, evalset=replace(imported.evalset, cases=tuple(imported.evalset.cases)))
    return replace(imported, runs=runs, understood=tuple(each for each in imported.understood if each != LARGE_WORDS))


def as_read_whole(path: Path, outcome: str = "") -> Imported | str:
    try:
        imported = read_file(path.read_bytes(), str(path), outcome=outcome)
        # Of a large file the values that are expected by matchers are not named one by one.
        sentences = (each for each in imported.understood if not each.startswith("Not expected as recorded"))
        return replace(imported, understood=tuple(sentences))
    except FormatError as error:
        return str(error)


def as_streamed(path: Path, outcome: str = "") -> Imported | str:
    try:
        return in_memory(read_path(path, outcome=outcome))
    except FormatError as error:
        return str(error)


def a_run(n_cases: int = N_CASES, n: int = N) -> RecordedRun:
    criterion = Criterion("match", 0.5)
    cases = tuple(Case(f"case {at}", (Turn(f"question {at}"),)) for at in range(n_cases))
    results = tuple(_trial(case_index, trial) for case_index in range(n_cases) for trial in range(n))
    return RecordedRun("trips", "dice", cases, results, (criterion,), "demo")


def _trial(case_index: int, trial_index: int) -> TrialResult:
    value = ((case_index + trial_index) % 4) / 4
    turn = TurnRecord(
        f"question {case_index}", (Event("agent_message", 0.0, "dice", f"{trial_index} " + "said " * 40),)
    )
    score = Score("match", value, None, 0.5, value >= 0.5)
    verdict: Verdict = "passed" if value >= 0.5 else "failed"
    return TrialResult(0, case_index, trial_index, "finished", verdict, transcript=Transcript((turn,)), scores=(score,))


def large_sample(name: str) -> tuple[bytes, str]:
    """The sample of a format and its name; one trace alone is read whole, so it is made a list."""
    data, source = sample(name)
    is_trace_alone = json.loads(data).keys() == {"info", "data"} if data.startswith(b"{\n") else False
    return (b"[" + data + b"]" if is_trace_alone else data), source


@every_format
def test_a_sample_is_read_as_a_whole_file_is(name: str, tmp_path: Path) -> None:
    data, source = large_sample(name)
    path = tmp_path / source
    path.write_bytes(data)

    assert as_streamed(path) == as_read_whole(path)


@every_format_of_ours
def test_a_run_of_ours_comes_back_with_the_same_digest(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"run{suffix_of(name)}"
    path.write_bytes(write_file(a_run(), name))

    found, whole = read_path(path), read_file(path.read_bytes(), str(path))

    assert in_memory(found) == whole
    assert [digest_of(run) for run in found.runs] == [digest_of(run) for run in whole.runs]
    assert [len(run.results) for run in found.runs] == [N_CASES * N]


def is_lines(data: bytes) -> bool:
    """Whether the first line is an object of its own."""
    line = data.partition(b"\n")[0].strip()
    return line.startswith(b"{") and line.endswith(b"}")


def shuffled(name: str, data: bytes, chance: random.Random) -> bytes:
    """The same rows in another order, some of them twice."""

    def mixed(rows: list[Any]) -> list[Any]:
        return chance.sample(rows, len(rows)) + chance.choices(rows, k=3)

    if is_lines(data):
        return b"\n".join(mixed(data.splitlines())) + b"\n"
    whole = json.loads(data)
    if isinstance(whole, list):
        return json.dumps(mixed(whole)).encode()
    for key in ("eval_case_results", "rows", "runs", "simulations", "samples"):
        if isinstance(whole.get(key), list) and whole[key]:
            whole[key] = mixed(whole[key])
    keys = chance.sample(list(whole), len(whole))
    return json.dumps({key: whole[key] for key in keys}).encode()


@every_format
@pytest.mark.parametrize("seed", range(4))
def test_rows_in_another_order_and_rows_that_are_there_twice_make_the_same_run(
    name: str, seed: int, tmp_path: Path
) -> None:
    is_ours = "run" in load_format(name).writes
    data = write_file(a_run(), name) if is_ours else sample(name)[0]
    path = tmp_path / f"run{suffix_of(name)}"
    path.write_bytes(shuffled(name, data, random.Random(seed)))

    assert as_streamed(path) == as_read_whole(path)


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something odd in one place."""
    places: list[tuple[Any, Any]] = []

    def walk(each: Any) -> None:
        for key, inner in each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ():
            places.append((each, key))
            walk(inner)

    walk(value)
    held, key = chance.choice(places)
    if chance.random() < 0.3 and isinstance(held, dict):
        del held[key]
    else:
        held[key] = chance.choice(ODD)
    return value


@every_format
@pytest.mark.parametrize("seed", range(3))
def test_a_fault_is_told_as_of_a_whole_file(name: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    data, source = large_sample(name)
    path = tmp_path / source

    for _ in range(40):
        if is_lines(data):
            rows = [json.loads(line) for line in data.splitlines() if line.strip()]
            at = chance.randrange(len(rows))
            rows[at] = changed(rows[at], chance)
            path.write_bytes(b"\n".join(json.dumps(row).encode() for row in rows))
        else:
            path.write_bytes(json.dumps(changed(json.loads(data), chance)).encode())
        assert read_by(path, name, as_streamed) == read_by(path, name, as_read_whole)


def read_by(path: Path, name: str, read: Any) -> Any:
    """The runs, or the words of the fault; where the file is not read by this format, that."""
    found = read(path)
    return found if isinstance(found, str) or found.format == name else found.format


@of_tools("openhands")
def test_the_key_of_the_outcome_and_the_metadata_of_a_folder_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = sample("openhands")
    (tmp_path / "output.jsonl").write_bytes(data)
    metadata = {"agent_class": "CodeAct", "llm_config": {"model": "m"}, "dataset": "swe"}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata, indent=1))
    outcomes = read_path(tmp_path).outcomes

    found = [in_memory(read_path(tmp_path, outcome=outcome)) for outcome in ("", *outcomes)]
    monkeypatch.setattr(large, "WHOLE", 2**30)

    assert found == [read_path(tmp_path, outcome=outcome) for outcome in ("", *outcomes)]
    assert {each.runs[0].criteria[0].metric for each in found} == set(outcomes)
    monkeypatch.setattr(large, "WHOLE", -1)
    with pytest.raises(FormatError, match="no row says 'nothing'"):
        read_path(tmp_path, outcome="nothing")


@every_format
def test_the_reading_is_told_from_its_beginning_to_its_end(name: str, tmp_path: Path) -> None:
    data, source = sample(name)
    path = tmp_path / source
    path.write_bytes(data * (30 if is_lines(data) and data.endswith(b"\n") else 1))
    n_bytes = path.stat().st_size
    told: list[tuple[int, int]] = []

    read_path(path, watch=lambda *so_far: told.append(so_far))

    assert [n for n, _ in told] == sorted(n for n, _ in told)
    assert {total for _, total in told} == {n_bytes}
    assert told[-1][0] == n_bytes


@every_format
def test_a_reading_that_is_broken_off_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    data, source = sample(name)
    path = tmp_path / source
    path.write_bytes(data)

    def broken_off(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_path(path, watch=broken_off)

    assert list((tmp_path / "tmp").iterdir()) == []


@every_format
def test_trials_that_are_read_in_part_are_let_go_of(name: str, tmp_path: Path) -> None:
    data, source = sample(name)
    path = tmp_path / source
    path.write_bytes(data)

    left = [(iter(run.cases), iter(run.results)) for run in read_path(path).runs]
    assert all(next(part) for both in left for part in both)
    del left
    gc.collect()  # an error of a generator would be a warning, and warnings are errors


@every_format
def test_a_full_folder_of_temporary_files_is_told_in_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = large_runs.open_scratch

    def small(tables: str) -> Any:
        return real(f"PRAGMA max_page_count=4; {tables}")

    monkeypatch.setattr("evaldesk.formats.large_runs.open_scratch", small)
    data, source = sample(name)
    path = tmp_path / source
    path.write_bytes(data)

    with pytest.raises(DiskError, match=r"temporary files .*full.*; free some space, or set TMPDIR"):
        read_path(path)


@pytest.mark.long
@every_format_of_ours
def test_memory_does_not_grow_with_the_trials(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "HEAD_OF_OBJECT", 1024)
    monkeypatch.setitem(StreamedList.__init__.__kwdefaults__ or {}, "chunk", 4096)

    def use(n: int) -> int:
        path = tmp_path / f"run{suffix_of(name)}"
        path.write_bytes(write_file(a_run(n, 10), name))

        def read() -> None:
            for run in read_path(path).runs:
                assert sum(1 for _ in run.results) == 10 * n
                digest_of(run)

        return peak_of(read)

    few, many = use(90), use(150)  # Python keeps some hundred freed tuples before

    assert many < few + 150_000, "600 more trials have 1 MiB in memory"
