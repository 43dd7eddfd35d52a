"""Cases and turns as ADK 2.x reads and writes them. (google-adk 2.13 evaluation/eval_case.py)"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.formats.adk.content import (
    patch_content,
    patch_message,
    patch_query,
    read_content,
    read_query,
    write_query,
    write_reference,
)
from evaldesk.formats.adk.events import events_key, patch_events, read_events, tool_responses
from evaldesk.matching import read_allowances
from evaldesk.model import Case, Expected, JsonObject, ToolCall, Turn
from evaldesk.reading.fields import (
    FINAL_STATE,
    RUBRICS,
    TAGS,
    as_is,
    edited_pairs,
    read_call,
    read_calls,
    read_session,
    unless_empty,
    unless_none,
    write_call,
    write_calls,
    write_session,
)
from evaldesk.reading.pinned_turns import pinned_turns
from evaldesk.reading.scenario import no_plan_words, plan_of, unknown_keys
from evaldesk.reading.shape import FORM, Field, Shape, form_of, format_in, read_object, shown_extra, write_object
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
    wrong_value,
)
from evaldesk.transcripts.adk import message_text

OLD_TURN_KEYS = "old_turn_keys"
_CALL_KEYS = ("partial_args", "will_continue")
_TURN_ORDER = (
    "invocation_id",
    "user_content",
    "final_response",
    "intermediate_data",
    "creation_timestamp",
    "duration",
    "model_duration",
    "tool_duration",
    "rubrics",
    "app_details",
)


def read_case(place: JsonPosition, raw: Any) -> Case:
    """One EvalCase. Raises FormatError."""
    raw = read_mapping(place, raw)
    values, extra = read_object(_CASE, place, raw)
    turns, scenario = values["conversation"], values["conversation_scenario"]
    if turns is not None and scenario is not None:
        raise place.error("a case has either a conversation or a conversation_scenario, and this one has both")
    if turns is None and scenario is None:
        raise place.error("expected a conversation (a list of turns) or a conversation_scenario, found neither")
    if scenario is not None and not (plan_of(scenario) or "user" in scenario) and unknown_keys(scenario):
        raise place.at("conversation_scenario").error(no_plan_words(scenario))
    case = Case(
        id=values["eval_id"],
        turns=turns or (),
        scenario=scenario,
        initial_session=values["session_input"],
        final_state=values["final_session_state"],
        rubrics=values["rubrics"],
        tags=values["tags"],
        extra=extra,
    )
    try:
        read_allowances(case)
        pinned_turns(case)
    except UsageError as error:
        raise place.error(str(error)) from None
    return case


def write_case(case: Case) -> dict[str, Any]:
    """The object of one case."""
    case = for_adk(case, _TURN_ORDER)
    values = {
        "eval_id": case.id,
        "conversation": None if case.scenario is not None else case.turns,
        "conversation_scenario": case.scenario,
        "session_input": case.initial_session,
        "rubrics": case.rubrics,
        "final_session_state": case.final_state,
        "tags": case.tags,
    }
    return write_object(_CASE, values, case.extra)


def for_adk(case: Case, turn_keys: Collection[str]) -> Case:
    """The case as ADK takes it. ADK refuses unknown keys inside turns but keeps those of a case, so an old
    case's turn keys move to `old_turn_keys` of the case: `[{"turn": 0, "keys": {...}, "calls": {"1": {...}}}]`.
    """
    if format_in(case.extra) == "adk":
        return case
    entries = [entry for index, turn in enumerate(case.turns) if (entry := _foreign(index, turn, turn_keys))]
    turns = tuple(_native(turn, turn_keys) for turn in case.turns)
    extra: dict[str, Any] = {**shown_extra(case.extra), **({OLD_TURN_KEYS: entries} if entries else {})}
    return replace(case, turns=turns, extra=extra)


def _foreign(index: int, turn: Turn, turn_keys: Collection[str]) -> dict[str, Any]:
    keys = {key: value for key, value in shown_extra(turn.extra).items() if key not in turn_keys}
    by_call = {
        str(number): _without(call.extra, _CALL_KEYS) for number, call in enumerate(turn.expected.tool_calls or ())
    }
    calls = {number: call_keys for number, call_keys in by_call.items() if call_keys}
    fields = {name: value for name, value in (("keys", keys), ("calls", calls)) if value}
    return {"turn": index, **fields} if fields else {}


def _native(turn: Turn, turn_keys: Collection[str]) -> Turn:
    calls = turn.expected.tool_calls
    native = calls and tuple(replace(call, extra=_only(call.extra, _CALL_KEYS)) for call in calls)
    return replace(turn, expected=replace(turn.expected, tool_calls=native), extra=_only(turn.extra, turn_keys))


def _only(extra: JsonObject, keys: Collection[str]) -> JsonObject:
    return {key: value for key, value in extra.items() if key in keys}


def _without(extra: JsonObject, keys: Collection[str]) -> JsonObject:
    return {key: value for key, value in extra.items() if key not in keys and key != FORM}


def _read_turn(place: JsonPosition, raw: Any) -> Turn:
    values, extra = read_object(_TURN, place, read_mapping(place, raw))
    did = values["intermediate_data"]
    expected = Expected(did.tool_calls, did.intermediate, values["final_response"], did.extra)
    query, media = values["user_content"]
    return Turn(query, expected, values["rubrics"], extra, media)


def _write_turn(turn: Turn) -> dict[str, Any]:
    values = {
        "user_content": (turn.query, turn.media),
        "final_response": turn.expected.reference,
        "intermediate_data": turn.expected,
        "rubrics": turn.rubrics,
    }
    return write_object(_TURN, values, turn.extra)


def _read_intermediate(place: JsonPosition, raw: Any) -> Expected:
    """Absent and null assert nothing. `{}` is ADK's rest of an empty list of calls: no tool may be called."""
    if raw is None or raw is ABSENT:
        return Expected()
    raw = read_mapping(place, raw)
    if not raw:
        return Expected(tool_calls=())
    key = events_key(raw)
    if key:
        calls, messages = read_events(place.at(key), raw[key], read_adk_call)
        return Expected(calls, messages, extra={FORM: {"events": raw}})
    values, extra = read_object(_INTERMEDIATE, place, raw)
    return Expected(values["tool_uses"], values["intermediate_responses"], extra=extra)


