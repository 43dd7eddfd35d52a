"""`adk eval` as a process and `evaldesk eval` beside it: one agent, one scripted model, the same eval sets.

The sets are those of ADK's own repositories beside this checkout, and some that chance makes. A flat test file, which
`adk eval` cannot read, is put into the list that it reads. Sets with a simulated user need a model and are left out.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without

from evaldesk.desk.other_tools import leaves_open
from evaldesk.formats import load_evalset
from evaldesk.model import Case, Expected

pytestmark = pytest.mark.long

skip_without("google.adk")

SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
VERTEX = ("agentplatform", "vertexai")
"""Imported by `adk eval` for metrics of Vertex AI, which no test here asks for; 900 MB of the extra `eval`."""
METRICS = ("tool_trajectory_avg_score", "response_match_score")
VERDICTS = {1: "passed", 2: "failed", 3: "unscored"}
N_OF_SAMPLES, N_BY_CHANCE, N_IN_SHORT = 3, 110, 21
AGENT = '''
"""Answers from script.json, by the messages of the user so far."""

import json
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import BaseTool
from google.genai import types

SCRIPT = json.loads(Path(__file__).with_name("script.json").read_text("utf-8"))


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        asked, n_results = [], 0
        for content in llm_request.contents:
            for part in content.parts or []:
                if part.function_response:
                    n_results += 1
                elif content.role == "user" and part.text is not None:
                    asked.append(part.text)
                    n_results = 0
        calls, answer = SCRIPT["turns"][json.dumps(asked)]
        parts = [types.Part(text=answer)]
        if n_results < len(calls):
            parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class AnyTool(BaseTool):
    def _get_declaration(self):
        return types.FunctionDeclaration(name=self.name, parameters=types.Schema(type="OBJECT"))

    async def run_async(self, *, args, tool_context):
        return {"result": "ok"}


root_agent = LlmAgent(
    name="scripted",
    model=Scripted(model="scripted"),
    tools=[AnyTool(name=name, description="Does nothing.") for name in SCRIPT["tools"]],
)
'''


@dataclass(frozen=True)
class Judged:
    """What a tool gives a case: its verdict, and for each metric the mean and the score of each turn."""

    verdict: str
    scores: Mapping[str, tuple[float | None, Sequence[float | None]]]


@dataclass(frozen=True)
class Beside:
    """The answers of both, and the lines that Evaldesk prints on its own verdicts."""

    adk: Mapping[str, Judged]
    as_adk: Mapping[str, Judged]
    ours: Mapping[str, Judged]
    cases: Mapping[str, Case]
    printed: str
    exit_codes: tuple[int, int]


def play_both(folder: Path, n_by_chance: int) -> Beside:
    """Write the eval sets and the agent, and run `adk eval`, `evaldesk eval --compat adk` and `evaldesk eval`."""
    sets = folder / "sets"
    sets.mkdir()
    new, old = _cases_of_samples()
    chance = random.Random("cases")
    new += [_case_by_chance(chance, f"chance {number}") for number in range(n_by_chance)]
    (sets / "new.evalset.json").write_text(json.dumps({"eval_set_id": "new", "eval_cases": new}), "utf-8")
    (sets / "old.evalset.json").write_text(json.dumps(old), "utf-8")
    files = [f"{name}.evalset.json" for name, found in (("new", new), ("old", old)) if found]
    cases = {case.id: case for file in files for case in load_evalset(sets / file).cases}
    assert len(cases) == len(new) + len(old)
    _write_agent(folder, cases)
    return _played(folder, files, cases)


def _cases_of_samples() -> tuple[list[Any], list[Any]]:
    """The cases of our samples of eval sets, in the new schema of ADK and in the old; each named after its file.

    One process reads them all: `adk eval` and an agent of ADK take seconds to start.
    """
    new: list[Any] = []
    old: list[Any] = []
    for path in sorted(SAMPLES.glob("adk*.json")):
        value = json.loads(path.read_text("utf-8"))
        if isinstance(value, list) and value and "query" in value[0]:
            old.append({"name": path.name, "data": value})
        elif isinstance(value, list) and value and "data" in value[0]:
            old += [{**case, "name": f"{path.name}/{case['name']}"} for case in value]
        elif isinstance(value, dict):
            cases = value.get("eval_cases", ())
            named = (
                {**case, "eval_id": f"{path.name}/{case['eval_id']}"} for case in cases if case.get("conversation")
            )
            new += [_with_app(case) for case in named]
    return new, old


def _with_app(case: dict[str, Any]) -> dict[str, Any]:
    """`adk eval` breaks off a session whose app has no name: "app_name is required"."""
    session = case.get("session_input")
    return {**case, "session_input": {**session, "app_name": session["app_name"] or "scripted"}} if session else case


def _case_by_chance(chance: random.Random, case_id: str) -> dict[str, Any]:
    turns = []
    for at in range(chance.randint(1, 3)):
        turn: dict[str, Any] = {"user_content": _content("user", f"{chance.random()} of turn {at}")}
        if chance.random() < 0.8:
            turn["final_response"] = _content(
                "model", chance.choice(["yes", "It is four.", "你好 world", "!?", "a b c d"])
            )
        if chance.random() < 0.8:
            calls = chance.choices(["roll_die", "check_prime", "look_up"], k=chance.randint(0, 3))
            args = [chance.choice([{}, {"x": 1}, {"x": [True, None, "七"]}]) for _ in calls]
            turn["intermediate_data"] = {
                "tool_uses": [{"name": n, "args": a} for n, a in zip(calls, args, strict=True)]
            }
        turns.append(turn)
    return {"eval_id": case_id, "conversation": turns}


def _content(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def _write_agent(folder: Path, cases: Mapping[str, Case]) -> None:
    """An agent that is right, wrong or silent in each turn, and calls too much or too little."""
    chance = random.Random("agent")
    turns: dict[str, Any] = {}
    for case in cases.values():
        asked: list[str] = []
        for turn in case.turns:
            asked.append(turn.query)
            turns.setdefault(json.dumps(asked), _plan(turn.expected, chance))
    tools = sorted({call[0] for calls, _ in turns.values() for call in calls})
    agent = folder / "scripted"
    agent.mkdir()
    (agent / "__init__.py").write_text("from . import agent\n")
    (agent / "agent.py").write_text(AGENT)
    (agent / "script.json").write_text(json.dumps({"tools": tools, "turns": turns}), "utf-8")
    criteria = {METRICS[0]: {"threshold": 0.6, "match_type": "IN_ORDER"}, METRICS[1]: 0.5}
    (folder / "criteria.json").write_text(json.dumps({"criteria": criteria}))


def _plan(expected: Expected, chance: random.Random) -> tuple[list[Any], str]:
    right = expected.reference or "nothing"
    calls = [[call.name, dict(call.args)] for call in expected.tool_calls or ()]
    answer = chance.choice([right, right, right, "something else", right[: len(right) // 2 + 1]])
    return chance.choice([calls, calls, calls, calls[:-1], [*calls, ["extra", {"x": 1}]], calls[::-1]]), answer


def _played(folder: Path, files: Sequence[str], cases: Mapping[str, Case]) -> Beside:
    shared = ["eval", "../scripted", *files, "--config_file_path", "../criteria.json"]
    adk = _run(folder, ["-m", "google.adk.cli", *shared], PYTHONPATH=os.fspath(_stubs(folder)))
    own = ["-m", "evaldesk", *shared, "--workspace", "..", "--concurrency", "1"]
    as_adk = _run(folder, [*own, "-o", "../as_adk.scores.csv", "-o", "../as_adk.csv", "--compat", "adk"])
    ours = _run(folder, [*own, "-o", "../ours.scores.csv", "-o", "../ours.csv"])
    assert ours.returncode in (0, 1, 3), ours.stdout + ours.stderr
    return Beside(
        adk=_results_of_adk(folder, adk),
        as_adk=_results(folder, "as_adk", as_adk),
        ours=_results(folder, "ours", ours),
        cases=cases,
        printed=ours.stdout,
        exit_codes=(adk.returncode, as_adk.returncode),
    )


def _means(judged: Judged) -> dict[str, float | None]:
    return {metric: mean for metric, (mean, _) in judged.scores.items()}


def _run(folder: Path, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder / "sets",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _stubs(folder: Path) -> Path:
    """A folder with empty modules in place of those of Vertex AI that are not installed."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name in VERTEX:
        if find_spec(name) is None:
            (stubs / f"{name}.py").write_text("")
    return stubs


