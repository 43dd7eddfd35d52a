"""A cloned repository that its author made to run code, and two ways to run a command in it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conversations import put_conversation
from tests.forked_commands import ForkedCommands

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.runs import WAITING
from evaldesk.desk.trust import Trust
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.model.inbox import VERDICT, InboxScore
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store

RUNS_CODE = "import pathlib; pathlib.Path({place!r}, 'ran-{name}').touch()\n"


@dataclass
class Commands:
    """The two ways to run a command, as a person would in `folder`; each gives its error output."""

    commands: ForkedCommands

    def forked(self, words: Sequence[str], folder: Path) -> str:
        said = self.commands.run(*words, cwd=folder).stderr
        assert not any(path in ("", ".") or path.startswith(str(folder)) for path in self.commands.searched)
        return said

    def real(self, words: Sequence[str], folder: Path) -> str:
        command = [sys.executable, "-P", "-m", "evaldesk", *words]
        return subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        ).stderr


@pytest.fixture(scope="module")
def run_command(commands: ForkedCommands) -> Commands:
    return Commands(commands)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that its author made to run code on the machine of the person who clones it, beside its copy."""
    place = tmp_path_factory.mktemp("hostile")
    home = place / "clone"
    for name in ("shop", "evaldesk", "rollouts"):
        (home / name).mkdir(parents=True)
    with Store.open(home / ".evaldesk" / "evaldesk.db") as store:
        for driver, status in ((WAITING, "pending"), ("999999 gone 1", "running"), ("", "stopped")):
            config = RunConfig(agent=AgentRef("evil", ""), evalset_id="shop", n=1)
            run_id = store.runs.create(config, [Case("one", turns=(Turn("Hello"),))], driver)
            store.runs.set_status(run_id, cast("Any", status))
    write_hostile_files(home, place)
    shutil.copytree(home, place / "pristine")
    return place


@pytest.fixture
def clone(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of it at the same path, for a user who has answered no question yet."""
    home = repository / "clone"
    for left in repository.iterdir():
        if left.name != "pristine":
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    shutil.copytree(repository / "pristine", home)
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(repository / "state"))
    monkeypatch.chdir(home)
    return home


def write_hostile_files(home: Path, marks: Path) -> None:
    """All files that run code when they are imported or played; each leaves a mark."""

    def code(name: str) -> str:
        return RUNS_CODE.format(place=str(marks), name=name)

    for path in ("agent.py", "shop/agent.py", "evil.py", "conftest.py", "sitecustomize.py", "click.py", "starlette.py"):
        (home / path).write_text(code(path.replace("/", "-")) + "root_agent = lambda message, state: 'hello'\n")
    (home / "evaldesk" / "__init__.py").write_text(code("evaldesk"))
    interpreter = home / ".venv" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\ntouch {marks}/ran-interpreter\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    command = json.dumps(shlex.join([sys.executable, "-c", code("command")]))
    alarm = json.dumps([sys.executable, "-c", code("alarm")])
    (home / "evaldesk.toml").write_text(
        f'models = ["demo/scripted"]\n[agents.evil]\ncommand = {command}\n[metrics]\nevil = "evil:root_agent"\n'
        f'[inbox]\non_alarm = {alarm}\nemit = "http://127.0.0.1:9"\n[inbox.score]\ncriteria = {{ turn_count = 5 }}\n'
        f'[inbox.pull.phoenix]\nurl = "http://127.0.0.1:9"\n'
    )
    with Store.open(home / ".evaldesk" / "evaldesk.db") as store:
        for number in range(15):  # the alarm rings
            scored = put_conversation(store, f"question {number}", ending="closed")
            store.inbox.record_scores({scored: [InboxScore(VERDICT, None, False, "", "sample")]})
    (home / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:9\n")
    (home / "test_config.json").write_text('{"criteria": {"evil": 0.5}}')
    (home / "set.csv").write_text("question,answer\nHello,Hi\n")
    (home / "talks.jsonl").write_text('{"solution_str": "Hello"}\n')
    cases = [{"eval_id": "one", "conversation": [{"user_content": {"parts": [{"text": "Hello"}]}}]}]
    (home / "shop.evalset.json").write_text(json.dumps({"eval_set_id": "shop", "eval_cases": cases}))
    with Store.open(home / ".evaldesk" / "evaldesk.db") as store:
        settings = read_settings(home, (home,), environment={})
        ref = next(ref for ref in Trust(settings).question().agents if ref.id == "evil")

        for run in store.runs.list():
            change_agent(store, run.id, ref)


def change_agent(store: Store, run_id: int, ref: AgentRef) -> None:
    """Let a stored run be one of this agent."""
    from sqlalchemy import update

    from evaldesk.store.tables.runs import RUN
    from evaldesk.wire import to_json

    config = replace(store.runs.summary(run_id).config, agent=ref)
    with store._database.writing() as connection:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(config=to_json(config).decode()))


def marks_in(clone: Path) -> list[str]:
    """The things that ran."""
    return sorted(path.name for path in clone.parent.glob("ran-*"))


def settings_of(home: Path) -> Settings:
    return read_settings(home, (home,), environment=os.environ)


def opened(home: Path) -> Desk:
    return Desk.open(settings_of(home))
