"""`test_config.json` and `eval_config.json` as ADK reads them, and our superset. (reference/adk.md 1.4)

    {"criteria": {"response_match_score": 0.8,
                  "final_response_match_v2": {"threshold": 0.8, "judge_model_options": {"num_samples": 3}},
                  "rewards:exact_match": 1.0,
                  "polite": {"threshold": 0.5, "function": "rewards:polite"}},
     "custom_metrics": {"mine": {"code_config": {"name": "my_agent.metrics.mine"}}},
     "user_simulator_config": {...}}

Our own additions to ADK's form: `"threshold": null` for a metric that only informs, names of the form `module:attr`,
and the option `function`. The desk, which has the table of metrics, decides whether a metric exists and takes its
options.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import Criterion, JsonObject
from evaldesk.reading.fields import unless_none
from evaldesk.reading.json_text import style_of, to_text
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.reading.shape import FORM, Field, Shape, form_of, read_object, write_object
from evaldesk.reading.strict_json import MAX_BYTES, Document, JsonPosition, parse_json
from evaldesk.reading.values import ABSENT, read_mapping, read_optional_mapping, read_text, snake_case, wrong_value


def read_custom_metrics(place: JsonPosition, raw: Any) -> dict[str, JsonObject]:
    """The options of each named metric: `function`, and `low`, `high`, `description` where they are declared."""
    if raw is None or raw is ABSENT:
        return {}
    return {name: _read_one(place.at(name), value) for name, value in read_mapping(place, raw).items()}


def write_custom_metrics(custom: dict[str, JsonObject]) -> Any:
    """ADK's object for each of them; absent when there is none."""
    return {name: _write_one(name, options) for name, options in custom.items()} if custom else ABSENT


def _read_one(place: JsonPosition, raw: Any) -> JsonObject:
    fields = _fields(place, raw)
    at, code = fields.get("code_config", (place.at("code_config"), ABSENT))
    config = _fields(at, code)
    if config.get("args", (at, None))[1]:
        raise config["args"][0].error("ADK gives a custom metric no arguments; remove args")
    name_at, name = config.get("name", (at.at("name"), ABSENT))
    options: dict[str, Any] = {"function": _target(name_at, read_text(name_at, name))}
    info_at, info = fields.get("metric_info", (place, None))
    metric_info = _fields(info_at, info) if info is not None else {}
    texts = (fields.get("description", (place, ""))[1], metric_info.get("description", (place, ""))[1])
    description = next((text for text in texts if isinstance(text, str) and text), "")
    if description:
        options["description"] = description
    return {**options, **_range(info_at, metric_info)}


def _range(place: JsonPosition, metric_info: dict[str, tuple[JsonPosition, Any]]) -> JsonObject:
    info_at, info = metric_info.get("metric_value_info", (place, None))
    values = _fields(info_at, info) if info is not None else {}
    at, interval = values.get("interval", (info_at, None))
    if interval is None:
        return {}
    limits: dict[str, Any] = {}
    for key, (bound_at, bound) in _fields(at, interval).items():
        if key in ("min_value", "max_value"):
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                raise wrong_value(bound_at, bound, "a number")
            limits["low" if key == "min_value" else "high"] = bound
    return limits


def _target(place: JsonPosition, name: str) -> str:
    """`my_agent.metrics.mine` as `my_agent.metrics:mine`."""
    if ":" in name:
        return name
    module, dot, attribute = name.rpartition(".")
    if not (module and dot and attribute):
        raise place.error(f"{name!r} names no function in a module; wanted a name such as my_agent.metrics.mine")
    return f"{module}:{attribute}"


def _write_one(name: str, options: JsonObject) -> dict[str, Any]:
    entry: dict[str, Any] = {"code_config": {"name": str(options["function"]).replace(":", ".")}}
    bounds = {"min_value": options.get("low"), "max_value": options.get("high")}
    interval = {key: bound for key, bound in bounds.items() if bound is not None}
    if interval:
        entry["metric_info"] = {"metric_name": name, "metric_value_info": {"interval": interval}}
    if options.get("description"):
        entry["description"] = options["description"]
    return entry


