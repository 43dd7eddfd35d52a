"""Traces as hosted tools export them: steps with an input and an output, read as spans of OpenTelemetry are.

A model's input and output are messages in the form of its API or of LangChain, or bare text. A trace without a model
call is a turn whose answer alone is known: nothing is said of its tool calls.
"""

from __future__ import annotations

import io
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO, ClassVar, TypeAlias, cast

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import MAX_ROW, Imported, ReadOnly
from evaldesk.formats.large_traces import MAX_STEPS, TracesOnDisk, imported_groups
from evaldesk.formats.otel import imported_spans
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.fields import read_documents
from evaldesk.reading.json_lines import Line, read_recorded_lines
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import RECORDED_DECODER, Document, JsonPosition
from evaldesk.reading.values import read_mapping
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import CASE_ID, EVALUATION, Span, SpanEvent
from evaldesk.transcripts.otel.traces import ANSWER_ALONE, Kind
from evaldesk.transcripts.recorded import file_stem

Row: TypeAlias = Mapping[str, Any]
HEAD = 1024 * 1024
"""Bytes that show whether a file is a page or lines."""
MAX_NESTED = 8
"""Wrappers around messages that are opened, one in the other."""
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "system": "system", "tool": "tool"}
_CLASSES = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}
_TEXT_KEYS = ("content", "text", "output", "answer", "response", "input", "question", "query", "prompt", "message")


@dataclass(frozen=True, slots=True)
class ExportedUsage:
    """Tokens and US dollars of a model call as its export states them; None where it does not."""

    model: str = ""
    tokens_in: Any = None
    tokens_out: Any = None
    tokens_cached: Any = None
    cost: Any = None


@dataclass(frozen=True, slots=True)
class ExportedScore:
    """A score that the tool gave a trace: a value, or a label such as `thumbs-up`."""

    name: str
    value: Any
    reason: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a trace; times are milliseconds since 1970.

    `conversation` is empty where each trace is one. A step that `is_answer_alone` stands for all of its trace, of which
    only input and output are known. `facts` are attributes of its trace, such as the release, by their names as of
    spans.
    """

    place: JsonPosition
    kind: Kind
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: float
    end_ms: float
    input: Any = None
    output: Any = None
    usage: ExportedUsage = field(default_factory=ExportedUsage)
    conversation: str = ""
    case_id: str = ""
    error: str | None = None
    scores: tuple[ExportedScore, ...] = ()
    is_answer_alone: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


class ExportedTraces(ReadOnly):
    """A format of rows, as a list, lines, or a page of an API that holds them under one of `pages`."""

    name: ClassVar[str]
    pages: ClassVar[tuple[str, ...]] = ()
    n_readings = 1
    suffixes = (".json", ".jsonl")
    instead = "write a run as otel"

    @staticmethod
    @abstractmethod
    def is_row(row: dict[str, Any]) -> bool:
        """Whether an object is a row of this format, by its shape."""

    @staticmethod
    @abstractmethod
    def steps_of(place: JsonPosition, row: dict[str, Any]) -> Iterator[Step]:
        """The steps in a row. Raises FormatError."""

    @classmethod
    def recognises(cls, data: bytes, source: str) -> bool:
        """Whether the first row of the file is one of this format."""
        first = _rows_in(peek(data).first, cls.pages)
        return bool(first) and isinstance(first[0], dict) and cls.is_row(first[0])

    @classmethod
    def read(cls, data: bytes, *, source: str) -> Imported:
        """A case and a trial for each conversation. Raises FormatError."""
        documents = read_documents(data, source)
        return read_steps(cls.name, [step for document in documents for step in cls._steps(document)], source)

    @classmethod
    def read_large(cls, file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`, with one conversation in memory."""
        traces = TracesOnDisk()
        for document in cls._documents(file, source):
            for step in cls._steps(document):
                traces.add(step.trace_id, step.span_id, step.conversation, _pack_step(step))
        spans = (spans_of_steps([_unpack_step(step, source) for step in steps]) for steps in traces.groups())
        return imported_groups(cls.name, spans, file_stem(source), source)

    @classmethod
    def _steps(cls, document: Document) -> Iterator[Step]:
        """The steps of a row, or of a list or page of rows."""
        page = next((key for key in cls.pages if _is_page(document.value, key)), None)
        place = JsonPosition(document, (page,) if page else ())
        for index, row in enumerate(_rows_in(document.value, cls.pages)):
            at = place.at(index) if page or isinstance(document.value, list) else place
            yield from cls.steps_of(at, read_mapping(at, row))

    @classmethod
    def _documents(cls, file: BinaryIO, source: str) -> Iterator[Document]:
        """The rows of a list or page, or the lines."""
        reader = io.BufferedReader(cast("io.RawIOBase", file), HEAD)
        head = reader.peek()
        if head.lstrip(_BLANK).startswith(b"["):
            return iter(StreamedList(cast("BinaryIO", reader), source, max_item=MAX_ROW, decoder=RECORDED_DECODER))
        if _is_lines(head, cls.pages):
            # A line without end is refused by its reader, cut.
            return read_recorded_lines(cast("BinaryIO", iter(lambda: reader.readline(MAX_ROW), b"")), source)
        return iter(
            StreamedList(
                cast("BinaryIO", reader), source, cls.pages.__contains__, max_item=MAX_ROW, decoder=RECORDED_DECODER
            )
        )


