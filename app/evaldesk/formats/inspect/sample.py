"""One sample of an Inspect log: a case, and a trial of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.model import Case, Criterion, ErrorRecord, Expected, JsonObject, Score, Turn, TurnRecord, Usage
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Place
from evaldesk.reading.values import ABSENT, read_mapping, read_optional_mapping, wanted
from evaldesk.transcripts.chat_messages import read_chat
from evaldesk.transcripts.messages import Message, turns_of
from evaldesk.transcripts.recorded import known_time, recorded_score, recorded_usage

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly correct, incorrect, no answer; the numbers are those Inspect counts with."""
_ATTACHMENT = "attachment://"
_CASE_KEYS = ("choices", "metadata", "sandbox", "files", "setup")


@dataclass(frozen=True, slots=True)
class ScorerValue:
    """A scorer's value, `value` None where that is neither number nor letter; a verdict is right or wrong."""

    value: float | None
    is_verdict: bool
    reason: str
    details: JsonObject

    def score(self, criterion: Criterion) -> Score:
        """The score of a trial."""
        return recorded_score(criterion, self.value, self.reason, self.details)


@dataclass(frozen=True, slots=True)
class InspectSample:
    """A sample as read; it holds nothing of the document, so that a log is never whole in memory."""

    case: Case
    epoch: int
    turns: tuple[TurnRecord, ...]
    scores: Mapping[str, Any]
    usages: tuple[Usage | ErrorRecord, ...]
    duration_ms: float | None
    error: ErrorRecord | None
    stop_reason: str


def read_sample(place: Place, raw: Any, notes: Notes) -> InspectSample:
    """One sample; its events are left aside, since `messages` says the same. Raises FormatError."""
    sample = read_mapping(place, raw)
    attachments = read_optional_mapping(place.at("attachments"), sample.get("attachments")) or {}
    error = _error(sample.get("error"))
    spoken = read_chat(place.at("messages"), sample.get("messages") or [], notes)
    turns = turns_of([_resolved(message, attachments) for message in spoken], error)
    store = read_optional_mapping(place.at("store"), sample.get("store")) or {}
    if turns and store:
        turns = (*turns[:-1], replace(turns[-1], state_after=store))
    limit = sample.get("limit")
    seconds = known_time(place.at("total_time"), sample.get("total_time"), notes)
    return InspectSample(
        case=_case(place, sample, attachments, notes),
        epoch=_epoch(place.at("epoch"), sample.get("epoch", 1)),
        turns=turns,
        scores=_scores(place, sample),
        usages=_usages(sample.get("model_usage")),
        duration_ms=None if seconds is None else seconds * 1000,
        error=error,
        stop_reason=f"limit: {limit.get('type')}" if isinstance(limit, dict) else "error" if error else "answered",
    )


def scorer_values(scores: Mapping[str, Any]) -> Iterator[tuple[str, ScorerValue]]:
    """Name and value of each score; a scorer with several values gives one for each, as `scorer.key`."""
    for name, raw in scores.items():
        said = raw if isinstance(raw, dict) else {"value": raw}
        value = said.get("value")
        explanation = said.get("explanation")
        reason = explanation if isinstance(explanation, str) else ""
        details = {key: item for key, item in said.items() if key not in ("explanation", "history") and item}
        if isinstance(value, dict):
            for key, part in value.items():
                yield f"{name}.{key}", _scorer_value(part, reason, details)
        else:
            yield name, _scorer_value(value, reason, details)


def _scorer_value(value: Any, reason: str, details: JsonObject) -> ScorerValue:
    if isinstance(value, str) and value in _LETTERS:
        return ScorerValue(_LETTERS[value], True, reason, details)
    if isinstance(value, int | float) and abs(value) < 1e300:
        return ScorerValue(float(value), value in (0, 1), reason, details)
    return ScorerValue(None, False, "The value is neither a number nor one of C, P, I, N.", details)


def _case(place: Place, sample: dict[str, Any], attachments: Mapping[str, Any], notes: Notes) -> Case:
    key = sample.get("id", ABSENT)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise wanted(place.at("id"), key, "a number or a string")
    queries, extra = _queries(place.at("input"), sample.get("input", ABSENT), attachments, notes)
    target = sample.get("target")
    if isinstance(target, list):
        extra["target"] = target
        target = target[0] if len(target) == 1 and isinstance(target[0], str) else None
    extra |= {name: sample[name] for name in _CASE_KEYS if sample.get(name)}
    reference = target if isinstance(target, str) and target else None
    turns = [Turn(query) for query in queries]
    if turns:
        turns[-1] = replace(turns[-1], expected=Expected(reference=reference))
    return Case(str(key), tuple(turns), extra=extra)


def _queries(place: Place, raw: Any, attachments: Mapping[str, Any], notes: Notes) -> tuple[list[str], dict[str, Any]]:
    """The user's messages; messages of others before or between stay in `extra`."""
    if isinstance(raw, str):
        return [_attached(raw, attachments)], {}
    if not isinstance(raw, list):
        raise wanted(place, raw, "a string or a list of messages")
    spoken = [_resolved(message, attachments) for message in read_chat(place, raw, notes)]
    has_others = any(message.speaker != "user" for message in spoken)
    return [m.text for m in spoken if m.speaker == "user"] or [""], {"input": raw} if has_others else {}


def _scores(place: Place, sample: dict[str, Any]) -> Mapping[str, Any]:
    scores = read_optional_mapping(place.at("scores"), sample.get("scores"))
    if scores is None and sample.get("score") is not None:
        return {"score": sample["score"]}
    return scores or {}


def _epoch(place: Place, raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise wanted(place, raw, "a whole number")
    return raw


def _usages(raw: Any) -> tuple[Usage | ErrorRecord, ...]:
    """One entry for each model: Inspect adds up the calls of a sample."""
    used = {model: row for model, row in raw.items() if isinstance(row, dict)} if isinstance(raw, dict) else {}
    return tuple(
        recorded_usage(model, row, "input_tokens", "output_tokens", cost=row.get("total_cost"))
        for model, row in used.items()
    )


def _error(raw: Any) -> ErrorRecord | None:
    if not isinstance(raw, dict):
        return None
    message, trace = raw.get("message"), raw.get("traceback")
    return ErrorRecord("recorded", str(message)[:2000], trace if isinstance(trace, str) else "")


def _resolved(message: Message, attachments: Mapping[str, Any]) -> Message:
    if not attachments:
        return message
    result = _attached(message.result, attachments) if isinstance(message.result, str) else message.result
    return replace(message, text=_attached(message.text, attachments), result=result)


def _attached(text: str, attachments: Mapping[str, Any]) -> str:
    """The text itself; long ones stand once under `attachments`, and only their name in the message."""
    if not text.startswith(_ATTACHMENT):
        return text
    found = attachments.get(text.removeprefix(_ATTACHMENT))
    return found if isinstance(found, str) else text
