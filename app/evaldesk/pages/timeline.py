"""The time line of a trial or a chat: its spans as rows of a waterfall, and the chosen one with its prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log10

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import NAME_LIMIT, NotFoundError
from evaldesk.model import JsonValue, Prompts, Transcript, Usage
from evaldesk.model.stored import TrialKey
from evaldesk.model.transcript import known_sum
from evaldesk.model.trial_turns import TrialSummary, TrialTurns
from evaldesk.pages.conversation import value_text
from evaldesk.pages.json_tree import Node, Trees
from evaldesk.pages.large_state import ValuePart, text_part
from evaldesk.pages.prompt_messages import Piece, PromptDrawing, PromptMessage
from evaldesk.pages.runs.view import trial_href, window
from evaldesk.pages.spans import (
    JUDGES,
    SeenCalls,
    Span,
    SpanKind,
    judges_spans,
    spans_of,
    start_spans,
    turn_spans,
)
from evaldesk.pages.trial_turns import PIECE, recorded_turns
from evaldesk.process_setup import gc_paused
from evaldesk.run_options import KEEP
from evaldesk.store import RunStore
from evaldesk.wording.json_layout import laid_out
from evaldesk.wording.words import cost_words

MAX_OPEN = 80
"""A trial with more spans shows those of one turn, and the others as one row each."""
MAX_ROWS = 200
MAX_MARKS = 300
MAX_DEPTH = 4
MAX_DIGITS = 10
LEAST_WIDTH = 0.4
PARTS = ("prompt", "tools", "settings")
WORDS: Mapping[SpanKind, str] = {
    "start": "start of the player",
    "turn": "turn",
    "model": "model call",
    "tool": "tool",
    "agent": "sub-agent",
    "user": "simulated user",
    "judge": "judge",
    "wait": "wait before a retry",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A bar of the waterfall, in per cent of the whole."""

    kind: SpanKind
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A row: its own mark, or those of all that is inside a turn that is closed. Tokens and cost are of all inside."""

    span: Span
    depth: int
    marks: Sequence[Mark]
    tokens_in: int
    tokens_out: int
    cost: str
    is_open: bool | None = None

    @property
    def has_tokens(self) -> bool:
        """Whether a model was asked in it, and told tokens."""
        return any(not usage.is_least for usage in self.span.usages)

    @property
    def is_least(self) -> bool:
        """Whether there are calls without reported tokens."""
        return any(usage.is_least for usage in self.span.usages)

    @property
    def kind_words(self) -> str:
        """The kind of the span."""
        return WORDS[self.span.kind]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid, in per cent, and its time."""

    x: float
    ms: float

    @property
    def words(self) -> str:
        """The time without places that say nothing."""
        if self.ms < 1000:
            return f"{self.ms:g} ms" if self.ms else "0"
        return f"{self.ms / 1000:g} s" if self.ms < 120_000 else f"{self.ms / 60_000:.3g} min"


@dataclass(frozen=True, slots=True)
class SpanView:
    """The chosen span. `messages`, `answer` and `pieces` are of the chosen part, `facts` one line about it.

    `lacks` is the reason for an empty part; `n_messages` and `n_tools` are the counts of the tabs.
    """

    span: Span
    title: str
    facts: str
    part: str = ""
    messages: Sequence[PromptMessage] = ()
    answer: Sequence[PromptMessage] = ()
    pieces: Sequence[Piece] = ()
    n_messages: int = 0
    n_tools: int = 0
    has_settings: bool = False
    lacks: str = ""
    anchor: str = ""
    arguments: Node | None = None
    result: Node | None = None
    texts: Sequence[tuple[str, str]] = ()

    @property
    def n_kept(self) -> int:
        """The number of messages with which an earlier call began as well."""
        return sum(message.is_kept for message in self.messages)


