"""Our own kind of agent: an instruction, a model behind LiteLLM, and plain typed functions as tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from evaldesk.agents.agent import ModelCaller
from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.own.instruction import MissingKey, fill_placeholders
from evaldesk.agents.own.model_calls import ask, reply_message
from evaldesk.agents.tools.doubles import call_with_double
from evaldesk.agents.tools.functions import Outcome, Tool, tool_of
from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.errors import TEXT_LIMIT, UsageError
from evaldesk.llm import ModelCall, ModelReply, RequestedCall, is_direct, missing_keys, model_fault, warm
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    ErrorRecord,
    Event,
    JsonObject,
    ModelOptions,
    Session,
    ToolCall,
)
from evaldesk.model.chat import chat_messages, tool_message, user_messages
from evaldesk.model.json_text import json_or_text
from evaldesk.transcripts.messages.chat import RAW_ARGS, tool_call


def adapt(candidate: object, ref: AgentRef) -> LlmAgent | None:
    """The object itself if it is an LlmAgent, or the LlmAgent declared by `ref`; else None."""
    if candidate is None and ref.kind == "litellm" and ref.declared:
        from evaldesk.agents.own.tables import llm_fields

        return LlmAgent(**llm_fields(ref))
    return candidate if isinstance(candidate, LlmAgent) else None


@dataclass(frozen=True)
class LlmAgent(ModelCaller):
    """An agent on any model of LiteLLM, `model` being its `provider/name`.

    `instruction` may hold `{key}` for a value of the session state, `{key?}` where it may be missing. A tool is a
    function, `def` or `async def`, with types and a docstring; its parameter `state`, if any, receives the session
    state and is not shown to the model. `max_iterations` bounds the model calls of one turn. `api_base` is the address
    of an OpenAI-compatible endpoint for `model`, `api_key_env` the environment variable with its key; `extra` is sent
    along in each call. The model options of a run or chat override all of these. `initial_state` is the proposed
    initial state of a chat.
    """

    name: str
    model: str
    instruction: str = ""
    description: str = ""
    tools: Sequence[Callable[..., Any]] = ()
    max_iterations: int = 12
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    api_base: str | None = None
    api_key_env: str | None = None
    extra: JsonObject = field(default_factory=dict)
    initial_state: JsonObject = field(default_factory=dict)
    _tools: dict[str, Tool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_iterations < 1:
            raise UsageError(f"agent {self.name}: max_iterations must be at least 1, got {self.max_iterations}")
        for tool in map(tool_of, self.tools):
            if tool.name in self._tools:
                raise UsageError(f"agent {self.name}: two tools are called {tool.name}")
            self._tools[tool.name] = tool

    def describe(self) -> AgentDescription:
        """The agent's description; a scripted demo model is named as one."""
        is_demo = self.model.startswith(DEMO_PREFIX)
        return AgentDescription(
            name=self.name,
            kind="litellm",
            description=self.description,
            instruction=self.instruction,
            model=f"{self.model} (scripted demo model)" if is_demo else self.model,
            tools=tuple(tool.description for tool in self._tools.values()),
            is_demo=is_demo,
            initial_state=self.initial_state,
            missing=self._missing_variables(),
            is_direct=is_direct(self._address(Session("describe"))),
            takes_instruction=True,
        )

    def model_fault(self, model: str) -> str:
        """The reason why no provider can answer for `model`, unless the agent's own `extra` names one."""
        return "" if self.extra.get("custom_llm_provider") else model_fault(model)

    def warm(self, session: Session) -> None:
        """Import the packages for the model calls of the session."""
        warm(self._address(session))

    def _address(self, session: Session) -> ModelCall:
        """A call without messages, for its endpoint."""
        options = self._own_options(session) | session.model_options
        return ModelCall(session.model or self.model, (), api_base=options.base_url)

    def _missing_variables(self) -> tuple[str, ...]:
        """The missing key variables; an endpoint may need no key."""
        if self.api_key_env:
            return () if os.environ.get(self.api_key_env) else (self.api_key_env,)
        return () if self.api_base or self.extra.get("api_key") else missing_keys(self.model, os.environ)

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Call the model and its requested tools until an answer without tool calls. Raises ModelError."""
        messages = [*chat_messages(session.turns), *user_messages(message, session.media)]
        n_calls = session.model_options.max_turns or self.max_iterations
        for _ in range(n_calls):
            try:
                call = self._call(session, messages)
            except MissingKey as error:
                sentence = _missing_sentence(self.name, error.args[0])
                yield Event("error", error=ErrorRecord("missing_state", sentence))
                return
            async for event_or_reply in _complete(call, self.name, session):
                if isinstance(event_or_reply, Event):
                    yield event_or_reply
                else:
                    reply = event_or_reply
            yield Event("usage", usage=reply.usage)
            if reply.text:
                yield Event("agent_message", author=self.name, text=reply.text)
            if not reply.tool_calls:
                if not reply.text:
                    yield Event("log", text=f"the model answered with no text (finish reason {reply.finish_reason})")
                return
            messages.append(reply_message(reply))
            async for event in self._run(reply.tool_calls, session):
                yield event
                if event.kind == "tool_result" and event.call:
                    messages.append(tool_message(event.call.id or "", json_or_text(event.result)))
        yield _call_limit_event(self.name, n_calls, session)

    def _call(self, session: Session, messages: Sequence[JsonObject]) -> ModelCall:
        own = session.model_options.instruction_of(self.name, is_root=True)
        instruction = fill_placeholders(self.instruction if own is None else own, session.state)
        system: list[JsonObject] = [{"role": "system", "content": instruction}] if instruction else []
        model = session.model or self.model
        options = self._own_options(session) | session.model_options
        tools = [tool.schema() for tool in self._tools.values()]
        return ModelCall.from_options(options, model, [*system, *messages], tools=tools, seed=session.seed)

    def _own_options(self, session: Session) -> ModelOptions:
        """The agent's own model options; its key goes to its own endpoint and model only."""
        is_own_model = session.model in {None, self.model}
        is_own_endpoint = is_own_model and session.model_options.base_url in {None, self.api_base}
        return ModelOptions(
            base_url=self.api_base if is_own_model else None,
            api_key_env=self.api_key_env if is_own_endpoint else None,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            extra=self.extra,
        )

    async def _run(self, requested_calls: Sequence[RequestedCall], session: Session) -> AsyncIterator[Event]:
        """Run the tool calls of one reply concurrently; results come in the order of the calls."""
        calls = [
            tool_call(requested_call.name, requested_call.arguments, requested_call.id)
            for requested_call in requested_calls
        ]
        for call in calls:
            yield Event("tool_call", author=self.name, call=call)
        outcomes = await _together([self._outcome(call, session) for call in calls])
        for call, outcome in zip(calls, outcomes, strict=True):
            if outcome.trace:
                yield Event("log", author=self.name, text=outcome.trace)
            yield Event(
                "tool_result",
                author=self.name,
                call=call,
                result=outcome.result,
                is_error=outcome.is_error,
                duration_ms=outcome.duration_ms,
            )
            if outcome.note:
                yield Event("log", author=outcome.source, text=outcome.note)

    async def _outcome(self, call: ToolCall, session: Session) -> Outcome:
        tool = self._tools.get(call.name)
        if tool is None:
            refusal = f"there is no tool {call.name}; there are: {', '.join(self._tools) or 'none'}"
            return Outcome(refusal, is_error=True)
        if RAW_ARGS in call.extra:
            refusal = f"{call.name}: the arguments are not a JSON object: {str(call.extra[RAW_ARGS])[:TEXT_LIMIT]}"
            return Outcome(refusal, is_error=True)
        args, state = call.args, session.state
        return await call_with_double(
            tool.name, args, state, partial(tool.run, args, state, session.limits.tool_timeout_s)
        )


async def _together(work: Sequence[Coroutine[Any, Any, Outcome]]) -> Sequence[Outcome]:
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _complete(call: ModelCall, author: str, session: Session) -> AsyncIterator[Event | ModelReply]:
    """The reply of the model, after partial messages when streaming."""
    if not session.is_streaming:
        yield await ask(session, call)
        return
    replies: list[ModelReply] = []

    async def work(send: SendEvent) -> None:
        def send_text(text: str) -> None:
            send(Event("agent_message", author=author, text=text, is_partial=True))

        replies.append(await ask(session, call, send_text))

    async with aclosing(events_of(work)) as pieces:
        async for piece in pieces:
            yield piece
    yield replies[0]


def _missing_sentence(name: str, key: str) -> str:
    return (
        f"the instruction of {name} uses {{{key}}}, but the session state has no {key!r}; "
        f"add it to the initial state, or write {{{key}?}} where it may be missing"
    )


def _call_limit_event(name: str, n: int, session: Session) -> Event:
    kind = "max_turns" if session.model_options.max_turns else "max_iterations"
    sentence = f"{name} called tools in each of {n} model calls and never answered; raise {kind} if it needs more"
    return Event("error", error=ErrorRecord(kind, sentence))
