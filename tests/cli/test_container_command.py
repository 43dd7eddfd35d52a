"""`image` and `[container]` in evaldesk.toml: what commands and pages say of them, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import fake_docker
from tests.forked_commands import ForkedCommands
from tests.virtual_environments import make_environment

from evaldesk import evaluate
from evaldesk.errors import UsageError
from evaldesk.model import Container
from evaldesk.pages.runs.facts import all_facts, run_fingerprint
from evaldesk.settings import read_settings
from evaldesk.store import Store

pytestmark = pytest.mark.long

AGENT = """
import sys

def agent(message, state):
    return sys.prefix
"""
TURN = {"user_content": {"parts": [{"text": "Where?"}]}, "final_response": {"parts": [{"text": "/opt/image"}]}}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an agent that names the place where it runs, and a docker with the image shop:7."""
    fake_docker.need_namespaces()
    place = tmp_path / "docker"
    binaries = fake_docker.install(place)
    make_environment(place / "images" / "shop_7")
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    home = tmp_path / "home"
    (home / "shop").mkdir(parents=True)
    (home / "shop" / "agent.py").write_text(AGENT)
    (home / "test_config.json").write_text('{"criteria": {"response_match_score": 1.0}}')
    case = {"eval_id": "one", "conversation": [TURN]}
    (home / "where.evalset.json").write_text(json.dumps({"eval_set_id": "where", "eval_cases": [case]}))
    monkeypatch.chdir(home)
    return home


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(commands: ForkedCommands) -> Command:
    return commands.run


def test_agents_of_a_workspace_are_played_in_its_image(shop: Path, command: Command) -> None:
    (shop / "evaldesk.toml").write_text('image = "shop:7"\n[container]\nmemory = 512\npids = 64\n')

    done = command("eval", "shop", "where.evalset.json")
    informed = command("run", "info", "1")
    listed = command("agents", "--trust")

    assert done.returncode == 0, done.stdout + done.stderr
    words = "a container of shop:7: no network, 1 CPU, 512 MiB, 64 processes"
    assert words in informed.stdout
    assert f"played in {words}" in listed.stdout
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        summary = store.runs.summary(1)
    assert [fact.text for fact in all_facts(summary) if fact.name == "Played in"] == [words]


LOOKS = """
import json, os
from pathlib import Path

ROOTS = (Path(__file__).parent.parent, Path("/opt/evaldesk/root"))
WORD = bytes(reversed(b"erusaert"))

def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""

def agent(message):
    files = [path for root in ROOTS for path in root.rglob("*") if path.is_file() and WORD in read(path)]
    prices = (Path(__file__).parent / "prices.json").read_text()
    return json.dumps({"sets": sorted({path.name for path in files}), "prices": prices})
"""


@pytest.mark.parametrize("by", ["eval", "pytest"])
def test_a_container_leaves_eval_sets_and_their_copies_out(by: str, shop: Path, command: Command) -> None:
    answer = json.dumps({"sets": [], "prices": "{}"})
    turn = {"user_content": {"parts": [{"text": "the treasure"}]}, "final_response": {"parts": [{"text": answer}]}}
    text = json.dumps({"eval_set_id": "hidden", "eval_cases": [{"eval_id": "one", "conversation": [turn]}]})
    folder = shop / "shop"
    (folder / "agent.py").write_text(LOOKS)
    (folder / "prices.json").write_text("{}")
    (shop / "test_config.json").write_text('{"criteria": {"response_exact": 1.0}}')
    (folder / "test_config.json").write_text('{"criteria": {"response_exact": 1.0}}')
    (folder / "more").mkdir()
    for path in (folder / "hidden.evalset.json", folder / "old.test.json", folder / "more" / "copy.json"):
        path.write_text(text)
    (shop / ".evaldesk").mkdir(exist_ok=True)
    (shop / ".evaldesk" / "notes").write_text("treasure")
    (shop / "evaldesk.toml").write_text('image = "shop:7"\n')
    git = [shutil.which("git") or "git", "-C", str(shop), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], check=True)

    if by == "eval":
        done = command("eval", "shop", "shop/hidden.evalset.json")
    else:
        arguments = ["shop/hidden.evalset.json", "--evaldesk-agent", "shop", "-p", "no:cacheprovider", "-q"]
        done = subprocess.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_image_of_one_agent_is_its_own_and_another_is_played_on_this_machine(shop: Path, command: Command) -> None:
    table = '[agents.inside]\ntarget = "shop"\nimage = "shop:7"\n[agents.here]\ntarget = "shop"\n'
    (shop / "evaldesk.toml").write_text(table)

    inside, here = (command("eval", name, "where.evalset.json") for name in ("inside", "here"))

    assert (inside.returncode, here.returncode) == (0, 1), inside.stdout + inside.stderr + here.stdout + here.stderr
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        configs = [store.runs.summary(number).config for number in (1, 2)]
    assert [config.agent.container is not None for config in configs] == [True, False]
    assert run_fingerprint(configs[0]) != run_fingerprint(configs[1])


