"""Agents that are plain Python: a function, a generator, an object with `reply`, or a class of such objects."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from evaldesk.agents.agent import CALL_OPTIONS, KINDS, default_instruction, parameter_names, summary_of
from evaldesk.agents.child_processes import watching_processes
from evaldesk.agents.remote.protocol import decisions_of, read_events
from evaldesk.agents.spans import INSTRUMENTS, collect_spans
from evaldesk.agents.tools.time_limit import TOOL_LIMIT
from evaldesk.agents.tools.wire_doubles import answer_calls
from evaldesk.errors import AgentError
from evaldesk.llm.outside_calls import may_use_again, names_package, note_caller, watch_outside_calls
from evaldesk.llm.retry_events import (
    has_outside_calls,
    note_capture,
    note_outside_call,
    note_text_answer,
    note_unseen,
)
from evaldesk.model import AgentDescription, AgentRef, Event, EventKind, JsonObject, Session
from evaldesk.model.decisions import Decided
from evaldesk.model.media import MEDIA_KINDS
from evaldesk.wire import plain_json

_REQUIRED_FIELDS: Mapping[EventKind, str] = {
    "tool_call": "call",
    "tool_result": "call",
    "usage": "usage",
    "error": "error",
    "waiting": "waiting",
}

MEMORY = "agent"
NEW_OBJECT = (
    "The agent's object is new: it did not play the turns before, and knows of them only by the parameters `session` "
    "and `state`."
)


def adapt(candidate: object, ref: AgentRef) -> PythonAgent | None:
    """The agent around a function or an object with `reply`; None for anything else."""
    if not (callable(candidate) or callable(getattr(candidate, "reply", None))):
        return None
    if inspect.isclass(candidate) and not (
        callable(getattr(candidate, "reply", None)) or "__call__" in vars(candidate)
    ):
        return None
    return PythonAgent(candidate, ref)


@dataclass(frozen=True, slots=True)
class PythonAgent:
    """An agent of the user's own code. Its function takes `message`, and optionally `state`, `media`, `session`,
    `decisions` and `instruction`, by name.

    It runs in the thread of the turn and may block it. A string is the answer; consecutive strings are joined; strings
    before an event are an intermediate message. None is ignored. An event is an `evaldesk.Event`, or an object of the
    protocol. A class is instantiated once for each session.
    """

    code: Any
    ref: AgentRef

    def describe(self) -> AgentDescription:
        """Name and docstring of the code."""
        name = getattr(self.code, "name", None) or getattr(self.code, "__name__", None)
        return AgentDescription(
            name=name if isinstance(name, str) else self.ref.id,
            kind="python",
            description=summary_of(self.code),
            instruction=default_instruction(self._declared()),
            tells_cost=getattr(self.code, "tells_cost", False) is True,
            tells_calls=getattr(self.code, "tells_calls", False) is True,
            takes=self._takes(),
            unseen=() if self._shows_state(self._declared()) else ("state",),
            takes_instruction="instruction" in (parameter_names(self._declared()) or ()),
            unused_options=() if "session" in (parameter_names(self._declared()) or ()) else CALL_OPTIONS,
        )

    def _declared(self) -> Callable[..., Any]:
        """The function of the code, of a class without an instance."""
        function: Callable[..., Any] = getattr(self.code, "reply", None) or self.code
        return function

    def _shows_state(self, function: Callable[..., Any]) -> bool:
        """Whether the function can change the state of the session."""
        names = parameter_names(function)
        return names is None or bool({"state", "session"} & {*names})

    def _keeps_memory(self, function: Callable[..., Any]) -> bool:
        """Whether an object of the session may keep its earlier turns, or another one that is not given them."""
        names = parameter_names(function) or ()
        is_given = "session" in names or (inspect.isfunction(self.code) and "state" in names)
        return inspect.isclass(self.code) or not is_given

    def _takes(self) -> tuple[str, ...]:
        """The media kinds in the attribute `takes`; all kinds for a function with the parameter `media`."""
        media_kinds = getattr(self.code, "takes", None)
        if isinstance(media_kinds, list | tuple):
            return tuple(kind for kind in MEDIA_KINDS if kind in media_kinds)
        reply = getattr(self.code, "reply", None)
        return MEDIA_KINDS if "media" in (parameter_names(reply if callable(reply) else self.code) or ()) else ()

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Call the code and yield its events. Raises AgentError for a value that is no event."""
        with watching_processes(session):
            is_new_object = inspect.isclass(self.code) and MEMORY not in session.memory
            function = self._function(session)
            if is_new_object and session.turns:
                yield Event("log", author="evaldesk", text=NEW_OBJECT)
            self._answer_calls(session, function)
            async with aclosing(self._call(function, session, message, ())) as events:
                async for event in events:
                    yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Call its `resume`, or its function again if it takes `decisions`. Raises AgentError as `reply`."""
        with watching_processes(session):
            function = self._function(session)
            self._answer_calls(session, function)
            going_on = getattr(getattr(function, "__self__", None), "resume", None)
            if callable(going_on):
                function = going_on
            elif "decisions" not in (parameter_names(function) or ()):
                raise AgentError(
                    "the agent waits for a person and cannot go on: give it a method `resume(message, decisions)`, or "
                    "let its function take `decisions`, which are those about the message"
                )
            async with aclosing(self._call(function, session, message, decided)) as events:
                async for event in events:
                    yield event

    def _answer_calls(self, session: Session, function: Callable[..., Any]) -> None:
        """Let the case's doubles, and its denials if the agent cannot wait for a person, answer the model's calls."""
        can_wait = callable(getattr(getattr(function, "__self__", None), "resume", None))
        can_wait = can_wait or "decisions" in (parameter_names(function) or ())
        answer_calls(session, denies=not can_wait)

    async def _call(
        self, function: Callable[..., Any], session: Session, message: str, decided: Sequence[Decided]
    ) -> AsyncGenerator[Event, None]:
        TOOL_LIMIT.set(session.limits.tool_timeout_s)
        self._note_visible_parts(function)
        if INSTRUMENTS or "opentelemetry" in sys.modules:
            collect_spans()
        decisions = decisions_of(decided) if decided else []
        arguments = _arguments(function, session, message, decisions)
        with _without_running_loop():
            answer = function(**arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        is_text = True
        pieces: list[str] = []
        async with aclosing(_items(answer)) as items:
            async for item in items:
                if isinstance(item, str):
                    pieces.append(item)
                    if session.is_streaming:
                        yield Event("agent_message", text=item, is_partial=True)
                elif item is not None:
                    is_text = False
                    for each in (*_take_message(pieces), *_events(item, session)):
                        yield each
        # A generator of events tells its calls; of texts alone nobody knows which tools were called.
        if is_text and getattr(self.code, "tells_calls", False) is not True:
            note_text_answer()
        if has_outside_calls():
            note_caller(self.code)
        for event in _take_message(pieces):
            yield event

    def _note_visible_parts(self, function: Callable[..., Any]) -> None:
        note_capture("told")
        watch_outside_calls()
        if not self._shows_state(function):
            note_unseen("state")
        if self._keeps_memory(function):
            note_unseen("memory")
        # A framework calls tools itself and may have its model in this process; a connection may be an old one.
        if names_package(function, _packages_with_tools()) or may_use_again(self.code):
            note_outside_call()

    def _function(self, session: Session) -> Callable[..., Any]:
        code = self.code
        if inspect.isclass(code):
            if MEMORY not in session.memory:
                session.memory[MEMORY] = code()
            code = session.memory[MEMORY]
        function: Callable[..., Any] = code.reply if callable(getattr(code, "reply", None)) else code
        return function


_OTHER_PACKAGES = (
    *("autogen_agentchat", "autogen_core", "dspy", "google.genai", "haystack", "langchain", "langchain_core"),
    *("llama_index", "semantic_kernel", "strands"),
    *("ctransformers", "gpt4all", "llama_cpp", "mlx_lm", "transformers", "vllm"),
)
"""Frameworks without a kind, and libraries that run a model in this process."""


@cache
def _packages_with_tools() -> frozenset[str]:
    """Packages that call tools themselves, but for `agents`: that is the name of many a folder of agents, too."""
    homes = (home for kind in KINDS for home in kind.home if not home.startswith("evaldesk."))
    return frozenset((*homes, *_OTHER_PACKAGES)) - {"agents"}


def _arguments(
    function: Callable[..., Any], session: Session, message: str, decisions: Sequence[JsonObject]
) -> dict[str, object]:
    offered = {
        "message": message,
        "state": session.state,
        "media": session.media,
        "session": session,
        "decisions": decisions,
        "instruction": session.model_options.instruction,
    }
    names = parameter_names(function)
    if names is None:
        return {"message": message}
    if session.model_options.instruction is None:  # its own, by its default
        names = [name for name in names if name != "instruction"]
    if "message" not in names:
        first = next((name for name in names if name not in offered), None)
        if first is None:
            raise AgentError(f"the agent takes ({', '.join(names)}); it must take a message")
        offered = {**offered, first: message}
    return {name: offered[name] for name in names if name in offered}


_END = object()


@contextmanager
def _without_running_loop() -> Iterator[None]:
    """Hide the running event loop from synchronous code, so that it may call `asyncio.run`. (decision 164)

    Many functions are `asyncio.run(agent.run(message))`, and some frameworks return a coroutine inside a running loop.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task:
        asyncio.tasks._leave_task(loop, task)
    # Private, as other event loops use it: `asyncio.run` must work in a function (decision 164).
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)
        if task:
            asyncio.tasks._enter_task(loop, task)


