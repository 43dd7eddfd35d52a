"""A folder that nobody has trusted is shown; nothing of it is imported, played or resumed by any command."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click
import httpx
import pytest
from tests.islands import of_all_tools
from tests.security.hostile_clone import Commands, marks_in, opened, settings_of

from evaldesk.agents import agent_ref, find_agents
from evaldesk.cli import cli
from evaldesk.desk.adopting import project_tools
from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.trust import NEXT_STEP, Answers, Trust, question_words
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import TrustError
from evaldesk.store import Store

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
SERVED = ("/", "/trust", "/agents", "/runs", "/runs/1", "/evalsets", "/sessions/new", "/runs/new", "/labels")

ARGUMENTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ui": (("--port", "0", "--no-open"), (".", "shop", "--port", "0", "--no-open")),
    "open": (("1", "--no-open"),),
    "eval": ((), ("samples/hello_world", "hello_world:roll_16", "--n", "1")),
    "run submit": (("missing.toml", "--yes"),),
    "run list": ((), ("--json",)),
    "run info": (("1",), ("1", "--json")),
    "run logs": (("1",),),
    "run stop": (("1",),),
    "run resume": (("1",), ("1", "--background"), ("2",)),
    "run retry": (("3",),),
    "run rescore": (("3", "--config-file-path", "test_config.json"),),
    "run export": (("3",),),
    "run rm": (("2", "--yes"),),
    "run drive": (("1",),),
    "agents": ((), ("--json",), ("shop",)),
    "doctor": ((), ("--call",), ("--repair",), ("shop",)),
    "metrics": ((), ("evil",)),
    "rubric": (("-d", "talks.jsonl", "-r", "Polite.", "--model", "demo/judge"),),
    "import": (("set.csv",),),
    "export": (("shop",), ("3",)),
    "convert": (("set.csv", "-", "--to", "adk"),),
    "validate": (("evaldesk.toml", "test_config.json", "shop.evalset.json"),),
    "mode list": ((), ("--json",)),
    "mode merge": (("a", "b"),),
    "mode undo": ((),),
    "mode export": ((), ("-o", "failures.json")),
    "mode import": (("set.csv",),),
    "mode cases": (("a",), ("a", "--into", "shop")),
    "mode check": (("1", "--max-mode", "a=0.1"),),
    "trash list": ((), ("--json",)),
    "trash restore": (("0123456789abcdef",),),
    "trash empty": (("--yes",),),
    "completion": (("bash",),),
    "benchmark": (("run_infer.py",),),
    "adopt": tuple((tool, ".", "--write") for tool in project_tools()),
    "gate explain": (("--min-pass-rate", "0.9"),),
    "inbox replay": (("1", "--yes"), ("1", "--dry-run")),
    "inbox pull": (("phoenix",),),
    "inbox listen": (("--port", "0", "--with-desk"),),  # ends with its input, which is empty
}
"""Arguments for commands, in the cloned repository; any other command is called with each of USUAL."""

USUAL: tuple[tuple[str, ...], ...] = ((), ("evil",))


REAL = frozenset({"eval", "run resume", "doctor", "benchmark"})
"""One command of each kind, which is run as a process from its first import on; the others are forked."""


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command by its words, hidden ones too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name))


def calls() -> list[tuple[str, tuple[str, ...]]]:
    """Every command with its arguments, so that a new one is under test."""
    return [(name, each) for name in commands(cli) for each in ARGUMENTS.get(name, USUAL)]


@pytest.mark.server
def test_a_forked_command_is_a_command(clone: Path, run_command: Commands) -> None:
    """The forked way would see what runs: an agent that is named leaves its mark."""
    said = run_command.forked(["eval", "shop", "shop.evalset.json", "--criterion", "response_match_score=0"], clone)

    assert "ran-shop-agent.py" in marks_in(clone), said
    assert run_command.forked(["run", "list", "--wrong"], clone) == run_command.real(["run", "list", "--wrong"], clone)


@of_all_tools
def test_every_command_is_under_test() -> None:
    assert set(commands(cli)) >= REAL
    assert set(ARGUMENTS) <= {name for name, _ in calls()} == set(commands(cli))


def marked(name: str, arguments: tuple[str, ...]) -> Any:
    """The call; one that starts with Python is a journey."""
    starts = name in ("ui", "open") or is_real(name, arguments)
    return pytest.param(name, arguments, marks=[pytest.mark.server] if starts else [])


def is_real(name: str, arguments: tuple[str, ...]) -> bool:
    """Whether the call is the one of its command that is a process from its first import on."""
    return name in REAL and arguments == ARGUMENTS.get(name, USUAL)[-1]


@pytest.mark.parametrize(("name", "arguments"), [marked(*call) for call in calls()], ids=str)
def test_nothing_of_a_cloned_repository_runs(
    name: str, arguments: tuple[str, ...], clone: Path, run_command: Commands
) -> None:
    words = [*name.split(), *arguments]

    if name in ("ui", "open"):
        look_at_all_pages([sys.executable, "-P", "-m", "evaldesk", *words])
    else:
        run = run_command.real if is_real(name, arguments) else run_command.forked
        said = run(words, clone)
        assert "Traceback" not in said, said

    assert marks_in(clone) == []
    if name not in ("run stop", "run rm"):
        with Store.open(clone / ".evaldesk" / "evaldesk.db") as store:
            assert [store.runs.summary(number).n_done for number in (1, 2, 3)] == [0, 0, 0]
            assert [store.runs.summary(number).status for number in (1, 2, 3)] == ["pending", "running", "stopped"]


def look_at_all_pages(command: list[str]) -> None:
    """Start the desk, look at its pages as a person does, and end it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout
        found = re.search(r"(http://\S+?/)(?:runs/\d+)?\?token=(\S+)", process.stdout.readline())
        assert found
        home, token = found.groups()
        headers = {"Sec-Fetch-Site": "same-origin"}
        with httpx.Client(base_url=home, headers=headers, follow_redirects=True, timeout=PATIENCE_S) as browser:
            browser.get(f"/?token={token}", headers={"Sec-Fetch-Site": "none"})
            for path in SERVED:
                assert "rust" in browser.get(path).text
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.server
@pytest.mark.parametrize("words", [(), ("shop.evalset.json",)], ids=["all", "an eval set"])
def test_pytest_runs_the_conftest_and_no_agent_that_nobody_named(words: tuple[str, ...], clone: Path) -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-q", *words]

    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    agents = {"ran-agent.py", "ran-shop-agent.py", "ran-evil.py", "ran-command"}
    assert done.returncode in (4, 5), done.stdout + done.stderr
    assert "ran-conftest.py" in marks_in(clone)
    assert not agents & set(marks_in(clone))