@dataclass(frozen=True, slots=True)
class Beyond:
    """The number of rows beyond one side of the page, and the address of the next one."""

    n: int
    id: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the page shows of a trial or a chat; `trail` leads to it."""

    title: str
    trail: Sequence[tuple[str, str]]
    href: str
    status: str
    total_ms: float
    rows: Sequence[SpanRow]
    ticks: Sequence[Tick]
    counts: str
    tokens: int
    cost: str
    is_least: bool
    view: SpanView | None
    legend: Mapping[SpanKind, str]
    earlier: Beyond | None = None
    later: Beyond | None = None

    @property
    def has_times(self) -> bool:
        """Whether any time was recorded."""
        return self.total_ms > 0


@dataclass(frozen=True, slots=True)
class Strip:
    """The time line of a trial as one line of its page; None of it where no time was recorded."""

    marks: Sequence[Mark]
    total_ms: float
    counts: str


def strip_of(turns: TrialTurns) -> Strip | None:
    """The line; None where no time was recorded. Of a trial in pieces the first turns are drawn, all are counted."""
    if turns.is_long:
        summary, total = turns.summary, turns.summary.total_ms
        records = (each.record for each in turns.read_turns(0, PIECE))
        spans = spans_of(Transcript(tuple(record for record in records if record)), None)
        return Strip(_marks(spans, total), total, _counts(_kinds_of(summary))) if total else None
    if turns.is_large:
        summary, total = turns.summary, turns.summary.total_ms
        all_records = [each.record for each in turns.read_turns(0, turns.n_turns) if each.record] if total else []
        marks = _marks(spans_of(_beginning(Transcript(tuple(all_records))), None), total)
        return Strip(marks, total, _counts(_kinds_of(summary))) if total else None
    _, result = turns.read_trial()
    transcript = result.transcript if result else Transcript()
    spans = spans_of(transcript, None)
    total = _total(spans)
    return Strip(_marks(spans, total), total, _counts(_kinds(spans))) if total else None


def _kinds_of(summary: TrialSummary) -> Counter[SpanKind]:
    return Counter(
        {
            "model": summary.n_agent_calls,
            "tool": summary.n_calls + summary.n_inner_calls - summary.n_sub_agents,
            "agent": summary.n_sub_agents,
            "wait": summary.n_waits,
        }
    )


def _beginning(transcript: Transcript) -> Transcript:
    """The turns with their first events, of which more than a line can show."""
    return Transcript(tuple(replace(turn, events=turn.events[: 8 * MAX_MARKS]) for turn in transcript.turns))


@gc_paused()  # as in `read_trial`
def read_timeline(
    runs: RunStore, run_id: int, key: TrialKey, span_id: str = "", part: str = "", judge: tuple[str, str] = ("", "")
) -> Timeline:
    """The time line with the span `span_id`, and that part of a call. Raises NotFoundError where no trial was played.

    `judge` names a criterion and the number of a turn: the first call of its judges is chosen.
    """
    turns, row, summary = recorded_turns(runs, run_id, key), runs.case_row(run_id, key[0]), runs.summary(run_id)
    result = turns.recorded_result
    prompts = read_prompts(runs, run_id, key, result.attempt)
    title, href = f"{row.case_id}, trial {key[1] + 1}", trial_href(run_id, key)
    trail = (("Runs", "/runs"), (run_title(summary), f"/runs/{run_id}"), (title, href))
    lacks = _LACKS if summary.config.prompts == KEEP else _OFF
    judge_usages = [usage for usage in turns.read_usages() if usage.role == "judge"]
    if turns.is_long and turns.blocks:
        spans, view, totals = _spans_in_part(turns, prompts, judge_usages, (span_id, judge))
    else:
        _, full_result = turns.read_trial()
        transcript = full_result.transcript if full_result else Transcript()
        spans = spans_of(transcript, prompts, judge_usages, result.start_ms)
        view = _judge(spans, *judge) if judge[0] else _find_span(spans, prompts, span_id)
        totals = _totals_of(spans)
    span_view = _view(view, prompts, part, lacks) if view else None
    line = _timeline(title, trail, href, result.verdict, spans, view, span_view, totals)
    return replace(line, is_least=result.is_least)


def _spans_in_part(
    turns: TrialTurns, prompts: Prompts | None, judge_usages: Sequence[Usage], wanted: tuple[str, tuple[str, str]]
) -> tuple[Sequence[Span], Span | None, LineTotals]:
    """The spans of a trial in pieces, the wanted one, and the totals; a turn without a row near it has no time."""
    summary, calls = turns.summary, SeenCalls(prompts, turns.summary.n_turns)
    start = start_spans(turns.recorded_result.start_ms)
    zero = start[0].end_ms if start else 0.0
    spans = [*start, *(Span(f"{at + 1}", "turn", f"Turn {at + 1}", 0.0, 0.0, at) for at in range(summary.n_turns))]
    spans += judges_spans(calls, summary.n_turns, zero + summary.total_ms, judge_usages)

    def read(first: int, end: int) -> None:
        block = max((each for each in turns.blocks if each.first <= first), key=lambda each: each.first)
        records = [each.record for each in turns.read_turns(block.first, end) if each.record]
        for span in turn_spans(enumerate(records, block.first), calls, zero + block.start_ms):
            if span.turn >= first:
                spans[len(start) + span.turn] = span

    span_id, judge = wanted
    turn = next((at for at in sorted(calls.by_turn) if any(call.role == "agent" for _, call in calls.by_turn[at])), 0)
    if span_id:
        number = span_id.partition(".")[0]
        turn = int(number) - 1 if number.isdecimal() and len(number) < MAX_DIGITS else -1
    if not judge[0] and 0 <= turn < summary.n_turns:
        read(turn, turn + 1)
    view = _judge(spans, *judge) if judge[0] else _find_span(spans, prompts, span_id)
    rows, rows_on_page = _rows_around(spans, view)
    indexes = [
        span.turn for span, _, _ in rows[rows_on_page.start : rows_on_page.stop] if span.turn in range(summary.n_turns)
    ]
    if indexes:
        read(min(indexes), max(indexes) + 1)
    view = view and next((span for _, span in _walk(spans) if span.id == view.id), view)
    kinds = _kinds_of(summary) + Counter(
        span.kind for _, span in _walk([*start, *spans[len(start) + summary.n_turns :]])
    )
    has_judges = bool(calls.of_judges)
    usages = [usage for usage in turns.recorded_result.usages if has_judges or usage.role != "judge"]
    return spans, view, LineTotals(spans[-1].end_ms if has_judges else zero + summary.total_ms, kinds, usages)


@gc_paused()
def read_chat_timeline(desk: Desk, session_id: str, span_id: str = "", part: str = "") -> Timeline:
    """The time line of a chat, as that of a trial. Raises NotFoundError."""
    session, prompts = desk.sessions.get(session_id), desk.store.sessions.prompts(session_id)
    spans = spans_of(Transcript(tuple(session.turns)), prompts)
    view = _find_span(spans, prompts, span_id)
    title, href = session.title or "New session", f"/sessions/{session_id}"
    span_view = replace(_view(view, prompts, part, _LACKS), anchor=f"turn-{view.turn + 1}") if view else None
    trail = (("Chat", "/sessions"), (title, href))
    return _timeline(title, trail, href, "", spans, view, span_view, _totals_of(spans))


def _timeline(
    title: str,
    trail: Sequence[tuple[str, str]],
    href: str,
    status: str,
    spans: Sequence[Span],
    chosen_span: Span | None,
    view: SpanView | None,
    totals: LineTotals,
) -> Timeline:
    total, usages = totals.total_ms, totals.usages
    rows, row_range = _rows_around(spans, chosen_span)
    first, later_rows = row_range.start, rows[row_range.stop :]
    return Timeline(
        title=title,
        trail=trail,
        href=href,
        status=status,
        total_ms=total,
        rows=[_row(span, depth, total, is_open=is_open) for span, depth, is_open in rows[first : row_range.stop]],
        ticks=_ticks(total),
        counts=_counts(totals.kinds),
        tokens=sum(usage.tokens_in + usage.tokens_out for usage in usages),
        cost=_cost(usages),
        is_least=any(usage.is_least for usage in usages),
        view=view,
        earlier=Beyond(first, rows[first - 1][0].id) if first else None,
        later=Beyond(len(later_rows), later_rows[0][0].id) if later_rows else None,
        legend={kind: words for kind, words in WORDS.items() if totals.kinds[kind] and kind != "turn"},
    )


@dataclass(frozen=True, slots=True)
class LineTotals:
    """The totals over all spans of a time line, also those that its page leaves out."""

    total_ms: float
    kinds: Counter[SpanKind]
    usages: Sequence[Usage]


def _totals_of(spans: Sequence[Span]) -> LineTotals:
    return LineTotals(_total(spans), _kinds(spans), [usage for span in spans for usage in span.usages])


def _rows_around(spans: Sequence[Span], chosen_span: Span | None) -> tuple[list[tuple[Span, int, bool | None]], range]:
    """All rows, and the places of those on the page."""
    rows = _timeline_rows(spans, chosen_span)
    at = next((at for at, (span, _, _) in enumerate(rows) if span is chosen_span), 0)
    return rows, window(at, len(rows), MAX_ROWS)


def read_prompts(runs: RunStore, run_id: int, key: TrialKey, attempt: int) -> Prompts | None:
    """How the models of a trial were asked; its agent's, where it was only scored again, in the run that played it."""
    prompts = runs.prompts(run_id, key, attempt)
    source = runs.summary(run_id).config.source_run_id
    if source is None:
        return prompts
    try:
        source_prompts = runs.prompts(source, key, recorded_turns(runs, source, key).recorded_result.attempt)
    except NotFoundError:
        return prompts
    source_prompts = source_prompts.without_judges() if source_prompts else None
    return prompts.after(source_prompts) if prompts else source_prompts


