"""Agents of Osmosis: `RolloutAgentLoop`, and `AgentWorkflow` with its `Grader`. (reference/osmosis.md section 3)

The package `osmosis_ai` is used where it is installed, otherwise its stand-in.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, cast

from evaldesk.agents.agent import Agent, summary_of
from evaldesk.agents.artifacts import MAX_ARTIFACT, artifact_event
from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.message_events import MessageEvents
from evaldesk.agents.model_bridge import open_bridge
from evaldesk.agents.own.model_calls import ask_and_report, reply_usage
from evaldesk.agents.tools.time_limit import TOOL_LIMIT
from evaldesk.agents.trial_context import CURRENT_TRIAL, trial_columns
from evaldesk.errors import AgentError
from evaldesk.llm import model_fault
from evaldesk.llm.retry_events import note_unseen
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, JsonObject, Session, ToolDescription
from evaldesk.model.chat import chat_messages, user_messages
from evaldesk.model.transcript import ARTIFACTS, report
from evaldesk.wire import plain_json, plain_object

DEFAULT_MAX_TURNS = 10
MAX_TOKENS_TOTAL = 4096  # the argument that the original gives to every evaluation

_PACKAGES = frozenset({"osmosis_ai", "evaldesk"})
_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def adapt(candidate: object, ref: AgentRef) -> Agent | None:
    """The agent around a loop, a workflow, a backend with a workflow, or a server of these; None for anything else.

    Raises AgentError for a class that cannot be instantiated, and for a workflow with several graders.
    """
    if is_kind(candidate, "App"):
        [candidate] = cast("Any", candidate).parts
    if is_kind(candidate, "RolloutAgentLoop"):
        return LoopAgent(_instance(candidate), ref)
    if is_kind(candidate, "LocalBackend"):
        part = {name: _part(candidate, name) for name in ("workflow", "workflow_config", "grader", "grader_config")}
        return _check_methods(WorkflowAgent(ref, **part)) if part["workflow"] is not None else None
    return _workflow_agent(candidate, ref) if is_kind(candidate, "AgentWorkflow") else None


def is_kind(candidate: object, name: str) -> bool:
    """Whether `candidate` is an instance or a subclass of a class `name` in `osmosis_ai` or its stand-in."""
    kind = candidate if inspect.isclass(candidate) else type(candidate)
    return any(base.__name__ == name and base.__module__.partition(".")[0] in _PACKAGES for base in kind.__mro__)


@dataclass(frozen=True, slots=True)
class LoopAgent:
    """An agent loop. One instance serves all trials, as in the original."""

    loop: Any
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """Name, docstring, and the tools for an empty request; without a model, as `ctx.chat` calls the run's model."""
        name = getattr(self.loop, "name", None)
        return AgentDescription(
            name=name if isinstance(name, str) else self.ref.id,
            kind="osmosis",
            description=summary_of(type(self.loop)),
            model="",
            tools=tuple(_description(tool) for tool in self._default_tools()),
        )

    def model_fault(self, model: str) -> str:
        """The reason why no provider can answer for `model`."""
        return model_fault(model)

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the loop on the conversation so far. Raises ModelError, AgentError, and the exceptions of the loop."""
        note_unseen("state")
        return events_of(lambda send: self._run(session, message, send))

    async def _run(self, session: Session, message: str, send: SendEvent) -> None:
        TOOL_LIMIT.set(session.limits.tool_timeout_s)
        package = importlib.import_module("osmosis_ai.rollout")
        request = package.RolloutRequest(**request_values(session, message))
        tools = list(self.loop.get_tools(request))
        events = MessageEvents(send, self.loop.name)
        events.skip(request.messages)
        client = ModelClient(session, [tool_schema(tool) for tool in tools], events, package)
        result = await self.loop.run(package.RolloutContext(request=request, tools=tools, llm=client))
        events.catch_up(result.final_messages)
        if result.reward is not None:
            send(report({"reward": plain_json(result.reward)}))
        if result.status != "COMPLETED":
            reason = result.error_message or "the agent loop ended with an error and no message"
            send(Event("error", error=ErrorRecord("rollout_error", str(reason))))
        elif result.finish_reason == "max_turns":
            reason = f"{self.loop.name} reached max_turns ({request.max_turns}) without an answer"
            send(Event("error", error=ErrorRecord("max_turns", reason)))

    def _default_tools(self) -> Sequence[Any]:
        """The tools for an empty request; none if the loop needs messages."""
        try:
            package = importlib.import_module("osmosis_ai.rollout")
            return list(self.loop.get_tools(package.RolloutRequest(**request_values(Session("describe"), ""))))
        except Exception:
            return ()


@dataclass(slots=True)
class ModelClient:
    """The client behind `ctx.chat`: calls the model of the run, and sends the events of each call."""

    session: Session
    tools: Sequence[JsonObject]
    events: MessageEvents
    package: Any
    n_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: float = 0.0

    async def chat_completions(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Call the model once, with options of a chat completion. Raises ModelError."""
        tools = options.pop("tools", self.tools)
        reply, message = await ask_and_report(self.session, self.events, messages, tools, options)
        usage = reply.usage
        self.n_calls += 1
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.duration_ms += usage.duration_ms
        return self.package.CompletionsResult(
            message=message, token_ids=[], logprobs=[], usage=reply_usage(reply), finish_reason=reply.finish_reason
        )

    def get_metrics(self) -> Any:
        """The tokens, calls and latency so far."""
        return self.package.RolloutMetrics(
            llm_latency_ms=self.duration_ms,
            num_llm_calls=self.n_calls,
            prompt_tokens=self.tokens_in,
            response_tokens=self.tokens_out,
        )


