"""Scenarios that a model proposes from an agent's description of itself; a person looks at each before it is played."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaldesk.errors import ModelError, UsageError
from evaldesk.formats.adk.scenarios import scenario_id
from evaldesk.metrics.judges.options import full_name
from evaldesk.metrics.judges.panel import Task, question
from evaldesk.metrics.judges.replies import ReplyError, Scenarios, read_reply
from evaldesk.model import AgentRef, Case, EvalSet, JsonObject, ModelOptions, SessionInit, TurnRecord, TurnSpec
from evaldesk.model.evalset import for_review
from evaldesk.model.run import AgentDescription
from evaldesk.wire import to_json

if TYPE_CHECKING:
    from evaldesk.desk.chat.sessions import TurnPlayer

MAX_COUNT = 50
TIMEOUT_S = 300.0
REASON = "A model proposed this scenario; take the tag away once it is as it should be."
TASK = Task(
    """
Section AGENT describes an agent with its instruction, its tools and its sub-agents. Write conversations by which a \
person would find out whether it works: each with the first message of the user, and a plan that says what this user \
wants, knows and does until the end. Cover usual wishes, wishes that need several tools, changes of mind, missing \
details and wishes that the agent should refuse. Use only tools and facts that are in the section, or in ENVIRONMENT. \
WISHES, where it is there, says what kind of conversations are wanted. Write as many as COUNT says.
""",
    Scenarios,
)


@dataclass(frozen=True, slots=True)
class ScenarioRequest:
    """The wanted number of scenarios and, in words, their kind and the environment of the agent."""

    count: int
    instruction: str = ""
    environment_context: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise UsageError(f"count must be 1 to {MAX_COUNT}, got {self.count}", field="count")


async def propose_scenarios(
    host: TurnPlayer,
    description: AgentDescription,
    model: str,
    request: ScenarioRequest,
    options: ModelOptions = ModelOptions(),  # noqa: B008 - frozen
) -> tuple[JsonObject, ...]:
    """The scenarios of a model, at most as many as were asked for. Raises ModelError for an answer without any."""
    sections = {
        "AGENT": _agent_text(description),
        "ENVIRONMENT": request.environment_context,
        "WISHES": request.instruction,
        "COUNT": str(request.count),
    }
    texts = {name: text for name, text in sections.items() if text}
    prompt = "\n\n".join(str(message["content"]) for message in question(TASK, texts))
    agent = AgentRef("scenarios", "", kind="litellm", declared=to_json({"model": full_name(model)}).decode())
    spec = TurnSpec(secrets.token_hex(8), agent, prompt, model_options=options, timeout_s=TIMEOUT_S)
    record = TurnRecord("", ())
    async for item in host.play_turn(spec):
        record = item if isinstance(item, TurnRecord) else record
    if record.error:
        raise ModelError(record.error.message)
    try:
        reply = read_reply(record.answer, Scenarios)
    except ReplyError as error:
        raise ModelError(f"{model} gave no answer that can be read: {error}") from None
    pairs = {(each.starting_prompt.strip(), each.conversation_plan.strip()): None for each in reply.scenarios}
    return tuple(
        {"starting_prompt": prompt, "conversation_plan": plan} for prompt, plan in [*pairs][: request.count] if plan
    )


def with_scenarios(
    evalset: EvalSet, scenarios: Iterable[JsonObject], session: SessionInit | None, *, is_proposed: bool
) -> tuple[EvalSet, Sequence[str]]:
    """The eval set with a case for each scenario that it does not have, and the ids of the new cases.

    Proposed ones wait for a review.
    """
    cases = list(evalset.cases)
    ids = {case.id for case in cases}
    new_ids: list[str] = []
    for scenario in scenarios:
        case_id = scenario_id(scenario)
        if case_id in ids:
            continue
        case = Case(case_id, scenario=scenario, initial_session=session)
        cases.append(for_review(case, REASON) if is_proposed else case)
        ids.add(case_id)
        new_ids.append(case_id)
    return replace(evalset, cases=tuple(cases)), new_ids


def _agent_text(description: AgentDescription, depth: int = 0) -> str:
    lines = [
        f"{'  ' * depth}Agent {description.name}: {description.description}".rstrip(": "),
        *([f"{'  ' * depth}Instruction: {description.instruction}"] if description.instruction else []),
        *(f"{'  ' * depth}Tool {tool.name}: {tool.description}".rstrip(": ") for tool in description.tools),
        *(_agent_text(agent, depth + 1) for agent in description.sub_agents),
    ]
    return "\n".join(lines)
