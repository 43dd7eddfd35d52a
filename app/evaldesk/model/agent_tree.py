"""The agents that acted in a conversation: who called whom, how often, and what each of them took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from evaldesk.model.transcript import Event, TurnRecord, Usage, call_key, known_sum

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


@dataclass(slots=True)
class _Tally:
    name: str
    parent: str = ""
    tool: str = ""
    n_entries: int = 0
    n_messages: int = 0
    n_calls: int = 0
    n_errors: int = 0
    usages: list[Usage] = field(default_factory=list)
    tool_ms: float = 0.0

    def count(self, event: Event) -> None:
        if event.usage:
            self.usages.append(event.usage)
        elif event.kind == "tool_result":
            self.count_result(event, is_of_agent=False)
        self.n_messages += event.kind == "agent_message"
        self.n_calls += event.kind == "tool_call"
        self.n_errors += event.kind == "error"

    def count_result(self, event: Event, *, is_of_agent: bool) -> None:
        """Count the result of a call; the time of an agent used as a tool is that agent's."""
        self.n_errors += event.is_error
        self.tool_ms += 0.0 if is_of_agent else event.duration_ms or 0.0


@dataclass(slots=True)
class _Tallies:
    root: str
    by_name: dict[str, _Tally] = field(default_factory=dict)
    n_calls_by_tool: Counter[str] = field(default_factory=Counter)
    acting: str = ""
    """The agent that acts now, outside of any tool."""

    def add(self, turn: TurnRecord) -> None:
        caller_by_tool: dict[str, str] = {}
        caller_by_call: dict[str, str] = {}
        agent_tools = {event.within for event in turn.events if event.within}
        is_first = True
        for event in turn.events:
            if event.kind not in _ACTS or event.is_partial or (event.usage and event.usage.role != "agent"):
                continue
            if event.kind == "tool_result" and event.call and call_key(event.call) in caller_by_call:
                # The author of a result may be the tool, or the node of a graph that plays tools.
                caller = self.by_name[caller_by_call[call_key(event.call)]]
                caller.count_result(event, is_of_agent=event.call.name in agent_tools)
                continue
            tally = self._tally(event, caller_by_tool)
            if not event.within and (is_first or tally.name != self.acting):
                tally.n_entries += 1
                self.acting, is_first = tally.name, False
            if event.kind == "tool_call" and event.call:
                caller_by_tool[event.call.name] = caller_by_call[call_key(event.call)] = tally.name
                self.n_calls_by_tool[event.call.name] += 1
            tally.count(event)

    def tree(self) -> Iterator[AgentActions]:
        """The agents, depth first in the order in which they began."""
        names_below: dict[str, list[str]] = {}
        for tally in self.by_name.values():
            names_below.setdefault(tally.parent if tally.parent in self.by_name else "", []).append(tally.name)
        shown: set[str] = set()

        def below(name: str, depth: int) -> Iterator[AgentActions]:
            for other in names_below.get(name, ()):
                if other not in shown:
                    shown.add(other)
                    yield self._actions(self.by_name[other], depth)
                    yield from below(other, depth + 1)

        yield from below("", 0)
        for name, tally in self.by_name.items():  # those whose parents are a circle
            if name not in shown:
                shown.add(name)
                yield self._actions(tally, 0)
                yield from below(name, 1)

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
        n_entries = self.n_calls_by_tool[tally.tool] if tally.tool else tally.n_entries
        return AgentActions(
            tally.name,
            tally.parent,
            tally.tool,
            depth,
            n_entries,
            tally.n_messages,
            tally.n_calls,
            tally.n_errors,
            len(tally.usages),
            sum(usage.tokens_in + usage.tokens_out for usage in tally.usages),
            _cost(tally.usages),
            sum(usage.duration_ms for usage in tally.usages) + tally.tool_ms,
        )


def _cost(usages: Iterable[Usage]) -> float | None:
    costs = [usage.cost for usage in usages]
    return known_sum(costs) if costs else 0.0
