"""Model profiles of OpenHands' `config.toml`: the groups `[llm]` and `[llm.NAME]`.

One rule: `[llm]` is the base, `[llm.NAME]` overrides it. `NAME`, `llm.NAME` and `[llm.NAME]` all mean the same, `llm`
means the base alone. `${VARIABLE}` in a text is taken from the environment.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.toml_text import parse_toml

BASE = "llm"

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Secret:
    """A key; `str` and `repr` do not show its value."""

    def __init__(self, value: str) -> None:
        self._value = value

    def get_secret_value(self) -> str:
        """The key."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('**********')"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class LlmProfile:
    """A model and its endpoint. Other keys of the group are in `extra`, and readable as attributes."""

    name: str
    model: str
    api_key: Secret | None = None
    base_url: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    num_retries: int | None = None
    timeout: float | None = None
    custom_llm_provider: str | None = None
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return object.__getattribute__(self, "extra")[name]
        except KeyError:
            raise AttributeError(f"the model profile {self.name} has no {name}") from None

    def model_copy(self, update: Mapping[str, Any] | None = None) -> LlmProfile:
        """A copy with some fields replaced, as in pydantic."""
        return replace(self, **dict(update or {}))


OPTIONS = tuple(each.name for each in fields(LlmProfile) if each.name not in ("name", "model", "api_key", "extra"))
"""The keys of a group except for its model and its API key."""
_PROFILE_KEYS = {"model", "api_key", "api_key_env", *OPTIONS}


def read_profile(path: Path, name: str, environment: Mapping[str, str]) -> LlmProfile:
    """The profile of that name. Raises UsageError naming the existing groups, or the fault of this one."""
    groups = _groups(path)
    group = group_name(name)
    if group not in groups:
        group_list = ", ".join(f"[{each}]" for each in groups) or "none"
        raise UsageError(
            f"{path}: no group [{group}] for the model profile {name!r}; there are: {group_list}. "
            "NAME, llm.NAME and [llm.NAME] mean [llm.NAME], which overrides [llm]; llm means [llm] alone"
        )
    values = {
        key: _expand_variables(value, environment, f"{path}: [{group}] {key}") for key, value in groups[group].items()
    }
    if not isinstance(values.get("model"), str):
        raise UsageError(f'{path}: [{group}] names no model; add model = "provider/name" to it or to [{BASE}]')
    key = values.pop("api_key", None) or environment.get(str(values.pop("api_key_env", "")))
    extra = {name: values.pop(name) for name in list(values) if name not in _PROFILE_KEYS}
    values.pop("api_key_env", None)
    return LlmProfile(name=group, api_key=Secret(str(key)) if key else None, extra=extra, **values)


def group_name(name: str) -> str:
    """The group of a name: `NAME`, `llm.NAME` and `[llm.NAME]` are equal."""
    group = name.strip().removeprefix("[").removesuffix("]").strip()
    return group if group == BASE or group.startswith(f"{BASE}.") else f"{BASE}.{group}"


def _groups(path: Path) -> dict[str, dict[str, Any]]:
    """All groups with their inherited values, by their names in the file."""
    try:
        table = parse_toml(read_regular_file(path).decode("utf-8")).get(BASE, {})
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; name it with --config-file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {BASE} must be a table")
    base = {key: value for key, value in table.items() if not isinstance(value, dict)}
    groups = {BASE: base} if base else {}
    return groups | {f"{BASE}.{key}": {**base, **value} for key, value in table.items() if isinstance(value, dict)}


def _expand_variables(value: Any, environment: Mapping[str, str], place: str) -> Any:
    if not isinstance(value, str):
        return value

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise UsageError(f"{place}: the environment has no {match[1]}")
        return environment[match[1]]

    return _VARIABLE.sub(value_of, value)
