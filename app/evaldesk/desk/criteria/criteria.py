"""Criteria from files, mappings and pages: checked against the metrics there are, and made ready for a run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from evaldesk.errors import VALUE_LIMIT, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.formats import AdkObject
from evaldesk.formats.adk.metrics_config import is_metrics_config, read_metrics_config
from evaldesk.formats.criteria_file import (
    NAMES,
    CriteriaFile,
    criteria_of_document,
    is_criteria_file,
    read_criteria_file,
)
from evaldesk.metrics import (
    FUNCTION_OPTION,
    METRICS,
    build_metric,
    check_criteria,
    check_function,
    check_source,
    function_options,
    is_function,
    is_metric,
    metric_info,
    metric_options,
)
from evaldesk.metrics.judges.options import full_name, sampling_of
from evaldesk.model import Criterion, EvalSet, JsonObject, JsonValue, ModelOptions
from evaldesk.model.evalset import CRITERIA
from evaldesk.model.options import UserConfig
from evaldesk.paths import did_you_mean
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.reading.strict_json import MAX_BYTES, Document, parse_json
from evaldesk.reading.values import snake_case
from evaldesk.run_options import BY_NAME
from evaldesk.settings import Settings

LIVE = "live_model_config"


class LiveOptions(TypedDict, total=False):
    """The options of a run that a criteria file asks for with `live_model_config`."""

    live: bool
    live_timeout_s: float


ADK_ONLY = "include_intermediate_responses_in_final"
"""ADK lets every criterion have this option, also where it has no meaning."""


MAX_CRITERIA = 1024 * 1024
"""Bytes beyond which a file is no criteria file."""


def holds_criteria(path: Path) -> bool:
    """Whether the file looks like a criteria file; False for an unreadable one, whose fault its reader names."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_CRITERIA:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    return is_metrics_config(data, path.name) or is_criteria_file(data)


def read_criteria(path: Path | str) -> tuple[Criterion, ...]:
    """The criteria of the file at `path`. Raises UsageError when it is not there, FormatError with line and path."""
    return checked_criteria(open_criteria_file(path))


def read_user(path: Path | str) -> UserConfig | None:
    """The simulated user of the file at `path`; None when it says nothing. Raises UsageError, FormatError."""
    return _user_in(open_criteria_file(path))


def _user_in(file: CriteriaFile) -> UserConfig | None:
    if file.user_simulator is None:
        return None
    try:
        return user_of(file.user_simulator)
    except UsageError as error:
        raise file.document.error(str(error), ("user_simulator_config",)) from error


def read_live(path: Path | str) -> LiveOptions:
    """The options of a run that `live_model_config` of the file at `path` asks for. Raises as `read_user`."""
    return live_of(open_criteria_file(path))


def live_of(file: CriteriaFile) -> LiveOptions:
    """The options that `live_model_config` asks for; empty without one. Raises FormatError with its place."""
    key = next((key for key, value in file.extra.items() if snake_case(key) == LIVE and value is not None), None)
    if key is None:
        return {}
    value = file.extra[key]
    if not isinstance(value, Mapping):
        raise file.document.error("live_model_config must be an object", (key,))
    timeouts = [(name, each) for name, each in value.items() if snake_case(name) == "timeout_seconds"]
    for name, seconds in timeouts:
        try:
            return {"live": True, "live_timeout_s": BY_NAME["live_timeout_s"].check(seconds, "timeout_seconds")}
        except UsageError as error:
            raise file.document.error(str(error), (key, name)) from error
    return {"live": True}


def open_criteria_file(path: Path | str) -> CriteriaFile:
    """The file at `path`, its metrics not checked yet. Raises UsageError, FormatError."""
    try:
        data = read_regular_file(Path(path), MAX_BYTES)
    except OSError as error:
        raise UsageError(_not_there(Path(path), error), field="criteria") from error
    reader = read_metrics_config if is_metrics_config(data, Path(path).name) else read_criteria_file
    return reader(data, source=os.fspath(path))


