"""A project of ADK, from a clone to its verdict by the commands of docs/coming-from.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.installed import skip_without
from tests.documents.shown_commands import carry_out, commands_of_tool
from tests.forked_commands import ForkedCommands

FILES = {
    "home_agent/__init__.py": "from . import agent\n",
    "home_agent/agent.py": """\
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


def set_light(room: str, is_on: bool) -> dict:
    return {"room": room, "on": is_on}


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        part = types.Part(text="The light is on.")
        if not last.function_response:
            call = types.FunctionCall(name="set_light", args={"room": "kitchen", "is_on": True})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


root_agent = LlmAgent(name="home_agent", model=Scripted(model="scripted"), tools=[set_light])
""",
    "home_agent/test_config.json": json.dumps(
        {"criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.8}}
    ),
    "tests/test_home.py": """\
import pytest
from google.adk.evaluation.agent_evaluator import AgentEvaluator


@pytest.mark.asyncio
async def test_home():
    await AgentEvaluator.evaluate("home_agent", "home_agent/simple.evalset.json", num_runs=1)
""",
    ".github/workflows/evals.yml": """\
jobs:
  evals:
    steps:
      - run: pip install "google-adk[eval]"
      - run: adk eval home_agent home_agent/simple.evalset.json
""",
    "requirements.txt": "google-adk[eval]\n",
}
TURN = {
    "user_content": {"role": "user", "parts": [{"text": "Turn the light in the kitchen on."}]},
    "final_response": {"role": "model", "parts": [{"text": "The light is on."}]},
    "intermediate_data": {"tool_uses": [{"name": "set_light", "args": {"room": "kitchen", "is_on": True}}]},
}


@pytest.mark.server
def test_a_project_of_adk_is_moved_and_judged_by_command_and_by_pytest(
    tmp_path: Path, commands: ForkedCommands
) -> None:
    skip_without("google.adk")
    evalset = {"eval_set_id": "simple", "eval_cases": [{"eval_id": "light", "conversation": [TURN]}]}
    for name, text in {**FILES, "home_agent/simple.evalset.json": json.dumps(evalset)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    adopting, playing = commands_of_tool("adk")

    output = carry_out(commands, [adopting, playing], tmp_path)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert "1 passed" in output
    assert playing in (tmp_path / ".github/workflows/evals.yml").read_text()
    assert "google-adk[eval]" not in (tmp_path / "requirements.txt").read_text()
    assert "from evaldesk import AgentEvaluator" in (tmp_path / "tests/test_home.py").read_text()
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "1 passed" in tested.stdout
