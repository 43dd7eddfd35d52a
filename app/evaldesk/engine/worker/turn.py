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
from evaldesk.engine.worker.wire_calls import WireCall, WireEvents, wire_events
from evaldesk.errors import AgentError
from evaldesk.llm import cost_at, with_cost
from evaldesk.llm.call import ModelCall, ModelReply, pace_of
from evaldesk.llm.faults import INJECTED, WORDS, draw_fault
from evaldesk.llm.pacing import Pace
from evaldesk.llm.refusals import MAX_COMPLETION, MAX_TOKENS, OPTION_FIELDS
from evaldesk.llm.retry_events import HttpCall, RetryWait, TurnListener, body_of
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
from evaldesk.model.decisions import Decided
from evaldesk.model.media import MAX_IMAGES, without_image_texts
from evaldesk.model.prompts import FAILED
from evaldesk.model.transcript import UNKNOWN, broken_turn, image_length, waiting_of
from evaldesk.transcripts.model_exchanges import Exchange, read_request
from evaldesk.transcripts.prompt_writer import CallPlace, PromptWriter
from evaldesk.wire import checked_event, plain, to_json

MAX_EVENTS = 10_000
MAX_PARTIAL = 200_000
MAX_TURN_BYTES = 32 * 1024 * 1024
MAX_RAW = 20_000

Show: TypeAlias = Callable[[Event], None]


