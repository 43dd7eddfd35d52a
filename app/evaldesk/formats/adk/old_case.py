"""Cases and turns of ADK's old forms. (google-adk 2.13 evaluation/local_eval_sets_manager.py)"""

from __future__ import annotations

from functools import partial
from typing import Any

from evaldesk.model import Case, Expected, SessionInit, Turn
from evaldesk.reading.fields import (
    FINAL_STATE,
    RUBRICS,
    TAGS,
    as_is,
    edited_pairs,
    read_calls,
    read_session,
    unless_empty,
    unless_none,
    write_calls,
    write_session,
)
from evaldesk.reading.shape import FORM, Field, Shape, form_of, read_object, shown_extra, write_object
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
)

OLD = "adk-old"


def read_case(place: JsonPosition, raw: Any) -> Case:
    """One case of an old list. Raises FormatError."""
    values, extra = read_object(_CASE, place, read_mapping(place, raw))
    return Case(
        id=values["name"],
        turns=values["data"],
        initial_session=values["initial_session"],
        final_state=values["final_session_state"],
        rubrics=values["rubrics"],
        tags=values["tags"],
        extra={**extra, FORM: {**form_of(extra), "format": OLD}},
    )


def write_case(case: Case) -> dict[str, Any]:
    """The object of one case in an old list."""
    values = {
        "name": case.id,
        "data": case.turns,
        "initial_session": case.initial_session,
        "rubrics": case.rubrics,
        "final_session_state": case.final_state,
        "tags": case.tags,
    }
    return write_object(_CASE, values, case.extra)


def case_losses(case: Case) -> tuple[str, ...]:
    """The parts of a case that the old form cannot hold, one sentence each."""
    if case.scenario is not None:
        return (f"case {case.id!r} is left out: the old form has no conversation scenarios",)
    return tuple(
        f"case {case.id!r}, turn {number}: {what}"
        for number, turn in enumerate(case.turns, 1)
        for what in _turn_losses(turn)
    )


def _turn_losses(turn: Turn) -> list[str]:
    losses = []
    raw = form_of(turn.extra).get("raw", {})
    if turn.media or any(_has_more_than_text(value) for value in raw.values()):
        losses.append("parts of messages that are not text")
    if shown_extra(turn.expected.extra) or "events" in form_of(turn.expected.extra):
        losses.append("recorded results of tools and the data recorded with them")
    return losses


def _has_more_than_text(content: Any) -> bool:
    parts = content.get("parts") if isinstance(content, dict) else None
    filled = [{key for key, value in part.items() if value is not None} for part in parts or ()]
    return any(keys - {"text"} for keys in filled) or len(filled) > 1


def read_turn(place: JsonPosition, raw: Any) -> Turn:
    """One turn of an old list. Raises FormatError."""
    values, extra = read_object(_TURN, place, read_mapping(place, raw))
    messages = values["expected_intermediate_agent_responses"]
    expected = Expected(values["expected_tool_use"], messages, values["reference"])
    return Turn(values["query"], expected, values["rubrics"], extra)


def write_turn(turn: Turn) -> dict[str, Any]:
    """The object of one turn in an old list."""
    values = {
        "query": turn.query,
        "expected_tool_use": turn.expected.tool_calls,
        "expected_intermediate_agent_responses": turn.expected.intermediate,
        "reference": turn.expected.reference,
        "rubrics": turn.rubrics,
    }
    return write_object(_TURN, values, turn.extra)


def _read_args(place: JsonPosition, raw: Any) -> dict[str, Any]:
    # ADK requires the key; some recorders write null for a call without arguments.
    return {} if raw is None else read_mapping(place, raw)


def _read_messages(place: JsonPosition, raw: Any) -> tuple[tuple[str, str], ...]:
    return () if raw is None or raw is ABSENT else read_list(place, raw, _read_message)


def _read_message(place: JsonPosition, raw: Any) -> tuple[str, str]:
    message = read_mapping(place, raw)
    return tuple(read_text(place.at(key), message.get(key, ABSENT)) for key in ("author", "text"))  # type: ignore[return-value]


def _write_messages(messages: tuple[tuple[str, str], ...]) -> Any:
    return unless_empty(tuple({"author": author, "text": text} for author, text in messages))


def _patch_messages(raw: Any, messages: tuple[tuple[str, str], ...]) -> Any:
    file_messages = [(message["author"], message["text"]) for message in raw or ()]
    new_messages = []
    for before, after in edited_pairs(file_messages, messages):
        if after is not None:
            author, text = messages[after]
            new_messages.append({**(raw[before] if before is not None else {}), "author": author, "text": text})
    return new_messages


def _read_initial(place: JsonPosition, raw: Any) -> SessionInit | None:
    # ADK takes an empty object for no session at all.
    return None if raw == {} else read_session(_SESSION, place, raw)


def _optional(place: JsonPosition, raw: Any) -> str:
    return read_optional_text(place, raw) or ""


_CALL = Shape(
    fields=(
        Field("tool_name", read_text, as_is),
        Field("tool_input", _read_args, as_is),
        Field("id", read_optional_text, unless_none),
    ),
    order=("tool_name", "tool_input"),
    format=OLD,
)
_TURN = Shape(
    fields=(
        Field("query", read_text, as_is),
        Field("expected_tool_use", partial(read_calls, _CALL), partial(write_calls, _CALL), keeps_form=True),
        Field("expected_intermediate_agent_responses", _read_messages, _write_messages, _patch_messages),
        Field("reference", read_optional_text, unless_none),
        RUBRICS,
    ),
    order=("query", "expected_tool_use", "expected_intermediate_agent_responses", "reference"),
    format=OLD,
)
_SESSION = Shape(
    fields=(
        Field("state", lambda place, raw: read_optional_mapping(place, raw) or {}, as_is),
        Field("app_name", _optional, as_is),
        Field("user_id", _optional, as_is),
    ),
    order=("state", "app_name", "user_id"),
    format=OLD,
)
_CASE = Shape(
    fields=(
        Field("name", read_text, as_is),
        Field(
            "data",
            lambda place, raw: read_list(place, raw, read_turn),
            lambda turns: [write_turn(turn) for turn in turns],
            keeps_form=True,
        ),
        Field("initial_session", _read_initial, partial(write_session, _SESSION)),
        RUBRICS,
        FINAL_STATE,
        TAGS,
    ),
    order=("name", "data", "initial_session"),
    format=OLD,
)
