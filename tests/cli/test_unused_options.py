"""Options that would change nothing in a variant: refused by name before any trial, since the rest is chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

import evaldesk
from evaldesk.agents import AGENTS
from evaldesk.agents.agent import CALL_OPTIONS
from evaldesk.desk.runs.model_checks import unused_options
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.errors import UsageError
from evaldesk.model import AgentDescription, AgentRef, Case, ModelOptions, RunConfig
from evaldesk.run_options import BY_NAME

ANSWERS = {f"c{at}": f"c{at}" for at in range(6)}
CRITERION = ("--criterion", "response_match_score=0.8")
HEAD = '[experiment]\nagent = "echo:echo"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
WORDS = (
    "variant 'temperature=0': no model call of the agent 'echo-echo' (Python) follows temperature; give its function a "
    "parameter `session`, which has the options of the run, or leave temperature out"
)


@pytest.fixture
def shop(place: CommandFolder) -> CommandFolder:
    """Functions of which one has a parameter for the options of the run."""
    place.evalset("shop", ANSWERS)
    (place.folder / "echo.py").write_text(
        "def echo(message):\n    return message\n\n\n"
        "def taking(message, session):\n    return message if session.model_options.temperature != 1 else 'no'\n\n\n"
        "echo.tells_cost = taking.tells_cost = True\n"
    )
    return place


def by_command(shop: CommandFolder) -> Any:
    return shop.run("eval", "echo:echo", "shop.evalset.json", *CRITERION, "--vary", "temperature=0,1")


def by_file(shop: CommandFolder) -> Any:
    (shop.folder / "trial.toml").write_text(f"{HEAD}[[variants]]\ntemperature = 0\n[[variants]]\ntemperature = 1\n")
    return shop.run("run", "play", "trial.toml")


def by_submitted_file(shop: CommandFolder) -> Any:
    (shop.folder / "trial.toml").write_text(f"{HEAD}[experiment.vary]\ntemperature = [0, 1]\n")
    return shop.run("run", "submit", "trial.toml", "--yes")


def by_python(shop: CommandFolder) -> None:
    variants = [{"temperature": 0}, {"temperature": 1}]
    evaldesk.evaluate("echo:echo", "shop.evalset.json", workspace=".", variants=variants)


DOORS: Mapping[str, Callable[[CommandFolder], Any]] = {
    "--vary": by_command,
    "run play": by_file,
    "run submit": by_submitted_file,
    "variants=": by_python,
}


def refusal(door: Callable[[CommandFolder], Any], shop: CommandFolder) -> str:
    """The words with which a door refuses its request; empty where it plays it."""
    try:
        result = door(shop)
    except UsageError as error:
        return str(error)
    return str(result.exception) if result and isinstance(result.exception, UsageError) else ""


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_option_that_the_function_does_not_take_is_refused_by_name(
    shop: CommandFolder, door: Callable[[CommandFolder], Any]
) -> None:
    assert refusal(door, shop) == WORDS
    assert not (shop.folder / ".evaldesk/evaldesk.db").exists() or shop.store().runs.list() == []


def test_a_function_with_the_session_plays_it(shop: CommandFolder) -> None:
    result = shop.run("eval", "echo:taking", "shop.evalset.json", *CRITERION, "--vary", "temperature=0,1")

    assert result.exit_code == 0, result.output
    assert "temperature=1 is worse than temperature=0" in result.output


def test_an_experiment_is_not_extended_by_it(shop: CommandFolder) -> None:
    begun = shop.run("eval", "echo:echo", "shop.evalset.json", *CRITERION, "--vary", "n=1,2", "--allow-equal")

    added = shop.run("experiment", "add", 1, "--vary", "temperature=0")

    assert begun.exit_code == 0, begun.output
    assert str(added.exception) == WORDS
    assert len(shop.store().runs.list()) == 2


def test_a_value_that_all_variants_share_is_no_difference(shop: CommandFolder) -> None:
    values = ("--vary", "temperature=0,0", "--allow-equal")

    result = shop.run("eval", "echo:echo", "shop.evalset.json", *CRITERION, *values)

    assert result.exit_code == 0, result.output


def test_a_simulated_user_that_no_case_asks_is_refused(shop: CommandFolder) -> None:
    values = ("--vary", "user_max_turns=3,5")

    result = shop.run("eval", "echo:taking", "shop.evalset.json", *CRITERION, *values)

    assert "no simulated user is asked, since no case has a scenario" in str(result.exception)


@pytest.mark.parametrize("values", [("--vary", "model=demo/a,demo/b"), ("--model", "demo/a,demo/b")])
def test_an_option_of_all_that_every_variant_replaces_is_refused(shop: CommandFolder, values: tuple[str, str]) -> None:
    agent = ("eval", "echo:taking", "shop.evalset.json", *CRITERION)
    other = ("--temperature", 0.5, "--vary", "temperature=0,1")

    for result in (
        shop.run(*agent, *other),
        shop.run(*agent, *values, "--vary", "model=demo/c,demo/d"),
        shop.run(*agent, "--model", "demo/c", "--vary", "model=demo/a,demo/b"),
    ):
        assert isinstance(result.exception, UsageError), result.output
        assert any(words in str(result.exception) for words in ("would not be played; leave it out", "varied twice"))
    variants = [{"model": "demo/a"}, {"model": "demo/b"}]
    with pytest.raises(UsageError, match="model is 'demo/c' and has another value in every variant"):
        evaldesk.evaluate("echo:taking", "shop.evalset.json", workspace=".", variants=variants, model="demo/c")


def test_an_option_of_all_that_a_variant_has_or_leaves_is_played(shop: CommandFolder) -> None:
    agent = ("eval", "echo:taking", "shop.evalset.json", *CRITERION, "--check")

    named = shop.run(*agent, "--temperature", 1, "--vary", "temperature=0,1")
    left = shop.run(*agent, "--temperature", 1, "--vary", "temperature=0,as it is")

    assert (named.exit_code, left.exit_code) == (0, 0), named.output + left.output


def names_of(kind: str, agent: AgentDescription | None = None, **config: Any) -> set[str]:
    """The options of model calls that would change nothing for an agent of the kind."""
    plan = RunPlan(RunConfig(AgentRef("a", "a:a"), "set", **config), [Case("c")])
    return {*unused_options(plan, agent or AgentDescription("a", kind))} & {*CALL_OPTIONS}


def test_every_kind_names_options_of_the_table() -> None:
    assert {*CALL_OPTIONS} <= BY_NAME.keys()
    for kind in AGENTS.builtin:
        assert {*kind.unused_options} <= {*CALL_OPTIONS}, kind.name


@pytest.mark.parametrize("kind", ["a2a", "adk_server", "agno", "claude_agent", "crewai", "replay", "smolagents"])
def test_an_agent_that_asks_its_own_models_follows_none(kind: str) -> None:
    assert names_of(kind) == {*CALL_OPTIONS}


def test_models_of_google_take_no_effort_of_litellm() -> None:
    tree = AgentDescription("a", "adk", model="gemini-2.5-flash", sub_agents=(AgentDescription("b", "LlmAgent"),))
    mixed = AgentDescription(
        "a", "adk", model="gemini-2.5-flash", sub_agents=(AgentDescription("b", "LlmAgent", model="openai/gpt-5"),)
    )

    assert names_of("adk", tree) == {"reasoning_effort", "extra"}
    assert names_of("adk", mixed) == {"extra"}
    assert names_of("adk", tree, model="openai/gpt-5") == set()
    assert names_of("adk", mixed, model="gemini-2.5-pro") == {"reasoning_effort", "extra"}
    assert names_of("adk", tree, model_options=ModelOptions(base_url="http://127.0.0.1:8000/v1")) == set()
