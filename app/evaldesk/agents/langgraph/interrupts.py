"""Interrupts of a graph: what they ask a person, how a decision resumes them, and the thread that waits, as JSON.

An interrupt is resumed by a value of the graph's own choice. LangChain's HumanInTheLoopMiddleware and the older form of
agent-inbox say which they take; any other gets True, False or the answer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.tools.frameworks import gone
from evaldesk.model import JsonValue, ToolCall, Waiting
from evaldesk.model.decisions import ANY, APPROVAL, Decided, Decision
from evaldesk.wire import plain

INTERRUPT = "__interrupt__"
BREAKPOINT = "a breakpoint of the graph"
QUESTION = "an interrupt of the graph"
_ACTION = "#"
"""Between the id of an interrupt and the place of one of its several actions."""


@dataclass(frozen=True, slots=True)
class Waited:
    """A turn that waits: its thread, the messages that were told, the calls without a result, and the state."""

    thread: str
    seen: list[str]
    calls: list[ToolCall]
    state: dict[str, JsonValue]


def waiting_of(
    interrupts: Sequence[Any], open_calls: Sequence[ToolCall], asked: Mapping[str, ToolCall]
) -> Iterator[Waiting]:
    """What waits. A plain interrupt belongs to the call of a tool node in which it was `asked`.

    Of another node it is about the call that has no result yet, where there is one for each of them.
    """
    if not interrupts:  # of `interrupt_before` and `interrupt_after`
        yield Waiting("", BREAKPOINT, choices=("approve",))
    calls = open_calls if len(open_calls) == len(interrupts) else [None] * len(interrupts)
    for number, (found, nearest) in enumerate(zip(interrupts, calls, strict=True)):
        name = getattr(found, "id", None) or str(number)
        call = asked.get(name, nearest)
        value = plain(found.value)
        actions = _actions(value)
        for place, (action, form) in enumerate(actions):
            args = action.get("args") or action.get("arguments") or {}
            tool = str(action.get("name") or action.get("action") or QUESTION)
            yield Waiting(
                f"{name}{_ACTION}{place}{_ACTION}{form}",
                tool,
                args if isinstance(args, dict) else {},
                ANY if form == "inbox" else APPROVAL,
                action.get("description"),
            )
        if not actions:
            yield Waiting(name, call.name if call else QUESTION, call.args if call else {}, ANY, value)


def resumption(decided: Sequence[Decided], edits: dict[str, Any]) -> Any:
    """The input by which the graph goes on; `edits` are changes of its state by a person."""
    from langgraph.types import Command

    if [waiting.tool for waiting, _ in decided] == [BREAKPOINT]:
        return Command(update=edits) if edits else None
    values: dict[str, Any] = {}
    for waiting, decision in decided:
        name, _, rest = waiting.id.partition(_ACTION)
        form = rest.partition(_ACTION)[2]
        if form == "inbox":
            values[name] = [_inbox(decision)]
        elif form:
            values.setdefault(name, {"decisions": []})["decisions"].append(_middleware(decision))
        else:
            values[name] = decision.answer if decision.decision == "answer" else decision.decision == "approve"
    is_named = all(len(name) > 8 for name in values)  # before ids, a graph had one interrupt at a time
    return Command(resume=values if is_named else next(iter(values.values())), **({"update": edits} if edits else {}))


def _actions(value: Any) -> list[tuple[dict[str, Any], str]]:
    """The calls that an interrupt asks about, each with the form of its answer; none of a plain one."""
    if isinstance(value, dict) and isinstance(value.get("action_requests"), list):
        return [(each, "middleware") for each in value["action_requests"] if isinstance(each, dict)]
    first = value[0] if isinstance(value, list) and value else value
    request = first.get("action_request") if isinstance(first, dict) else None
    return [(request, "inbox")] if isinstance(request, dict) else []


def _middleware(decision: Decision) -> dict[str, Any]:
    if decision.decision == "approve":
        return {"type": "approve"}
    return {"type": "reject", **({"message": decision.reason} if decision.reason else {})}


def _inbox(decision: Decision) -> dict[str, Any]:
    if decision.decision == "approve":
        return {"type": "accept", "args": None}
    if decision.decision == "deny":
        return {"type": "response", "args": decision.reason or "The call was denied."}
    return {"type": "response", "args": decision.answer}


async def frozen_thread(checkpointer: Any, waited: Waited) -> JsonValue:
    """The thread as JSON: its newest checkpoint in each namespace; None where it cannot be read or written so."""
    if not checkpointer:
        return None
    try:
        newest: dict[str, Any] = {}
        async for found in checkpointer.alist({"configurable": {"thread_id": waited.thread}}):
            newest.setdefault(found.config["configurable"].get("checkpoint_ns", ""), found)
        checkpoints = [
            {
                "ns": ns,
                "id": found.config["configurable"]["checkpoint_id"],
                "checkpoint": _packed(checkpointer, found.checkpoint),
                "metadata": _packed(checkpointer, found.metadata),
                "writes": _packed(checkpointer, found.pending_writes or []),
            }
            for ns, found in newest.items()
        ]
    except Exception:  # of a checkpointer of any make; the turn then goes on in this process alone
        return None
    calls: list[JsonValue] = [[call.name, dict(call.args), call.id] for call in waited.calls]
    frozen: Any = {"thread": waited.thread, "seen": waited.seen, "calls": calls, "state": plain(waited.state)}
    return {**frozen, "checkpoints": checkpoints}


async def restored(checkpointer: Any, stored: Any) -> Waited:
    """The turn that waits, put back into the checkpointer where it is not there. Raises AgentError."""
    if not isinstance(stored, dict):
        raise gone()
    thread = stored["thread"]
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    if await checkpointer.aget_tuple(config) is None:
        for each in stored["checkpoints"]:
            await _put(checkpointer, thread, each)
    return Waited(thread, stored["seen"], [ToolCall(*call) for call in stored["calls"]], stored["state"])


async def _put(checkpointer: Any, thread: str, stored: Any) -> None:
    checkpoint, metadata, writes = (
        _unpacked(checkpointer, stored[key]) for key in ("checkpoint", "metadata", "writes")
    )
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": stored["ns"]}}
    put = await checkpointer.aput(config, checkpoint, metadata, dict(checkpoint["channel_versions"]))
    by_task: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in writes:
        by_task.setdefault(task, []).append((channel, value))
    for task, found in by_task.items():
        await checkpointer.aput_writes(put, found, task)


def _packed(checkpointer: Any, value: Any) -> JsonValue:
    kind, data = checkpointer.serde.dumps_typed(value)
    return [kind, base64.b64encode(data).decode()]


def _unpacked(checkpointer: Any, stored: Any) -> Any:
    return checkpointer.serde.loads_typed((stored[0], base64.b64decode(stored[1])))
