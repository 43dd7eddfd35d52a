"""The fixtures of executors, for the tests of hosts."""

from tests.engine.conftest import cluster, host, local, own_modules, play, trial, write_agent

__all__ = ["cluster", "host", "local", "own_modules", "play", "trial", "write_agent"]
