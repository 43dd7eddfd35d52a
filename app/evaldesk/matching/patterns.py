"""Regular expressions that people write, on text that agents write: bounded in length and in time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from evaldesk.errors import MetricError, UsageError

MAX_PATTERN = 1_000
MAX_TEXT = 1_000_000
LIMIT_S = 1.0


def check_pattern(pattern: str, what: str, *, field: str) -> None:
    """Raise UsageError, about `what` and naming the `field`, for a regular expression that is too long or wrong."""
    import regex

    if len(pattern) > MAX_PATTERN:
        raise UsageError(f"{what} has {len(pattern):,} characters; {MAX_PATTERN:,} are allowed", field=field)
    try:
        _compiled(pattern)
    except regex.error as error:
        raise UsageError(f"{what} is not a regular expression: {error}", field=field) from error


def pattern_found(pattern: str, text: str, *, is_whole: bool = False) -> bool:
    """Whether `pattern` is found in `text`, or matches all of it. Raises MetricError after a second.

    Nested repetitions such as `(a+)+b` may take ages on some text; the package `regex` can be stopped, `re` cannot.
    """
    if len(text) > MAX_TEXT:
        raise MetricError(f"{len(text):,} characters are more than a regular expression may search: {MAX_TEXT:,}")
    compiled = _compiled(pattern)
    search = compiled.fullmatch if is_whole else compiled.search
    try:
        return search(text, timeout=LIMIT_S, concurrent=True) is not None
    except TimeoutError:
        raise MetricError(
            f"the regular expression {pattern!r:.100} takes more than {LIMIT_S:g} s on this text; "
            "write it without repetitions inside repetitions"
        ) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)
