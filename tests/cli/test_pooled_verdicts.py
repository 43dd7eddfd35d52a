"""`--compat adk-pooled`: the trials of a case are judged together, as ADK's `AgentEvaluator` judges `num_runs`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from tests.agents.installed import skip_without

from evaldesk import evaluate
from evaldesk.desk.runs.gates.conclusion import POOLED, RunNumbers, conclude
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model import Gates

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

VERTEX = ("agentplatform", "vertexai")
"""Imported by ADK's evaluator for metrics of Vertex AI, which no test here asks for."""
CRITERION = ("--criterion", "response_match_score=0.5")
POOL = ("--compat", "adk-pooled")
WORDS = {"one": "one", "flaky": "flaky", "two": "other", "raise": "x"}


def _gate(place: CommandFolder, run_id: int) -> Any:
    with place.store() as store:
        runs = StoredRuns(store.runs)
        conclusion = runs.conclusion(runs.summary(run_id))
    [gate] = [each for each in conclusion.gates if each.name == POOLED]
    return conclusion, gate


def test_a_case_passes_by_its_mean_though_a_trial_failed(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "flaky": "flaky"})

    alone = place.run("eval", place.agent, path, *CRITERION, "--n", 2, "--compat", "adk", "--concurrency", 1)
    pooled = place.run("eval", place.agent, path, *CRITERION, "--n", 2, *POOL, "--concurrency", 1)

    assert (alone.exit_code, pooled.exit_code) == (1, 0), pooled.output
    conclusion, gate = _gate(place, 2)
    assert gate.answer == "held"
    assert conclusion.counts.failed == 1
    assert "Judged as `AgentEvaluator` of ADK does." in pooled.output


def test_a_mean_below_the_threshold_and_a_broken_run_fail_their_cases_by_name(place: CommandFolder) -> None:
    path = place.evalset("first", WORDS)

    done = place.run(
        "eval",
        place.agent,
        path,
        *CRITERION,
        "--n",
        2,
        *POOL,
        "--junit",
        place.folder / "j.xml",
        "-o",
        place.folder / "r.json",
    )

    _, gate = _gate(place, 1)
    assert done.exit_code == 1
    assert gate.names == ("case_3", "case_4")
    assert "2 of 4 cases reached the thresholds in the mean over all trials" in gate.sentence
    assert "case_3 (response_match_score: the mean 0 over 2 turns of 2 runs does not reach 0.5)" in gate.sentence
    assert "case_4 (2 of 2 runs broke off before they could be judged)" in gate.sentence
    found = json.loads((place.folder / "r.json").read_text())
    assert found["gates"][0] == {
        "name": POOLED,
        "answer": "failed",
        "is_held": False,
        "sentence": gate.sentence,
    }
    assert _failed_of(place.folder / "j.xml") == ["case_3", "case_4"]


@pytest.mark.parametrize(
    "asked",
    [
        ("--min-pass-rate", "0.5"),
        ("--min-case-pass-rate", "0.5"),
        ("--pass-at", "1=0.5"),
        ("--pass-hat", "1=0.5"),
        ("--min-scored", "1"),
        ("--max-error-rate", "0.5"),
        ("--max-unscored-rate", "0.5"),
        ("--stop-when-decided", "exact"),
        ("--undecided", "fail"),
        ("--shard", "1/2"),
        ("--pass-threshold", "0.5"),
    ],
    ids=" ".join,
)
def test_what_asks_for_verdicts_of_single_trials_is_refused(place: CommandFolder, asked: tuple[str, ...]) -> None:
    path = place.evalset("first", {"one": "one", "two": "two"})

    done = place.run("eval", place.agent, path, *CRITERION, *POOL, *asked)

    assert isinstance(done.exception, UsageError), done.output
    assert "adk-pooled judges all trials of a case together" in str(done.exception)


def test_a_case_is_open_until_all_its_trials_are_played(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "flaky": "flaky"})
    place.run("eval", place.agent, path, *CRITERION, "--n", 2, *POOL)

    with place.store() as store:
        [first, second] = StoredRuns(store.runs).case_numbers(store.runs.summary(1))

    unplayed = replace(first, counts=replace(first.counts, planned=3))
    gates = Gates().as_tool("adk-pooled")
    assert [each.pooled_failure for each in (first, second)] == ["", ""]
    assert conclude(gates, RunNumbers.of_cases([first, second])).outcome == "passed"
    assert conclude(gates, RunNumbers.of_cases([unplayed, second])).outcome == "undecided"
    assert conclude(gates, RunNumbers.of_cases([replace(first, pooled_failure=None), second])).outcome == "undecided"


def test_a_re_score_judges_the_stored_trials_together(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "flaky": "flaky"})
    place.run("eval", place.agent, path, *CRITERION, "--n", 2, *POOL, "--concurrency", 1)
    (place.folder / "higher.json").write_text('{"criteria": {"response_match_score": 0.9}}')

    again = place.run("run", "rescore", 1, "--config-file-path", place.folder / "higher.json")

    assert again.exit_code == 1, again.output
    assert _gate(place, 2)[1].names == ("case_2",)
    assert _gate(place, 1)[1].answer == "held"


