"""A variant whose model no provider has is refused before any trial, at every door, by its name and with a way out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

import evaldesk
from evaldesk import LlmAgent
from evaldesk.errors import EvaldeskError

ANSWERS = {"one": "one", "two": "two"}
FAULT = "variant 'antropic/x': the model 'antropic/x': no provider is named 'antropic'; did you mean 'anthropic'?"
FILE = (
    '[experiment]\nagent = "asking"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
    '[[variants]]\nmodel = "demo/dice"\n[[variants]]\nmodel = "antropic/x"\n'
)
COMMANDS: dict[str, list[str]] = {
    "--vary": ["eval", "asking", "shop.evalset.json", "--vary", "model=demo/dice,antropic/x"],
    "--model twice": ["eval", "asking", "shop.evalset.json", "--model", "demo/dice", "--model", "antropic/x"],
    "a plan": ["eval", "asking", "shop.evalset.json", "--vary", "model=demo/dice,antropic/x", "--check"],
    "run play": ["run", "play", "trial.toml"],
    "run submit": ["run", "submit", "trial.toml", "--yes"],
}


@pytest.fixture
def asking(place: CommandFolder) -> CommandFolder:
    """A place whose agent asks models by their names."""
    folder = place.folder / "asking"
    folder.mkdir()
    (folder / "agent.py").write_text("from evaldesk import LlmAgent\nroot_agent = LlmAgent('asking', 'demo/dice')\n")
    place.evalset("shop", ANSWERS)
    (place.folder / "trial.toml").write_text(FILE)
    return place


def n_runs(place: CommandFolder) -> int:
    """The stored runs; none without a workspace."""
    return len(place.store().runs.list()) if (place.folder / ".evaldesk/evaldesk.db").exists() else 0


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_refuses_it(asking: CommandFolder, command: list[str]) -> None:
    result = asking.run(*command)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert FAULT in str(result.exception)
    assert n_runs(asking) == 0


def test_an_experiment_is_not_extended_by_it(asking: CommandFolder) -> None:
    begun = asking.run("eval", "asking", "shop.evalset.json", "--vary", "temperature=0,1", "--n", 1)

    result = asking.run("experiment", "add", 1, "--vary", "model=antropic/x")

    assert begun.exit_code == 0, begun.output
    assert FAULT in str(result.exception)
    assert n_runs(asking) == 2


def test_a_single_run_of_it_is_refused_as_well(asking: CommandFolder) -> None:
    result = asking.run("eval", "asking", "shop.evalset.json", "--model", "antropic/x")

    assert FAULT.partition(": ")[2] in str(result.exception)
    assert n_runs(asking) == 0


def test_a_run_at_an_address_of_its_own_may_name_any_model(asking: CommandFolder) -> None:
    result = asking.run(
        "eval", "asking", "shop.evalset.json", "--model", "antropic/x", "--base-url", "http://127.0.0.1:9/v1", "--check"
    )

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("agent", ["asking", LlmAgent("asking", "demo/dice")], ids=["by name", "an object"])
def test_python_refuses_it(asking: CommandFolder, agent: Any) -> None:
    with pytest.raises(EvaldeskError, match=FAULT.replace("?", r"\?")):
        evaldesk.evaluate(
            agent, "shop.evalset.json", workspace=".", variants=[{"model": "demo/dice"}, {"model": "antropic/x"}]
        )
    assert n_runs(asking) == 0