class OpenTurn(TurnListener):
    """A turn under way. `show` is told every event as it happens, partial ones included; `prompts` keep its calls.

    With `resumed` it goes on where that turn waited; the time in which it waited does not count.
    """

    def __init__(
        self,
        session: Session,
        query: str,
        clock: Clock,
        show: Show | None,
        resumed: TurnRecord | None = None,
        prompts: PromptWriter | None = None,
    ) -> None:
        self._session = session
        self._query = query
        self._clock = clock
        self._show = show
        self._started = clock()
        self._index = len(session.turns)
        self._events: list[Event] = []
        self._n_bytes = 0
        self._n_image_bytes = 0
        self._n_partial = 0
        self._again: deque[RetryWait] = deque()
        self._cached: deque[bool] = deque()
        self._told: list[Usage] = []
        self._n_whole = 0
        self._n_asking = 0
        self._n_cut = 0
        self._n_requests = 0
        self._seen: list[tuple[float, str, HttpCall | None]] = []
        self._ways: set[Capture] = set()
        self._spans: TurnSpans | None = None
        self._prompts = prompts
        self._passed: deque[tuple[float, HttpCall]] = deque()
        self._usages: dict[int, Usage] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._ended_ms: float | None = None
        self._state_json = b""
        self._state: dict[str, JsonValue] = {}
        self._n_before = 0
        if resumed:
            self._go_on(resumed)
            return
        self._read_state()
        self._state_before = self._state
        self._keep(Event("user_message", author="user", text=query))

    def _go_on(self, resumed: TurnRecord) -> None:
        self._started -= resumed.duration_ms / 1000
        self._events.extend(resumed.events)
        self._n_before = len(self._events)
        self._ways.update(resumed.captures)
        self._state_before = dict(resumed.state_before)
        self._state, self._state_json = dict(resumed.state_after), to_json(resumed.state_after)
        self._note_state()  # a person may have changed it

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The agent's open requests to a person."""
        return waiting_of(self._events)

    def decided(self, decided: Iterable[Decided], author: str) -> None:
        """Record a decision of a person, or of a case."""
        for waiting, decision in decided:
            made = replace(decision, tool=waiting.tool)
            self._keep(Event("decision", at_ms=self._now_ms(), author=author, waiting=waiting, decision=made))

    def take(self, found: object) -> Event:
        """Keep an event that the agent yielded, and its changes of the state.

        Raises AgentError where it is no event.
        """
        if len(self._events) >= MAX_EVENTS:
            raise AgentError(f"more than {MAX_EVENTS} events in one turn")
        if self._n_partial >= MAX_PARTIAL:
            raise AgentError(f"more than {MAX_PARTIAL} pieces of text in one turn")
        if self._n_bytes > MAX_TURN_BYTES:
            raise AgentError(f"more than {MAX_TURN_BYTES // 2**20} MiB of events in one turn")
        event = checked_event(found, self._now_ms())
        if event.usage:
            self._told.append(event.usage)
            if self.pace and not self._n_whole:  # our own calls book their tokens themselves
                self.pace.book_tokens(event.usage.model, event.usage.tokens_in + event.usage.tokens_out)
            event = replace(event, usage=self._whole(event.usage))
        self._keep(event)
        self._note_state()
        return event

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
        found = {name for name in OPTION_FIELDS if getattr(options, name, None) is not None}
        return frozenset(found | ({MAX_COMPLETION} if MAX_TOKENS in found else set()))

    def fault(self, model: str) -> str:
        """The fault of the next request of a model; empty for none. Two calls at once may change their places."""
        shares = self._session.model_options.faults
        if not shares:
            return ""
        self._n_requests += 1
        found = draw_fault(shares, f"{self._session.seed} {self._index} {self._n_requests}")
        if found:
            self.log_note(f"{INJECTED}{self._n_requests} of this turn, to {model}: {WORDS[found]}")
        return found

    def log_note(self, text: str) -> None:
        """Keep a remark on a model call, in any thread."""
        self._keep(Event("log", at_ms=self._now_ms(), author="evaldesk", text=text))

    def note_pause(self, wait: RetryWait, *, is_counted: bool) -> None:
        """Report that a model call pauses, in any thread; the next usage counts pauses without `is_counted`."""
        waits_ms = round(wait.seconds * 1000, 3)
        self._keep(Event("log", self._now_ms(), author="evaldesk", text=wait.sentence(), duration_ms=waits_ms))
        if not is_counted:
            self._again.append(wait)

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
            model, sent = sent_parts(call)
            usage = Usage(model, duration_ms=duration_ms)
            self._prompts.add(CallPlace(self._index, self._now_ms()), usage, sent, {FAILED: why})

    def note_gateway_call(self, call: HttpCall) -> None:
        """Record a call that the gateway reports in full; its usage follows."""
        self._n_cut += bool(_CUT.search(call.answer))
        if self._prompts:
            self._passed.append((self._now_ms(), call))

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
        self._seen.append((self._now_ms(), self._open_tool(), call))

    def opened_spans(self) -> TurnSpans:
        """The spans of this turn, which are taken from now on."""
        self._spans = self._spans or TurnSpans(self._now_ms, self._session.id)
        return self._spans

    def note_missed_call(self) -> None:
        """Note a call whose tokens nobody can tell."""
        self._seen.append((self._now_ms(), self._open_tool(), None))

    def note_capture(self, way: Capture) -> None:
        """Note a way by which the calls of this turn are known; without any it is the adapter of a framework."""
        self._ways.add(way)

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

        Raises AgentError where the state is no object any more.
        """
        self._ended_ms = self._now_ms()  # the first price takes seconds, which are not the agent's
        known = {id(event) for event in self._events}
        self._events = self._whole_turn()
        if self._spans:
            self._spans.end()
            self._spans = None
        self._seen.clear()
        self._usages.clear()
        self._exchanges.clear()
        self._n_asking = 0
        if self._show:
            for event in self._events:
                if id(event) not in known:
                    self._show(event)
        self._note_state()

    def record(self, stop_reason: StopReason) -> TurnRecord:
        """The turn up to now; may be asked from another thread."""
        duration_ms = self._now_ms() if self._ended_ms is None else self._ended_ms
        events = self._whole_turn()
        record = broken_turn(self._query, events, self._state_before, stop_reason, duration_ms=duration_ms)
        media = tuple(item.held() for item in self._session.media)
        return replace(record, captures=self._captures(), media=media)

    def _captures(self) -> tuple[Capture, ...]:
        ways = self._ways if self._ways - _BESIDE else self._ways | {"adapter"}
        return tuple(way for way in get_args(Capture) if way in ways)

    def _whole_turn(self) -> list[Event]:
        """The events so far, with the calls that the agent did not tell: those of its spans, then those seen."""
        while self._passed:
            self._kept(*self._passed.popleft())
        spanned = self._spanned()
        told = [*self._told, *(event.usage for event in spanned if event.usage)]
        wired = self._wired(spanned)
        untold = self._untold(told, wired.within)
        untold += [] if told or untold else self._uncounted()
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

    def _wired(self, spanned: Sequence[Event]) -> WireEvents:
        """The tool calls in the requests of an agent of own code that neither the agent nor its spans tell."""
        calls = [(at_ms, call, self._exchange(at_ms, call)) for at_ms, tool, call in self._seen if call and not tool]
        if "told" not in self._ways or not calls:
            return WireEvents()
        own = [event for event in self._events[self._n_before :] if not event.is_partial]
        return wire_events([WireCall(at_ms, call, each) for at_ms, call, each in calls if each], [*own, *spanned])

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
        if not lacks or (lacks == NO_SPANS and (self._told or is_seen)):
            return []
        at_ms = self._now_ms()
        said = Event("log", at_ms=at_ms, author="evaldesk", text=lacks)
        return [said] if is_seen else [said, Event("usage", at_ms=at_ms, author="evaldesk", usage=UNKNOWN)]

    def _spanned(self) -> list[Event]:
        """The events of the spans that the agent did not tell as well; a call of the same name is the same call."""
        events = self._spans.events() if self._spans else ()
        if not events:
            return []
        now = self._now_ms()
        told = Counter(_said(event) for event in self._events[self._n_before :] if not event.is_partial)
        usages = [event.usage for event in events if event.usage]
        news = iter(untold_of(usages, self._told, len(self._told)))
        found: list[Event] = []
        for event in (replace(event, at_ms=min(round(event.at_ms, 3), now)) for event in events):
            if event.usage:
                if next(news):
                    found.append(event)
                continue
            told[_said(event)] -= 1
            if told[_said(event)] < 0:
                found.append(event)
        return self._with_wire_tokens(self._with_arguments(found))

    def _with_arguments(self, events: list[Event]) -> list[Event]:
        """Calls whose spans tell no arguments or no result, with those of the requests in which they were seen."""
        is_full = all(
            event.call.args if event.kind == "tool_call" else event.result is not None
            for event in events
            if event.call and event.kind in ("tool_call", "tool_result")
        )
        if is_full:
            return events
        exchanges = [read_seen(call, body_of(call.request))[1] for *_, call in self._seen if call]
        seen = [call for exchange in exchanges if exchange for call in exchange.answer.calls]
        given = {each.call_id: each.result for exchange in exchanges if exchange for each in exchange.results}
        known: dict[int, ToolCall] = {}
        results: dict[int, JsonValue] = {}
        for event in events:
            call = event.call
            if event.kind == "tool_call" and call:
                match = next((each for each in seen if each.id == call.id and call.id), None)
                match = match or next((each for each in seen if each.name == call.name), None)
                if match:
                    seen.remove(match)
                    known[id(call)] = call if call.args else replace(call, args=match.args)
                    results[id(call)] = given.get(match.id)
        found = []
        for event in events:
            is_empty = event.kind == "tool_result" and event.result is None
            result = results.get(id(event.call)) if is_empty else event.result
            found.append(replace(event, call=known.get(id(event.call), event.call), result=result))
        return found

    def _with_wire_tokens(self, events: list[Event]) -> list[Event]:
        """Usages of spans with the tokens of the requests in which they were seen, which tell cached ones, too.

        A request of the same numbers is the same call; of the others the next one of the same model.
        """
        read = (self._read(at_ms, call) for at_ms, _, call in self._seen if call)
        wire_usages = [usage for usage in read if not usage.is_least]
        done: set[int] = set()
        for is_same in (_has_same_tokens, _is_of_same_model):
            for place, own in [(place, event.usage) for place, event in enumerate(events)]:
                match = next((each for each in wire_usages if own and is_same(own, each)), None)
                if match and place not in done:
                    done.add(place)
                    wire_usages.remove(match)
                    events[place] = replace(events[place], usage=match)
        return [replace(event, usage=self._whole(with_cost(event.usage))) if event.usage else event for event in events]

    def _untold(self, told: Sequence[Usage], tools: Mapping[int, str]) -> list[Event]:
        """The usages of calls that were seen and that nobody told; `tools` has the tool of inner calls, by their id."""
        if not (self._seen or self._n_asking):
            return []
        read = [
            (at_ms, tool or tools.get(id(call), ""), with_cost(self._read(at_ms, call)))
            for at_ms, tool, call in self._seen
            if call
        ]
        news = untold_of([usage for *_, usage in read], told, max(len(told) - self._n_whole, 0))
        missed = [(at_ms, tool, UNKNOWN) for at_ms, tool, call in self._seen if call is None]
        missed += [(self._now_ms(), self._open_tool(), UNKNOWN)] * self._n_asking
        return [
            Event("usage", at_ms=at_ms, author="evaldesk", within=tool, usage=usage)
            for at_ms, tool, usage in (
                *missed,
                *(
                    (at_ms, tool, self._whole(usage))
                    for (at_ms, tool, usage), new in zip(read, news, strict=True)
                    if new
                ),
            )
        ]

    def _read(self, at_ms: float, call: HttpCall) -> Usage:
        """The usage of a call that was seen; the first time, the call is kept as it was sent."""
        usage = self._usages.get(id(call))
        if usage is None:
            usage = self._usages[id(call)] = self._kept(at_ms, call)
        return usage

    def _kept(self, at_ms: float, call: HttpCall) -> Usage:
        request = body_of(call.request)
        usage, exchange = read_seen(call, request)
        if exchange:
            self._exchanges[id(call)] = exchange
        if self._prompts:
            said = exchange.raw_answer if exchange else call.answer[:MAX_RAW].decode("utf-8", "replace")
            self._prompts.add(CallPlace(self._index, at_ms), usage, read_request(request), said)
        return usage

    def _keep_spanned(self) -> None:
        """Keep the calls that spans tell of, where no call of the turn was seen itself."""
        if self._spans is None or self._prompts is None or self._prompts.has_calls_of(self._index):
            return
        now = self._now_ms()
        for at_ms, usage, sent, said in self._spans.sent_calls():
            place = CallPlace(self._index, min(max(round(at_ms, 3), 0.0), now))
            self._prompts.add(place, usage, sent, said)

    def _open_tool(self) -> str:
        """The tool that was called and has given nothing yet; empty where there is none."""
        opened: dict[tuple[str, str | None], str] = {}
        for event in self._events:
            if event.call and event.kind == "tool_call":
                opened[event.call.name, event.call.id] = event.call.name
            elif event.call and event.kind == "tool_result":
                opened.pop((event.call.name, event.call.id), None)
        return next(reversed(opened.values()), "")

    def _whole(self, usage: Usage) -> Usage:
        """The usage with facts that the agent does not know: attempts and caches of clients, a configured price."""
        n_again = len(self._again)
        for _ in range(n_again):
            self._again.popleft()
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
        return round((self._clock() - self._started) * 1000, 3)

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
            state_json = to_json(plain(state, keeps_images=False))
        if state_json == self._state_json:
            return False
        copied = plain(state, keeps_images=False)
        if not isinstance(copied, dict):
            raise AgentError("session.state cannot be read")
        is_changed = bool(self._state_json) and bool(changes(self._state, copied))
        self._state, self._state_json = copied, state_json
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


def _said(event: Event) -> tuple[str, str]:
    """The name of an event that both the agent and its spans may tell."""
    return event.kind, event.call.name if event.call else event.text.strip()


def changes(before: JsonObject, after: JsonObject) -> tuple[Change, ...]:
    """The top-level keys that differ, in the order of `after`, removed ones last. True differs from 1."""
    found = [
        Change(key, before.get(key), value, was_present=key in before)
        for key, value in after.items()
        if key not in before or to_json(before[key]) != to_json(value)
    ]
    gone = [Change(key, value, None, is_present=False) for key, value in before.items() if key not in after]
    return (*found, *gone)
