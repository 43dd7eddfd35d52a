"""Masks of personal data, which are put over texts before the inbox stores them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.model.json_text import json_or_text
from evaldesk.transcripts.messages.parts import json_value

MAX_PATTERN = 500
LEAST_TEXTS = 10
"""Stored texts by which a pattern is judged; with fewer, these sentences are."""
_SENTENCES = (
    "Where is my order?",
    "Two nights in Kyoto, please.",
    "I want to cancel the train to Prague.",
    "Thanks, that is all.",
    "How much is it for 3 people?",
    "The second one.",
    "Can you resend the invoice",
    "yes",
    "No, next Friday is the 27th!",
    "Do I need a visa for Morocco?",
)
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
# Dates and times are no numbers of telephones: they are separated by - and : in groups of two.
_PHONE = re.compile(
    r"(?<![\w.:-])(?!\d{4}-\d\d-\d\d)(?:\+\d{1,3}[ /-]?)?(?:\(\d{1,5}\)[ /-]?)?\d{2,5}(?:[ /-]\d{2,8}){1,4}(?![\w:-])"
    r"|(?<![\w.:-])\+\d{8,15}(?!\w)"
)
_CARD = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")
LEAST_PHONE_DIGITS, MOST_PHONE_DIGITS = 9, 15


@dataclass(frozen=True, slots=True)
class Mask:
    """A kind of personal data: its matches are replaced by `[name]` where `is_kind` holds."""

    name: str
    pattern: re.Pattern[str]
    is_kind: Callable[[str], bool] = bool


def _is_phone(text: str) -> bool:
    n = sum(each.isdigit() for each in text)
    return LEAST_PHONE_DIGITS <= n <= MOST_PHONE_DIGITS


def _is_card(text: str) -> bool:
    """Whether the digits have the check sum of Luhn (ISO/IEC 7812)."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = [digit * 2 - 9 * (digit > 4) if place % 2 else digit for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


MASKS = {
    "email": Mask("email", _EMAIL),
    "card": Mask("card", _CARD, _is_card),
    "phone": Mask("phone", _PHONE, _is_phone),
}
"""The masks with a name; a card is looked for before a phone, whose pattern it has as well."""


def read_masks(names: Sequence[str], where: str) -> tuple[Mask, ...]:
    """The masks by their names; any other text is a regular expression. Raises UsageError."""
    masks = [MASKS[name] for name in MASKS if name in names]
    for text in names:
        if text in MASKS:
            continue
        if len(text) > MAX_PATTERN:
            raise UsageError(f"{where}: a pattern has at most {MAX_PATTERN} characters, got {len(text)}")
        try:
            pattern = re.compile(text)
        except re.error as error:
            names_of_masks = ", ".join(MASKS)
            raise UsageError(
                f"{where}: {text!r} is not a regular expression ({error}); the masks with a name are {names_of_masks}"
            ) from None
        if pattern.match(""):
            raise UsageError(f"{where}: the pattern {text!r} matches the empty text, so it masks everything")
        masks.append(Mask("masked", pattern))
    return tuple(masks)


def check_masks(masks: Sequence[Mask], stored_texts: Sequence[str], where: str) -> None:
    """Raise UsageError for a pattern that matches in every text: it would leave nothing to read."""
    is_stored = len(stored_texts) >= LEAST_TEXTS
    texts = stored_texts if is_stored else _SENTENCES
    for mask in masks:
        if all(mask.pattern.search(text) for text in texts):
            kind = "stored texts" if is_stored else "plain sentences"
            raise UsageError(
                f"{where}: the pattern {mask.pattern.pattern!r} masks 100 % of {len(texts)} {kind}; "
                "write one that finds personal data alone"
            )


def masked_text(text: str, masks: Sequence[Mask]) -> str:
    """The text with each match replaced by the name of its mask in brackets."""
    for mask in masks:
        if mask.pattern is _EMAIL and "@" not in text:
            continue

        def replacement(match: re.Match[str], mask: Mask = mask) -> str:
            return f"[{mask.name}]" if mask.is_kind(match[0]) else match[0]

        text = mask.pattern.sub(replacement, text)
    return text


def masked_value(value: Any, masks: Sequence[Mask]) -> Any:
    """The value with all its texts and keys masked; JSON in a text stays JSON, and a number may become a mask."""
    if isinstance(value, str):
        masked = masked_text(value, masks)
        if masked == value or value.lstrip()[:1] not in ("{", "["):
            return masked
        inner = json_value(value)
        return json_or_text(masked_value(inner, masks)) if isinstance(inner, dict | list) else masked
    if isinstance(value, dict):
        return {masked_text(str(key), masks): masked_value(each, masks) for key, each in value.items()}
    if isinstance(value, list):
        return [masked_value(each, masks) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        masked = masked_text(str(value), masks)
        return value if masked == str(value) else masked
    return value
