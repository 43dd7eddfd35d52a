"""`--python`, `python` in evaldesk.toml and the environment of a project, in commands, in Python and under pytest."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.forked_commands import ForkedCommands
from tests.virtual_environments import install, make_environment

from evaldesk import evaluate
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import Container
from evaldesk.pages.runs.facts import run_fingerprint
from evaldesk.settings import read_settings
from evaldesk.store import Store

pytestmark = pytest.mark.long

AGENT = """
import os, sys
import pricing

def agent(message, state):
    return f"{os.path.realpath(sys.prefix)} {pricing.VERSION}"
"""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two environments with another version of the same package each."""
    place = tmp_path_factory.mktemp("environments")
    make_environment(place / "old", pricing="1.4.0")
    make_environment(place / "new", pricing="2.0.0")
    return place


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an agent."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evalset(home: Path, environment: Path, version: str) -> Path:
    """One case, which passes where the agent runs in that environment."""
    said = {"parts": [{"text": f"{environment} {version}"}]}
    turn = {"user_content": {"parts": [{"text": "Where?"}]}, "final_response": said}
    path = home / f"{environment.name}.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "where", "eval_cases": [{"eval_id": "one", "conversation": [turn]}]}))
    (home / "test_config.json").write_text('{"criteria": {"response_match_score": 1.0}}')
    return path


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(commands: ForkedCommands) -> Command:
    """A command as a person runs it."""
    return lambda *words: commands.run(*map(str, words))


def test_the_option_wins_over_the_file_and_the_file_over_the_project(
    shop: Path, environments: Path, command: Command
) -> None:
    old, new = environments / "old", environments / "new"
    (shop / ".venv").symlink_to(old)
    cases = evalset(shop, old, "1.4.0"), evalset(shop, new, "2.0.0")
    criteria = ("--criterion", "response_match_score=1.0")

    found = command("eval", "shop", cases[0], *criteria)
    (shop / "evaldesk.toml").write_text(f'python = "{new}"\n')
    named = command("eval", "shop", cases[1], *criteria)
    given = command("eval", "shop", cases[0], *criteria, "--python", old / "bin" / "python")
    (shop / "evaldesk.toml").write_text(f'python = "{old}"\n[agents.mine]\ntarget = "shop"\npython = "{new}"\n')
    own = command("eval", "mine", cases[1], *criteria)
    ours = command("eval", "shop", cases[0], *criteria, "--python", "evaldesk")

    for done in (found, named, given, own):
        assert done.returncode == 0, done.stdout + done.stderr
    assert ours.returncode == 3
    assert "No module named 'pricing'" in ours.stdout + ours.stderr
    with Store.open(shop / ".evaldesk" / "evaldesk.db", must_exist=True) as store:
        played = [run.config.agent.python for run in reversed(store.runs.list())]
    assert played == [str(shop / ".venv/bin/python"), str(new / "bin/python"), str(old / "bin/python"), played[1]]


def test_a_run_names_an_environment_of_the_file(shop: Path, environments: Path, command: Command) -> None:
    old, new = environments / "old", environments / "new"
    (shop / "later").symlink_to(new)
    (shop / "evaldesk.toml").write_text(
        f'python = "{old}"\n[environments.next]\npython = "later"\n[environments.box]\nimage = "shop:7"\npids = 99\n'
    )
    cases, criteria = evalset(shop, new, "2.0.0"), ("--criterion", "response_match_score=1.0")

    named = command("eval", "shop", cases, *criteria, "--environment", "next")
    called = evaluate(shop / "shop", cases, criteria={"response_match_score": 1.0}, workspace=shop, environment="next")
    unknown = command("eval", "shop", cases, *criteria, "--environment", str(new))
    both = command("eval", "shop", cases, *criteria, "--environment", "next", "--python", old)
    told = command("run", "info", "1")

    assert named.returncode == 0, named.stdout + named.stderr
    assert called.config.environment == "next"
    assert called.config.agent.python == str(new / "bin/python")
    assert [unknown.returncode, both.returncode] == [2, 2]
    assert "no environment named" in unknown.stderr
    assert "there are: box, evaldesk, next" in unknown.stderr
    assert "leave python and image out" in both.stderr
    assert "environment=next" in told.stdout
    container = read_settings(shop, (), environment={}).environments["box"].container
    assert container == Container("shop:7", pids=99)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("environments = 3", "environments are tables"),
        ('[environments."a b"]\npython = "x"', "a name has letters"),
        ('[environments.evaldesk]\npython = "x"', "Evaldesk's own interpreter"),
        ("[environments.a]", "has one of python"),
        ('[environments.a]\npython = "x"\nimage = "y"', "has one of python"),
        ("[environments.a]\npython = 3", "python is a text, not 3"),
        ('[environments.a]\npython = "x"\ncpus = 2', "beside python nothing else may be said"),
        ('[environments.a]\nimage = "--privileged"', "is not the name of an image"),
        ('[environments.a]\nimage = "x"\nprivileged = true', "may have the keys"),
        ('[environments.a]\nimage = "x"\nmemory = 1', r"\[environments.a\]: memory = 1"),
    ],
)
def test_an_environment_that_cannot_be_is_refused_with_its_place(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "evaldesk.toml").write_text(table)

    with pytest.raises(UsageError, match=said):
        read_settings(tmp_path, (), environment={})