_BLANK = b"\xef\xbb\xbf \t\r\n"


_FIRST_LIST = re.compile(rb'\{\s{0,20}"(?P<key>[a-z]{1,20})"\s{0,20}:\s{0,20}\[')


def _is_lines(head: bytes, pages: Sequence[str]) -> bool:
    """Whether a file that begins so has an object on each line; a page may be one line without end."""
    line, end, _ = head.partition(b"\n")
    if not end:
        first_list = _FIRST_LIST.match(head.lstrip(_BLANK))
        return first_list is None or first_list["key"].decode() not in pages
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return not any(_is_page(value, key) for key in pages)


def _rows_in(value: Any, pages: Sequence[str]) -> list[Any]:
    page = next((key for key in pages if _is_page(value, key)), None)
    rows = value[page] if page else value
    return rows if isinstance(rows, list) else [rows]


def _is_page(value: Any, key: str) -> bool:
    return isinstance(value, dict) and isinstance(value.get(key), list)


def read_steps(format_name: str, steps: Sequence[Step], source: str) -> Imported:
    """The conversations in the steps; of a step that comes twice the later one counts.

    Raises FormatError, also when none of them says anything.
    """
    n_steps = Counter(step.trace_id for step in steps)
    n_of_conversations = Counter(n_steps)
    for conversation, trace_id in {(step.conversation, step.trace_id) for step in steps if step.conversation}:
        n_of_conversations[conversation] += n_steps[trace_id]
    if any(n > MAX_STEPS for n in n_of_conversations.values()):
        raise FormatError(f"one conversation has more than {MAX_STEPS:,} steps; leave it out", source=source)
    return imported_spans(format_name, spans_of_steps(steps), source)


def spans_of_steps(steps: Sequence[Step]) -> list[Span]:
    """The spans of the steps of whole traces, with an answer in place of a trace without a model call."""
    steps = list({(step.trace_id, step.span_id): step for step in steps}.values())
    seen_traces = {step.trace_id for step in steps if step.kind == "model"}
    answers = [_as_answer(step) for step in _roots(steps) if step.trace_id not in seen_traces]
    return [*map(_span, _with_facts_of_traces([*steps, *answers]))]


def _pack_step(step: Step) -> list[Any]:
    """A step as JSON values, with its place in the file and without the text of it."""
    document = step.place.document
    line = document.number if isinstance(document, Line) else 0
    usage = [getattr(step.usage, name) for name in _USAGE_FIELDS]
    scores = [(score.name, score.value, score.reason, score.label) for score in step.scores]
    return [line, [*document.within, *step.place.path], usage, scores, *map(step.__getattribute__, _PLAIN_FIELDS)]


