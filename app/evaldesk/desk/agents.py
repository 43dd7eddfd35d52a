"""The agents of a desk, and the description that each gives of itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from evaldesk import paths
from evaldesk.agents import AGENTS, declared_refs, find_agents, merge_refs
from evaldesk.agents.discovery import with_place
from evaldesk.desk.trust import Trust
from evaldesk.engine.driver.code_files import agent_files, package_folders
from evaldesk.engine.driver.zygote import UNFORKED
from evaldesk.engine.launch import in_environment
from evaldesk.errors import AgentError, EvaldeskError, NotFoundError, UsageError
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord
from evaldesk.model.media import MediaKind
from evaldesk.model.visibility import Visibility
from evaldesk.run_options import KEEP
from evaldesk.settings import Settings
from evaldesk.wire import value_scrubber

AgentState: TypeAlias = Literal["unknown", "loading", "ready", "failed", "untrusted"]
Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]

MAX_AT_ONCE = 2
WARM_AT_START = 1
NO_SIZE = -1  # of a folder
UNTELLING_NAMES = frozenset({"", "agent", "root_agent"})


class Describer(Protocol):
    """The part of a worker that an agent desk uses."""

    async def describe(self, ref: AgentRef) -> AgentDescription:
        """The agent's description of itself. Raises AgentError."""

    async def warm(self, ref: AgentRef) -> None:
        """Load the packages for the agent's turns; never raises."""


@dataclass(frozen=True, slots=True)
class FoundAgent:
    """An agent that was found. `description` is there when `state` is ready, `error` when it is failed.

    An untrusted agent is known by its file and not imported.

    `n_files` and `changed_ns` (nanoseconds since 1970) are of the agent's own files.
    """

    ref: AgentRef
    state: AgentState = "unknown"
    description: AgentDescription | None = None
    error: ErrorRecord | None = None
    n_files: int = 0
    changed_ns: int = 0

    @property
    def id(self) -> str:
        """The opaque id that a browser sends."""
        return self.ref.id

    @property
    def name(self) -> str:
        """The name of the agent on each page, in commands, reports and stored runs: its id."""
        return self.ref.id

    @property
    def own_name(self) -> str:
        """The name in its code, by which it is an author of events; empty where it is the same, or tells nothing."""
        name = self.description.name if self.description else ""
        return "" if name in UNTELLING_NAMES or name == self.ref.id else name

    @property
    def is_demo(self) -> bool:
        """Whether the agent runs on the scripted demo model."""
        return bool(self.description and self.description.is_demo)

    @property
    def no_fork_reason(self) -> str:
        """Why its players are not forked, as far as that was tried in this process; empty where they are."""
        reason = UNFORKED.get(self.ref, "")
        return reason and f"each player imports it anew: {reason}"

    @property
    def visibility(self) -> Visibility:
        """How far it can be seen: by its kind and its description."""
        return AGENTS.visibility(self.ref, self.description)

    @property
    def takes(self) -> tuple[MediaKind, ...]:
        """The kinds of media that it takes beside text; none while it is unknown."""
        return AGENTS.takes(self.description) if self.description else ()


