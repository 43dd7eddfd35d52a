"""A project of agents-cli: adopted, its datasets listed, edited and run with the metrics of its config."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.documents.shown_commands import carry_out, section_commands
from tests.islands import of_tools

from evaldesk.errors import LossError
from evaldesk.model import Case, Turn
from evaldesk.store.evalsets.files import EvalSetFiles

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder
    from tests.forked_commands import ForkedCommands

SAMPLES = Path(__file__).parents[1] / "formats/exchange_samples"
CONFIG = """\
metrics_to_run: [same_words, multi_turn_task_success]
custom_metrics:
  - name: same_words
    threshold: 1
    custom_function: |
      def evaluate(instance):
          texts = [instance[key]["parts"][0]["text"] for key in ("prompt", "response")]
          return {"score": float(texts[0] == texts[1]), "explanation": " / ".join(texts)}
"""


@pytest.fixture
def project(place: CommandFolder) -> Path:
    """The folder as agents-cli scaffolds it, with results of earlier grading."""
    folder = place.folder
    for name, text in {
        "agents-cli-manifest.yaml": f"name: desk\nagent_directory: {place.agent.name}\n",
        "tests/eval/eval_config.yaml": CONFIG,
        "tests/eval/datasets/basic-dataset.json": json.dumps(
            {
                "eval_cases": [
                    {"eval_case_id": name, "prompt": {"role": "user", "parts": [{"text": name}]}}
                    for name in ("hello", "raise it")
                ]
            }
        ),
        "artifacts/grade_results/results_1.json": (SAMPLES / "agents-cli-results.grades.json").read_text(),
        "artifacts/traces/traces_1.json": (SAMPLES / "agents-cli-traces.traces.json").read_text(),
        ".github/workflows/evals.yml": "run: agents-cli eval run --dataset tests/eval/datasets/basic-dataset.json\n",
        "Makefile": "eval:\n\tagents-cli eval run\nother:\n\tagents-cli eval run --url https://x\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@of_tools("adk")
def test_a_project_is_adopted_with_its_results_and_its_command(place: CommandFolder, project: Path) -> None:
    done = place.run("adopt", "adk", project, "--write")

    assert done.exit_code == 0, done.output
    for part in (
        "project of agents-cli (1):\n  agents-cli-manifest.yaml",
        "  tests/eval/datasets/basic-dataset.json",
        "  tests/eval/eval_config.yaml",
        "  artifacts/grade_results/results_1.json: run",
        "  artifacts/traces/traces_1.json: run",
    ):
        assert part in done.output
    own = f"evaldesk eval {place.agent.name} tests/eval/datasets/basic-dataset.json\n"
    assert (project / ".github/workflows/evals.yml").read_text() == f"run: {own}"
    assert (project / "Makefile").read_text() == f"eval:\n\t{own}other:\n\tagents-cli eval run --url https://x\n"


@of_tools("adk")
def test_the_documented_commands_play_a_project_to_its_verdict(
    place: CommandFolder, project: Path, commands: ForkedCommands
) -> None:
    place.agent.rename(project / "app")
    (project / "agents-cli-manifest.yaml").write_text("name: desk\nagent_directory: app\n")
    dataset = project / "tests/eval/datasets/basic-dataset.json"
    first_case = json.loads(dataset.read_text())["eval_cases"][0]
    dataset.write_text(json.dumps({"eval_cases": [first_case]}))

    output = carry_out(commands, section_commands("agents-cli"), project)

    assert "passed" in output
    with place.store() as store:
        run = store.runs.list()[0]
        assert run.config.evalset_name == "basic-dataset"
        assert (run.counts.passed, run.counts.planned) == (1, 1)


def test_a_dataset_is_run_with_the_metrics_of_its_config(place: CommandFolder, project: Path) -> None:
    done = place.run("eval", place.agent, project / "tests/eval/datasets/basic-dataset.json")

    assert done.exit_code == 3, done.output
    assert "Left out: multi_turn_task_success: only Google's evaluation service computes it." in done.stderr
    with place.store() as store:
        run = store.runs.list()[0]
        assert run.config.evalset_name == "basic-dataset"
        assert (run.counts.passed, run.counts.errored) == (1, 1)


def test_a_dataset_is_listed_and_edited_in_its_own_form(place: CommandFolder, project: Path) -> None:
    files = EvalSetFiles([project], project / "evalsets", project / ".evaldesk/trash", home=project)
    file = next(each for each in files.list() if each.name == "basic-dataset")
    evalset, version = files.read(file.id)
    first, second = evalset.cases

    named_case = replace(first, turns=(replace(first.turns[0], query="Good day"),), tags=("new",))
    files.save(file.id, replace(evalset, cases=(named_case, second, Case("third", (Turn("Bye"),)))), version)

    raw = json.loads((project / "tests/eval/datasets/basic-dataset.json").read_text())["eval_cases"]
    assert file.format == "agents-cli"
    assert [(case["eval_case_id"], case["prompt"]["parts"][0]["text"], case.get("tags")) for case in raw] == [
        ("hello", "Good day", ["new"]),
        ("raise it", "raise it", None),
        ("third", "Bye", None),
    ]


def test_a_set_that_a_dataset_cannot_hold_is_not_saved_in_it_silently(place: CommandFolder, project: Path) -> None:
    files = EvalSetFiles([project], project / "evalsets", project / ".evaldesk/trash", home=project)
    file = next(each for each in files.list() if each.name == "basic-dataset")
    evalset, version = files.read(file.id)

    with pytest.raises(LossError, match="the form of this file, agents-cli dataset, cannot hold all of this"):
        files.save(file.id, replace(evalset, description="The basic cases"), version)
