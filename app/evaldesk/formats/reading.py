"""Small readers that every format shares: each takes a place and a raw value, and says what was wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from evaldesk.formats.shape import ABSENT, Field, Shape, read_object, write_object
from evaldesk.formats.strict_json import Place, kind_of
from evaldesk.model import JsonObject, SessionInit, ToolCall

T = TypeVar("T")


def wanted(place: Place, raw: Any, what: str) -> Exception:
    """The error that says what was found and what was wanted."""
    return place.error(f"expected {what}, " + ("but it is missing" if raw is ABSENT else f"got {kind_of(raw)}"))


def read_text(place: Place, raw: Any) -> str:
    """A string that must be there."""
    if not isinstance(raw, str):
        raise wanted(place, raw, "a string")
    return raw


def read_optional_text(place: Place, raw: Any) -> str | None:
    """A string, or None for null and absent."""
    return None if raw is None or raw is ABSENT else read_text(place, raw)


def read_mapping(place: Place, raw: Any) -> dict[str, Any]:
    """An object that must be there."""
    if not isinstance(raw, dict):
        raise wanted(place, raw, "an object")
    return raw


def read_optional_mapping(place: Place, raw: Any) -> dict[str, Any] | None:
    """An object, or None for null and absent."""
    return None if raw is None or raw is ABSENT else read_mapping(place, raw)


def read_list(place: Place, raw: Any, read_item: Callable[[Place, Any], T]) -> tuple[T, ...]:
    """A list that must be there, its items read one by one."""
    if not isinstance(raw, list):
        raise wanted(place, raw, "a list")
    return tuple(read_item(place.at(index), item) for index, item in enumerate(raw))


def read_rubrics(place: Place, raw: Any) -> tuple[JsonObject, ...]:
    """Rubrics as they stand; none for null and absent."""
    return () if raw is None or raw is ABSENT else read_list(place, raw, read_mapping)


def read_tags(place: Place, raw: Any) -> tuple[str, ...]:
    """Tags; a key of that name that is no list of strings is somebody else's and gives none."""
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


def read_call(shape: Shape, place: Place, raw: Any) -> ToolCall:
    """A tool call; `shape` has the fields `name`, `args`, `id` under whatever keys, in that order."""
    values, extra = read_object(shape, place, read_mapping(place, raw))
    name, args, call_id = (values[field.key] for field in shape.fields)
    return ToolCall(name, args, call_id, extra)


def write_call(shape: Shape, call: ToolCall) -> dict[str, Any]:
    """The object of a tool call."""
    values = dict(zip((field.key for field in shape.fields), (call.name, call.args, call.id), strict=True))
    return write_object(shape, values, call.extra)


def read_session(shape: Shape, place: Place, raw: Any) -> SessionInit | None:
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
