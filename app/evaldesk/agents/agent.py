"""The protocol of an agent, and the table of agent kinds with their traits.

A package adds a kind by an entry point of the group `evaldesk.agents`. Its target is an `AgentKind` in a module without
heavy imports, or the adapter itself.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from evaldesk.model import AgentDescription, AgentRef, Event, Session
from evaldesk.model.decisions import Decided
from evaldesk.model.media import MEDIA_KINDS, MediaKind
from evaldesk.model.visibility import Visibility
from evaldesk.registry import Registry, import_target, is_present


class Agent(Protocol):
    """An agent that describes itself and answers messages.

    An adapter translates a user's object into this.
    """

    def describe(self) -> AgentDescription:
        """The agent's description of itself."""

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Yield the events until the agent has answered `message`.

        `at_ms` is left at 0 and the events `user_message` and `state_delta` are left out: the player of the turn adds
        them. A partial `agent_message` comes only when `session.is_streaming`. Exceptions of the agent pass through; an
        `error` event ends the turn as well. One of the kind `max_turns`, `max_iterations` or `awaiting_approval` is no
        failure: the agent reached its limit, or it waits for a person. The turn has no answer, and the trial is scored
        on the events so far. Each pending decision has a `waiting` event before.
        """


@runtime_checkable
class Resumable(Protocol):
    """An agent that can resume a paused turn after the decisions of a person."""

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """As `Agent.reply`, from the pause of the turn of `message`, with one decision for each `waiting` event.

        `session.turns` are the turns before. Raises AgentError for a turn that cannot be resumed.
        """


@runtime_checkable
class ModelChecker(Protocol):
    """An agent whose calls of some models would all fail, known before a call."""

    def model_fault(self, model: str) -> str:
        """The reason why every call of a model that a run names would fail; empty where it may be called."""


class ModelCaller(ABC):
    """An agent that imports the packages of its model calls itself; other agents with a model need LiteLLM."""

    @abstractmethod
    def warm(self, session: Session) -> None:
        """Import the packages for the model calls of `session` before its first turn."""


class SessionResource(ABC):
    """A resource in the memory of a session, closed at the end of the session.

    `has_late_calls` is true after `close` when model calls were reported after the end of their turns.
    """

    has_late_calls = False

    @abstractmethod
    def close(self) -> None:
        """Release the resource; safe to call twice."""


def close_session_resources(memory: Mapping[str, object]) -> None:
    """Close the resources in the memory of a session."""
    for resource in [*memory.values()]:  # the thread of a turn that was left behind may add to it
        if isinstance(resource, SessionResource):
            resource.close()


CALL_OPTIONS = (
    "model",
    "base_url",
    "api_key_env",
    "temperature",
    "top_p",
    "max_tokens",
    "reasoning_effort",
    "max_turns",
    "extra",
)
"""The options of a run that take effect only in the model calls of an agent that follows them."""
T = TypeVar("T")
Adapt: TypeAlias = Callable[[object, AgentRef], Agent | None]
Target: TypeAlias = Literal["object", "address", "command", "file"]


@dataclass(frozen=True, slots=True)
class Project:
    """The agents that a project file names, and the folders that it puts on `sys.path`.

    `env` names a file of variables beside it, or has them; None where the project file declares no environment.
    """

    agents: tuple[AgentRef, ...] = ()
    folders: tuple[Path, ...] = ()
    env: str | Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class AgentKind:
    """A kind of agent and its traits.

    - `adapter` is the `package.module:attr` of a function that returns the agent around an object, or None.
    - `target` is the form of the agent's name: an imported object, or a remote address, command or file.
    - `prefix` stands in front of a remote target: `adk:http://127.0.0.1:8000/weather`. An address without a prefix
      belongs to the kind with the longest matching `address_end`; None matches no address.
    - `options` is the `package.module:attr` of a function (table, workspace) that returns `AgentRef.declared`, for a
      kind with options beside the target in `[agents.NAME]`.
    - `sees_tools`: the adapter makes or sees the tool calls, so that the time limit of a tool applies.
    - `prices_calls`: the adapter sees the model calls, so that the price of the model is the price of the agent.
    - `counts_tokens`: every model call reports its tokens, so that configured prices give the cost.
    - `reports_cost`: its own code may report the cost of each model call, known at the end of a trial.
    - `asks_by_name`: a model named by a run is called with the key of the environment, not with the agent's own key.
    - `is_asked`: a remote agent is asked for its description, to detect an unreachable one.
    - `is_recording`: it answers from a file and calls no model.
    - `hides_models`: recordings do not see its model calls, unless the table sets the key `shows_models`; None means
      True for a remote kind.
    - `reads_case`: its own tool passes the whole row to its code, ground truth included, or it answers from the case.
    - `fills_instruction`: placeholders of its instruction, `{key}`, are values of the session's state.
    - `visibility`: how far an agent can be seen; `part` where a turn has to be played to know it.
    - `has_live`: it has live sessions, in which a model and a user share one connection.
    - `is_last`: its adapter accepts nearly any object, so every other adapter is tried first.
    - `takes_history`: it can be given the turns of a session that it did not play.
    - `takes` are the media kinds of its input beside text, unless the description of an agent has its own.
    - `unused_options` are those of `CALL_OPTIONS` that no agent of the kind follows; the description of an agent may
      have more. `option_source` says where an agent of the kind reads an option, by its {name}.
    - `native_prefix` begins the names of models that the framework's own client calls, which takes neither a reasoning
      effort nor further fields.
    - `home` are modules of which at least one is imported if an object of the kind exists, `first_parameter` is the
      first parameter of a function of the kind; empty if unknown. The adapter is not imported for any other object.
    - `extra` of Evaldesk installs `package`, whose modules are `modules`.
    - `project_file` is the name of a file that names agents of a project; `read_project` is the `package.module:attr`
      of a function (path) that returns its Project.
    """

    name: str
    title: str
    adapter: str
    target: Target = "object"
    prefix: str = ""
    address_end: str | None = None
    options: str = ""
    sees_tools: bool = False
    prices_calls: bool = False
    counts_tokens: bool = False
    reports_cost: bool = False
    asks_by_name: bool = False
    is_asked: bool = False
    is_recording: bool = False
    hides_models: bool | None = None
    shows_models: str = ""
    reads_case: bool = False
    fills_instruction: bool = False
    visibility: Visibility = field(default_factory=Visibility)
    has_live: bool = False
    is_last: bool = False
    takes_history: bool = True
    takes: tuple[MediaKind, ...] = ()
    unused_options: tuple[str, ...] = ()
    option_source: str = ""
    native_prefix: str = ""
    home: tuple[str, ...] = ()
    first_parameter: str = ""
    extra: str = ""
    package: str = ""
    modules: tuple[str, ...] = ()
    project_file: str = ""
    read_project: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether the agent is remote, not imported: an address, a command, or a file."""
        return self.target != "object"

    def can_replay(self, ref: AgentRef) -> bool:
        """Whether a recording can answer every model call of the agent."""
        hides = self.is_remote if self.hides_models is None else self.hides_models
        return not hides or bool(self.shows_models and json.loads(ref.declared or "{}").get(self.shows_models))

    def visibility_of(self, ref: AgentRef, description: AgentDescription | None) -> Visibility:
        """How far the agent can be seen, by its table and its description."""
        has_gateway = self.shows_models and json.loads(ref.declared or "{}").get(self.shows_models)
        visibility = Visibility("part", "part", state="part") if has_gateway else self.visibility
        if description and description.tells_calls:
            visibility = replace(visibility, calls="whole", results="whole")
        return visibility.without(description.unseen if description else ())

    def sees_calls(self, ref: AgentRef) -> bool:
        """Whether every model call of the agent is counted: by its own usage, or where recordings see it."""
        return self.counts_tokens or self.can_replay(ref)

    def may_take(self, candidate: object) -> bool:
        """Whether the object may be of the kind, without an import of the adapter."""
        if self.is_remote:
            return False
        if self.first_parameter:
            return self.first_parameter == next(iter(parameter_names(candidate) or ()), "")
        return not self.home or any(module in sys.modules for module in self.home)

    def adapt(self) -> Adapt:
        """The adapter, imported."""
        return cast("Adapt", import_target(self.adapter))


