"""What OpenHands counts of a run: calls, tokens and cost. (OpenHands openhands/llm/metrics.py)"""

from __future__ import annotations

from typing import Any

from evaldesk.formats.reading import read_list, read_mapping
from evaldesk.formats.strict_json import Place
from evaldesk.model import Usage


def read_usages(place: Place, raw: dict[str, Any]) -> tuple[Usage, ...]:
    """One usage for each model call where they are listed, else one for all. A cost of 0 for tokens is unknown."""
    cost = _cost(raw.get("accumulated_cost"))
    calls = read_list(place.at("token_usages"), raw.get("token_usages") or [], read_mapping)
    found = [_usage(call) for call in calls]
    if not found:
        total = raw.get("accumulated_token_usage")
        found = [_usage(total)] if isinstance(total, dict) and _usage(total) != Usage("") else []
    if not found:
        return (Usage("", cost=cost),) if cost else ()
    shares = _costs(raw.get("costs"))
    if len(shares) != len(found) or None in shares or not cost:
        shares = [cost, *[0.0] * (len(found) - 1)] if cost else [None] * len(found)
    return tuple(
        Usage(each.model, "agent", each.tokens_in, each.tokens_out, share)
        for each, share in zip(found, shares, strict=True)
    )


def _usage(raw: dict[str, Any]) -> Usage:
    model = raw.get("model")
    model = model if isinstance(model, str) else ""
    return Usage(model, tokens_in=_count(raw.get("prompt_tokens")), tokens_out=_count(raw.get("completion_tokens")))


def _costs(raw: Any) -> list[float | None]:
    """Costs by call: numbers in older files, objects with a `cost` in newer ones."""
    items = raw if isinstance(raw, list) else []
    return [_cost(item.get("cost") if isinstance(item, dict) else item) for item in items]


def _cost(raw: Any) -> float | None:
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return float(raw) if is_number and 0 < raw < 1e9 else None


def _count(raw: Any) -> int:
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 2**53 else 0
