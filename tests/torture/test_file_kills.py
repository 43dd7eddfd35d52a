"""`doctor --repair`, `trash restore` and `trash empty` with SIGKILL at each step, and once more."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from tests.desk.killed_repair import MOVED, REPAIRED, BrokenPlace
from tests.desk.killed_trash import EMPTIED, KINDS, RESTORED, State, TrashPlace
from tests.forked_commands import ForkedCommands

pytestmark = pytest.mark.torture
NEVER = 10**9


def test_a_repair_that_gets_sigkill_at_any_step_is_finished_by_the_next(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    place = BrokenPlace(tmp_path)
    command = place.command("doctor", "--repair", "--trust")

    for at in count(1):
        place.reset()
        is_over = commands.killed(at, *command) is not None
        if not is_over:
            assert commands.killed(NEVER, *command), at
        assert (place.state(), place.aside()) == (REPAIRED, MOVED), at
        assert len(list((place.home / ".evaldesk").glob("damaged-*"))) == 1
        if is_over:
            break


@pytest.mark.parametrize("kind", [*KINDS, "empty"])
def test_a_command_of_the_trash_that_gets_sigkill_at_any_step_is_finished_by_the_next(
    tmp_path: Path, kind: str, commands: ForkedCommands
) -> None:
    place = TrashPlace(tmp_path)
    whole: State = RESTORED.get(kind, EMPTIED)
    words = ("restore", place.items[kind]) if kind in KINDS else ("empty", "--yes")

    for at in count(1):
        place.reset()
        is_over = commands.killed(at, *place.command("trash", *words)) is not None
        if place.state() != whole:
            assert commands.killed(NEVER, *place.command("trash", *words)), at
        assert place.state() == whole, at
        if is_over:
            break
