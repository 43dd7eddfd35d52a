"""Names of cases and eval sets: the rules, and the proposal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterator
from itertools import count

from evaldesk.errors import UsageError

MAX_SLUG = 48
MAX_CASE_ID = 500


def check_case_id(case_id: str) -> None:
    """Raise UsageError unless `case_id` may be that of a case. ADK has no rule of its own; ours keeps it readable."""
    if not case_id:
        raise UsageError("Name the case.")
    if len(case_id) > MAX_CASE_ID:
        raise UsageError(f"At most {MAX_CASE_ID} characters.")
    if any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in case_id):
        raise UsageError("No line breaks or other control characters.")


def slug(text: str, default: str = "case") -> str:
    """`text` as a name: lower case, accents taken off, words joined by _, at most MAX_SLUG characters."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", ascii_text.lower())
    name = ""
    for word in words:
        if name and len(name) + 1 + len(word) > MAX_SLUG:
            break
        name = f"{name}_{word}" if name else word[:MAX_SLUG]
    return name or default


def plain_name(name: str) -> str:
    """The name as part of a file's name that every system takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:100] or "evalset"


def free_name(name: str, used_names: Container[str]) -> str:
    """`name`, or the first of `name_2`, `name_3`, … that is not taken."""
    return next(each for each in candidates(name) if each not in used_names)


def candidates(name: str) -> Iterator[str]:
    """`name`, `name_2`, `name_3`, …"""
    yield name
    yield from (f"{name}_{number}" for number in count(2))
