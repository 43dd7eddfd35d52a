"""Readers of one value each: they take its place and the value found, and name the expected one."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

from evaldesk.reading.json_places import NUMBER_NAMES
from evaldesk.reading.strict_json import JsonPosition, kind_of

T = TypeVar("T")

MAX_COUNT = 1_000_000
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class Absent(Enum):
    """The one value that says a key is not there, which null does not."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


def wrong_value(place: JsonPosition, raw: Any, what: str) -> Exception:
    """The error that names the found and the expected value."""
    return place.error(f"expected {what}, " + ("but it is missing" if raw is ABSENT else f"got {kind_of(raw)}"))


def read_text(place: JsonPosition, raw: Any) -> str:
    """A string that must be there."""
    if not isinstance(raw, str):
        raise wrong_value(place, raw, "a string")
    return raw


def read_optional_text(place: JsonPosition, raw: Any) -> str | None:
    """A string, or None for null and absent."""
    return None if raw is None or raw is ABSENT else read_text(place, raw)


def text_of(raw: Any) -> str:
    """The string; empty for any other value."""
    return raw if isinstance(raw, str) else ""


def read_key(place: JsonPosition, raw: Any) -> str:
    """A name that must be there, as text also where it is a whole number."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise wrong_value(place, raw, "a number or a string")
    return str(raw)


def read_integer(place: JsonPosition, raw: Any) -> int:
    """A whole number that must be there."""
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise wrong_value(place, raw, "a whole number")
    return raw


def read_optional_count(place: JsonPosition, raw: Any) -> int | None:
    """A count, at most a million, or None for null."""
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= MAX_COUNT:
        raise wrong_value(place, raw, f"a number from 0 to {MAX_COUNT:,}")
    return raw


def read_optional_number(
    place: JsonPosition, raw: Any, what: str = "a number", least: float = -1e100, most: float = 1e100
) -> float | None:
    """A number within the bounds, or None for null."""
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not least <= raw <= most:
        raise wrong_value(place, raw, what)
    return float(raw)


def read_recorded_number(
    place: JsonPosition, raw: Any, what: str = "a number", least: float = -1e100, most: float = 1e100
) -> float | None:
    """As `read_optional_number`; None also for NaN and infinities."""
    return None if raw in NUMBER_NAMES else read_optional_number(place, raw, what, least, most)


def read_recorded_score(place: JsonPosition, raw: Any) -> float | str | None:
    """A score, the name of a value such as NaN, or None for null."""
    return str(raw) if raw in NUMBER_NAMES else read_optional_number(place, raw)


def read_mapping(place: JsonPosition, raw: Any) -> dict[str, Any]:
    """An object that must be there."""
    if not isinstance(raw, dict):
        raise wrong_value(place, raw, "an object")
    return raw


def read_optional_mapping(place: JsonPosition, raw: Any) -> dict[str, Any] | None:
    """An object, or None for null and absent."""
    return None if raw is None or raw is ABSENT else read_mapping(place, raw)


def read_list(place: JsonPosition, raw: Any, read_item: Callable[[JsonPosition, Any], T]) -> tuple[T, ...]:
    """A list that must be there, its items read one by one."""
    if not isinstance(raw, list):
        raise wrong_value(place, raw, "a list")
    return tuple(read_item(place.at(index), item) for index, item in enumerate(raw))


@lru_cache(1024)
def snake_case(key: str) -> str:
    """`evalSetId` as `eval_set_id`."""
    return _HUMP.sub("_", key).lower() if not key.islower() else key