class AgentDesk:
    """The agents under the settings' roots, or the samples that ship with Evaldesk when there is none."""

    def __init__(self, settings: Settings, host: Describer, trust: Trust | None = None) -> None:
        self._trust = trust
        self.models = settings.models
        self.model_options = settings.model_options
        self.limits = settings.limits
        self.keeps_prompts = settings.prompts == KEEP
        self.environment = settings.environment
        self._settings = settings
        self._host = host
        self._agents: dict[str, FoundAgent] = {}
        self._fingerprints: dict[str, Fingerprint] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._warming: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._is_looked = False
        self._scrubbed: Callable[[ErrorRecord], ErrorRecord] = value_scrubber(settings.environment)

    @property
    def has_untrusted(self) -> bool:
        """Whether an agent was found that may not be imported."""
        return any(agent.state == "untrusted" for agent in self._agents.values())

    @property
    def is_sample(self) -> bool:
        """Whether the agents are the samples of Evaldesk."""
        return all(Path(agent.ref.folder).is_relative_to(paths.samples()) for agent in self.list())

    async def start(self) -> None:
        """Look for agents, begin to ask each for its description, and have the first one ready to talk.

        Every other is warmed when the form of its session is opened, before its first message.
        """
        await self.look_again()
        for agent in self.list()[:WARM_AT_START]:
            self.warm(agent.id)

    async def wait_until_ready(self) -> None:
        """Wait until nothing is being asked or warmed any more."""
        while tasks := [*self._tasks.values(), *self._warming.values()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Stop asking."""
        tasks = [*self._tasks.values(), *self._warming.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def list(self) -> Sequence[FoundAgent]:
        """The agents in the order of their ids."""
        self._look_once()
        return [self._agents[agent_id] for agent_id in sorted(self._agents)]

    def get(self, agent_id: str) -> FoundAgent:
        """The agent with that id. Raises NotFoundError naming the nearest."""
        self._look_once()
        if agent_id not in self._agents:
            raise NotFoundError.among("agent", agent_id, self._agents)
        return self._agents[agent_id]

    async def look_again(self, *, ask_failed: bool = False) -> None:
        """Look for agents that came or went, and ask the new and the edited ones in the background.

        With `ask_failed` failed agents are described again, too: the missing part may be there now.
        """
        refs, fingerprints = await asyncio.to_thread(_look, self._settings)
        self._take(refs, fingerprints)
        for agent in list(self._agents.values()):
            if agent.state == "unknown" or (ask_failed and agent.state == "failed"):
                self._ask(agent.ref)

    async def get_described_agent(self, agent_id: str, timeout_s: float = 10.0) -> FoundAgent:
        """The agent, once it has described itself or failed to, or after `timeout_s`. Raises NotFoundError."""
        agent = self.get(agent_id)
        if agent.state == "unknown":
            self._ask(agent.ref)
        task = self._tasks.get(agent_id)
        if task:
            await asyncio.wait({task}, timeout=timeout_s)
        return self.get(agent_id)

    async def described_in(self, agent: FoundAgent, environment: str) -> FoundAgent:
        """The agent as it describes itself in another environment of the settings.

        Raises UsageError naming the field, TrustError.
        """
        ref = await asyncio.to_thread(in_environment, agent.ref, self._settings, environment)
        try:
            return replace(agent, ref=ref, state="ready", description=await self._host.describe(ref), error=None)
        except AgentError as error:
            raise UsageError(f"{ref.id} in the environment {environment}: {error}", field="environment") from error

    def check_trust(self, agent: FoundAgent) -> None:
        """Raise TrustError for an agent that may not be imported."""
        if self._trust:
            self._trust.check_agent(agent.ref)

    def warm(self, agent_id: str) -> None:
        """Have the agent's worker ready before its first message, in the background."""
        agent = self._agents.get(agent_id)
        if agent and agent.state not in {"failed", "untrusted"} and agent_id not in self._warming:
            task = asyncio.create_task(self._host.warm(agent.ref))
            self._warming[agent_id] = task
            task.add_done_callback(lambda _: self._warming.pop(agent_id, None))

    def _look_once(self) -> None:
        if not self._is_looked:
            self._take(*_look(self._settings))

    def _take(self, refs: Iterable[AgentRef], fingerprints: dict[str, Fingerprint]) -> None:
        self._is_looked = True
        agents = {}
        for ref in refs:
            agent = self._agents.get(ref.id)
            is_same = agent and agent.ref == ref and self._fingerprints.get(ref.id) == fingerprints[ref.id]
            is_allowed = self._trust is None or self._trust.allows(ref)
            if not (agent and is_same and (agent.state == "untrusted") != is_allowed):
                fingerprint = fingerprints[ref.id]
                files = [modified for _, modified, size in fingerprint if size != NO_SIZE]
                changed_ns = max(files, default=0)
                agent = FoundAgent(
                    ref, "unknown" if is_allowed else "untrusted", n_files=len(files), changed_ns=changed_ns
                )
            agents[ref.id] = agent
        self._agents = agents
        self._fingerprints = fingerprints

    def _ask(self, ref: AgentRef) -> None:
        old_task = self._tasks.pop(ref.id, None)
        if old_task:
            old_task.cancel()
        self._set(ref, state="loading", description=None, error=None)
        task = asyncio.create_task(self._describe(ref))
        self._tasks[ref.id] = task
        task.add_done_callback(lambda task_at_end: self._forget(ref.id, task_at_end))

    def _forget(self, agent_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(agent_id) is task:
            del self._tasks[agent_id]

    async def _describe(self, ref: AgentRef) -> None:
        async with self._room:
            try:
                description = await self._host.describe(ref)
            except Exception as error:  # the user's agent is not ours: any exception becomes a value
                self._set(ref, state="failed", error=self._scrubbed(error_record(error)))
            else:
                clean: Callable[[AgentDescription], AgentDescription] = value_scrubber(self.environment)
                self._set(ref, state="ready", description=clean(description))

    def _set(
        self,
        ref: AgentRef,
        *,
        state: AgentState,
        description: AgentDescription | None = None,
        error: ErrorRecord | None = None,
    ) -> None:
        agent = self._agents.get(ref.id)
        if agent and agent.ref == ref:
            self._agents[ref.id] = replace(agent, state=state, description=description, error=error)


def error_record(error: BaseException) -> ErrorRecord:
    """A failure of an agent as a value: its first line, and the trace that it carries."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    kind = "agent" if isinstance(error, EvaldeskError) else type(error).__name__
    return ErrorRecord(kind, lines[0], str(getattr(error, "trace", "") or "\n".join(lines[1:])))


def found_refs(settings: Settings) -> Sequence[AgentRef]:
    """The agents that the workspace finds or declares, or the samples where there is none; nothing is imported."""
    workspace_refs = [] if settings.is_demo else find_agents(settings.roots)
    refs = merge_refs(workspace_refs, declared_refs(settings.agents, settings.workspace))
    return [with_place(ref, settings.python, settings.container) for ref in refs] or find_agents([paths.samples()])


def _look(settings: Settings) -> tuple[Sequence[AgentRef], dict[str, Fingerprint]]:
    refs = found_refs(settings)
    return refs, {ref.id: _fingerprint(ref) for ref in refs}


def _fingerprint(ref: AgentRef) -> Fingerprint:
    """Path, time and size of each of the agent's own files, and of the folders of its own interpreter's packages."""
    files = [(place, changed_ns, NO_SIZE) for place, changed_ns in package_folders(ref)]
    for entry in agent_files(ref.folder or ref.root or "."):
        with contextlib.suppress(OSError):
            stat = entry.stat()
            files.append((entry.path, stat.st_mtime_ns, stat.st_size))
    return tuple(files)
