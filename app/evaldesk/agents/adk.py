"""Agents of Google's ADK, played by google-adk's own runner with its services in memory."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaldesk.agents.adk_loading import app_of, part_of, reset_data_of, yaml_agent
from evaldesk.agents.finding import FACTORY
from evaldesk.agents.frameworks import is_from
from evaldesk.agents.tool_limit import TOOL_LIMIT
from evaldesk.llm import model_error
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, ModelOptions, Session
from evaldesk.wire import to_json

if TYPE_CHECKING:
    from evaldesk.agents.adk_factory import MadeAgent


def adapt_any(found: object, ref: AgentRef) -> AdkAgent | MadeAgent | None:
    """As `adapt`, and the agent that a `get_agent_async` makes."""
    if callable(found) and ref.target.endswith(f":{FACTORY}"):
        from evaldesk.agents.adk_factory import MadeAgent

        return MadeAgent(found, ref)
    return adapt(found, ref)


def adapt(found: object, ref: AgentRef) -> AdkAgent | None:
    """The agent around a BaseAgent, a workflow or an App of google-adk; None for anything else."""
    if found is None and ref.kind == "adk":
        found = yaml_agent(ref)
    if not is_from(found, "google.adk"):
        return None
    app = app_of(found, ref)
    if app is not None and ref.part:
        app = app.model_copy(update={"root_agent": part_of(app.root_agent, ref.part)})
    return AdkAgent(app, ref) if app is not None else None


@dataclass(slots=True)
class AdkAgent:
    """An App of google-adk. Each session has services of its own; the agents and plugins are the user's objects."""

    app: Any
    ref: AgentRef
    _variants: dict[bytes, Any] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        from evaldesk.agents.adk_models import use_shared_loop

        use_shared_loop(self.app.root_agent)

    def describe(self) -> AgentDescription:
        """The root agent with its sub-agents as a tree."""
        from evaldesk.agents.adk_description import described

        return described(self.app.root_agent)

    async def reply(self, session: Session, message: str) -> AsyncGenerator[Event]:
        """Play one invocation. Raises ModelError for what a model's provider refuses, and what the agent raises."""
        from google.adk.agents.run_config import RunConfig, StreamingMode
        from google.genai import types

        from evaldesk.agents.adk_plugin import Witness, plugin_of
        from evaldesk.agents.adk_session import opened

        options = session.model_options
        witness = Witness(session.id, options)
        TOOL_LIMIT.set(session.limits.tool_timeout_s)
        conversation, is_new = await opened(session, session.app_name or self.ref.id, self.app)
        if is_new and not session.turns:
            await reset_data_of(self.ref)
        config: dict[str, Any] = {"max_llm_calls": options.max_turns} if options.max_turns else {}
        if session.is_streaming:
            config["streaming_mode"] = StreamingMode.SSE
        runner = conversation.runner(self._app(session.model, options), plugin_of(witness))
        happening = runner.run_async(
            user_id=session.user_id,
            session_id=session.id,
            new_message=types.Content(role="user", parts=[types.Part(text=message)]),
            run_config=RunConfig(**config),
        )
        try:
            async with aclosing(_told(happening, conversation, witness, session)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            for event in witness.inner():
                yield event
            reached = _bound_reached(error, options)
            refused = witness.answers.failure or model_error(error, witness.model)
            if refused:
                raise refused from error
            if reached is None:
                raise
            yield reached
        finally:
            await conversation.keep(session)

    def _app(self, model: str | None, options: ModelOptions) -> Any:
        """The app, with the models of its agents replaced where the run or chat asks for others."""
        if model is None and options.base_url is None:
            return self.app
        from evaldesk.agents.adk_models import with_model

        key = to_json([model, options.base_url, options.api_key_env, options.extra, options.n_retries])
        with self._lock:
            if key not in self._variants:
                self._variants[key] = self.app.model_copy(
                    update={"root_agent": with_model(self.app.root_agent, model, options)}
                )
            return self._variants[key]


async def _told(happening: Any, conversation: Any, witness: Any, session: Session) -> AsyncGenerator[Event]:
    """The events of an invocation. An error is held back: what is raised after it says more."""
    from evaldesk.agents.adk_translation import translated

    failed: Event | None = None
    async with aclosing(happening) as events:
        async for found in events:
            if failed:
                yield failed
            conversation.adopt(found, session.state)
            for event in (*witness.inner(), *translated(found, witness, is_streaming=session.is_streaming)):
                if event.error:
                    failed = event
                else:
                    yield event
    if witness.answers.failure:
        raise witness.answers.failure
    if failed:
        yield failed


def _bound_reached(error: Exception, options: ModelOptions) -> Event | None:
    if type(error).__name__ != "LlmCallsLimitExceededError":
        return None
    kind = "max_turns" if options.max_turns else "max_iterations"
    return Event("error", error=ErrorRecord(kind, f"the agent never answered: {error}"))
