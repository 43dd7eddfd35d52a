"""The fields that the forms of eval sets share: tool calls, sessions, rubrics, tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import zip_longest
from typing import Any

from evaldesk.model import JsonObject, SessionInit, ToolCall
from evaldesk.reading.json_lines import read_recorded_lines
from evaldesk.reading.shape import Field, Shape, read_object, write_object
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, parse_recorded_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping


def read_rubrics(place: JsonPosition, raw: Any) -> tuple[JsonObject, ...]:
    """Rubrics as they stand; none for null and absent."""
    return () if raw is None or raw is ABSENT else read_list(place, raw, read_mapping)


def read_tags(place: JsonPosition, raw: Any) -> tuple[str, ...]:
    """Tags; a key of that name that is no list of strings belongs to another tool and gives none."""
    is_ours = isinstance(raw, list) and all(isinstance(tag, str) for tag in raw)
    return tuple(raw) if is_ours else ()


def as_is(value: Any) -> Any:
    """The value itself."""
    return value


def unless_empty(values: tuple[Any, ...]) -> Any:
    """The values as a list, absent when there are none."""
    return list(values) if values else ABSENT


def unless_none(value: Any) -> Any:
    """The value, absent when it is None."""
    return ABSENT if value is None else value


RUBRICS = Field("rubrics", read_rubrics, unless_empty)
TAGS = Field("tags", read_tags, unless_empty, lambda raw, tags: unless_empty(tags) if tags else raw, is_checked=False)
FINAL_STATE = Field("final_session_state", read_optional_mapping, unless_none)


def read_call(shape: Shape, place: JsonPosition, raw: Any) -> ToolCall:
    """A tool call; `shape` has the fields `name`, `args`, `id` under the keys of the format, in that order."""
    values, extra = read_object(shape, place, read_mapping(place, raw))
    name, args, call_id = (values[field.key] for field in shape.fields)
    return ToolCall(name, args, call_id, extra)


def write_call(shape: Shape, call: ToolCall) -> dict[str, Any]:
    """The object of a tool call."""
    values = dict(zip((field.key for field in shape.fields), (call.name, call.args, call.id), strict=True))
    return write_object(shape, values, call.extra)


def read_calls(shape: Shape, place: JsonPosition, raw: Any) -> tuple[ToolCall, ...] | None:
    """The expected calls; None, which asserts nothing, for null and absent."""
    return None if raw is None or raw is ABSENT else read_list(place, raw, partial(read_call, shape))


def write_calls(shape: Shape, calls: tuple[ToolCall, ...] | None) -> Any:
    """The objects of expected calls; absent where nothing is asserted."""
    return ABSENT if calls is None else [write_call(shape, call) for call in calls]


def read_session(shape: Shape, place: JsonPosition, raw: Any) -> SessionInit | None:
    """The session a case starts from; None for null and absent."""
    if raw is None or raw is ABSENT:
        return None
    values, extra = read_object(shape, place, read_mapping(place, raw))
    return SessionInit(values["app_name"], values["user_id"], values["state"], extra)


def write_session(shape: Shape, session: SessionInit | None) -> Any:
    """The object of an initial session; absent when there is none."""
    if session is None:
        return ABSENT
    values = {"app_name": session.app_name, "user_id": session.user_id, "state": session.state}
    return write_object(shape, values, session.extra)


def edited_pairs(before: Sequence[Any], after: Sequence[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs (old index, new index) in order; None on a side means added or removed. Items are JSON values."""
    matcher = SequenceMatcher(
        None, [json.dumps(item) for item in before], [json.dumps(item) for item in after], autojunk=False
    )
    pairs: list[tuple[int | None, int | None]] = []
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        pairs.extend(zip_longest(range(old_start, old_end), range(new_start, new_end)))
    return pairs


def read_values(data: bytes, source: str) -> Iterator[tuple[JsonPosition, Any]]:
    """Each value of a file with its place: those of its list or its lines, or the one alone. Raises FormatError."""
    for document in read_documents(data, source):
        items = document.value if isinstance(document.value, list) else None
        yield from ((JsonPosition(document, (at,)), item) for at, item in enumerate(items or ()))
        if items is None:
            yield JsonPosition(document), document.value


def read_documents(data: bytes, source: str) -> Iterator[Document]:
    """The whole file, or each of its lines when its first line is an object and the whole is no JSON.

    Raises FormatError, at a line only when it is reached.
    """
    preview = peek(data)
    if preview.document is None and preview.line is not None:
        yield from read_recorded_lines(data, source)
    else:
        yield parse_recorded_json(data, source=source)