def metric_and_criterion(text: str) -> tuple[str, object]:
    """A metric and its value in a criteria file, from `METRIC=T` or `METRIC={...}`. Raises UsageError, FormatError."""
    metric, _, value = text.partition("=")
    if value.lstrip().startswith("{"):
        return metric.strip(), parse_json(value.encode("utf-8", "replace"), source=metric).value
    try:
        return metric.strip(), {"threshold": float(value)}
    except ValueError:
        syntax = """METRIC=T, such as response_match_score=0.8, or METRIC={"threshold": T, "option": ...}"""
        raise UsageError(f"{text!r}: wanted {syntax}") from None


def criteria_of(mapping: Mapping[str, object]) -> tuple[Criterion, ...]:
    """The criteria of a mapping such as `criteria` in a file. Raises UsageError."""
    try:
        value = json.loads(json.dumps({"criteria": dict(mapping)}, allow_nan=False))
    except TypeError as error:
        raise UsageError(f"these criteria are not plain values: {error}", field="criteria") from error
    except ValueError as error:
        raise UsageError(
            "a threshold or an option is NaN or infinite; say a finite number", field="criteria"
        ) from error
    try:
        return checked_criteria(criteria_of_document(Document(value)))
    except FormatError as error:
        raise UsageError(str(error), field="criteria") from error


def checked_criteria(file: CriteriaFile) -> tuple[Criterion, ...]:
    """The criteria of a file. Raises FormatError naming the place of the first that cannot be, and the nearest name."""
    live_of(file)
    criteria = tuple(_without_adk_option(criterion) for criterion in file.whole_criteria)
    for criterion in criteria:
        try:
            check_criteria([criterion])
        except UsageError as error:
            option = (error.field or "").rpartition(".")[2] if "." in (error.field or "") else ""
            raise file.error(str(error), criterion.metric, option) from error
    return criteria


def text_of_criteria(value: object) -> str:
    """The `criteria` of a set with a line each, `METRIC = THRESHOLD` or `METRIC = {...}`; empty for none."""
    rows = value.items() if isinstance(value, Mapping) else ()
    return "\n".join(f"{metric} = {json.dumps(each, ensure_ascii=False)}" for metric, each in rows)


def criteria_of_text(text: str) -> dict[str, JsonValue]:
    """The `criteria` of a set from a line each. Raises UsageError, FormatError for those that cannot be."""
    criteria: dict[str, JsonValue] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, sign, value = (each.strip() for each in line.partition("="))
        if not (name and sign):
            raise UsageError(f"{line!r:.80}: write METRIC = THRESHOLD, such as tool_exact = 1", field="criteria")
        if name in criteria:
            raise UsageError(f"{name} is named twice; keep one", field="criteria")
        criteria[name] = parse_json(value.encode("utf-8", "replace"), source=name).value
    criteria_of_set(EvalSet("", extra={CRITERIA: criteria}))
    return criteria


def bars_of_text(text: str) -> dict[str, float | None]:
    """The metrics of `final_state_match, response_match_score = 0.6`, each with its threshold or None.

    Raises UsageError for a metric that there is not, a threshold that cannot be, and one that is named twice.
    """
    bars: dict[str, float | None] = {}
    for part in filter(None, (each.strip() for each in re.split(r"[,\n]", text))):
        name, sign, number = (each.strip() for each in part.partition("="))
        try:
            bar = float(number) if sign else None
        except ValueError:
            raise UsageError(f"{part!r:.80}: write a metric, or METRIC = THRESHOLD", field="criteria") from None
        if name in bars:
            raise UsageError(f"{name} is named twice; keep one", field="criteria")
        if ":" not in name:
            build_metric(Criterion(name, bar))
        elif bar is not None and not math.isfinite(bar):
            raise UsageError(f"{part!r:.80}: the threshold must be finite", field="criteria")
        bars[name] = bar
    return bars


def has_criteria(evalset: EvalSet) -> bool:
    """Whether the file of the set brings criteria."""
    value = evalset.extra.get(CRITERIA)
    return isinstance(value, Mapping) and bool(value)


