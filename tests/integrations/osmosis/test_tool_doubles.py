"""Scripted results in place of the tools of an agent loop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.agents.tools.doubles import CURRENT_DOUBLES, read_doubles
from evaldesk.integrations.osmosis.kit.tools import execute_tool_calls
from evaldesk.model import Case

pytestmark = pytest.mark.anyio


async def test_an_osmosis_agent_gets_the_doubles_too() -> None:
    async def execute(call: dict[str, Any]) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call["id"], "content": "the tool itself"}

    case = Case("c", extra={"tool_doubles": {"tools": {"add": [{"args": {"a": 1}, "result": 5, "times": 1}]}}})
    calls = [
        {"id": "c1", "function": {"name": "add", "arguments": json.dumps({"a": 1})}},
        {"id": "c2", "function": {"name": "sub", "arguments": "{}"}},
        {"id": "c3", "function": {"name": "add", "arguments": "no json"}},
    ]
    CURRENT_DOUBLES.set(read_doubles(case, ""))

    given = await execute_tool_calls(calls, execute)

    assert [message["content"] for message in given] == ["5", "the tool itself", "the tool itself"]
