"""Import of the user's agent with its `.env`, in worker processes only, and choice of its adapter.

A function without a message parameter is a factory: it makes an agent for each session.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from evaldesk.agents.agent import AGENTS, Agent, AgentKind, ModelChecker, Resumable, is_from, summary_of
from evaldesk.agents.discovery import FACTORY, YAML_NAME, is_imported, source_folders
from evaldesk.agents.env_files import load_environment
from evaldesk.agents.missing_packages import missing_package
from evaldesk.agents.shared_loop import OnSharedLoop, on_shared_loop
from evaldesk.agents.spans import SDK, watch_providers
from evaldesk.agents.standins import install_standins
from evaldesk.agents.traces import error_words, user_place, user_trace
from evaldesk.errors import AgentError, NotFoundError, UsageError
from evaldesk.llm.client_wrapping import on_import
from evaldesk.model import AgentDescription, AgentRef, Event, Session
from evaldesk.model.decisions import Decided
from evaldesk.process_setup import prepare_litellm
from evaldesk.registry import import_target


def load_agent(ref: AgentRef) -> Agent:
    """The agent of `ref`, imported with its root first on `sys.path` and its `.env` in the environment.

    Raises AgentError with the place in the user's code where the import failed, or for an object without an adapter.
    """
    _check_kind(ref)
    prepare_litellm()
    on_import((SDK,), watch_providers)
    load_environment(ref.folder)
    is_imported = ref.target not in {"", YAML_NAME} and not AGENTS.is_remote(ref.kind)
    return adapt_object(_part(_import(ref), ref) if is_imported else None, ref)


def adapt_object(candidate: object, ref: AgentRef) -> Agent:
    """The agent around an object or a factory function. Raises AgentError without an adapter for it."""
    if not (ref.kind or ref.target.endswith(f":{FACTORY}")) and _is_factory(candidate):
        return _FactoryAgent(cast("Callable[..., object]", candidate), ref)
    for kind in _kinds(candidate, ref):
        agent = kind.adapt()(candidate, ref)
        if agent is not None:
            return agent
    name = f"{type(candidate).__module__}.{type(candidate).__qualname__}"
    raise AgentError(
        f"{ref.target} is a {name}, which no adapter knows ({', '.join(AGENTS)}); "
        "wanted an evaldesk.LlmAgent, a function (message) or (message, state), or an object with reply"
    )


_FACTORY_PARAMETERS = frozenset({"state", "session"})
_MEMORY = "made"


def _is_factory(candidate: object) -> bool:
    """Whether the object is a function without a parameter for a message: a factory, not an agent."""
    if (
        not inspect.isfunction(candidate)
        or inspect.isgeneratorfunction(candidate)
        or inspect.isasyncgenfunction(candidate)
    ):
        return False
    parameters = inspect.signature(candidate).parameters.values()
    required_parameters = [
        each for each in parameters if each.default is each.empty or each.name in _FACTORY_PARAMETERS
    ]
    return all(
        (each.name in _FACTORY_PARAMETERS or _is_config(each)) and each.kind is not each.VAR_POSITIONAL
        for each in required_parameters
    )


def _is_config(parameter: inspect.Parameter) -> bool:
    """Whether the parameter is the RunnableConfig that LangGraph's server passes to graph factories."""
    return "RunnableConfig" in str(parameter.annotation)


@dataclass(slots=True)
class _FactoryAgent:
    """Makes an agent for each session, and plays the turns of the session with its adapter."""

    make: Callable[..., Any]
    ref: AgentRef
    _description: AgentDescription | None = field(default=None, repr=False)
    _described: Agent | None = field(default=None, repr=False)
    _is_on_shared_loop: bool = field(default=False, repr=False)

    def describe(self) -> AgentDescription:
        """The description of a new agent; of the function alone if it needs a session's state."""
        if self._description is None:
            try:
                # `asyncio.run` needs a thread without a running loop, and the caller may have one.
                with ThreadPoolExecutor(1) as thread:
                    agent = thread.submit(asyncio.run, self._adapt(Session("describe"))).result()
                names = inspect.signature(self.make).parameters
                description = agent.describe()
                self._described = agent
                self._description = replace(
                    description,
                    takes_instruction="instruction" in names or description.takes_instruction,
                    unused_options=() if "session" in names else description.unused_options,
                )
            except Exception:  # of the user's code, which the first turn will tell with its trace
                return AgentDescription(name=self.ref.id, kind="python", description=summary_of(self.make))
        return self._description

    def model_fault(self, model: str) -> str:
        """The reason of an agent that the function made, where it checks the names of models."""
        self.describe()
        return self._described.model_fault(model) if isinstance(self._described, ModelChecker) else ""

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """The events of the session's own agent. Exceptions of the factory pass through."""
        is_new_object = _MEMORY not in session.memory
        agent = await self._agent_of(session)
        if is_new_object and session.turns:
            from evaldesk.agents.python import NEW_OBJECT, PythonAgent

            if isinstance(agent, PythonAgent):
                yield Event("log", author="evaldesk", text=NEW_OBJECT)
        async with aclosing(cast("Any", agent.reply(session, message))) as events:
            async for event in events:
                yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """As `reply`, with the decisions of a person. Raises AgentError for an agent that cannot resume a turn."""
        agent = await self._agent_of(session)
        if not isinstance(agent, Resumable):
            raise AgentError(f"{self.ref.target} made an agent that cannot go on after a decision")
        async with aclosing(cast("Any", agent.resume(session, message, decided))) as events:
            async for event in events:
                yield event

    async def _agent_of(self, session: Session) -> Agent:
        agent = session.memory.get(_MEMORY)
        if agent is None:
            agent = session.memory[_MEMORY] = await self._make_agent(session)
        return cast("Agent", agent)

    async def _make_agent(self, session: Session) -> Agent:
        """The agent, made on the event loop of its turns: connections of a coroutine function belong to its loop."""
        if self._is_on_shared_loop:
            return await on_shared_loop(self._adapt(session))
        agent = await self._adapt(session)
        return await on_shared_loop(self._adapt(session)) if self._is_on_shared_loop else agent

    async def _adapt(self, session: Session) -> Agent:
        offered = {"state": session.state, "session": session}
        parameters = inspect.signature(self.make).parameters
        arguments: dict[str, Any] = {name: offered[name] for name in parameters if name in offered}
        if session.model_options.instruction is not None and "instruction" in parameters:
            arguments["instruction"] = session.model_options.instruction
        arguments |= {name: {"configurable": {}} for name, each in parameters.items() if _is_config(each)}
        value = self.make(**arguments)
        is_awaited = inspect.isawaitable(value)
        value = await value if is_awaited else value
        if value is None or isinstance(value, str | int | float | dict | list):
            raise AgentError(
                f"{self.ref.target} gave {type(value).__name__}: an agent must take a message, and a function without "
                "one must make an agent"
            )
        agent = adapt_object(value, self.ref)
        self._is_on_shared_loop = is_awaited and isinstance(agent, OnSharedLoop)
        return agent


