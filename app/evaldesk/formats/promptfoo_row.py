"""One row of promptfoo's results: a test, and what a provider made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.chat_messages import read_chat, read_tool_call
from evaldesk.formats.messages import Message, turns_of
from evaldesk.formats.notes import Notes
from evaldesk.formats.part_messages import json_value
from evaldesk.formats.reading import read_mapping, read_optional_mapping, read_optional_text
from evaldesk.formats.recorded import known_cost, read_number, recorded_score, whole_number
from evaldesk.formats.strict_json import Place
from evaldesk.model import Case, Criterion, ErrorRecord, Expected, JsonObject, Score, Turn, TurnRecord, Usage

PASS = Criterion("promptfoo", 1.0)
"""Whether promptfoo calls the row a success, 1 or 0."""

_FAILED_BY_ERROR = 2
_MAX_ASSERTIONS = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A row as read; `test` is equal for rows that repeat one test."""

    test: str
    description: str
    provider: str
    prompt: str
    queries: tuple[str, ...]
    reference: str | None
    rubrics: tuple[JsonObject, ...]
    extra: JsonObject
    turns: tuple[TurnRecord, ...]
    scores: tuple[Score, ...]
    usage: Usage | None
    duration_ms: float | None
    error: ErrorRecord | None
    is_cached: bool

    def case(self, case_id: str) -> Case:
        """The case of the test, under that name."""
        *before, last = self.queries
        turns = (*(Turn(query) for query in before), Turn(last, Expected(reference=self.reference)))
        return Case(case_id, turns, rubrics=self.rubrics, extra=self.extra)


def read_row(place: Place, raw: Any, notes: Notes) -> Row:
    """One row. Raises FormatError."""
    row = read_mapping(place, raw)
    test = read_optional_mapping(place.at("testCase"), row.get("testCase")) or {}
    prompt = read_optional_mapping(place.at("prompt"), row.get("prompt")) or {}
    response = read_optional_mapping(place.at("response"), row.get("response")) or {}
    given = test.get("vars") or row.get("vars") or {}
    asked = _asked(place.at("prompt", "raw"), prompt.get("raw"), notes)
    error = _error(row, response)
    assertions = test.get("assert")
    asserted = [each for each in assertions if isinstance(each, dict)] if isinstance(assertions, list) else []
    extra = {key: test[key] for key in ("assert", "metadata", "options", "threshold") if test.get(key)}
    queries = tuple(message.text for message in asked if message.speaker == "user") or ("",)
    return Row(
        test=json.dumps([given, test.get("description"), assertions], sort_keys=True),
        description=read_optional_text(place.at("testCase", "description"), test.get("description")) or "",
        provider=_provider(row.get("provider")),
        prompt=read_optional_text(place.at("prompt", "label"), prompt.get("label")) or "",
        queries=queries,
        reference=next((each["value"] for each in asserted if _says(each, "equals")), None),
        rubrics=tuple(
            {"rubric_id": f"assert_{number}", "rubric_content": {"text_property": each["value"]}}
            for number, each in enumerate(asserted, 1)
            if _says(each, "llm-rubric")
        ),
        extra={"vars": given, **extra} if given else extra,
        turns=turns_of(_spoken(place.at("response"), asked, response, notes), error),
        scores=() if error else tuple(_scores(place, row)),
        usage=_usage(row, response),
        duration_ms=known_cost(row.get("latencyMs")),
        error=error,
        is_cached=response.get("cached") is True,
    )


def _says(assertion: dict[str, Any], kind: str) -> bool:
    return assertion.get("type") == kind and isinstance(assertion.get("value"), str)


def _asked(place: Place, raw: Any, notes: Notes) -> tuple[Message, ...]:
    """The prompt: messages as JSON, or text."""
    text = read_optional_text(place, raw) or ""
    value = json_value(text)
    if isinstance(value, list) and value and all(isinstance(item, dict) and "role" in item for item in value):
        return read_chat(place, value, notes)
    return (Message("user", text),)


