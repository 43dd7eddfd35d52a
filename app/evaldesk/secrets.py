"""Secrets taken out of text before it reaches the database, a log, a page or an export."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

_NAMES = re.compile(r"(?:API_?KEY|ACCESS_?KEY|_TOKEN|_SECRET|_PASSWORD|_CREDENTIALS)$", re.IGNORECASE)
_MIN_LENGTH = 8
_WORD = re.compile(r"[a-z_]{1,15}")

# The forms of the common providers' keys, under the text that is part of each of them: Google, GitHub, Hugging Face,
# Groq, xAI, Slack, AWS, and any value after `Bearer`.
_SHAPES = {
    "Bearer": re.compile(r"(?<=Bearer\s)[\w.~+/=-]{8,}"),
    "AIza": re.compile(r"\bAIza[\w-]{30,}"),
    **{f"gh{kind}_": re.compile(rf"\bgh{kind}_\w{{30,}}") for kind in "pousr"},
    "github_pat_": re.compile(r"\bgithub_pat_\w{30,}"),
    "hf_": re.compile(r"\bhf_\w{20,}"),
    "gsk_": re.compile(r"\bgsk_\w{20,}"),
    "xai-": re.compile(r"\bxai-\w{20,}"),
    "xox": re.compile(r"\bxox[abprs]-[\w-]{10,}"),
    "AKIA": re.compile(r"\bAKIA[A-Z0-9]{16}\b"),
    "ASIA": re.compile(r"\bASIA[A-Z0-9]{16}\b"),
}

# OpenAI's and Anthropic's, which have a digit, and JSON web tokens, which have three parts. A text that only begins
# like one is matched as well, or a long text of such beginnings would be read to its end from each of them.
_KEYS = re.compile(r"\b[spr]k-[\w-]{20,}")
_DIGIT = re.compile(r"\d")
_WEB_TOKENS = re.compile(r"\beyJ[\w-]{10,}+(\.[\w-]{10,}+\.[\w-]{10,}+)?")

_MARKS = (*(mark.encode() for mark in _SHAPES), b"eyJ")
_LONG_AFTER_K = re.compile(rb'[spr]k-[^\s"\\]{20}')


def scrub(text: str, environment: Mapping[str, str]) -> str:
    """`text` with the values of secret environment variables, and texts of the form of a provider's key, replaced."""
    return scrubber(environment)(text)


def scrubber(environment: Mapping[str, str]) -> Callable[[str], str]:
    """`scrub` for many texts with one environment; a known value is replaced by its name in brackets.

    Secret are the variables whose names end in API_KEY, _TOKEN, _SECRET and the like; values shorter than 8
    characters and single words ("postgres") are left alone, since they would be found in ordinary text.
    """
    names = known_values(environment)
    longest_first = sorted(names, key=len, reverse=True)
    values = re.compile("|".join(re.escape(value) for value in longest_first)) if names else None

    def scrubbed(text: str) -> str:
        if values:
            text = values.sub(lambda found: f"[{names[found[0]]}]", text)
        if "k-" in text:
            text = _KEYS.sub(lambda found: "[secret]" if _DIGIT.search(found[0]) else found[0], text)
        if "eyJ" in text:
            text = _WEB_TOKENS.sub(lambda found: "[secret]" if found[1] else found[0], text)
        for mark, shape in _SHAPES.items():
            if mark in text:
                text = shape.sub("[secret]", text)
        return text

    return scrubbed


def known_values(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret values of an environment, with the names of their variables."""
    found = {environment.get(name, ""): name for name in environment if _is_secret(name)}
    return {value: name for value, name in found.items() if len(value) >= _MIN_LENGTH and not _WORD.fullmatch(value)}


@lru_cache(maxsize=1_000)  # asked of every variable for every frame that a worker sends
def _is_secret(name: str) -> bool:
    return _NAMES.search(name) is not None


def may_hold_key(data: bytes) -> bool:
    """Whether something in JSON may look like a provider's key; in microseconds, and seldom yes for nothing."""
    return any(mark in data for mark in _MARKS) or (b"k-" in data and bool(_LONG_AFTER_K.search(data)))
