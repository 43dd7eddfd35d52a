"""The material for judges of a trial, as text: each function gives the text of one fenced section."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from evaldesk.metrics.pinned import earlier_turns
from evaldesk.model import Event, JsonValue, TurnRecord
from evaldesk.model.decisions import decision_words
from evaldesk.model.media import with_names

NOTHING = "(nothing)"
_LINE_OF_OTHERS = re.compile(
    r"(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])"
    r"(?=[ \t]*(?:User|Agent|Tool call|Tool result|A person decided|Waits for a person):)",
    re.IGNORECASE,
)
"""Where a line inside of a message begins as the lines of a dialogue do: it would be read as what a tool gave, say."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"')\]]*\s+|\n+")


def answer_text(record: TurnRecord, *, with_intermediate: bool = False) -> str:
    """The agent's answer; `with_intermediate` also its messages before the answer."""
    texts = [text for _, text in record.intermediate] if with_intermediate else []
    return "\n".join([*texts, record.answer]).strip()


def question_text(record: TurnRecord) -> str:
    """The message of the user, with the names of its images and files in their places."""
    return with_names(record.query, record.media) if record.media else record.query


def steps_text(record: TurnRecord) -> str:
    """The tool calls of a turn with their results, in order."""
    return "\n".join(_steps(record)) or NOTHING


def earlier_section() -> dict[str, str]:
    """The pinned turns before the conversation that is judged; none without any."""
    turns = earlier_turns()
    return {"EARLIER CONVERSATION": conversation_text(turns, with_steps=True)} if turns else {}


def conversation_text(records: Iterable[TurnRecord], *, with_steps: bool = False) -> str:
    """The turns as a dialogue, with the tool calls where asked."""
    lines: list[str] = []
    for record in records:
        lines.append(f"User: {_message_text(question_text(record))}")
        lines += _steps(record) if with_steps else []
        lines.append(f"Agent: {_message_text(record.answer) or '(no answer)'}")
    return "\n".join(lines) or NOTHING


def sentences_of(text: str) -> list[str]:
    """The sentences and lines of a text."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def numbered(items: Sequence[str]) -> str:
    """One item a line, counted from 1."""
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, 1))


def _message_text(text: str) -> str:
    return _LINE_OF_OTHERS.sub("[in this message] ", text)


def _steps(record: TurnRecord) -> list[str]:
    """One line for each step; names of tools cannot break it."""
    return [" ".join(line.splitlines()) for line in map(_step, record.own_events) if line]


def _step(event: Event) -> str:
    if event.kind == "tool_call" and event.call:
        return f"Tool call: {event.call.name} {_json(event.call.args)}"
    if event.kind == "tool_result":
        name = event.call.name if event.call else "tool"
        return f"Tool result: {name} {'failed with' if event.is_error else 'gave'} {_json(event.result)}"
    if event.waiting and event.decision:
        return f"A person decided: {decision_words(event.decision, event.waiting.tool)}"
    return f"Waits for a person: {event.waiting.tool} {_json(event.waiting.args)}" if event.waiting else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def text_of_value(value: JsonValue) -> str:
    """A value as a judge reads it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else _json(value)