def test_an_image_that_a_command_names_wins_over_the_file(shop: Path, command: Command) -> None:
    (shop / "evaldesk.toml").write_text(
        'image = "other:1"\n[container]\npids = 64\n[agents.here]\ntarget = "shop"\npython = "evaldesk"\n'
    )

    done = [command("eval", name, "where.evalset.json", "--image", "shop:7") for name in ("shop", "here")]

    assert [each.returncode for each in done] == [0, 0], done[0].stdout + done[0].stderr
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        played = [store.runs.summary(number).config.agent for number in (1, 2)]
    assert [ref.container for ref in played] == [Container("shop:7", pids=64)] * 2


def test_evaluate_and_pytest_play_in_the_image_that_they_name(shop: Path) -> None:
    result = evaluate("shop", shop / "where.evalset.json", criteria={"response_match_score": 1.0}, image="shop:7")
    words = ("-p", "no:cacheprovider", "-q", "--evaldesk-agent", "shop", "--evaldesk-image", "shop:7")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "where.evalset.json", *words], capture_output=True, text=True, check=False
    )

    assert result.counts.passed == 1
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr
    with pytest.raises(UsageError, match="an object stays in this process"):
        evaluate(lambda message: message, shop / "where.evalset.json", image="shop:7")


SCRIPT = """
import sys
import pandas as pd
from evaluation.utils.shared import EvalOutput, run_evaluation
from openhands.core.config import OpenHandsConfig, SandboxConfig
from openhands.core.main import create_runtime
from openhands.events.action import CmdRunAction

def process_instance(instance, metadata, reset_logger=True):
    sandbox = SandboxConfig(base_container_image=instance.instance_id + ":7")
    runtime = create_runtime(OpenHandsConfig(sandbox=sandbox))
    said = runtime.run_action(CmdRunAction("python3 -c 'import sys; print(sys.prefix)'")).content.strip()
    return EvalOutput(instance_id=instance.instance_id, test_result={"success": said != sys.prefix, "said": said})

if __name__ == "__main__":
    run_evaluation(pd.read_json("rows.jsonl", lines=True), None, "out/output.jsonl", 1, process_instance)
"""
PLAIN = """
import subprocess

def process_instance(instance, metadata):
    said = subprocess.check_output(["python3", "-c", "import sys; print(sys.prefix)"], text=True).strip()
    return {"instance_id": instance.instance_id, "test_result": {"success": said == "/opt/image"}}
"""


@pytest.fixture
def bench(shop: Path) -> Path:
    """A project with the script of a benchmark, one that is a plain function, and the row of one instance."""
    (shop / "run_infer.py").write_text(SCRIPT)
    (shop / "bench.py").write_text(PLAIN)
    (shop / "rows.jsonl").write_text('{"instance_id": "shop"}\n')
    return shop


