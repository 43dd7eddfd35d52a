"""A run is refused before its start for a model without a name, a key, or a price where the cost is limited."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.islands import of_tools
from tests.media_samples import picture, report, sound

from evaldesk.agents import AGENTS, AgentKind
from evaldesk.desk.runs.model_checks import check_models, check_prices
from evaldesk.desk.runs.plan import RunPlan, check_calls
from evaldesk.errors import UsageError
from evaldesk.llm import missing_keys
from evaldesk.model import AgentDescription, AgentRef, Case, Criterion, JsonObject, ModelOptions, RunConfig, Turn
from evaldesk.model.options import Recording, UserConfig
from evaldesk.run_options import BY_NAME
from evaldesk.secrets import set_variables

pytestmark = pytest.mark.anyio

PRICES = ModelOptions(price_in=1, price_out=2)
JUDGE = Criterion("rubric_based_final_response_quality_v1", 0.5, {"judge_model": "dear/judge", "rubrics": ["Kind."]})


async def unpriced(ref: AgentRef, models: Sequence[str]) -> tuple[str, ...]:
    return tuple(model for model in models if model.startswith("dear/"))


@pytest.fixture(params=list(AGENTS))
def kind(request: pytest.FixtureRequest) -> AgentKind:
    return AGENTS[request.param]


async def refusal(agent: AgentDescription, cases: Sequence[Case] = (), **config: Any) -> str:
    """Why the run is refused; empty when it may begin."""
    plan = RunPlan(RunConfig(AgentRef("shop", "a:b"), "words", **config), tuple(cases))
    try:
        await check_prices(unpriced, plan, agent)
    except UsageError as error:
        return str(error)
    return ""


async def test_an_agent_is_refused_unless_its_kind_prices_its_calls(kind: AgentKind) -> None:
    said = await refusal(AgentDescription("shop", kind.name, model="cheap/one"))

    is_known = kind.prices_calls or kind.reports_cost
    assert bool(said) != is_known
    assert is_known or f"'shop' ({kind.title})" in said


async def test_a_model_without_a_price_is_refused_in_every_kind_that_asks_one(kind: AgentKind) -> None:
    below = AgentDescription(
        "shop", kind.name, model="cheap/one", sub_agents=(AgentDescription("b", "adk", model="dear/b"),)
    )

    for agent in (AgentDescription("shop", kind.name), AgentDescription("shop", kind.name, model="dear/a"), below):
        assert bool(await refusal(agent)) != (kind.is_recording or kind.reports_cost)


async def test_a_price_that_is_said_is_enough_where_the_tokens_are_known(kind: AgentKind) -> None:
    told = AgentDescription("shop", kind.name, tells_cost=True)

    is_refused = bool(await refusal(AgentDescription("shop", kind.name), model_options=PRICES))

    assert is_refused != (kind.prices_calls or kind.counts_tokens or kind.reports_cost)
    assert not await refusal(told)
    assert not await refusal(told, model_options=PRICES)


async def test_a_kind_that_nobody_knows_is_refused() -> None:
    assert "'shop' (os:system)" in await refusal(AgentDescription("shop", "os:system", model="cheap/one"))


@of_tools("adk")
async def test_the_model_of_the_run_stands_for_those_of_the_agent() -> None:
    agent = AgentDescription("shop", "adk", model="dear/a")

    assert not await refusal(agent, model="cheap/one")
    assert "'dear/b'" in await refusal(agent, model="dear/b")


@pytest.mark.parametrize("kind", ["adk", "python", "replay"])
async def test_judges_and_simulated_users_need_a_price_with_an_agent_of_any_kind(kind: str) -> None:
    agent, user = AgentDescription("shop", kind, model="cheap/one", tells_cost=True), UserConfig(model="dear/user")
    scenario = Case("a", scenario={"starting_prompt": "Hi"})

    assert "'dear/judge'" in await refusal(agent, criteria=(JUDGE,))
    assert "'dear/user'" in await refusal(agent, (scenario,), user=user)
    assert not await refusal(agent, (Case("a"),), user=user)


async def test_only_a_strict_replay_of_calls_that_are_seen_needs_no_price(kind: AgentKind) -> None:
    agent = AgentDescription("shop", kind.name, model="dear/a")

    assert bool(await refusal(agent, recording=Recording("replay", "x"))) != (kind.prices_calls or kind.reports_cost)
    assert bool(await refusal(agent, recording=Recording("auto", "x"))) != (kind.is_recording or kind.reports_cost)


SHOP = AgentDescription("shop", "litellm", model="openai/one", variables=("PATH",))
TOLD = Case("told", scenario={"conversation_plan": "Buy a mug."})
SAID = Case("said", (Turn("hello"),))


def lack(
    agent: AgentDescription,
    case: Case = SAID,
    environment: dict[str, str] | None = None,
    folder: str = "",
    **config: Any,
) -> str:
    """What the models of the run lack; empty when it may begin. The desk has the variables of the agent, or these."""
    try:
        plan = RunPlan(RunConfig(AgentRef("shop", "a:b", folder=folder), "words", **config), (case,))
        check_models(plan, agent, dict.fromkeys(agent.variables, "1") if environment is None else environment)
    except UsageError as error:
        return f"{error.field}: {error}"
    return ""


def test_a_case_with_media_is_refused_by_name_where_its_agent_cannot_take_them(kind: AgentKind) -> None:
    agent = AgentDescription("shop", kind.name, model="openai/one", variables=("PATH",))
    for item in (picture(), sound(), report()):
        said = lack(agent, Case("seen", (Turn("hello"), Turn("look", media=(item,)))))

        assert said.startswith("cases: case 'seen', turn 2 has ") == (item.kind not in AGENTS.takes(agent))
        assert "turn 1 has" not in lack(
            replace(agent, takes=(item.kind,)), Case("seen", (Turn("look", media=(item,)),))
        )


HIDDEN = {"a2a", "adk_server", "benchmark", "command", "http"}


def test_a_replay_is_refused_where_it_cannot_answer_the_models_of_an_agent(kind: AgentKind) -> None:
    agent = AgentDescription("shop", kind.name, model="openai/one")

    said = lack(agent, recording=Recording("replay", "x"))

    assert bool(said) == (kind.name in HIDDEN)
    assert not said or f"recording = 'replay' asks no model, but those of 'shop' ({kind.title}) are asked where" in said
    assert not lack(agent, recording=Recording("auto", "x"))


def test_a_command_is_replayed_where_its_table_shows_its_model_calls() -> None:
    def refused(declared: str) -> str:
        agent = AgentRef("shop", "node shop.js", kind="command", declared=declared)
        try:
            check_calls(RunConfig(agent, "words", recording=Recording("replay", "x")), "command")
        except UsageError as error:
            return str(error)
        return ""

    assert "say model_gateway = true in its table of evaldesk.toml, or leave recording off" in refused("{}")
    assert not refused('{"model_gateway": true}')


def test_faults_are_refused_where_no_call_of_the_agent_is_seen_or_made(kind: AgentKind) -> None:
    agent = AgentDescription("shop", kind.name, model="openai/one")
    options = ModelOptions(faults=(("slow", 0.5),))

    said = lack(agent, model_options=options)

    assert bool(said) == (kind.name in HIDDEN)
    assert not said or f"those of 'shop' ({kind.title}) are not seen" in said
    assert lack(agent, model_options=options, recording=Recording("auto", "x")).startswith("faults: ")


@pytest.mark.parametrize("wrong", ["slow", "slow=0", "slow=1.5", "slow=0.6,timeout=0.6", "slow=.1,slow=.1", "late=0.1"])
def test_faults_that_cannot_be_say_which_ones_can(wrong: str) -> None:
    with pytest.raises(
        UsageError, match=r"faults: shares of calls, such as slow=0\.1, together at most 1, of rate_limit"
    ):
        BY_NAME["faults"].read(wrong)


def test_a_key_that_the_agent_misses_is_refused_and_one_that_it_has_is_not() -> None:
    assert lack(replace(SHOP, missing=("OPENAI_API_KEY",))).startswith("model: OPENAI_API_KEY is not set")
    assert not lack(SHOP)


def test_an_agent_without_a_model_is_refused_unless_the_run_names_one() -> None:
    nameless = replace(SHOP, model="")

    assert (
        lack(nameless)
        == "model: the agent 'shop' names no model; name one in its code, with --model or in the field Model"
    )
    assert not lack(nameless, model="elsewhere/one")
    assert not lack(replace(nameless, kind="http"))
    assert not lack(replace(nameless, kind="nobody knows it"))


@pytest.mark.parametrize("mode", ["replay", "auto"])
def test_a_run_that_may_answer_from_a_recording_needs_no_key(mode: Any) -> None:
    agent = replace(SHOP, model="", missing=("OPENAI_API_KEY",))

    assert not lack(agent, recording=Recording(mode), criteria=(JUDGE,), model="groq/one")


def test_an_address_of_its_own_needs_no_key_and_a_variable_that_is_named_must_be_set() -> None:
    agent = replace(SHOP, missing=("OPENAI_API_KEY",))

    assert not lack(agent, model_options=ModelOptions(base_url="http://127.0.0.1:9/v1"))
    assert not lack(agent, model="groq/one", model_options=ModelOptions(base_url="http://127.0.0.1:9/v1"))
    assert lack(SHOP, model_options=ModelOptions(api_key_env="OURS")).startswith("model: OURS is not set")
    assert not lack(replace(SHOP, variables=("OURS",)), model_options=ModelOptions(api_key_env="OURS"))


def test_a_model_of_another_provider_needs_its_key_where_the_agent_is_loaded() -> None:
    assert lack(SHOP, model="groq/one").startswith("model: GROQ_API_KEY is not set")
    assert not lack(replace(SHOP, variables=("GROQ_API_KEY",)), model="groq/one")
    assert not lack(replace(SHOP, missing=("OPENAI_API_KEY",), variables=("GROQ_API_KEY",)), model="groq/one")
    assert not lack(replace(SHOP, variables=()), model="groq/one")  # nobody looked


@pytest.mark.parametrize("model", ["bedrock/one", "azure/one", "vertex_ai/one", "ollama/one", "demo/dice", "own-name"])
def test_credentials_that_may_be_somewhere_else_are_no_reason_to_refuse(model: str) -> None:
    assert not lack(SHOP, model=model)
    assert not missing_keys(model, {})


def test_a_model_is_not_judged_by_its_name_in_a_kind_that_may_have_a_key_of_its_own(kind: AgentKind) -> None:
    assert bool(lack(replace(SHOP, kind=kind.name), model="groq/one")) == kind.asks_by_name


@of_tools("osmosis")
def test_the_model_that_a_command_names_for_an_agent_loop_needs_its_key() -> None:
    loop = replace(SHOP, kind="osmosis", model=None)

    assert lack(loop, model="groq/one").startswith("model: GROQ_API_KEY is not set")
    assert not lack(loop)  # a loop may ask no model


def test_a_key_that_litellm_was_told_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", SimpleNamespace(groq_key="told"))

    assert not missing_keys("groq/one", {})
    assert missing_keys("xai/one", {}) == ("XAI_API_KEY",)
    assert "GROQ_API_KEY" in set_variables({})


def test_a_judge_needs_its_key_only_where_it_is_asked() -> None:
    judge = Criterion(JUDGE.metric, 0.5, {**JUDGE.options, "judge_model": "groq/judge"})
    reached: JsonObject = {**judge.options, "judge_model_options": {"base_url": "http://127.0.0.1:9/v1"}}

    assert "GROQ_API_KEY is not set, so the calls of the judge 'groq/judge'" in lack(SHOP, criteria=(judge,))
    assert not lack(replace(SHOP, variables=("GROQ_API_KEY",)), criteria=(judge,))
    assert not lack(SHOP, criteria=(judge,), n_asserted={judge.metric: 0})
    assert not lack(SHOP, criteria=(replace(judge, options=reached),))


def test_the_key_of_a_judge_is_that_of_the_desk_or_of_the_agents_file(tmp_path: Path) -> None:
    judge = Criterion(JUDGE.metric, 0.5, {**JUDGE.options, "judge_model": "groq/judge"})
    inside = replace(SHOP, variables=("GROQ_API_KEY",))

    assert "GROQ_API_KEY is not set" in lack(inside, criteria=(judge,), environment={"PATH": "1"}, folder=str(tmp_path))
    assert not lack(SHOP, criteria=(judge,), environment={"GROQ_API_KEY": "1"}, folder=str(tmp_path))
    (tmp_path / ".env").write_text("GROQ_API_KEY=1\n")
    assert not lack(SHOP, criteria=(judge,), environment={"PATH": "1"}, folder=str(tmp_path))


def test_a_simulated_user_needs_a_model_and_its_key_unless_the_agent_offers_one() -> None:
    groq = UserConfig(model="groq/user")

    assert lack(SHOP, TOLD).startswith("user_model: a case has a scenario and no model plays its user")
    assert lack(SHOP, TOLD, user=groq).startswith("user_model: GROQ_API_KEY is not set")
    assert not lack(SHOP, SAID, user=groq)
    for agent in (replace(SHOP, offers_user=True), replace(SHOP, variables=("GROQ_API_KEY",))):
        assert not lack(agent, TOLD, user=groq)
    for agent in (replace(SHOP, is_demo=True), replace(SHOP, variables=("EVALDESK_USER_MODEL",))):
        assert not lack(agent, TOLD)


def test_a_scenario_without_a_plan_is_refused_before_the_start_unless_the_agent_offers_its_user() -> None:
    keyed = replace(SHOP, variables=("EVALDESK_USER_MODEL",))
    blank = Case("blank", scenario={"starting_prompt": "hi", "conversation_plan": " "})

    assert lack(keyed, blank).startswith("cases: case 'blank': the scenario has no conversation_plan; say in ")
    assert not lack(replace(keyed, offers_user=True), blank)
    assert not lack(keyed, Case("named", scenario={"starting_prompt": "hi", "user": "patient"}))


def test_live_is_refused_where_an_agent_has_no_live_sessions(kind: AgentKind) -> None:
    agent = AgentDescription("shop", kind.name, model="openai/one")

    reason = lack(agent, model_options=ModelOptions(live=True))

    assert bool(reason) == (kind.name != "adk")
    assert not reason or f"live: 'shop' ({kind.title}) has no live sessions" in reason


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"recording": Recording("record", "x")}, "recording = 'record' neither keeps nor replays"),
        ({"recording": Recording("replay", "x")}, "recording = 'replay' neither keeps nor replays"),
        ({"model_options": ModelOptions(live=True, faults=(("slow", 0.5),))}, "a live model has none"),
    ],
    ids=["record", "replay", "faults"],
)
def test_a_live_run_has_no_recording_and_no_faults(values: dict[str, Any], reason: str) -> None:
    agent = AgentDescription("shop", "adk", model="gemini-live")

    assert reason in lack(agent, **{"model_options": ModelOptions(live=True), **values})
