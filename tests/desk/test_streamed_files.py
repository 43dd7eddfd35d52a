"""A large file of cases is read row by row: the same cases, the same words, and no more memory for more rows."""

from __future__ import annotations

import gc
import io
import json
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.formats.test_adk_stream import FAULTS, GOOD
from tests.islands import of_tools

from evaldesk.desk.imports import streamed
from evaldesk.desk.imports.files import examine_file, read_path
from evaldesk.errors import FormatError
from evaldesk.formats import load_evalset
from evaldesk.formats.criteria_file import load_criteria_file
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.model.evalset import LargeCases
from evaldesk.reading.regular_file import read_regular
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.store.evalsets import large

pytestmark = of_tools("openhands", "osmosis")

ROWS = [
    {
        "user_prompt": f"Add {n} 🎲",
        "ground_truth": f"{n}",
        "system_prompt": "Add.",
        "difficulty": n % 3,
        "x": {"a": [n]},
    }
    for n in range(40)
]


def lines(rows: list[dict[str, object]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


FILES: dict[str, tuple[str, str]] = {
    "lines": ("rows.jsonl", lines(ROWS)),
    "lines_with_blanks": ("rows.jsonl", "\n\n" + lines(ROWS).replace("\n", "\r\n\r\n") + "\n"),
    "lines_without_prompts": ("rows.jsonl", lines([{**row, "system_prompt": None} for row in ROWS])),
    "lines_with_ids": ("rows.jsonl", lines([{**row, "case_id": f"c{n}"} for n, row in enumerate(ROWS)])),
    "lines_with_metadata": ("rows.jsonl", lines([{"metadata": {"n": n}, "label": "x"} for n in range(9)])),
    "lines_with_refused_keys": ("rows.jsonl", lines([{**row, "$form": 1} for row in ROWS])),
    "table": (
        "rows.csv",
        "user_prompt,ground_truth,system_prompt\n" + "".join(f'"Add\n{n}",ü{n},s\n' for n in range(30)),
    ),
    "table_marked": ("rows.csv", "\ufeffuser_prompt,label\nadd,3\n"),
    **{f"adk_{name}": ("s.evalset.json", text) for name, text in GOOD.items() if name != "escaped_key"},
}
WRONG: dict[str, tuple[str, str]] = {
    "id_twice": ("rows.jsonl", lines([{**row, "case_id": "same"} for row in ROWS])),
    "text_missing": ("rows.jsonl", lines([*ROWS, {"user_prompt": 1}])),
    "line_cut": ("rows.jsonl", lines(ROWS)[:-3]),
    "line_comma": ("rows.jsonl", lines(ROWS).replace('"s": 1}', '"s": 1,}') + '\n{"user_prompt": "x",}'),
    "table_wide": ("rows.csv", "user_prompt\na\nb,c\n"),
    "table_nul": ("rows.csv", "user_prompt\na\nb\x00\n"),
    "table_empty": ("rows.csv", "user_prompt\n"),
    "table_quote": ("rows.csv", 'user_prompt\n"a'),
    **{f"adk_{name}": ("s.evalset.json", FAULTS[name]) for name in ("comma_in_case", "no_id", "half_character")},
}


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WHOLE", -1)


def written(folder: Path, file: tuple[str, str]) -> Path:
    path = folder / file[0]
    path.write_bytes(file[1].encode())
    return path


@pytest.mark.parametrize("name", FILES)
def test_the_cases_and_the_words_are_those_of_the_whole_file(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, FILES[name])

    found = read_path(path)

    assert found.evalset is not None
    assert isinstance(found.evalset.cases, LargeCases)
    whole = read_file(path.read_bytes(), str(path))
    assert replace(found, evalset=replace(found.evalset, cases=tuple(found.evalset.cases))) == whole


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_named_as_in_the_whole_file(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, WRONG[name])

    with pytest.raises(FormatError) as found:
        read_path(path)
    with pytest.raises(FormatError) as whole:
        read_file(path.read_bytes(), str(path))

    assert str(found.value) == str(whole.value)


def test_a_fault_of_a_set_that_is_too_large_to_be_held_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, ("s.evalset.json", FAULTS["no_comma_between_cases"]))
    with pytest.raises(FormatError) as whole:
        read_path(path)
    monkeypatch.setattr(streamed, "MAX_BYTES", 10)

    with pytest.raises(FormatError) as found:
        read_path(path)

    assert str(found.value) == str(whole.value)


@pytest.mark.parametrize("column", ["tags", "rubrics", "conversation", "conversatoin", "eval_id", "session_input"])
def test_a_column_that_means_something_in_a_case_is_a_column_all_the_same(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, ("rows.jsonl", lines([{**row, column: ["a"]} for row in ROWS])))

    found = read_path(path)

    assert found.evalset is not None
    assert found.evalset.cases[3].extra[column] == ["a"]


def test_other_files_are_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path, ("rows.json", json.dumps(ROWS)))

    found = read_path(path)

    assert found.format == "osmosis-json"
    assert found.evalset is not None
    assert isinstance(found.evalset.cases, tuple)