def _played_in(home: Path) -> tuple[str, str]:
    """Where the first run was played, and what its trial says of it."""
    with Store.open(home / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        [fact] = [fact for fact in all_facts(store.runs.summary(1)) if fact.name == "Played in"]
        result = store.runs.trial(1, 0, 0)
    return fact.text, " ".join(event.text for turn in result.transcript.turns for event in turn.events)


def test_the_commands_of_a_script_run_in_the_image_of_each_instance(bench: Path, command: Command) -> None:
    done = command("benchmark", "--image", "instance", "run_infer.py")

    assert done.returncode == 0, done.stdout + done.stderr
    [output] = (bench / "out").rglob("output.jsonl")
    assert json.loads(output.read_text())["test_result"]["said"] == "/opt/image"
    place, said = _played_in(bench)
    bounds = "no network, 1 CPU, 2,048 MiB, 512 processes"
    assert f"commands of the benchmark in a container of the image of each instance: {bounds}" in place
    assert f"commands run in a container of shop:7: {bounds}" in said
    assert "the script runs as you, its commands in a container" in said
    assert not list((bench.parent / "docker" / "running").iterdir())


def test_the_image_of_a_workspace_is_that_of_the_commands_of_a_script(bench: Path, command: Command) -> None:
    (bench / "evaldesk.toml").write_text('image = "shop:7"\n[container]\npids = 64\nnetwork = "model-only"\n')
    (bench / "metadata.json").write_text('{"agent_class": "CodeActAgent", "eval_output_dir": "out"}')
    words = ("--benchmark", "run_infer:process_instance", "-d", "rows.jsonl", "--eval-metadata", "metadata.json")

    done = command("eval", *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "in a container of shop:7: no network, 1 CPU, 2,048 MiB, 64 processes" in _played_in(bench)[0]


@pytest.mark.parametrize("words", [("--image", "shop:7"), ("--environment", "box"), ()])
def test_a_function_is_played_in_its_image_with_its_commands(
    bench: Path, command: Command, words: tuple[str, ...]
) -> None:
    table = '[environments.box]\nimage = "shop:7"\n'
    (bench / "evaldesk.toml").write_text(table if words else 'image = "shop:7"\n')

    done = command("eval", "--benchmark", "bench:process_instance", "-d", "rows.jsonl", *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert _played_in(bench)[0].startswith("a container of shop:7")


@pytest.mark.parametrize(
    ("words", "table", "problem"),
    [
        (("benchmark", "--image", "instance", "run_infer.py"), "", "neither docker nor podman is on PATH"),
        (("benchmark", "--image", "--privileged", "run_infer.py"), "", "'--privileged' is not the name of an image"),
        (("eval", "--benchmark", "bench:process_instance", "-d", "rows.jsonl", "--image", "shop:7"), "", "neither"),
        (("eval", "--benchmark", "bench:process_instance", "-d", "rows.jsonl"), 'image = "shop:7"\n', "neither docker"),
        (
            ("eval", "bench", "where.evalset.json"),
            '[agents.bench]\ntarget = "bench:process_instance"\nkind = "benchmark"\ncommand_image = "instance"\n',
            "neither docker nor podman",
        ),
        (
            ("eval", "bench", "where.evalset.json"),
            '[agents.bench]\ntarget = "shop"\ncommand_image = "shop:7"\n',
            'command_image is for kind = "benchmark"',
        ),
        (
            ("eval", "bench", "where.evalset.json"),
            '[agents.bench]\ntarget = "bench:process_instance"\nkind = "benchmark"\nimage = "a"\ncommand_image = "b"\n',
            "leave command_image out",
        ),
    ],
)
def test_an_image_for_commands_that_cannot_be_is_refused_before_the_start(
    bench: Path, command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], table: str, problem: str
) -> None:
    (bench / "evaldesk.toml").write_text(table)
    monkeypatch.setenv("PATH", str(bench))

    done = command(*words)

    assert done.returncode == 2, done.stdout + done.stderr
    assert problem in done.stderr
    assert not (bench / "out").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("shop", "--image", "--privileged"), "image = '--privileged' is not the name of an image"),
        (("shop", "--image", "shop:7", "--python", "evaldesk"), "leave one out"),
        (("http://127.0.0.1:9/v1", "--image", "shop:7"), "is not imported, so it has no container"),
        (("shop", "--image", "shop:7", "--recording", "record"), "needs a folder of this machine"),
    ],
)
def test_an_image_that_cannot_be_is_refused(shop: Path, command: Command, words: tuple[str, ...], problem: str) -> None:
    done = command("eval", words[0], "where.evalset.json", *words[1:])

    assert done.returncode == 2, done.stdout + done.stderr
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ('image = "shop:7"\n', "nowhere", "neither docker nor podman is on PATH; install one, or leave image out"),
        ('image = "shop:7"\nrecording = "record"\n', "", "recording = 'record' needs a folder of this machine"),
        ('image = "--privileged"\n', "", "image = '--privileged' is not the name of an image"),
        ('image = "shop:7"\npython = "python3"\n', "", "leave one out"),
        ('image = "shop:7"\n[container]\ncpus = 0\n', "", "more than 0 and at most 1,024 CPUs"),
        ('image = "shop:7"\n[container]\nnetwork = "bridge"\n', "", "[container]"),
        ('image = "shop:7"\n[container]\nimage = "other"\n', "", "write image = 'other' above the tables"),
        ('[container]\nvariables = ["A=b"]\n', "", "'A=b' is not the name of an environment variable"),
        ('[agents.a]\nurl = "http://localhost:1"\nimage = "shop:7"\n', "", "image is for an agent with a target"),
        ('[agents.a]\ntarget = "shop"\nimage = "shop:7"\npython = "python3"\n', "", "leave one out"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_played(
    shop: Path, command: Command, monkeypatch: pytest.MonkeyPatch, text: str, path: str, problem: str
) -> None:
    (shop / "evaldesk.toml").write_text(text)
    if path:
        monkeypatch.setenv("PATH", str(shop / path))

    done = command("eval", "a" if "[agents.a]" in text else "shop", "where.evalset.json")

    assert done.returncode == 2, done.stdout + done.stderr
    assert problem in done.stderr
    if (shop / ".evaldesk" / "evaldesk.db").exists():
        with Store.open(shop / ".evaldesk" / "evaldesk.db") as store:
            assert store.runs.list() == []


def test_the_fields_of_a_container_have_their_types(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('image = "a"\n[container]\nmemory = "2g"\n')

    with pytest.raises(UsageError, match=r"\[container\]"):
        read_settings(tmp_path, (tmp_path,), environment={})
