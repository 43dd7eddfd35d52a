"""Ways out of the sandbox: each is one thing that an agent tries, and none shows it its eval set."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.engine.escaping_agent import ATTACKS

import evaldesk
from evaldesk.desk.runs.sandboxing import sandbox_launcher
from evaldesk.engine import LocalExecutor, drive, launch, sandbox
from evaldesk.model import AgentRef, Case, Limits, RunConfig, TrialSpec, Turn
from evaldesk.settings import Settings

SOURCE = Path(__file__).with_name("escaping_agent.py")
CAN_ENTER = pytest.mark.skipif(bool(sandbox.problem()), reason="no user namespaces on this machine")
WORD = "treasure-" + "Q7XZ41KP"
CASE = {
    "eval_id": "a",
    "conversation": [{"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": WORD}]}}],
}
SET = json.dumps({"eval_set_id": "one", "eval_cases": [CASE]})


@contextmanager
def told_by(path: Path) -> Iterator[None]:
    """A program outside of the sandbox that tells the set to whoever connects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def tell() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(SET.encode())
                    connection.close()

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _git(folder: Path, *words: str) -> None:
    subprocess.run(
        [shutil.which("git") or "git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words],
        check=True,
        capture_output=True,
    )


def _laid_out(home: Path) -> Path:
    """A project with an agent, its eval set, and whatever else may hold the set."""
    project = home / "project"
    project.mkdir(parents=True)
    eval_set = project / "one.evalset.json"
    eval_set.write_text(SET)
    (project / "agent.py").write_text(SOURCE.read_text())
    _git(project, "init", "-q")
    _git(project, "add", ".")
    _git(project, "commit", "-qm", "first")
    _git(project, "bundle", "create", "-q", "all.bundle", "HEAD")
    _git(home, "clone", "-q", "--bare", str(project), str(project / "backup.git"))
    (project / "link.json").symlink_to(eval_set)
    (project / "folder_link").symlink_to(project)
    os.link(eval_set, project / "hard.dat")
    os.link(eval_set, project / "hard_code.py")
    for copy in ("copied_code.py", "__pycache__/notes.json", "__pycache__/notes.cpython-311.pyc"):
        (project / copy).parent.mkdir(exist_ok=True)
        (project / copy).write_text(SET)
    for copy in ("node_modules/data.json", ".evaldesk/trash/one.evalset.json"):
        (project / copy).parent.mkdir(parents=True, exist_ok=True)
        (project / copy).write_text(SET)
    for store in (".hg/store/data/one.i", ".jj/repo/store/git/objects/ab/cdef"):
        (project / store).parent.mkdir(parents=True)
        (project / store).write_bytes(zlib.compress(SET.encode()))
    with zipfile.ZipFile(project / "old.zip", "w") as archive:
        archive.writestr("one.json", SET)
    return project


def _shown_to_agent(folder: Path, isolation: str) -> dict[str, bool]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        home = folder / "home"
        project = _laid_out(home)
        outside = folder / "run"
        sockets = {
            "XDG_RUNTIME_DIR": outside / "user" / "systemd" / "private",
            "TMUX": outside / "tmux" / "default",
            "DOCKER_HOST": outside / "docker.sock",
            "SSH_AUTH_SOCK": outside / "ssh" / "agent.1",
        }
        for path in sockets.values():
            stack.enter_context(told_by(path))
        patch.setenv("XDG_RUNTIME_DIR", str(outside / "user"))
        patch.setenv("TMUX", f"{sockets['TMUX']},1,0")
        patch.setenv("DOCKER_HOST", f"unix://{sockets['DOCKER_HOST']}")
        patch.setenv("SSH_AUTH_SOCK", str(sockets["SSH_AUTH_SOCK"]))
        patch.setenv("TMPDIR", str(outside))
        patch.setenv("EVALDESK_TRUST", "1")
        patch.setenv("HOME", str(home))
        patch.chdir(project)
        [trial] = evaldesk.evaluate(".", "one.evalset.json", isolation=isolation, workspace=".").trials
        assert trial.transcript
        assert trial.transcript.turns, trial.error
        shown: dict[str, bool] = json.loads(trial.transcript.turns[0].answer)
        return shown


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    return _shown_to_agent(tmp_path_factory.mktemp("s"), "sandbox")


@CAN_ENTER
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_agent_in_a_sandbox_does_not_read_its_eval_set_by(attack: str, shown: dict[str, bool]) -> None:
    assert not shown[attack]


@pytest.mark.long
@pytest.mark.skipif(not sandbox.has_bubblewrap(), reason="no bubblewrap on this machine")
def test_no_attack_shows_the_eval_set_to_an_agent_in_a_sandbox_of_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "sandbox_problem", lambda: "forbidden here")

    shown = _shown_to_agent(tmp_path, "sandbox")

    assert [name for name, is_shown in shown.items() if is_shown] == []


@pytest.mark.long
def test_the_attacks_show_the_eval_set_to_an_agent_without_a_sandbox(tmp_path: Path) -> None:
    """Most of them are right: an attack that fails everywhere shows nothing."""
    shown = _shown_to_agent(tmp_path, "process")

    assert sum(shown.values()) >= 28


READER = """
from pathlib import Path


def root_agent(message):
    try:
        return Path(__file__).with_name("one.evalset.json").read_text()
    except OSError:
        return "nothing"
"""


@CAN_ENTER
@pytest.mark.anyio
async def test_an_eval_set_that_is_saved_while_a_run_is_played_is_hidden_from_its_later_trials(tmp_path: Path) -> None:
    """The kernel takes the cover of a file away where another file is put in its place."""
    (tmp_path / "agent.py").write_text(READER)
    eval_set = tmp_path / "one.evalset.json"
    eval_set.write_text(SET)
    agent = AgentRef("a", "agent:root_agent", root=str(tmp_path), folder=str(tmp_path))
    launcher = sandbox_launcher(Settings(tmp_path, ()), RunConfig(agent, "", isolation="sandbox"))
    executor = LocalExecutor(1, 1, launcher=launcher, isolation="sandbox")

    async def answer(trial: int) -> str:
        spec = TrialSpec(1, 0, trial, Case("c", (Turn("hi"),)), agent, (), Limits(60))
        [result] = [result async for result in drive([spec], executor, 1)]
        return result.transcript.turns[0].answer

    try:
        before, is_forked = [await answer(0), await answer(1)], bool(executor.zygote_pid)
        (tmp_path / "saved").write_text(SET)
        (tmp_path / "saved").replace(eval_set)
        after = [await answer(2), await answer(3)]
    finally:
        await executor.close()

    assert is_forked, executor.unforked
    assert before + after == ["nothing"] * 4