def _spoken(place: Place, asked: tuple[Message, ...], response: dict[str, Any], notes: Notes) -> tuple[Message, ...]:
    """The conversation: what a provider of conversations recorded, or else the prompt and its answer."""
    metadata = response.get("metadata")
    recorded = metadata.get("messages") if isinstance(metadata, dict) else None
    if isinstance(recorded, list) and recorded:
        try:
            return read_chat(place.at("metadata", "messages"), recorded, notes)
        except FormatError:
            notes.refuse("the messages of a conversation, which cannot be read", place.at("metadata", "messages"))
    output = response.get("output")
    if output is None:
        return asked
    return (*asked, _answer(place.at("output"), output))


def _answer(place: Place, output: Any) -> Message:
    """What the provider gave: text, tool calls as OpenAI writes them, or any JSON."""
    value = json_value(output)
    if isinstance(value, list) and value and all(isinstance(item, dict) and "function" in item for item in value):
        try:
            return Message("agent", calls=tuple(read_tool_call(place.at(n), call) for n, call in enumerate(value)))
        except FormatError:
            pass
    return Message("agent", output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))


def _scores(place: Place, row: dict[str, Any]) -> Iterator[Score]:
    graded = read_optional_mapping(place.at("gradingResult"), row.get("gradingResult")) or {}
    success = row.get("success", graded.get("pass"))
    reason = graded.get("reason")
    value = None if not isinstance(success, bool) else float(success)
    yield recorded_score(PASS, value, reason if isinstance(reason, str) else "")
    yield from _informing("score", row.get("score", graded.get("score")), "")
    named = row.get("namedScores") or graded.get("namedScores")
    for name, part in named.items() if isinstance(named, dict) else ():
        yield from _informing(name, part, "")
    components = graded.get("componentResults")
    seen = {PASS.metric, "score", *(named if isinstance(named, dict) else ())}
    for component in components[:_MAX_ASSERTIONS] if isinstance(components, list) else ():
        if isinstance(component, dict):
            why = component.get("reason")
            yield from _informing(_name(component, seen), component.get("score"), why if isinstance(why, str) else "")


def _name(component: dict[str, Any], seen: set[str]) -> str:
    """What the assertion is called; the second of a type has a number."""
    assertion = component.get("assertion")
    kind = assertion.get("type") if isinstance(assertion, dict) else None
    base = kind if isinstance(kind, str) and kind else "assertion"
    number, name = 2, base
    while name in seen:
        name, number = f"{base} {number}", number + 1
    seen.add(name)
    return name


def _informing(name: str, value: Any, reason: str) -> Iterator[Score]:
    number = read_number(value)
    if number is not None:
        yield recorded_score(Criterion(name), number, reason)


def _error(row: dict[str, Any], response: dict[str, Any]) -> ErrorRecord | None:
    """Why the row is an error. promptfoo writes the reason of a failed assertion under `error`, too."""
    message = response.get("error") or row.get("error")
    if not message or (row.get("failureReason") != _FAILED_BY_ERROR and not response.get("error")):
        return None
    return ErrorRecord("recorded", str(message)[:2000])


def _usage(row: dict[str, Any], response: dict[str, Any]) -> Usage | None:
    used = response.get("tokenUsage") or row.get("tokenUsage")
    cost = known_cost(row.get("cost", response.get("cost")))
    if not isinstance(used, dict) and cost is None:
        return None
    counts = used if isinstance(used, dict) else {}
    return Usage(
        _provider(row.get("provider")),
        tokens_in=whole_number(counts.get("prompt")),
        tokens_out=whole_number(counts.get("completion")),
        cost=cost,
    )


def _provider(raw: Any) -> str:
    if isinstance(raw, dict):
        raw = raw.get("label") or raw.get("id")
    return raw if isinstance(raw, str) else ""
