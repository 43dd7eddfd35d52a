"""The CPU seconds that `--cpu-by-file` gives a test."""

from __future__ import annotations

import subprocess
import sys

from tests.processor_time import cpu_s

BUSY_S = 0.1
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}: pass\nprint()\ninput()"


def test_the_time_of_child_processes_counts_while_they_run_and_after() -> None:
    before = cpu_s()

    with subprocess.Popen([sys.executable, "-ISc", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        while_it_runs = cpu_s()
        child.communicate(b"\n")

    assert while_it_runs - before >= BUSY_S / 2  # these clocks have ticks of 10 ms
    assert cpu_s() - before >= BUSY_S / 2
