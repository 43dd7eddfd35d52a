"""Workflows and graders of Osmosis, in both of their shapes. (reference/osmosis.md 3.4)"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.model_bridge import opened_bridge
from evaldesk.agents.osmosis.adapter import is_kind, prompt_messages
from evaldesk.agents.remote.message_events import MessageEvents
from evaldesk.agents.trial_context import CURRENT_TRIAL, trial_columns
from evaldesk.errors import AgentError
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session
from evaldesk.model.transcript import report
from evaldesk.wire import plain

_PROMPTS = frozenset({"system_prompt", "user_prompt", "ground_truth", "label"})


@dataclass(frozen=True, slots=True)
class WorkflowAgent:
    """A workflow, made anew for each turn, and the grader that rewards it where there is one."""

    ref: AgentRef
    workflow: Any
    workflow_config: Any = None
    grader: Any = None
    grader_config: Any = None

    def describe(self) -> AgentDescription:
        """Name and docstring of the workflow."""
        kind = self.workflow if inspect.isclass(self.workflow) else type(self.workflow)
        name = getattr(self.workflow_config, "name", None) or kind.__name__
        doc = getattr(self.workflow_config, "description", None) or inspect.getdoc(kind) or ""
        summary = str(doc).partition("\n\n")[0].replace("\n", " ")
        return AgentDescription(name=str(name), kind="osmosis", description=summary)

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the workflow, report its conversation, grade it. Exceptions of both pass through."""

        async def work(send: SendEvent) -> None:
            await self._run(session, message, send)

        async for event in events_of(work):
            yield event

    async def _run(self, session: Session, message: str, send: SendEvent) -> None:
        module = importlib.import_module("osmosis_ai.rollout.context")
        prompt = prompt_messages(session, message)
        events = MessageEvents(send, self.describe().name)
        events.skip(prompt)
        async with opened_bridge(session, events) as bridge:
            around = module.RolloutContext(
                chat_completions_url=bridge.address, api_key=bridge.key, rollout_id=session.id[:256]
            )
            with around:
                context = _built(
                    module.AgentWorkflowContext, prompt=prompt, config=self.workflow_config, metadata=_metadata()
                )
                output = await _made(self.workflow, self.workflow_config).run(context)
                samples = await _samples(around, output, module)
        events.catch_up([*prompt, *(reply for sample in samples.values() for reply in _after(sample.messages, prompt))])
        values = _reported(output)
        if self.grader is not None and CURRENT_TRIAL.get() is not None:
            values |= await self._graded(module, samples, send)
        if values:
            send(report(values))

    async def _graded(self, module: Any, samples: Mapping[str, Any], send: SendEvent) -> dict[str, Any]:
        trial = CURRENT_TRIAL.get()
        label = trial.ground_truth if trial else None
        if label is None and not _metadata():
            return {}
        fields = {"label": label, "metadata": _metadata()}
        given = {"samples": samples} if "samples" in _parameters(module.GraderContext) else {"sample": _first(samples)}
        context = _built(module.GraderContext, **fields, **given)
        await _made(self.grader, self.grader_config).grade(context)
        kept = [sample for sample in samples.values() if not getattr(sample, "remove_sample", False)]
        if not kept:
            send(Event("log", author="grader", text="the grader removed the sample: it is not to be scored"))
            return {}
        rewards = [sample.reward for sample in kept if sample.reward is not None]
        if not rewards:
            send(Event("error", error=ErrorRecord("no_reward", "the sample has no reward after grading")))
            return {}
        mean = math.fsum(map(float, rewards)) / len(rewards)
        return {"reward": mean if math.isfinite(mean) else repr(mean)}


def workflow_agent(found: object, ref: AgentRef) -> WorkflowAgent | None:
    """The agent of a workflow, of a backend, or of a server built around one. Raises AgentError."""
    if is_kind(found, "App"):
        backend = next((part for part in getattr(found, "parts", ()) if is_kind(part, "LocalBackend")), None)
        return workflow_agent(backend, ref) if backend is not None else None
    if is_kind(found, "LocalBackend"):
        part = {name: _part(found, name) for name in ("workflow", "workflow_config", "grader", "grader_config")}
        return _checked(WorkflowAgent(ref, **part)) if part["workflow"] is not None else None
    module = sys.modules[ref.target.partition(":")[0]]
    agent = WorkflowAgent(
        ref,
        found,
        _only(module, "AgentWorkflowConfig", is_class=False, but="GraderConfig"),
        _only(module, "Grader", is_class=True),
        _only(module, "GraderConfig", is_class=False),
    )
    return _checked(agent)


