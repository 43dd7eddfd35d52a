"""Eval sets and cases of a workspace, below the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaldesk.desk.evalsets.cases import CaseChangedError, CaseNameTakenError, case_keys
from evaldesk.desk.evalsets.evalsets import EvalSetDesk, SetNameTakenError
from evaldesk.errors import NotFoundError
from evaldesk.formats import load_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.model.evalset import case_key
from evaldesk.settings import Settings
from evaldesk.store import Store


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[EvalSetDesk]:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    settings.state_folder.mkdir()
    store = Store.open(settings.database)
    yield EvalSetDesk(settings, store)
    store.close()


def case(case_id: str, query: str = "Hi") -> Case:
    return Case(case_id, (Turn(query),))


def test_reading_gives_the_file_and_its_version(desk: EvalSetDesk, tmp_path: Path) -> None:
    set_id = desk.create("trips")

    evalset, version, path = desk.read(set_id)

    assert (evalset.id, path) == ("trips", tmp_path / "evalsets" / "trips.evalset.json")
    assert version == desk.file(set_id).version


def test_an_edit_outside_is_seen_at_the_next_read(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")
    _, _, path = desk.read(set_id)
    path.write_text('{"eval_set_id": "trips", "description": "edited outside", "eval_cases": []}')

    assert desk.evalset(set_id).description == "edited outside"


def test_a_set_that_is_not_there_may_lie_elsewhere(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")

    with pytest.raises(NotFoundError, match="deleted or renamed, or lies in a folder that is not served"):
        desk.read(set_id[:-1])


def test_names_that_differ_in_case_only_are_the_same(desk: EvalSetDesk) -> None:
    desk.create("trips")

    with pytest.raises(SetNameTakenError) as error:
        desk.create("Trips")

    assert error.value.free == "Trips_2"


def test_replacing_keeps_the_old_file_in_the_trash(desk: EvalSetDesk, tmp_path: Path) -> None:
    desk.create("trips", "old")

    with desk.prepare("trips", EvalSet("trips"), replaces=True) as prepared:
        prepared.write()

    (kept,) = (tmp_path / ".evaldesk" / "trash").glob("*/trips.evalset.json")
    assert load_evalset(kept).description == "old"


def test_keys_of_cases_fit_into_an_address_and_are_their_own(desk: EvalSetDesk) -> None:
    cases = [case("a/b"), case("../../etc"), case("a/b"), case("x" * 9000), case("é?#&")]

    keys = case_keys(cases)

    assert len(set(keys)) == len(cases)
    assert all(key.replace("-", "").replace("_", "").replace(".", "").isalnum() for key in keys)
    assert max(map(len, keys)) < 30


def test_a_case_that_changed_is_not_saved_over(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")
    found = desk.cases.add(set_id, case("a"))
    desk.cases.save(set_id, found.key, case("a", "theirs"), found.version)

    with pytest.raises(CaseChangedError):
        desk.cases.save(set_id, found.key, case("a", "mine"), found.version)

    assert desk.cases.find(set_id, found.key).case.turns[0].query == "theirs"


def test_the_version_of_a_saved_case_is_the_one_that_is_read_again(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")

    saved = desk.cases.add(set_id, case("a"))

    assert desk.cases.find(set_id, saved.key).version == saved.version


def test_a_taken_name_says_which_is_free(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")
    desk.cases.add(set_id, case("a"))
    desk.cases.add(set_id, case("a_2"))

    with pytest.raises(CaseNameTakenError) as error:
        desk.cases.add(set_id, case("a"))

    assert error.value.free == "a_3"


def test_putting_a_case_takes_the_place_of_the_one_with_its_name(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")
    for name in ("a", "b"):
        desk.cases.add(set_id, case(name))

    desk.cases.put(set_id, case("a", "new"))

    assert [each.turns[0].query for each in desk.evalset(set_id).cases] == ["new", "Hi"]


def test_deleted_cases_come_back_where_they_stood_once(desk: EvalSetDesk) -> None:
    set_id = desk.create("trips")
    for name in ("a", "b", "c", "d"):
        desk.cases.add(set_id, case(name))

    token = desk.cases.delete(set_id, [case_key("d"), case_key("b")])
    left = [each.id for each in desk.evalset(set_id).cases]
    named = desk.cases.list_deleted_ids(set_id, token)
    desk.cases.restore(set_id, token)

    assert left == ["a", "c"]
    assert named == ["b", "d"]
    assert [each.id for each in desk.evalset(set_id).cases] == ["a", "b", "c", "d"]
    with pytest.raises(NotFoundError):
        desk.cases.restore(set_id, token)


@pytest.mark.parametrize("token", ["", "..", "a/b", "x" * 300])
def test_an_unknown_token_brings_nothing_back(desk: EvalSetDesk, token: str) -> None:
    set_id = desk.create("trips")

    assert desk.cases.list_deleted_ids(set_id, token) == []