def criteria_of_set(evalset: EvalSet) -> tuple[Criterion, ...] | None:
    """The criteria that the file of the set brings under `criteria`; None without any.

    Raises UsageError for those that cannot be, and for a function or an address: no data names code or hosts.
    """
    value = evalset.extra.get(CRITERIA)
    if not isinstance(value, Mapping) or not has_criteria(evalset):
        return None
    criteria = criteria_of(value)
    if reaches_out(criteria, None):
        raise UsageError(
            "the criteria of the eval set name a function or an address; put these in test_config.json beside it",
            field="criteria",
        )
    return criteria


def find_criteria_file(evalset: Path) -> Path | None:
    """The criteria file beside an eval set, as ADK's AgentEvaluator looks for it; None when there is none.

    That of a set in a folder `datasets` is beside the folder, as agents-cli has it. Raises UsageError for a link that
    leads nowhere, a folder or a pipe of that name, which no default stands for.
    """
    places = [evalset.parent, *([evalset.parent.parent] if evalset.parent.name == "datasets" else [])]
    paths = (place / name for place in places for name in NAMES)
    file = next((path for path in paths if os.path.lexists(path)), None)
    if file and not file.is_file():
        what = "not a file" if file.exists() else "a link that leads nowhere"
        raise UsageError(f"{file} is {what}; repair or remove it, or name the criteria", field="criteria")
    return file


def function_criterion(target: str, threshold: float | None = None) -> Criterion:
    """A criterion that calls the function `target`, a `module:attr`; Osmosis names it by that very text."""
    return Criterion(target, threshold, function_options(target))


def _without_adk_option(criterion: Criterion) -> Criterion:
    """The criterion without the option that ADK ignores for this metric."""
    if ADK_ONLY not in criterion.options or is_function(criterion) or _has_option(criterion.metric, ADK_ONLY):
        return criterion
    options: dict[str, JsonValue] = {name: value for name, value in criterion.options.items() if name != ADK_ONLY}
    return replace(criterion, options=options)


def _has_option(metric: str, option: str) -> bool:
    try:
        return option in {each.name for each in metric_options(metric)}
    except EvaldeskError:
        return True  # an unknown metric is refused under its own name