_OWN_REPORT = Visibility("part", "part", "none", "part", "part")
"""Of an agent that reports its calls and its state by the protocol, or does not."""
_FROM_REQUESTS = Visibility("part", "part", "part", "part", "none")
"""Of an agent whose framework has no hooks of ours."""

KINDS = (
    AgentKind(
        "a2a",
        "A2A",
        "evaldesk.integrations.a2a.adapter:adapt",
        "address",
        "a2a",
        is_asked=True,
        visibility=Visibility("part", "part", "none", "part", "none"),
        takes=MEDIA_KINDS,
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "adk",
        "google-adk",
        "evaldesk.integrations.adk.adapter:adapt_any",
        sees_tools=True,
        fills_instruction=True,
        prices_calls=True,
        asks_by_name=True,
        has_live=True,
        extra="adk",
        package="google-adk",
        modules=("google.adk", "google.genai", "google"),
        takes=MEDIA_KINDS,
        home=("google.adk",),
        native_prefix="gemini-",
    ),
    AgentKind(
        "adk_server",
        "google-adk over HTTP",
        "evaldesk.integrations.adk.server:adapt",
        "address",
        "adk",
        counts_tokens=True,
        takes=MEDIA_KINDS,
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "agent_framework",
        "Agent Framework",
        "evaldesk.integrations.agent_framework.adapter:adapt",
        reports_cost=True,
        visibility=_FROM_REQUESTS,
        package="agent-framework-core",
        modules=("agent_framework",),
        home=("agent_framework",),
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "agno",
        "Agno",
        "evaldesk.integrations.agno.adapter:adapt",
        reports_cost=True,
        visibility=replace(_FROM_REQUESTS, state="whole"),
        package="agno",
        modules=("agno",),
        home=("agno",),
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "benchmark",
        "OpenHands-style benchmark",
        "evaldesk.integrations.openhands.benchmark:adapt",
        options="evaldesk.integrations.openhands.benchmark:table_options",
        visibility=_OWN_REPORT.without(["state"]),
        reports_cost=True,
        hides_models=True,
        reads_case=True,
        first_parameter="instance",
        takes_history=False,
    ),
    AgentKind(
        "claude_agent",
        "Claude Agent SDK",
        "evaldesk.integrations.claude_agent.adapter:adapt",
        reports_cost=True,
        visibility=_FROM_REQUESTS,
        package="claude-agent-sdk",
        modules=("claude_agent_sdk",),
        home=("claude_agent_sdk",),
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "command",
        "command",
        "evaldesk.agents.remote.command:adapt",
        "command",
        "command",
        reports_cost=True,
        visibility=_OWN_REPORT,
        shows_models="model_gateway",
        unused_options=tuple(name for name in CALL_OPTIONS if name not in ("model", "max_turns")),
    ),
    AgentKind(
        "crewai",
        "CrewAI",
        "evaldesk.integrations.crewai.adapter:adapt",
        reports_cost=True,
        visibility=_FROM_REQUESTS,
        package="crewai",
        modules=("crewai",),
        home=("crewai",),
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "http",
        "JSON over HTTP",
        "evaldesk.agents.remote.http_protocol:adapt",
        "address",
        "json",
        "",
        reports_cost=True,
        visibility=_OWN_REPORT,
        is_asked=True,
        unused_options=tuple(name for name in CALL_OPTIONS if name != "model"),
    ),
    AgentKind(
        "http_chat",
        "chat endpoint",
        "evaldesk.agents.remote.http_chat:adapt",
        "address",
        "chat",
        "/v1",
        prices_calls=True,
        hides_models=False,
        visibility=Visibility("none", "none", "none", "part", "none"),
        takes=MEDIA_KINDS,
        unused_options=("max_turns",),
    ),
    AgentKind(
        "litellm",
        "LiteLLM",
        "evaldesk.agents.own.litellm:adapt",
        sees_tools=True,
        fills_instruction=True,
        prices_calls=True,
        asks_by_name=True,
        takes=MEDIA_KINDS,
        home=("evaldesk.agents.own.litellm",),
    ),
    AgentKind(
        "langgraph",
        "LangGraph",
        "evaldesk.integrations.langgraph.adapter:adapt",
        sees_tools=True,
        prices_calls=True,
        extra="langgraph",
        package="langgraph",
        modules=("langgraph", "langchain_core"),
        project_file="langgraph.json",
        read_project="evaldesk.integrations.langgraph.project:read_project",
        takes=MEDIA_KINDS,
        home=("langgraph",),
        option_source="declare {name} in the config or context schema of the graph",
    ),
    AgentKind(
        "openai_agents",
        "OpenAI Agents SDK",
        "evaldesk.integrations.openai_agents.adapter:adapt",
        sees_tools=True,
        prices_calls=True,
        extra="openai-agents",
        package="openai-agents",
        modules=("agents",),
        takes=("image", "audio", "file"),
        home=("agents",),
    ),
    AgentKind(
        "osmosis",
        "Osmosis",
        "evaldesk.integrations.osmosis.adapter:adapt",
        sees_tools=True,
        visibility=Visibility(state="none"),
        asks_by_name=True,
        prices_calls=True,
        reads_case=True,
        takes=MEDIA_KINDS,
        home=("osmosis_ai", "evaldesk.integrations.osmosis.kit"),
    ),
    AgentKind(
        "pydantic_ai",
        "pydantic-ai",
        "evaldesk.integrations.pydantic_ai.adapter:adapt",
        sees_tools=True,
        prices_calls=True,
        extra="pydantic-ai",
        package="pydantic-ai-slim",
        modules=("pydantic_ai",),
        takes=MEDIA_KINDS,
        home=("pydantic_ai",),
    ),
    AgentKind(
        "python",
        "Python",
        "evaldesk.agents.python:adapt",
        reports_cost=True,
        visibility=Visibility("part", "part", "part", "part"),
        is_last=True,
        option_source="give its function a parameter `session`, which has the options of the run",
    ),
    AgentKind(
        "replay",
        "recording",
        "evaldesk.agents.replay:adapt",
        "file",
        "replay",
        sees_tools=True,
        prices_calls=True,
        is_asked=True,
        is_recording=True,
        hides_models=False,
        reads_case=True,
        takes=MEDIA_KINDS,
        unused_options=CALL_OPTIONS,
    ),
    AgentKind(
        "smolagents",
        "smolagents",
        "evaldesk.integrations.smolagents.adapter:adapt",
        reports_cost=True,
        visibility=_FROM_REQUESTS,
        package="smolagents",
        modules=("smolagents",),
        home=("smolagents",),
        takes_history=False,
        unused_options=CALL_OPTIONS,
    ),
)
"""The built-in kinds, those of islands that were removed included."""


