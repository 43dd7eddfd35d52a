"""`trash restore` and `trash empty`, killed at each step: what was deleted is there once, and the next one finishes."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import count

import pytest
from tests.desk.killed_trash import EMPTIED, FIRST, KINDS, RESTORED, TrashPlace
from tests.faulty_disk import Killed
from tests.forked_commands import ForkedCommands
from tests.killed_steps import KilledSteps

from evaldesk.desk.repair import file_faults
from evaldesk.desk.trash import empty, open_desk, restore_item
from evaldesk.errors import NotFoundError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> TrashPlace:
    return TrashPlace(tmp_path_factory.mktemp("trash"))


def _repair(place: TrashPlace) -> None:
    for fault in file_faults(place.settings):
        fault.mend()


def test_the_place_has_one_thing_of_each_kind_in_its_trash(place: TrashPlace) -> None:
    place.reset()

    assert place.state() == FIRST


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_restoration_that_is_killed_at_any_step_is_finished_by_the_next(place: TrashPlace, kind: str) -> None:
    for at in count(1):
        place.reset()
        steps = KilledSteps(at)
        with steps.inserted(), suppress(Killed), open_desk(place.settings) as desk:
            restore_item(desk, place.items[kind])
        if not steps.was_reached:
            break
        left = place.state()
        with open_desk(place.settings) as desk, suppress(NotFoundError):  # restored already
            restore_item(desk, place.items[kind])
        _repair(place)

        both = FIRST, RESTORED[kind]
        assert left.sets in {each.sets for each in both}
        assert left.chats in {each.chats for each in both}
        assert left.runs in {each.runs for each in both}
        assert kind in left.trash or left == RESTORED[kind]
        assert place.state() == RESTORED[kind], at
        assert not list(file_faults(place.settings))

    assert place.state() == RESTORED[kind]
    assert at > 5


@pytest.mark.long
def test_an_emptying_that_is_killed_at_any_step_is_finished_by_the_next(place: TrashPlace) -> None:
    for at in count(1):
        place.reset()
        steps = KilledSteps(at)
        with steps.inserted(), suppress(Killed), open_desk(place.settings) as desk:
            empty(desk, datetime.now(UTC))
        if not steps.was_reached:
            break
        left = place.state()
        with open_desk(place.settings) as desk:
            empty(desk, datetime.now(UTC))
        _repair(place)

        assert (left.sets, left.chats, left.runs) == (FIRST.sets, FIRST.chats, FIRST.runs)
        assert set(left.trash) <= set(KINDS)
        assert place.state() == EMPTIED
        assert list((place.home / ".evaldesk" / "trash").iterdir()) == [], at

    assert at > 20


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "whole"),
    [(("restore", kind), RESTORED[kind]) for kind in ("eval set", "run")] + [(("empty", "--yes"), EMPTIED)],
    ids=["restore an eval set", "restore a run", "empty"],
)
def test_a_command_of_the_trash_that_gets_sigkill_is_finished_by_the_next(
    place: TrashPlace, commands: ForkedCommands, words: tuple[str, str], whole: object
) -> None:
    place.reset()
    command = place.command("trash", words[0], place.items.get(words[1], words[1]))
    n_steps = commands.killed(10**9, *command)
    assert n_steps

    for at in (n_steps // 2, n_steps):
        place.reset()
        assert commands.killed(at, *command) is None
        if place.state() != whole:
            commands.killed(10**9, *command)

        assert place.state() == whole
