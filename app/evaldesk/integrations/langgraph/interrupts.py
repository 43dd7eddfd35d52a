"""Interrupts of a graph: their questions, their resume values, and snapshots of paused threads.

The graph decides the form of the resume value. HumanInTheLoopMiddleware of LangChain and the older agent-inbox declare
theirs; any other interrupt gets True, False or the answer.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.agents.tools.frameworks import lost_turn_error
from evaldesk.model import JsonValue, ToolCall, Waiting
from evaldesk.model.decisions import ANY, APPROVAL, Decided, Decision
from evaldesk.wire import plain_json

INTERRUPT = "__interrupt__"
BREAKPOINT = "a breakpoint of the graph"
QUESTION = "an interrupt of the graph"
_ACTION = "#"
"""Between the id of an interrupt and the place of one of its several actions."""


@dataclass(frozen=True, slots=True)
class PausedTurn:
    """A paused turn: its thread, the ids of its sent messages, the calls without a result, and the state."""

    thread: str
    message_ids: list[str]
    calls: list[ToolCall]
    state: dict[str, JsonValue]


def waiting_of(
    interrupts: Sequence[Any], open_calls: Sequence[ToolCall], calls_by_interrupt: Mapping[str, ToolCall]
) -> Iterator[Waiting]:
    """The pending approvals. A plain interrupt of a tool node belongs to its call in `calls_by_interrupt`.

    Interrupts of other nodes are paired with the open calls if their numbers are equal.
    """
    if not interrupts:  # of `interrupt_before` and `interrupt_after`
        yield Waiting("", BREAKPOINT, choices=("approve",))
    calls = open_calls if len(open_calls) == len(interrupts) else [None] * len(interrupts)
    for number, (interrupt, open_call) in enumerate(zip(interrupts, calls, strict=True)):
        name = getattr(interrupt, "id", None) or str(number)
        call = calls_by_interrupt.get(name, open_call)
        value = plain_json(interrupt.value)
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
    """The input that resumes the graph; `edits` are changes of its state by a person."""
    from langgraph.types import Command

    if [request.tool for request, _ in decided] == [BREAKPOINT]:
        return Command(update=edits) if edits else None
    values: dict[str, Any] = {}
    for request, decision in decided:
        name, _, suffix = request.id.partition(_ACTION)
        form = suffix.partition(_ACTION)[2]
        if form == "inbox":
            values[name] = [_inbox(decision)]
        elif form:
            values.setdefault(name, {"decisions": []})["decisions"].append(_middleware(decision))
        else:
            values[name] = decision.answer if decision.decision == "answer" else decision.decision == "approve"
    is_named = all(len(name) > 8 for name in values)  # before ids, a graph had one interrupt at a time
    return Command(resume=values if is_named else next(iter(values.values())), **({"update": edits} if edits else {}))


def _actions(value: Any) -> list[tuple[dict[str, Any], str]]:
    """The calls in the question of an interrupt, each with the form of its answer; none for a plain interrupt."""
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


async def thread_snapshot(checkpointer: Any, paused_turn: PausedTurn) -> JsonValue:
    """Snapshot of the thread: its newest checkpoint in each namespace; None if it is not readable or not JSON."""
    if not checkpointer:
        return None
    try:
        newest: dict[str, Any] = {}
        async for checkpoint_tuple in checkpointer.alist({"configurable": {"thread_id": paused_turn.thread}}):
            newest.setdefault(checkpoint_tuple.config["configurable"].get("checkpoint_ns", ""), checkpoint_tuple)
        checkpoints = [
            {
                "ns": ns,
                "id": newest_tuple.config["configurable"]["checkpoint_id"],
                "checkpoint": _encode(checkpointer, newest_tuple.checkpoint),
                "metadata": _encode(checkpointer, newest_tuple.metadata),
                "writes": _encode(checkpointer, newest_tuple.pending_writes or []),
            }
            for ns, newest_tuple in newest.items()
        ]
    except Exception:  # of a checkpointer of any make; the turn then goes on in this process alone
        return None
    calls: list[JsonValue] = [[call.name, dict(call.args), call.id] for call in paused_turn.calls]
    snapshot: Any = {
        "thread": paused_turn.thread,
        "seen": paused_turn.message_ids,
        "calls": calls,
        "state": plain_json(paused_turn.state),
    }
    return {**snapshot, "checkpoints": checkpoints}


async def restore_thread(checkpointer: Any, snapshot: Any) -> PausedTurn:
    """The paused turn; its checkpoints are restored if the checkpointer lacks them. Raises AgentError."""
    if not isinstance(snapshot, dict):
        raise lost_turn_error()
    thread = snapshot["thread"]
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    if await checkpointer.aget_tuple(config) is None:
        for each in snapshot["checkpoints"]:
            await _put(checkpointer, thread, each)
    return PausedTurn(thread, snapshot["seen"], [ToolCall(*call) for call in snapshot["calls"]], snapshot["state"])


async def _put(checkpointer: Any, thread: str, entry: Any) -> None:
    checkpoint, metadata, writes = (_decode(checkpointer, entry[key]) for key in ("checkpoint", "metadata", "writes"))
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": entry["ns"]}}
    checkpoint_config = await checkpointer.aput(config, checkpoint, metadata, dict(checkpoint["channel_versions"]))
    by_task: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in writes:
        by_task.setdefault(task, []).append((channel, value))
    for task, channel_writes in by_task.items():
        await checkpointer.aput_writes(checkpoint_config, channel_writes, task)


def _encode(checkpointer: Any, value: Any) -> JsonValue:
    kind, data = checkpointer.serde.dumps_typed(value)
    return [kind, base64.b64encode(data).decode()]


def _decode(checkpointer: Any, entry: Any) -> Any:
    return checkpointer.serde.loads_typed((entry[0], base64.b64decode(entry[1])))