def _results_of_adk(folder: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Judged]:
    files = sorted((folder / "scripted" / ".adk" / "eval_history").glob("*.evalset_result.json"))
    assert files, done.stdout + done.stderr
    found = {}
    for result in (case for file in files for case in json.loads(file.read_text("utf-8"))["eval_case_results"]):
        turns = [turn["eval_metric_results"] for turn in result["eval_metric_result_per_invocation"]]
        scores = {
            each["metric_name"]: (
                each["score"],
                [one["score"] for turn in turns for one in turn if one["metric_name"] == each["metric_name"]],
            )
            for each in result["overall_eval_metric_results"]
            if each["metric_name"] in METRICS
        }
        found[result["eval_id"]] = Judged(VERDICTS[result["final_eval_status"]], scores)
    return found


def _results(folder: Path, name: str, done: subprocess.CompletedProcess[str]) -> dict[str, Judged]:
    path = folder / f"{name}.scores.csv"
    assert path.is_file(), done.stdout + done.stderr
    means: dict[str, dict[str, Any]] = {}
    for row in _rows(path):
        value = float(row["value"]) if row["value"] else None
        mean = means.setdefault(row["case_id"], {}).setdefault(row["metric"], [None, []])
        if row["turn"]:
            mean[1].append(value)
        else:
            mean[0] = value
    return {
        row["case_id"]: Judged(
            row["verdict"], {name: (mean, turns) for name, (mean, turns) in means[row["case_id"]].items()}
        )
        for row in _rows(folder / f"{name}.csv")
    }