def request_values(session: Session, message: str) -> dict[str, Any]:
    """The fields of a rollout request, as `osmosis eval` fills them from a row."""
    trial = CURRENT_TRIAL.get()
    options = session.model_options
    row, run = (trial.case_index, trial.trial_index) if trial else (0, 0)
    params = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    metadata = {
        "ground_truth": (trial.ground_truth if trial else None) or "",
        "row_index": row,
        **{key: value for key, value in trial_columns().items() if key not in {"system_prompt", "user_prompt"}},
        "execution_mode": "eval",
        "run_index": run,
    }
    return {
        "rollout_id": f"eval-{row}-run-{run}",
        "server_url": "http://local-rollout.local",
        "messages": prompt_messages(session, message),
        "max_turns": options.max_turns or DEFAULT_MAX_TURNS,
        "max_tokens_total": MAX_TOKENS_TOTAL,
        "completion_params": {name: value for name, value in params.items() if value is not None},
        "metadata": metadata,
    }


def prompt_messages(session: Session, message: str) -> list[dict[str, Any]]:
    """The row's system prompt, the conversation so far, and the new message; none of these that the row lacks."""
    system = trial_columns().get("system_prompt")
    first = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    before = [dict(earlier) for earlier in chat_messages(session.turns)]
    return [*first, *before, *map(dict, user_messages(message, session.media))]


def tool_schema(tool: Any) -> JsonObject:
    """The JSON schema of a tool for the model. Raises AgentError for an invalid name or parameters."""
    schema = tool.model_dump(exclude_none=True) if hasattr(tool, "model_dump") else tool
    function = schema.get("function", {}) if isinstance(schema, Mapping) else {}
    name, parameters = str(function.get("name", "")), function.get("parameters", {})
    if not _TOOL_NAME.fullmatch(name):
        raise AgentError(f"Tool validation error: the tool name {name!r} must match {_TOOL_NAME.pattern}")
    if parameters.get("type", "object") != "object":
        raise AgentError(f"Tool validation error: the parameters of {name} must be of type object")
    return dict(schema)


def _description(tool: Any) -> ToolDescription:
    function: Any = tool_schema(tool)["function"]
    return ToolDescription(function["name"], function.get("description", ""), function.get("parameters", {}))


def _instance(candidate: Any) -> Any:
    if not inspect.isclass(candidate):
        return candidate
    try:
        return candidate()
    except Exception as error:
        raise AgentError(f"Cannot instantiate '{candidate.__name__}': {type(error).__name__}: {error}") from error


_PROMPTS = frozenset({"system_prompt", "user_prompt", "ground_truth", "label"})


