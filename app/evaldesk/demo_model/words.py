"""Small pieces of English that the scripts understand and write."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBERS = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
).split()
_TIMES = {"twice": "2 times", "thrice": "3 times"}
_TENS = {"thirty": 30, "forty": 40, "fifty": 50, "hundred": 100}
_VALUES = {word: value for value, word in enumerate(_NUMBERS)} | _TENS
_DIGITS = {word: str(value) for word, value in _VALUES.items()} | _TIMES
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_DIGITS)})\b")

_GREETING = re.compile(r"^\W*(hi|hello|hey|good (morning|afternoon|evening)|greetings|howdy|moin|hallo)\b", re.I)
_ABILITY = re.compile(
    r"\b(who are you|what (can|do) you do|what are you|how (can|could) you help|help( me)?\W*$|your name)\b", re.I
)
_THANKS = re.compile(r"\b(thanks|thank you|thx|cheers|great|perfect|wonderful|bye|goodbye)\b", re.I)


def with_digits(text: str) -> str:
    """`text` in lower case with number words as digits: `roll two dice` becomes `roll 2 dice`."""
    return _NUMBER_WORD.sub(lambda found: _DIGITS[found[1]], text.lower())


def is_greeting(text: str) -> bool:
    """Whether the text begins with a greeting."""
    return bool(_GREETING.search(text))


def asks_ability(text: str) -> bool:
    """Whether the text asks about the agent or its abilities."""
    return bool(_ABILITY.search(text))


def is_thanks(text: str) -> bool:
    """Whether the text thanks, praises or says goodbye."""
    return bool(_THANKS.search(text))


def listed(items: Sequence[object]) -> str:
    """`7`, `7 and 12`, `7, 12 and 17`."""
    words = [str(item) for item in items]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""
