"""A workspace with one deleted thing of each kind, and what is in it and in its trash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree

from evaldesk.desk.trash import open_desk, trash_items
from evaldesk.durable_files import create_file
from evaldesk.formats import load_evalset, write_evalset
from evaldesk.model import AgentRef, Case, EvalSet, RunConfig, TrialResult, Turn
from evaldesk.model.evalset import case_key
from evaldesk.settings import Settings
from evaldesk.store import Store

CASES = tuple(Case(name, (Turn(name),)) for name in "abc")
WHOLE = EvalSet("calc", cases=CASES)
KINDS = ("cases", "chat", "eval set", "run")


@dataclass(frozen=True)
class State:
    """The cases of each eval set, the chats, the passed trials of each run, and the kinds in the trash."""

    sets: tuple[tuple[str, str], ...]
    chats: tuple[str, ...]
    runs: tuple[tuple[int, int], ...]
    trash: tuple[str, ...]


class TrashPlace:
    """A workspace that is brought back to its first state before each step."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._original = folder / "original"
        self.settings = Settings(self.home, (self.home,))
        (self.home / "plain").mkdir(parents=True)
        (self.home / "plain" / "agent.py").write_text("def root_agent(message):\n    return message\n")
        for name in ("calc", "pair"):
            create_file(self.home / f"{name}.evalset.json", write_evalset(WHOLE))
        Store.open(self.settings.database).close()
        with open_desk(self.settings) as desk:
            ids = {file.name: file.id for file in desk.evalsets.list()}
            desk.evalsets.trash(ids["calc"])
            desk.evalsets.cases.delete(ids["pair"], [case_key("b")])
            for title in ("kept", "deleted"):
                chat = desk.store.sessions.create("plain", title)
            desk.store.sessions.delete(chat.id)
            for _ in range(2):
                run_id = desk.store.runs.create(RunConfig(AgentRef("plain", "agent:root_agent"), "pair"), CASES)
                passed = [TrialResult(run_id, index, 0, "finished", "passed") for index in range(3)]
                desk.store.runs.record(passed)
                desk.store.runs.set_status(run_id, "finished")
            desk.store.runs.delete(run_id)
            self.items = {item.kind: item.id for item in trash_items(desk)}
        copytree(self.home, self._original)

    def reset(self) -> None:
        """Everything as it was."""
        rmtree(self.home)
        copytree(self._original, self.home)

    def state(self) -> State:
        with open_desk(self.settings) as desk:
            sets = [
                (file.name, "".join(case.id for case in load_evalset(file.path).cases)) for file in desk.evalsets.list()
            ]
            chats = [chat.title for chat in desk.store.sessions.list()]
            runs = [(run.id, run.n_passed) for run in desk.store.runs.list()]
            kinds = [item.kind for item in trash_items(desk)]
        return State(tuple(sorted(sets)), tuple(chats), tuple(sorted(runs)), tuple(sorted(kinds)))

    def command(self, *words: str) -> tuple[str, ...]:
        """An `evaldesk` command on the workspace."""
        return (*words, "--workspace", str(self.home))


FIRST = State((("pair", "ac"),), ("kept",), ((1, 3),), KINDS)
RESTORED = {
    "cases": State((("pair", "abc"),), ("kept",), ((1, 3),), ("chat", "eval set", "run")),
    "chat": State((("pair", "ac"),), ("deleted", "kept"), ((1, 3),), ("cases", "eval set", "run")),
    "eval set": State((("calc", "abc"), ("pair", "ac")), ("kept",), ((1, 3),), ("cases", "chat", "run")),
    "run": State((("pair", "ac"),), ("kept",), ((1, 3), (2, 3)), ("cases", "chat", "eval set")),
}
EMPTIED = State((("pair", "ac"),), ("kept",), ((1, 3),), ())