class AgentKinds:
    """The registry of agent kinds: built-in kinds, then kinds of installed packages."""

    def __init__(self, kinds: Sequence[AgentKind]) -> None:
        self.builtin = tuple(kinds)
        self._kinds = {kind.name: kind for kind in kinds}
        self._registry = Registry("agent kind", "evaldesk.agents", {kind.name: kind.adapter for kind in kinds})

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry)

    def __contains__(self, name: str) -> bool:
        return name in self._registry

    def __getitem__(self, name: str) -> AgentKind:
        """The kind of that name; a name with a colon is the target of an adapter. Raises NotFoundError."""
        if name not in self._kinds:
            target = name if ":" in name else self._registry.target(name)
            plugin = self._registry.load(name)
            kind = plugin if isinstance(plugin, AgentKind) else AgentKind(name, name, target)
            self._kinds[name] = replace(kind, name=name)
        return self._kinds[name]

    def find(self, name: str) -> AgentKind | None:
        """The kind of that name; None for an unknown kind, or one whose package cannot be imported."""
        if name in self._kinds:
            return self._kinds[name]
        try:
            return self[name] if ":" not in name and name in self else None
        except Exception:  # a package that cannot be imported here, which its agents will say
            return None

    def title(self, name: str) -> str:
        """The title of the kind; an unknown name unchanged."""
        kind = self.find(name)
        return kind.title if kind else name

    def takes(self, agent: AgentDescription) -> tuple[MediaKind, ...]:
        """The media kinds of an agent's input: by its kind, and by its own description."""
        kind = self.find(agent.kind)
        media_kinds = {*agent.takes, *(kind.takes if kind else ())}
        return tuple(each for each in MEDIA_KINDS if each in media_kinds)

    def visibility(self, ref: AgentRef, description: AgentDescription | None) -> Visibility:
        """How far the agent can be seen; whole where its kind is not known."""
        kind = self.find(description.kind if description else ref.kind)
        return kind.visibility_of(ref, description) if kind else Visibility()

    def is_remote(self, name: str) -> bool:
        """Whether agents of the kind are never imported; False for the empty name, the kind of any object."""
        return bool(name) and self[name].is_remote

    def at_prefix(self, prefix: str) -> AgentKind | None:
        """The remote kind with that prefix; the prefix of a package's kind is its name."""
        match = next((kind for kind in self.builtin if kind.prefix == prefix), None) or self.find(prefix)
        return match if match and match.is_remote else None

    def at_address(self, address: str) -> AgentKind:
        """The kind of an agent behind an address without a prefix."""
        ends = [(kind.address_end, kind) for kind in self.builtin if kind.address_end is not None]
        fitting = [(len(end), kind) for end, kind in ends if address.rstrip("/").endswith(end)]
        return max(fitting, key=lambda fit: fit[0])[1]

    def prefixes(self) -> list[str]:
        """The prefixes of the kinds that come with Evaldesk."""
        return [kind.prefix for kind in self.builtin if kind.prefix]

    def kinds_for(self, candidate: object) -> list[AgentKind]:
        """The kinds that may adapt an object, in the order of their adapters, without kinds of broken packages."""
        kinds = (self.find(name) for name in self)
        return sorted((kind for kind in kinds if kind and kind.may_take(candidate)), key=lambda kind: kind.is_last)

    def of_module(self, module: str) -> AgentKind | None:
        """The kind of the framework of a module."""
        tops = [(top, kind) for kind in self.builtin for top in kind.modules]
        fitting = [(len(top), kind) for top, kind in tops if module == top or module.startswith(f"{top}.")]
        return max(fitting, key=lambda fit: fit[0])[1] if fitting else None


