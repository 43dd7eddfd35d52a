"""Benchmarks in the manner of OpenHands: `process_instance`, its hooks, its options and its documentation."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.openhands.test_model_profiles import CONFIG

from evaldesk import paths
from evaldesk.agents.own.tables import declared_refs
from evaldesk.engine import play_trial
from evaldesk.engine.worker.player import load_ready
from evaldesk.errors import AgentError, UsageError
from evaldesk.integrations.openhands.benchmark import encode_options
from evaldesk.model import AgentRef, Case, Event, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.transcript import reported_values

pytestmark = pytest.mark.anyio

BENCH = '''
def setup(workspace, case):
    print("set up", case.instance_id)
    workspace.write("given.txt", "one\\n")

def teardown(workspace, case):
    print("torn down", case["instance_id"])
    return {"files": sorted(path.name for path in workspace.path.iterdir())}

def process_instance(instance, metadata, reset_logger=True):
    """Solves one instance."""
    assert reset_logger is False
    assert instance.get("question") == instance.question
    metadata.log(f"trial {metadata.trial_index} of {metadata.max_iterations}")
    if instance.question == "break":
        raise ValueError("broken")
    ran = metadata.workspace.run("cat given.txt; pwd; echo two > made.txt; echo changed > given.txt")
    return {
        "instance_id": instance.instance_id,
        "test_result": {"success": instance.question == "ok", "cwd": ran.output.splitlines()[-1]},
        "history": [
            [{"id": 1, "action": "run", "args": {"command": "ls"}, "source": "agent"},
             {"id": 2, "observation": "run", "content": "given.txt", "cause": 1}],
            {"id": 3, "action": "finish", "args": {"final_thought": "done"}, "source": "agent"},
        ],
        "metrics": {"accumulated_cost": 0.0, "accumulated_token_usage": {
            "model": "small", "prompt_tokens": 10, "completion_tokens": 2}},
        "error": None,
    }
'''


def row(question: str = "ok", **columns: Any) -> Case:
    return Case("django__1", (Turn(question),), extra=columns)


def spec(case: Case, **fields: Any) -> TrialSpec:
    return TrialSpec(1, 0, 2, case, AgentRef("bench", "some_agent.agent:process_instance"), limits=Limits(30), **fields)


def log_of(result: TrialResult, author: str) -> list[Event]:
    return [event for turn in result.transcript.turns for event in turn.events if event.author == author]


async def test_changes_in_the_folder_of_an_instance_are_recorded_with_its_isolation(loaded: Any) -> None:
    agent = loaded(BENCH, "process_instance")

    result = await play_trial(agent, spec(row(files={"old.txt": "old\n"})))

    assert result.status == "finished", result.error
    [turn] = result.transcript.turns
    assert [(call.name, call.args) for call in turn.tool_calls] == [
        ("run", {"command": "ls"}),
        ("finish", {"final_thought": "done"}),
    ]
    assert turn.answer == "done"
    test_result = reported_values(result.transcript)["test_result"]
    assert isinstance(test_result, dict)
    assert test_result["success"] is True
    assert test_result["files"] == ["given.txt", "made.txt", "old.txt"]
    assert not Path(str(test_result["cwd"])).exists()
    assert [(usage.model, usage.tokens_in, usage.cost) for usage in result.usages] == [("small", 10, None)]
    assert [event.text for event in log_of(result, "some_agent") if event.kind == "log"] == ["trial 2 of 30"]
    [event] = log_of(result, "workspace")
    assert "runs as you, without isolation" in event.text
    kept = event.result
    assert isinstance(kept, dict)
    assert kept["changed"] == ["given.txt", "made.txt"]
    assert "-one\n+changed\n" in str(kept["diff"])
    assert "+++ b/made.txt" in str(kept["diff"])


async def test_hooks_are_called_after_a_failed_instance(loaded: Any, capsys: Any) -> None:
    agent = loaded(BENCH, "process_instance")

    result = await play_trial(agent, spec(row("break")))

    assert (result.status, result.error and result.error.kind) == ("errored", "agent_raised")
    assert result.error
    assert result.error.message == "ValueError: broken"
    assert re.findall(r'File ".*some_agent/agent.py"', result.error.trace)
    assert str(paths.PACKAGE) not in result.error.trace
    assert capsys.readouterr().out == "set up django__1\ntorn down django__1\n"
    assert log_of(result, "workspace")


async def test_an_async_function_with_two_parameters_of_any_name(loaded: Any) -> None:
    source = (
        "async def run(instance, meta):\n    return {'test_result': {'n': instance.n, 'llm': meta.llm_config.model}}\n"
    )

    result = await play_trial(loaded(source, "run"), spec(row(n=3), model="openai/small"))

    assert reported_values(result.transcript) == {"test_result": {"n": 3, "llm": "openai/small"}}
    assert json.loads(result.transcript.turns[0].answer) == {"n": 3, "llm": "openai/small"}


async def test_the_agents_table_names_profile_and_bounds(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KEY", "k")
    (tmp_path / "config.toml").write_text(CONFIG)
    source = (
        "def process_instance(instance, metadata):\n"
        "    return {'test_result': {'model': metadata.llm_config.model, 'n': metadata.max_iterations}}\n"
    )
    declared = encode_options(llm="eval_gpt4", config_file=str(tmp_path / "config.toml"), max_iterations=7)

    result = await play_trial(loaded(source, "process_instance", kind="benchmark", declared=declared), spec(row()))

    assert reported_values(result.transcript) == {"test_result": {"model": "openai/gpt-4o", "n": 7}}


def test_a_profile_alone_imports_no_litellm(loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = encode_options(llm="eval_gpt4", config_file=str(tmp_path / "config.toml"))
    agent = loaded(BENCH, "process_instance", kind="benchmark", declared=declared)
    monkeypatch.setattr("evaldesk.llm.client.open_litellm", lambda: pytest.fail("LiteLLM is imported"))

    assert load_ready(agent.ref).describe().model == "eval_gpt4"


def test_an_unknown_option_of_the_table_is_named(loaded: Any) -> None:
    with pytest.raises(AgentError, match="iterations"):
        loaded("def process_instance(instance, metadata): ...", "process_instance", declared='{"iterations": 3}')
    with pytest.raises(UsageError, match="iterations"):
        encode_options(iterations=3)


async def test_the_documented_benchmark_runs_as_it_is_declared(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text("utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (table,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("BENCH_KEY", "k")
    (tmp_path / "config.toml").write_text(CONFIG)
    tables = tomllib.loads(table)["agents"]

    [ref] = declared_refs(tables, tmp_path)
    agent = loaded(source, "process_instance", kind=ref.kind, declared=ref.declared)
    result = await play_trial(agent, spec(row(answer="2")))

    assert (ref.id, ref.kind, ref.target) == ("bench", "benchmark", "bench:process_instance")
    assert reported_values(result.transcript) == {"test_result": {"success": True, "files": ["sum.py"]}}


def test_a_declared_benchmark_with_a_wrong_option_is_refused_by_place(tmp_path: Path) -> None:
    table = {"target": "bench:process_instance", "kind": "benchmark", "iterations": 3}

    with pytest.raises(UsageError, match=r"\[agents.bench\].*iterations"):
        declared_refs({"bench": table}, tmp_path)
