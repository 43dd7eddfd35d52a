"""A workspace for the door of coding agents, and the calls of its tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.cli.conftest import CommandFolder

from evaldesk.desk.desk import Desk
from evaldesk.desk.trash import open_desk
from evaldesk.model.client_budget import Budget
from evaldesk.pages.door.tools import TOOLS, Caller, call
from evaldesk.settings import read_settings

INPUTS: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "status": ({}, ("status",)),
    "list_agents": ({}, ("agents",)),
    "list_evalsets": ({}, ("set", "list")),
    "list_cases": ({"set": "words", "filter": "id:case_1", "limit": 5}, ("set", "cases", "words")),
    "get_case": ({"set": "words", "case": "case_2"}, ("set", "case", "words", "case_2")),
    "list_runs": ({}, ("run", "list")),
    "get_run": ({"run": "1"}, ("run", "info", "1")),
    "compare": ({"runs": ["1", "2"]}, ("compare", "1", "2")),
    "list_trials": ({"run": "1", "filter": "verdict:failed"}, ("run", "trials", "1", "--filter", "verdict:failed")),
    "get_trial": ({"run": "1", "case": "case_2", "trial": 1}, ("run", "trial", "1", "case_2", "1")),
    "search": ({"text": "flaky"}, ("search", "flaky")),
    "get_failures": ({"set": "words"}, ("set", "failures", "words")),
    "explain_gate": ({"run": "1"}, ("gate", "explain", "--from", "1")),
    "health": ({"set": "words"}, ("set", "health", "words")),
    "get_docs": ({"topic": "metrics"}, ("docs", "metrics")),
    "list_proposals": ({"status": "all"}, ("proposals", "list", "--status", "all")),
    "get_proposal": ({"proposal": 1}, ("proposals", "show", "1")),
}
"""For each reading tool its inputs, and the command with the same answer."""
OPTIONS: Mapping[str, Sequence[str]] = {"list_cases": ("--filter", "id:case_1", "--limit", "5")}


CASE = {"eval_id": "new_case", "conversation": [{"user_content": {"parts": [{"text": "two dice"}]}}]}
PROPOSALS: Mapping[str, Mapping[str, Any]] = {
    "propose_case": {"set": "words", "case": CASE, "why": "no case asks for two"},
    "propose_edit": {"set": "words", "case": "case_2", "patch": {"tags": ["short"]}, "why": "shorter"},
    "propose_expectation": {"run": "1", "case": "case_2", "trial": 1, "parts": {"1.answer": "replace"}},
    "propose_finding": {"run": "1", "case": "case_2", "trial": 1, "kind": "echo", "quote": "hi"},
    "propose_kind": {"kind": "wrong greeting", "definition": "The greeting is another one."},
}


def lasting_budget(usd: float) -> Budget:
    """A budget whose day does not end within a test, whenever that is played."""
    return Budget(usd, lambda: datetime(2020, 1, 1, tzinfo=UTC))


def play(place: CommandFolder) -> None:
    """Two runs of an eval set of three cases, one of which never passes and one every other time."""
    place.evalset("words", {"hello": "hello", "hi": "good day", "flaky": "flaky"})
    for _ in range(2):
        assert place.eval(place.folder / "words.evalset.json", "--n", 2).exit_code == 1


def play_and_propose(place: CommandFolder) -> None:
    """The workspace of INPUTS: that of `play` with an open proposal."""
    play(place)
    proposed = place.run("propose", "kind", "repeats itself", "--definition", "It says the same thing twice.")
    assert proposed.exit_code == 0


def tool_answer(folder: Path, name: str, inputs: Mapping[str, Any], caller: Caller | None = None) -> dict[str, Any]:
    """The answer of a tool, as JSON has it."""
    settings = read_settings(folder, (folder,), environment={})

    async def answer(desk: Desk) -> dict[str, Any]:
        return await call(TOOLS[name], desk, inputs, caller)

    with open_desk(settings) as desk:
        value: dict[str, Any] = json.loads(json.dumps(asyncio.run(answer(desk))))
        return value


def files_of(folder: Path) -> dict[str, bytes]:
    """All files of a workspace beside its database."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".evaldesk" not in path.relative_to(folder).parts and "__pycache__" not in path.parts
    }


def rows_of(folder: Path) -> dict[str, list[Any]]:
    """All rows of the database but those of proposals, of the index of the search, and of a cache.

    The lines of the list of eval sets are that cache, written once the files have been still for a while.
    """
    with contextlib.closing(sqlite3.connect(folder / ".evaldesk/evaldesk.db")) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("proposal", "evalset_line") and not re.search("^sqlite_|search|word", name)
        ]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}  # noqa: S608