def raw_call(runs: RunStore, run_id: int, key: TrialKey, at: int, start: int) -> ValuePart:
    """A part of a call as JSON, all of it. Raises NotFoundError where there is none."""
    return _raw_call(
        read_prompts(runs, run_id, key, recorded_turns(runs, run_id, key).recorded_result.attempt), at, start
    )


def raw_chat_call(desk: Desk, session_id: str, at: int, start: int) -> ValuePart:
    """The same for a call of a chat."""
    desk.sessions.get(session_id)
    return _raw_call(desk.store.sessions.prompts(session_id), at, start)


def _raw_call(prompts: Prompts | None, at: int, start: int) -> ValuePart:
    if prompts is None or at >= len(prompts.calls):
        raise NotFoundError(f"no model call {at + 1} was recorded here")
    call = prompts.calls[at]
    raw_call: dict[str, JsonValue] = {
        "messages": [*prompts.messages(at)],
        "tools": prompts.part(call.tools),
        "settings": prompts.part(call.settings),
        "answer": prompts.part(call.answer),
    }
    return text_part(f"model call {at + 1}, {call.model}", laid_out(raw_call), start)


def _walk(spans: Sequence[Span]) -> list[tuple[int, Span]]:
    return [each for span in spans for each in span.walk()]


def _total(spans: Sequence[Span]) -> float:
    return spans[-1].end_ms if spans else 0.0


