"""A value for each option of the table that is not its default, and configurations that have it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from evaldesk.model import AgentRef, Counts, RunConfig
from evaldesk.model.run import with_options
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, SHARED, RunOption

PRICES = {"price_in": 1.5, "price_out": 2.5, "user_price_in": 1.5, "user_price_out": 2.5}
"""Prices come in pairs, so one alone cannot be changed from nothing."""

_TEXTS = {
    "base_url": "http://127.0.0.1:9/v1",
    "user_base_url": "http://127.0.0.1:8/v1",
    "api_key_env": "OTHER_KEY",
    "user_api_key_env": "OTHER_KEY",
    "user_instructions": "Be brief. {{ conversation_plan }} {{ stop_signal }}",
    "model": "openai/big",
    "user_model": "openai/user",
    "note": "after the fix",
    "rows": "0",
    "only": "tag:smoke",
    "without": "tag:slow",
}


def other_value(option: RunOption) -> Any:
    """A value that is not the default, and not that of PRICES."""
    if option.kind == "switch":
        return not option.default
    if option.kind == "choice":
        return next(choice for choice in option.choices if choice not in (option.default, SHARED))
    if option.kind == "object":
        return {"dice": "Roll."} if option.name == "instructions" else {"top_k": 3}
    if option.kind == "text":
        return _TEXTS.get(option.name, "other")
    if option.kind == "shares":
        return ((option.choices[0], 0.25), (option.choices[-1], 0.5))
    if option.kind == "budget":
        return "7"
    if option.kind == "shard":
        return "2/5"
    return max(7, int(option.low)) if option.kind == "whole" else 0.75


def typed_text(value: Any) -> str:
    """The value of an option as a person types it."""
    if isinstance(value, dict):
        return json.dumps(value)
    return ",".join(f"{name}={share}" for name, share in value) if isinstance(value, tuple) else str(value)


def together(option: RunOption) -> dict[str, Any]:
    """The option with another value, and what has to be asked for with it."""
    paired = {"in": "out", "out": "in"}
    name, _, end = option.name.rpartition("_")
    partner = f"{name}_{paired[end]}" if end in paired and f"{name}_{paired[end]}" in BY_NAME else ""
    more: dict[str, Any] = {partner: 2.0} if partner else {}
    return {option.name: other_value(option), **more, **({"name": "n"} if option.name == "retry_failed" else {})}


def config_with(**values: Any) -> RunConfig:
    """A configuration with these options."""
    return with_options(RunConfig(AgentRef("dice", "dice:agent"), "set"), values)


def run_of(config: RunConfig, run_id: int = 1) -> RunSummary:
    """A finished run of two cases with this configuration."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    totals = dict.fromkeys(("n_duplicates", "n_unpriced", "n_uncounted", "n_timed"), 0)
    amounts = {"tokens_in": 0, "tokens_out": 0, "cost": 0.0, "duration_ms": 0.0, "active_ms": 0.0}
    fixed: dict[str, Any] = {**totals, **amounts, "created_at": now, "started_at": now, "finished_at": now}
    return RunSummary(
        id=run_id,
        status="finished",
        config=config,
        n_cases=2,
        n_least=config.n,
        n_most=config.n,
        counts=Counts(2 * config.n),
        driver="",
        reason="",
        note=config.note,
        **fixed,
    )
