"""Which eval set files are found, and what a list says of each."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.evalset_folders import SET, places, put

from evaldesk.errors import FormatError
from evaldesk.formats import write_evalset
from evaldesk.reading.regular_file import read_regular
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.store.evalsets.found import MAX_DEPTH
from evaldesk.store.evalsets.large import MAX_SET
from evaldesk.store.evalsets.names import evalset_file_id


def test_sets_are_found_by_name_anywhere_and_by_shape_in_eval_folders(files: EvalSetFiles, root: Path) -> None:
    for place in ("calc.evalset.json", "a/b/roll.test.json", "a/evals/plain.json", "evalsets/mine.json"):
        put(root, place)
    put(root, "a/evals/test_config.json", b'{"criteria": {}}')
    put(root, "a/other/plain.json")
    put(root, "package.json", b"{}")

    assert places(files) == ["calc.evalset.json", "a/b/roll.test.json", "a/evals/plain.json", "evalsets/mine.json"]


def test_folders_of_tools_and_hidden_ones_are_not_entered(files: EvalSetFiles, root: Path) -> None:
    for folder in (".venv", ".evaldesk/trash/x", "node_modules/x", "__pycache__", "lib/site-packages", ".git"):
        put(root, f"{folder}/calc.evalset.json")
    put(root, "my env/pyvenv.cfg", b"")
    put(root, "my env/calc.evalset.json")

    assert places(files) == []


def test_the_search_ends_at_a_depth(files: EvalSetFiles, root: Path) -> None:
    put(root, "/".join(["d"] * MAX_DEPTH) + "/deep.evalset.json")
    put(root, "/".join(["d"] * (MAX_DEPTH + 1)) + "/deeper.evalset.json")

    assert [file.name for file in files.list()] == ["deep"]


def test_a_listed_file_says_what_it_holds(files: EvalSetFiles, root: Path) -> None:
    put(root, "calc.evalset.json", write_evalset(replace(SET, name="Calculator", description="Sums")))

    (file,) = files.list()

    assert (file.name, file.format, file.evalset_id, file.title, file.description) == (
        "calc",
        "adk",
        "calc",
        "Calculator",
        "Sums",
    )
    assert (file.n_cases, file.n_turns, file.tags, file.error) == (2, 3, ("smoke",), "")
    assert file.version == files.read(file.id)[1]


def test_a_broken_set_is_listed_with_its_reason(files: EvalSetFiles, root: Path) -> None:
    put(root, "calc.evalset.json", b'{"eval_set_id": "s",\n"eval_cases": {}}')

    (file,) = files.list()

    assert file.error == "calc.evalset.json:2:15: eval_cases: expected a list, got an object"
    with pytest.raises(FormatError, match="expected a list"):
        files.read(file.id)


def test_ids_are_opaque_stable_and_fit_for_addresses(root: Path) -> None:
    put(root, "Ein Ordner/Größe ☃ #1.evalset.json")
    put(root, "x/Größe ☃ #1.evalset.json")

    ids = [file.id for file in EvalSetFiles([root], root / "evalsets", root / "t", home=root).list()]

    assert ids == [file.id for file in EvalSetFiles([root], root / "evalsets", root / "t", home=root).list()]
    assert len(set(ids)) == 2
    assert all(file_id.replace("-", "").isalnum() and file_id.isascii() and file_id.islower() for file_id in ids)
    assert evalset_file_id("gr-e-1", "Ein Ordner/Größe ☃ #1.evalset.json").rsplit("-", 1)[1] in ids[0] + ids[1]


def test_the_same_place_under_two_roots_gives_two_ids(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path, f"{name}/calc.evalset.json")
    roots = [tmp_path / "one", tmp_path / "two"]

    listed = EvalSetFiles(roots, tmp_path / "one" / "evalsets", tmp_path / "trash", home=tmp_path).list()

    assert [file.path.parent.name for file in listed] == ["one", "two"]
    assert len({file.id for file in listed}) == 2


def test_a_root_inside_another_lists_its_files_once(root: Path) -> None:
    put(root, "evalsets/calc.evalset.json")

    listed = EvalSetFiles([root, root / "evalsets"], root / "evalsets", root / "t", home=root).list()

    assert [file.place for file in listed] == ["evalsets/calc.evalset.json"]


def test_an_unchanged_file_is_not_read_again(files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(root, f"s{number}.evalset.json")
    files.list()
    read: list[str] = []

    def reading(path: Path, max_bytes: int) -> bytes:
        read.append(path.name)
        return read_regular(path, max_bytes)

    monkeypatch.setattr("evaldesk.store.evalsets.files.read_regular", reading)

    put(root, "s1.evalset.json", write_evalset(replace(SET, description="new")))
    listed = files.list()

    assert read == ["s1.evalset.json"]
    assert [file.description for file in listed] == [None, "new", None]


def test_links_and_pipes_are_neither_listed_nor_opened(files: EvalSetFiles, root: Path) -> None:
    outside = put(root.parent, "secret/calc.evalset.json")
    (root / "link.evalset.json").symlink_to(outside)
    (root / "evals").symlink_to(outside.parent)
    os.mkfifo(root / "pipe.evalset.json")

    assert places(files) == []


def test_a_root_that_is_a_prefix_twin_is_not_served(tmp_path: Path) -> None:
    put(tmp_path, "evals/calc.evalset.json")
    put(tmp_path, "evals-secret/calc.evalset.json")

    listed = EvalSetFiles([tmp_path / "evals"], tmp_path / "evals", tmp_path / "trash", home=tmp_path).list()

    assert [file.path.parent.name for file in listed] == ["evals"]


def test_a_root_that_is_not_there_lists_nothing(tmp_path: Path) -> None:
    assert EvalSetFiles([tmp_path / "nowhere"], tmp_path / "nowhere", tmp_path / "trash", home=tmp_path).list() == []


def test_an_oversized_file_is_listed_with_its_size_as_the_reason(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "big.evalset.json", b"")
    with path.open("wb") as file:
        file.truncate(MAX_SET + 1)

    (listed,) = files.list()

    assert f"the file has {MAX_SET + 1} bytes; at most" in listed.error
