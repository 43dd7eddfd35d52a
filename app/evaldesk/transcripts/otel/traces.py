"""From the spans of traces to conversations: their turns, messages and tool calls.

A turn is an outermost agent span, or a trace without one; turns that name one conversation belong together. A model
call inside of a model call is the same call, recorded by two instruments. Spans inside of a tool are the tool's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from evaldesk.reading.notes import Notes
from evaldesk.transcripts.otel.langfuse_spans import with_langfuse
from evaldesk.transcripts.otel.span_messages import ModelCall, model_call
from evaldesk.transcripts.otel.spans import CASE_ID, Span

Kind: TypeAlias = Literal["agent", "model", "tool", ""]

NOTE = "evaldesk.session"
"""The attribute with our own note of a session, on the first of its agent spans."""

ANSWER_ALONE = "evaldesk.answer_alone"
"""The attribute of a model call that stands for all of a trace of which only question and answer are known."""

CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "gcp.vertex.agent.session_id",
    "langfuse.session.id",
    "thread_id",
    "langsmith.metadata.thread_id",
)
"""The attributes that name the session of a span, the first that is there."""
_AGENT = ("gen_ai.agent.name", "agent.name")
_MODEL_WORK = ("chat", "generate_content", "text_completion")
_OTHER_WORK = ("CHAIN", "EMBEDDING", "EVALUATOR", "GUARDRAIL", "PROMPT", "RERANKER", "RETRIEVER")
"""Kinds of OpenInference that are neither agent nor model nor tool."""
_MODEL_MARKS = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.prompt.0.role",
    "gen_ai.completion.0.role",
    "llm.input_messages.0.message.role",
    "llm.output_messages.0.message.role",
    "gcp.vertex.agent.llm_response",
)


@dataclass(slots=True)
class Step:
    """A model call or the run of a tool; `call` is the model's input and answer, None for a tool."""

    span: Span
    agent: str
    call: ModelCall | None = None


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A model call that counts by its tokens alone: inside of a tool, or with a span without messages."""

    span: Span
    tool: Span | None


@dataclass(slots=True)
class Visit:
    """One go of an agent: `top` is its span, None where a trace has none around its steps."""

    top: Span | None
    conversation: str = ""
    steps: list[Step] = field(default_factory=list)
    inner: list[InnerCall] = field(default_factory=list)

    @property
    def start_ms(self) -> float:
        """When it began."""
        return min(span.start_ms for span in self.spans)

    @property
    def spans(self) -> Sequence[Span]:
        """Those of its steps, then those of calls that count alone; without any, that of the agent."""
        own_spans = [*(step.span for step in self.steps), *(call.span for call in self.inner)]
        return own_spans or ([self.top] if self.top else [])

    @property
    def note(self) -> Any:
        """Our own note of the session, None where there is none."""
        return self.top.attributes.get(NOTE) if self.top else None


@dataclass(slots=True)
class Conversation:
    """The visits that belong together, in the order of time."""

    id: str
    visits: list[Visit]

    @property
    def agent(self) -> str:
        """The agent's name; empty when no span says it."""
        return next((step.agent for visit in self.visits for step in visit.steps if step.agent), "")

    @property
    def case_id(self) -> str:
        """The case of an eval set that the spans name; empty where they name none."""
        spans = (span for visit in self.visits for span in (visit.top, *visit.spans) if span)
        return next((name for span in spans if (name := _text(span, CASE_ID))), "")


def kind_of_span(span: Span) -> Kind:
    """The meaning of a span; most of a trace is transport and has none here."""
    work = span.attributes.get("gen_ai.operation.name")
    kind = span.attributes.get("openinference.span.kind")
    if work == "invoke_agent" or kind == "AGENT":
        return "agent"
    if work == "execute_tool" or kind == "TOOL":
        return "tool"
    if work in _MODEL_WORK or kind == "LLM":
        return "model"
    if kind in _OTHER_WORK:  # chains of LangGraph have the messages of the calls in them
        return ""
    has_messages = any(mark in span.attributes for mark in _MODEL_MARKS)
    return "model" if has_messages or isinstance(span.attributes.get("llm"), dict) else ""


