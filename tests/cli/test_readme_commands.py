"""Every command that the README shows does what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from evaldesk.cli import cli

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines() if line.strip()]
TARGETS = sorted({words[1] for words in COMMANDS if words[0] == "make"} | set(re.findall(r"`make (\w+)", README)))
EVALS = [words[1:] for words in COMMANDS if words[:2] == ["evaldesk", "eval"]]
OTHERS = [words[1:] for words in COMMANDS if words[0] == "evaldesk" and words[1] != "eval"]
UIS = [shlex.split(text) for text in re.findall(r"`evaldesk (ui[^`]*)`", README)]


def test_no_command_is_left_out() -> None:
    assert [words for words in COMMANDS if words[0] != "make" and words[1:] not in (*EVALS, *OTHERS)] == []
    assert {"run", "test"} <= set(TARGETS)
    assert EVALS


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", README))
def test_every_link_leads_somewhere(link: str) -> None:
    assert (CHECKOUT / link).exists()


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_in_the_makefile(target: str) -> None:
    plan = subprocess.run(["make", "--dry-run", target], cwd=CHECKOUT, capture_output=True, text=True, check=False)  # noqa: S607

    assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("arguments", EVALS[:1], ids=" ".join)
def test_an_evaluation_runs_from_the_checkout(arguments: list[str], tmp_path: Path) -> None:
    n = int(arguments[arguments.index("--n") + 1]) if "--n" in arguments else 1
    command = [sys.executable, "-m", "evaldesk", *arguments, "--workspace", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "EVALDESK_MODEL"}

    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)

    # The demo model makes mistakes on purpose: whether all trials passed is chance, that they were played is not.
    marks = Counter(re.findall(r"[✓✗!–](?= )", done.stdout))
    assert marks.total() == n * (1 if ":" in arguments[2] else 6), done.stdout + done.stderr
    assert f"{marks['✓']} of {marks['✓'] + marks['✗']} passed" in done.stdout
    assert done.returncode == (3 if marks["!"] else 1 if marks["✗"] else 0)
    plan, *others = (line for line in done.stderr.splitlines() if " done, " not in line)  # a slow run tells its way
    n_cases = 1 if ":" in arguments[2] else 6
    assert re.match(rf"{n_cases} cases? x {n} = {n_cases * n} trials?, ", plan)
    assert len(others) <= 2  # the drop that it finds, and what it is estimated by


@pytest.mark.parametrize("arguments", EVALS[1:], ids=" ".join)
@pytest.mark.usefixtures("in_process")
def test_the_other_evaluations_run_too(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALDESK_MODEL", raising=False)
    shutil.copytree(CHECKOUT / "evalsets", tmp_path / "evalsets")

    done = CliRunner().invoke(cli, arguments)

    assert done.exit_code in (0, 1, 3), done.output + repr(done.exception)
    assert "Run 1. `evaldesk open 1` shows it turn by turn." in done.output


@pytest.mark.parametrize("arguments", UIS, ids=" ".join)
def test_the_options_that_are_shown_exist(arguments: list[str]) -> None:
    shown = CliRunner().invoke(cli, [arguments[0], "--help"])

    assert shown.exit_code == 0
    assert "[DIR]..." in shown.output
    assert all(word in shown.output for word in arguments[1:] if word.startswith("-"))


def test_help_shows_only_commands_that_there_are() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output

    for name in re.findall(r"^ *evaldesk (\w+)", shown, re.MULTILINE):
        assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0


@pytest.mark.parametrize("arguments", OTHERS, ids=" ".join)
def test_the_other_commands_work_on_a_run(place: CommandFolder, arguments: list[str]) -> None:
    place.eval(place.evalset("first", {"one": "one"}))

    done = place.run(*arguments)

    assert done.exit_code == 0, done.output + repr(done.exception)


def test_the_command_that_is_installed_is_there() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, attribute = project["scripts"]["evaldesk"].partition(":")

    assert callable(getattr(import_module(module), attribute))
    assert project["requires-python"] == ">=3.11"
