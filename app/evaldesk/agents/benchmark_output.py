"""An `EvalOutput`, in whatever shape a benchmark returns it, as events. (reference/openhands_tau.md section 1)"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from evaldesk.agents.message_events import parsed
from evaldesk.errors import AgentError
from evaldesk.model import ErrorRecord, Event, ToolCall, Usage
from evaldesk.model.reports import report
from evaldesk.wire import plain, to_json

MAX_SUMMARY = 2_000

_TOO_MANY = re.compile(r"maximum iteration|max(imum)?[_ ]iterations", re.I)
_TALK = ("message", "finish", "think")


def output_events(found: object, more: Mapping[str, Any], author: str) -> Iterator[Event]:
    """The events of a trial: its history, what its models took, its test result, its error. Raises AgentError.

    `more` is what `teardown` returned; it lands in the test result.
    """
    output = _output(found)
    told = list(_history(output.get("history"), author))
    yield from told
    yield from _usages(output.get("metrics"))
    result = {**_object(output.get("test_result")), **more}
    if not any(event.kind == "agent_message" for event in told):
        yield Event("agent_message", author=author, text=to_json(plain(result)).decode()[:MAX_SUMMARY])
    yield report({"test_result": plain(result)})
    error = output.get("error")
    if error:
        kind = "max_iterations" if _TOO_MANY.search(str(error)) else "instance_error"
        yield Event("error", error=ErrorRecord(kind, str(error)))


def sent_output(found: object) -> dict[str, Any]:
    """What is used of an `EvalOutput`, as plain JSON for another process. Raises AgentError."""
    output = _output(found)
    history = [plain(item) for item in _flat(output.get("history"))]
    metrics = output.get("metrics")
    listed = metrics.items() if isinstance(metrics, Mapping) else ()
    return {
        "test_result": plain(output["test_result"]),
        "history": history,
        "metrics": {str(name): _plain_part(value) for name, value in listed},
        "error": None if output.get("error") is None else str(output["error"]),
    }


def _plain_part(value: object) -> object:
    return [plain(item) for item in value] if isinstance(value, list | tuple) else plain(value)


def _output(found: object) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        output: Mapping[str, Any] = found
    elif hasattr(found, "model_dump"):
        output = found.model_dump()
    elif is_dataclass(found) and not isinstance(found, type):
        output = asdict(found)
    else:
        raise AgentError(f"process_instance must return an EvalOutput or a dict like one, got {type(found).__name__}")
    if "test_result" not in output:
        raise AgentError(
            f"process_instance returned no test_result; it has: {', '.join(map(str, output)) or 'nothing'}"
        )
    return output


def _object(found: object) -> dict[str, Any]:
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {"value": found}


def _history(found: object, author: str) -> Iterator[Event]:
    """Flat events or pairs of action and observation; an observation belongs to the action it names as its cause."""
    calls: dict[Any, ToolCall] = {}
    for item in _flat(found):
        if item.get("kind") in {"agent_message", "tool_call", "tool_result", "log"}:
            continue  # events of our own shape were told while they happened
        action, observation = item.get("action"), item.get("observation")
        if isinstance(observation, str) and observation not in {"null", ""}:
            yield from _observed(item, calls, author)
        elif isinstance(action, str) and action in _TALK:
            text = _talk(item)
            if text and item.get("source") != "user":
                kind = "log" if action == "think" else "agent_message"
                yield Event(kind, author=author, text=text)  # type: ignore[arg-type]
        elif isinstance(action, str) and action not in {"null", "system", "recall"}:
            call = ToolCall(action, _object(plain(_object(item.get("args")))), _id(item))
            calls[item.get("id")] = call
            yield Event("tool_call", author=author, call=call)


def _flat(found: object) -> Iterator[Mapping[str, Any]]:
    for item in found if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping) else ():
        if isinstance(item, list | tuple):
            yield from (part for part in item if isinstance(part, Mapping))
        elif isinstance(item, Mapping):
            yield item


def _observed(item: Mapping[str, Any], calls: Mapping[Any, ToolCall], author: str) -> Iterator[Event]:
    text = str(item.get("content") or item.get("message") or "")
    is_error = item.get("observation") == "error" or item.get("success") is False
    call = calls.get(item.get("cause"))
    if call is not None:
        yield Event("tool_result", author=author, call=call, result=parsed(text), is_error=is_error)
    elif is_error:
        yield Event("log", author=author, text=text)


def _talk(item: Mapping[str, Any]) -> str:
    args = _object(item.get("args"))
    return str(args.get("content") or args.get("final_thought") or args.get("thought") or item.get("message") or "")


def _id(item: Mapping[str, Any]) -> str | None:
    call_id = _object(item.get("tool_call_metadata")).get("tool_call_id", item.get("id"))
    return None if call_id is None else str(call_id)


def _usages(found: object) -> Iterator[Event]:
    """One usage for each call that the metrics tell, else one for the whole; a cost of 0 for tokens is unknown."""
    metrics = _object(found) if isinstance(found, Mapping) else {}
    costs = [item.get("cost") if isinstance(item, Mapping) else item for item in metrics.get("costs") or ()]
    calls = [item for item in metrics.get("token_usages") or () if isinstance(item, Mapping)]
    if calls:
        for index, item in enumerate(calls):
            yield _usage(item, costs[index] if len(costs) == len(calls) else None)
    elif isinstance(metrics.get("accumulated_token_usage"), Mapping):
        yield _usage(metrics["accumulated_token_usage"], metrics.get("accumulated_cost"))


def _usage(item: Mapping[str, Any], cost: Any) -> Event:
    tokens_in, tokens_out = (_count(item.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    known = float(cost) if isinstance(cost, int | float) and cost > 0 else None
    return Event(
        "usage",
        usage=Usage(str(item.get("model") or "unknown"), tokens_in=tokens_in, tokens_out=tokens_out, cost=known),
    )


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value >= 0 else 0
