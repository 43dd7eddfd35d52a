"""Two desks on one database, verb against verb: what each wrote is there, or the other was told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.desk.test_labels import played
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.labels import LabelDesk, Person, TypedLabel
from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model import EvalSet
from evaldesk.model.failures import FindingDraft
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.evalsets.files import EvalSetFiles

KEY = (0, 0)


@dataclass
class Desks:
    """Two desks, each with connections of its own, and what both know before they act."""

    anna: Store
    ben: Store
    run_id: int
    modes: tuple[int, int]

    @property
    def both(self) -> tuple[Store, Store]:
        return self.anna, self.ben


@pytest.fixture(params=ENGINES)
def desks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desks]:
    seconds = itertools.count()
    start = datetime(2026, 11, 21, tzinfo=UTC)

    def clock() -> datetime:
        return start + timedelta(seconds=next(seconds))

    place = place_of(request, tmp_path / "evaldesk.db")
    with Store.open(place, clock=clock) as anna, Store.open(place, clock=clock) as ben:
        run_id = played(anna, "pf")
        modes = tuple(anna.failures.create_mode("Anna", name=name) for name in ("wrong tool", "no answer"))
        yield Desks(anna, ben, run_id, (modes[0], modes[1]))


def _finding(store: Store, desks: Desks, author: str, mode_id: int | None = None) -> int:
    return store.failures.add(FindingDraft(desks.run_id, *KEY, note=f"seen by {author}", mode_id=mode_id), author)


def _label(store: Store, desks: Desks, name: str, verdict: str, *, op: str = "") -> Callable[[], None]:
    """The label of a person on the page that is loaded now."""
    desk = LabelDesk(store, Person(store, name=name))
    seen = desk.panel(desks.run_id, KEY).seen_times
    return lambda: desk.put(desks.run_id, KEY, TypedLabel(name, verdict, op=op, seen_times=seen), 1)


def test_two_people_of_one_name_replace_no_label_unseen(desks: Desks) -> None:
    first, second = (
        _label(store, desks, "root", verdict) for store, verdict in zip(desks.both, ("passed", "failed"), strict=True)
    )

    first()
    with pytest.raises(ConflictError, match="labelled this as root meanwhile: passed"):
        second()

    assert [label.verdict for label in desks.ben.labels.of_trial(desks.run_id, KEY)] == ["passed"]
    _label(desks.ben, desks, "root", "failed")()
    assert [label.verdict for label in desks.anna.labels.of_trial(desks.run_id, KEY)] == ["failed"]


def test_the_same_label_of_both_is_no_conflict(desks: Desks) -> None:
    for act in [_label(store, desks, "root", "passed") for store in desks.both]:
        act()

    assert [label.verdict for label in desks.anna.labels.of_trial(desks.run_id, KEY)] == ["passed"]


def test_a_label_that_was_changed_is_not_removed_unseen(desks: Desks) -> None:
    _label(desks.anna, desks, "root", "passed")()
    change, remove = _label(desks.anna, desks, "root", "failed"), _label(desks.ben, desks, "root", "", op="remove")

    change()
    with pytest.raises(ConflictError):
        remove()

    assert [label.verdict for label in desks.anna.labels.of_trial(desks.run_id, KEY)] == ["failed"]


def test_labels_of_two_names_stand_beside_each_other(desks: Desks) -> None:
    for act in [_label(store, desks, name, "passed") for store, name in zip(desks.both, ("Anna", "Ben"), strict=True)]:
        act()

    assert {label.labeller for label in desks.ben.labels.of_trial(desks.run_id, KEY)} == {"Anna", "Ben"}


def test_a_mode_that_two_people_rewrite_keeps_the_first_text(desks: Desks) -> None:
    mode = desks.modes[0]
    seen = next(each for each in desks.ben.failures.modes() if each.id == mode).texts_version

    desks.anna.failures.edit_mode(mode, "Anna", seen_version=seen, definition="Of Anna")
    with pytest.raises(ConflictError, match="was edited meanwhile"):
        desks.ben.failures.edit_mode(mode, "Ben", seen_version=seen, definition="Of Ben")

    assert next(each for each in desks.ben.failures.modes() if each.id == mode).definition == "Of Anna"


def test_a_note_that_two_people_change_keeps_the_first_text(desks: Desks) -> None:
    desks.anna.runs.set_note(desks.run_id, "of Anna", seen_note="")
    with pytest.raises(ConflictError, match="was changed meanwhile"):
        desks.ben.runs.set_note(desks.run_id, "of Ben", seen_note="")

    assert desks.ben.runs.summary(desks.run_id).note == "of Anna"


def test_an_eval_set_that_two_people_save_keeps_the_first(tmp_path: Path) -> None:
    first, second = (
        EvalSetFiles([tmp_path], tmp_path / "evalsets", tmp_path / "trash", home=tmp_path) for _ in range(2)
    )
    file_id = first.create("calc", EvalSet("calc"))
    versions = [files.read(file_id)[1] for files in (first, second)]

    first.save(file_id, EvalSet("calc", name="of Anna"), versions[0])
    with pytest.raises(ConflictError):
        second.save(file_id, EvalSet("calc", name="of Ben"), versions[1])

    assert second.read(file_id)[0].name == "of Anna"


def test_a_set_that_another_desk_renamed_is_found_from_a_page_that_has_its_old_name(
    desks: Desks, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, (tmp_path / "evalsets",))
    anna, ben = (EvalSetDesk(settings, store) for store in desks.both)
    old = anna.create("calc")
    ben.list()

    new = anna.change(old, "sums", "")
    newest = ben.change(new, "totals", "")
    started_later = EvalSetDesk(settings, desks.ben)

    assert [desk.find_current_id(old) for desk in (anna, ben, started_later)] == [newest] * 3
    assert ben.find_current_id(newest) == ""  # it is there


def test_a_file_that_was_moved_by_hand_is_followed_where_that_is_certain(desks: Desks, tmp_path: Path) -> None:
    desk = EvalSetDesk(Settings(tmp_path, (tmp_path / "evalsets",)), desks.anna)
    first, second = desk.create("calc"), desk.create("other")
    moved, copied = (desk.file(each).path for each in (first, second))
    desk.list()

    moved.rename(moved.with_name("sums.evalset.json"))
    copied.with_name("copy.evalset.json").write_bytes(copied.read_bytes())
    copied.unlink()

    assert desk.file(desk.find_current_id(first)).path.name == "sums.evalset.json"
    assert desk.find_current_id(second) == ""  # a copy may be another one


Act = Callable[[Store, Desks, str], Any]
ACTS: dict[str, Act] = {
    "label": lambda store, desks, who: store.labels.put(desks.run_id, KEY, None, who, "passed", "", seen_times=()),
    "finding": _finding,
    "finding of a kind": lambda store, desks, who: _finding(store, desks, who, desks.modes[0]),
    "clear": lambda store, desks, who: store.failures.clear(desks.run_id, KEY, who),
    "merge": lambda store, desks, who: store.failures.merge(*desks.modes, who),
    "merge the other way": lambda store, desks, who: store.failures.merge(desks.modes[1], desks.modes[0], who),
    "retire": lambda store, desks, who: store.failures.retire(desks.modes[0], who),
    "delete run": lambda store, desks, _: store.runs.delete(desks.run_id),
    "retry": lambda store, desks, _: store.runs.retry_errored(desks.run_id),
    "undo": lambda store, _, who: store.failures.undo(who),
}


def _facts(desks: Desks) -> dict[str, Any]:
    """What people wrote, as a third would find it."""
    store, run_id = desks.anna, desks.run_id
    is_there = any(run.id == run_id for run in store.runs.list())
    modes = {mode.id: (mode.retired_at is not None, mode.merged_into) for mode in store.failures.modes()}
    return {
        "run": is_there,
        "labels": {label.labeller for label in store.labels.of_trial(run_id, KEY)},
        "findings": {finding.author for finding in store.failures.of_trial(run_id, KEY)} if is_there else set(),
        "modes": modes,
    }


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
def test_of_two_verbs_nothing_is_lost_and_the_refused_one_changes_nothing(
    desks: Desks, first: str, second: str
) -> None:
    told = []
    for name, store, who in ((first, desks.anna, "Anna"), (second, desks.ben, "Ben")):
        before = _facts(desks)
        try:
            ACTS[name](store, desks, who)
        except (ConflictError, NotFoundError):
            told.append(who)
        assert who not in told or _facts(desks) == before
    found = _facts(desks)

    for name, who in ((first, "Anna"), (second, "Ben")):
        if who in told or not found["run"]:
            continue
        if name == "label":
            assert who in found["labels"]
        if name.startswith("finding"):
            assert who in found["findings"]
    merged = [into for _, into in found["modes"].values() if into is not None]
    assert not set(desks.modes) <= set(merged)


def test_a_stop_and_an_end_of_a_run_at_the_same_time_leave_one_of_both(desks: Desks) -> None:
    run_id = desks.run_id
    desks.anna.runs.set_status(run_id, "running", driver="1 host 2@3")
    seen = desks.ben.runs.summary(run_id)

    assert desks.anna.runs.end(run_id, "finished", lease=seen.lease)
    assert not desks.ben.runs.move_on(seen, "stopping", "Stopped by Ben.")

    assert desks.ben.runs.summary(run_id).status == "finished"


def test_a_run_that_is_played_is_not_deleted_from_another_desk(desks: Desks) -> None:
    desks.anna.runs.set_status(desks.run_id, "running", driver="1 host 2@3")

    with pytest.raises(ConflictError, match="stop it before you delete it"):
        desks.ben.runs.delete(desks.run_id)


def test_a_review_of_a_deleted_run_is_told_and_comes_back_with_the_run(desks: Desks) -> None:
    _label(desks.anna, desks, "Anna", "passed")()
    late = replace(desks, run_id=desks.run_id)
    act = _label(desks.ben, late, "Ben", "failed")
    desks.anna.runs.delete(desks.run_id)

    with pytest.raises(NotFoundError):
        act()
    desks.anna.runs.restore(desks.run_id)

    assert {label.labeller for label in desks.ben.labels.of_trial(desks.run_id, KEY)} == {"Anna"}
