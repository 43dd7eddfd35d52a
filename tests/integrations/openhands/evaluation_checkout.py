"""A checkout of benchmarks on OpenHands' SDK (V1), made by us in the shape of the living harness.

Its models have the methods of pydantic that the harness and its runner use, so that its interpreter needs no package
but the SDK; of the SDK, too, only what such a benchmark imports is here.
"""

from __future__ import annotations

from pathlib import Path

from tests.virtual_environments import make_environment

MODELS = """
import json


class Model:
    def __init__(self, **values):
        for name in self.fields:
            setattr(self, name, values.get(name, self.fields[name]))

    def model_dump(self):
        return {name: _plain(getattr(self, name)) for name in self.fields}

    def model_dump_json(self, **_):
        return json.dumps(self.model_dump())

    def model_copy(self, update):
        return type(self)(**{**{name: getattr(self, name) for name in self.fields}, **update})

    @classmethod
    def model_validate(cls, row):
        return cls(**row)


def _plain(value):
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


class EvalInstance(Model):
    fields = {"id": None, "data": None}


class EvalMetadata(Model):
    fields = dict.fromkeys(
        ["llm", "dataset", "dataset_split", "max_iterations", "eval_output_dir", "details", "eval_limit",
         "n_critic_runs", "critic", "selected_instances_file", "max_retries", "workspace_type", "tool_preset",
         "agent_type"]
    )


class EvalOutput(Model):
    fields = dict.fromkeys(
        ["instance_id", "attempt", "test_result", "instruction", "metadata", "history", "metrics", "error", "instance"]
    )
"""

EVALUATION = """
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.utils.models import EvalInstance, EvalMetadata, EvalOutput


class Evaluation(ABC):
    def __init__(self, metadata, num_workers=1):
        self.metadata, self.num_workers, self.current_attempt = metadata, num_workers, 1
        folder = Path(metadata.eval_output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metadata.json").write_text(metadata.model_dump_json())

    @property
    def output_path(self):
        return str(Path(self.metadata.eval_output_dir, "output.jsonl"))

    @abstractmethod
    def prepare_instances(self): ...

    @abstractmethod
    def prepare_workspace(self, instance, resource_factor=1, forward_env=None): ...

    @abstractmethod
    def evaluate_instance(self, instance, workspace): ...

    def run(self, *, on_result=None):
        raise AssertionError("the own runner of the harness")


def get_default_on_result_writer(path):
    def write(instance, output):
        with open(path, "a") as file:
            file.write(output.model_dump_json() + "\\n")

    return write
"""

SCRIPT = '''
import argparse
import json
import os
import subprocess
from pathlib import Path

from benchmarks.utils.evaluation import Evaluation, get_default_on_result_writer
from benchmarks.utils.models import EvalInstance, EvalMetadata, EvalOutput
from openhands.sdk import LLM
from openhands.sdk.critic import AgentFinishedCritic, PassCritic
from openhands.sdk.event import MessageEvent
from openhands.sdk.workspace import LocalWorkspace

ROOT = Path(__file__).resolve().parents[2]


class Docker:
    """A workspace in a container that stays up until it is left, by the client on PATH."""

    def __init__(self, name):
        self.name = name
        self.container = subprocess.Popen(
            ["docker", "run", "--interactive", "--rm", "--init", "--name", name, "--cpus", "1", "--memory", "1g",
             "--memory-swap", "1g", "--pids-limit", "100", "--workdir", "/workspace", "--entrypoint", "sh", "shop:7",
             "-c", "echo up; read end"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        if self.container.stdout.readline() != "up\\n":
            raise ConnectionError("the container did not start")

    def execute_command(self, command):
        done = subprocess.run(["docker", "exec", self.name, "sh", "-c", command], capture_output=True, text=True)
        if done.returncode:
            raise ConnectionError(done.stderr)
        return done.stdout

    def __exit__(self, *error):
        self.container.communicate("end\\n", timeout=120)
        with open(ROOT / "closed.txt", "a") as file:
            file.write(self.name + "\\n")


class NumbersEvaluation(Evaluation):
    def prepare_instances(self):
        rows = [json.loads(line) for line in (ROOT / "numbers.jsonl").read_text().splitlines()]
        if self.metadata.selected_instances_file:
            chosen = Path(self.metadata.selected_instances_file).read_text().split()
            rows = [row for row in rows if row["instance_id"] in chosen]
        return [EvalInstance(id=row["instance_id"], data=row) for row in rows[: self.metadata.eval_limit or None]]

    def prepare_workspace(self, instance, resource_factor=1, forward_env=None):
        if self.metadata.workspace_type == "docker":
            return Docker(f"{instance.id}-{self.current_attempt}-{resource_factor}")
        folder = ROOT / "own" / f"{instance.id}-{self.current_attempt}-{resource_factor}"
        folder.mkdir(parents=True)
        return LocalWorkspace(working_dir=folder)

    def evaluate_instance(self, instance, workspace):
        number, attempt = instance.data["number"], self.current_attempt
        tried = ROOT / f"tried-{instance.id}-{attempt}"
        if number == 5 and not tried.exists():
            tried.write_text("")
            raise ConnectionError("the runtime is gone")
        if number == 6:
            raise ValueError("no such number, key " + self.metadata.llm.api_key.get_secret_value())
        workspace.execute_command(f"echo {number} > number.txt")
        seen = workspace.execute_command("pwd; cat number.txt") if isinstance(workspace, Docker) else ""
        patch = "+1" if number != 4 or attempt == 2 else ""
        return EvalOutput(
            instance_id=instance.id,
            test_result={
                "git_patch": patch, "resolved": number == 3, "temperature": self.metadata.llm.temperature,
                "tools": self.metadata.tool_preset, "agent": self.metadata.agent_type, "where": os.getcwd(),
                "written": getattr(workspace, "working_dir", None), "seen": seen,
            },
            instruction=f"Write {number}.",
            history=[MessageEvent("user", f"Write {number}."), MessageEvent("agent", f"I wrote {number}.")],
            metrics={
                "model_name": "gpt-9",
                "accumulated_cost": 0.25,
                "accumulated_token_usage": {"model": "gpt-9", "prompt_tokens": 100, "completion_tokens": 10},
            },
            instance=instance.data,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("llm_config_path")
    parser.add_argument("--dataset", default="we/numbers")
    parser.add_argument("--split", default="test")
    parser.add_argument("--workspace", default="remote", choices=["docker", "remote"])
    parser.add_argument("--max-iterations", type=int, default=500)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--note", default="first")
    parser.add_argument("--output-dir", default="./eval_outputs")
    parser.add_argument("--n-limit", type=int, default=0)
    parser.add_argument("--select")
    parser.add_argument("--n-critic-runs", type=int, default=3)
    parser.add_argument("--critic", default="finish_with_patch")
    parser.add_argument("--max-retries", type=int, default=3)
    parser.add_argument("--tool-preset", default="default")
    parser.add_argument("--agent-type", default="default")
    args = parser.parse_args()
    llm = LLM(**json.loads(Path(args.llm_config_path).read_text()))
    folder = Path(args.output_dir, args.dataset.replace("/", "__") + "-" + args.split, f"gpt-9_maxiter_{args.note}")
    metadata = EvalMetadata(
        llm=llm, dataset=args.dataset, dataset_split=args.split, max_iterations=args.max_iterations,
        eval_output_dir=str(folder), details={}, eval_limit=args.n_limit, n_critic_runs=args.n_critic_runs,
        critic=PassCritic() if args.critic == "pass" else AgentFinishedCritic(), max_retries=args.max_retries,
        selected_instances_file=args.select, workspace_type=args.workspace, tool_preset=args.tool_preset,
        agent_type=args.agent_type,
    )
    evaluation = NumbersEvaluation(metadata, num_workers=args.num_workers)
    outputs = evaluation.run(on_result=get_default_on_result_writer(evaluation.output_path))
    print(json.dumps({"output_json": evaluation.output_path, "outputs": [each.instance_id for each in outputs]}))


if __name__ == "__main__":
    main()
'''