def _write_intermediate(expected: Expected) -> Any:
    events = form_of(expected.extra).get("events")
    if events:
        return _write_events(events, expected)
    values = {"tool_uses": expected.tool_calls, "intermediate_responses": expected.intermediate}
    fields = write_object(_INTERMEDIATE, values, expected.extra)
    return fields or ABSENT


def _write_events(raw: dict[str, Any], expected: Expected) -> Any:
    """The events, edited; a list of events always asserts its calls, so "not asserted" takes the other shape."""
    key = events_key(raw) or ""
    place = JsonPosition(Document(None))
    if expected.tool_calls is not None:
        events = patch_events(
            place, raw[key], expected.tool_calls, expected.intermediate, read_adk_call, write_adk_call
        )
        return {**raw, key: events}
    answers = {"tool_responses": tool_responses(raw[key])}
    extra = {name: value for name, value in answers.items() if value}
    return _write_intermediate(Expected(None, expected.intermediate, extra=extra))


def read_adk_call(place: JsonPosition, raw: Any) -> ToolCall:
    """The tool call of a FunctionCall. Raises FormatError."""
    return read_call(_CALL, place, raw)


def write_adk_call(call: ToolCall) -> dict[str, Any]:
    """The FunctionCall of a tool call."""
    return write_call(_CALL, call)


def _read_responses(place: JsonPosition, raw: Any) -> tuple[tuple[str, str], ...]:
    return () if raw is None or raw is ABSENT else read_list(place, raw, _read_response)


