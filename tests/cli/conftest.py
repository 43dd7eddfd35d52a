"""Commands in this process, with agents and trials in it too: a worker for each test would take seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaldesk.agents import load_agent
from evaldesk.cli import cli
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import ChatPlayers, InlineExecutor
from evaldesk.engine.worker.player import fault_of
from evaldesk.model import AgentDescription, AgentRef, RunConfig
from evaldesk.store import Store

SOURCE = '''
import os
from collections import Counter

seen = Counter()


def root_agent(message, session):
    """Says what it hears; `raise` raises, `flaky` is right every other time, $ECHO_WRONG and $ECHO_RAISE name more.

    By `session` it has the model and the options of the run.
    """
    seen[message] += 1
    if message.startswith("raise") or message in os.environ.get("ECHO_RAISE", "").split(","):
        raise ValueError(f"{message} was asked for")
    if message in os.environ.get("ECHO_WRONG", "").split(","):
        return "`<b>@you</b>`"
    return "no" if message == "flaky" and seen[message] % 2 == 0 else message


root_agent.tells_cost = True
'''


@dataclass(frozen=True)
class CommandFolder:
    """A folder with an agent in which commands are run."""

    folder: Path
    opened: ExitStack

    def evalset(self, name: str, answers: Mapping[str, str] | Mapping[str, str | None]) -> Path:
        """An eval set with a case for each query, named by its place: case_1, case_2, …"""
        cases = [
            {
                "eval_id": f"case_{number}",
                "conversation": [
                    {
                        "user_content": {"parts": [{"text": query}]},
                        "final_response": None if answer is None else {"parts": [{"text": answer}]},
                    }
                ],
            }
            for number, (query, answer) in enumerate(answers.items(), 1)
        ]
        path = self.folder / f"{name}.evalset.json"
        path.write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}))
        return path

    def run(self, *arguments: object) -> Result:
        """A command with its output, the two streams apart."""
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    def eval(self, *arguments: object) -> Result:
        """`evaldesk eval` on the answer alone, with the agent of the place."""
        return self.run("eval", self.agent, *arguments, "--config-file-path", self.folder / "test_config.json")

    @property
    def agent(self) -> Path:
        """The folder of the agent."""
        return next(self.folder.glob("echo_*"))

    def store(self) -> Store:
        """The database of the place, closed with it."""
        return self.opened.enter_context(Store.open(self.folder / ".evaldesk/evaldesk.db", must_exist=True))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, own_imports: None) -> None:
    """Agents are asked, and trials played, in this process."""

    async def describe(self: ChatPlayers, ref: AgentRef) -> AgentDescription:
        return load_agent(ref).describe()

    def executor(self: RunDesk, config: RunConfig) -> InlineExecutor:
        return InlineExecutor(config.concurrency)

    async def model_fault(self: ChatPlayers, ref: AgentRef, model: str) -> str:
        return fault_of(load_agent(ref), model)

    monkeypatch.setattr(ChatPlayers, "describe", describe)
    monkeypatch.setattr(ChatPlayers, "model_fault", model_fault)

    def opened(n_workers: int, concurrency: int, **_: object) -> InlineExecutor:
        return InlineExecutor(concurrency)

    monkeypatch.setattr(RunDesk, "_local_executor", executor)
    monkeypatch.setattr("evaldesk.desk.runs.case_player.LocalExecutor", opened)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None) -> Iterator[CommandFolder]:
    """A folder with an agent whose module no other test has, as the current one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / f"echo_{abs(hash(tmp_path)):x}"
    folder.mkdir()
    (folder / "agent.py").write_text(SOURCE)
    (tmp_path / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.8}}))
    with ExitStack() as opened:
        yield CommandFolder(tmp_path, opened)