# Traits are values here, since reading them must import no framework: decision 027.
AGENTS = AgentKinds([kind for kind in KINDS if is_present(kind.adapter)])


def parameter_names(function: object) -> list[str] | None:
    """The names of the parameters of a function; None without a signature."""
    try:
        return list(inspect.signature(cast("Callable[..., object]", function)).parameters)
    except (TypeError, ValueError):
        return None


def default_instruction(function: object) -> str:
    """The default of the parameter `instruction` of a function; empty without one, or where it is no text."""
    try:
        parameter = inspect.signature(cast("Callable[..., object]", function)).parameters.get("instruction")
    except (TypeError, ValueError):
        return ""
    return parameter.default if parameter is not None and isinstance(parameter.default, str) else ""


def breadth_first(first: T, successors: Callable[[T], Iterable[T]]) -> list[T]:
    """The first node and its direct and indirect successors, each once, in breadth-first order."""
    nodes: list[T] = []
    todo = deque([first])
    while todo:
        node = todo.popleft()
        if not any(node is other for other in nodes):
            nodes.append(node)
            todo.extend(successors(node))
    return nodes


def summary_of(value: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def is_from(value: object, package: str) -> bool:
    """Whether the type of `value`, or a base of it, is defined in `package`."""
    kinds = type(value).__mro__
    return any(kind.__module__ == package or kind.__module__.startswith(f"{package}.") for kind in kinds)


def own_python() -> str:
    """The path of the agent's own interpreter in a player on it; empty on Evaldesk's interpreter."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return sys.executable if main.endswith(os.path.join("evaldesk", "engine", "boot.py")) else ""
