"""The parts of a text that is too long, with its length and digest between them."""

from __future__ import annotations

import hashlib
from bisect import bisect_left


def shortened(text: str, longest: int, hint: str = "") -> str:
    """The head and the tail of a text with its length and digest between them; the text where it is short.

    `hint` names the place of the whole text, beside the digest.
    """
    if len(text) <= longest:
        return text
    head, tail = longest * 3 // 4, longest // 4
    return f"{text[:head]} […{_gap_words(text, hint)}…] {text[len(text) - tail :]}"


def shortened_pair(first: str, second: str, longest: int, hint: str = "") -> tuple[str, str]:
    """Two texts, each shortened to its head, the part around their first difference, and its tail.

    Equal texts are shortened as one alone; so are texts with a difference in the head.
    """
    if first == second or max(len(first), len(second)) <= longest:
        return shortened(first, longest, hint), shortened(second, longest, hint)
    at = first_difference(first, second)
    return _shortened_at(first, at, longest, hint), _shortened_at(second, at, longest, hint)


def _shortened_at(text: str, at: int, longest: int, hint: str) -> str:
    quarter = longest // 4
    if len(text) <= longest or at < longest * 5 // 8:
        return shortened(text, longest, hint)
    start = min(at - quarter // 2, len(text) - longest * 3 // 4)
    end = start + longest // 2
    part = text[start:] if end + quarter >= len(text) else f"{text[start:end]} […] {text[len(text) - quarter :]}"
    return f"{text[:quarter]} […{_gap_words(text, hint)}; from character {start + 1:,}…] {part}"


def first_difference(first: str, second: str) -> int:
    """The characters that two texts begin with alike."""
    shorter = min(len(first), len(second))
    return bisect_left(range(shorter), True, key=lambda n: first[: n + 1] != second[: n + 1])


def length_words(text: str) -> str:
    """`2,598 characters, sha256 265ffb7e8277`."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{len(text):,} characters, sha256 {digest}"


def _gap_words(text: str, hint: str) -> str:
    return f"{length_words(text)}; {hint}" if hint else length_words(text)
