"""The folder of a trial, and the commands that run in it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.agents.workspaces import open_workspace, shorten
from evaldesk.errors import UsageError


def test_a_command_has_an_environment_without_keys_and_ends_at_its_limit() -> None:
    workspace = open_workspace({"PATH": os.environ["PATH"], "OPENAI_API_KEY": "sk-1", "HOME": "/"})
    try:
        shown = workspace.run("env")
        slow = workspace.run(["sleep", "600"], timeout_s=0.05)
        given = workspace.run("cat", input="hello", env={"EXTRA": "1"})
    finally:
        workspace.close()

    assert "OPENAI_API_KEY" not in shown.output
    assert (slow.exit_code, slow.is_timeout) == (-1, True)
    assert given.output == "hello"
    with pytest.raises(UsageError, match="has ended"):
        workspace.run("true")


def test_a_session_that_keeps_the_output_open_does_not_hold_a_command_beyond_its_limit() -> None:
    workspace = open_workspace({"PATH": os.environ["PATH"]})
    command = "setsid sleep 600 & echo before $!; wait"
    try:
        tried = (workspace.run(command, timeout_s=limit) for limit in (0.2, 10, 100))  # a busy machine starts it late
        late = next(ended for ended in tried if ended.output)
        os.kill(int(late.output.split()[1]), signal.SIGKILL)  # it is there still
    finally:
        workspace.close()

    assert late.is_timeout


def test_a_file_may_not_lie_outside_of_the_workspace(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "a.txt").write_text("a")
    workspace = open_workspace({}, seed)
    try:
        assert (workspace.path / "a.txt").read_text() == "a"
        with pytest.raises(UsageError, match="outside"):
            workspace.write("../b.txt", "b")
    finally:
        workspace.close()
    with pytest.raises(UsageError, match="no folder"):
        open_workspace({}, tmp_path / "absent")


def test_long_output_is_shortened_in_the_middle() -> None:
    text = shorten("a" * 10 + "b" * 100 + "c" * 10, 20)

    assert text.startswith("a" * 10)
    assert text.endswith("c" * 10)
    assert "100 characters left out" in text


def test_a_command_does_not_outlive_its_killed_process(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from evaldesk.agents.workspaces import open_workspace\n"
        "workspace = open_workspace(os.environ)\n"
        "ran = workspace.run('sleep 600 > /dev/null 2>&1 & echo $!')\n"
        "print(ran.output.strip(), flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = os.pidfd_open(int(parent.stdout.readline()))

    parent.kill()
    parent.wait()

    assert select.select([child], [], [], 20)[0], "the command still runs"
    os.close(child)
    parent.stdout.close()


def test_links_in_a_workspace_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "criteria.json").write_text("the expected word")
    workspace = open_workspace({})
    workspace.remember()

    (workspace.path / "file.json").symlink_to(tmp_path / "criteria.json")
    (workspace.path / "folder").symlink_to(tmp_path)
    names, diff = workspace.changes()
    with pytest.raises(UsageError, match="outside of the workspace"):
        workspace.write("folder/criteria.json", "another word")
    workspace.close()

    assert (names, diff) == ([], "")
    assert (tmp_path / "criteria.json").read_text() == "the expected word"
