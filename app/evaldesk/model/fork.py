"""A fork of a trial: its point, its edits, and the pinned turns that come before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from evaldesk.errors import VALUE_LIMIT, UsageError
from evaldesk.model.evalset import Case, JsonObject, JsonValue, SessionInit, ToolCall, Turn
from evaldesk.model.transcript import Event, TurnRecord, call_key

EditKind: TypeAlias = Literal[
    "message",
    "drop_turn",
    "insert_turn",
    "state",
    "tool_result",
    "assistant",
    "instruction",
    "model",
    "double",
    "agent",
]
EDIT_KINDS: tuple[EditKind, ...] = get_args(EditKind)
Then: TypeAlias = Literal["script", "message", "user"]
"""The messages after the point: the rest of the script, one free message, or the simulated user of the case."""
MOST_EDITS = 20
MOST_DEPTH = 10
"""Forks of forks, from a trial of an ordinary run on."""
MOST_FORK_TEXT = 100_000
MOST_NESTED = 50
"""Levels of the value of an edit."""


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A place in a trial: before its turn `turn`, counted from 1, or inside it before its model call `call`, from 1."""

    run_id: int
    case_index: int
    trial_index: int
    turn: int
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One change at a fork point. The fields that count depend on `kind`:

    `message` and `insert_turn`: `text`. `drop_turn`: nothing. `state`: `value`, a JSON merge patch. `tool_result`: the
    tool call number `call` of the turn before, from 1, with `value` or `error` as its result. `assistant`: `text`, or
    `value`, a list of calls with `name` and `args`, in place of the answer of the turn before. `instruction`: `text`,
    for the agent of the tree named `name` or the agent itself. `model`: `name` and `value`, options of its calls.
    `double`: the tool `name`, and `value`, the list of its answers. `agent`: `name`.
    """

    kind: EditKind
    text: str = ""
    name: str = ""
    call: int | None = None
    value: JsonValue = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """A request to play a trial on from a point `n` times.

    `then` names the messages after the point, `message` is the text of one free message. `runs_tools`: tools without
    doubles run for real; None is yes for a trial that was played here, and no for an imported one. Seeds are those of
    the trials number `first`, from 0, and the following ones.
    """

    point: ForkPoint
    edits: tuple[Edit, ...] = ()
    n: int = 10
    then: Then = "script"
    message: str = ""
    runs_tools: bool | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class ForkPart:
    """The place of a run that continues a trial of another run: the point and the edits.

    `depth` is 1 for a fork of an ordinary trial, 2 for a fork of such a fork. `fingerprint` is over the content of the
    pinned turns, the edits and the agent. `n_prefix_turns` are pinned, and were not played. `agent_version` is the
    agent's at the time of the parent. `message` is the first one of a simulated user, empty for its own.
    """

    point: ForkPoint
    edits: tuple[Edit, ...] = ()
    then: Then = "script"
    n_prefix_turns: int = 0
    fingerprint: str = ""
    depth: int = 1
    first: int = 0
    agent_version: str = ""
    message: str = ""

    @property
    def n_prefix_calls(self) -> int:
        """The model calls of its first played turn that are answered from the recording of the parent."""
        return max((self.point.call or 1) - 1, 0)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The pinned turns of a trial and the session state after them; nothing of it is executed.

    `message` is the first message of a simulated user in place of its own; empty for its own. The first `n_calls` model
    calls of the next turn are answered from the recording of the trial number `trial_index` of the parent, from 0,
    which `place` names in the recording.
    """

    turns: tuple[TurnRecord, ...] = ()
    state: JsonObject = field(default_factory=dict)
    message: str = ""
    n_calls: int = 0
    trial_index: int = 0
    place: str = ""


def trial_place(run_id: int, case_index: int, trial_index: int) -> str:
    """The name of a trial in a recording, under which its requests are kept."""
    return f"{run_id}/{case_index}/{trial_index}"


def model_calls_of(turn: TurnRecord) -> int:
    """The number of model calls of the agent in a turn."""
    return sum(usage.role == "agent" for usage in turn.usages)


def turn_from_call(turn: TurnRecord, call: int | None) -> TurnRecord:
    """The turn with its events from that model call on, from 1; the whole turn without one."""
    places = [
        at for at, each in enumerate(turn.events) if each.kind == "usage" and each.usage and each.usage.role == "agent"
    ]
    if not call or call > len(places):
        return turn
    return replace(turn, events=turn.events[places[call - 1] :])


def pinned_stub(turn: TurnRecord) -> TurnRecord:
    """A pinned turn as the trials of a fork hold it: its message alone; its events are stored once for all of them."""
    return TurnRecord(turn.query)


EDITS_BEFORE_CALLS = frozenset({"message", "drop_turn", "insert_turn", "state", "tool_result", "assistant"})
"""Edits of the conversation before a turn begins: inside it they would change calls that were recorded."""


