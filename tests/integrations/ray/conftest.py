"""The fixtures of executors and of desks that play with them, for the tests of hosts."""

from tests.desk.runs.conftest import open_desk, store
from tests.engine.conftest import cluster, host, local, own_modules, play, trial, write_agent

__all__ = ["cluster", "host", "local", "open_desk", "own_modules", "play", "store", "trial", "write_agent"]