def _unpack_step(values: Sequence[Any], source: str) -> Step:
    line, path, usage, scores, *plain_values = values
    document = Line(None, "", source, line) if line else Document(None, "", source)
    own_fields = dict(zip(_PLAIN_FIELDS, plain_values, strict=True))
    return Step(
        place=JsonPosition(document, tuple(path)),
        usage=ExportedUsage(*usage),
        scores=tuple(ExportedScore(*score) for score in scores),
        **own_fields,
    )


_USAGE_FIELDS = tuple(each.name for each in fields(ExportedUsage))
_PLAIN_FIELDS = tuple(each.name for each in fields(Step) if each.name not in ("place", "usage", "scores"))


def _with_facts_of_traces(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps with the conversation and the case of their trace; its first model call has all its scores."""
    conversations: dict[str, str] = {}
    case_ids: dict[str, str] = {}
    facts: dict[str, dict[str, Any]] = {}
    scores: dict[str, list[ExportedScore]] = {}
    for step in steps:
        if step.conversation:
            conversations.setdefault(step.trace_id, step.conversation)
        if step.case_id:
            case_ids.setdefault(step.trace_id, step.case_id)
        if step.facts:
            facts[step.trace_id] = {**step.facts, **facts.get(step.trace_id, {})}
        scores.setdefault(step.trace_id, []).extend(step.scores)
    for step in sorted(steps, key=lambda step: step.start_ms):
        yield replace(
            step,
            conversation=step.conversation or conversations.get(step.trace_id, ""),
            case_id=step.case_id or case_ids.get(step.trace_id, ""),
            scores=tuple(scores.pop(step.trace_id, ())) if step.kind == "model" else (),
            facts=facts.get(step.trace_id, {}),
        )


def _roots(steps: Iterable[Step]) -> Iterator[Step]:
    """The first step of each trace that has an input, outermost ones first."""
    by_trace: dict[str, Step] = {}
    for step in sorted(steps, key=lambda step: (bool(step.parent_id), step.start_ms)):
        if step.kind != "tool" and step.input is not None:
            by_trace.setdefault(step.trace_id, step)
    yield from by_trace.values()


def _span(step: Step) -> Span:
    attributes: dict[str, Any] = {}
    if step.kind == "model":
        attributes = {"gen_ai.operation.name": "chat", **_sides(step), **_counts(step.usage)}
        attributes |= {ANSWER_ALONE: True} if step.is_answer_alone else {}
    elif step.kind == "tool":
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": step.name,
            "gen_ai.tool.call.arguments": _arguments(step.input),
            "gen_ai.tool.call.result": _result(step.output),
        }
    elif step.kind == "agent":
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step.name}
    marks = {"session.id": step.conversation, CASE_ID: step.case_id}
    return Span(
        step.place,
        step.name,
        step.trace_id,
        step.span_id,
        step.parent_id,
        step.start_ms,
        max(step.start_ms, step.end_ms),
        {**step.facts, **{key: value for key, value in marks.items() if value}, **attributes},
        tuple(map(_event, step.scores)),
        step.error,
    )


def _as_answer(step: Step) -> Step:
    """A model call in place of a trace that has none: its input is the message of the user, its output the answer."""
    return replace(
        step, kind="model", span_id=f"{step.span_id}/answer", parent_id=step.span_id, scores=(), is_answer_alone=True
    )


def _event(score: ExportedScore) -> SpanEvent:
    attributes = {
        "gen_ai.evaluation.name": score.name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.explanation": score.reason,
    }
    attributes |= {"gen_ai.evaluation.score.label": score.label} if score.label else {}
    return SpanEvent(EVALUATION, attributes)


def _sides(step: Step) -> dict[str, Any]:
    return {
        "gen_ai.prompt": messages_of(step.input, "user"),
        "gen_ai.completion": messages_of(step.output, "assistant"),
    }


def _counts(usage: ExportedUsage) -> dict[str, Any]:
    counts = {
        "gen_ai.request.model": usage.model or None,
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached,
        "gen_ai.usage.cost": usage.cost,
    }
    return {key: value for key, value in counts.items() if value is not None}


def messages_of(raw: Any, role: str, depth: int = 0) -> list[dict[str, Any]]:
    """The messages in the input or the output of a model, with roles; bare text is one of `role`."""
    value = json_value(raw)
    if value is None or depth > MAX_NESTED:
        return []
    if isinstance(value, list):
        return [message for item in value for message in messages_of(item, role, depth + 1)]
    if not isinstance(value, dict):
        return [{"role": role, "content": str(value)}]
    if message := _message(value):
        return [message]
    for key in ("messages", "choices", "generations", "message", "output", "input"):
        inner = json_value(value.get(key))
        if isinstance(inner, dict) or (isinstance(inner, list) and inner):
            return messages_of(_first_alternative(inner) if key in _ALTERNATIVES else inner, role, depth + 1)
    texts = [value[key] for key in _TEXT_KEYS if isinstance(value.get(key), str)]
    if not texts and len(value) == 1:
        texts = [text for text in value.values() if isinstance(text, str)]
    return [{"role": role, "content": texts[0] if texts else json_or_text(value)}]


_ALTERNATIVES = ("choices", "generations")


def _first_alternative(inner: Any) -> Any:
    """The first of the answers that a model gave to one request; batches of LangChain are lists of such lists."""
    while isinstance(inner, list) and inner:
        inner = inner[0]
    return inner


def _message(value: dict[str, Any]) -> dict[str, Any] | None:
    """The message that a value is, with the names of OpenAI's API; None where it is none."""
    kwargs, path = value.get("kwargs"), value.get("id")
    if value.get("lc") and isinstance(kwargs, dict) and isinstance(path, list) and path:
        return _chat_message(_CLASSES.get(str(path[-1]), "user"), kwargs)
    if isinstance(value.get("role"), str):
        role = _ROLES.get(value["role"], value["role"])
        return value if "parts" in value else _chat_message("user" if role == "human" else role, value)
    kind = value.get("type")
    if isinstance(kind, str) and kind in _ROLES and "content" in value:
        return _chat_message(_ROLES[kind], value)
    if kind in ("function_call", "function_call_output", "message", "reasoning"):
        return value
    return None


def _chat_message(role: str, fields: dict[str, Any]) -> dict[str, Any]:
    more = fields.get("additional_kwargs")
    calls = fields.get("tool_calls") or (more.get("tool_calls") if isinstance(more, dict) else None) or []
    message = {**fields, "role": role, "tool_calls": [_call(each) for each in calls] if isinstance(calls, list) else []}
    return message if role != "tool" else {**message, "tool_call_id": fields.get("tool_call_id", fields.get("id"))}


def _call(call: Any) -> Any:
    """A tool call of LangChain as OpenAI has it; any other value as it is."""
    if not isinstance(call, dict) or "function" in call or "args" not in call:
        return call
    function = {"name": call.get("name"), "arguments": call["args"]}
    return {"id": call.get("id"), "type": "function", "function": function}


def _arguments(raw: Any) -> Any:
    """The arguments of a tool: LangChain has them as the text of a Python or JSON object under `input`."""
    value = json_value(raw)
    if isinstance(value, dict) and set(value) == {"input"}:
        inner = json_value(value["input"])
        return inner if isinstance(inner, dict) else value
    return value


def _result(raw: Any) -> Any:
    """The result of a tool: the content of LangChain's message, or the value under `output` alone."""
    value = json_value(raw)
    if isinstance(value, dict) and set(value) == {"output"}:
        value = json_value(value["output"])
    message = _message(value) if isinstance(value, dict) else None
    return json_value(message.get("content")) if message and message.get("role") == "tool" else value
