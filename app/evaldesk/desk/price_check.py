"""Whether a limit of cost can be kept: the models that a run asks at a price which nobody knows."""

from __future__ import annotations

from evaldesk.desk.allowed_criteria import judges_of
from evaldesk.desk.run_plan import RunPlan
from evaldesk.engine import AgentHost
from evaldesk.errors import UsageError
from evaldesk.model import AgentDescription

PRICED = frozenset({"adk", "http_chat", "langgraph", "litellm", "openai_agents", "osmosis", "pydantic_ai"})
"""Kinds of agents whose model calls are seen, and priced, here; the others say themselves what they cost."""
PLAYED = ("off", "record")


async def check_prices(host: AgentHost, plan: RunPlan, agent: AgentDescription) -> None:
    """Raise UsageError where the run will ask a model whose price is not known, so that no limit of cost can be kept.

    A run that plays recordings may ask none.
    """
    asked = _asked(plan, agent)
    unpriced = await host.unpriced(plan.config.agent, tuple(asked)) if asked else ()
    if unpriced:
        model = unpriced[0]
        raise UsageError(f"--max-cost: the price of {model!r} is not known, so its cost has no limit; {asked[model]}")


def _asked(plan: RunPlan, agent: AgentDescription) -> dict[str, str]:
    """The models whose price is not configured, each with what to do where nobody else knows it."""
    config = plan.config
    if config.recording.mode not in PLAYED:
        return {}
    judges = [judge for criterion in config.criteria for judge in judges_of(criterion)]
    asked = dict.fromkeys(judges, "name another judge, or leave --max-cost out")
    if config.user.options.prices is None and any(case.scenario for case in plan.cases):
        asked[config.user.model] = _say_it("user.options")
    if config.model_options.prices is None and agent.kind in PRICED:
        asked[config.model or agent.model or ""] = _say_it("model")
    return {model: words for model, words in reversed(asked.items()) if model}


def _say_it(table: str) -> str:
    return f"say price_in and price_out, in US dollars for a million tokens, under [{table}] in evaldesk.toml"
