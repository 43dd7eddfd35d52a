"""The two documents of Osmosis: their commands, functions, files and tables are run as they are printed."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from typing import Any, get_args

import click
import pytest
from tests.agents.endpoint import Endpoint, served
from tests.cli.conftest import CommandFolder
from tests.cli.test_run_submit import WORKFLOW
from tests.documents.conftest import Snippets
from tests.documents.statements import commands_of
from tests.islands import of_tools

from evaldesk.cli import cli, respelled
from evaldesk.cli.lazy import LazyGroup
from evaldesk.desk.runs.file import read_run_file
from evaldesk.model import RunStatus
from evaldesk.run_options import BY_NAME

pytestmark = of_tools("osmosis")

GUIDE, PLATFORM = "osmosis_eval_mode_2", "osmosis_platform_runs"
SERVER = '''
from osmosis_ai.rollout import RolloutAgentLoop, RolloutContext, RolloutRequest, RolloutResult, create_app


class Loop(RolloutAgentLoop):
    """Asks the model once."""

    name = "sums"

    def get_tools(self, request: RolloutRequest):
        return []

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        messages = list(ctx.request.messages)
        result = await ctx.chat(messages, **ctx.request.completion_params)
        return ctx.complete([*messages, result.message])


agent_loop = Loop()
app = create_app(agent_loop)
'''
REWARDS = """
from osmosis_ai import osmosis_reward