_DIFFERENCE = re.compile(r"(?:(?P<n>\d+) cases|.+?): (?P<ours>passed|failed|errored|unscored) here, .+")
"""The line on one case, or on several with the names of the first ten at its end."""


def _is_named(name: str, line: str) -> bool:
    return line.startswith(f"{name}: ") or re.search(rf"[(, ]{re.escape(name)}[,)]", line) is not None


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "n_by_chance",
    [pytest.param(N_BY_CHANCE, marks=pytest.mark.torture, id="all"), pytest.param(N_IN_SHORT, id="short")],
)
def test_adk_eval_and_evaldesk_eval_give_the_same_verdicts_and_numbers(tmp_path: Path, n_by_chance: int) -> None:
    beside = play_both(tmp_path, n_by_chance)
    names = set(beside.cases)
    is_open = {name for name, case in beside.cases.items() if any(leaves_open(turn.expected) for turn in case.turns)}
    others = {name for name in names if beside.ours[name].verdict != beside.adk[name].verdict}
    numbers = {name for name in names if beside.ours[name].scores != beside.adk[name].scores}
    said = [found for line in beside.printed.splitlines() if (found := _DIFFERENCE.match(line))]
    n_said = sum(int(found["n"] or 1) for found in said)
    named = {(name, found["ours"]) for found in said for name in names if _is_named(name, found[0])}

    assert beside.as_adk == beside.adk
    assert beside.exit_codes == (1, 1)
    assert {judged.verdict for judged in beside.adk.values()} == {"passed", "failed"}
    assert n_said == len(others)
    assert named <= {(name, beside.ours[name].verdict) for name in others}
    assert len(named) == n_said or "more)" in beside.printed
    assert numbers <= is_open
    assert sum(map(int, re.findall(r"(\d+) cases? ha\w+ the same verdict and other scores by", beside.printed))) == len(
        {name for name in numbers - others if _means(beside.ours[name]) != _means(beside.adk[name])}
    )
    assert len(names) == N_OF_SAMPLES + n_by_chance
