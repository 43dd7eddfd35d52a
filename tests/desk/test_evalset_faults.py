"""Eval sets on a disk that fails, or killed, at every call: no set is half, none is lost, and the retry succeeds."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from tests.faulty_disk import FaultyDisk, Killed

from evaldesk.desk.evalsets.evalsets import EvalSetDesk, SetNameTakenError
from evaldesk.errors import DiskError, NotFoundError
from evaldesk.formats import load_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.model.evalset import case_key
from evaldesk.settings import Settings
from evaldesk.store import Store

N_CASES = 5
OLD = EvalSet("calc", description="old", cases=tuple(Case(f"c{i}", (Turn("Hi " * 200),)) for i in range(N_CASES)))
NEW = replace(OLD, description="new")
CHANGED = replace(OLD.cases[0], turns=(Turn("changed"),))
FAULTS = [
    pytest.param((None, False), id="killed"),
    pytest.param((errno.EIO, False), id="EIO"),  # any number of an error is the same to the desk
    pytest.param((errno.ENOSPC, True), id="full-from-then-on"),
]


@dataclass
class EvalSetFolder:
    """A workspace; `token` is that of a set in the trash."""

    folder: Path
    desk: EvalSetDesk
    token: str = ""

    def id(self, name: str = "calc") -> str:
        return next((file.id for file in self.desk.list() if file.name == name), "")

    def sets(self) -> dict[str, EvalSet]:
        """The sets by name, read without a cache; raises for a half one."""
        return {path.name.partition(".")[0]: load_evalset(path) for path in self.folder.glob("evalsets/*.json")}

    def kept(self) -> list[EvalSet]:
        """The sets in the trash."""
        return [load_evalset(path) for path in self.folder.glob(".evaldesk/trash/*/*.evalset.json")]

    def leftovers(self) -> list[Path]:
        return list(self.folder.rglob(".*evaldesk-tmp"))


def take_in(desk: EvalSetDesk, name: str, evalset: EvalSet, *, replaces: bool = False) -> str:
    with desk.prepare(name, evalset, replaces=replaces) as prepared:
        prepared.write()
        return prepared.id


@dataclass(frozen=True)
class Action:
    """What a person does in a workspace that has the set `calc`, or has it in the trash; the sets before and after."""

    act: Callable[[EvalSetFolder], object]
    before: dict[str, EvalSet]
    after: dict[str, EvalSet]


def _save(place: EvalSetFolder) -> None:
    found = place.desk.cases.find(place.id(), case_key("c0"))
    place.desk.cases.save(place.id(), case_key("c0"), CHANGED, found.version)


def _rename(place: EvalSetFolder) -> None:
    if place.id("calc"):
        place.desk.change(place.id("calc"), "dice", "old")


SAVED = replace(OLD, cases=(CHANGED, *OLD.cases[1:]))
COPY = replace(OLD, id="calc_copy")
ACTIONS = {
    "import": Action(lambda place: take_in(place.desk, "calc", NEW), {}, {"calc": NEW}),
    "import --replace": Action(
        lambda place: take_in(place.desk, "calc", NEW, replaces=True), {"calc": OLD}, {"calc": NEW}
    ),
    "copy": Action(lambda place: place.desk.duplicate(place.id()), {"calc": OLD}, {"calc": OLD, "calc_copy": COPY}),
    "save a case": Action(_save, {"calc": OLD}, {"calc": SAVED}),
    "rename": Action(_rename, {"calc": OLD}, {"dice": replace(OLD, id="dice")}),
    "trash": Action(lambda place: place.desk.trash(place.id()), {"calc": OLD}, {}),
    "restore": Action(lambda place: place.desk.restore(place.token), {}, {"calc": OLD}),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def _placed(folder: Path, name: str, store: Store) -> EvalSetFolder:
    settings = Settings(workspace=folder, roots=(folder,))
    settings.state_folder.mkdir(parents=True)
    place = EvalSetFolder(folder, EvalSetDesk(settings, store))
    if name != "import":
        evalset_id = take_in(place.desk, "calc", OLD)
        place.token = place.desk.trash(evalset_id) if name == "restore" else ""
    return place


def _same(sets: dict[str, EvalSet]) -> dict[str, tuple[str, str | None, tuple[Turn, ...]]]:
    return {name: (each.id, each.description, each.cases[0].turns) for name, each in sets.items()}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ACTIONS)
def test_a_set_is_whole_after_every_call_that_fails_and_the_retry_succeeds(
    name: str, fault: tuple[int | None, bool], tmp_path: Path, stack: ExitStack
) -> None:
    action = ACTIONS[name]
    store = stack.enter_context(Store.open(tmp_path / "evaldesk.db"))
    n_failures = 0

    for at in count(1):
        place = _placed(tmp_path / str(at), name, store)
        disk = FaultyDisk(at, fault[0], lasts=fault[1])
        with disk.inserted(), suppress(Killed, DiskError):
            action.act(place)
        if not disk.was_reached:
            break
        n_failures += 1
        found = place.sets()
        whole = [
            *_same(action.before).values(),
            *_same(action.after).values(),
            *_same({"": replace(OLD, id="dice")}).values(),
        ]
        assert all(each in whole for each in _same(found).values())
        assert found or place.kept() or name == "import", "the set is neither in its folder nor in the trash"
        if fault[1]:
            assert place.leftovers() == []
        if _same(found) != _same(action.after):
            action.act(place)
        assert _same(place.sets()) == _same(action.after)
        if name == "import --replace":
            assert "old" in [each.description for each in place.kept()]

    assert n_failures > 5


def test_the_retry_of_an_import_that_was_killed_after_the_set_was_there_says_so(tmp_path: Path) -> None:
    with Store.open(tmp_path / "evaldesk.db") as store:
        place = _placed(tmp_path / "home", "import", store)
        take_in(place.desk, "calc", NEW)

        with pytest.raises(SetNameTakenError, match="already"):
            take_in(place.desk, "calc", NEW)

        assert _same(place.sets()) == _same({"calc": NEW})


@pytest.mark.parametrize("fault", FAULTS)
def test_deleted_cases_are_in_the_set_or_come_back(fault: tuple[int | None, bool], tmp_path: Path) -> None:
    with Store.open(tmp_path / "evaldesk.db") as store:
        for at in count(1):
            place = _placed(tmp_path / str(at), "delete", store)
            disk = FaultyDisk(at, fault[0], lasts=fault[1])
            token = ""
            with disk.inserted(), suppress(Killed, DiskError):
                token = place.desk.cases.delete(place.id(), [case_key("c0")])
            n_cases = len(place.sets()["calc"].cases)
            assert n_cases == N_CASES or (
                n_cases == N_CASES - 1 and list(place.folder.glob(".evaldesk/trash/*.cases.json"))
            )
            if not disk.was_reached:
                break

        disk = FaultyDisk(1, errno.ENOSPC, lasts=True)
        with disk.inserted(), pytest.raises(DiskError, match="the disk is full"):
            place.desk.cases.restore(place.id(), token)
        assert place.desk.cases.restore(place.id(), token) == [case_key("c0")]
        assert _same(place.sets()) == _same({"calc": OLD})


def test_a_restoration_that_was_refused_leaves_the_set_in_the_trash(tmp_path: Path) -> None:
    with Store.open(tmp_path / "evaldesk.db") as store:
        place = _placed(tmp_path / "home", "restore", store)
        with FaultyDisk(1, errno.ENOSPC, lasts=True).inserted(), pytest.raises(DiskError, match="the disk is full"):
            place.desk.restore(place.token)

        assert _same(dict.fromkeys("x", place.kept()[0])) == _same({"x": OLD})
        place.desk.restore(place.token)
        with pytest.raises(NotFoundError, match="restored already"):
            place.desk.restore(place.token)
