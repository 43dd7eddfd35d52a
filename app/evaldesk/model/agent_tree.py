"""The agents that acted in a conversation: who called whom, how often, and what each of them took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from evaldesk.model.transcript import Event, EventKind, TurnRecord, Usage, call_key, known_sum

_ACTS = frozenset({"agent_message", "tool_call", "tool_result", "usage", "error"})
_NO_AGENTS = frozenset({"", "evaldesk", "user"})
"""Authors of events that tell no agent: a model call that was only seen has the desk as its author."""


@dataclass(frozen=True, slots=True)
class AgentActions:
    """The actions of one agent, without those of the agents below it.

    `parent` is the agent that called it or handed over to it, empty at the top; `depth` counts the agents above.
    `tool` is the tool as which it was called, empty where it was handed over to. `n_entries` counts how often it was
    called or handed over to; `duration_ms` is the time of its model calls and tools, where that is known.
    """

    name: str
    parent: str = ""
    tool: str = ""
    depth: int = 0
    n_entries: int = 0
    n_messages: int = 0
    n_calls: int = 0
    n_errors: int = 0
    n_model_calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    duration_ms: float = 0.0


def agent_tree(turns: Sequence[TurnRecord], root: str = "agent") -> tuple[AgentActions, ...]:
    """The agents of a conversation, each above those that it called; `root` names one that its framework does not.

    An agent that is only known as a tool has the name of the tool.
    """
    tallies = _Tallies(root)
    for turn in turns:
        tallies.add(turn)
    return tuple(tallies.tree())


def has_several_agents(turns: Sequence[TurnRecord]) -> bool:
    """Whether `agent_tree` may have more than one agent: a cheap look, for results that are stored."""
    names = {event.author for turn in turns for event in turn.events if event.kind in _ACTS}
    return len(names - _NO_AGENTS) > 1 or any(event.within for turn in turns for event in turn.events)


def several_agents(turns: Sequence[TurnRecord]) -> tuple[AgentActions, ...]:
    """The agents of a conversation in which several acted; empty where one did."""
    agents = agent_tree(turns) if has_several_agents(turns) else ()
    return agents if len(agents) > 1 else ()


@dataclass(frozen=True, slots=True)
class AgentTotals:
    """The actions of one agent in all trials of a run that have several agents.

    `n_failed` and `n_errored` count the trials of these verdicts in which it acted. `cost` is "at least" where trials
    have an unknown one: `n_unpriced`.
    """

    name: str
    parent: str
    tool: str
    depth: int
    n_trials: int
    n_failed: int
    n_errored: int
    n_entries: int
    n_calls: int
    n_errors: int
    n_model_calls: int
    tokens: int
    cost: float
    n_unpriced: int
    duration_ms: float

    @property
    def known_cost(self) -> float | None:
        """US dollars, None where the cost of no trial is known; a lower bound where it `is_cost_least`."""
        return self.cost if self.n_unpriced < self.n_trials else None

    @property
    def is_cost_least(self) -> bool:
        """Whether some trials have an unknown cost."""
        return 0 < self.n_unpriced < self.n_trials


@dataclass(slots=True)
class _Tally:
    name: str
    parent: str = ""
    tool: str = ""
    n_entries: int = 0
    events: list[Event] = field(default_factory=list)

    def count(self, kind: EventKind) -> int:
        return sum(event.kind == kind for event in self.events)


@dataclass(slots=True)
class _Tallies:
    root: str
    by_name: dict[str, _Tally] = field(default_factory=dict)
    n_calls_by_tool: Counter[str] = field(default_factory=Counter)
    agent_tools: set[str] = field(default_factory=set)
    acting: str = ""
    """The agent that acts now, outside of any tool."""

    def add(self, turn: TurnRecord) -> None:
        caller_by_tool: dict[str, str] = {}
        caller_by_call: dict[str, str] = {}
        self.agent_tools |= {event.within for event in turn.events if event.within}
        is_first = True
        for event in turn.events:
            if event.kind not in _ACTS or event.is_partial or (event.usage and event.usage.role != "agent"):
                continue
            if event.kind == "tool_result" and event.call and call_key(event.call) in caller_by_call:
                # The author of a result may be the tool, or the node of a graph that plays tools.
                self.by_name[caller_by_call[call_key(event.call)]].events.append(event)
                continue
            tally = self._tally(event, caller_by_tool)
            if not event.within and (is_first or tally.name != self.acting):
                tally.n_entries += 1
                self.acting, is_first = tally.name, False
            if event.kind == "tool_call" and event.call:
                caller_by_tool[event.call.name] = caller_by_call[call_key(event.call)] = tally.name
                self.n_calls_by_tool[event.call.name] += 1
            tally.events.append(event)

    def tree(self) -> Iterator[AgentActions]:
        """The agents, depth first in the order in which they began."""
        names_below: dict[str, list[str]] = {}
        for tally in self.by_name.values():
            names_below.setdefault(tally.parent if tally.parent in self.by_name else "", []).append(tally.name)
        names_done: set[str] = set()

        # Without recursion: a program that says who called whom may say so thousands of times.
        for first in ("", *self.by_name):  # those whose parents are a circle begin with themselves
            stack = [(first, 0)] if first else [(name, 0) for name in reversed(names_below.get("", ()))]
            while stack:
                name, depth = stack.pop()
                if name not in names_done:
                    names_done.add(name)
                    yield self._actions(self.by_name[name], depth)
                    stack += [(other, depth + 1) for other in reversed(names_below.get(name, ()))]

    def _tally(self, event: Event, caller_by_tool: dict[str, str]) -> _Tally:
        """The tally of the agent of an event."""
        name = event.author
        if name in _NO_AGENTS:
            name = event.within or self.acting or self.root
        tally = self.by_name.get(name)
        if tally is None:
            above = event.parent or (caller_by_tool.get(event.within, "") if event.within else self.acting)
            parent = "" if above == name else above
            if parent and parent not in self.by_name:  # a workflow, which does nothing itself
                self.by_name[parent] = _Tally(parent)
            tally = self.by_name[name] = _Tally(name, parent, event.within)
        return tally

    def _actions(self, tally: _Tally, depth: int) -> AgentActions:
        usages = [event.usage for event in tally.events if event.usage]
        results = [event for event in tally.events if event.kind == "tool_result"]
        # The time of an agent used as a tool is that agent's.
        timed_results = [event for event in results if not (event.call and event.call.name in self.agent_tools)]
        return AgentActions(
            tally.name,
            tally.parent,
            tally.tool,
            depth,
            n_entries=self.n_calls_by_tool[tally.tool] if tally.tool else tally.n_entries,
            n_messages=tally.count("agent_message"),
            n_calls=tally.count("tool_call"),
            n_errors=tally.count("error") + sum(event.is_error for event in results),
            n_model_calls=len(usages),
            tokens=sum(usage.tokens_in + usage.tokens_out for usage in usages),
            cost=_cost(usages),
            duration_ms=sum(usage.duration_ms for usage in usages)
            + sum(event.duration_ms or 0.0 for event in timed_results),
        )


def _cost(usages: Iterable[Usage]) -> float | None:
    costs = [usage.cost for usage in usages]
    return known_sum(costs) if costs else 0.0