async def _items(answer: Any) -> AsyncGenerator[object, None]:
    if hasattr(answer, "__aiter__"):
        async for item in answer:
            yield item
    elif isinstance(answer, Iterator):
        while True:
            with _without_running_loop():
                item = next(answer, _END)
            if item is _END:
                return
            yield item
    else:
        yield answer


def _take_message(pieces: list[str]) -> list[Event]:
    """The message joined from the pieces; `pieces` is empty afterwards."""
    text = "".join(pieces)
    pieces.clear()
    return [Event("agent_message", text=text)] if text else []


def _events(item: object, session: Session) -> Sequence[Event]:
    """The event from an `Event` or an object of the protocol; empty for a new state."""
    if isinstance(item, Mapping) and "kind" in item:
        return [*read_events(item, session, "")]
    if not isinstance(item, Event):
        expected_forms = "a str, an Event, or an object of docs/protocol.md with its kind"
        raise AgentError(f"the agent returned {type(item).__name__}, wanted {expected_forms}")
    required_field = _REQUIRED_FIELDS.get(item.kind)
    if required_field and getattr(item, required_field) is None:
        raise AgentError(f"the agent gave a {item.kind} event without its {required_field}")
    call = item.call and replace(item.call, args=_plain_args(item.call.args))
    return [replace(item, call=call, result=plain_json(item.result))]


def _plain_args(value: object) -> dict[str, Any]:
    plain_value = plain_json(value)
    return plain_value if isinstance(plain_value, dict) else {"value": plain_value}
