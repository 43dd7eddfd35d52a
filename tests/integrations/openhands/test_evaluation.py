"""An `Evaluation` of the benchmarks on OpenHands' SDK is played by this engine, on the interpreter of its checkout."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests import fake_docker
from tests.integrations.openhands.evaluation_checkout import make_checkout
from tests.virtual_environments import make_environment

from evaldesk.cli import cli
from evaldesk.formats.files import read_file
from evaldesk.integrations.openhands.command.evaluation import evaluation_root

SCRIPT, LLM = "benchmarks/numbers/run_infer.py", ".llm_config/example.json"
FOLDER = "eval_outputs/we__numbers-test/gpt-9_maxiter_first"


SCORES = {
    ("n3", "0"): ("passed", "1.0"),
    ("n3", "1"): ("passed", "1.0"),
    ("n4", "0"): ("failed", "0.0"),
    ("n4", "1"): ("passed", "1.0"),
    ("n5", "0"): ("passed", "1.0"),
    ("n5", "1"): ("passed", "1.0"),
    ("n6", "0"): ("errored", ""),
    ("n6", "1"): ("errored", ""),
}
"""The verdict and the score of each attempt of the sample, by instance and attempt."""


def benchmark(root: Path, *arguments: str, own: tuple[str, ...] = (), **variables: str) -> Any:
    command = [sys.executable, "-m", "evaldesk", "benchmark", *own, SCRIPT, LLM, *arguments]
    return subprocess.run(
        command, cwd=root, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=300
    )


def rows(root: Path, name: str = "output.jsonl") -> dict[str, dict[str, Any]]:
    lines = (root / FOLDER / name).read_text().splitlines()
    by_id = {row["instance_id"]: row for row in map(json.loads, lines)}
    assert len(by_id) == len(lines), f"an instance is twice in {name}"
    return by_id


def scores_of(root: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """The verdict and the critic's score of each trial of the first run, by case and trial."""
    command = [sys.executable, "-m", "evaldesk", "export", "1", "--format", "csv"]
    exported = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    lines = csv.DictReader(exported.stdout.splitlines())
    return {(line["case_id"], line["trial_index"]): (line["verdict"], line["reported_value/critic"]) for line in lines}


