"""The spans of a trial: its turns, and inside of them model calls, tools, sub-agents, waits and the simulated user."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from evaldesk.model import Event, Prompt, Prompts, Role, ToolCall, Transcript, TurnRecord, Usage
from evaldesk.model.trial_turns import is_same_call

SpanKind: TypeAlias = Literal["start", "turn", "model", "tool", "agent", "user", "wait", "judge"]
START = "start"
"""The address of the start of the player, which comes before the turns and is not in the time of the trial."""
LEAST_START_MS = 10.0
"""A player that was there already took less."""
JUDGES = "judges"
"""The address of the grading, which comes after the turns."""


@dataclass(slots=True)
class Span:
    """One step, in milliseconds from the start of the trial; a tool in which a model was asked is an agent.

    `id` is its turn and its event in the transcript, which is its address. `prompt` is the call's place among the
    prompts of the trial, -1 where it was not seen. Of a call that nobody counted, `usage` is None. `agent` names the
    agent that acted, where several act in the turn.
    """

    id: str
    kind: SpanKind
    name: str
    start_ms: float
    end_ms: float
    turn: int
    event: Event | None = None
    result: Event | None = None
    usage: Usage | None = None
    prompt: int = -1
    note: str = ""
    agent: str = ""
    inside: list[Span] = field(default_factory=list)

    @property
    def duration_ms(self) -> float:
        """How long it took; 0 where nobody knows."""
        return max(self.end_ms - self.start_ms, 0.0)

    @property
    def usages(self) -> tuple[Usage, ...]:
        """The model calls of it and of all that is inside."""
        own = (self.usage,) if self.usage else ()
        return (*own, *(usage for span in self.inside for usage in span.usages))

    @property
    def n_inside(self) -> int:
        """The number of spans inside of it, at any depth."""
        return sum(1 + span.n_inside for span in self.inside)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Span]]:
        """It and all that is inside, each with its depth."""
        yield depth, self
        for span in self.inside:
            yield from span.walk(depth + 1)


def spans_of(
    transcript: Transcript, prompts: Prompts | None, judge_usages: Sequence[Usage] = (), start_ms: float = 0.0
) -> tuple[Span, ...]:
    """A span for each turn in order, with its inner spans, and one for the judges.

    `judge_usages` are the usages of the judges, with their cost. A start of the player that took `start_ms`
    is a span before the turns.
    """
    n_turns = len(transcript.turns)
    calls = SeenCalls(prompts, n_turns)
    start = start_spans(start_ms)
    spans = [*start, *turn_spans(enumerate(transcript.turns), calls, start[0].end_ms if start else 0.0)]
    return (*spans, *judges_spans(calls, n_turns, spans[-1].end_ms if spans else 0.0, judge_usages))


class SeenCalls:
    """The model calls of a trial of `n_turns` that were seen as they were sent, by their turns."""

    def __init__(self, prompts: Prompts | None, n_turns: int) -> None:
        self.by_turn: dict[int, list[tuple[int, Prompt]]] = {}
        self.of_judges: list[tuple[int, Prompt]] = []
        for at, call in sorted(enumerate(prompts.calls if prompts else ()), key=lambda each: each[1].at_ms):
            if call.role == "judge":
                self.of_judges.append((at, call))
            else:
                self.by_turn.setdefault(min(call.turn, n_turns - 1), []).append((at, call))
        self.failed = {at for at in range(len(prompts.calls)) if prompts.is_failed(at)} if prompts else set[int]()


def start_spans(start_ms: float) -> list[Span]:
    """The start of the player; none where it was there already."""
    return [Span(START, "start", "start of the player", 0.0, start_ms, -1)] if start_ms >= LEAST_START_MS else []


def turn_spans(turns: Iterable[tuple[int, TurnRecord]], calls: SeenCalls, began_ms: float) -> Iterator[Span]:
    """The spans of turns that follow each other, each with its index; the first begins at `began_ms`."""
    for index, record in turns:
        yield (span := _TurnSpans(index, record, began_ms, calls.by_turn.get(index, []), calls.failed).span())
        began_ms = span.end_ms


def judges_spans(calls: SeenCalls, n_turns: int, began_ms: float, judge_usages: Sequence[Usage]) -> list[Span]:
    """The calls of judges, which were asked after the last turn, each named by its criterion; none without any."""
    if not calls.of_judges:
        return []
    judges = Span(JUDGES, "turn", "Judges", began_ms, began_ms, n_turns)
    usages_by_tokens: dict[tuple[str, int, int], deque[Usage]] = {}
    for usage in judge_usages:
        usages_by_tokens.setdefault((usage.model, usage.tokens_in, usage.tokens_out), deque()).append(usage)
    for at, call in calls.of_judges:
        end_ms = began_ms + call.at_ms
        start_ms = max(end_ms - call.duration_ms, began_ms)
        turn = min(call.turn, max(n_turns - 1, 0))
        span = Span(f"{JUDGES}.{at}", "judge", call.criterion or call.model, start_ms, end_ms, turn, prompt=at)
        is_failed = at in calls.failed
        span.note = "failed" if is_failed else f"turn {turn + 1}" if call.turn < n_turns and n_turns > 1 else ""
        if same := usages_by_tokens.get((call.model, call.tokens_in, call.tokens_out)):
            span.usage = same.popleft()
        judges.inside.append(span)
    _sort(judges)
    return [judges]


@dataclass(slots=True)
class _TurnSpans:
    """The spans of a turn that began at `began_ms`; its user took time before the turn's own clock ran."""

    index: int
    record: TurnRecord
    began_ms: float
    prompts: list[tuple[int, Prompt]]
    failed: set[int]

    def span(self) -> Span:
        number = f"{self.index + 1}"
        events = [(at, event) for at, event in enumerate(self.record.events) if not event.is_partial]
        asking = _asking(events)
        zero = self.began_ms + sum(event.usage.duration_ms for _, event in asking if event.usage)
        turn = Span(number, "turn", f"Turn {number}", self.began_ms, zero + self.record.duration_ms, self.index)
        turn.event = next((event for _, event in events if event.error), None)
        turn.note = "" if self.record.stop_reason == "answered" else self.record.stop_reason.replace("_", " ")
        prompt_of_event = _match_prompts(events, [each for each in self.prompts if each[0] not in self.failed])
        agents = {event.author for _, event in events if event.author and event.kind in ("agent_message", "tool_call")}
        open_spans: list[Span] = []
        last_ms, free_ms = zero, self.began_ms
        for at, event in events:
            here, usage = zero + event.at_ms, event.usage
            span = Span(f"{number}.{at}", "model", "", here, here, self.index, event)
            span.agent = event.author if len(agents) > 1 and event.author in agents else ""
            if usage and usage.role == "user":
                span.kind, span.name, span.note, span.usage = "user", "user", "simulated", usage
                span.start_ms = free_ms if (at, event) in asking else here
                free_ms = span.end_ms = span.start_ms + usage.duration_ms
                span.prompt = prompt_of_event.get(at, -1)
                turn.inside.append(span)
            elif usage and usage.role == "agent":
                span.name, span.usage, span.note = usage.model, usage, _how(usage)
                span.start_ms = max(here - usage.duration_ms, zero) if usage.duration_ms else min(last_ms, here)
                span.prompt = prompt_of_event.get(at, -1)
                around = _around(event, open_spans)
                if around:
                    around.kind = "agent"
                (around or turn).inside.append(span)
            elif event.kind == "tool_call" and event.call:
                span.kind, span.name, span.note, span.end_ms = "tool", event.call.name, "no result", turn.end_ms
                (_around(event, open_spans) or turn).inside.append(span)
                open_spans.append(span)
            elif event.kind == "tool_result":
                _close(event, open_spans, here)
            elif event.kind == "log" and event.duration_ms and event.author == "evaldesk":
                span.kind, span.name, span.end_ms = "wait", "waited", here + event.duration_ms
                span.note = event.text.partition(" until ")[0][:40]
                turn.inside.append(span)
            last_ms = here
        matched_prompts = {*prompt_of_event.values()}
        for at, call in self.prompts:
            if at not in matched_prompts:
                note = "failed" if at in self.failed else "not counted"
                turn.inside.append(_uncounted(number, self.index, at, call, zero, note))
        _sort(turn)
        return turn


