"""Eval sets in files: which are found, and that no save, rename or hostile name loses or reaches anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.errors import ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.formats import write_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.store.evalset_files import ChangedFileError, EvalSetFiles, LossError
from evaldesk.store.evalset_names import evalset_file_id
from evaldesk.store.evalset_search import MAX_DEPTH, find_files
from evaldesk.store.regular_file import read_regular

SET = EvalSet("calc", cases=(Case("one", (Turn("hi"),), tags=("smoke",)), Case("two", (Turn("a"), Turn("b")))))
FLAT = b'[\n  {\n    "query": "hi",\n    "reference": "hello"\n  }\n]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def files(root: Path) -> EvalSetFiles:
    return EvalSetFiles([root], root / "evalsets", root / ".evaldesk" / "trash")


def _put(root: Path, place: str, data: bytes | None = None) -> Path:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_evalset(SET) if data is None else data)
    return path


def _places(files: EvalSetFiles) -> list[str]:
    return [file.place for file in files.list()]


def _id(files: EvalSetFiles, place: str) -> str:
    return next(file.id for file in files.list() if file.place == place)


def test_sets_are_found_by_name_anywhere_and_by_shape_in_eval_folders(files: EvalSetFiles, root: Path) -> None:
    for place in ("calc.evalset.json", "a/b/roll.test.json", "a/evals/plain.json", "evalsets/mine.json"):
        _put(root, place)
    _put(root, "a/evals/test_config.json", b'{"criteria": {}}')
    _put(root, "a/other/plain.json")
    _put(root, "package.json", b"{}")

    assert _places(files) == ["calc.evalset.json", "a/b/roll.test.json", "a/evals/plain.json", "evalsets/mine.json"]


def test_folders_of_tools_and_hidden_ones_are_not_entered(files: EvalSetFiles, root: Path) -> None:
    for folder in (".venv", ".evaldesk/trash/x", "node_modules/x", "__pycache__", "lib/site-packages", ".git"):
        _put(root, f"{folder}/calc.evalset.json")
    _put(root, "my env/pyvenv.cfg", b"")
    _put(root, "my env/calc.evalset.json")

    assert _places(files) == []


def test_the_search_ends_at_a_depth(files: EvalSetFiles, root: Path) -> None:
    _put(root, "/".join(["d"] * MAX_DEPTH) + "/deep.evalset.json")
    _put(root, "/".join(["d"] * (MAX_DEPTH + 1)) + "/deeper.evalset.json")

    assert [file.name for file in files.list()] == ["deep"]


def test_a_listed_file_says_what_it_holds(files: EvalSetFiles, root: Path) -> None:
    _put(root, "calc.evalset.json", write_evalset(replace(SET, name="Calculator", description="Sums")))

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
    _put(root, "calc.evalset.json", b'{"eval_set_id": "s",\n"eval_cases": {}}')

    (file,) = files.list()

    assert file.error == "calc.evalset.json:2:15: eval_cases: expected a list, got an object"
    with pytest.raises(FormatError, match="expected a list"):
        files.read(file.id)


def test_ids_are_opaque_stable_and_fit_for_addresses(root: Path) -> None:
    _put(root, "Ein Ordner/Größe ☃ #1.evalset.json")
    _put(root, "x/Größe ☃ #1.evalset.json")

    ids = [file.id for file in EvalSetFiles([root], root / "evalsets", root / "t").list()]

    assert ids == [file.id for file in EvalSetFiles([root], root / "evalsets", root / "t").list()]
    assert len(set(ids)) == 2
    assert all(file_id.replace("-", "").isalnum() and file_id.isascii() and file_id.islower() for file_id in ids)
    assert evalset_file_id("gr-e-1", "Ein Ordner/Größe ☃ #1.evalset.json").rsplit("-", 1)[1] in ids[0] + ids[1]


def test_the_same_place_under_two_roots_gives_two_ids(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _put(tmp_path, f"{name}/calc.evalset.json")
    roots = [tmp_path / "one", tmp_path / "two"]

    listed = EvalSetFiles(roots, tmp_path / "one" / "evalsets", tmp_path / "trash").list()

    assert [file.path.parent.name for file in listed] == ["one", "two"]
    assert len({file.id for file in listed}) == 2


def test_a_root_inside_another_lists_its_files_once(root: Path) -> None:
    _put(root, "evalsets/calc.evalset.json")

    listed = EvalSetFiles([root, root / "evalsets"], root / "evalsets", root / "t").list()

    assert [file.place for file in listed] == ["evalsets/calc.evalset.json"]


def test_an_unchanged_file_is_not_read_again(files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        _put(root, f"s{number}.evalset.json")
    files.list()
    read: list[str] = []

    def reading(path: Path, max_bytes: int) -> bytes:
        read.append(path.name)
        return read_regular(path, max_bytes)

    monkeypatch.setattr("evaldesk.store.evalset_files.read_regular", reading)

    _put(root, "s1.evalset.json", write_evalset(replace(SET, description="new")))
    listed = files.list()

    assert read == ["s1.evalset.json"]
    assert [file.description for file in listed] == [None, "new", None]


def test_a_save_gives_the_new_version_and_keeps_the_mode(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "calc.evalset.json")
    path.chmod(0o640)
    file_id = _id(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    saved = files.save(file_id, replace(evalset, description="changed"), version)

    assert saved != version
    assert files.read(file_id) == (replace(evalset, description="changed"), saved)
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in root.iterdir()] == ["calc.evalset.json"]


def test_a_save_without_a_change_leaves_the_bytes(files: EvalSetFiles, root: Path) -> None:
    data = (json.dumps(json.loads(write_evalset(SET)), indent=4) + "\n").encode()
    path = _put(root, "calc.evalset.json", data)
    file_id = _id(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    assert files.save(file_id, evalset, version) == version
    assert path.read_bytes() == data


def test_a_save_over_a_changed_file_is_refused_and_shows_both(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "calc.evalset.json")
    file_id = _id(files, "calc.evalset.json")
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
    path = _put(root, "calc.evalset.json")
    file_id = _id(files, "calc.evalset.json")
    evalset, version = files.read(file_id)
    path.write_bytes(b"{")

    with pytest.raises(ChangedFileError) as refused:
        files.save(file_id, evalset, version)

    assert refused.value.theirs is None
    assert path.read_bytes() == b"{"


def test_a_failing_write_leaves_the_old_file_and_no_other(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _put(root, "calc.evalset.json")
    before = path.read_bytes()
    file_id = _id(files, "calc.evalset.json")
    evalset, version = files.read(file_id)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.save(file_id, replace(evalset, description="x"), version)

    assert path.read_bytes() == before
    assert [entry.name for entry in root.iterdir()] == ["calc.evalset.json"]


def test_what_no_file_can_hold_is_refused_before_writing(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "calc.evalset.json")
    before = path.read_bytes()
    file_id = _id(files, "calc.evalset.json")
    evalset, version = files.read(file_id)
    broken = Case("x", (Turn("\ud800"),))

    with pytest.raises(FormatError, match="half a character"):
        files.save(file_id, replace(evalset, cases=(broken,)), version)

    assert path.read_bytes() == before


def test_an_old_file_is_saved_in_its_own_form_while_that_holds_everything(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "roll.test.json", FLAT)
    file_id = _id(files, "roll.test.json")
    evalset, version = files.read(file_id)
    case = evalset.cases[0]

    files.save(file_id, replace(evalset, cases=(replace(case, turns=(*case.turns, Turn("bye"))),)), version)

    assert path.read_bytes() == FLAT.replace(b"\n  }\n]", b'\n  },\n  {\n    "query": "bye"\n  }\n]')


def test_an_old_file_becomes_a_new_one_only_when_asked(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "roll.test.json", FLAT)
    file_id = _id(files, "roll.test.json")
    evalset, version = files.read(file_id)
    tagged = replace(evalset, cases=(replace(evalset.cases[0], tags=("x",)),))

    with pytest.raises(LossError, match="save it in the new form") as refused:
        files.save(file_id, tagged, version)
    assert refused.value.losses == ("case 'roll' has tags, which the flat form cannot hold",)
    assert path.read_bytes() == FLAT

    files.save(file_id, tagged, version, as_new_form=True)
    assert json.loads(path.read_bytes())["eval_cases"][0]["tags"] == ["x"]


def test_a_new_set_is_written_under_its_name(files: EvalSetFiles, root: Path) -> None:
    file_id = files.create("My-set_1", replace(SET, id=""))

    assert files.read(file_id)[0] == replace(SET, id="My-set_1")
    assert (root / "evalsets" / "My-set_1.evalset.json").is_file()


HOSTILE = {
    "climbing": "../x",
    "encoded": "..%2fx",
    "absolute": "/etc/x",
    "backslash": "..\\x",
    "drive": "C:x",
    "share": "//host/share",
    "home": "~",
    "variable": "$HOME",
    "stream": "x::$DATA",
    "trailing_dot": "x.",
    "trailing_space": "x ",
    "newline": "x\n",
    "nul": "x\x00",
    "escape": "\x1b[2J",
    "right_to_left": "x\u202ey",
    "zero_width": "x\u200by",
    "accent": "é",
    "empty": "",
    "dot": ".",
    "hidden": ".x",
    "option": "-x",
    "suffix": "x.evalset",
    "reserved": "CON",
    "reserved_lower": "nul",
    "reserved_port": "Com1",
    "long": "x" * 101,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_refused_and_nothing_is_written(files: EvalSetFiles, root: Path, name: str) -> None:
    _put(root, "calc.evalset.json")
    file_id = _id(files, "calc.evalset.json")

    acts: list[Callable[[], str]] = [
        lambda: files.create(name, SET),
        lambda: files.rename(file_id, name),
        lambda: files.duplicate(file_id, name),
    ]
    for act in acts:
        with pytest.raises(UsageError) as refused:
            act()
        assert refused.value.field == "name"

    assert [path.name for path in root.rglob("*")] == ["calc.evalset.json"]


@pytest.mark.parametrize(
    "token", ["../x", "x", "0" * 16, "", "..%2f"], ids=["climbing", "short", "none", "empty", "enc"]
)
def test_a_token_that_leads_nowhere_restores_nothing(files: EvalSetFiles, token: str) -> None:
    with pytest.raises(NotFoundError):
        files.restore(token)


@pytest.mark.parametrize("file_id", ["../calc", "calc.evalset.json", "", "/etc/passwd", "calc-00000000"])
def test_an_id_is_looked_up_and_never_a_path(files: EvalSetFiles, root: Path, file_id: str) -> None:
    _put(root, "calc.evalset.json")

    for act in (files.read, files.trash, lambda name: files.save(name, SET, "v"), lambda name: files.rename(name, "y")):
        with pytest.raises(NotFoundError):
            act(file_id)


def test_names_that_differ_by_case_only_collide(files: EvalSetFiles) -> None:
    files.create("calc", SET)

    for name in ("calc", "Calc", "CALC"):
        with pytest.raises(ConflictError, match="already a file"):
            files.create(name, SET)


def test_a_rename_takes_the_id_of_a_set_called_as_its_file(files: EvalSetFiles, root: Path) -> None:
    _put(root, "calc.evalset.json")
    _put(root, "else.evalset.json", write_evalset(replace(SET, id="my own id")))

    renamed = files.rename(_id(files, "calc.evalset.json"), "Sums")
    other = files.rename(_id(files, "else.evalset.json"), "more")

    assert files.read(renamed)[0] == replace(SET, id="Sums")
    assert files.read(other)[0].id == "my own id"
    assert _places(files) == ["Sums.evalset.json", "more.evalset.json"]


def test_a_rename_may_change_only_the_case_but_not_hit_another_file(files: EvalSetFiles, root: Path) -> None:
    _put(root, "calc.evalset.json")
    _put(root, "sums.evalset.json")
    file_id = _id(files, "calc.evalset.json")

    with pytest.raises(ConflictError):
        files.rename(file_id, "Sums")
    files.rename(file_id, "Calc")

    assert _places(files) == ["Calc.evalset.json", "sums.evalset.json"]


def test_a_copy_stands_beside_the_original_under_an_id_of_its_own(files: EvalSetFiles, root: Path) -> None:
    _put(root, "deep/calc.evalset.json")
    _put(root, "deep/roll.test.json", FLAT)

    files.duplicate(_id(files, "deep/calc.evalset.json"), "copy")
    flat = files.duplicate(_id(files, "deep/roll.test.json"), "again")

    assert (root / "deep" / "again.test.json").read_bytes() == FLAT
    assert files.read(flat)[0].id == "again"
    assert files.read(_id(files, "deep/copy.evalset.json"))[0] == replace(SET, id="copy")


def test_the_trash_gives_back_what_was_deleted(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "deep/calc.evalset.json")
    path.chmod(0o600)
    before = path.read_bytes()
    file_id = _id(files, "deep/calc.evalset.json")

    token = files.trash(file_id)

    assert _places(files) == []
    assert not path.exists()
    path.parent.rmdir()
    assert files.restore(token) == file_id
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert list((root / ".evaldesk" / "trash").iterdir()) == []
    with pytest.raises(NotFoundError):
        files.restore(token)


def test_two_files_of_one_name_lie_in_the_trash_side_by_side(files: EvalSetFiles, root: Path) -> None:
    tokens = []
    for place in ("a/calc.evalset.json", "b/calc.evalset.json"):
        _put(root, place)
        tokens.append(files.trash(_id(files, place)))

    for token in tokens:
        files.restore(token)

    assert _places(files) == ["a/calc.evalset.json", "b/calc.evalset.json"]


def test_a_restore_never_overwrites(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "calc.evalset.json")
    token = files.trash(_id(files, "calc.evalset.json"))
    path.write_bytes(b"mine")

    with pytest.raises(ConflictError, match="again"):
        files.restore(token)

    assert path.read_bytes() == b"mine"


def test_a_forged_trash_cannot_write_outside_the_roots(files: EvalSetFiles, root: Path) -> None:
    folder = root / ".evaldesk" / "trash" / ("a" * 16)
    folder.mkdir(parents=True)
    for origin in (root.parent / "evil.json", root / ".." / "evil.json"):
        (folder / "origin.json").write_text(json.dumps({"path": str(origin)}))
        (folder / "evil.json").write_text("{}")

        with pytest.raises(UsageError):
            files.restore("a" * 16)

    assert not (root.parent / "evil.json").exists()


def test_links_and_pipes_are_neither_listed_nor_opened(files: EvalSetFiles, root: Path) -> None:
    outside = _put(root.parent, "secret/calc.evalset.json")
    (root / "link.evalset.json").symlink_to(outside)
    (root / "evals").symlink_to(outside.parent)
    os.mkfifo(root / "pipe.evalset.json")

    assert _places(files) == []


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_a_file_swapped_after_it_was_found_is_refused(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path = _put(root, "deep/calc.evalset.json")
    outside = _put(root.parent, "secret/calc.evalset.json")
    before = outside.read_bytes()
    found = find_files([root])
    file_id = next(iter(found))
    monkeypatch.setattr("evaldesk.store.evalset_files.find_files", lambda _: found)
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


def test_a_root_that_is_a_prefix_twin_is_not_served(tmp_path: Path) -> None:
    _put(tmp_path, "evals/calc.evalset.json")
    _put(tmp_path, "evals-secret/calc.evalset.json")

    listed = EvalSetFiles([tmp_path / "evals"], tmp_path / "evals", tmp_path / "trash").list()

    assert [file.path.parent.name for file in listed] == ["evals"]


def test_a_root_that_is_not_there_lists_nothing(tmp_path: Path) -> None:
    assert EvalSetFiles([tmp_path / "nowhere"], tmp_path / "nowhere", tmp_path / "trash").list() == []


def test_an_oversized_file_is_listed_with_its_size_as_the_reason(files: EvalSetFiles, root: Path) -> None:
    path = _put(root, "big.evalset.json", b"")
    with path.open("wb") as file:
        file.truncate(11 * 1024 * 1024)

    (listed,) = files.list()

    assert "at most" in listed.error