@osmosis_reward
def compute_reward(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float(solution_str == ground_truth)


def partial_match(solution_str, ground_truth, extra_info=None):
    return 0.5


"""
TRUTHS = ("4", "5")
ANTHROPIC = json.dumps(
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "4"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
).encode()


@pytest.fixture
def project(place: CommandFolder, snippets: Snippets, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """The example project of the guide, with the functions that the guide prints; the names of its modules are new."""
    functions = "\n".join("\n".join(snippets(GUIDE)[name]) + "\n\n" for name in ("exact_match", "conversation_quality"))
    (place.folder / f"{_own('server', place)}.py").write_text(SERVER)
    (place.folder / f"{_own('rewards', place)}.py").write_text(REWARDS + functions)
    rows = [{"system_prompt": "Add.", "user_prompt": f"What is {truth}?", "ground_truth": truth} for truth in TRUTHS]
    (place.folder / "test_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def _own(module: str, place: CommandFolder) -> str:
    """A name that no test had before: modules stay imported in this process."""
    return f"{module}_{place.agent.name}"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served() as found:
        yield found


def _arguments(command: str, place: CommandFolder, address: str) -> list[str]:
    """The words of a printed command after its program, with a model and an address that are there."""
    command = command.replace("<your-model>", "small").replace("http://localhost:8000/v1", address)
    for module in ("server", "rewards"):
        command = command.replace(f"{module}:", f"{_own(module, place)}:")
    words = shlex.split(command)[1:]
    return words if "--base-url" in words else [*words, "--base-url", address]


def _evals(text: str) -> list[str]:
    return [command for command in commands_of(text, "osmosis") if " -m server:" in command]


def test_every_command_of_the_guide_is_played(
    project: CommandFolder, endpoint: Endpoint, document: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in re.findall(r'^export (\w+)="(.*)"$', document(GUIDE), re.MULTILINE):
        monkeypatch.setenv(name, key)
    commands = _evals(document(GUIDE))

    for command in commands:
        arguments = _arguments(command, project, endpoint.address)
        n = int(arguments[arguments.index("--n") + 1]) if "--n" in arguments else 1
        before = len(endpoint.asked)
        for _ in range(n * len(TRUTHS)):
            endpoint.gives(ANTHROPIC) if "anthropic/" in command else endpoint.says("4")
        done = project.run(*arguments)

        assert done.exit_code == 0, f"{command}: {done.output}{done.exception!r}"
        assert len(endpoint.asked) - before == n * len(TRUTHS), command
        with project.store() as store:
            run = store.runs.list(limit=1)[0]
        functions = [words.split(":")[1] for words in re.findall(r"--eval-fn (\S+)", command)]
        assert [criterion.metric.split(":")[1] for criterion in run.config.criteria] == functions
        assert (run.config.n, run.counts.errored) == (n, 0)
    assert len(commands) == 9
    assert {asked["model"] for asked in endpoint.asked} >= {"small"}


def test_both_functions_of_the_guide_score(project: CommandFolder, endpoint: Endpoint) -> None:
    rewards = _own("rewards", project)
    for _ in TRUTHS:
        endpoint.says("4 ")

    done = project.run(
        *(
            "eval",
            "-m",
            f"{_own('server', project)}:agent_loop",
            "-d",
            "test_data.jsonl",
            "--base-url",
            endpoint.address,
        ),
        *("--model", "small", "-o", "found.json"),
        *("--eval-fn", f"{rewards}:exact_match", "--eval-fn", f"{rewards}:conversation_quality"),
    )

    assert done.exit_code == 0, done.output
    found = json.loads((project.folder / "found.json").read_text())
    scores = [list(row["runs"][0]["scores"].values()) for row in found["rows"]]
    assert scores == [[1.0, pytest.approx(1 / 3)], [0.0, pytest.approx(1 / 3)]]


def test_the_results_have_the_keys_and_types_of_the_guide(
    project: CommandFolder, endpoint: Endpoint, document: Callable[[str], str], snippets: Snippets
) -> None:
    (command,) = (each for each in _evals(document(GUIDE)) if " -o " in each)
    for number in range(10):
        endpoint.says("4" if number % 2 else "5")

    project.run(*_arguments(command, project, endpoint.address), "--concurrency", 1)

    printed = json.loads("\n".join(snippets(GUIDE)["results"]).replace("rewards:", f"{_own('rewards', project)}:"))
    found = json.loads((project.folder / "results.json").read_text())
    assert set(found) == {*printed, "evaldesk"}
    del found["evaldesk"]
    assert _shape(found) == _shape(printed)


def _shape(value: Any) -> Any:
    """Keys and kinds of values; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_the_numbers_are_those_of_osmosis(
    project: CommandFolder, endpoint: Endpoint, document: Callable[[str], str]
) -> None:
    """Row 1 passes in 2 of 5 runs, row 2 in none: pass@k is 1 - C(n-c, k) / C(n, k), averaged over rows."""
    (command,) = (each for each in _evals(document(GUIDE)) if " -o " in each)
    for said in ("4", "9", "4", "9", "9", "9", "9", "9", "9", "9"):
        endpoint.says(said)

    project.run(*_arguments(command, project, endpoint.address), "--concurrency", 1)

    found = json.loads((project.folder / "results.json").read_text())
    (numbers,) = found["summary"]["eval_fns"].values()
    n_right = [sum(score == 1.0 for run in row["runs"] for score in run["scores"].values()) for row in found["rows"]]
    by_chance = {k: sum(1 - _share(5 - c, k) / _share(5, k) for c in n_right) / 2 for k in (1, 3, 5)}
    assert numbers["mean"] == pytest.approx(0.2)
    assert [numbers[f"pass_at_{k}"] for k in by_chance] == pytest.approx(list(by_chance.values()))


def _share(n: int, k: int) -> float:
    from math import comb

    return float(comb(n, k))


def test_every_option_of_the_guide_exists(document: Callable[[str], str]) -> None:
    assert isinstance(cli, LazyGroup)
    command = cli.get_command(click.Context(cli), "eval")
    assert command is not None
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}

    named = {word for line in commands_of(document(GUIDE), "osmosis") for word in line.split() if word.startswith("-")}

    assert named <= known
    assert {"-m", "-d", "-o", "--n", "--model", "--base-url", "--eval-fn", "--batch-size", "--pass-threshold"} <= named


def test_the_other_command_of_osmosis_is_known(document: Callable[[str], str]) -> None:
    assert "use osmosis eval-rubric instead" in document(GUIDE)
    assert respelled(["eval-rubric", "-d", "x"]) == ["rubric", "-d", "x"]


def test_every_address_of_the_guide_is_an_endpoint(document: Callable[[str], str]) -> None:
    addresses = re.findall(
        r"^(?:vLLM|SGLang|Ollama|Any OpenAI-compatible API)(http\S+)$", document(GUIDE), re.MULTILINE
    )

    assert len(addresses) == 4
    for address in addresses:
        filled = address.replace("<host>:<port>", "127.0.0.1:1234")
        assert BY_NAME["base_url"].check(filled) == filled