def _asking(events: Sequence[tuple[int, Event]]) -> Sequence[tuple[int, Event]]:
    """The calls by which a simulated user made the message of the turn: those before the agent does anything."""
    is_agents = (at for at, (_, event) in enumerate(events) if event.kind in _AGENTS and not _is_user(event))
    return [each for each in events[: next(is_agents, len(events))] if _is_user(each[1])]


_AGENTS = frozenset({"agent_message", "tool_call", "usage"})


def _is_user(event: Event) -> bool:
    return event.usage is not None and event.usage.role == "user"


def _how(usage: Usage) -> str:
    notes = ["recorded answer"] if usage.is_replayed else []
    return ", ".join([*notes, f"{usage.n_attempts} attempts"] if usage.n_attempts > 1 else notes)


def _match_prompts(events: Sequence[tuple[int, Event]], prompts: Sequence[tuple[int, Prompt]]) -> dict[int, int]:
    """The prompt of each call that was counted, by the place of its event: of the same tokens, else in order."""
    return {at: number for role in get_args(Role) for at, number in _match_prompts_of(role, events, prompts).items()}


def _match_prompts_of(
    role: Role, events: Sequence[tuple[int, Event]], calls: Sequence[tuple[int, Prompt]]
) -> dict[int, int]:
    prompts = [(number, call) for number, call in calls if call.role == role]
    prompts_by_tokens: dict[tuple[int, int], deque[int]] = {}
    for number, call in prompts:
        prompts_by_tokens.setdefault((call.tokens_in, call.tokens_out), deque()).append(number)
    usages = [(at, event.usage) for at, event in events if event.usage and event.usage.role == role]
    prompt_of_event: dict[int, int] = {}
    for at, usage in usages:
        if same := prompts_by_tokens.get((usage.tokens_in, usage.tokens_out)):
            prompt_of_event[at] = same.popleft()
    others = [number for number, call in prompts if number in prompts_by_tokens[call.tokens_in, call.tokens_out]]
    return prompt_of_event | dict(zip((at for at, _ in usages if at not in prompt_of_event), others, strict=False))


