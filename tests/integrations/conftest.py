"""The fixtures of agents and commands, for the tests of all islands."""

from tests.agents.conftest import client, endpoint, loaded, own_environment, play, played, results_fixture
from tests.cli.conftest import in_process, place

__all__ = [
    "client",
    "endpoint",
    "in_process",
    "loaded",
    "own_environment",
    "place",
    "play",
    "played",
    "results_fixture",
]