def check_edits(edits: Sequence[Edit], turn: int, call: int | None = None) -> None:
    """Raise UsageError for edits that cannot be made at a point before that turn, naming the one at fault.

    Inside a turn, before its model call `call`, the conversation before it cannot be edited.
    """
    for edit in edits if call else ():
        if edit.kind in EDITS_BEFORE_CALLS:
            raise UsageError(
                f"{edit.kind.replace('_', ' ')}: it changes the conversation before call {call} of turn {turn}, which "
                f"is answered from the record; the nearest point for it is before turn {turn}",
                field=edit.kind,
            )
    if len(edits) > MOST_EDITS:
        raise UsageError(f"{len(edits)} edits; a fork has at most {MOST_EDITS}", field="edits")
    for number, edit in enumerate(edits, 1):
        problem = _size_problem(edit) or _problem_of(edit, turn)
        if problem:
            raise UsageError(f"edit {number}, {edit.kind}: {problem}", field=edit.kind)


def _size_problem(edit: Edit) -> str:
    if edit.kind not in EDIT_KINDS:
        return f"no such kind of edit; there are {', '.join(EDIT_KINDS)}"
    if len(edit.text) > MOST_FORK_TEXT:
        return f"the text has {len(edit.text):,} characters; at most {MOST_FORK_TEXT:,} fit"
    if _is_deeper(edit.value, MOST_NESTED):
        return f"the value is nested deeper than {MOST_NESTED} levels"
    is_stored = is_storable([edit.text, edit.name, edit.error, edit.value])
    return "" if is_stored else "it holds half a surrogate pair or a number that JSON does not have, such as NaN"


def is_storable(value: JsonValue) -> bool:
    """Whether a value is JSON that can be written: without lone surrogates, NaN and infinite numbers."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


def _problem_of(edit: Edit, turn: int) -> str:
    if edit.kind in ("message", "insert_turn", "instruction") and not edit.text.strip():
        return "the text is empty"
    if edit.kind in ("tool_result", "assistant") and turn == 1:
        return "there is no turn before turn 1"
    if edit.kind == "tool_result" and (edit.call is None or edit.call < 1):
        return "say which tool call of the turn before, counted from 1"
    if edit.kind == "assistant" and not edit.text.strip() and not _calls_of(edit.value):
        return 'say a text, or a list of calls such as [{"name": "get_price", "args": {}}]'
    if edit.kind == "state" and not isinstance(edit.value, Mapping):
        return 'a merge patch is an object, such as {"step": 3, "old": null}'
    if edit.kind == "model" and not (edit.name or edit.value):
        return "say a model, or options of its calls"
    if edit.kind == "model" and not isinstance(edit.value, Mapping | None):
        return 'the options are an object, such as {"temperature": 0}'
    if edit.kind in ("double", "agent") and not edit.name.strip():
        return "the name is empty"
    if edit.kind == "double" and not isinstance(edit.value, list):
        return 'the answers are a list, such as [{"result": 12}]'
    return ""


def _is_deeper(value: JsonValue, n: int) -> bool:
    """Whether a value has more than `n` levels of objects and lists."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    if items is None:
        return False
    return n == 0 or any(_is_deeper(each, n - 1) for each in items)


def _calls_of(value: JsonValue) -> list[ToolCall]:
    """The tool calls that a value names; none for any other value."""
    calls: list[ToolCall] = []
    for each in value if isinstance(value, list) else ():
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str) or not each["name"]:
            return []
        args = each.get("args", {})
        if not isinstance(args, Mapping):
            return []
        calls.append(ToolCall(str(each["name"]), dict(args), id=f"fork-{len(calls) + 1}"))
    return calls


def merge_patch(value: JsonValue, patch: JsonValue) -> JsonValue:
    """The value with a merge patch: null takes a key away, an object is merged, all else replaces. (RFC 7396)"""
    if not isinstance(patch, Mapping):
        return patch
    merged: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), change)
    return merged


def edited_state(state: JsonObject, edits: Sequence[Edit]) -> JsonObject:
    """The session state at the point after the edits of it."""
    merged: JsonValue = dict(state)
    for edit in edits:
        if edit.kind == "state":
            merged = merge_patch(merged, edit.value)
    return merged if isinstance(merged, dict) else {}


def edited_prefix(turns: Sequence[TurnRecord], state: JsonObject, edits: Sequence[Edit]) -> tuple[TurnRecord, ...]:
    """The pinned turns with edits of the last one, whose state at its end is `state`. Raises UsageError."""
    if not turns:
        return ()
    last = turns[-1]
    for edit in edits:
        if edit.kind == "tool_result":
            last = _with_result(last, edit)
        elif edit.kind == "assistant":
            last = _with_answer(last, edit)
    if last.state_after != state:
        last = replace(last, state_after=state)
    return (*turns[:-1], last)


