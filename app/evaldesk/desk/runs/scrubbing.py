"""Removal of secrets from an agent's events, before they are stored or shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from evaldesk.wire import from_json, json_scrubber, to_json

T = TypeVar("T")


def value_scrubber(environment: Mapping[str, str]) -> Callable[[T], T]:
    """A function that gives a value of `evaldesk.model` back with every text in it, keys included, scrubbed."""
    scrub = json_scrubber(environment)

    def scrubbed(value: T) -> T:
        data = to_json(value)
        clean = scrub(data)
        return value if clean is data else from_json(clean, type(value))

    return scrubbed
