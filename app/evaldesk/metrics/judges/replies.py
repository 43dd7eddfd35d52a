"""The replies of a judge, as types, and reading a reply strictly: any other object gives no verdict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from evaldesk.wire import converted, to_json

R = TypeVar("R", bound=msgspec.Struct)

YesNo: TypeAlias = Literal["yes", "no"]
Label: TypeAlias = Literal["supported", "unsupported", "contradictory", "disputed", "not_applicable"]

# The end is matched as well, or a reply of many thoughts that never end would be read to its end from each of them.
_THINKING = re.compile(r"<think(?:ing)?>(?:.*?</think(?:ing)?>|(?P<endless>.*))", re.DOTALL | re.IGNORECASE)
_MAX_REPLY = 100_000
_MAX_READ = 1_000_000
"""So many characters are read in vain, behind braces that begin no object; each such brace counts as _MIN_READ."""
_MIN_READ = 1_000
_MAX_NUMBER = 2**53


class ReplyError(Exception):
    """A reply that cannot be taken for a verdict; says why."""


class Validity(msgspec.Struct, frozen=True):
    """Whether an answer agrees with its reference; the words are those of ADK's judge."""

    is_the_agent_response_valid: bool | Literal["valid", "invalid", "true", "false", "almost", "partially_valid"]
    reasoning: str = ""

    @property
    def vote(self) -> bool:
        """Whether it is valid; almost is not."""
        return self.is_the_agent_response_valid in (True, "valid", "true")


class Verdict(msgspec.Struct, frozen=True):
    """A yes or no."""

    verdict: YesNo
    reasoning: str = ""

    @property
    def vote(self) -> bool:
        """Whether it is yes."""
        return self.verdict == "yes"


class Occurrence(Verdict, frozen=True):
    """Whether something is there, and the passage that shows it."""

    quote: str = ""


class Property(msgspec.Struct, frozen=True):
    """One rubric with its verdict."""

    id: str
    verdict: YesNo
    rationale: str = ""


class Properties(msgspec.Struct, frozen=True):
    """The verdicts on all rubrics."""

    rubrics: tuple[Property, ...]


class Sentence(msgspec.Struct, frozen=True):
    """One numbered sentence with its label."""

    number: int
    label: Label
    rationale: str = ""


class Sentences(msgspec.Struct, frozen=True):
    """The labels of all sentences."""

    sentences: tuple[Sentence, ...]


class Rating(msgspec.Struct, frozen=True):
    """A grade from 1, worst, to 5, best."""

    rating: Literal[1, 2, 3, 4, 5]
    reasoning: str = ""

    @property
    def grade(self) -> float:
        """The grade, as a number."""
        return self.rating


class Points(msgspec.Struct, frozen=True):
    """A number in a range that the question names."""

    score: float
    reasoning: str = ""

    @property
    def grade(self) -> float:
        """The number."""
        return self.score


class Shown(msgspec.Struct, frozen=True):
    """A trial of a kind of failure, and the passage that shows it."""

    trial: str
    quote: str


class Kind(msgspec.Struct, frozen=True):
    """A kind of failure that is proposed, with its trials."""

    name: str
    definition: str = ""
    trials: tuple[Shown, ...] = ()


class Kinds(msgspec.Struct, frozen=True):
    """All kinds of failure that are proposed."""

    kinds: tuple[Kind, ...]


class Scenario(msgspec.Struct, frozen=True):
    """A proposed conversation: the first message of the user, and the plan of the others."""

    starting_prompt: str
    conversation_plan: str


class Scenarios(msgspec.Struct, frozen=True):
    """All conversations that are proposed."""

    scenarios: tuple[Scenario, ...]


class Wording(msgspec.Struct, frozen=True):
    """A text in other words; `number` is that of the text, from 1."""

    number: int
    text: str


class Wordings(msgspec.Struct, frozen=True):
    """All texts in other words."""

    wordings: tuple[Wording, ...]


SCHEMAS = {
    Validity: '{"reasoning": "<why, step by step>", "is_the_agent_response_valid": "valid" or "invalid"}',
    Verdict: '{"reasoning": "<why, step by step>", "verdict": "yes" or "no"}',
    Occurrence: '{"reasoning": "<why, step by step>", "quote": "<passage that shows it>", "verdict": "yes" or "no"}',
    Properties: '{"rubrics": [{"id": "<id of the rubric>", "rationale": "<why>", "verdict": "yes" or "no"}, ...]}',
    Sentences: (
        '{"sentences": [{"number": <number of the sentence>, "rationale": "<why>", "label": "supported", '
        '"unsupported", "contradictory", "disputed" or "not_applicable"}, ...]}'
    ),
    Rating: '{"reasoning": "<why, step by step>", "rating": 1, 2, 3, 4 or 5}',
    Kinds: (
        '{"kinds": [{"name": "<name of the kind>", "definition": "<when a trial shows it>", "trials": [{"trial": '
        '"<letter of the trial>", "quote": "<passage that shows it>"}, ...]}, ...]}'
    ),
    Scenarios: (
        '{"scenarios": [{"starting_prompt": "<first message of the user>", "conversation_plan": "<what the user wants '
        'and does, step by step>"}, ...]}'
    ),
    Wordings: '{"wordings": [{"number": <number of the text>, "text": "<the text in other words>"}, ...]}',
    Points: '{"reasoning": "<why, step by step>", "score": <number>}',
}
"""The form of each reply type for a judge, reasons before verdicts."""


def read_reply(text: str, kind: type[R]) -> R:
    """The object of type `kind` in a reply. Raises ReplyError when there is none, or two that differ."""
    text = _THINKING.sub(lambda match: "" if match["endless"] is None else match[0], text)
    if len(text) > _MAX_REPLY:
        raise ReplyError(f"the reply has {len(text):,} characters, which is more than any verdict")
    answers: list[R] = []
    problem = "the reply contains no JSON object"
    for item in _objects(text):
        try:
            answer = converted(item, kind)
            to_json(answer)
        except msgspec.ValidationError as error:
            problem = f"the reply is not of the wanted form: {error}"
        except UnicodeEncodeError:
            problem = "the reply holds half of a character"
        else:
            answers.append(answer)
    if not answers:
        raise ReplyError(problem)
    if any(item != answers[0] for item in answers[1:]):
        raise ReplyError("the reply holds several verdicts that differ")
    return answers[0]


def _objects(text: str) -> Iterator[Any]:
    """The JSON objects in a text with other text around them.

    A whole number beyond 2**53 is given as infinite, which no verdict takes. Raises ReplyError for an object with a key
    twice, and for a text with more stray braces than can be read in time.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_int)
    at, n_read = text.find("{"), 0
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            n_read += max(_MIN_READ, error.pos - at if isinstance(error, json.JSONDecodeError) else 0)
            if n_read > _MAX_READ:
                raise ReplyError("the reply has too many braces that begin no JSON object") from None
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def _int(text: str) -> int | float:
    if len(text) > len(str(_MAX_NUMBER)) + 1 or abs(int(text)) > _MAX_NUMBER:
        return math.inf
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields and fields[key] != value:
            raise ReplyError(f"the reply says two things under {key!r}")
        fields[key] = value
    return fields
