"""One turn while it is played: its events, stamped, and the session state it leaves behind."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from operator import attrgetter
from typing import TypeAlias, get_args

from evaldesk.agents.spans import NO_SPANS, TurnSpans
from evaldesk.engine.worker.attempt import Clock
from evaldesk.engine.worker.prompts import read_seen, said_to_us, sent_by_us, sent_parts, untold_of
from evaldesk.engine.worker.wire_calls import WireCall, WireEvents, wire_events, without_answer_calls
from evaldesk.errors import AgentError
from evaldesk.llm import cost_at, with_cost
from evaldesk.llm.call import ModelCall, ModelReply, pace_of
from evaldesk.llm.faults import INJECTED, WORDS, draw_fault
from evaldesk.llm.pacing import Pace
from evaldesk.llm.refusals import MAX_COMPLETION, MAX_TOKENS, OPTION_FIELDS
from evaldesk.llm.retry_events import CallAnswers, HttpCall, RetryWait, TurnListener, body_of
from evaldesk.model import (
    Capture,
    Change,
    ErrorRecord,
    Event,
    JsonObject,
    JsonValue,
    Session,
    StopReason,
    ToolCall,
    TurnRecord,
    Usage,
    Waiting,
)
from evaldesk.model.decisions import Decided, Decision, Script
from evaldesk.model.media import MAX_IMAGES, without_image_texts
from evaldesk.model.prompts import FAILED
from evaldesk.model.transcript import UNKNOWN, broken_turn, image_length, waiting_of
from evaldesk.model.visibility import Unseen
from evaldesk.transcripts.model_exchanges import Exchange, read_request
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter
from evaldesk.wire import checked_event, plain_json, to_json

MAX_EVENTS = 10_000
MAX_PARTIAL = 200_000
MAX_TURN_BYTES = 32 * 1024 * 1024
MAX_RAW = 20_000

CALL_KINDS = frozenset({"tool_call", "tool_result"})
"""The events by which an agent tells a tool call."""

Show: TypeAlias = Callable[[Event], None]


class OpenTurn(TurnListener):
    """A turn under way. `show` is told every event as it happens, partial ones included; `prompts` keep its calls.

    With `open_record` it goes on where that turn waited; the time in which it waited does not count. `tells_calls`: the
    agent told a tool call itself.
    """

    def __init__(
        self,
        session: Session,
        query: str,
        clock: Clock,
        show: Show | None,
        open_record: TurnRecord | None = None,
        prompts: PromptWriter | None = None,
        script: Script | None = None,
        start_time: float | None = None,
    ) -> None:
        self._session = session
        self._start_time = start_time
        self._script = script
        self._query = query
        self._clock = clock
        self._show = show
        self._start = clock()
        self._index = len(session.turns)
        self._events: list[Event] = []
        self._n_bytes = 0
        self._n_image_bytes = 0
        self._n_partial = 0
        self._retries: deque[RetryWait] = deque()
        self._cached: deque[bool] = deque()
        self._reported_usages: list[Usage] = []
        self._n_whole = 0
        self._n_elsewhere = 0
        self._n_asking = 0
        self._n_cut = 0
        self._n_requests = 0
        self._observed_calls: list[tuple[float, str, HttpCall | None]] = []
        self._ways: set[Capture] = set()
        self._unseen: set[Unseen] = set()
        self._shows_calls = self._is_text_answer = self.has_outside_calls = self.tells_calls = False
        self._has_reported_state = False
        self._spans: TurnSpans | None = None
        self._call_answers: CallAnswers | None = None
        self._prompts = prompts
        self._gateway_calls: deque[tuple[float, HttpCall]] = deque()
        self._usages: dict[int, Usage] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._ended_ms: float | None = None
        self._state_json = b""
        self._state: dict[str, JsonValue] = {}
        self._n_before = 0
        if open_record:
            self._go_on(open_record)
            return
        self._read_state()
        self._state_before = self._state
        self._keep(Event("user_message", author="user", text=query))

    def _go_on(self, open_record: TurnRecord) -> None:
        self._start -= open_record.duration_ms / 1000
        self._start_time = open_record.start_time
        self._events.extend(open_record.events)
        self._n_before = len(self._events)
        self._ways.update(open_record.captures)
        is_own = "told" in self._ways
        self.tells_calls = is_own and any(event.kind in CALL_KINDS for event in open_record.events)
        self._unseen.update(open_record.unseen)
        self._state_before = dict(open_record.state_before)
        self._state, self._state_json = dict(open_record.state_after), to_json(open_record.state_after)
        self._note_state()  # a person may have changed it

    @property
    def open_requests(self) -> tuple[Waiting, ...]:
        """The agent's open requests to a person."""
        return waiting_of(self._events)

    def note_decisions(self, decided: Iterable[Decided], author: str) -> None:
        """Record a decision of a person, or of a case."""
        for request, decision in decided:
            named_decision = replace(decision, tool=request.tool)
            self._keep(Event("decision", at_ms=self._now_ms(), author=author, waiting=request, decision=named_decision))

    def take(self, raw_event: object) -> Event:
        """Keep an event that the agent yielded, and its changes of the state.

        Raises AgentError where it is no event.
        """
        if len(self._events) >= MAX_EVENTS:
            raise AgentError(f"more than {MAX_EVENTS} events in one turn")
        if self._n_partial >= MAX_PARTIAL:
            raise AgentError(f"more than {MAX_PARTIAL} pieces of text in one turn")
        if self._n_bytes > MAX_TURN_BYTES:
            raise AgentError(f"more than {MAX_TURN_BYTES // 2**20} MiB of events in one turn")
        event = checked_event(raw_event, self._now_ms())
        self.tells_calls = self.tells_calls or event.kind in CALL_KINDS
        if event.usage:
            self._reported_usages.append(event.usage)
            if self.pace and not self._n_whole:  # our own calls book their tokens themselves
                self.pace.book_tokens(event.usage.model, event.usage.tokens_in + event.usage.tokens_out)
            event = replace(event, usage=self._complete_usage(event.usage))
        if event.kind == "tool_result" and event.call and not event.call.args:
            event = replace(event, call=self._call_of_result(event.call))
        self._keep(event)
        self._note_state()
        return event

    def _call_of_result(self, call: ToolCall) -> ToolCall:
        """The call of the turn with its arguments, which a framework does not name again after an approval."""
        same_calls = (event.call for event in reversed(self._events) if event.kind == "tool_call" and event.call)
        return next((each for each in same_calls if call.id and (each.id, each.name) == (call.id, call.name)), call)

    @property
    def n_retries(self) -> int | None:
        """How often the session wants a failed model call to be made again."""
        return self._session.model_options.n_retries

    @property
    def pace(self) -> Pace | None:
        """The limits that the session sets to the requests of its models."""
        return pace_of(self._session.model_options)

    @property
    def optional_fields(self) -> frozenset[str]:
        """The fields that the run chose, or that come with a model that it chose; those of the agent are its own."""
        if self._session.model:
            return OPTION_FIELDS
        options = self._session.model_options
        chosen_fields = {name for name in OPTION_FIELDS if getattr(options, name, None) is not None}
        return frozenset(chosen_fields | ({MAX_COMPLETION} if MAX_TOKENS in chosen_fields else set()))

    def fault(self, model: str) -> str:
        """The fault of the next request of a model; empty for none. Two calls at once may change their places."""
        shares = self._session.model_options.faults
        if not shares:
            return ""
        self._n_requests += 1
        fault_name = draw_fault(shares, f"{self._session.seed} {self._index} {self._n_requests}")
        if fault_name:
            self.log_note(f"{INJECTED}{self._n_requests} of this turn, to {model}: {WORDS[fault_name]}")
        return fault_name

    @property
    def call_answers(self) -> CallAnswers | None:
        """The answers to tool calls of the model requests of this turn."""
        return self._call_answers

    @property
    def has_denials(self) -> bool:
        """Whether the case denies calls of this turn."""
        return self._script is not None and any(each.decision.decision == "deny" for each in self._script.scripted)

    def take_denial(self, request: Waiting) -> Decision | None:
        """The denial of the case for a call, which is used up by it where it is one of the turn."""
        decided = (
            self._script.take_decisions(self._index, [replace(request, choices=("deny",))]) if self._script else None
        )
        return decided[0][1] if decided else None

    def answer_calls(self, answers: CallAnswers) -> None:
        """Answer tool calls of the model requests of this turn from now on."""
        self._call_answers = answers

    def log_note(self, text: str, author: str = "evaldesk") -> None:
        """Keep a remark on a model call, in any thread."""
        self._keep(Event("log", at_ms=self._now_ms(), author=author, text=text))

    def note_pause(self, wait: RetryWait, *, is_counted: bool) -> None:
        """Report that a model call pauses, in any thread; the next usage counts pauses without `is_counted`."""
        waits_ms = round(wait.seconds * 1000, 3)
        self._keep(Event("log", self._now_ms(), author="evaldesk", text=wait.sentence(), duration_ms=waits_ms))
        if not is_counted:
            self._retries.append(wait)

    def note_cached_reply(self) -> None:
        """Mark the next usage as replayed."""
        self._cached.append(True)
        self._n_whole += 1

    def note_reply(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """Note that the next usage is of a call whose requests are not seen, and how one of ours was sent."""
        self._n_whole += 1
        if self._prompts and call and reply:
            self._prompts.add(CallPlace(self._index, self._now_ms()), reply.usage, sent_by_us(call), said_to_us(reply))

    def note_failure(self, call: ModelCall | HttpCall, why: str, duration_ms: float) -> None:
        """Keep how a call was sent that failed, and why."""
        if self._prompts:
            model, request = sent_parts(call)
            usage = Usage(model, duration_ms=duration_ms)
            self._prompts.add(CallPlace(self._index, self._now_ms()), usage, request, {FAILED: why})

    def note_gateway_call(self, call: HttpCall) -> None:
        """Record a call that the gateway reports in full; its usage follows."""
        self._n_cut += bool(_CUT.search(call.answer))
        self._shows_calls = self._shows_calls or bool(read_request(body_of(call.request)).tools)
        if self._prompts:
            self._gateway_calls.append((self._now_ms(), call))

    def note_request(self) -> None:
        """Note a request that is sent."""
        self._n_asking += 1

    def note_failed_request(self) -> None:
        """Note that it was not answered."""
        self._n_asking -= 1

    def note_answer(self, call: HttpCall) -> None:
        """Note a call that the agent may not report: inside of a tool, or by a client of its own."""
        self._n_asking -= 1
        if call.is_replayed:
            self._cached.append(True)
        self._n_cut += bool(_CUT.search(call.answer))
        self.has_outside_calls = True
        self._observed_calls.append((self._now_ms(), self._open_tool(), call))

    def open_spans(self) -> TurnSpans:
        """The spans of this turn, which are taken from now on."""
        self._spans = self._spans or TurnSpans(self._now_ms, self._session.id)
        return self._spans

    def note_missed_call(self) -> None:
        """Note a call whose tokens nobody can tell."""
        self.has_outside_calls = True
        self._observed_calls.append((self._now_ms(), self._open_tool(), None))

    def note_capture(self, way: Capture) -> None:
        """Note a way by which the calls of this turn are known; without any it is the adapter of a framework."""
        self._ways.add(way)

    def note_unseen(self, part: Unseen) -> None:
        """Note a part of the agent's work that cannot be seen."""
        self._unseen.add(part)

    def note_reported_state(self) -> None:
        """Note that the agent reported its session state, which may be the old one."""
        self._has_reported_state = True

    def note_text_answer(self) -> None:
        """Note that the agent gave a text, and no event for its tool calls."""
        self._is_text_answer = True

    def note_outside_call(self) -> None:
        """Note that the agent opened a connection or started a process."""
        self.has_outside_calls = True

    def keep(self, events: Iterable[Event]) -> None:
        """Keep events that are not the agent's: the origin of the message of this turn."""
        for event in events:
            self._keep(replace(event, at_ms=self._now_ms()))

    def fail(self, error: ErrorRecord) -> None:
        """Keep the failure that ends the turn, unless the agent named one itself."""
        if not self._events or self._events[-1].kind != "error":
            self._keep(Event("error", at_ms=self._now_ms(), error=error))

    def log(self, text: str) -> None:
        """Keep the output printed during the turn."""
        self._keep(Event("log", at_ms=self._now_ms(), author="output", text=text))

    def close(self) -> None:
        """Note the calls that the agent did not tell, and the last change of the state.

        Raises AgentError where the state is no object any more, and NoDoubleError for a call that no double answered.
        """
        self._ended_ms = self._now_ms()  # the first price takes seconds, which are not the agent's
        self._complete_from_wire()
        event_ids = {id(event) for event in self._events}
        self._events = self._whole_turn()
        own_calls = [event.call.name for event in self._events[self._n_before :] if event.call and _is_own_call(event)]
        if self._spans:
            self._spans.end()
            self._spans = None
        self._observed_calls.clear()
        self._usages.clear()
        self._exchanges.clear()
        self._n_asking = 0
        if self._show:
            for event in self._events:
                if id(event) not in event_ids:
                    self._show(event)
        self._note_state()
        if self._call_answers:
            self._call_answers.check_calls(own_calls)

    def record(self, stop_reason: StopReason) -> TurnRecord:
        """The turn up to now; may be asked from another thread."""
        duration_ms = self._now_ms() if self._ended_ms is None else self._ended_ms
        events = self._whole_turn()
        record = broken_turn(self._query, events, self._state_before, stop_reason, duration_ms=duration_ms)
        media = tuple(item.held() for item in self._session.media)
        # A state that changed was seen.
        is_state_seen = self._has_reported_state or any(event.kind == "state_delta" for event in events)
        unseen = self._unseen - ({"state"} if is_state_seen else set())
        return replace(
            record,
            captures=self._captures(),
            unseen=tuple(sorted(unseen)),
            media=media,
            start_time=self._start_time,
        )

    def _captures(self) -> tuple[Capture, ...]:
        ways = self._ways if self._ways - _BESIDE else self._ways | {"adapter"}
        shows_calls = self._shows_calls or self.tells_calls or "spans" in ways
        if self._is_text_answer and self.has_outside_calls and not shows_calls:
            ways = ways - {"told"} | {"answers"}
        elif self.tells_calls:
            ways = ways - {"answers"}  # of the turn before it waited
        return tuple(way for way in get_args(Capture) if way in ways)

    def _whole_turn(self) -> list[Event]:
        """The events so far, with the calls that the agent did not tell: those of its spans, then those seen."""
        while self._gateway_calls:
            self._keep_call(*self._gateway_calls.popleft())
        spanned = self._spanned()
        reported_usages = [*self._reported_usages, *(event.usage for event in spanned if event.usage)]
        wired = self._wired(spanned)
        untold = self._untold(reported_usages, wired.within)
        untold += [] if reported_usages or untold else self._uncounted()
        untold += self._lacking()
        self._keep_spanned()
        if spanned:
            self._ways.add("spans")
        if untold or wired.events:
            self._ways.add("gateway")
        if not (spanned or wired.events):
            return [*self._events, *untold]
        first, *own = self._events
        return [first, *merge(spanned, sorted([*untold, *wired.events, *own], key=_at_ms), key=_at_ms)]

    def _complete_from_wire(self) -> None:
        """Complete the calls, results and usages that an agent of own code told by the requests that were seen.

        Tokens come from the request; the cost that the agent told of the same tokens stays.
        """
        if "told" not in self._ways or not any(call for *_, call in self._observed_calls):
            return
        before, own = self._events[: self._n_before], self._with_arguments(self._events[self._n_before :])
        told_usages = [event.usage if event.usage and event.usage.role == "agent" else None for event in own]
        usage_by_place = self._wire_usage_by_place(told_usages)
        for place, usage in usage_by_place.items():
            told_usage = told_usages[place]
            own[place] = replace(own[place], usage=self._merged_usage(told_usage, usage) if told_usage else usage)
        all_usages = [self._read(at_ms, call) for at_ms, _, call in self._observed_calls if call]
        self._events = [*before, *own]
        self._reported_usages = [event.usage for event in own if event.usage]
        self._n_elsewhere = sum(
            not any(_is_of_same_model(event.usage, each) for each in all_usages)
            for at, event in enumerate(own)
            if event.usage and event.usage.model and event.usage.role == "agent" and at not in usage_by_place
        )

    def _merged_usage(self, agent_usage: Usage, wire: Usage) -> Usage:
        priced = with_cost(wire)
        cost = cost_at(self._session.model_options.prices, priced) if priced.cost is None else priced.cost
        if agent_usage.cost is not None and (cost is None or _has_same_tokens(agent_usage, wire)):
            cost = agent_usage.cost
        return replace(
            wire,
            cost=cost,
            n_attempts=agent_usage.n_attempts,
            is_replayed=agent_usage.is_replayed,
            is_cut=agent_usage.is_cut,
            duration_ms=agent_usage.duration_ms or wire.duration_ms,
        )

    def _wired(self, spanned: Sequence[Event]) -> WireEvents:
        """The tool calls in the requests of an agent of own code that neither the agent nor its spans tell."""
        calls = [
            (at_ms, call, self._exchange(at_ms, call))
            for at_ms, tool, call in self._observed_calls
            if call and not tool
        ]
        if "told" not in self._ways or not calls:
            return WireEvents()
        own = [event for event in self._events[self._n_before :] if not event.is_partial]
        wired = wire_events([WireCall(at_ms, call, each) for at_ms, call, each in calls if each], [*own, *spanned])
        offers_tools = any(read_request(body_of(call.request)).tools for _, call, _ in calls)
        self._shows_calls = self._shows_calls or offers_tools or bool(wired.events)
        return wired

    def _exchange(self, at_ms: float, call: HttpCall) -> Exchange | None:
        self._read(at_ms, call)
        return self._exchanges.get(id(call))

    def _uncounted(self) -> list[Event]:
        """The model calls that spans tell of where no tokens are known at all; some instruments tell a call twice."""
        calls = self._spans.sent_calls() if self._spans else []
        now = self._now_ms()
        return [
            Event(
                "usage",
                at_ms=min(max(round(at_ms, 3), 0.0), now),
                author="evaldesk",
                usage=replace(UNKNOWN, model=usage.model or UNKNOWN.model),
            )
            for at_ms, usage, *_ in calls
        ]

    def _lacking(self) -> list[Event]:
        """A log event on missing spans, with an unknown usage unless the gateway sees all calls."""
        lacks, is_seen = self._spans.lacks if self._spans else "", "gateway" in self._ways
        if not lacks or (lacks == NO_SPANS and (self._reported_usages or is_seen)):
            return []
        at_ms = self._now_ms()
        note = Event("log", at_ms=at_ms, author="evaldesk", text=lacks)
        return [note] if is_seen else [note, Event("usage", at_ms=at_ms, author="evaldesk", usage=UNKNOWN)]

    def _spanned(self) -> list[Event]:
        """The events of the spans that the agent did not tell as well; a call of the same name is the same call."""
        events = without_answer_calls(self._spans.events()) if self._spans else ()
        if not events:
            return []
        now = self._now_ms()
        n_by_name = Counter(_event_key(event) for event in self._events[self._n_before :] if not event.is_partial)
        usages = [event.usage for event in events if event.usage]
        news = iter(untold_of(usages, self._reported_usages, len(self._reported_usages)))
        untold_events: list[Event] = []
        for event in (replace(event, at_ms=min(round(event.at_ms, 3), now)) for event in events):
            if event.usage:
                if next(news):
                    untold_events.append(event)
                continue
            n_by_name[_event_key(event)] -= 1
            if n_by_name[_event_key(event)] < 0:
                untold_events.append(event)
        return self._with_wire_tokens(self._with_arguments(untold_events))

    def _with_arguments(self, events: list[Event]) -> list[Event]:
        """Calls whose spans tell no arguments or no result, with those of the requests in which they were seen."""
        is_full = all(
            event.call.args if event.kind == "tool_call" else event.result is not None
            for event in events
            if event.call and event.kind in ("tool_call", "tool_result")
        )
        if is_full:
            return events
        exchanges = [read_seen(call, body_of(call.request))[1] for *_, call in self._observed_calls if call]
        model_calls = [call for exchange in exchanges if exchange for call in exchange.answer.calls]
        result_by_id = {each.call_id: each.result for exchange in exchanges if exchange for each in exchange.results}
        call_by_id: dict[int | str, ToolCall] = {}
        results: dict[int | str, JsonValue] = {}
        for event in events:
            call = event.call
            if event.kind == "tool_call" and call:
                match = next((each for each in model_calls if each.id == call.id and call.id), None)
                match = match or next((each for each in model_calls if each.name == call.name), None)
                if match:
                    model_calls.remove(match)
                    call_by_id[_identity(call)] = call if call.args else replace(call, args=match.args)
                    results[_identity(call)] = result_by_id.get(match.id)
        full_events = []
        for event in events:
            is_empty = event.kind == "tool_result" and event.result is None
            key = _identity(event.call) if event.call else ""
            result = results.get(key) if is_empty else event.result
            full_events.append(replace(event, call=call_by_id.get(key, event.call), result=result))
        return full_events

    def _with_wire_tokens(self, events: list[Event]) -> list[Event]:
        """Usages of spans with the tokens of the requests in which they were seen, which tell cached ones, too."""
        usage_by_place = self._wire_usage_by_place([event.usage for event in events])
        usages = [usage_by_place.get(place, event.usage) for place, event in enumerate(events)]
        return [
            replace(event, usage=self._complete_usage(with_cost(usage))) if usage else event
            for event, usage in zip(events, usages, strict=True)
        ]

    def _wire_usage_by_place(self, usages: Sequence[Usage | None]) -> dict[int, Usage]:
        """The usage of its request for each of the usages that was seen, by its place.

        A request of the same numbers is the same call; of the others the next one of the same model.
        """
        call_usages = (self._read(at_ms, call) for at_ms, _, call in self._observed_calls if call)
        wire_usages = [usage for usage in call_usages if not usage.is_least]
        usage_by_place: dict[int, Usage] = {}
        for is_same in (_has_same_tokens, _is_of_same_model):
            for place, usage in enumerate(usages):
                if usage is None or place in usage_by_place:
                    continue
                match = next((each for each in wire_usages if is_same(usage, each)), None)
                if match:
                    usage_by_place[place] = match
                    wire_usages.remove(match)
        return usage_by_place

    def _untold(self, reported_usages: Sequence[Usage], tools: Mapping[int, str]) -> list[Event]:
        """The usages of calls that were seen and that nobody told; `tools` has the tool of inner calls, by their id."""
        if not (self._observed_calls or self._n_asking):
            return []
        call_usages = [
            (at_ms, tool or tools.get(id(call), ""), with_cost(self._read(at_ms, call)))
            for at_ms, tool, call in self._observed_calls
            if call
        ]
        n_told = len(reported_usages) - self._n_whole - self._n_elsewhere
        news = untold_of([usage for *_, usage in call_usages], reported_usages, max(n_told, 0))
        unread_calls = [(at_ms, tool, UNKNOWN) for at_ms, tool, call in self._observed_calls if call is None]
        unread_calls += [(self._now_ms(), self._open_tool(), UNKNOWN)] * self._n_asking
        return [
            Event("usage", at_ms=at_ms, author="evaldesk", within=tool, usage=usage)
            for at_ms, tool, usage in (
                *unread_calls,
                *(
                    (at_ms, tool, self._complete_usage(usage))
                    for (at_ms, tool, usage), is_new in zip(call_usages, news, strict=True)
                    if is_new
                ),
            )
        ]

    def _read(self, at_ms: float, call: HttpCall) -> Usage:
        """The usage of a call that was seen; the first time, the call is kept as it was sent."""
        usage = self._usages.get(id(call))
        if usage is None:
            usage = self._usages[id(call)] = self._keep_call(at_ms, call)
        return usage

    def _keep_call(self, at_ms: float, call: HttpCall) -> Usage:
        request = body_of(call.request)
        usage, exchange = read_seen(call, request)
        if exchange:
            self._exchanges[id(call)] = exchange
        if self._prompts:
            answer = exchange.raw_answer if exchange else call.answer[:MAX_RAW].decode("utf-8", "replace")
            self._prompts.add(CallPlace(self._index, at_ms), usage, read_request(request), answer)
        return usage

    def _keep_spanned(self) -> None:
        """Keep the calls that spans tell of, where no call of the turn was seen itself."""
        if self._spans is None or self._prompts is None or self._prompts.has_calls_of(self._index):
            return
        now = self._now_ms()
        for at_ms, usage, request, answer in self._spans.sent_calls():
            place = CallPlace(self._index, min(max(round(at_ms, 3), 0.0), now))
            self._prompts.add(place, usage, request, answer)

    def _open_tool(self) -> str:
        """The tool that was called and has given nothing yet; empty where there is none."""
        open_calls: dict[tuple[str, str | None], str] = {}
        for event in self._events:
            if event.call and event.kind == "tool_call":
                open_calls[event.call.name, event.call.id] = event.call.name
            elif event.call and event.kind == "tool_result":
                open_calls.pop((event.call.name, event.call.id), None)
        return next(reversed(open_calls.values()), "")

    def _complete_usage(self, usage: Usage) -> Usage:
        """The usage with facts that the agent does not know: attempts and caches of clients, a configured price."""
        n_again = len(self._retries)
        for _ in range(n_again):
            self._retries.popleft()
        is_cut = usage.is_cut or self._n_cut > 0
        self._n_cut = max(self._n_cut - is_cut, 0)
        usage = replace(usage, n_attempts=usage.n_attempts + n_again, is_cut=is_cut)
        if self._cached:
            self._cached.popleft()
            return replace(usage, cost=0.0, is_replayed=True)
        if usage.cost is None:
            return replace(usage, cost=cost_at(self._session.model_options.prices, usage))
        return usage

    def _now_ms(self) -> float:
        return round((self._clock() - self._start) * 1000, 3)

    def _keep(self, event: Event) -> None:
        n_bytes = 0 if event.is_partial else len(to_json(event))
        if n_bytes > MAX_RAW and (n_images := image_length(event)):
            if self._n_image_bytes + n_images > MAX_IMAGES:
                event, n_images = replace(event, result=without_image_texts(event.result)), n_bytes
            else:
                self._n_image_bytes += n_images
            n_bytes -= n_images
        if self._show:
            self._show(event)
        if event.is_partial:
            self._n_partial += 1
            self._n_bytes += len(event.text)
            return
        self._n_bytes += n_bytes
        self._events.append(event)

    def _note_state(self) -> None:
        before = self._state
        if self._read_state():
            self._keep(Event("state_delta", at_ms=self._now_ms(), changes=changes(before, self._state)))

    def _read_state(self) -> bool:
        """Take a copy of the session state; whether it changed."""
        state = self._session.state
        if not isinstance(state, Mapping):
            self._session.state = dict(self._state)
            raise AgentError(f"session.state must stay an object, got {type(state).__name__}")
        try:
            state_json = to_json(state)
        except (TypeError, ValueError, RecursionError):
            state_json = to_json(plain_json(state, keeps_images=False))
        if state_json == self._state_json:
            return False
        state_copy = plain_json(state, keeps_images=False)
        if not isinstance(state_copy, dict):
            raise AgentError("session.state cannot be read")
        is_changed = bool(self._state_json) and bool(changes(self._state, state_copy))
        self._state, self._state_json = state_copy, state_json
        return is_changed


_CUT = re.compile(
    rb'"(?:finish_reason|finishReason|stop_reason)"\s*:\s*"(?:length|max_tokens|MAX_TOKENS)"'
    rb'|"incomplete_details"\s*:\s*\{\s*"reason"\s*:\s*"max_output_tokens"'
)
"""How each API says that an answer was cut at its limit of tokens."""


_at_ms = attrgetter("at_ms")
_BESIDE = frozenset({"spans", "gateway"})
"""Ways that add to what another way tells."""


def _has_same_tokens(usage: Usage, other: Usage) -> bool:
    return (usage.tokens_in, usage.tokens_out) == (other.tokens_in, other.tokens_out)


def _is_of_same_model(usage: Usage, other: Usage) -> bool:
    return bool(usage.model) and (usage.model in other.model or other.model in usage.model)


def _is_own_call(event: Event) -> bool:
    return event.kind == "tool_call" and not event.within


def _identity(call: ToolCall) -> int | str:
    """The id of a call; without one it is the object, which call and result of a span share."""
    return call.id or id(call)


def _event_key(event: Event) -> tuple[str, str]:
    """The name of an event that both the agent and its spans may tell."""
    return event.kind, event.call.name if event.call else event.text.strip()


def changes(before: JsonObject, after: JsonObject) -> tuple[Change, ...]:
    """The top-level keys that differ, in the order of `after`, removed ones last. True differs from 1."""
    differences = [
        Change(key, before.get(key), value, was_present=key in before)
        for key, value in after.items()
        if key not in before or to_json(before[key]) != to_json(value)
    ]
    removals = [Change(key, value, None, is_present=False) for key, value in before.items() if key not in after]
    return (*differences, *removals)
