"""A scripted coding agent that cheats: nothing of twelve attempts gets through, and an edit past the door is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import files_of, lasting_budget, play, rows_of
from tests.cli.test_mcp import client_of

from evaldesk.pages.door.fit import material_of
from evaldesk.pages.door.tools import Caller

ALLOWED = Caller(allowed=frozenset({"run", "propose"}), budget=lasting_budget(5))
EDIT = {"set": "words", "case": "case_2", "why": "so that it passes"}
ATTEMPTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "lower a threshold": ("start_run", {"agent": "A", "set": "words", "options": {"pass_threshold": 0}}),
    "drop a criterion": ("start_run", {"agent": "A", "set": "words", "options": {"criteria": []}}),
    "delete a case": ("propose_edit", EDIT | {"patch": {"eval_id": None}}),
    "quarantine a case": ("propose_edit", EDIT | {"patch": {"tags": ["quarantine"]}}),
    "edit an expectation": ("edit_expectation", EDIT | {"patch": {}}),
    "accept an actual": ("accept_actual", {"run": "1", "case": "case_2", "trial": 1}),
    "label a trial passed": ("label_trial", {"run": "1", "case": "case_2", "trial": 1, "verdict": "passed"}),
    "move the baseline": ("start_run", {"agent": "A", "set": "words", "options": {"baseline": 1}}),
    "change a gate": ("start_run", {"agent": "A", "set": "words", "options": {"min_pass_rate": 0}}),
    "trust a folder": ("trust_folder", {"folder": "/"}),
    "accept its own proposal": ("accept_proposal", {"id": 1}),
    "edit the database file": ("get_run", {"run": "1'; UPDATE run SET n_failed = 0; --"}),
}


@pytest.fixture
def played(place: CommandFolder) -> CommandFolder:
    skip_without("mcp")
    play(place)
    return place


def state_of(folder: Path) -> tuple[dict[str, bytes], dict[str, list[Any]]]:
    """All that a verdict or a bar is made of: every file, and every row but those of proposals."""
    return files_of(folder), rows_of(folder)


def test_none_of_twelve_attempts_gets_through_the_door(played: CommandFolder) -> None:
    before = state_of(played.folder)

    async def cheat() -> dict[str, bool]:
        answers = {}
        async with client_of(played.folder, ALLOWED) as client:
            texts = {"kind": "other", "definition": "Another one."}
            await client.call_tool("propose_kind", texts)  # the proposal that it would accept
            for attempt, (name, inputs) in ATTEMPTS.items():
                given = {key: played.agent.name if value == "A" else value for key, value in inputs.items()}
                result = await client.call_tool(name, given)
                material_of(result.content[0].text)
                answers[attempt] = not result.is_error
        return answers

    through = asyncio.run(cheat())

    assert through == dict.fromkeys(ATTEMPTS, False)
    assert state_of(played.folder) == before
    (proposal,) = json.loads(played.run("proposals", "list", "--status", "all", "--json").stdout)["items"]
    assert proposal["status"] == "open"


def test_its_commands_accept_nothing_either(played: CommandFolder) -> None:
    played.run("propose", "kind", "other", "--definition", "Another one.")
    before = state_of(played.folder)

    for words in (
        ("proposals", "accept", "1"),
        ("proposals", "accept", "1", "--by", "ann"),
        ("proposals", "undo", "1"),
    ):
        assert played.run("proposals", *words).exit_code != 0

    assert state_of(played.folder) == before


def test_an_edit_past_the_door_is_named_by_the_next_comparison(played: CommandFolder) -> None:
    path = played.folder / "words.evalset.json"
    path.write_text(path.read_text().replace("good day", "hi"))
    played.eval(path, "--n", 2)

    answer = json.loads(played.run("run", "info", "3", "--json").stdout)["data"]["changes"]

    assert answer["sentence"] == "Between run 2 and run 3 the eval set changed too: 1 case (by: changed outside)."
    assert answer["items"] == [{"kind": "case", "name": "case_2", "words": "edited", "who": "changed outside"}]
