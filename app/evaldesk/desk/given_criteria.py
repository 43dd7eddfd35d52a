"""Criteria as a person gives them: a mapping as in `test_config.json`, such a file, or the values themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from evaldesk.errors import UsageError
from evaldesk.metrics import check_criteria
from evaldesk.model import Criterion

GivenCriteria: TypeAlias = Mapping[str, object] | Sequence[Criterion] | str | os.PathLike[str]


def given_criteria(given: GivenCriteria) -> tuple[Criterion, ...]:
    """The criteria, checked. A number is a threshold; an object has `threshold` and the options of the metric.

    Raises UsageError saying which criterion cannot be.
    """
    if isinstance(given, str | os.PathLike):
        return _of_file(Path(given))
    if isinstance(given, Mapping):
        found = tuple(_criterion(str(metric), value) for metric, value in given.items())
    else:
        found = tuple(given)
    check_criteria(found)
    return found


def _of_file(path: Path) -> tuple[Criterion, ...]:
    try:
        value = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file such as test_config.json") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    criteria = value.get("criteria") if isinstance(value, dict) else None
    if not isinstance(criteria, dict):
        raise UsageError(f'{path}: wanted an object with "criteria", such as {{"criteria": {{"tool_exact": 1.0}}}}')
    return given_criteria(criteria)


def _criterion(metric: str, value: object) -> Criterion:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Criterion(metric, float(value))
    if isinstance(value, Mapping):
        options = {str(name): option for name, option in value.items() if name != "threshold"}
        threshold = value.get("threshold")
        if threshold is None or isinstance(threshold, int | float):
            return Criterion(metric, threshold, options)
    raise UsageError(f"{metric}: wanted a threshold, or an object with threshold and options, got {value!r:.80}")
