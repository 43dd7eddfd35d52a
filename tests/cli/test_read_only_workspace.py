"""A workspace on a read-only mount is read: by the commands that read, and by a desk; whatever writes says why not."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.forked_commands import ForkedCommands

from evaldesk.errors import WorkspaceError
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.store import Store

# A mount in a namespace of one's own is asked for: root writes into folders without permission.
UNSHARE = shutil.which("unshare") or ""
CAN_MOUNT = bool(UNSHARE) and subprocess.run([UNSHARE, "-rm", "true"], capture_output=True, check=False).returncode == 0
needs_mounts = pytest.mark.skipif(not CAN_MOUNT, reason="nobody may mount in a namespace of their own here")
AGENT = "def root_agent(message, state):\n    return message\n"
HELLO = {"parts": [{"text": "hello"}]}
EVALSET = {
    "eval_set_id": "one",
    "eval_cases": [{"eval_id": "echo", "conversation": [{"user_content": HELLO, "final_response": HELLO}]}],
}
MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
READS = (
    ("run", "list"),
    ("run", "info", "1"),
    ("run", "logs", "1"),
    ("run", "export", "1"),
    ("trash", "list"),
    ("validate", "one.evalset.json"),
)
WRITES = (
    ("eval", "agent", "one.evalset.json"),
    ("run", "rm", "1", "--yes"),
    ("trash", "empty", "--yes"),
    ("import", "other.evalset.json", "--name", "third"),
)
REMOVED = ("run", "rm", "2", "--yes")
"""So that the trash holds something."""
Mounted = Callable[..., subprocess.CompletedProcess[str]]
VISIT = """
import http.cookiejar, re, subprocess, sys, urllib.error, urllib.request
command = [sys.executable, "-m", "evaldesk", "ui", ".", "--no-open", "--port", "0"]
desk = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    found = re.search(r"(http://[^/]+/)\\?token=\\S+", desk.stdout.readline())
    visitor = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
    visitor.open(found[0]).read()
    for page in ("", "runs", "runs/1", "runs/1/cases/0/trials/0", "evalsets", "agents", "labels", "runs/new"):
        text = visitor.open(found[1] + page).read().decode()
        print(page, "This workspace is read-only." in text)
    asked = urllib.request.Request(found[1] + "runs/1/deletion", data=b"", headers={"Origin": found[1].rstrip("/")})
    try:
        visitor.open(asked)
    except urllib.error.HTTPError as error:
        print(error.code, "is read-only: it is shown, and nothing can be stored in it" in error.read().decode())
finally:
    desk.terminate()
    print("ended", desk.wait(300))
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, commands: ForkedCommands) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "agent").mkdir()
    (folder / "agent" / "agent.py").write_text(AGENT)
    for name in ("one", "other"):
        (folder / f"{name}.evalset.json").write_text(json.dumps(EVALSET | {"eval_set_id": name}))
    for command in (*[("eval", "agent", "one.evalset.json", "--criterion", "response_exact=1")] * 2, REMOVED):
        done = commands.run(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def within(folder: Path) -> list[str]:
    """Starts another command, which finds the folder on a read-only mount."""
    return [UNSHARE, "-rm", "sh", "-c", MOUNTED, str(folder)]


@pytest.fixture(scope="module")
def mounted(workspace: Path) -> Iterator[Mounted]:
    """What a command says in the workspace on a read-only mount."""
    there = ForkedCommands(within(workspace))
    yield lambda *command: there.run(*command, cwd=workspace)
    there.close()


@needs_mounts
@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_commands_that_read_answer(mounted: Mounted, command: tuple[str, ...]) -> None:
    found = mounted(*command)

    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stdout + found.stderr


@needs_mounts
@pytest.mark.parametrize("command", WRITES, ids=" ".join)
def test_commands_that_write_say_why_not(mounted: Mounted, command: tuple[str, ...]) -> None:
    found = mounted(*command)

    assert found.returncode == 2
    assert re.search(r"read-only|Read-only", found.stderr), found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.server
@needs_mounts
def test_a_desk_shows_every_page_and_stores_nothing(workspace: Path) -> None:
    visit = [*within(workspace), sys.executable, "-c", VISIT]
    found = subprocess.run(visit, capture_output=True, text=True, check=False, cwd=workspace)

    lines = found.stdout.splitlines()
    assert lines[:-2], found.stderr
    assert all(line.endswith(" True") for line in lines[:-1]), found.stdout
    assert lines[-1] == "ended 0"


def test_what_was_written_last_is_read_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evaldesk.db"
    with Store.open(path) as writer:
        run_id = writer.runs.create(RunConfig(AgentRef("a", "a:a"), "set"), [Case("c", (Turn("hi"),))])
        assert path.with_name("evaldesk.db-wal").stat().st_size
        monkeypatch.setattr("evaldesk.store.sqlite.is_read_only", lambda _: True)
        with Store.open(path) as reader:
            assert reader.is_read_only
            assert reader.runs.summary(run_id).n_cases == 1
            with pytest.raises(WorkspaceError, match="is read-only"):
                reader.runs.create(RunConfig(AgentRef("a", "a:a"), "set"), [Case("c", (Turn("hi"),))])
    with Store.open(path) as still:
        assert still.runs.summary(run_id).n_cases == 1


@pytest.mark.server
@needs_mounts
def test_an_older_database_is_named_and_not_upgraded(workspace: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(workspace, tmp_path / "old")
    with closing(sqlite3.connect(copy / ".evaldesk" / "evaldesk.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0001'")

    there = ForkedCommands(within(copy))
    found = there.run("run", "list", cwd=copy)
    there.close()

    assert found.returncode == 2
    assert "is read-only and has revision 0001 of another version" in found.stderr


@needs_mounts
def test_doctor_says_that_the_workspace_cannot_be_written(mounted: Mounted) -> None:
    found = mounted("doctor")

    assert found.returncode == 1
    assert "cannot be written" in found.stdout
    assert "evaldesk.db, 1 run" in found.stdout