@pytest.mark.anyio
async def test_a_desk_takes_up_nothing_before_the_answer(clone: Path) -> None:
    desk = opened(clone)
    await desk.start()
    await desk.go_on()
    await desk.agents.wait_until_ready()

    states = {agent.id: agent.state for agent in desk.agents.list()}
    statuses = [(await desk.runs.summary(number)).status for number in (1, 2)]
    await desk.close()

    assert set(states.values()) == {"untrusted"}
    assert statuses == ["pending", "running"]
    assert marks_in(clone) == []


@pytest.mark.anyio
async def test_every_way_to_play_is_refused_with_the_next_step(clone: Path) -> None:
    desk = opened(clone)
    await desk.start()
    evil = desk.agents.get("evil")
    session = desk.sessions.create("evil")
    ways: dict[str, Callable[[], Awaitable[object]]] = {
        "chat": lambda: desk.sessions.start_turn(session.id, "Hello"),
        "resume": lambda: desk.runs.resume(1),
        "offer": lambda: desk.runs.offer(3),
        "retry": lambda: desk.runs.retry(3),
        "rescore": lambda: desk.runs.rescore(3, ()),
        "describe": lambda: desk.host.describe(evil.ref),
        "unpriced": lambda: desk.host.unpriced(evil.ref, ["a"]),
    }

    refusals = {}
    for name, way in ways.items():
        with pytest.raises(TrustError) as caught:
            await way()
        refusals[name] = str(caught.value)
    await desk.close()

    assert all("--trust" in said and "EVALDESK_TRUST=1" in said for said in refusals.values())
    assert marks_in(clone) == []


