"""Conversations out of received spans, in any order and split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from evaldesk.errors import EvaldeskError
from evaldesk.matching.text_similarity import words_of
from evaldesk.model import TrialResult
from evaldesk.model.inbox import Conversation, ReceivedSpan
from evaldesk.process_setup import PLAYED
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.store import Store
from evaldesk.store.inbox.conversations import JoinedConversation
from evaldesk.store.inbox.spans import SessionKey, TraceGroup
from evaldesk.transcripts.otel import traces
from evaldesk.transcripts.otel.span_messages import model_of
from evaldesk.transcripts.otel.spans import CASE_ID, EVALUATION, RELEASE, SERVICE, Span, SpanEvent
from evaldesk.transcripts.otel.trace_turns import session_of
from evaldesk.transcripts.recorded import read_number
from evaldesk.transcripts.recorded_sessions import run_of_sessions
from evaldesk.wire import to_json

MAX_SPANS = 50_000
"""Spans of one group of traces; further ones are counted and left out."""
MAX_WORDS_SHOWN, MAX_ERROR, MAX_NAME, MAX_TOOLS, MAX_TAGS = 200, 500, 200, 200, 50
MAX_TEXT = 100_000
SETTLE_S = 2.0
"""Seconds without a span of a trace before it is joined, so that most traces are joined once."""
USER = ("user.id", "enduser.id", "langfuse.user.id")
_RELEASES = (RELEASE, "langfuse.release", "gen_ai.agent.version")
_TAGS = ("deployment.environment.name", "deployment.environment", "langfuse.trace.tags", "tag.tags", "tags")
_FEEDBACK = ("feedback", "thumb", "user_score", "user-score")
_GOOD = frozenset({"up", "good", "positive", "like", "thumbs_up", "thumbs-up", "yes", "true", "pass"})
_BAD = frozenset({"down", "bad", "negative", "dislike", "thumbs_down", "thumbs-down", "no", "false", "fail"})
_PLACE = JsonPosition(Document(None, source="the inbox"), ())
LATEST_MS, LONGEST_MS = 4.1e12, 31 * 86_400_000.0
_SPLIT = "\0"
"""Between the id of a trace and the service, where two services use one id for traces of their own."""
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


def join_new(store: Store, settle_s: float = SETTLE_S) -> int:
    """Join the traces with new spans and none for `settle_s` seconds; gives the number of traces of this step."""
    spans_store = store.inbox_spans
    keys = spans_store.unjoined(store.now() - timedelta(seconds=settle_s))
    if not keys:
        return 0
    traces = spans_store.spans_of(keys, MAX_SPANS)
    group_ids = spans_store.connect({key: session_keys(key.source, each.spans) for key, each in traces.items()})
    for groups in spans_store.groups(group_ids, MAX_SPANS, traces):
        store.inbox.put([(group, joined_conversations(group)) for group in groups])
    return len(traces)


def received_span(span: Span, hash_user: Any) -> ReceivedSpan:
    """The span as it is stored; `hash_user` replaces the id of a user."""
    attributes = dict(span.attributes)
    for key in USER:
        if attributes.get(key) is not None:
            attributes[key] = hash_user(str(attributes[key]))
    events = [(event.name, event.attributes) for event in span.events]
    return ReceivedSpan(
        span.name[:MAX_NAME],
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start_ms,
        span.end_ms,
        attributes,
        events,
        span.error,
    )


def session_keys(source: str, spans: Iterable[ReceivedSpan]) -> Sequence[SessionKey]:
    """The sessions that spans of one trace name, each once."""
    names = {
        (_text(span.attributes.get(SERVICE)), session[:MAX_NAME])
        for span in spans
        if (session := next((text for key in traces.CONVERSATION if (text := _text(span.attributes.get(key)))), ""))
    }
    return [SessionKey(source, service[:MAX_NAME], session) for service, session in sorted(names)]


def joined_conversations(group: TraceGroup) -> Sequence[JoinedConversation]:
    """The conversations that the spans of a group tell of, the same for any order of the spans."""
    spans = _whole_spans(group.spans)
    n_by_trace: dict[str, int] = {}
    for span in spans:
        n_by_trace[span.trace_id] = n_by_trace.get(span.trace_id, 0) + 1
    agent_conversations = [
        each for each in traces.conversations(spans, Notes()) if any(visit.steps or visit.note for visit in each.visits)
    ]
    conversations = [each for one in agent_conversations if (each := _join(group, one, n_by_trace)) is not None]
    n_bytes = group.n_bytes // max(len(conversations), 1)
    return [
        replace(each, conversation=replace(each.conversation, n_bytes=n_bytes, n_left_out=group.n_left_out))
        for each in conversations
    ]


def twin_group_of(message: str) -> str:
    """The same text for messages with the same words, without case and punctuation; empty without words."""
    words = words_of(message)
    return blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() if words else ""


def _whole_spans(received: Sequence[ReceivedSpan]) -> list[Span]:
    """Each span once, with the events of its log records, in an order that the coming of the spans does not change."""
    by_key: dict[tuple[str, str, str], list[ReceivedSpan]] = {}
    for span in received:
        key = (span.trace_id, span.span_id, _text(span.attributes.get(SERVICE)))
        by_key.setdefault(key, []).append(span)
    merged = [_merged(versions) for versions in by_key.values()]
    split_traces = _traces_of_strangers(merged)
    spans = [
        _as_span(span, f"{span.trace_id}{_SPLIT}{_text(span.attributes.get(SERVICE))}")
        if span.trace_id in split_traces
        else _as_span(span, span.trace_id)
        for span in merged
    ]
    return sorted(spans, key=lambda span: (span.start_ms, -span.end_ms, span.trace_id, span.span_id, span.name))


def _merged(versions: Sequence[ReceivedSpan]) -> ReceivedSpan:
    """One span of all its versions: the last to end, with the events of its log records."""
    if len(versions) == 1:
        return versions[0]
    # Log records come as a span without a name (`log_spans_in`).
    spans = sorted((each for each in versions if each.name or each.attributes.keys() - {SERVICE}), key=_span_order)
    newest = spans[-1] if spans else sorted(versions, key=_span_order)[-1]
    # Messages of a model call come as records of their own, whose times are the order of the messages.
    records = sorted((each for each in versions if not each.name), key=lambda each: (each.start_ms, to_json(each)))
    events = {to_json(event): event for each in records for event in each.events}
    own = [event for event in newest.events if to_json(event) not in events]
    return replace(newest, events=[*own, *events.values()])


def _span_order(span: ReceivedSpan) -> tuple[bool, float, int, bytes]:
    return bool(span.name), span.end_ms, len(span.attributes), to_json(span)


def _traces_of_strangers(spans: Sequence[ReceivedSpan]) -> set[str]:
    """The ids of traces that several services use without calling each other."""
    owners: dict[str, dict[str, set[str]]] = {}
    for span in spans:
        of_trace = owners.setdefault(span.trace_id, {})
        of_trace.setdefault(span.span_id, set()).add(_text(span.attributes.get(SERVICE)))
    shared = {trace_id: of_trace for trace_id, of_trace in owners.items() if len(set().union(*of_trace.values())) > 1}
    calling: set[str] = set()
    for span in spans:
        if of_trace := shared.get(span.trace_id, {}):
            callers = of_trace.get(span.parent_id, set()) if span.parent_id else set()
            if callers and _text(span.attributes.get(SERVICE)) not in callers:
                calling.add(span.trace_id)
    return set(shared) - calling


def _as_span(span: ReceivedSpan, trace_id: str) -> Span:
    # A clock may be of another century: such a time is none, and no step takes longer than a month.
    start_ms = span.start_ms if 0 <= span.start_ms <= LATEST_MS else 0.0
    end_ms = min(max(span.end_ms, start_ms), start_ms + LONGEST_MS)
    return Span(
        _PLACE,
        span.name,
        trace_id,
        span.span_id,
        span.parent_id,
        start_ms,
        end_ms,
        span.attributes,
        tuple(SpanEvent(name, attributes) for name, attributes in span.events),
        span.error,
    )


def _join(
    group: TraceGroup, conversation_spans: traces.Conversation, n_by_trace: dict[str, int]
) -> JoinedConversation | None:
    spans = [span for visit in conversation_spans.visits for span in (visit.top, *visit.spans) if span is not None]
    models = [model_of(step.span) for visit in conversation_spans.visits for step in visit.steps if step.call]
    try:
        session = session_of(conversation_spans)
        run = run_of_sessions("inbox", conversation_spans.agent, models[0] if models else None, [session])
    except (EvaldeskError, ValueError, TypeError, RecursionError):  # no span may stop those of others
        return None
    result = replace(run.results[0], scores=(), verdict="unscored")
    trace_ids = {span.trace_id for span in spans}
    name, _, _ = conversation_spans.id.partition(_SPLIT)
    start_ms, end_ms = min(span.start_ms for span in spans), max(span.end_ms for span in spans)
    began_at = _time(start_ms, group.last_at)
    turns = result.transcript.turns
    opening = next((turn.query for turn in turns if turn.query.strip()), "")
    calls = [event.call.name for turn in turns for event in turn.events if event.kind == "tool_call" and event.call]
    costs = [usage.cost for usage in result.usages if usage.cost is not None]
    error = result.error.message if result.error else _tool_error(result)
    conversation = Conversation(
        source=group.source,
        service=_first(spans, SERVICE)[:MAX_NAME],
        name=name[:MAX_NAME],
        agent=conversation_spans.agent[:MAX_NAME],
        release=_first(spans, *_RELEASES)[:MAX_NAME],
        began_at=began_at,
        ended_at=max(began_at, _time(end_ms, group.last_at)),
        last_at=group.last_at,
        duration_ms=min(sum(turn.duration_ms for turn in turns) or max(end_ms - start_ms, 0.0), 1e12),
        n_turns=len(turns),
        n_calls=len(calls),
        n_spans=sum(n_by_trace.get(trace_id, 0) for trace_id in trace_ids),
        tokens=min(sum(usage.tokens_in + usage.tokens_out for usage in result.usages), 2**31 - 1),
        cost=sum(costs) if costs else None,
        has_error=bool(error),
        error=error[:MAX_ERROR],
        first_words=" ".join(opening[: MAX_WORDS_SHOWN * 4].split())[:MAX_WORDS_SHOWN],
        tools=tuple(call[:MAX_NAME] for call in calls[:MAX_TOOLS]),
        tags=tuple(sorted(set(_tags(spans))))[:MAX_TAGS],
        user_hash=_first(spans, *USER)[:MAX_NAME],
        feedback=_feedback(spans),
        twin_group=twin_group_of(turns[0].query[:MAX_TEXT]) if turns else "",
        is_whole=_is_whole(result),
        is_eval=any(key in span.attributes for span in spans for key in (PLAYED, CASE_ID, traces.NOTE)),
    )
    text = " ".join(
        event.text for turn in turns for event in turn.events if event.kind in ("user_message", "agent_message")
    )
    return JoinedConversation(
        conversation,
        result,
        frozenset(trace_id.partition(_SPLIT)[0] for trace_id in trace_ids),
        f"{' '.join(turn.query for turn in turns)} {text}"[:MAX_TEXT],
    )


def _tool_error(result: TrialResult) -> str:
    """The first failed tool; empty without one."""
    failed = (
        event
        for turn in result.transcript.turns
        for event in turn.events
        if event.kind == "tool_result" and event.is_error
    )
    return next((f"{event.author or 'a tool'} failed" for event in failed), "")


def _is_whole(result: TrialResult) -> bool:
    """Whether the last turn has an answer, or an error in its place."""
    if result.error or not result.transcript.turns:
        return bool(result.error)
    last = next((each for each in reversed(result.transcript.turns[-1].events) if each.kind in _ANSWERS), None)
    return last is not None and last.kind == "agent_message" and bool(last.text)


_ANSWERS = frozenset({"agent_message", "tool_call", "tool_result", "user_message"})


def _time(ms: float, received_at: datetime) -> datetime:
    """The time of a span; that of its coming where the clock of its process is wrong."""
    latest = received_at + timedelta(days=1)
    if not _EARLIEST.timestamp() * 1000 <= ms <= latest.timestamp() * 1000:
        return received_at
    return datetime.fromtimestamp(ms / 1000, UTC)


def _feedback(spans: Sequence[Span]) -> float | None:
    """The last feedback of a user, -1 to 1."""
    opinion = None
    for event in (event for span in spans for event in span.events if event.name == EVALUATION):
        name = _text(event.attributes.get("gen_ai.evaluation.name")).casefold()
        if any(word in name for word in _FEEDBACK):
            value = event.attributes.get("gen_ai.evaluation.score.value")
            label = _text(event.attributes.get("gen_ai.evaluation.score.label")).casefold()
            opinion = _opinion(label, read_number(value), opinion)
    return opinion


def _opinion(label: str, value: float | None, otherwise: float | None) -> float | None:
    """-1 to 1 of a label or of a number from 0 to 1; a number below 0 is bad, one above 1 is good."""
    if label in _GOOD or label in _BAD:
        return 1.0 if label in _GOOD else -1.0
    if value is None:
        return otherwise
    return value * 2 - 1 if 0 <= value <= 1 else max(-1.0, min(1.0, value))


def _tags(spans: Sequence[Span]) -> Iterator[str]:
    for span in spans:
        for key in _TAGS:
            value = span.attributes.get(key)
            for tag in value if isinstance(value, list) else (value,):
                if text := _text(tag):
                    yield text[:MAX_NAME]


def _first(spans: Sequence[Span], *keys: str) -> str:
    return next((text for key in keys for span in spans if (text := _text(span.attributes.get(key)))), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
