"""Benchmarks in the manner of OpenHands: `process_instance`, its workspace and its output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents.benchmark import declared_options
from evaldesk.agents.benchmark_output import output_events
from evaldesk.agents.declared import declared_refs
from evaldesk.agents.llm_profiles import read_profile
from evaldesk.agents.workspaces import open_workspace, shortened
from evaldesk.engine import play_trial
from evaldesk.engine.attempt import Attempt
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentRef, Case, Event, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.reports import reported_values

pytestmark = pytest.mark.anyio

BENCH = '''
import asyncio
import json

CALLS = []

def setup(workspace, case):
    CALLS.append(("setup", case.instance_id))
    workspace.write("given.txt", "one\\n")

def teardown(workspace, case):
    CALLS.append(("teardown", case["instance_id"]))
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

SLOW = """
import threading

STARTED = threading.Event()
SEEN = []

def process_instance(instance, metadata):
    ran = metadata.workspace.run("sleep 600 > /dev/null 2>&1 & echo $!")
    SEEN.extend([metadata.workspace.path, int(ran.output)])
    STARTED.set()
    return {"test_result": {"exit_code": metadata.workspace.run("sleep 600", timeout_s=600).exit_code}}
"""

CONFIG = """
[core]
workspace_base = "."

[llm]
model = "openai/base"
temperature = 0.1
api_key = "${BENCH_KEY}"