def test_a_set_is_read_through_a_link_and_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, ("s.evalset.json", GOOD["usual"]))
    (tmp_path / "link.evalset.json").symlink_to("s.evalset.json")
    monkeypatch.chdir(tmp_path)

    for name in ("s.evalset.json", "link.evalset.json"):
        assert examine_file(Path(name)).n_cases == 2


def peak_of(action: Callable[[], object]) -> int:
    """The most memory of the action; what earlier tests left does not put off the collection of its garbage."""
    gc.collect()
    gc.freeze()
    gc.collect()  # the frozen ones count until here, and the more there are the later garbage is looked for
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "of an import": (FILES["lines"][1], read_path),
    "of an eval set": (GOOD["usual"], load_evalset),
    "of criteria": ('{"criteria": {}}', load_criteria_file),
    "of served folders": ("", lambda path: read_regular(path, MAX_BYTES)),
}


@pytest.mark.parametrize(("text", "read"), READERS.values(), ids=READERS.keys())
def test_a_small_file_takes_no_memory_for_the_largest_that_is_read(
    tmp_path: Path, text: str, read: Callable[[Path], object]
) -> None:
    path = written(tmp_path, ("s.json", text))
    read(path)  # imports are done

    assert peak_of(lambda: read(path)) < MAX_BYTES // 4


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path: Path, name: str) -> None:
    pipe = Path(os.path.realpath(tmp_path)) / "pipe.json"
    os.mkfifo(pipe)
    (tmp_path / "link.json").symlink_to(pipe)

    for path in (pipe, tmp_path / "link.json", Path(os.devnull)):
        with pytest.raises(FormatError, match="a pipe or a device"):
            READERS[name][1](path)


def test_the_pipe_of_a_shell_is_read() -> None:
    reader, writer = os.pipe()
    os.write(writer, GOOD["usual"].encode())
    os.close(writer)
    try:
        assert len(load_evalset(f"/dev/fd/{reader}").cases) == 2
    finally:
        os.close(reader)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, name: str) -> None:
    def use(n: int) -> int:
        path = tmp_path / name
        with path.open("w") as file:
            if name.endswith("csv"):
                file.write("user_prompt,ground_truth\n")
                file.writelines(f"{'x' * 600} {number},{number}\n" for number in range(n))
            else:
                file.writelines(
                    f'{{"user_prompt": "{"x" * 600} {number}", "ground_truth": "1"}}\n' for number in range(n)
                )

        def read() -> Imported:
            found = read_path(path)
            assert found.evalset is not None
            assert sum(1 for _ in found.evalset.cases) == n
            return found

        return peak_of(read)

    few, many = use(800), use(1_600)

    assert many < few + 150_000, "800 more cases have 2 MiB in memory"


def test_no_more_than_a_row_of_a_line_without_end_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "MAX_ROW", 1_000)
    file = io.BytesIO(b"{}\n" + b"x" * 2_500)

    lines = [*streamed._Told(file, 2_503, lambda *_: None, b"tail\n")]

    assert [len(line) for line in lines] == [3, 1_000, 1_000, 500, 5]
