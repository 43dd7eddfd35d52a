"""A cluster of Ray on the loopback of a network namespace: a head with a CPU, and nodes that a test may kill."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

REQUIRED = "EVALDESK_REQUIRE_RAY"
INSIDE = "EVALDESK_RAY_NAMESPACE"
"""Set where the process is in a network namespace of its own: outside of one, Ray answers on the network card."""
N_TRIES = 3
MEMORY = 80_000_000


def why_not() -> str:
    """Why no cluster can be started here; empty where one can."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        return "ray is not installed: make cluster"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare and ip make the network of the cluster, and one of them is not here"
    if subprocess.run([*_unshare(), "true"], capture_output=True, check=False).returncode:
        return "this user may make no network namespace"
    return ""


def inside(*command: str) -> list[str]:
    """The command in a network namespace of its own, with a loopback."""
    return [*_unshare(), "sh", "-c", f'ip link set lo up && export {INSIDE}=1 && exec "$@"', "sh", *command]


def _unshare() -> list[str]:
    return ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]


class LocalCluster:
    """Nodes of a cluster that is up; `address` is that of its head."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.folder = folder
        self.address: str = cluster.address
        self._cluster = cluster
        self._nodes: list[Any] = []

    def add_nodes(self, n: int) -> None:
        for _ in range(n):
            node = self._cluster.add_node(
                num_cpus=1, node_ip_address="127.0.0.1", object_store_memory=MEMORY, wait=False
            )
            self._nodes.append(node)
        self._cluster.wait_for_nodes(timeout=120)

    def lose_node(self) -> None:
        """Kill a node as a machine dies: its processes get no chance to say so."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def replace_node(self) -> None:
        """Lose a node, and add another, which a busy machine may have to try again."""
        self.lose_node()
        for n_left in reversed(range(N_TRIES)):
            try:
                self.add_nodes(1)
            except Exception:
                if not n_left:
                    raise
            else:
                return

    def lose_head(self) -> None:
        """Kill the head node in the same way; the others go on for a while."""
        self._cluster.remove_node(self._cluster.head_node, allow_graceful=False)

    @property
    def n_nodes(self) -> int:
        """How many nodes there are beside the head."""
        return len(self._nodes)

    def log_texts(self) -> Iterator[tuple[Path, bytes]]:
        """Every file that the cluster wrote."""
        for path in self.folder.rglob("*"):
            with suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes()


@contextmanager
def local_cluster(n_nodes: int = 1) -> Iterator[LocalCluster]:
    """A head and `n_nodes` beside it, with a CPU each; where the machine is too busy for them, they are tried again."""
    os.environ.update(
        RAY_agent_register_timeout_ms="120000",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_health_check_period_ms="1000",
        RAY_health_check_failure_threshold="20",
        RAY_worker_niceness="0",  # with Ray's own 15 an actor gets a thirtieth of what a process beside it gets
    )
    Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)  # Ray writes an address there, wherever its folder is
    folder = Path(tempfile.mkdtemp(prefix="r", dir=tempfile.gettempdir()))  # sockets have short names
    try:
        for n_left in reversed(range(N_TRIES)):
            try:
                found = _started(folder / str(n_left), n_nodes)
                break
            except Exception:
                if not n_left:
                    raise
        try:
            yield found
        finally:
            found._cluster.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path, n_nodes: int) -> LocalCluster:
    from ray.cluster_utils import Cluster

    folder.mkdir()
    head = {
        "num_cpus": 1,
        "node_ip_address": "127.0.0.1",
        "temp_dir": str(folder),
        "include_dashboard": False,
        "no_monitor": True,  # nothing is scaled
        "object_store_memory": MEMORY,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        found = LocalCluster(cluster, folder)
        found.add_nodes(n_nodes)
    except BaseException:
        cluster.shutdown()
        raise
    return found


def processes_of(words: str) -> list[int]:
    """The processes of this namespace with these words in their command, such as those of actors."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            same = os.readlink(entry / "ns/net") == os.readlink("/proc/self/ns/net")
            if same and words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(entry.name))
    return found


def ray_address(request: pytest.FixtureRequest) -> str:
    """The address of the cluster of this session; skips the test where there is none."""
    if not os.environ.get(INSIDE):
        pytest.skip("tests on Ray are played by tests/integrations/ray/test_ray.py, in a network namespace")
    cluster: LocalCluster = request.getfixturevalue("cluster")
    return cluster.address
