"""The type of a plain JSON value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
else:
    # The wire codec resolves annotations at run time and has no use for the recursion.
    JsonValue = Any

JsonObject: TypeAlias = Mapping[str, JsonValue]
