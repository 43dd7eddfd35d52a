"""What a tool for coding agents takes beside a million trials, and what `evaldesk mcp` takes to its first answers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.measure_pages import SIZES, give_trust, trust_of
from bench.measure_scale import patched
from bench.processor import cpu_s_of
from bench.row import Row, rounded
from bench.seed import index_copies, play, seed
from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.desk import Desk
from evaldesk.desk.trash import open_desk
from evaldesk.formats import case_to_json
from evaldesk.pages.door.evalsets import find_file
from evaldesk.pages.door.tools import TOOLS, call
from evaldesk.settings import read_settings
from evaldesk.store import Store

N_CALLS, N_STARTS = 5, 3
SMALL, LARGE, N = 40, 1_000, 5
N_OTHERS, BESIDE = SIZES[1]
FIRST_ANSWER, FIRST_TOOL = "evaldesk mcp, until the first answer", "evaldesk mcp, until the answer of its first tool"
HISTORY = ("explain_gate", "health")
"""Tools whose work grows with the history of the cases, or with the cases of the set."""


READ = tuple(name for name, tool in TOOLS.items() if tool.group == "read" and tool.needs_desk)


def tool_row(name: str, n_cases: int) -> str:
    """The name of a row."""
    return f"tool {name}, {n_cases:,} cases x {N}{BESIDE}: processor"


def measure(folder: Path) -> Iterator[Row]:
    """Each reading tool on a run of forty cases, the two that grow on one of a thousand, then the start."""
    with patched("XDG_STATE_HOME", trust_of(folder)["XDG_STATE_HOME"]):
        yield from _measure(folder)


def _measure(folder: Path) -> Iterator[Row]:
    (folder / ".evaldesk").mkdir()
    database = folder / ".evaldesk" / "evaldesk.db"
    large = seed(database, LARGE, N, N_OTHERS)
    give_trust(folder)
    index_copies(folder, large)
    with Store.open(database) as store:
        small, newest = (play(store, random.Random(luck), SMALL, N) for luck in (2, 3))
    for run_id, name in ((large, "large"), (newest, "small")):
        _write_set(database, run_id, folder / f"{name}.evalset.json")
    with open_desk(read_settings(folder, (folder,), environment={})) as desk:
        proposal = _propose(desk, "small")
        for name, inputs in _calls(newest, small, "small", proposal).items():
            yield Row(tool_row(name, SMALL), rounded(_cpu_ms(desk, name, inputs)), "ms", 50)
        for name in HISTORY:
            inputs = _calls(large, small, "large", proposal)[name]
            yield Row(tool_row(name, LARGE), rounded(_cpu_ms(desk, name, inputs)), "ms")
    if importlib.util.find_spec("mcp"):
        yield from _starts(folder)


def _propose(desk: Desk, name: str) -> int:
    """The number of a proposal, an edit of a case whose trials are many."""
    file = find_file(desk, name)
    case = case_to_json(desk.evalsets.evalset(file.id).cases[0])
    turn = case["conversation"][0] | {"final_response": {"parts": [{"text": "another answer"}]}}
    proposals = ClientProposalDesk(desk)
    return proposals.propose_edit("bench", file.id, case["eval_id"], {"conversation": [turn]}, "measured").id


def _calls(run: int, other: int, name: str, proposal: int) -> Mapping[str, Mapping[str, Any]]:
    """The inputs of each reading tool that needs a desk."""
    case = "case_0001"
    return {
        "status": {},
        "list_agents": {},
        "list_evalsets": {},
        "list_cases": {"set": name},
        "get_case": {"set": name, "case": case},
        "list_runs": {},
        "get_run": {"run": str(run)},
        "compare": {"runs": [str(run), str(other)]},
        "list_trials": {"run": str(run), "filter": "verdict:failed"},
        "get_trial": {"run": str(run), "case": case, "trial": 1},
        "search": {"text": "prime"},
        "get_failures": {"set": name},
        "explain_gate": {"run": str(run)},
        "health": {"set": name},
        "list_proposals": {},
        "get_proposal": {"proposal": proposal},
    }


def _write_set(database: Path, run_id: int, file: Path) -> None:
    """The eval set of a run, in ADK's form."""
    with Store.open(database) as store:
        cases = store.runs.cases(run_id)
    values = [
        {
            "eval_id": case.id,
            "conversation": [
                {
                    "user_content": {"parts": [{"text": turn.query}]},
                    "final_response": {"parts": [{"text": turn.expected.reference}]},
                    "intermediate_data": {
                        "tool_uses": [{"name": each.name, "args": each.args} for each in turn.expected.tool_calls or ()]
                    },
                }
                for turn in case.turns
            ],
        }
        for case in cases
    ]
    file.write_text(json.dumps({"eval_set_id": "calc", "name": "calc", "eval_cases": values}))


def _cpu_ms(desk: Desk, name: str, inputs: Mapping[str, Any]) -> float:
    """The median over some calls, after a first one that imports what it needs."""
    asyncio.run(call(TOOLS[name], desk, inputs))
    spent = []
    for _ in range(N_CALLS):
        before = time.process_time()
        asyncio.run(call(TOOLS[name], desk, inputs))
        spent.append(1000 * (time.process_time() - before))
    return statistics.median(spent)


def _starts(folder: Path) -> Iterator[Row]:
    first, tool = zip(*(_start(folder) for _ in range(N_STARTS)), strict=True)
    yield Row(FIRST_ANSWER, rounded(statistics.median(first)), "CPU-s", 0.6)
    yield Row(FIRST_TOOL, rounded(statistics.median(tool)), "CPU-s")


def _start(folder: Path) -> tuple[float, float]:
    """Seconds of processor of a server until it answered `initialize`, and until its first tool answered."""
    command = [sys.executable, "-m", "evaldesk", "mcp", "--workspace", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdin
    assert process.stdout
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    asked: tuple[list[dict[str, Any]], ...] = (
        [{"id": 1, "method": "initialize", "params": client}],
        [
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}},
        ],
    )
    spent = []
    try:
        for messages in asked:
            for message in messages:
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            assert "result" in json.loads(process.stdout.readline())
            spent.append(cpu_s_of(process.pid))
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
    return spent[0], spent[1]