@pytest.fixture
def workspace(place: CommandFolder, snippets: Snippets, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """A project with the rollout, the data set and the run file of the document; no process is started."""
    rollout, data, configs = (place.folder / name for name in ("rollouts/my-rollout", "data", "configs/eval"))
    for folder in (rollout, data, configs):
        folder.mkdir(parents=True)
    (rollout / "main.py").write_text(WORKFLOW)
    rows = [{"system_prompt": "Add.", "user_prompt": f"{n}+1", "ground_truth": "4"} for n in range(20)]
    (data / "my-dataset.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (configs / "my-rollout.toml").write_text("\n".join(snippets(PLATFORM)["toml"]) + "\n")
    monkeypatch.setattr("evaldesk.cli.runs.submit.hand_over", lambda *_, **__: "driver")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    return place


def _words(command: str) -> list[str]:
    """The arguments of a printed command, as the command line takes them."""
    return respelled(shlex.split(command)[1:])


def test_the_run_file_of_the_guide_is_submitted(workspace: CommandFolder, document: Callable[[str], str]) -> None:
    submits = [each for each in commands_of(document(PLATFORM), "osmosis") if " submit " in each]
    assert len(submits) == 2

    asked, at_once = (workspace.run(*_words(command)) for command in submits)

    assert "add --yes to submit the run" in str(asked.exception)
    assert at_once.output.count("Evaluation run submitted: my-rollout-") == 1, at_once.output
    with workspace.store() as store:
        (run,) = store.runs.list()
    assert (run.config.model, run.config.evalset_name, run.config.agent.id) == (
        "openai/gpt-5-mini",
        "my-dataset.jsonl",
        "my-rollout",
    )


def test_the_run_file_of_the_guide_has_the_documented_defaults(workspace: CommandFolder, snippets: Snippets) -> None:
    lines = snippets(PLATFORM)["toml"]
    said = tomllib.loads("\n".join(re.sub(r"^# (\w+ = )", r"\1", line) for line in lines[6:]))["evaluation"]
    path = workspace.folder / "configs/eval/my-rollout.toml"

    plain = read_run_file(path)
    path.write_text("\n".join(re.sub(r"^# (\w+ = \d)", r"\1", line) for line in lines))
    full = read_run_file(path)

    assert set(said) == {"limit", "n", "batch_size", "pass_threshold", "agent_workflow_timeout_s", "grader_timeout_s"}
    assert (plain.limit, full.limit) == (None, said["limit"])
    assert plain.pass_threshold == full.pass_threshold == said["pass_threshold"]
    assert plain.agent_workflow_timeout_s == full.agent_workflow_timeout_s == said["agent_workflow_timeout_s"]
    assert {"n": 1, **plain.run_options} == full.run_options
    assert full.run_options == {
        "n": said["n"],
        "concurrency": said["batch_size"],
        "judge_timeout_s": said["grader_timeout_s"],
    }


def test_a_run_has_the_documented_statuses(snippets: Snippets) -> None:
    lines = snippets(PLATFORM)["statuses"]
    statuses = get_args(RunStatus)

    named = [next(status for status in statuses if line.startswith(status)) for line in lines]

    assert named == ["pending", "running", "finished", "failed", "stopped"]
    assert set(statuses) - set(named) == {"stopping"}


def test_the_commands_of_the_platform_are_carried_out(workspace: CommandFolder, document: Callable[[str], str]) -> None:
    commands = commands_of(document(PLATFORM), "osmosis")
    submit = next(each for each in commands if each.endswith("--yes"))
    workspace.run(*_words(submit), "--name", "my-eval-run")

    said = {each: workspace.run(*_words(each)) for each in commands if " submit " not in each}

    assert list(said) == [
        "osmosis eval list",
        "osmosis eval list --all",
        "osmosis eval info my-eval-run",
        "osmosis eval stop my-eval-run",
    ]
    for command, done in said.items():
        assert done.exit_code == 0, f"{command}: {done.output}{done.exception!r}"
    assert "my-eval-run" in said["osmosis eval list"].output
    info = said["osmosis eval info my-eval-run"].output
    assert all(words in info for words in ("openai/gpt-5-mini", "my-dataset", "my-rollout", "pending"))
    assert "is being stopped" in said["osmosis eval stop my-eval-run"].output


def test_a_check_of_each_command_asks_no_model(
    project: CommandFolder, endpoint: Endpoint, document: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")

    for command in _evals(document(GUIDE)):
        done = project.run(*_arguments(command, project, endpoint.address), "--check")
        assert done.exit_code == 0, f"{command}: {done.output}{done.exception!r}"

    assert endpoint.asked == []