def _uncounted(number: str, turn: int, at: int, call: Prompt, zero: float, note: str) -> Span:
    """A seen call without reported tokens, or a failed one."""
    end = zero + call.at_ms
    start = max(end - call.duration_ms, zero)
    return Span(f"{number}.p{at}", "model", call.model, start, end, turn, prompt=at, note=note)


def _around(event: Event, open_spans: Sequence[Span]) -> Span | None:
    """The enclosing call: the last of that name without a result."""
    if not event.within:
        return None
    return next((span for span in reversed(open_spans) if span.name == event.within), None)


def _close(event: Event, open_spans: list[Span], here: float) -> None:
    """End the call that the result is of: of the same id, else of the same name."""
    span = next((span for span in open_spans if event.call and _is_result_of(event.call, span)), None)
    if span is None:
        return
    open_spans.remove(span)
    took_ms = event.duration_ms
    span.end_ms = here if took_ms is None else min(here, span.start_ms + took_ms)
    span.result, span.note = event, "raised" if event.is_error else ""


def _is_result_of(call: ToolCall, span: Span) -> bool:
    own = span.event.call if span.event else None
    return own is not None and is_same_call(own, call)


def _sort(span: Span) -> None:
    """Sort inner spans by their start; none ends after its outer span."""
    span.inside.sort(key=lambda each: (each.start_ms, each.end_ms))
    for each in span.inside:
        _sort(each)
    span.end_ms = max(span.end_ms, *(each.end_ms for each in span.inside), span.start_ms)
