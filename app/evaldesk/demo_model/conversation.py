"""Chat messages in OpenAI's shape, read the way a script needs them, and the English that scripts understand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """A past tool call; `result` is its result, parsed where it was JSON."""

    name: str
    args: Mapping[str, Any]
    result: Any


@dataclass(slots=True)
class SpokenTurn:
    """One message of the user with the calls made for it so far."""

    text: str
    calls: list[Done] = field(default_factory=list)

    def results(self, tool: str) -> list[Any]:
        """The results of that tool in this turn, in order."""
        return [call.result for call in self.calls if call.name == tool]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of the model. The last turn is the one to answer."""

    system: str
    turns: Sequence[SpokenTurn]
    tools: frozenset[str]

    @property
    def now(self) -> SpokenTurn:
        """The turn to answer."""
        return self.turns[-1]

    @property
    def texts(self) -> list[str]:
        """All that the user said, oldest first."""
        return [turn.text for turn in self.turns]


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of the script: text, or tool calls as (name, arguments), or text beside tool calls."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def read_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Conversation:
    """The conversation that `messages` tell; without a user message it has one empty turn."""
    system = "\n".join(_text(message) for message in messages if message["role"] == "system")
    turns: list[SpokenTurn] = []
    functions: dict[str, Mapping[str, Any]] = {}
    for message in messages:
        if message["role"] == "user":
            turns.append(SpokenTurn(_text(message)))
        for call in message.get("tool_calls") or ():
            functions[call["id"]] = call["function"]
        if message["role"] == "tool" and turns and message["tool_call_id"] in functions:
            function = functions[message["tool_call_id"]]
            turns[-1].calls.append(
                Done(function["name"], _parse_json(function["arguments"]), _parse_json(_text(message)))
            )
    names = frozenset(tool["function"]["name"] for tool in tools)
    return Conversation(system, turns or [SpokenTurn("")], names)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


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
    return _NUMBER_WORD.sub(lambda match: _DIGITS[match[1]], text.lower())


def is_greeting(text: str) -> bool:
    """Whether the text begins with a greeting."""
    return bool(_GREETING.search(text))


def asks_ability(text: str) -> bool:
    """Whether the text asks about the agent or its abilities."""
    return bool(_ABILITY.search(text))


def is_thanks(text: str) -> bool:
    """Whether the text thanks, praises or says goodbye."""
    return bool(_THANKS.search(text))


def list_words(items: Sequence[object]) -> str:
    """`7`, `7 and 12`, `7, 12 and 17`."""
    words = [str(item) for item in items]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""
