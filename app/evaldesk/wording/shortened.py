"""The beginning and the end of a text that is too long, with its length and digest between them."""

from __future__ import annotations

import hashlib


def shortened(text: str, longest: int) -> str:
    """The head and the tail of a text with its length and digest between them; the text where it is short."""
    if len(text) <= longest:
        return text
    head, tail = longest * 3 // 4, longest // 4
    return f"{text[:head]} […{length_words(text)}…] {text[len(text) - tail :]}"


def length_words(text: str) -> str:
    """`2,598 characters, sha256 265ffb7e8277`."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{len(text):,} characters, sha256 {digest}"