def _fields(place: JsonPosition, raw: Any) -> dict[str, tuple[JsonPosition, Any]]:
    """The values of an object by their names in snake_case, each with its place."""
    return {snake_case(key): (place.at(key), value) for key, value in read_mapping(place, raw).items()}


NAMES = ("test_config.json", "eval_config.json", "eval_config.yaml")
"""The names of a criteria file beside an eval set; the first existing one counts."""

_KEYS = frozenset({"criteria", "custom_metrics", "user_simulator_config"})

DEEP_OPTIONS = ("judge_model_options", "rubrics")
"""Options whose own keys may be written in camelCase too; the keys in `judge_model_config` are the provider's."""


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """The criteria in the order of the file, with the other contents of the file.

    `custom` are the options that `custom_metrics` adds to the criteria of those names. `extra` holds every other key
    and the form of the file. `left_out` has a sentence for each metric that is not computed here.
    """

    criteria: tuple[Criterion, ...] = ()
    custom: Mapping[str, JsonObject] = field(default_factory=dict)
    user_simulator: JsonObject | None = None
    extra: JsonObject = field(default_factory=dict)
    document: Document = field(default_factory=lambda: Document(None), compare=False, repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def whole_criteria(self) -> tuple[Criterion, ...]:
        """The criteria, each with the entry of `custom_metrics` for its name."""
        return tuple(
            replace(each, options={**self.custom.get(each.metric, {}), **each.options}) for each in self.criteria
        )

    def error(self, message: str, metric: str, option: str = "") -> FormatError:
        """The error that says `message` of a criterion, or of its option, with its line."""
        return self.document.error(message, self._path(metric, option))

    def _path(self, metric: str, option: str) -> tuple[str, ...]:
        raw: Any = self.document.value
        criteria = next((key for key in raw if snake_case(key) == "criteria"), "criteria") if raw else "criteria"
        raw_criterion = raw.get(criteria, {}).get(metric) if raw else None
        spelled = (
            next((key for key in raw_criterion if snake_case(key) == option), "")
            if isinstance(raw_criterion, dict)
            else ""
        )
        return (criteria, metric, spelled) if spelled else (criteria, metric)


def is_criteria_file(data: bytes) -> bool:
    """Whether the bytes are JSON with the keys of a criteria file, and of no eval set and no result."""
    try:
        value = parse_json(data, source="").value
    except FormatError:
        return False
    keys = {snake_case(key) for key in value} if isinstance(value, dict) else set()
    return bool(keys & _KEYS) and not keys & {"eval_cases", "eval_case_results"}


def read_criteria_file(data: bytes, *, source: str) -> CriteriaFile:
    """The contents of a criteria file, from its bytes. Raises FormatError with line and JSON path."""
    document = parse_json(data, source=source)
    file = criteria_of_document(document)
    style = style_of(document.text)
    return replace(file, extra={**file.extra, FORM: {**form_of(file.extra), "style": style}}) if style else file


def criteria_of_document(document: Document) -> CriteriaFile:
    """The contents of a parsed criteria file.

    Raises FormatError with the JSON path, and the line where there is a text.
    """
    place = JsonPosition(document)
    if isinstance(document.value, dict) and "eval_cases" in {snake_case(key) for key in document.value}:
        raise place.error('this is an eval set, not a criteria file, which is {"criteria": {"tool_exact": 1.0}}')
    values, extra = read_object(_FILE, place, read_mapping(place, document.value))
    return CriteriaFile(values["criteria"], values["custom_metrics"], values["user_simulator_config"], extra, document)


def load_criteria_file(path: Path) -> CriteriaFile:
    """The contents of the file at `path`. Raises FormatError, or OSError when there is no such file."""
    return read_criteria_file(read_regular_file(path, MAX_BYTES), source=str(path))


def write_criteria_file(file: CriteriaFile, source: str = "criteria") -> bytes:
    """The bytes of the file, in the form it was read in. Raises FormatError for a value that JSON cannot hold."""
    values = {
        "criteria": file.criteria,
        "custom_metrics": file.custom,
        "user_simulator_config": file.user_simulator,
    }
    return to_text(write_object(_FILE, values, file.extra), form_of(file.extra).get("style", {}), source)


def _read_criteria(place: JsonPosition, raw: Any) -> tuple[Criterion, ...]:
    if raw is ABSENT:
        return ()
    raw_criteria = read_mapping(place, raw)
    return tuple(read_criterion(place.at(metric), metric, value) for metric, value in raw_criteria.items())


def read_criterion(place: JsonPosition, metric: str, raw: Any) -> Criterion:
    """A criterion of `criteria`: a threshold, or an object with a threshold and options. Raises FormatError."""
    if not isinstance(raw, dict):
        return _with_function(Criterion(metric, _threshold(place, raw)))
    spelled: dict[str, str] = {}
    options: dict[str, Any] = {}
    for key, value in raw.items():
        name = snake_case(key)
        if name in spelled:
            raise place.at(key).error(f"the same key is there twice, as {spelled[name]} and as {key}")
        spelled[name] = key
        options[name] = _respell(value) if name in DEEP_OPTIONS else value
    if "threshold" not in options:
        hint = '"threshold": null to have it inform only'
        raise place.error(f'{metric} has no threshold; add one, such as "threshold": 0.8, or {hint}')
    raw_threshold = options.pop("threshold")
    threshold = None if raw_threshold is None else _threshold(place.at(spelled["threshold"]), raw_threshold)
    return _with_function(Criterion(metric, threshold, options))


def _with_function(criterion: Criterion) -> Criterion:
    """A name with a colon is that of a function."""
    if ":" not in criterion.metric or "function" in criterion.options:
        return criterion
    return replace(criterion, options={"function": criterion.metric, **criterion.options})


def _threshold(place: JsonPosition, raw: Any) -> float:
    """A number, also written as text or as true, as ADK takes them."""
    value = math.nan
    if isinstance(raw, bool | int | float | str):
        try:
            value = float(raw)
        except (ValueError, OverflowError):
            value = math.nan
    if not math.isfinite(value):
        raise wrong_value(place, raw, "a threshold, such as 0.8, or an object with one")
    return value


def _respell(value: Any) -> Any:
    if isinstance(value, list):
        return [_respell(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {snake_case(key): item for key, item in value.items()}
    return {key: item if key == "judge_model_config" else _respell(item) for key, item in fields.items()}


def _write_criteria(criteria: tuple[Criterion, ...]) -> dict[str, Any]:
    return {each.metric: _write_criterion(each) for each in criteria}


def _write_criterion(criterion: Criterion) -> Any:
    options = dict(criterion.options)
    if options.get("function") == criterion.metric:
        del options["function"]
    if criterion.threshold is not None and not options:
        return criterion.threshold
    return {"threshold": criterion.threshold, **options}


def _patch_criteria(raw: Any, criteria: tuple[Criterion, ...]) -> Any:
    """The criteria as they stood in the file, with changed ones rewritten."""
    nowhere = JsonPosition(Document(None))
    entries = {}
    for each in criteria:
        file_value = raw.get(each.metric, ABSENT)
        is_same = file_value is not ABSENT and read_criterion(nowhere, each.metric, file_value) == each
        entries[each.metric] = file_value if is_same else _write_criterion(each)
    return entries


_FILE = Shape(
    fields=(
        Field("criteria", _read_criteria, _write_criteria, _patch_criteria),
        Field("custom_metrics", read_custom_metrics, write_custom_metrics),
        Field("user_simulator_config", read_optional_mapping, unless_none),
    ),
    order=("criteria", "custom_metrics", "user_simulator_config", "live_model_config"),
)