@pytest.mark.anyio
async def test_after_the_answer_everything_runs_and_it_is_kept_outside(clone: Path) -> None:
    (clone / "evaldesk.toml").unlink()
    desk = opened(clone)
    await desk.start()

    assert await desk.give_trust()
    await desk.agents.wait_until_ready()
    states = {agent.state for agent in desk.agents.list()}
    await desk.close()

    assert "untrusted" not in states
    assert "ran-agent.py" in marks_in(clone)
    assert "ran-interpreter" in marks_in(clone)
    assert Trust(settings_of(clone)).is_given
    answers = list((clone.parent / "state" / "evaldesk" / "trusted").glob("*.json"))
    assert [json.loads(path.read_text())["folder"] for path in answers] == [str(clone)]


def test_the_variable_trusts_one_process_and_keeps_nothing(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_TRUST", "1")

    assert Trust(settings_of(clone)).is_given

    monkeypatch.delenv("EVALDESK_TRUST")
    assert Trust(settings_of(clone)).is_restricted


@pytest.mark.server
def test_the_option_trusts_from_now_on(clone: Path) -> None:
    command = [sys.executable, "-P", "-m", "evaldesk", "agents", "--trust"]

    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    assert "ran-agent.py" in marks_in(clone)
    assert Trust(settings_of(clone)).is_given


def test_another_folder_at_the_same_path_is_asked_about_again(clone: Path) -> None:
    Trust(settings_of(clone)).give()
    shutil.rmtree(clone / ".evaldesk")

    assert Trust(settings_of(clone)).is_restricted


def test_a_copy_of_a_trusted_folder_is_asked_about(clone: Path) -> None:
    Trust(settings_of(clone)).give()
    copy = clone.with_name("copy")
    shutil.copytree(clone, copy)

    assert Trust(settings_of(copy)).is_restricted


def test_a_mark_or_an_answer_of_somebody_else_counts_nothing(clone: Path) -> None:
    (clone / ".evaldesk" / "owner").write_text("0" * 64)
    assert Trust(settings_of(clone)).has_foreign_runs

    Trust(settings_of(clone)).give()
    for path in (clone.parent / "state" / "evaldesk" / "trusted").glob("*.json"):
        path.chmod(0o666)
    assert Trust(settings_of(clone)).is_restricted


def test_a_named_agent_runs_and_the_others_wait(clone: Path) -> None:
    trust = Trust(settings_of(clone))
    named, other = agent_ref("shop"), agent_ref(".")

    trust.name(named)

    assert trust.allows(named)
    assert not trust.allows(other)


def test_the_question_names_the_interpreter_that_would_be_started(clone: Path) -> None:
    words = dict(question_words(Trust(settings_of(clone)).question()))

    assert words["agent clone"] == f"{clone}/agent.py, on {clone}/.venv/bin/python"


def test_the_question_names_the_commands_and_addresses_of_the_inbox(clone: Path) -> None:
    (clone / "evaldesk.toml").write_text(
        '[inbox]\non_alarm = ["sh", "-c", "cat ~/.netrc"]\nemit = "https://scores.example"\n'
        '[inbox.pull.langfuse]\nurl = "https://traces.example"\nkeys = ["PUBLIC_KEY", "GITHUB_TOKEN"]\n'
        "[inbox.pull.mlflow]\n"
    )

    words = dict(question_words(Trust(settings_of(clone)).question()))

    assert words["[inbox] on_alarm"] == "starts sh -c 'cat ~/.netrc' at an alarm"
    assert words["[inbox] emit"] == "sends scores to https://scores.example"
    assert words["[inbox.pull.langfuse]"] == (
        "pulls traces each hour from https://traces.example, with PUBLIC_KEY and GITHUB_TOKEN"
    )
    assert words["[inbox.pull.mlflow]"] == "pulls traces each hour from mlflow"


def test_the_interpreter_that_a_clone_names_plays_no_agent_from_elsewhere(clone: Path, tmp_path: Path) -> None:
    (clone / "evaldesk.toml").write_text('python = ".venv"\n')
    (tmp_path / "agent.py").write_text("def agent(message):\n    return message\n")

    with pytest.raises(TrustError, match=r"names the interpreter .* name it with --python"):
        Trust(settings_of(clone)).name(named_agent(str(tmp_path)))
    Trust(settings_of(clone)).name(named_agent("shop"))
    Trust(settings_of(clone)).name(named_agent(str(tmp_path), python="evaldesk"))


def test_an_environment_that_a_clone_names_plays_no_agent_from_elsewhere(clone: Path, tmp_path: Path) -> None:
    (clone / "evaldesk.toml").write_text('[environments.fast]\npython = ".venv"\n')
    (tmp_path / "agent.py").write_text("agent = 1\n")

    with pytest.raises(TrustError, match="names the interpreter"):
        Trust(settings_of(clone)).name(named_agent(str(tmp_path), str(clone), environment="fast"))


def test_an_empty_folder_asks_nothing_and_its_own_agents_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "mine"
    home.mkdir()
    trust = Trust(settings_of(home))
    trust.opened_store().close()
    (home / "agent.py").write_text("root_agent = None\n")

    assert not trust.is_restricted
    assert not Trust(settings_of(home)).is_restricted
    assert Trust(settings_of(home)).allows(agent_ref(str(home)))


@pytest.mark.parametrize("file", ["python/agents/shop/shop/agent.py", "evals/test_config.json", ".hidden/agent.py"])
def test_serving_the_samples_in_a_folder_that_is_not_empty_trusts_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "cloned"
    (home / file).parent.mkdir(parents=True)
    (home / file).write_text("root_agent = None\n")
    served = open_settings((), workspace=str(home))
    Trust(served).opened_store().close()
    (home / file).with_name("agent.py").write_text("root_agent = None\n")

    folder = str((home / file).parent)
    assert served.is_demo
    assert Trust(open_settings((folder,), workspace=str(home))).is_restricted
    assert not Trust(settings_of(home)).allows(agent_ref(folder))


def test_every_command_that_the_next_step_names_has_the_option() -> None:
    named = re.findall(r"`evaldesk (\w+)`", NEXT_STEP.partition("--trust of")[2])

    assert named
    for name in named:
        command = cli.get_command(click.Context(cli), name)
        assert command
        assert "--trust" in [option for each in command.params for option in each.opts]


def test_a_repository_cloned_into_a_folder_of_ones_own_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "sources"
    home.mkdir()
    Trust(settings_of(home)).opened_store().close()
    (home / "cloned" / ".git").mkdir(parents=True)
    (home / "cloned" / "agent.py").write_text("root_agent = None\n")

    desk = AgentDesk(settings_of(home), cast("Any", None), Trust(settings_of(home)))

    assert [agent.state for agent in desk.list()] == ["untrusted"]


def test_the_samples_ask_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "mine"
    home.mkdir()

    for is_demo in (False, True):  # the second finds the database of the first
        settings = open_settings((), workspace=str(home), is_demo=is_demo)
        trust = Trust(settings)
        trust.opened_store().close()

        assert settings.is_demo
        assert not trust.is_restricted
        assert trust.allows(agent_ref("samples/hello_world"))


def test_the_checkout_has_nothing_to_ask_about() -> None:
    assert not find_agents([CHECKOUT])
    assert not (CHECKOUT / "evaldesk.toml").exists()


def test_a_run_that_this_user_submitted_is_resumed_and_repaired_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "mine"
    home.mkdir()
    (home / "agent.py").write_text("root_agent = None\n")
    Trust(settings_of(home)).opened_store().close()

    trust = Trust(settings_of(home))

    assert trust.is_restricted
    trust.check_runs()
    assert trust.is_database_ours
    trust.check_repair()


def test_a_repository_does_not_take_up_what_the_desk_keeps(tmp_path: Path) -> None:
    git = [shutil.which("git") or "git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    Trust(settings_of(tmp_path)).opened_store().close()

    found = subprocess.run([*git, "status", "--porcelain", "-uall"], capture_output=True, check=True)

    assert found.stdout == b""


def test_what_came_with_a_repository_is_repaired_after_the_question(clone: Path) -> None:
    with pytest.raises(TrustError):
        Trust(settings_of(clone)).check_repair()

    Trust(settings_of(clone)).give()
    Trust(settings_of(clone)).check_repair()


def test_without_a_home_nothing_is_kept_and_nothing_breaks(tmp_path: Path) -> None:
    answers = Answers({})

    assert not answers.trust(tmp_path)
    assert not answers.is_trusted(tmp_path)
    assert not answers.mark_own(tmp_path / ".evaldesk")
