"""`image` and `[container]` in evaldesk.toml: what commands and pages say of them, and what they refuse."""

from __future__ import annotations

import json
import os
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
from evaldesk.pages.run_facts import all_facts, run_fingerprint
from evaldesk.settings import read_settings
from evaldesk.store import Store

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