def container_names(place: Path) -> list[str]:
    """The names of the containers that were started, in order."""
    commands = map(json.loads, (place / "log").read_text().splitlines())
    return [words[words.index("--name") + 1] for words in commands if words[0] == "run"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose benchmark was played with two attempts for each of four instances."""
    root = make_checkout(tmp_path_factory.mktemp("checkout"))
    options = ("--n-critic-runs", "2", "--num-workers", "2", "--tool-preset", "gemini", "--agent-type", "acp")
    ended = benchmark(root, *options)
    (root / "ended.json").write_text(json.dumps([ended.returncode, ended.stdout, ended.stderr]))
    return root


@pytest.mark.server
def test_attempts_are_trials_and_the_critic_is_their_metric(checkout: Path) -> None:
    code, out, err = json.loads((checkout / "ended.json").read_text())

    assert code == 0, out + err
    assert scores_of(checkout) == SCORES


@pytest.mark.server
def test_the_script_goes_on_with_the_outputs_that_the_critic_chose(checkout: Path) -> None:
    _, out, _ = json.loads((checkout / "ended.json").read_text())

    assert set(json.loads(out.splitlines()[-1])["outputs"]) == {"n3", "n4", "n5"}
    chosen = rows(checkout)
    assert {name: row["attempt"] for name, row in chosen.items()} == {"n3": 2, "n4": 2, "n5": 2}
    assert chosen["n4"] == rows(checkout, "output.critic_attempt_2.jsonl")["n4"]


@pytest.mark.server
def test_an_attempt_gets_what_the_harness_gives_it(checkout: Path) -> None:
    first, second = (rows(checkout, f"output.critic_attempt_{number}.jsonl")["n3"] for number in (1, 2))

    assert (first["test_result"]["temperature"], second["test_result"]["temperature"]) == (0.0, 0.1)
    assert (first["test_result"]["tools"], first["test_result"]["agent"]) == ("gemini", "acp")
    assert first["test_result"]["where"] == str(checkout)
    assert first["instance"] == {"instance_id": "n3", "number": 3, "gold": "3"}
    assert [event["kind"] for event in first["history"]] == ["MessageEvent", "MessageEvent"]


@pytest.mark.server
def test_an_attempt_that_raises_is_retried_with_more_resources_and_errs_in_the_end(checkout: Path) -> None:
    once = rows(checkout, "output.critic_attempt_1.jsonl")["n5"]
    never = rows(checkout, "output.critic_attempt_1.jsonl")["n6"]

    assert once["test_result"]["written"] == str(checkout / "own" / "n5-1-2")
    assert never["error"].startswith("ValueError: no such number, key [")
    assert sorted(path.name for path in (checkout / "own").glob("n6-1-*")) == [f"n6-1-{n}" for n in (1, 2, 4, 8)]


@pytest.mark.server
def test_no_key_of_the_llm_config_is_in_the_output(checkout: Path) -> None:
    for path in [*(checkout / FOLDER).rglob("*"), checkout / "ended.json"]:
        assert path.is_dir() or "sk-of-the-json-file" not in path.read_text(), path


@pytest.mark.server
def test_the_folder_is_imported_with_the_attempts_that_were_played(checkout: Path) -> None:
    data = (checkout / FOLDER / "output.critic_attempt_1.jsonl").read_bytes()

    (run,) = read_file(data, "output.jsonl").runs

    assert [case.id for case in run.cases] == list(rows(checkout, "output.critic_attempt_1.jsonl"))
    assert run.results[0].cost == 0.25


@pytest.mark.server
def test_one_attempt_in_docker_is_chosen_by_a_file_and_judged_by_a_key(tmp_path: Path) -> None:
    fake_docker.need_namespaces()
    binaries = fake_docker.install(tmp_path / "docker")
    make_environment(tmp_path / "docker" / "images" / "shop_7")
    root = make_checkout(tmp_path / "checkout")
    (root / "chosen.txt").write_text("n3\nn4\n")
    options = ("--workspace", "docker", "--select", "chosen.txt", "--critic", "pass", "--max-retries", "0")

    ended = benchmark(
        root, *options, own=("--score-key", "resolved"), PATH=f"{binaries}{os.pathsep}{os.environ['PATH']}"
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert scores_of(root) == {("n3", "0"): ("passed", "1.0"), ("n4", "0"): ("failed", "1.0")}
    assert sorted((root / "closed.txt").read_text().split()) == ["n3-1-1", "n4-1-1"]
    assert {row["attempt"] for row in rows(root).values()} == {1}


@pytest.mark.server
def test_attempts_in_containers_are_played_judged_adopted_and_not_played_again(tmp_path: Path) -> None:
    fake_docker.need_namespaces()
    binaries = fake_docker.install(tmp_path / "docker")
    make_environment(tmp_path / "docker" / "images" / "shop_7")
    root = make_checkout(tmp_path / "checkout")
    options = ("--workspace", "docker", "--n-critic-runs", "2", "--num-workers", "2", "--max-retries", "1")
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"

    first = benchmark(root, *options, PATH=path)
    names = container_names(tmp_path / "docker")
    second = benchmark(root, *options, PATH=path)
    all_names = container_names(tmp_path / "docker")

    assert first.returncode == 0, first.stdout + first.stderr
    assert scores_of(root) == SCORES
    chosen = rows(root)
    assert {name: row["attempt"] for name, row in chosen.items()} == {"n3": 2, "n4": 2, "n5": 2}
    assert {row["test_result"]["seen"] for row in chosen.values()} == {f"/workspace\n{n}\n" for n in (3, 4, 5)}
    assert not [*root.rglob("number.txt")], "the commands ran outside of the container"
    assert len(names) == len({*names})
    assert {"n5-1-2", "n6-1-1", "n6-1-2", "n6-2-2"} <= {*names}, "a retry has a container of its own"
    assert sorted(all_names) == sorted((root / "closed.txt").read_text().split()), "a container was left open"
    assert not [*(tmp_path / "docker" / "running").iterdir()]
    assert second.returncode == 0, second.stdout + second.stderr
    assert {name[:2] for name in all_names[len(names) :]} == {"n6"}, "only what broke off is played again"
    (tmp_path / "home").mkdir()
    adopted = CliRunner().invoke(cli, ["adopt", "openhands", str(root), "--workspace", str(tmp_path / "home")])
    assert adopted.exit_code == 0, adopted.output
    assert f"  {FOLDER}/output.jsonl\n" in adopted.output


@pytest.mark.server
def test_a_local_workspace_is_the_folder_of_the_trial_and_a_second_start_has_nothing_to_do(tmp_path: Path) -> None:
    root = make_checkout(tmp_path)

    first = benchmark(root, "--n-limit", "1", own=("--local",))
    second = benchmark(root, "--n-limit", "1", own=("--local",))

    assert first.returncode == 0, first.stdout + first.stderr
    assert not (root / "own").exists()
    folder = rows(root)["n3"]["test_result"]["written"]
    assert Path(folder).name.startswith("evaldesk-")
    assert not Path(folder).exists()
    assert "The one instance is done already" in second.stdout, second.stdout + second.stderr
    assert json.loads(second.stdout.splitlines()[-1])["outputs"] == ["n3"]


def test_its_repository_is_adopted_with_its_results(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "checkout")
    results = root / FOLDER
    results.mkdir(parents=True)
    row = {"instance_id": "n3", "attempt": 1, "test_result": {"resolved": True}, "history": []}
    (results / "output.jsonl").write_text(json.dumps(row) + "\n")

    (tmp_path / "home").mkdir()

    result = CliRunner().invoke(cli, ["adopt", "openhands", str(root), "--workspace", str(tmp_path / "home")])

    assert result.exit_code == 0, result.output
    for part in (SCRIPT, LLM, f"{FOLDER}/output.jsonl"):
        assert f"  {part}\n" in result.output
    assert "benchmarks/utils/evaluation.py" not in result.output


def test_an_interpreter_without_the_sdk_is_named_with_the_next_step(tmp_path: Path) -> None:
    root = make_checkout(tmp_path)
    python = make_environment(tmp_path / "elsewhere")

    result = CliRunner().invoke(cli, ["benchmark", "--python", str(python), str(root / SCRIPT), str(root / LLM)])

    words = str(result.exception)
    assert f"{python} cannot import openhands.sdk: ModuleNotFoundError: No module named 'openhands'" in words
    assert "needs Python 3.12 or newer" in words
    assert f"`uv sync` in {root}, or name an interpreter that has openhands-sdk by --python" in words


def test_only_a_script_in_a_checkout_with_the_harness_has_an_evaluation(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "checkout")
    (tmp_path / "run_infer.py").write_text("")

    assert evaluation_root(root / SCRIPT) == root
    assert evaluation_root(tmp_path / "run_infer.py") is None
    assert evaluation_root(root / "benchmarks" / "missing.py") is None


@pytest.mark.parametrize("option", [("--local",), ("--python", "python3")], ids=["local", "python"])
def test_options_of_an_evaluation_are_refused_for_another_script(tmp_path: Path, option: tuple[str, ...]) -> None:
    (tmp_path / "run_infer.py").write_text("")

    result = CliRunner().invoke(cli, ["benchmark", *option, str(tmp_path / "run_infer.py")])

    assert "--python and --local are for a script with an Evaluation" in str(result.exception)


def test_an_image_is_refused_for_an_evaluation(tmp_path: Path) -> None:
    root = make_checkout(tmp_path)

    result = CliRunner().invoke(cli, ["benchmark", "--image", "shop:7", str(root / SCRIPT)])

    assert "choose them by its option --workspace" in str(result.exception)