def _find_span(spans: Sequence[Span], prompts: Prompts | None, span_id: str) -> Span | None:
    """The span of that address; without one the first call whose prompt is there. Raises NotFoundError."""
    all_spans = [span for _, span in _walk(spans)]
    if not span_id:
        return next((span for span in all_spans if span.prompt >= 0 and span.kind == "model"), None)
    span = next((span for span in all_spans if span.id == span_id), None)
    if span is None:
        raise NotFoundError(f"the time line has no span {span_id[:NAME_LIMIT]!r}")
    return span


def _judge(spans: Sequence[Span], criterion: str, turn: str) -> Span:
    """The first call of a criterion's judges; one without a prompt where none was kept."""
    calls = [span for _, span in _walk(spans) if span.kind == "judge" and span.name == criterion]
    of_turn = [span for span in calls if str(span.turn + 1) == turn]
    return next(iter(of_turn or calls), None) or Span(JUDGES, "judge", criterion[:200], 0.0, 0.0, 0)


def _timeline_rows(spans: Sequence[Span], chosen_span: Span | None) -> list[tuple[Span, int, bool | None]]:
    """The spans with rows, their depths, and whether a turn is open; one without spans inside is neither."""
    n_spans = sum(1 + span.n_inside for span in spans)
    open_turn = chosen_span.turn if chosen_span else 0
    rows: list[tuple[Span, int, bool | None]] = []
    for turn in spans:
        is_open = n_spans <= MAX_OPEN or turn.turn == open_turn
        rows.append((turn, 0, is_open if turn.inside else None))
        if is_open:
            rows += [(span, min(depth, MAX_DEPTH), None) for depth, span in turn.walk() if depth]
    return rows


def _row(span: Span, depth: int, total: float, *, is_open: bool | None) -> SpanRow:
    usages = span.usages
    marks = _marks([span], total) if is_open is False else _bars([span], total)
    tokens = sum(usage.tokens_in for usage in usages), sum(usage.tokens_out for usage in usages)
    return SpanRow(span, depth, marks, *tokens, _cost(usages), is_open)


def _marks(spans: Sequence[Span], total: float) -> list[Mark]:
    """The steps of turns as one line; inner spans of a tool count as the tool."""
    steps = [span for turn in spans for span in (turn.inside or [turn])]
    return _bars(steps[:MAX_MARKS], total)


def _bars(spans: Sequence[Span], total: float) -> list[Mark]:
    """A bar for each span with a known time."""
    return [
        Mark(
            span.kind,
            min(100 * span.start_ms / total, 100 - LEAST_WIDTH),
            max(100 * span.duration_ms / total, LEAST_WIDTH),
        )
        for span in spans
        if span.duration_ms
    ]


