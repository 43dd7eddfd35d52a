"""`doctor --repair` where everything is broken, killed and called again: nothing is lost, and nothing doubled."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from tests.desk.killed_repair import MOVED, REPAIRED, BrokenPlace
from tests.faulty_disk import FaultyDisk, Killed
from tests.forked_commands import ForkedCommands
from tests.killed_steps import KilledSteps

from evaldesk.desk.doctor import look_at_files, look_at_workspace, repair_files


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> BrokenPlace:
    return BrokenPlace(tmp_path_factory.mktemp("broken"))


def _is_repaired(place: BrokenPlace) -> bool:
    state = place.home / ".evaldesk"
    assert place.state() == REPAIRED
    assert place.aside() == MOVED
    assert len(list(state.glob("damaged-*"))) == 1
    assert not list(place.home.rglob("*evaldesk-tmp"))
    assert not look_at_files(place.settings)
    return all(finding.state == "good" for finding in look_at_workspace(place.settings))


@pytest.mark.long
@pytest.mark.parametrize(
    ("disk", "gap"), [(FaultyDisk, 3), (KilledSteps, 17)], ids=["files, every 3rd call", "statements, every 17th"]
)
def test_a_repair_that_is_killed_is_finished_by_the_next(place: BrokenPlace, disk: type[FaultyDisk], gap: int) -> None:
    """`make torture` kills at each of them."""
    for at in count(1, gap):
        place.reset()
        steps = disk(at)
        with steps.inserted(), suppress(Killed):
            repair_files(place.settings)
        if not steps.was_reached:
            break
        repaired = repair_files(place.settings)

        assert all(finding.state == "good" for finding in repaired), (at, repaired)
        assert _is_repaired(place), at

    assert _is_repaired(place)
    assert at > 40


@pytest.mark.long
def test_a_repair_that_gets_sigkill_is_finished_by_the_next(place: BrokenPlace, commands: ForkedCommands) -> None:
    command = place.command("doctor", "--repair", "--trust")
    place.reset()
    n_steps = commands.killed(10**9, *command)
    assert n_steps

    place.reset()
    assert commands.killed(n_steps // 2, *command) is None
    repair_files(place.settings)

    assert _is_repaired(place)
