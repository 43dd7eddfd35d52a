"""The source of an agent that takes little time, writes down what it was asked, and fails every tenth time."""

from __future__ import annotations

BRIEF_AGENT = """
import asyncio
import os
import pathlib
import random

from evaldesk.model import Event, ToolCall


PIDS = pathlib.Path(os.environ["PLAYED"]).parent / "pids"
HELD = pathlib.Path(os.environ["PLAYED"]).parent / "held"
HELD_FROM = int(os.environ.get("HELD_FROM", "1000000"))


async def root_agent(message, state):
    PIDS.mkdir(exist_ok=True)
    (PIDS / str(os.getpid())).touch()
    with open(os.environ["PLAYED"], "a") as played:
        played.write(message + "\\n")
    call = ToolCall("look_up", {"what": message})
    yield Event("tool_call", call=call)
    await asyncio.sleep(random.random() * float(os.environ.get("SLOWNESS_S", "0.02")))
    while int(message.split()[-1]) >= HELD_FROM and HELD.exists():
        await asyncio.sleep(0.02)
    yield Event("tool_result", call=call, result="found")
    if message.endswith("3"):
        raise ValueError("threes are not found")
    yield "wrong" if message.endswith("7") else "It is " + message
"""
