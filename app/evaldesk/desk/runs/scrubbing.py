"""Removal of secrets from an agent's events, before they are stored or shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from evaldesk.model import ErrorRecord, TrialResult
from evaldesk.wire import from_json, json_scrubber, to_json

T = TypeVar("T")


def result_scrubber(environment: Mapping[str, str]) -> Callable[[TrialResult], TrialResult]:
    """As `value_scrubber`; a result that cannot be scrubbed becomes an errored one without its content."""
    scrub: Callable[[TrialResult], TrialResult] = value_scrubber(environment)

    def scrubbed(result: TrialResult) -> TrialResult:
        try:
            return scrub(result)
        except Exception as error:
            said = f"the result cannot be searched for secrets: {type(error).__name__}: {error}"
            return result.without_content(ErrorRecord("unstorable", said[:500]))

    return scrubbed


def value_scrubber(environment: Mapping[str, str]) -> Callable[[T], T]:
    """A function that gives a value of `evaldesk.model` back with every text in it, keys included, scrubbed."""
    scrub = json_scrubber(environment)

    def scrubbed(value: T) -> T:
        data = to_json(value)
        clean = scrub(data)
        return value if clean is data else from_json(clean, type(value))

    return scrubbed