def test_python_answers_as_the_command_does(place: CommandFolder) -> None:
    def agent(message: str, state: dict[str, Any]) -> str:
        state["n"] = 1
        return next(answers)

    answers = iter(["flaky", "no", "no", "no"])
    path = place.evalset("first", {"flaky": "flaky", "other": "other"})
    options: dict[str, Any] = {"criteria": {"response_match_score": 0.5}, "n": 2, "concurrency": 1}

    result = evaluate(agent, path, **options, compat="adk-pooled")

    assert result.conclusion.outcome == "failed"
    assert [gate.names for gate in result.conclusion.gates] == [("case_2",)]
    with pytest.raises(UsageError, match="min_pass_rate= asks for the verdicts of single trials"):
        evaluate(agent, path, **options, compat="adk-pooled", min_pass_rate=0.5)
    with pytest.raises(UsageError, match="at thresholds of its metrics"):
        evaluate(agent, path, **options, compat="adk-pooled", pass_threshold=0.5)


ADK_AGENT = '''
"""Each answer of a script in turn, by the number of times that the message came."""

import json
from collections import Counter
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

SCRIPT = json.loads(Path(__file__).with_name("script.json").read_text("utf-8"))
seen = Counter()


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        message = [p.text for c in llm_request.contents for p in c.parts if c.role == "user" and p.text][-1]
        answers = SCRIPT[message]
        answer = answers[seen[message] % len(answers)]
        seen[message] += 1
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=answer)]))


root_agent = LlmAgent(name="scripted", model=Scripted(model="scripted"))
'''
PLAY = r"""
import asyncio, json, sys
from google.adk.evaluation.agent_evaluator import AgentEvaluator
from google.adk.evaluation.eval_config import EvalConfig
from google.adk.evaluation.eval_set import EvalSet

n, file = int(sys.argv[1]), sys.argv[2]
cases = json.load(open(file))["eval_cases"]
config = EvalConfig(criteria={"response_match_score": float(sys.argv[3])})
failed = []
for case in cases:
    one = EvalSet.model_validate({"eval_set_id": "set", "eval_cases": [case]})
    try:
        asyncio.run(
            AgentEvaluator.evaluate_eval_set(
                "scripted", one, eval_config=config, num_runs=n, print_detailed_results=False
            )
        )
    except AssertionError:
        failed.append(case["eval_id"])
print("\nFAILED", json.dumps(failed))
"""


@pytest.mark.long
def test_adks_own_evaluator_and_the_pooled_verdicts_fail_the_same_cases(tmp_path: Path) -> None:
    skip_without("google.adk")
    words = ["red", "red blue", "red blue green", "none"]
    script = {
        f"case {number}": [words[number % 4], words[number // 4 % 4], words[number // 16]] for number in range(0, 64, 3)
    }
    agent = tmp_path / "scripted"
    agent.mkdir()
    (agent / "__init__.py").write_text("from . import agent\n")
    (agent / "agent.py").write_text(ADK_AGENT)
    (agent / "script.json").write_text(json.dumps(script))
    cases = [
        {
            "eval_id": name.replace(" ", "_"),
            "conversation": [
                {
                    "invocation_id": name,
                    "user_content": {"role": "user", "parts": [{"text": name}]},
                    "final_response": {"role": "model", "parts": [{"text": "red blue green"}]},
                }
            ],
        }
        for name in script
    ]
    (tmp_path / "set.evalset.json").write_text(json.dumps({"eval_set_id": "set", "eval_cases": cases}))
    (tmp_path / "criteria.json").write_text(json.dumps({"criteria": {"response_match_score": 0.6}}))
    own = ("eval", "scripted", "set.evalset.json", "--config_file_path", "criteria.json", "--workspace", ".")

    theirs = _run(tmp_path, "-c", PLAY, "3", "set.evalset.json", "0.6")
    ours = _run(tmp_path, "-m", "evaldesk", *own, "--n", "3", "--concurrency", "1", *POOL, "--junit", "j.xml")

    line = next((each for each in theirs.stdout.splitlines() if each.startswith("FAILED ")), theirs.stderr)
    failed = json.loads(line.removeprefix("FAILED "))
    assert ours.returncode == 1, ours.stderr
    assert _failed_of(tmp_path / "j.xml") == failed
    assert 3 < len(failed) < len(cases) - 3


def _failed_of(junit: Path) -> list[str]:
    cases = ET.fromstring(junit.read_text()).iterfind(".//testcase")  # noqa: S314 - our own file
    return [
        each.attrib["name"] for each in cases if each.find("failure") is not None and "gates" not in str(each.attrib)
    ]


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The command, with empty modules in place of those of Vertex AI that are not installed."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    for name in VERTEX:
        if find_spec(name) is None:
            (stubs / f"{name}.py").write_text("")
    return subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(stubs)))},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
