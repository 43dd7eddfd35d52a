"""The metrics as plain values: range, direction, needs and options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from evaldesk.metrics import METRICS, metric_info, metric_options

NEEDS = {
    "tool_calls": "expected tool calls",
    "reference": "a reference answer",
    "reference_json": "a reference answer in JSON",
    "reference_number": "a number in the reference answer",
    "intermediate": "expected intermediate responses",
    "final_state": "an expected final state",
    "nothing": "",
}
JUDGE_OPTIONS = {
    "name": "judge_model_options",
    "kind": "json",
    "label": "Judge options",
    "explanation": "In a criteria file, as in ADK: judge_model, judge_models, judge_model_config, num_samples, "
    "parallelism_limit, timeout_s.",
    "choices": [],
    "default": {},
}


def metric_rows(functions: Mapping[str, str], name: str | None = None) -> list[dict[str, Any]]:
    """The metrics of the table and the functions of `evaldesk.toml`, or the one called `name`. Raises NotFoundError."""
    names = [name] if name else [*METRICS, *(each for each in functions if each not in METRICS)]
    return [_metric_fields(each, functions) for each in names]


def _metric_fields(name: str, functions: Mapping[str, str]) -> dict[str, Any]:
    """A metric of the table, or a function that `evaldesk.toml` names. Raises NotFoundError."""
    if name not in functions:
        return describe_metric(name)
    return {
        "name": name,
        "title": name,
        "summary": f"Your function {functions[name]}.",
        "low": None,
        "high": None,
        "is_higher_better": True,
        "default_threshold": 1.0,
        "needs": "",
        "has_judge": False,
        "required": [],
        "options": [],
    }


def describe_metric(name: str) -> dict[str, Any]:
    """A metric as plain values. Raises NotFoundError naming the nearest."""
    info = metric_info(name)
    return {
        "name": info.name,
        "title": info.title,
        "summary": info.summary,
        "low": info.low if math.isfinite(info.low) else None,
        "high": info.high if math.isfinite(info.high) else None,
        "is_higher_better": info.is_higher_better,
        "default_threshold": info.default_threshold,
        "needs": NEEDS.get(info.needs, info.needs),
        "has_judge": info.has_judge,
        "required": [*info.required],
        "options": [
            {
                "name": option.name,
                "kind": option.kind,
                "label": option.label,
                "explanation": option.explanation,
                "choices": [value for value, _ in option.choices],
                "default": option.default,
            }
            for option in metric_options(name)
        ]
        + ([JUDGE_OPTIONS] if info.has_judge else []),
    }


def range_words(row: dict[str, Any]) -> str:
    """`0 to 1, more is better`."""
    low, high = row["low"], row["high"]
    bounds = f"{low:g} to {high:g}" if high is not None and low is not None else "any number"
    if high is None and low is not None:
        bounds = f"from {low:g} up"
    return f"{bounds}, {'more' if row['is_higher_better'] else 'less'} is better"
