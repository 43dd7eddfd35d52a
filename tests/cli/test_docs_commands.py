"""Every command of the documentation exists; those of docs/ci.md are carried out here, others by tests of their own."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.islands import of_command

from evaldesk.cli import cli, respelled
from evaldesk.cli.lazy import LazyGroup, dashed

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("installed_modules_kept")

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = sorted([*CHECKOUT.glob("docs/*.md"), CHECKOUT / "README.md"])
CI = (CHECKOUT / "docs/ci.md").read_text("utf-8")
STEPS = re.findall(r"^ +- run: (?!pip )(.*)$", CI, re.MULTILINE)
PYTEST = re.findall(r"^(pytest .*)$", CI, re.MULTILINE)
PYTHON = re.findall(r"^```python\n(.*?)^```", CI, re.MULTILINE | re.DOTALL)


def _commands(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    blocks = re.findall(r"^```(?:sh|yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.partition("run: ")[2] or line.strip() for line in lines if re.match(r"( +- run: )?evaldesk ", line)]


SHOWN = [(path.name, line) for path in DOCS for line in _commands(path)]


@pytest.mark.parametrize(
    ("name", "line"),
    [pytest.param(name, line, marks=of_command(line), id=f"{name}-{at}") for at, (name, line) in enumerate(SHOWN)],
)
def test_every_command_and_option_that_is_shown_exists(name: str, line: str) -> None:
    words = respelled(shlex.split(line, comments=True)[1:])
    command: click.Command = cli
    context = click.Context(cli, token_normalize_func=dashed)
    while isinstance(command, LazyGroup):
        found = command.get_command(context, words[0])
        assert found is not None, f"{name}: {line}"
        command, words = found, words[1:]

    with command.make_context(command.name, words, parent=context):
        pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the eval sets of the samples, in which the steps follow each other."""
    shutil.copytree(CHECKOUT / "evalsets", tmp_path / "evalsets")
    return tmp_path


@pytest.fixture
def run_step(project: Path, monkeypatch: pytest.MonkeyPatch, in_process: None) -> Callable[[str], Result]:
    """Carries out one line in the project."""
    monkeypatch.chdir(project)
    monkeypatch.delenv("EVALDESK_MODEL", raising=False)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project / "step.md"))

    def carry_out(line: str) -> Result:
        if line.startswith("evaldesk "):
            return CliRunner().invoke(cli, shlex.split(line)[1:])
        done = subprocess.run(["sh", "-ec", line], capture_output=True, check=False)  # noqa: S607
        return Result(CliRunner(), done.stdout, done.stderr, done.stdout, None, done.returncode, None)

    return carry_out


def test_the_workflow_runs_step_by_step(project: Path, run_step: Callable[[str], Result]) -> None:
    assert len(STEPS) == 3

    for step in STEPS:
        done = run_step(step)
        assert done.exit_code == 0, f"{step}\n{done.output}{done.exception!r}"

    assert (project / "step.md").read_text().startswith("<!-- evaldesk -->\n## ✅ Evaluation passed")
    assert "0 of 6 cases regressed by more than chance against baseline.json" in (project / "summary.md").read_text()
    assert 'tests="6" failures="0"' in (project / "results.xml").read_text()


@pytest.mark.server
def test_the_workflow_fails_where_the_agent_got_worse(project: Path, run_step: Callable[[str], Result]) -> None:
    run_step(STEPS[0])

    done = run_step(STEPS[1].replace("mistakes=0", "mistakes=1").replace("0.02", "1") + " --seed 1")

    assert done.exit_code == 1, done.output + repr(done.exception)
    assert "✗ failed --max-regressions" in done.output
    assert (project / "summary.md").read_text().splitlines()[3].startswith("**Regressed against baseline.json:**")


@pytest.mark.parametrize("line", PYTEST)
@pytest.mark.usefixtures("in_process")
def test_the_pytest_command_runs(pytester: pytest.Pytester, line: str) -> None:
    shutil.copytree(CHECKOUT / "evalsets", pytester.path / "evalsets")

    result = pytester.runpytest_inprocess("-p", "no:asyncio", *shlex.split(line)[1:])

    result.assert_outcomes(passed=6)


@pytest.mark.parametrize("source", PYTHON)
@pytest.mark.usefixtures("run_step")
def test_the_python_example_runs(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(source, "docs/ci.md", "exec"), {})  # noqa: S102 - our own documentation

    said = capsys.readouterr().out
    assert "turn 1 passed" in said or said == "passed ()\n"