SDK = {
    "__init__.py": """
class Secret:
    def __init__(self, value):
        self.value = value

    def get_secret_value(self):
        return self.value

    def model_dump(self):
        return "**********"


class LLM:
    def __init__(self, model, api_key=None, temperature=0.0, **_):
        self.model, self.temperature = model, temperature
        self.api_key = api_key if isinstance(api_key, Secret) else Secret(api_key)

    def model_copy(self, update):
        return LLM(**{"model": self.model, "api_key": self.api_key, "temperature": self.temperature, **update})

    def model_dump(self):
        return {"model": self.model, "api_key": "**********", "temperature": self.temperature}
""",
    "event.py": """
class LLMConvertibleEvent:
    pass


class MessageEvent(LLMConvertibleEvent):
    def __init__(self, source, text):
        self.source, self.text = source, text

    def model_dump(self):
        content = [{"type": "text", "text": self.text}]
        role = "user" if self.source == "user" else "assistant"
        return {"kind": "MessageEvent", "id": self.text, "timestamp": "2026-11-29T10:00:00", "source": self.source,
                "llm_message": {"role": role, "content": content}}
""",
    "critic.py": """
class CriticResult:
    def __init__(self, score, message):
        self.score, self.message, self.success = score, message, score >= 0.5


class PassCritic:
    def evaluate(self, events, git_patch=None):
        return CriticResult(1.0, "passes")

    def model_dump(self):
        return {"kind": "PassCritic"}


class AgentFinishedCritic(PassCritic):
    def evaluate(self, events, git_patch=None):
        return CriticResult(float(bool(git_patch)), f"{len(events)} events and {'a' if git_patch else 'no'} patch")
""",
    "workspace.py": """
import subprocess


class LocalWorkspace:
    def __init__(self, *, working_dir):
        self.working_dir = str(working_dir)

    def execute_command(self, command):
        return subprocess.run(["sh", "-c", command], cwd=self.working_dir)

    def __exit__(self, *error):
        pass
""",
}

LLM_CONFIG = '{"model": "openai/gpt-9", "api_key": "sk-of-the-json-file-1234567890", "temperature": 0.0}'
ROWS = "".join(f'{{"instance_id": "n{number}", "number": {number}, "gold": "{number}"}}\n' for number in (3, 4, 5, 6))


def make_checkout(root: Path) -> Path:
    """The checkout in `root`, with the SDK in its `.venv`."""
    files = {
        "benchmarks/__init__.py": "",
        "benchmarks/utils/__init__.py": "",
        "benchmarks/utils/models.py": MODELS,
        "benchmarks/utils/evaluation.py": EVALUATION,
        "benchmarks/numbers/__init__.py": "",
        "benchmarks/numbers/run_infer.py": SCRIPT,
        ".llm_config/example.json": LLM_CONFIG,
        "numbers.jsonl": ROWS,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    make_environment(root / ".venv")
    sdk = next((root / ".venv").glob("lib/python3*/site-packages")) / "openhands" / "sdk"
    sdk.mkdir(parents=True)
    for name, text in SDK.items():
        (sdk / name).write_text(text)
    return root
