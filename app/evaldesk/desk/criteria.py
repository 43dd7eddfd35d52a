"""Criteria from files and from mappings, checked against the metrics there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from evaldesk.desk.simulated_user import user_of
from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.formats.criteria_file import NAMES, CriteriaFile, criteria_of_document, load_criteria_file
from evaldesk.formats.strict_json import Document
from evaldesk.metrics import check_criteria, function_options, is_function, metric_options
from evaldesk.model import Criterion, JsonValue
from evaldesk.model.user import UserConfig
from evaldesk.paths import did_you_mean

ADK_ONLY = "include_intermediate_responses_in_final"
"""ADK lets every criterion have this option, also where it has no meaning."""


def read_criteria(path: Path | str) -> tuple[Criterion, ...]:
    """The criteria of the file at `path`. Raises UsageError when it is not there, FormatError with line and path."""
    return checked_criteria(open_criteria_file(path))


def read_user(path: Path | str) -> UserConfig | None:
    """The simulated user of the file at `path`; None when it says nothing. Raises UsageError, FormatError."""
    file = open_criteria_file(path)
    if file.user_simulator is None:
        return None
    try:
        return user_of(file.user_simulator)
    except UsageError as error:
        raise file.document.error(str(error), ("user_simulator_config",)) from error


def open_criteria_file(path: Path | str) -> CriteriaFile:
    """The file at `path`, its metrics not checked yet. Raises UsageError, FormatError."""
    try:
        return load_criteria_file(Path(path))
    except OSError as error:
        raise UsageError(_not_there(Path(path), error), field="criteria") from error


def criteria_of(mapping: Mapping[str, object]) -> tuple[Criterion, ...]:
    """The criteria of a mapping such as `criteria` in a file. Raises UsageError."""
    try:
        value = json.loads(json.dumps({"criteria": dict(mapping)}, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(f"these criteria are no plain values: {error}", field="criteria") from error
    try:
        return checked_criteria(criteria_of_document(Document(value)))
    except FormatError as error:
        raise UsageError(str(error), field="criteria") from error


def checked_criteria(file: CriteriaFile) -> tuple[Criterion, ...]:
    """The criteria of a file. Raises FormatError naming the place of the first that cannot be, and the nearest name."""
    criteria = tuple(_understood(criterion) for criterion in file.whole_criteria)
    for criterion in criteria:
        try:
            check_criteria([criterion])
        except UsageError as error:
            option = (error.field or "").rpartition(".")[2] if "." in (error.field or "") else ""
            raise file.error(str(error), criterion.metric, option) from error
    return criteria


def find_criteria_file(evalset: Path) -> Path | None:
    """The criteria file beside an eval set, as ADK's AgentEvaluator looks for it; None when there is none."""
    return next((path for name in NAMES if (path := evalset.parent / name).is_file()), None)


def function_criterion(target: str, threshold: float | None = None, *, name: str = "", compat: str = "") -> Criterion:
    """A criterion that calls the function `target`, a `module:attr`; Osmosis names it by that very text."""
    return Criterion(name or target, threshold, function_options(target, compat=compat))


def _understood(criterion: Criterion) -> Criterion:
    """Without the option that ADK passes over here."""
    if ADK_ONLY not in criterion.options or is_function(criterion) or _has_option(criterion.metric, ADK_ONLY):
        return criterion
    options: dict[str, JsonValue] = {name: value for name, value in criterion.options.items() if name != ADK_ONLY}
    return replace(criterion, options=options)


def _has_option(metric: str, option: str) -> bool:
    try:
        return option in {found.name for found in metric_options(metric)}
    except EvaldeskError:
        return True  # an unknown metric is refused under its own name


def _not_there(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"{path}: there is no folder {path.parent}; name a file such as test_config.json"
    return f"{path}: {error.strerror or error}; {did_you_mean(path, 'name a file such as test_config.json')}"
