"""The JSON schemas of inputs and outputs of all tools for coding agents, checked against 1,000 random calls.

`EVALDESK_SNAPSHOTS=write` writes them anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import INPUTS, PROPOSALS, play_and_propose

from evaldesk.desk.desk import Desk
from evaldesk.errors import EvaldeskError
from evaldesk.pages.door.tools import TOOLS, call
from evaldesk.settings import read_settings

FILE = Path(__file__).resolve().parents[2] / "docs" / "coding-agents.schema.json"
DEPTH = 3
KINDS: Mapping[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
N_CALLS = 1_000
VALUES: tuple[Any, ...] = (
    *("1", "2", "3", "99", "words", "case_1", "case_2", "", "../x", "accept all", 0, 1, -1, 10**9, None, True, 1.5),
    *([], ["1", "2"], {}, {"conversation": None}, "verdict:failed", "verdict:passed", "asserts:no", "é" * 500),
    *("line", "full", "status:finished", "flaky"),
)


def answers(folder: Path, agent: str) -> list[tuple[str, dict[str, Any]]]:
    """The answers of usual calls of each tool, then of random ones; refused ones have none."""
    chance = random.Random(7)
    usual: dict[str, Mapping[str, Any]] = {name: inputs for name, (inputs, _) in INPUTS.items()} | dict(PROPOSALS)
    run = {"agent": agent, "set": "words", "case": "case_1"}
    running: dict[str, Mapping[str, Any]] = {
        "try_case": run,
        "start_run": {"agent": agent, "set": "words"},
        "wait": {"run": "3", "seconds": 0},
        "stop_run": {"run": "3"},
        "fork": {"run": "1", "case": "case_2", "turn": 1, "n": 1},
        "blame": {"run": "1", "case": "case_2", "trial": 1},
    }
    assert usual.keys() | running.keys() == TOOLS.keys()
    calls: list[tuple[str, dict[str, Any]]] = [(name, dict(inputs)) for name, inputs in (usual | running).items()]
    names = [name for name in usual if name != "list_agents"]
    while len(calls) < N_CALLS:
        name = chance.choice(names)
        inputs = dict(usual[name])
        for _ in range(chance.randrange(3)):
            inputs[chance.choice([*TOOLS[name].inputs, *inputs, "max_tokens"])] = chance.choice(VALUES)
        calls.append((name, inputs))

    async def ask() -> list[tuple[str, dict[str, Any]]]:
        desk = Desk.open(read_settings(folder, (folder,), environment={}))
        found = []
        try:
            for name, inputs in calls:
                try:
                    found.append((name, json.loads(json.dumps(await call(TOOLS[name], desk, inputs)))))
                except EvaldeskError:
                    assert len(found) > len(usual) + len(running) - 1, name  # each usual call is answered
        finally:
            await desk.close()
        return found

    return asyncio.run(ask())


def schema_of(values: list[Any], depth: int = DEPTH) -> dict[str, Any]:
    """The schema of some values; deeper ones are of their kind only."""
    kinds = {KINDS[type(each)] for each in values}
    kinds -= {"integer"} if "number" in kinds else set()
    schema: dict[str, Any] = {"type": sorted(kinds) if len(kinds) > 1 else next(iter(kinds), "null")}
    objects = [each for each in values if isinstance(each, dict)]
    if objects and depth:
        names = list(dict.fromkeys(name for each in objects for name in each))
        if names and all(re.fullmatch(r"run \d+", name) for name in names):  # by the numbers of runs, which are any
            schema["additionalProperties"] = schema_of([each[name] for each in objects for name in each], depth - 1)
            return schema
        schema["properties"] = {
            name: schema_of([each[name] for each in objects if name in each], depth - 1) for name in names
        }
        schema["required"] = [name for name in names if all(name in each for each in objects)]
        schema["additionalProperties"] = False
    items = [item for each in values if isinstance(each, list) for item in each]
    if items and depth:
        schema["items"] = schema_of(items, depth - 1)
    return schema


def test_1000_random_calls_have_the_inputs_and_outputs_of_the_published_schemas(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jsonschema import Draft202012Validator

    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over", lambda *_: "desk")
    monkeypatch.setattr("evaldesk.desk.client_runs.hand_over_search", lambda *_: None)
    play_and_propose(place)
    found = answers(place.folder, place.agent.name)
    if os.environ.get("EVALDESK_SNAPSHOTS") == "write":
        outputs = {name: schema_of([value for each, value in found if each == name]) for name in TOOLS}
        schemas = {name: {"input": tool.schema, "output": outputs[name]} for name, tool in TOOLS.items()}
        FILE.write_text(json.dumps(schemas, indent=2) + "\n")

    published = json.loads(FILE.read_text())

    assert {name: each["input"] for name, each in published.items()} == {
        name: json.loads(json.dumps(tool.schema)) for name, tool in TOOLS.items()
    }
    validators = {name: Draft202012Validator(each["output"]) for name, each in published.items()}
    for name, value in found:
        assert [error.message for error in validators[name].iter_errors(value)] == [], name
    assert {name for name, _ in found} == set(TOOLS)
    assert len(found) > N_CALLS // 3