def conversations(spans: Sequence[Span], notes: Notes) -> list[Conversation]:
    """The conversations that the spans tell of, in the order of time."""
    spans = [with_langfuse(span) for span in spans]
    tree = _Tree(spans)
    visits: dict[tuple[str, str], Visit] = {}
    for span in sorted(spans, key=lambda span: (span.start_ms, -span.end_ms)):
        kind, around = kind_of_span(span), tree.around(span)
        if NOTE in span.attributes and not around.top:  # also of a trial without a turn
            visits.setdefault((span.trace_id, span.span_id), Visit(span, _text(span, *CONVERSATION)))
        if kind not in ("model", "tool") or (kind == "model" and around.nearest == "model"):
            continue
        top = around.top
        place = span.trace_id, top.span_id if top else ""
        if around.tool:
            notes.refuse("a step inside of a tool, such as an agent that is called as one", span.place)
            if kind == "model" and place in visits:
                visits[place].inner.append(InnerCall(span, around.tool))
            continue
        call = tree.call(span, notes) if kind == "model" else None
        visit = visits.setdefault(place, Visit(top))
        visit.conversation = visit.conversation or _text(span, *CONVERSATION) or around.conversation
        if kind == "tool" or call:
            visit.steps.append(Step(span, around.agent or _text(span, *_AGENT), call))
        else:
            visit.inner.append(InnerCall(span, None))
    by_key: dict[str, Conversation] = {}
    for visit in sorted(visits.values(), key=lambda visit: visit.start_ms):
        key = visit.conversation or visit.spans[0].trace_id
        by_key.setdefault(key, Conversation(key, [])).visits.append(visit)
    return list(by_key.values())


@dataclass(frozen=True, slots=True)
class _Around:
    """The surroundings of a span: the nearest span with a meaning, the outermost agent, and two names."""

    nearest: Kind = ""
    tool: Span | None = None
    top: Span | None = None
    agent: str = ""
    conversation: str = ""

    def inside(self, span: Span) -> _Around:
        """The same for a span inside of `span`, around which this is."""
        kind = kind_of_span(span)
        is_agent = kind == "agent"
        return _Around(
            nearest=kind or self.nearest,
            tool=self.tool or (span if kind == "tool" else None),
            top=self.top or (span if is_agent else None),
            agent=(_text(span, *_AGENT) if is_agent else "") or self.agent,
            conversation=_text(span, *CONVERSATION) or self.conversation,
        )


class _Tree:
    """The tree of spans; a file may leave out parents, and a hostile one may make circles."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_id = {(span.trace_id, span.span_id): span for span in spans}
        self._inside: dict[tuple[str, str], list[Span]] = {}
        self._around: dict[tuple[str, str], _Around] = {}
        for span in spans:
            if span.parent_id:
                self._inside.setdefault((span.trace_id, span.parent_id), []).append(span)

    def around(self, span: Span) -> _Around:
        """The surroundings of a span; kept for every span that was passed on the way, so that depth costs nothing."""
        path: list[Span] = []
        span_ids: set[str] = set()
        here: Span | None = span
        while here is not None and here.span_id not in span_ids and (here.trace_id, here.span_id) not in self._around:
            span_ids.add(here.span_id)
            path.append(here)
            here = self._by_id.get((here.trace_id, here.parent_id)) if here.parent_id else None
        surroundings = self._around.get((here.trace_id, here.span_id), _Around()) if here else _Around()
        surroundings = surroundings.inside(here) if here and here.span_id not in span_ids else surroundings
        for step in reversed(path):
            self._around[step.trace_id, step.span_id] = surroundings
            surroundings = surroundings.inside(step)
        return self._around[span.trace_id, span.span_id]

    def call(self, span: Span, notes: Notes) -> ModelCall | None:
        """The messages of a model call: its own, or else those of a model call right inside of it."""
        queue, span_ids = deque([span]), {span.span_id}
        while queue:
            inner = queue.popleft()
            inner_call = model_call(inner, notes) if kind_of_span(inner) == "model" else None
            if inner_call and (inner_call.inputs or inner_call.outputs):
                return inner_call
            for child in self._inside.get((inner.trace_id, inner.span_id), ()):
                if child.span_id not in span_ids and kind_of_span(child) in ("model", ""):
                    span_ids.add(child.span_id)
                    queue.append(child)
        return None


def _text(span: Span, *keys: str) -> str:
    value: Any = next((span.attributes[key] for key in keys if span.attributes.get(key)), "")
    return value if isinstance(value, str) else ""
