"""Names of eval sets, new, renamed, copied, deleted and restored: none loses or reaches anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.evalset_folders import FLAT, SET, id_of, places, put

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.formats import write_evalset
from evaldesk.store.evalsets.files import EvalSetFiles


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
    put(root, "calc.evalset.json")
    file_id = id_of(files, "calc.evalset.json")

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


@pytest.mark.parametrize("file_id", ["../calc", "calc.evalset.json", "", "/etc/passwd", "calc-00000000"])
def test_an_id_is_looked_up_and_never_a_path(files: EvalSetFiles, root: Path, file_id: str) -> None:
    put(root, "calc.evalset.json")

    for act in (files.read, files.trash, lambda name: files.save(name, SET, "v"), lambda name: files.rename(name, "y")):
        with pytest.raises(NotFoundError):
            act(file_id)


def test_names_that_differ_by_case_only_collide(files: EvalSetFiles) -> None:
    files.create("calc", SET)

    for name in ("calc", "Calc", "CALC"):
        with pytest.raises(ConflictError, match="already a file"):
            files.create(name, SET)


def test_a_rename_takes_the_id_of_a_set_called_as_its_file(files: EvalSetFiles, root: Path) -> None:
    put(root, "calc.evalset.json")
    put(root, "else.evalset.json", write_evalset(replace(SET, id="my own id")))

    renamed = files.rename(id_of(files, "calc.evalset.json"), "Sums")
    other = files.rename(id_of(files, "else.evalset.json"), "more")

    assert files.read(renamed)[0] == replace(SET, id="Sums")
    assert files.read(other)[0].id == "my own id"
    assert places(files) == ["Sums.evalset.json", "more.evalset.json"]


def test_a_rename_may_change_only_the_case_but_not_hit_another_file(files: EvalSetFiles, root: Path) -> None:
    put(root, "calc.evalset.json")
    put(root, "sums.evalset.json")
    file_id = id_of(files, "calc.evalset.json")

    with pytest.raises(ConflictError):
        files.rename(file_id, "Sums")
    files.rename(file_id, "Calc")

    assert places(files) == ["Calc.evalset.json", "sums.evalset.json"]


def test_a_copy_stands_beside_the_original_under_an_id_of_its_own(files: EvalSetFiles, root: Path) -> None:
    put(root, "deep/calc.evalset.json")
    put(root, "deep/roll.test.json", FLAT)

    files.duplicate(id_of(files, "deep/calc.evalset.json"), "copy")
    flat = files.duplicate(id_of(files, "deep/roll.test.json"), "again")

    assert (root / "deep" / "again.test.json").read_bytes() == FLAT
    assert files.read(flat)[0].id == "again"
    assert files.read(id_of(files, "deep/copy.evalset.json"))[0] == replace(SET, id="copy")


@pytest.mark.parametrize(
    "token", ["../x", "x", "0" * 16, "", "..%2f"], ids=["climbing", "short", "none", "empty", "enc"]
)
def test_a_token_that_leads_nowhere_restores_nothing(files: EvalSetFiles, token: str) -> None:
    with pytest.raises(NotFoundError):
        files.restore(token)


def test_the_trash_gives_back_what_was_deleted(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "deep/calc.evalset.json")
    path.chmod(0o600)
    before = path.read_bytes()
    file_id = id_of(files, "deep/calc.evalset.json")

    token = files.trash(file_id)

    assert places(files) == []
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
        put(root, place)
        tokens.append(files.trash(id_of(files, place)))

    for token in tokens:
        files.restore(token)

    assert places(files) == ["a/calc.evalset.json", "b/calc.evalset.json"]


def test_a_restore_never_overwrites(files: EvalSetFiles, root: Path) -> None:
    path = put(root, "calc.evalset.json")
    token = files.trash(id_of(files, "calc.evalset.json"))
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