def test_evaluate_plays_there(shop: Path, environments: Path) -> None:
    new = environments / "new"
    cases = evalset(shop, new, "2.0.0")

    result = evaluate(shop / "shop", cases, criteria={"response_match_score": 1.0}, python=new)

    assert result.counts.passed == 1
    with pytest.raises(AgentError, match="No module named 'pricing'"):
        evaluate(shop / "shop", cases, criteria={"response_match_score": 1.0}, python="evaldesk")
    with pytest.raises(UsageError, match="an object stays in this process"):
        evaluate(lambda message: message, cases, python=new)
    with pytest.raises(UsageError, match="there is no interpreter at"):
        evaluate(shop / "shop", cases, python=shop / "gone")


def test_pytest_plays_in_the_environment_of_the_project(shop: Path, environments: Path) -> None:
    (shop / ".venv").symlink_to(environments / "old")
    evalset(shop, environments / "old", "1.4.0")
    words: Sequence[str] = ("-p", "no:cacheprovider", "old.evalset.json", "--evaldesk-agent", "shop", "-q")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False, cwd=shop
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("by", ["option", "ini file"])
def test_pytest_plays_on_the_interpreter_that_is_named(shop: Path, environments: Path, by: str) -> None:
    new = environments / "new"
    (shop / "named").symlink_to(new)
    (shop / "inside").mkdir()
    evalset(shop, new, "2.0.0")
    words: Sequence[str] = ("-p", "no:cacheprovider", "../new.evalset.json", "-q")
    if by == "option":
        words = (*words, "--evaldesk-agent", "../shop", "--evaldesk-python", "../named")
    else:
        (shop / "pytest.ini").write_text("[pytest]\nevaldesk_agent = shop\nevaldesk_python = named\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False, cwd=shop / "inside"
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_package_that_is_missing_there_names_the_interpreter(shop: Path, environments: Path) -> None:
    (shop / "shop" / "agent.py").write_text("from google.adk.agents import Agent\n\nroot_agent = Agent(name='a')\n")
    python = environments / "old" / "bin" / "python"

    with pytest.raises(AgentError, match=f"it needs google-adk, which {python} does not have: {python} -m pip install"):
        evaluate(shop / "shop", evalset(shop, environments / "old", ""), python=python)


def test_an_agent_of_our_own_class_says_that_litellm_is_missing(
    shop: Path, environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-of-value")
    (shop / "shop" / "agent.py").write_text(
        "from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name='a', model='openai/gpt-5-mini')\n"
    )
    python = environments / "old" / "bin" / "python"

    result = evaluate(shop / "shop", evalset(shop, environments / "old", ""), python=python)

    assert result.counts.errored == 1
    assert f"LiteLLM, which {python} does not have: {python} -m pip install litellm" in str(result[0].trials[0].error)


def test_tokens_have_their_price_where_the_environment_has_no_litellm(shop: Path, environments: Path) -> None:
    (shop / "shop" / "agent.py").write_text(
        "from evaldesk.llm import price\n\ndef agent(message):\n    return str(price('gpt-4o', 1000, 0))\n"
    )
    cases = evalset(shop, environments / "old", "")

    there, here = (evaluate(shop / "shop", cases, python=python)[0] for python in (environments / "old", None))

    said = [case.trials[0].transcript.turns[0].events[-1].text for case in (there, here)]
    assert said == ["0.0025", "0.0025"]


def test_every_door_says_which_interpreter_and_which_versions(shop: Path, environments: Path, command: Command) -> None:
    old, new = environments / "old", environments / "new"
    install(old, "openai", "1.2.3")
    (shop / "evaldesk.toml").write_text(f'python = "{old}"\n')
    cases = evalset(shop, old, "1.4.0")
    versions = f"Python {platform.python_version()}, openai 1.2.3"

    listed = command("agents")
    looked = command("doctor")
    command("eval", "shop", cases, "--criterion", "response_match_score=1.0")
    informed = command("run", "info", "1")

    assert f"played on {old}/bin/python" in listed.stdout
    assert f"loads; it names no model; played on {old}/bin/python: {versions}" in looked.stdout
    assert f"{versions}, {old}/bin/python" in informed.stdout
    (shop / "shop" / "agent.py").write_text("import nothing_of_that_name\n\nagent = print\n")
    assert f"it is played on {old}/bin/python" in command("doctor", "--workspace", shop).stdout
    assert str(new) not in looked.stdout


def test_the_fingerprint_of_a_run_holds_the_versions_and_not_the_path(
    shop: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("upgraded")
    first, copy = (make_environment(place / name, pricing="1.0.0") for name in ("first", "copy"))
    cases = evalset(shop, place / "first", "1.0.0")

    def played(python: Path) -> str:
        result = evaluate(shop / "shop", cases, criteria={"response_match_score": 1.0}, python=python)
        return run_fingerprint(result.config)

    before = played(first)
    same = played(copy)
    install(place / "first", "other", "1.0.0")
    after = played(first)

    assert before == same
    assert before != after
    assert played(first) == after


def test_agents_and_the_doctor_look_on_the_interpreter_that_is_named(
    shop: Path, environments: Path, command: Command
) -> None:
    new = environments / "new"

    listed = command("agents", "--json", "--trust", "--python", new)
    checked = command("doctor", "--play", "--python", new / "bin" / "python")
    wrong = command("doctor", "--python", "no-such-python")

    [agent] = json.loads(listed.stdout)
    assert (listed.returncode, agent["id"], str(new) in listed.stdout) == (0, "shop", True)
    assert f"{new.resolve()} 2.0.0" in checked.stdout
    assert (wrong.returncode, "no-such-python" in wrong.stderr) == (2, True)