def _read_response(place: JsonPosition, raw: Any) -> tuple[str, str]:
    if not isinstance(raw, list) or len(raw) != 2:
        raise wrong_value(place, raw, "a list of an author and a list of parts")
    parts = () if raw[1] is None else read_list(place.at(1), raw[1], read_mapping)
    for index, part in enumerate(parts):
        read_optional_text(place.at(1, index, "text"), part.get("text"))
    return read_text(place.at(0), raw[0]), message_text(parts)


def _patch_responses(raw: Any, messages: tuple[tuple[str, str], ...]) -> Any:
    file_responses = _read_responses(JsonPosition(Document(None)), raw)
    responses = []
    for before, after in edited_pairs(file_responses, messages):
        if after is None:
            continue
        author, text = messages[after]
        if before is not None and file_responses[before] == messages[after]:
            responses.append(raw[before])
        else:
            responses.append([author, patch_message(raw[before][1] or [] if before is not None else [], text)])
    return responses


def _read_args(place: JsonPosition, raw: Any) -> dict[str, Any]:
    return read_optional_mapping(place, raw) or {}


_CALL = Shape(
    fields=(
        Field("name", read_text, as_is),
        Field("args", _read_args, as_is),
        Field("id", read_optional_text, unless_none),
    ),
    order=("id", "args", "name"),
)
_INTERMEDIATE = Shape(
    fields=(
        Field("tool_uses", partial(read_calls, _CALL), partial(write_calls, _CALL), keeps_form=True),
        Field(
            "intermediate_responses",
            _read_responses,
            lambda messages: unless_empty(tuple([author, [{"text": text}]] for author, text in messages)),
            _patch_responses,
        ),
    ),
    order=("tool_uses", "tool_responses", "intermediate_responses"),
)
_TURN = Shape(
    fields=(
        Field("user_content", read_query, write_query, patch_query),
        Field("final_response", read_content, write_reference, patch_content),
        Field("intermediate_data", _read_intermediate, _write_intermediate, keeps_form=True),
        RUBRICS,
    ),
    order=_TURN_ORDER,
)
_CAMEL_CASE = {
    "startingPrompt": "starting_prompt",
    "conversationPlan": "conversation_plan",
    "userPersona": "user_persona",
}
"""The second spelling that ADK reads of each key of a scenario."""


def _read_scenario(place: JsonPosition, raw: Any) -> dict[str, Any] | None:
    """The scenario with its keys as ADK writes them; a key in both spellings is refused."""
    scenario = read_optional_mapping(place, raw)
    if scenario is None:
        return None
    for camel, snake in _CAMEL_CASE.items():
        if camel in scenario and snake in scenario:
            raise place.at(camel).error(f"it stands beside {snake}; keep one of them")
    return {_CAMEL_CASE.get(key, key): value for key, value in scenario.items()}


SESSION = Shape(
    fields=(
        Field("app_name", lambda place, raw: read_optional_text(place, raw) or "", as_is),
        Field("user_id", lambda place, raw: read_optional_text(place, raw) or "", as_is),
        Field("state", _read_args, lambda state: state or ABSENT),
    ),
    order=("app_name", "user_id", "session_id", "state"),
)
_CASE = Shape(
    fields=(
        Field("eval_id", read_text, as_is),
        Field(
            "conversation",
            lambda place, raw: None if raw is None or raw is ABSENT else read_list(place, raw, _read_turn),
            lambda turns: ABSENT if turns is None else [_write_turn(turn) for turn in turns],
            keeps_form=True,
        ),
        Field("conversation_scenario", _read_scenario, unless_none),
        Field(
            "session_input",
            partial(read_session, SESSION),
            partial(write_session, SESSION),
            keeps_form=True,
        ),
        RUBRICS,
        FINAL_STATE,
        TAGS,
    ),
    order=(
        "eval_id",
        "conversation",
        "conversation_scenario",
        "session_input",
        "creation_timestamp",
        "rubrics",
        "final_session_state",
        "tags",
    ),
)