[llm.eval_gpt4]
model = "openai/gpt-4o"
caching_prompt = true
"""


def row(question: str = "ok", **columns: Any) -> Case:
    return Case("django__1", (Turn(question),), extra=columns)


def spec(case: Case, **fields: Any) -> TrialSpec:
    return TrialSpec(1, 0, 2, case, AgentRef("bench", "some_agent.agent:process_instance"), limits=Limits(30), **fields)


def log_of(result: TrialResult, author: str) -> list[Event]:
    return [event for turn in result.transcript.turns for event in turn.events if event.author == author]


async def test_an_instance_is_processed_in_a_folder_of_its_own(loaded: Any) -> None:
    agent = loaded(BENCH, "process_instance")

    result = await play_trial(agent, spec(row()))

    assert result.status == "finished", result.error
    [turn] = result.transcript.turns
    assert [(call.name, call.args) for call in turn.tool_calls] == [("run", {"command": "ls"})]
    assert turn.answer == "done"
    test_result = reported_values(result.transcript)["test_result"]
    assert isinstance(test_result, dict)
    assert test_result["success"] is True
    assert test_result["files"] == ["given.txt", "made.txt"]
    assert not Path(str(test_result["cwd"])).exists()
    assert [(usage.model, usage.tokens_in, usage.cost) for usage in result.usages] == [("small", 10, None)]


async def test_changed_files_and_their_diff_are_kept_and_labelled(loaded: Any) -> None:
    result = await play_trial(loaded(BENCH, "process_instance"), spec(row(files={"old.txt": "old\n"})))

    [event] = log_of(result, "workspace")
    assert "runs as you, without isolation" in event.text
    kept = event.result
    assert isinstance(kept, dict)
    assert kept["changed"] == ["given.txt", "made.txt"]
    assert "-one\n+changed\n" in str(kept["diff"])
    assert "+++ b/made.txt" in str(kept["diff"])


async def test_hooks_are_called_also_when_the_instance_breaks(loaded: Any) -> None:
    agent = loaded(BENCH, "process_instance")

    result = await play_trial(agent, spec(row("break")))

    assert result.status == "errored"
    assert result.error
    assert "ValueError: broken" in result.error.message
    assert sys.modules[agent.function.__module__].CALLS == [("setup", "django__1"), ("teardown", "django__1")]
    assert log_of(result, "workspace")


async def test_an_async_function_with_two_parameters_of_any_name(loaded: Any) -> None:
    source = (
        "async def run(instance, meta):\n    return {'test_result': {'n': instance.n, 'llm': meta.llm_config.model}}\n"
    )

    result = await play_trial(loaded(source, "run"), spec(row(n=3), model="openai/small"))

    assert reported_values(result.transcript) == {"test_result": {"n": 3, "llm": "openai/small"}}
    assert json.loads(result.transcript.turns[0].answer) == {"n": 3, "llm": "openai/small"}


async def test_two_trials_at_once_have_two_folders(loaded: Any) -> None:
    agent = loaded(BENCH, "process_instance")

    results = await asyncio.gather(*(play_trial(agent, spec(row())) for _ in range(2)))

    folders = {str(reported_values(result.transcript)["test_result"]["cwd"]) for result in results}  # type: ignore[call-overload, index]
    assert len(folders) == 2


async def test_a_cancelled_trial_leaves_no_process_and_no_folder(loaded: Any) -> None:
    agent = loaded(SLOW, "process_instance")
    attempt = Attempt(clock=time.monotonic)
    task = asyncio.create_task(play_trial(agent, spec(row()), attempt=attempt))
    module = sys.modules[agent.function.__module__]
    assert await asyncio.to_thread(module.STARTED.wait, 20)
    folder, pid = module.SEEN
    process = os.pidfd_open(pid)

    attempt.stop = "cancelled"
    task.cancel()
    result = await task

    assert result.status == "cancelled"
    assert not folder.exists()
    assert select.select([process], [], [], 20)[0], "the process it left behind still runs"
    os.close(process)


@pytest.mark.parametrize(
    ("returned", "said"), [("None", "EvalOutput"), ("{'instance_id': 'x'}", "no test_result; it has: instance_id")]
)
async def test_what_is_no_eval_output_is_said(loaded: Any, returned: str, said: str) -> None:
    agent = loaded(f"def process_instance(instance, metadata):\n    return {returned}\n", "process_instance")

    result = await play_trial(agent, spec(row()))

    assert result.error
    assert said in result.error.message


def test_the_rows_of_openhands_become_events(shared: Path) -> None:
    lines = (shared / "data/openhands/v0_evaloutput.jsonl").read_text("utf-8").splitlines()

    trials = [list(output_events(json.loads(line), {}, "agent")) for line in lines]

    for events in trials:
        calls = [event.call for event in events if event.kind == "tool_call"]
        answered = [event.call for event in events if event.kind == "tool_result"]
        assert calls
        assert set(map(id, answered)) <= set(map(id, calls))
        assert sum(event.usage.tokens_in for event in events if event.usage) > 0
    errors = [event.error.kind for events in trials for event in events if event.error]
    assert errors == ["max_iterations"]


def test_an_observation_without_a_cause_stays_as_a_remark() -> None:
    history = [{"observation": "error", "content": "lost"}, {"observation": "run", "content": "of nobody"}]

    events = list(output_events({"test_result": {}, "history": history}, {}, "agent"))

    assert [event.text for event in events if event.kind == "log" and event.author == "agent"] == ["lost"]


@pytest.mark.parametrize("name", ["eval_gpt4", "llm.eval_gpt4", "[llm.eval_gpt4]", " [llm.eval_gpt4] "])
def test_a_profile_is_found_by_each_of_its_names_and_inherits(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    profile = read_profile(tmp_path / "config.toml", name, {"BENCH_KEY": "k-secret"})

    assert (profile.model, profile.temperature, profile.caching_prompt) == ("openai/gpt-4o", 0.1, True)
    assert profile.api_key
    assert profile.api_key.get_secret_value() == "k-secret"
    assert "k-secret" not in repr(profile)


def test_llm_alone_is_the_base(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    assert read_profile(tmp_path / "config.toml", "llm", {"BENCH_KEY": "k"}).model == "openai/base"


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        ("gpt5", {"BENCH_KEY": "k"}, r"no group \[llm.gpt5\].*there are: \[llm\], \[llm.eval_gpt4\]"),
        ("eval_gpt4", {}, "the environment has no BENCH_KEY"),
    ],
)
def test_a_wrong_profile_is_answered_with_the_groups_there_are(
    tmp_path: Path, name: str, environment: dict[str, str], said: str
) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    with pytest.raises(UsageError, match=said):
        read_profile(tmp_path / "config.toml", name, environment)


async def test_the_agents_table_names_profile_and_bounds(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KEY", "k")
    (tmp_path / "config.toml").write_text(CONFIG)
    source = (
        "def process_instance(instance, metadata):\n"
        "    return {'test_result': {'model': metadata.llm_config.model, 'n': metadata.max_iterations}}\n"
    )
    declared = declared_options(llm="eval_gpt4", config_file=str(tmp_path / "config.toml"), max_iterations=7)

    result = await play_trial(loaded(source, "process_instance", kind="benchmark", declared=declared), spec(row()))

    assert reported_values(result.transcript) == {"test_result": {"model": "openai/gpt-4o", "n": 7}}


def test_an_unknown_option_of_the_table_is_named(loaded: Any) -> None:
    with pytest.raises(AgentError, match="iterations"):
        loaded("def process_instance(instance, metadata): ...", "process_instance", declared='{"iterations": 3}')
    with pytest.raises(UsageError, match="iterations"):
        declared_options(iterations=3)


def test_a_command_has_an_environment_without_keys_and_ends_at_its_limit() -> None:
    workspace = open_workspace({"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-1", "HOME": "/"})
    try:
        shown = workspace.run("env")
        slow = workspace.run(["sleep", "600"], timeout_s=0.05)
        given = workspace.run("cat", input="hello", env={"EXTRA": "1"})
    finally:
        workspace.close()

    assert "OPENAI_API_KEY" not in shown.output
    assert (slow.exit_code, slow.is_timeout) == (-1, True)
    assert given.output == "hello"
    with pytest.raises(UsageError, match="has ended"):
        workspace.run("true")


def test_a_file_may_not_lie_outside_of_the_workspace(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "a.txt").write_text("a")
    workspace = open_workspace({}, seed)
    try:
        assert (workspace.path / "a.txt").read_text() == "a"
        with pytest.raises(UsageError, match="outside"):
            workspace.write("../b.txt", "b")
    finally:
        workspace.close()
    with pytest.raises(UsageError, match="no folder"):
        open_workspace({}, tmp_path / "absent")


def test_long_output_loses_its_middle() -> None:
    text = shortened("a" * 10 + "b" * 100 + "c" * 10, 20)

    assert text.startswith("a" * 10)
    assert text.endswith("c" * 10)
    assert "100 characters left out" in text


async def test_the_documented_benchmark_runs_as_it_is_declared(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text("utf-8")
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


def test_a_command_does_not_outlive_a_process_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from evaldesk.agents.workspaces import open_workspace\n"
        "workspace = open_workspace(os.environ)\n"
        "ran = workspace.run('sleep 600 > /dev/null 2>&1 & echo $!')\n"
        "print(ran.output.strip(), flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = os.pidfd_open(int(parent.stdout.readline()))

    parent.kill()
    parent.wait()

    assert select.select([child], [], [], 20)[0], "the command still runs"
    os.close(child)
    parent.stdout.close()
