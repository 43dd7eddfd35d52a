"""Who drives a run: a dead desk is told from a living one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from evaldesk.desk.process_owner import is_owner_alive

CURRENT_OWNER = "from evaldesk.desk.process_owner import current_owner; print(current_owner(), flush=True)"


@pytest.mark.server
def test_a_process_that_ended_is_dead_though_nobody_asked_for_its_exit_code() -> None:
    with subprocess.Popen([sys.executable, "-c", CURRENT_OWNER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        mark = process.stdout.readline().strip()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert not is_owner_alive(mark)

    assert not is_owner_alive(mark)
