"""`custom_metrics` of a criteria file: functions by name, with the range that ADK's `metric_info` declares."""

from __future__ import annotations

from typing import Any

from evaldesk.formats.reading import read_mapping, read_text, wanted
from evaldesk.formats.shape import ABSENT, snake_case
from evaldesk.formats.strict_json import Place
from evaldesk.model import JsonObject


def read_custom_metrics(place: Place, raw: Any) -> dict[str, JsonObject]:
    """The options of each named metric: `function`, and `low`, `high`, `description` where they are declared."""
    if raw is None or raw is ABSENT:
        return {}
    return {name: _read_one(place.at(name), value) for name, value in read_mapping(place, raw).items()}


def write_custom_metrics(custom: dict[str, JsonObject]) -> Any:
    """ADK's object for each of them; absent when there is none."""
    return {name: _write_one(name, options) for name, options in custom.items()} if custom else ABSENT


def _read_one(place: Place, raw: Any) -> JsonObject:
    fields = _fields(place, raw)
    at, code = fields.get("code_config", (place.at("code_config"), ABSENT))
    config = _fields(at, code)
    if config.get("args", (at, None))[1]:
        raise config["args"][0].error("ADK gives a custom metric no arguments; remove args")
    name_at, name = config.get("name", (at.at("name"), ABSENT))
    options: dict[str, Any] = {"function": _target(name_at, read_text(name_at, name))}
    info_at, info = fields.get("metric_info", (place, None))
    declared = _fields(info_at, info) if info is not None else {}
    said = (fields.get("description", (place, ""))[1], declared.get("description", (place, ""))[1])
    described = next((text for text in said if isinstance(text, str) and text), "")
    if described:
        options["description"] = described
    return {**options, **_range(info_at, declared)}


def _range(place: Place, declared: dict[str, tuple[Place, Any]]) -> JsonObject:
    info_at, info = declared.get("metric_value_info", (place, None))
    values = _fields(info_at, info) if info is not None else {}
    at, interval = values.get("interval", (info_at, None))
    if interval is None:
        return {}
    found: dict[str, Any] = {}
    for key, (bound_at, bound) in _fields(at, interval).items():
        if key in ("min_value", "max_value"):
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise wanted(bound_at, bound, "a number")
            found["low" if key == "min_value" else "high"] = bound
    return found


def _target(place: Place, name: str) -> str:
    """`my_agent.metrics.mine` as `my_agent.metrics:mine`."""
    if ":" in name:
        return name
    module, dot, attribute = name.rpartition(".")
    if not (module and dot and attribute):
        raise place.error(f"{name!r} names no function in a module; wanted a name such as my_agent.metrics.mine")
    return f"{module}:{attribute}"


def _write_one(name: str, options: JsonObject) -> dict[str, Any]:
    found: dict[str, Any] = {"code_config": {"name": str(options["function"]).replace(":", ".")}}
    bounds = {"min_value": options.get("low"), "max_value": options.get("high")}
    interval = {key: bound for key, bound in bounds.items() if bound is not None}
    if interval:
        found["metric_info"] = {"metric_name": name, "metric_value_info": {"interval": interval}}
    if options.get("description"):
        found["description"] = options["description"]
    return found


def _fields(place: Place, raw: Any) -> dict[str, tuple[Place, Any]]:
    """The values of an object by their names in snake_case, each with its place."""
    return {snake_case(key): (place.at(key), value) for key, value in read_mapping(place, raw).items()}