def _kinds(candidate: object, ref: AgentRef) -> Sequence[AgentKind]:
    """The kind of `ref`, the kind of a factory of google-adk, or all kinds that may adapt the object."""
    if ref.kind:
        return [AGENTS[ref.kind]]
    return (
        [AGENTS["adk"]] if ref.target.endswith(f":{FACTORY}") and callable(candidate) else AGENTS.kinds_for(candidate)
    )


def _check_kind(ref: AgentRef) -> None:
    """Raise AgentError for a kind that is not installed."""
    try:
        if ref.kind:
            AGENTS[ref.kind].adapt()
    except NotFoundError as error:
        raise AgentError(
            f"{ref.id} needs the agent adapter {ref.kind!r}, which is not installed; there are: {', '.join(AGENTS)}"
        ) from error


def import_from(target: str, root: str) -> object:
    """The object of `module:attr`, imported with `root` first on `sys.path`.

    Raises UsageError and exceptions of the import.
    """
    make_importable(target.partition(":")[0], root)
    return import_target(target)


def make_importable(module_name: str, root: str) -> None:
    """Put `root` first on `sys.path`, and drop modules of the same name from elsewhere."""
    if root:
        sys.path[:] = [root, *(entry for entry in sys.path if entry != root)]
    _forget_namesakes(module_name, root)
    importlib.invalidate_caches()


def _import(ref: AgentRef) -> object:
    install_standins()
    if is_imported(ref):
        folders = map(str, source_folders(Path(ref.folder or ref.root)))
        sys.path.extend(folder for folder in folders if folder not in sys.path)  # after those that are installed
    try:
        return import_from(ref.target, ref.root)
    except UsageError as error:
        raise AgentError(f"{ref.target}: {error}") from error
    except (Exception, SystemExit) as error:
        fault = missing_package(error) or _missing_module(error, ref) or error_words(error)
        place = user_place(error, ref.root)
        raise AgentError(f"{place or ref.target}: {fault}", trace=user_trace(error) if place else "") from error


def _missing_module(error: BaseException, ref: AgentRef) -> str:
    """The sentence for a missing module of the agent, with the closest existing name; empty for other failures."""
    name = ref.target.partition(":")[0].partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name != name:
        return ""
    nearest = get_close_matches(name, [entry.stem for entry in Path(ref.root or ".").iterdir()], n=1)
    return f"no module {name!r} in {ref.root}{f'; did you mean {nearest[0]!r}?' if nearest else ''}"


def _part(candidate: object, ref: AgentRef) -> object:
    """The attribute `ref.part` of the module; for google-adk the object: its adapter finds the part in the tree."""
    if not ref.part or is_from(candidate, "google.adk") or ref.target.endswith(f":{FACTORY}"):
        return candidate
    module = ref.target.partition(":")[0]
    try:
        return import_target(f"{module}:{ref.part}")
    except UsageError as error:
        raise AgentError(f"{ref.target} has no sub-agents, and {error}") from error


def _forget_namesakes(module_name: str, root: str) -> None:
    """Drop loaded modules of the same top name that lie under another root; the standard library stays."""
    top = module_name.partition(".")[0]
    if not root or top in sys.stdlib_module_names:
        return
    namesakes = {
        name: module for name, module in sys.modules.copy().items() if name == top or name.startswith(f"{top}.")
    }
    places = [place for module in namesakes.values() for place in _places(module)]
    is_other = any(not Path(place).is_relative_to(root) for place in places)
    if is_other and any(Path(root, top).with_suffix(suffix).exists() for suffix in ("", ".py")):
        for name in namesakes:
            del sys.modules[name]


def _places(module: ModuleType) -> list[str]:
    """The file of a module; the folders of a namespace package."""
    file = getattr(module, "__file__", None)
    return [file] if file else list(getattr(module, "__path__", ()))
