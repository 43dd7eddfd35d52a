"""Values are read by several threads of a fresh process at once, as a desk does with its first page.

Fresh is a fork that has imported the modules and has read no value yet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import evaldesk

CODE = Path(evaldesk.__file__).parent
LEARNS = {"wire.py": "under its lock", "agents/tools/functions.py": "after `learn`"}
"""Modules that call msgspec.convert themselves, and why they may: it reads a half-learned type as a whole one."""

STORED = """
from evaldesk.model import AgentRef, RunConfig, TrialResult, TrialSpec
from evaldesk.wire import from_json, to_json

text = to_json(RunConfig(AgentRef("a", "a:a"), "set"))

def read():
    start.wait()
    assert from_json(text, RunConfig).evalset_id == "set"
"""
TYPES = """
from dataclasses import make_dataclass

Order = int
for depth in range(60):
    fields = [(f"n_{index}", "int", 1) for index in range(40)]
    Order = make_dataclass(f"Order{depth}", [*fields, ("inner", Order, 1)])
"""
CONVERTED = """
from evaldesk.wire import converted

def read():
    start.wait()
    assert converted({"n_3": 7}, Order).n_3 == 7
"""
TOOL = """
import asyncio
from evaldesk.agents.tools.functions import tool_of

def book(order: Order, others: list[Order] = ()) -> int:
    return order.n_3

async def call():
    start.wait()
    outcome = await tool_of(book).run({"order": {"n_3": "7"}, "others": [{"n_1": 2}]}, {})
    assert outcome.result == 7, outcome

def read():
    asyncio.run(call())
"""
CRITERION = """
from evaldesk.metrics.scoring import build_metric
from evaldesk.model import Criterion

def read():
    start.wait()
    assert build_metric(Criterion("tool_trajectory_avg_score", 1.0, {"match_type": "IN_ORDER"}))
"""
N_FORKS = 2
AT_ONCE = f"""
import os, sys, threading

for _ in range({N_FORKS}):
    child = os.fork()
    if not child:
        break
    if os.waitpid(child, 0)[1]:
        sys.exit("a fork failed")
else:
    sys.exit()
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("read")
"""


@pytest.mark.server
@pytest.mark.parametrize(
    "reads", [STORED, TYPES + CONVERTED, TYPES + TOOL, CRITERION], ids=["stored", "converted", "tool", "criterion"]
)
def test_threads_may_read_the_first_value_of_a_type_at_once(reads: str) -> None:
    ended = subprocess.run([sys.executable, "-c", reads + AT_ONCE], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "read\n" * N_FORKS, ""), ended.stderr[-2000:]


def test_values_are_converted_where_their_types_are_learned_first() -> None:
    files = {str(path.relative_to(CODE)): path.read_text("utf-8") for path in CODE.rglob("*.py")}

    assert {name for name, text in files.items() if "msgspec.convert(" in text} == set(LEARNS)