def _checked(agent: WorkflowAgent) -> WorkflowAgent:
    """The agent. Raises AgentError for a method that every trial would call in vain."""
    for found, method in ((agent.workflow, "run"), (agent.grader, "grade")):
        call = getattr(found, method, None)
        if not callable(call) or isinstance(inspect.getattr_static(found, method), staticmethod | classmethod):
            continue
        try:
            inspect.signature(call).bind(*(None, None) if inspect.isclass(found) else (None,))
        except TypeError as error:
            name = getattr(found, "__name__", type(found).__name__)
            raise AgentError(f"{name}.{method} must take the context, as in {method}(self, ctx): {error}") from error
    return agent


def _only(module: ModuleType, kind: str, *, is_class: bool, but: str = "") -> Any:
    """The one concrete thing of that kind in the module, None when there is none. Raises AgentError for several."""
    found = {
        id(value): value
        for value in vars(module).values()
        if inspect.isclass(value) == is_class and is_kind(value, kind) and not (but and is_kind(value, but))
    }
    own = [value for value in found.values() if not (is_class and (_is_theirs(value) or inspect.isabstract(value)))]
    if len(own) > 1:
        names = ", ".join(sorted(getattr(value, "__name__", type(value).__name__) for value in own))
        raise AgentError(f"Multiple {kind}s found in {module.__name__!r}: {names}. Keep only one in that module")
    return own[0] if own else None


def _is_theirs(kind: type) -> bool:
    return kind.__module__.startswith(("osmosis_ai.", "evaldesk.agents."))


def _part(backend: object, name: str) -> Any:
    return getattr(backend, name, None) or getattr(backend, f"_{name}", None)


def _made(found: Any, config: Any) -> Any:
    """An instance; a class is given its configuration where it takes one."""
    if not inspect.isclass(found):
        return found
    make: Callable[..., Any] = found
    return make(config) if config is not None else make()


def _built(kind: Any, **values: Any) -> Any:
    """An instance of a class whose fields differ from release to release: it gets those that it has."""
    known = _parameters(kind)
    return kind(**{name: value for name, value in values.items() if name in known})


def _parameters(kind: Any) -> Iterable[str]:
    return inspect.signature(kind).parameters


def _metadata() -> dict[str, Any]:
    columns = trial_columns()
    given = columns.get("metadata")
    return given if isinstance(given, dict) else {key: value for key, value in columns.items() if key not in _PROMPTS}


async def _samples(around: Any, output: Any, module: Any) -> dict[str, Any]:
    """The conversations that the workflow leaves, by id: returned, or registered in the older or the newer way."""
    sample_kind = (
        getattr(module, "RolloutSample", None) or importlib.import_module("osmosis_ai.rollout.types").RolloutSample
    )
    messages = output if isinstance(output, list) else getattr(output, "messages", None)
    if messages is not None:
        return {"sample": _built(sample_kind, messages=messages)}
    source = getattr(around, "sample_source", None)
    if source is not None:
        return {"sample": await _awaited(source.get_sample())}
    found: dict[str, Any] = {}
    for name, source in getattr(around, "sample_sources", {}).items():
        found[name] = await _awaited(source.get_sample(name))
    for name, agent in getattr(around, "registered_agents", {}).items():
        found[name] = _built_sample(sample_kind, name, agent.messages)
    for name, recorded in getattr(around, "recorded_samples", {}).items():
        found[name] = _built_sample(sample_kind, name, recorded)
    if not found:
        raise AgentError("the workflow returned no messages and registered no sample: there is nothing to grade")
    return found


def _built_sample(kind: Any, name: str, messages: list[Any]) -> Any:
    return _built(kind, id=name, messages=[dict(message) for message in messages])


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _after(messages: Iterable[Any], prompt: list[dict[str, Any]]) -> list[Any]:
    """The messages without the prompt, which some workflows leave out and others repeat."""
    listed = list(messages)
    return listed[len(prompt) :] if listed[: len(prompt)] == prompt else listed


def _first(samples: Mapping[str, Any]) -> Any:
    return next(iter(samples.values()), None)


def _reported(output: Any) -> dict[str, Any]:
    """The metrics that a workflow returns beside its messages."""
    metrics = getattr(output, "metrics", None)
    return {str(name): plain(value) for name, value in metrics.items()} if isinstance(metrics, Mapping) else {}
