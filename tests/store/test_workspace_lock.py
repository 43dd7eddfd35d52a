"""Two desks on one workspace: the second is told who holds it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.errors import WorkspaceError
from evaldesk.store import hold_workspace

HOLDER = """
import sys, signal
from pathlib import Path
from evaldesk.store import hold_workspace
hold = hold_workspace(Path(sys.argv[1]), url="http://127.0.0.1:1/")
print("held", flush=True)
signal.pause()
"""


def test_the_second_desk_is_told_who_holds_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"

    with hold_workspace(folder, url="http://127.0.0.1:8420"), pytest.raises(WorkspaceError) as caught:
        hold_workspace(folder, url="http://127.0.0.1:9000")

    assert f"{tmp_path} is held by process {os.getpid()}, http://127.0.0.1:8420" in str(caught.value)


def test_the_port_that_was_bound_can_be_written_later(tmp_path: Path) -> None:
    with hold_workspace(tmp_path, url="http://127.0.0.1:0/a/long/address") as hold:
        hold.update("http://127.0.0.1:53211")

        with pytest.raises(WorkspaceError, match=r"process \d+, http://127.0.0.1:53211;"):
            hold_workspace(tmp_path, url="")


def test_a_released_workspace_can_be_held_again(tmp_path: Path) -> None:
    hold = hold_workspace(tmp_path, url="http://127.0.0.1:1")
    hold.release()
    hold.release()

    hold_workspace(tmp_path, url="http://127.0.0.1:2").release()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WorkspaceError, match=f"process {holder.pid}, http://127.0.0.1:1/"):
            hold_workspace(tmp_path, url="")

        holder.send_signal(signal.SIGKILL)
        holder.wait()

    hold_workspace(tmp_path, url="").release()


def test_the_lock_is_private_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"
    with hold_workspace(folder, url=""):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "desk.lock")]
    (tmp_path / "desk.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(WorkspaceError, match="name another workspace"):
        hold_workspace(tmp_path, url="")

    assert modes == [0o700, 0o600]
    assert not (tmp_path / "elsewhere").exists()