def _with_result(turn: TurnRecord, edit: Edit) -> TurnRecord:
    calls = turn.tool_calls
    if not edit.call or edit.call > len(calls):
        n = len(calls)
        there = "no tool call" if not n else "1 tool call" if n == 1 else f"{n} tool calls"
        raise UsageError(f"tool call {edit.call}: the turn before has {there}", field="tool_result")
    key = call_key(calls[edit.call - 1])
    n_before = sum(call_key(call) == key for call in calls[: edit.call - 1])
    events = list(turn.events)
    places = [at for at, each in enumerate(events) if _is_result_of(each, key)]
    result: JsonValue = {"error": edit.error} if edit.error else edit.value
    if n_before < len(places):
        at = places[n_before]
        events[at] = replace(events[at], result=result)
    else:  # a call that never had a result gets one right after it
        own_calls = [at for at, each in enumerate(events) if each.kind == "tool_call" and each.call and not each.within]
        at = own_calls[edit.call - 1]
        events.insert(at + 1, Event("tool_result", at_ms=events[at].at_ms, call=calls[edit.call - 1], result=result))
    return replace(turn, events=tuple(events))


def _is_result_of(event: Event, key: str) -> bool:
    return event.kind == "tool_result" and event.call is not None and not event.within and call_key(event.call) == key


def _with_answer(turn: TurnRecord, edit: Edit) -> TurnRecord:
    """The turn with another last message of the agent, and with other calls in place of its own."""
    author = next((each.author for each in reversed(turn.events) if each.kind == "agent_message"), "agent")
    at_ms = turn.events[-1].at_ms if turn.events else 0.0
    events = list(turn.events)
    calls = _calls_of(edit.value)
    if calls:
        events = [each for each in events if each.kind not in ("tool_call", "tool_result") or each.within]
        new_events = [Event("tool_call", at_ms=at_ms, author=author, call=call) for call in calls]
        messages = [at for at, each in enumerate(events) if each.kind == "agent_message" and not each.within]
        place = messages[-1] if messages else len(events)
        events[place:place] = new_events
    if edit.text:
        messages = [at for at, each in enumerate(events) if each.kind == "agent_message" and not each.within]
        if messages:
            events[messages[-1]] = replace(events[messages[-1]], text=edit.text, is_partial=False)
        else:
            events.append(Event("agent_message", at_ms=at_ms, author=author, text=edit.text))
    return replace(turn, events=tuple(events), stop_reason="answered" if edit.text else turn.stop_reason)


def edited_case(case: Case, fork: Fork, state: JsonObject, queries: Sequence[str]) -> Case:
    """The case of a fork: the one that was played, with the edits of its turns, doubles and state before turn 1.

    `queries` are the messages of the pinned turns, which a scenario does not have. Raises UsageError.
    """
    turns, at = list(case.turns), fork.point.turn - 1
    for edit in fork.edits:
        if edit.kind == "drop_turn":
            if at >= len(turns):
                raise UsageError("the script has no turn after the point that could be dropped", field="drop_turn")
            del turns[at]
        elif edit.kind == "insert_turn" and case.scenario is None:
            turns.insert(at, Turn(edit.text))
        elif edit.kind == "message" and case.scenario is None:
            turns[at : at + 1] = [replace(turns[at], query=edit.text) if at < len(turns) else Turn(edit.text)]
    if fork.then == "message":
        turns = [*turns[:at], *map(Turn, queries[len(turns[:at]) :]), Turn(fork.message)]
    case = replace(case, turns=tuple(turns), scenario=None if fork.then == "message" else case.scenario)
    if at == 0 and state != case.initial_state:
        case = replace(case, initial_session=replace(case.initial_session or SessionInit(), state=dict(state)))
    return _with_doubles(case, fork.edits)


def _with_doubles(case: Case, edits: Sequence[Edit]) -> Case:
    doubled = {edit.name: edit.value for edit in edits if edit.kind == "double"}
    if not doubled:
        return case
    earlier = case.extra.get("tool_doubles")
    plan: dict[str, Any] = dict(earlier) if isinstance(earlier, Mapping) else {}
    tools = plan.get("tools")
    plan["tools"] = {**(tools if isinstance(tools, Mapping) else {}), **doubled}
    return replace(case, extra={**case.extra, "tool_doubles": plan})


def first_message(case: Case, fork: Fork) -> str:
    """The first message of a simulated user that an edit names; empty for its own."""
    if case.scenario is None or fork.then == "message":
        return ""
    return next((edit.text for edit in fork.edits if edit.kind in ("message", "insert_turn")), "")


def point_seed(parent_seed: int, point: ForkPoint) -> int:
    """The seed of the forks at a point, from the seed of the trial; each fork has its own from it and its number."""
    text = f"{parent_seed}/{point.turn}/{point.call or 0}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest()) >> 1


def edit_words(edit: Edit) -> str:
    """`message "Try the other card"`: an edit in one line."""
    parts = [edit.kind.replace("_", " ")]
    parts += [edit.name] if edit.name else []
    parts += [f"of call {edit.call}"] if edit.call else []
    text = edit.text or edit.error
    parts += [f'"{text[:VALUE_LIMIT]}{"…" if len(text) > VALUE_LIMIT else ""}"'] if text else []
    return " ".join(parts)
