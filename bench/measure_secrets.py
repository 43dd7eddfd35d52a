"""The share of the search for secrets in the processor time of a trial: an ADK agent, a fake model, `evaldesk eval`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.fake_model import fake_model
from bench.row import Row, rounded

SHARE = "search for secrets, of the processor time of an ADK trial"
BUDGET_PERCENT = 5
N_FEW, N_MANY = 40, 240
SIZES = {"a result of 2 kB": 18, "a result of 230 kB with ids": 2_000}
"""Rows that the tool of the agent gives."""
AGENT = """
import uuid

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm


def look_up(what: str) -> dict:
    "Looks it up."
    rows = [
        {"id": str(uuid.UUID(int=7919 * at << 64)), "name": f"order {at}", "city": "Vienna", "total": 12.5 + at}
        for at in range(ROWS)
    ]
    return {"rows": rows}


root_agent = Agent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="ADDRESS"), tools=[look_up])
"""


def measure(folder: Path) -> Iterator[Row]:
    """The share of what more trials cost, so that the start of the processes is counted in neither."""
    if not find_spec("google") or not find_spec("google.adk"):
        return
    with fake_model(0) as address:
        for what, n_rows in SIZES.items():
            agent = folder / f"agent_{n_rows}"
            agent.mkdir()
            (agent / "__init__.py").write_text("")
            (agent / "agent.py").write_text(AGENT.replace("ADDRESS", address).replace("ROWS", str(n_rows)))
            few, many = (_played(folder, agent, n) for n in (N_FEW, N_MANY))
            n_more, cpu_s, scan_s = N_MANY - N_FEW, many[0] - few[0], many[1] - few[1]
            yield Row(f"ADK trial, {what}: processor", rounded(1000 * cpu_s / n_more), "ms/trial", None, many[0])
            yield Row(f"{SHARE}, {what}", rounded(100 * scan_s / cpu_s), "%", BUDGET_PERCENT, many[0])


def _played(folder: Path, agent: Path, n: int) -> tuple[float, float]:
    """Seconds of processor of `evaldesk eval` with N trials, all its processes included, and those of the search."""
    hi, hello = {"parts": [{"text": "hi"}]}, {"parts": [{"text": "hello"}]}
    evalset = folder / "hi.evalset.json"
    case = {"eval_id": "one", "conversation": [{"user_content": hi, "final_response": hello}]}
    evalset.write_text(json.dumps({"eval_set_id": "hi", "eval_cases": [case]}))
    with tempfile.TemporaryDirectory(dir=folder) as scans, tempfile.TemporaryDirectory(dir=folder) as workspace:
        timed = {"PYTHONPATH": str(Path(__file__).parent / "timed_scan"), "BENCH_SCAN_FOLDER": scans}
        command = [sys.executable, "-P", "-m", "evaldesk", "eval", str(agent), str(evalset), "--n", str(n)]
        before = os.times()
        environment = {**os.environ, **timed, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        done = subprocess.run(
            [*command, "--workspace", workspace], capture_output=True, text=True, check=False, env=environment
        )
        after = os.times()
        assert done.returncode == 0, done.stdout + done.stderr
        scan_ns = sum(int.from_bytes(file.read_bytes(), "little") for file in Path(scans).iterdir())
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    return spent_s, scan_ns / 1e9
