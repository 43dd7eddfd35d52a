"""Eval sets in files: no save loses anything, and no file is read that was swapped meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.evalset_folders import FLAT, SET, id_of, put

from evaldesk.errors import ConflictError, EvaldeskError, FormatError, LossError, NotFoundError
from evaldesk.formats import write_evalset
from evaldesk.model import Case, Turn
from evaldesk.store.evalsets import files as evalset_files
from evaldesk.store.evalsets.files import ChangedFileError, EvalSetFiles
from evaldesk.store.evalsets.found import find_files, may_be_found


def test_a_file_that_was_listed_is_shown_as_it_is_now_without_a_search(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(root, "calc.evalset.json")
    file_id = id_of(files, "calc.evalset.json")
    path.write_bytes(write_evalset(replace(SET, cases=SET.cases[:1])))

    with monkeypatch.context() as unsearched:
        unsearched.setattr(evalset_files, "find_files", None)
        n_cases = files.file(file_id).n_cases
        at = files.id_of(path)
        elsewhere = files.id_of(root.parent / "calc.evalset.json")
    path.unlink()

    assert (n_cases, at, elsewhere) == (1, file_id, "")
    assert files.id_of(path) == ""
    with pytest.raises(NotFoundError, match="deleted or renamed"):
        files.file(file_id)


def test_a_save_gives_the_new_version_and_keeps_the_mode(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "calc.evalset.json")
    path.chmod(0o640)
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    saved = files.save(file_id, replace(evalset, description="changed"), version)

    assert saved != version
    assert files.read(file_id) == (replace(evalset, description="changed"), saved)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in root.iterdir()] == ["calc.evalset.json"]


def test_a_save_without_a_change_leaves_the_bytes(files: EvalSetFiles, root: Path) -> None:
    data = (json.dumps(json.loads(write_evalset(SET)), indent=4) + "\n").encode()
    path = put(root, "calc.evalset.json", data)
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    assert files.save(file_id, evalset, version) == version
    assert path.read_bytes() == data


def test_a_save_over_a_changed_file_is_refused_and_shows_both(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "calc.evalset.json")
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)
    theirs = replace(SET, description="theirs")
    path.write_bytes(write_evalset(theirs))

    with pytest.raises(ChangedFileError, match="changed on disk") as refused:
        files.save(file_id, replace(evalset, description="ours"), version)

    assert refused.value.theirs == theirs
    assert (refused.value.version, refused.value.their_version) == (version, files.read(file_id)[1])
    assert isinstance(refused.value, ConflictError)
    assert files.save(file_id, replace(evalset, description="ours"), refused.value.their_version)


def test_a_save_over_a_file_that_became_nonsense_is_refused_too(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "calc.evalset.json")
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)
    path.write_bytes(b"{")

    with pytest.raises(ChangedFileError) as refused:
        files.save(file_id, evalset, version)

    assert refused.value.theirs is None
    assert path.read_bytes() == b"{"


def test_a_failing_write_leaves_the_old_file_and_no_other(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(root, "calc.evalset.json")
    before = path.read_bytes()
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.save(file_id, replace(evalset, description="x"), version)

    assert path.read_bytes() == before
    assert [entry.name for entry in root.iterdir()] == ["calc.evalset.json"]


def test_what_no_file_can_hold_is_refused_before_writing(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "calc.evalset.json")
    before = path.read_bytes()
    file_id = id_of(files, "calc.evalset.json")
    evalset, version = files.read(file_id)
    broken = Case("x", (Turn("\ud800"),))

    with pytest.raises(FormatError, match="half a character"):
        files.save(file_id, replace(evalset, cases=(broken,)), version)

    assert path.read_bytes() == before


def test_an_old_file_is_saved_in_its_own_form_while_that_holds_everything(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "roll.test.json", FLAT)
    file_id = id_of(files, "roll.test.json")
    evalset, version = files.read(file_id)
    case = evalset.cases[0]

    files.save(file_id, replace(evalset, cases=(replace(case, turns=(*case.turns, Turn("bye"))),)), version)

    assert path.read_bytes() == FLAT.replace(b"\n  }\n]", b'\n  },\n  {\n    "query": "bye"\n  }\n]')


def test_an_old_file_becomes_a_new_one_only_when_asked(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "roll.test.json", FLAT)
    file_id = id_of(files, "roll.test.json")
    evalset, version = files.read(file_id)
    tagged = replace(evalset, cases=(replace(evalset.cases[0], tags=("x",)),))

    with pytest.raises(LossError, match="save the file in ADK's new format: case 'roll' has tags") as refused:
        files.save(file_id, tagged, version)
    assert refused.value.losses == ("case 'roll' has tags, which the flat form cannot hold",)
    assert path.read_bytes() == FLAT

    files.save(file_id, tagged, version, as_new_form=True)
    assert json.loads(path.read_bytes())["eval_cases"][0]["tags"] == ["x"]


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_a_file_swapped_after_it_was_found_is_refused(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = put(root, "deep/calc.evalset.json")
    outside = put(root.parent, "secret/calc.evalset.json")
    before = outside.read_bytes()
    found = find_files([root], root)
    file_id = next(iter(found))
    monkeypatch.setattr("evaldesk.store.evalsets.files.find_files", lambda *_: found)
    path.unlink()
    if what == "link":
        path.symlink_to(outside)
    elif what == "folder":
        path.parent.rmdir()
        path.parent.symlink_to(outside.parent)
    else:
        os.mkfifo(path)

    for act in (
        lambda: files.read(file_id),
        lambda: files.save(file_id, SET, "v"),
        lambda: files.trash(file_id),
        lambda: files.duplicate(file_id, "copy"),
    ):
        with pytest.raises(EvaldeskError):
            act()

    assert outside.read_bytes() == before
    assert [entry.name for entry in outside.parent.iterdir()] == ["calc.evalset.json"]


def test_the_id_of_a_file_is_told_without_reading_any(
    files: EvalSetFiles, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "elsewhere.evalset.json"
    for path in (root / "one.evalset.json", root / "two.evalset.json", other):
        path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": []}))
    ids = {file.path: file.id for file in files.list()}
    monkeypatch.setattr("evaldesk.store.evalsets.files.read_regular", None)

    assert {path: files.id_of(path) for path in ids} == ids
    assert len(ids) == 2
    assert files.id_of(other) == ""


def test_a_recorded_set_that_is_not_served_is_told_without_a_search(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = put(root, "gone/calc.evalset.json")
    rows = put(root, "data/rows.json")
    hidden = put(root, ".old/calc.evalset.json")
    file_id = id_of(files, "gone/calc.evalset.json")
    gone.unlink()
    files.list()
    monkeypatch.setattr(evalset_files, "find_files", None)

    assert files.id_of_recorded(file_id, gone) == ""
    assert files.id_of_recorded("calc", gone) == ""
    assert files.id_of_recorded("rows", rows) == files.id_of_recorded("calc", hidden) == ""
    assert files.id_of_recorded("none", Path("")) == ""
    assert files.id_of_recorded(file_id, Path("/ben/project/gone/calc.evalset.json")) == ""


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "new"])
@pytest.mark.parametrize("is_twin", [True, False], ids=["twin", "alone"])
def test_a_set_recorded_in_another_workspace_is_found_by_its_place(
    files: EvalSetFiles, root: Path, tmp_path: Path, *, is_listed: bool, is_twin: bool
) -> None:
    other = tmp_path / "ben" / "elsewhere"
    theirs = EvalSetFiles([other / "first", other], other, tmp_path / "trash", home=other)
    if is_twin:
        put(other, "first/evals/calc.evalset.json")
    path = put(other, "evals/calc.evalset.json")
    file_id = theirs.id_of(path)
    here = put(root, "evals/calc.evalset.json")
    if is_listed:
        files.list()
    path.unlink()

    found = files.id_of_recorded(file_id, path)

    assert found == file_id == files.id_of(here)
    assert files.id_of_recorded(file_id, Path("")) == found


@pytest.mark.parametrize(
    "place",
    [
        "calc.evalset.json",
        "calc.json",
        "evals/calc.json",
        "evals/.calc.json",
        ".venv/calc.evalset.json",
        "venv/x/calc.test.json",
        "/".join("12345678") + "/calc.evalset.json",
        "/".join("123456789") + "/calc.evalset.json",
    ],
)
def test_a_file_may_be_found_where_a_search_finds_it(root: Path, place: str) -> None:
    path = put(root, place)
    found = {file.path for file in find_files([root], root).values()}

    assert may_be_found(path, [root]) == (path in found)
    assert not may_be_found(path.with_name("x.evalset.json"), [root])
    assert not may_be_found(path, [root / "inner"])