def _not_there(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"{path}: there is no folder {path.parent}; name a file such as test_config.json"
    return f"{path}: {error.strerror or error}; {did_you_mean(path, 'name a file such as test_config.json')}"


GivenCriteria: TypeAlias = Mapping[str, object] | Sequence[Criterion] | AdkObject | str | os.PathLike[str]


def given_criteria(source: GivenCriteria) -> tuple[Criterion, ...]:
    """The criteria, checked. Raises UsageError or FormatError saying which criterion cannot be."""
    if isinstance(source, Mapping):
        return criteria_of(source)
    if isinstance(source, Sequence) and not isinstance(source, str):
        check_criteria(source)
        return tuple(source)
    return checked_criteria(_criteria_file(source))


def given_live(source: GivenCriteria) -> LiveOptions:
    """The options that `live_model_config` of a file asks for. Raises UsageError, FormatError."""
    if isinstance(source, Mapping) or (isinstance(source, Sequence) and not isinstance(source, str)):
        return {}
    return live_of(_criteria_file(source))


def given_user(source: GivenCriteria) -> UserConfig | None:
    """The simulated user that a file of criteria names; None otherwise. Raises UsageError, FormatError."""
    if isinstance(source, Mapping) or (isinstance(source, Sequence) and not isinstance(source, str)):
        return None
    return _user_in(_criteria_file(source))


def _criteria_file(source: AdkObject | str | os.PathLike[str]) -> CriteriaFile:
    """The file of criteria at a path, or the EvalConfig of google-adk that stands for one."""
    if isinstance(source, str | os.PathLike):
        return open_criteria_file(os.fspath(source))
    return read_criteria_file(source.model_dump_json(exclude_unset=True).encode(), source=type(source).__name__)


KEYS = (
    "type",
    "model",
    "model_configuration",
    "max_allowed_invocations",
    "custom_instructions",
    "include_function_calls",
)
SPOKEN, AUDIO_KEYS = "llm_audio", ("audio_model", "audio_model_configuration", "include_text_with_audio")
"""The type of a user that speaks, and the keys of its voice, which is not played yet."""
NO_BOUND = -1
_HISTORY = re.compile(r"\{\{\s*conversation_history\s*\}\}")
HISTORY_FOLLOWS = "(it follows as messages)"


def user_of(config: JsonObject) -> UserConfig:
    """The simulated user of the config. Raises UsageError for keys that Evaldesk cannot follow or does not know."""
    values: dict[str, Any] = {}
    is_spoken = config.get("type") == SPOKEN
    for key, value in config.items():
        name = snake_case(key)
        if is_spoken and name in AUDIO_KEYS:
            continue
        if name not in KEYS:
            raise NotFoundError.among("key of user_simulator_config", key, KEYS)
        values[name] = value
    if values.get("type", "llm_backed") not in ("llm_backed", SPOKEN):
        raise UsageError(f"user_simulator_config: no simulated user of type {values['type']!r}; there is: llm_backed")
    if values.get("include_function_calls") and not is_spoken:
        raise UsageError("user_simulator_config: Evaldesk shows its simulated user no function calls; remove the key")
    max_invocations = values.get("max_allowed_invocations")
    turn_limit: dict[str, Any] = (
        {}
        if max_invocations is None
        else {"max_turns": None if max_invocations == NO_BOUND else _whole_number(max_invocations)}
    )
    return UserConfig(
        model=full_name(_text(values, "model")),
        options=_options(values.get("model_configuration") or {}),
        instructions=_HISTORY.sub(HISTORY_FOLLOWS, _text(values, "custom_instructions")),
        is_spoken=is_spoken,
        **turn_limit,
    )


def _options(configuration: Any) -> ModelOptions:
    if not isinstance(configuration, Mapping):
        raise UsageError("user_simulator_config.model_configuration must be an object")
    return ModelOptions(**sampling_of(configuration, "user_simulator_config.model_configuration"))


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"user_simulator_config.{key} must be a text, got {value!r:.40}")
    return value or ""


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"user_simulator_config.max_allowed_invocations must be a whole number, got {value!r:.40}")
    return value


JUDGE, MORE_JUDGES, JUDGE_OPTIONS = "judge_model", "more_judges", "judge_model_options"


def reaches_out(criteria: Sequence[Criterion], user: UserConfig | None) -> bool:
    """Whether criteria of a file run code of its author, or say where the keys of judges and users are sent."""
    options = user.options if user else ModelOptions()
    is_sent = bool(options.base_url or options.api_key_env) or any(sends_keys(each.options) for each in criteria)
    return is_sent or any(is_function(each) for each in criteria)


def sends_keys(value: object) -> bool:
    """Whether options name an address of a model, or the variable of a key."""
    if isinstance(value, Mapping):
        return any(snake_case(key) in ("base_url", "api_key_env") or sends_keys(each) for key, each in value.items())
    return isinstance(value, list | tuple) and any(sends_keys(each) for each in value)


def allowed_criteria(
    criteria: Sequence[Criterion], settings: Settings, stored_criteria: Sequence[Criterion] = ()
) -> tuple[Criterion, ...]:
    """The criteria that a browser named, each checked against the settings.

    A function is named as in `[metrics]` of `evaldesk.toml`, or as one of `stored_criteria`, those of a stored run; its
    imports are looked up there. A judge is one of the allowed models, or as that run had it. Raises UsageError naming
    the field.
    """
    return tuple(
        _check_allowed(each, settings, {criterion.metric: criterion for criterion in stored_criteria})
        for each in criteria
    )


def ready_criteria(criteria: Sequence[Criterion], settings: Settings, root: str) -> tuple[Criterion, ...]:
    """The criteria as a run keeps them: functions with the root they are imported from, judges by their names.

    A judge that the criterion leaves open is the first of the allowed judges; without any it stays open, and ADK's
    own is asked. Raises UsageError for a function that is not where its name says.
    """
    return tuple(_ready(each, settings, root) for each in criteria)


