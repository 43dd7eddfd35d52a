"""Values are read by several threads of a fresh process at once, as a desk does with its first page."""

from __future__ import annotations

import subprocess
import sys

SOURCE = """
import sys, threading
from evaldesk.model import AgentRef, RunConfig, TrialResult, TrialSpec
from evaldesk.wire import from_json, to_json

sys.setswitchinterval(1e-6)
text = to_json(RunConfig(AgentRef("a", "a:a"), "set"))
start = threading.Barrier(8)

def read():
    start.wait()
    assert from_json(text, RunConfig).evalset_id == "set"

threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("read")
"""


def test_threads_may_read_the_first_value_of_a_type_at_once() -> None:
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, check=False)

        assert (ended.returncode, ended.stdout) == (0, "read\n"), ended.stderr[-2000:]