@dataclass(frozen=True, slots=True)
class WorkflowAgent:
    """A workflow, instantiated for each turn, and its grader, if any."""

    ref: AgentRef
    workflow: Any
    workflow_config: Any = None
    grader: Any = None
    grader_config: Any = None

    def describe(self) -> AgentDescription:
        """Name and docstring of the workflow."""
        kind = self.workflow if inspect.isclass(self.workflow) else type(self.workflow)
        name = getattr(self.workflow_config, "name", None) or kind.__name__
        summary = getattr(self.workflow_config, "description", None) or summary_of(kind)
        return AgentDescription(name=str(name), kind="osmosis", description=str(summary))

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Run the workflow, report its conversation, grade it. Exceptions of both pass through."""
        note_unseen("state")
        return events_of(lambda send: self._run(session, message, send))

    async def _run(self, session: Session, message: str, send: SendEvent) -> None:
        module = importlib.import_module("osmosis_ai.rollout.context")
        prompt = prompt_messages(session, message)
        events = MessageEvents(send, self.describe().name)
        events.skip(prompt)
        async with open_bridge(session, events) as bridge:
            rollout = module.RolloutContext(
                chat_completions_url=bridge.address, api_key=bridge.key, rollout_id=session.id[:256]
            )
            with rollout, TemporaryDirectory(prefix="evaldesk-artifacts-") as folder:
                artifacts = Path(folder)
                context = _build(
                    module.AgentWorkflowContext,
                    prompt=prompt,
                    config=self.workflow_config,
                    metadata=_metadata(),
                    artifacts_dir=artifacts,
                )
                output = await _instance_with_config(self.workflow, self.workflow_config).run(context)
                samples = await _samples(rollout, output, module)
                events.catch_up(
                    [
                        *prompt,
                        *(reply for sample in samples.values() for reply in _new_messages(sample.messages, prompt)),
                    ]
                )
                values = _output_metrics(output)
                if self.grader is not None and CURRENT_TRIAL.get() is not None:
                    values |= await self._grade(module, samples, artifacts, send)
                for event in _artifact_events(artifacts):
                    send(event)
        if values:
            send(report(values))

    async def _grade(self, module: Any, samples: Mapping[str, Any], artifacts: Path, send: SendEvent) -> dict[str, Any]:
        trial = CURRENT_TRIAL.get()
        label = trial.ground_truth if trial else None
        if label is None and not _metadata():
            return {}
        fields = {"label": label, "metadata": _metadata()}
        sample = next(iter(samples.values()), None)
        context = _build(module.GraderContext, **fields, samples=samples, sample=sample, artifacts_dir=artifacts)
        await _instance_with_config(self.grader, self.grader_config).grade(context)
        scored_samples = [sample for sample in samples.values() if not getattr(sample, "remove_sample", False)]
        if not scored_samples:
            send(Event("log", author="grader", text="the grader removed the sample: it is not to be scored"))
            return {}
        rewards = [sample.reward for sample in scored_samples if sample.reward is not None]
        if not rewards:
            send(Event("error", error=ErrorRecord("no_reward", "the sample has no reward after grading")))
            return {}
        mean = math.fsum(map(float, rewards)) / len(rewards)
        return {"reward": mean if math.isfinite(mean) else repr(mean)}


MAX_ARTIFACTS = 50
"""Artifacts that a trial keeps."""


def _artifact_events(folder: Path) -> Iterator[Event]:
    """A line of log for each file in the folder of artifacts, with its text; that of bytes alone has its size."""
    home = folder.resolve()
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.resolve().is_relative_to(home))
    for path in paths[:MAX_ARTIFACTS]:
        with path.open("rb") as file:
            head = file.read(4 * MAX_ARTIFACT)
        yield artifact_event(path.relative_to(folder).as_posix(), head, path.stat().st_size)
    if len(paths) > MAX_ARTIFACTS:
        yield Event("log", author=ARTIFACTS, text=f"and {len(paths) - MAX_ARTIFACTS} more artifacts")


def _workflow_agent(workflow: object, ref: AgentRef) -> WorkflowAgent:
    """The agent of a workflow, with the configuration and grader of its module. Raises AgentError."""
    module = sys.modules[ref.target.partition(":")[0]]
    agent = WorkflowAgent(
        ref,
        workflow,
        _only_of_kind(module, "AgentWorkflowConfig", is_class=False, but="GraderConfig"),
        _only_of_kind(module, "Grader", is_class=True),
        _only_of_kind(module, "GraderConfig", is_class=False),
    )
    return _check_methods(agent)


def _check_methods(agent: WorkflowAgent) -> WorkflowAgent:
    """The agent, after a check of the signatures of `run` and `grade`. Raises AgentError."""
    for part, method in ((agent.workflow, "run"), (agent.grader, "grade")):
        call = getattr(part, method, None)
        if not callable(call) or isinstance(inspect.getattr_static(part, method), staticmethod | classmethod):
            continue
        try:
            inspect.signature(call).bind(*(None, None) if inspect.isclass(part) else (None,))
        except TypeError as error:
            name = getattr(part, "__name__", type(part).__name__)
            raise AgentError(f"{name}.{method} must take the context, as in {method}(self, ctx): {error}") from error
    return agent


def _only_of_kind(module: ModuleType, kind: str, *, is_class: bool, but: str = "") -> Any:
    """The only concrete class or object of that kind in the module, None without one. Raises AgentError for several."""
    values_by_id = {
        id(value): value
        for value in vars(module).values()
        if inspect.isclass(value) == is_class and is_kind(value, kind) and not (but and is_kind(value, but))
    }
    own = [
        value
        for value in values_by_id.values()
        if not (is_class and (_is_kit_class(value) or inspect.isabstract(value)))
    ]
    if len(own) > 1:
        names = ", ".join(sorted(getattr(value, "__name__", type(value).__name__) for value in own))
        raise AgentError(f"Multiple {kind}s found in {module.__name__!r}: {names}. Keep only one in that module")
    return own[0] if own else None


def _is_kit_class(kind: type) -> bool:
    return kind.__module__.startswith(("osmosis_ai.", "evaldesk.integrations."))


def _part(backend: object, name: str) -> Any:
    return getattr(backend, name, None) or getattr(backend, f"_{name}", None)


def _instance_with_config(part: Any, config: Any) -> Any:
    """An instance; a class gets its configuration, if there is one."""
    if not inspect.isclass(part):
        return part
    make: Callable[..., Any] = part
    return make(config) if config is not None else make()


def _build(kind: Any, **values: Any) -> Any:
    """An instance of a class from the values it has parameters for; they differ between releases."""
    parameters = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in values.items() if name in parameters})


def _metadata() -> dict[str, Any]:
    columns = trial_columns()
    metadata = columns.get("metadata")
    return (
        metadata
        if isinstance(metadata, dict)
        else {key: value for key, value in columns.items() if key not in _PROMPTS}
    )


async def _samples(rollout: Any, output: Any, module: Any) -> dict[str, Any]:
    """The conversations of the workflow by id: returned, or registered in the older or the newer way."""
    sample_kind = (
        getattr(module, "RolloutSample", None) or importlib.import_module("osmosis_ai.rollout.types").RolloutSample
    )
    messages = output if isinstance(output, list) else getattr(output, "messages", None)
    if messages is not None:
        return {"sample": _build(sample_kind, messages=messages)}
    source = getattr(rollout, "sample_source", None)
    if source is not None:
        return {"sample": await _await_value(source.get_sample())}
    samples: dict[str, Any] = {}
    for name, source in getattr(rollout, "sample_sources", {}).items():
        samples[name] = await _await_value(source.get_sample(name))
    messages_by_name = {name: agent.messages for name, agent in getattr(rollout, "registered_agents", {}).items()}
    for name, messages_of_sample in (messages_by_name | getattr(rollout, "recorded_samples", {})).items():
        samples[name] = _build(sample_kind, id=name, messages=[dict(message) for message in messages_of_sample])
    if not samples:
        raise AgentError("the workflow returned no messages and registered no sample: there is nothing to grade")
    return samples


async def _await_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _new_messages(messages: Iterable[Any], prompt: list[dict[str, Any]]) -> list[Any]:
    """The messages without the prompt; some workflows repeat it."""
    items = list(messages)
    return items[len(prompt) :] if items[: len(prompt)] == prompt else items


def _output_metrics(output: Any) -> dict[str, Any]:
    """The metrics in the output of a workflow."""
    return plain_object(getattr(output, "metrics", None))