def judges_of(criterion: Criterion) -> tuple[str, ...]:
    """The judges that the criterion names first; empty when it leaves them open, or has none."""
    judge_options: Any = criterion.options.get(JUDGE_OPTIONS)
    nested: Mapping[str, Any] = judge_options if isinstance(judge_options, Mapping) else {}
    names = [criterion.options.get(JUDGE), nested.get(JUDGE), *_as_list(nested.get("judge_models"))]
    return tuple(name for name in names if isinstance(name, str) and name)


def more_judges(criterion: Criterion) -> list[object]:
    """The judges that vote together with the first ones."""
    return _as_list(criterion.options.get(MORE_JUDGES))


def _check_allowed(criterion: Criterion, settings: Settings, stored_criteria: Mapping[str, Criterion]) -> Criterion:
    if is_function(criterion):
        raise UsageError("a page cannot name a function by its module", field="metric")
    if not is_metric(criterion.metric):
        return replace(criterion, options=_function(criterion.metric, settings, stored_criteria))
    if not metric_info(criterion.metric).has_judge:
        return criterion
    stored_options = stored_criteria.get(criterion.metric, Criterion("")).options
    place = f"{criterion.metric}.{JUDGE}"
    if JUDGE_OPTIONS in criterion.options and criterion.options[JUDGE_OPTIONS] != stored_options.get(JUDGE_OPTIONS):
        raise UsageError(
            f"{JUDGE_OPTIONS} are for criteria files; a page chooses among the allowed judges", field=place
        )
    _check_judges([criterion.options.get(JUDGE)], [stored_options.get(JUDGE)], settings, place)
    _check_judges(
        more_judges(criterion), _as_list(stored_options.get(MORE_JUDGES)), settings, f"{criterion.metric}.{MORE_JUDGES}"
    )
    if not settings.allowed_judges and not judges_of(criterion):
        raise UsageError(f"{criterion.metric} needs a judge; name one under judges in evaldesk.toml", field=place)
    return criterion


def _check_judges(judges: Sequence[object], stored_judges: Sequence[object], settings: Settings, place: str) -> None:
    for judge in judges:
        if judge and judge not in stored_judges and judge not in settings.allowed_judges:
            names = ", ".join(settings.allowed_judges) or "none; add some under judges in evaldesk.toml"
            raise UsageError(f"{str(judge)[:VALUE_LIMIT]!r} is not among the allowed judges: {names}", field=place)


def _function(name: str, settings: Settings, stored_criteria: Mapping[str, Criterion]) -> JsonObject:
    if name in settings.functions:
        return function_options(settings.functions[name])
    if name in stored_criteria and is_function(stored_criteria[name]):
        return stored_criteria[name].options
    error = NotFoundError.among("metric", name, [*METRICS, *settings.functions])
    error.field = "metric"
    raise error


def _ready(criterion: Criterion, settings: Settings, root: str) -> Criterion:
    options: dict[str, JsonValue] = dict(criterion.options)
    if is_function(criterion):
        import_root = str(options.get("root") or root)
        if "source" in options:
            check_source(str(options[FUNCTION_OPTION]), str(options["source"]))
            return criterion
        place = check_function(str(options[FUNCTION_OPTION]), import_root, Path.cwd())
        return replace(criterion, options=options | ({"root": place} if place else {}))
    if not is_metric(criterion.metric) or not metric_info(criterion.metric).has_judge:
        return criterion
    if judges_of(criterion) or not settings.allowed_judges:
        return criterion
    return replace(criterion, options={**options, JUDGE: settings.allowed_judges[0]})


def is_plain(criterion: Criterion) -> bool:
    """Whether a metric of Evaldesk judges, without a model."""
    return is_metric(criterion.metric) and not (is_function(criterion) or metric_info(criterion.metric).has_judge)


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
