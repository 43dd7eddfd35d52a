"""Versions of eval sets: noted, compared, restored."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching.case_version import canonical_case, case_version, set_version, version_of_set
from evaldesk.model import Case, EvalSet, Expected, ToolCall, Turn
from evaldesk.model.evalset import case_key
from evaldesk.model.set_versions import set_diff
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.set_versions import NewVersion
from evaldesk.store.tables.set_versions import CASE_CONTENT
from evaldesk.wire import to_json


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,), me="jo")
    settings.state_folder.mkdir()
    with Store.open(settings.database) as opened_store:
        yield opened_store


@pytest.fixture
def desk(tmp_path: Path, store: Store) -> EvalSetDesk:
    return EvalSetDesk(Settings(workspace=tmp_path, roots=(tmp_path,), me="jo"), store)


def case(case_id: str, query: str = "Hi", **more: Any) -> Case:
    return Case(case_id, (Turn(query, Expected((ToolCall("roll", {"sides": 6}),))),), **more)


def trips(desk: EvalSetDesk, *cases: Case) -> str:
    set_id = desk.create("trips")
    for each in cases:
        desk.cases.add(set_id, each)
    return set_id


def steps(desk: EvalSetDesk, set_id: str) -> list[tuple[str, int, int, int, int]]:
    """The source and the counts of each version, the oldest first."""
    return [(v.source, v.n_added, v.n_changed, v.n_removed, v.n_renamed) for v in reversed(desk.versions.list(set_id))]


def test_every_save_of_the_desk_is_a_version_with_its_author(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"), case("b", "Ho"))
    desk.cases.save(set_id, case_key("b"), case("b", "Hey"), None)
    desk.cases.save(set_id, case_key("a"), case("first"), None)
    desk.cases.delete(set_id, [case_key("b")])

    assert steps(desk, set_id) == [
        ("jo, created", 0, 0, 0, 0),
        ("jo", 1, 0, 0, 0),
        ("jo", 1, 0, 0, 0),
        ("jo", 0, 1, 0, 0),
        ("jo", 0, 0, 0, 1),
        ("jo", 0, 0, 1, 0),
    ]


def test_a_change_of_the_file_by_another_program_is_a_version_of_its_own(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"))
    path = desk.file(set_id).path
    path.write_text(path.read_text().replace('"Hi"', '"Hello"'))

    desk.cases.add(set_id, case("b"))  # nobody looked at the file before

    assert steps(desk, set_id)[2:] == [("changed outside", 0, 1, 0, 0), ("jo", 1, 0, 0, 0)]


def test_tags_quarantine_and_trials_are_steps_that_make_no_version(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"))
    n = len(desk.versions.list(set_id))

    desk.cases.save(set_id, case_key("a"), case("a", tags=("smoke", "quarantine"), extra={"trials": 3}), None)

    assert len(desk.versions.list(set_id)) == n
    assert desk.evalset(set_id).cases[0].tags == ("smoke", "quarantine")


def test_the_content_of_a_case_is_stored_once(desk: EvalSetDesk, store: Store) -> None:
    trips(desk, *(case(f"case_{number}") for number in range(5)))

    with store._database.reading() as connection:
        rows = connection.execute(CASE_CONTENT.select()).all()

    assert len(rows) == 1


def test_a_restored_version_has_the_canonical_bytes_that_it_had(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a", "One"), case("b", "Two"), case("c", "Three"))
    before, version = desk.evalset(set_id), desk.versions.list(set_id)[0]
    desk.cases.save(set_id, case_key("a"), case("a", "Other", tags=("smoke",)), None)
    desk.cases.delete(set_id, [case_key("b")])

    newest = desk.versions.restore(set_id, version)

    after = desk.evalset(set_id)
    assert [to_json(canonical_case(each)) for each in after.cases] == [
        to_json(canonical_case(each)) for each in before.cases
    ]
    assert version_of_set(after) == version.version
    assert after.cases[0].tags == ("smoke",)  # labels are no part of a version
    assert desk.versions.list(set_id)[0].source == f"jo, restored {version.short_name}"
    desk.versions.restore(set_id, newest)  # takes it back
    assert [each.turns[0].query for each in desk.evalset(set_id).cases] == ["Other", "Three"]


def test_one_case_is_restored_in_its_place_or_at_the_end(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a", "One"), case("b", "Two"))
    version = desk.versions.list(set_id)[0]
    desk.cases.save(set_id, case_key("a"), case("a", "Other"), None)
    desk.cases.delete(set_id, [case_key("b")])

    desk.versions.restore_case(set_id, version, "a")
    desk.versions.restore_case(set_id, version, "b")

    assert [(each.id, each.turns[0].query) for each in desk.evalset(set_id).cases] == [("a", "One"), ("b", "Two")]
    with pytest.raises(NotFoundError, match="has no case 'z'"):
        desk.versions.restore_case(set_id, version, "z")


def test_a_version_whose_contents_are_gone_is_not_restored(desk: EvalSetDesk, store: Store) -> None:
    set_id = trips(desk, case("a"))
    version = desk.versions.list(set_id)[0]
    desk.cases.delete(set_id, [case_key("a")])
    with store._database.writing() as connection:
        connection.execute(CASE_CONTENT.delete())

    with pytest.raises(NotFoundError, match="the content of this version is gone"):
        desk.versions.restore(set_id, version)

    assert not desk.evalset(set_id).cases


def test_a_version_is_named_by_its_first_characters(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"))
    newest = desk.versions.list(set_id)[0]

    assert desk.versions.find(set_id, newest.short_name) == newest
    with pytest.raises(UsageError, match="too short"):
        desk.versions.find(set_id, newest.version[:3])
    with pytest.raises(NotFoundError, match=f"there is no version 'zzzz'; the newest are: {newest.short_name}"):
        desk.versions.find(set_id, "zzzz")


def test_criteria_of_the_set_are_part_of_its_version_and_come_back(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"))
    path, plain = desk.file(set_id).path, desk.versions.list(set_id)[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "criteria": {"response_match_score": 0.5}}))
    strict = desk.versions.list(set_id)[0]

    diff = desk.versions.diff(plain, strict)
    desk.versions.restore(set_id, plain)

    assert (diff.has_other_criteria, diff.headline, diff.n["same"]) == (True, "Other criteria", 1)
    assert "criteria" not in desk.evalset(set_id).extra
    desk.versions.restore(set_id, strict)
    assert desk.evalset(set_id).extra["criteria"] == {"response_match_score": 0.5}


def test_versions_follow_a_set_that_is_renamed(desk: EvalSetDesk) -> None:
    set_id = trips(desk, case("a"))
    n = len(desk.versions.list(set_id))

    new_id = desk.change(set_id, "journeys", "")

    assert len(desk.versions.list(new_id)) == n


def test_versions_are_ordered_as_they_were_noted_whatever_the_clock_says(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    hours = iter(range(100, 0, -1))
    clock = lambda: datetime(2026, 11, 29, tzinfo=UTC) + timedelta(hours=next(hours))  # noqa: E731
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    settings.state_folder.mkdir()
    with Store.open(settings.database, clock=clock) as store:
        desk = EvalSetDesk(settings, store)
        set_id = trips(desk, case("a"), case("b"))

        numbers = [len(store.set_versions.content(each.number).cases) for each in desk.versions.list(set_id)]

    assert numbers == [2, 1, 0]


def test_the_version_is_the_same_after_a_round_trip_through_the_file_and_adk(desk: EvalSetDesk, tmp_path: Path) -> None:
    evalset = EvalSet("trips", cases=(case("a"), case("b", "Ho", tags=("smoke",), final_state={"n": 1})))
    with desk.prepare("trips", evalset) as prepared:
        prepared.write()
    other = tmp_path / "elsewhere" / "trips.evalset.json"
    other.parent.mkdir()
    other.write_bytes(desk.export(prepared.id, "adk").data)

    assert version_of_set(load_evalset(other)) == version_of_set(evalset) == desk.versions.list(prepared.id)[0].version


def test_the_diff_of_two_versions_is_the_golden_one() -> None:
    expected = golden("sets")["version_diff"]

    diff = set_diff(list(expected["before"].items()), list(expected["after"].items()))

    assert [each.case_id for each in diff.of("same")] == expected["same"]
    assert [each.case_id for each in diff.of("changed")] == expected["changed"]
    assert [[each.before_id, each.after_id] for each in diff.of("renamed")] == expected["renamed"]
    assert [each.case_id for each in diff.of("added")] == expected["added"]
    assert [each.case_id for each in diff.of("removed")] == expected["removed"]
    assert diff.sentence == expected["sentence"]


@pytest.mark.parametrize("seed", range(20))
def test_a_diff_has_every_case_of_both_versions_once(seed: int) -> None:
    chance = random.Random(seed)
    before, after = (
        [(f"c{number}", f"v{chance.randrange(8)}") for number in chance.sample(range(9), chance.randrange(9))]
        for _ in range(2)
    )

    diff = set_diff(before, after)

    assert sorted(each.before_id for each in diff.cases if each.before_id) == sorted(i for i, _ in before)
    assert sorted(each.after_id for each in diff.cases if each.after_id) == sorted(i for i, _ in after)
    assert diff.is_empty == (dict(before) == dict(after))


def test_a_read_only_workspace_notes_nothing(desk: EvalSetDesk, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    set_id = trips(desk, case("a"))
    path = desk.file(set_id).path
    path.write_text(path.read_text().replace('"Hi"', '"Hello"'))
    monkeypatch.setattr(Store, "is_read_only", property(lambda _: True))

    assert desk.evalset(set_id).cases[0].turns[0].query == "Hello"
    assert store.set_versions.count(set_id) == 2


def test_two_processes_that_see_the_same_change_note_one_version(
    desk: EvalSetDesk, store: Store, tmp_path: Path
) -> None:
    set_id = trips(desk, case("a"))
    path = desk.file(set_id).path
    path.write_text(path.read_text().replace('"Hi"', '"Hello"'))
    other = EvalSetDesk(Settings(workspace=tmp_path, roots=(tmp_path,)), store)

    desk.evalset(set_id), other.evalset(set_id)

    assert store.set_versions.count(set_id) == 3


def test_a_set_version_has_ids_order_contents_and_criteria() -> None:
    keys = [("a", "1"), ("b", "2")]
    versions = {
        set_version(keys),
        set_version(keys[::-1]),
        set_version([("c", "1"), ("b", "2")]),
        set_version([("a", "3"), ("b", "2")]),
        set_version(keys, {"response_match_score": 0.5}),
    }

    assert len(versions) == 5
    assert set_version(keys, {}) == set_version(keys, None) == set_version(keys)


def test_the_canonical_form_has_no_labels_and_the_same_version() -> None:
    whole = case("a", tags=("smoke",), extra={"quarantine": True, "trials": 3, "n": 2, "level": "easy"})

    canonical = canonical_case(whole)

    assert canonical == replace(whole, id="", tags=(), extra={"level": "easy"})
    assert case_version(canonical) == case_version(whole)


def test_a_version_that_is_noted_already_asks_for_no_contents(store: Store) -> None:
    from evaldesk.model.set_versions import SetContent

    new = NewVersion("v1", SetContent((("a", "d1"),)), 1, "first")
    asked: list[object] = []

    def contents(digests: Any) -> dict[str, Case]:
        asked.append(digests)
        return {digest: case("") for digest in digests}

    assert store.set_versions.note("set", new, contents)
    assert not store.set_versions.note("set", new, contents)
    assert asked == [{"d1"}]