def _ticks(total: float) -> list[Tick]:
    """Round times, three to six of them."""
    if total <= 0:
        return []
    step = 10.0 ** floor(log10(total))
    step = next(each for each in (step / 5, step / 2, step, step * 2) if total / each <= 6)
    n = floor(total / step)
    return [Tick(100 * at * step / total, at * step) for at in range(n + 1) if at * step < total * 0.96]


def _kinds(spans: Sequence[Span]) -> Counter[SpanKind]:
    return Counter(span.kind for _, span in _walk(spans))


def _counts(counts: Counter[SpanKind]) -> str:
    nouns: tuple[tuple[SpanKind, str], ...] = (
        ("model", "model call"),
        ("tool", "tool"),
        ("agent", "sub-agent"),
        ("wait", "wait"),
    )
    return ", ".join(
        f"{counts[kind]:,} {noun}{'' if counts[kind] == 1 else 's'}" for kind, noun in nouns if counts[kind]
    )


def _cost(usages: Sequence[Usage]) -> str:
    cost = known_sum(usage.cost for usage in usages)
    return "" if cost is None else cost_words(cost)


def _view(span: Span, prompts: Prompts | None, part: str, lacks: str) -> SpanView:
    if span.kind in ("model", "judge") or (span.kind == "user" and span.prompt >= 0):
        return _call_view(span, prompts, part, lacks)
    if span.kind == "start":
        return SpanView(span, "Start of the player", "the agent is imported; not in the time of the trial")
    trees = Trees()
    anchor = f"turn-{span.turn + 1}"
    if span.kind in ("tool", "agent") and span.event and span.event.call:
        call, result_value = span.event.call, span.result.result if span.result else None
        result = trees.tree(result_value)
        result_texts = [] if result or result_value is None else [("Result", value_text(result_value))]
        arguments = trees.tree(dict(call.args))
        at = f"{anchor}-event-{span.id.partition('.')[2]}"
        return SpanView(span, call.name, span.note, anchor=at, arguments=arguments, result=result, texts=result_texts)
    text = span.event.error.message if span.event and span.event.error else span.event.text if span.event else ""
    result_texts = [("", text)] if text else []
    return SpanView(span, WORDS.get(span.kind, "wait").capitalize(), span.note, anchor=anchor, texts=result_texts)


def _call_view(span: Span, prompts: Prompts | None, part: str, lacks: str) -> SpanView:
    anchor = f"turn-{span.turn + 1}"
    if prompts is None or span.prompt < 0:
        return SpanView(span, span.name or "model call", _facts(span.usage), lacks=lacks, anchor=anchor)
    call, drawing = prompts.calls[span.prompt], PromptDrawing()
    part = part if part in PARTS else "prompt"
    messages = prompts.messages(span.prompt)
    tools, settings = prompts.part(call.tools), prompts.part(call.settings)
    readers = {"tools": lambda: drawing.tools(tools), "settings": lambda: drawing.settings(settings)}
    is_prompt = part == "prompt"
    return SpanView(
        span,
        (span.usage.model if span.kind == "user" and span.usage else span.name) or "model call",
        _facts(span.usage, is_failed=prompts.is_failed(span.prompt)),
        part,
        messages=drawing.messages(messages, call.n_kept) if is_prompt else (),
        answer=drawing.messages(prompts.part(call.answer)) if is_prompt and call.answer >= 0 else (),
        pieces=() if is_prompt else readers[part](),
        n_messages=len(messages),
        n_tools=len(PromptDrawing().tools(tools)),
        has_settings=bool(settings),
        anchor=anchor,
    )


_LACKS = (
    "How this call was sent is not recorded: Evaldesk did not see its request, or played the trial before it kept them."
)
_OFF = "The run kept no prompts: its option “Prompts of models” is off."


def _facts(usage: Usage | None, *, is_failed: bool = False) -> str:
    if usage is None:
        return "This call failed" if is_failed else "Nobody told the tokens of this call"
    if usage.is_least:
        return "The tokens of this call are not known"
    cached = f", {usage.tokens_cached:,} cached" if usage.tokens_cached else ""
    reasoning = f", {usage.tokens_reasoning:,} for reasoning" if usage.tokens_reasoning else ""
    cost = cost_words(usage.cost) if usage.cost is not None else "cost unknown"
    return f"{usage.tokens_in:,} tokens in{cached}, {usage.tokens_out:,} out{reasoning}; {cost}"
