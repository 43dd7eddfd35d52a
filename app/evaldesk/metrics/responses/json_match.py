"""`response_json`: answer and reference are the same JSON value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn

from evaldesk.matching import diff_args, json_equal
from evaldesk.metrics.metric import Judgement, MetricInfo, score_turns
from evaldesk.model import Case, Expected, JsonValue, Score, Transcript, TurnRecord

MAX_NAMED = 3

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ResponseJson:
    """1 for each turn whose answer is the same JSON value as its reference; a ```json fence around it is free.

    Equality is strict: the order of keys is free, that of arrays is not, 6 equals 6.0, true is not 1. A turn whose
    reference is no JSON is left out of the mean. Text beside the fence makes an answer no JSON.
    """

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_json",
        "Response, JSON",
        "Share of turns whose answer is the same JSON value as the reference.",
        needs="reference_json",
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each turn whose reference is JSON, and their mean."""
        return score_turns(self.info.name, transcript, case, is_json_reference, _judge)


def is_json_reference(expected: Expected) -> bool:
    """Whether the turn has a reference that is JSON."""
    try:
        read_json(expected.reference or "")
    except ValueError:
        return False
    return True


def read_json(text: str) -> JsonValue:
    """The value that `text` holds, a fence around it left out. Raises ValueError, also for NaN and double keys."""
    text = text.strip()
    fenced = _FENCE.fullmatch(text)
    try:
        value: JsonValue = _DECODER.decode(fenced[1] if fenced else text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


def judge_json(record: TurnRecord, judge: Callable[[JsonValue], Judgement]) -> Judgement:
    """The score of `judge` for the JSON value of the answer; 0 for an answer that is no JSON."""
    if not record.answer.strip():
        return 0.0, "The agent gave no answer.", {}
    try:
        answer = read_json(record.answer)
    except ValueError as error:
        return 0.0, f"The answer is not JSON: {error}.", {}
    return judge(answer)


def _judge(expected: Expected, record: TurnRecord) -> Judgement:
    return judge_json(record, partial(_compare, read_json(expected.reference or "")))


def _compare(expected: JsonValue, actual: JsonValue) -> Judgement:
    if json_equal(expected, actual):
        return 1.0, "The answer is the same JSON value.", {}
    if isinstance(expected, dict) and isinstance(actual, dict):
        pointers = [change.pointer for change in diff_args(expected, actual)]
        names = ", ".join(pointers[:MAX_NAMED]) + (
            f" and {len(pointers) - MAX_NAMED} more" * (len(pointers) > MAX_NAMED)
        )
        return 0.0, f"The values differ at {names}.", {"differing": [*pointers]}
    kinds = _kind(expected), _kind(actual)
    words = f"The answer is {kinds[1]}, expected {kinds[0]}." if kinds[0] != kinds[1] else "The values differ."
    return 0.0, words, {}


def _kind(value: JsonValue) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "a text"), (list, "an array"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"the key {key!r} comes twice")
        fields[key] = value
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)  # one for all: slow to make
