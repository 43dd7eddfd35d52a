"""The record of a trial: events, the turns they make up, the transcript, and the values that the agent reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import Final, Literal, TypeAlias, TypeGuard, get_args

from evaldesk.errors import NAME_LIMIT, VALUE_LIMIT, BadNumberError
from evaldesk.model.decisions import Decision, Waiting
from evaldesk.model.evalset import JsonObject, JsonValue, ToolCall
from evaldesk.model.media import Media, images_in
from evaldesk.model.options import Limits, ModelOptions
from evaldesk.model.visibility import Level, Unseen, Visibility

EventKind: TypeAlias = Literal[
    "user_message",
    "agent_message",
    "tool_call",
    "tool_result",
    "state_delta",
    "usage",
    "log",
    "error",
    "waiting",
    "decision",
]
StopReason: TypeAlias = Literal[
    "answered",
    "awaiting_approval",
    "max_iterations",
    "max_turns",
    "stuck",
    "context_window",
    "budget",
    "content_filter",
    "usage_limit",
    "refused_by_model",
    "refused_by_guardrail",
    "error",
    "timed_out",
    "cancelled",
    "interrupted",
]
Role: TypeAlias = Literal["agent", "user", "judge"]
AskedBy: TypeAlias = Literal["person", "simulated", "scripted"]
Capture: TypeAlias = Literal["adapter", "told", "spans", "gateway", "answers"]
"""Who says what an agent did: the hooks of its framework, the agent itself, its spans, or its model requests.

`answers`: only its answers are seen; a tool call of its would not be.
"""

FATAL_KINDS: frozenset[str] = frozenset(
    {
        "agent_import",
        "metric_import",
        "authentication",
        "permission",
        "quota",
        "unknown_model",
        "no_model",
        "client_setup",
    }
)
"""Kinds of errors that every other trial of a run would meet; only Evaldesk itself says that one is so."""
BOUNDS: frozenset[str] = frozenset(
    # An agent at its limit failed; only a fault around it is an error: decision 014.
    {"max_turns", "max_iterations", "stuck", "context_window", "budget", "content_filter", "usage_limit"}
)
"""Stop reasons of a turn in which the agent went on until a bound of its own and never answered."""
AWAITING: Final = "awaiting_approval"
"""The stop reason of a turn in which the agent waits for the decision or the input of a person."""
REFUSALS: frozenset[str] = frozenset({"refused_by_model", "refused_by_guardrail"})
"""Stop reasons of a turn that the model or a guardrail of the agent refused; the conversation may go on."""
REFUSED_BY: Final = "refused by guardrail "
"""The log of such a turn begins so; the name of the guardrail follows."""
UNANSWERED: frozenset[str] = BOUNDS | REFUSALS | {AWAITING}
"""Stop reasons of a turn that ended without an answer, and without a failure."""
OUTCOMES: frozenset[str] = UNANSWERED | {"answered"}
"""Stop reasons that a case can expect of a turn: all that are neither failures nor ends from outside."""
UNMADE: Final = (", which has no result", ", which waits for an answer")
"""What stands behind the name of a call that was not made: in a turn that was cut short, and in one that waits."""


def known_sum(costs: Iterable[float | None]) -> float | None:
    """The sum of costs; None as soon as one is not known, and of no costs."""
    all_costs = [*costs]
    return sum(cost for cost in all_costs if cost is not None) if all_costs and None not in all_costs else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one model call. `cost` is US dollars, None where the price is unknown, never 0 for that.

    A call that was answered from a recording or a cache `is_replayed`: it cost nothing, and is no answer of its own.
    `tokens_cached` are those of `tokens_in` that the provider had read before, `tokens_reasoning` those of
    `tokens_out` that nobody sees. Of a call whose tokens are not known all numbers `is_least`. An answer `is_cut` where
    the model reached its limit of tokens.
    """

    model: str
    role: Role = "agent"
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    n_attempts: int = 1
    duration_ms: float = 0.0
    is_replayed: bool = False
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    is_least: bool = False
    is_cut: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens_in", "tokens_out", "n_attempts", "tokens_cached", "tokens_reasoning"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= MAX_NUMBER:  # thousands are read for a page of trials
                object.__setattr__(self, name, checked_count(f"usage.{name}", value))
        object.__setattr__(self, "duration_ms", checked_amount("usage.duration_ms", self.duration_ms))
        if self.cost is not None:
            object.__setattr__(self, "cost", checked_amount("usage.cost", self.cost))


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """A failure as a value: a short stable `kind`, one sentence, and the trace where there is one."""

    kind: str
    message: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One top-level key of the session state before and after; absent is told from null by the flags."""

    key: str
    before: JsonValue = None
    after: JsonValue = None
    was_present: bool = True
    is_present: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """One thing inside a turn. Which fields are set depends on `kind`:

    - `user_message`, `agent_message`, `log`: `text`; a streamed piece of an answer has `is_partial` and is not kept; a
      message of the agent may have `media`
    - `tool_call`: `call`
    - `tool_result`: `call`, `result`, `is_error`, `duration_ms`
    - `state_delta`: `changes`
    - `usage`: `usage`
    - `error`: `error`
    - `waiting`: `waiting`, which a person is asked about
    - `decision`: `waiting` and the `decision` of the `author`

    `at_ms` counts from the start of the turn. `within` names the tool inside of which it happened, an agent used as
    a tool say: such calls and messages are shown, but are not the agent's own. `author` is the agent of a tree that
    said or did it, `parent` the agent above that one, where its framework tells it.
    """

    kind: EventKind
    at_ms: float = 0.0
    author: str = ""
    text: str = ""
    call: ToolCall | None = None
    result: JsonValue = None
    is_error: bool = False
    is_partial: bool = False
    duration_ms: float | None = None
    changes: tuple[Change, ...] = ()
    usage: Usage | None = None
    error: ErrorRecord | None = None
    within: str = ""
    waiting: Waiting | None = None
    decision: Decision | None = None
    media: tuple[Media, ...] = ()
    parent: str = ""


ARTIFACTS = "artifacts"
"""The author of a log event that has the name and the text of a file that the agent made."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """The events of one turn with the session state before and after it; `asked_by` is None where it was not noted.

    `captures` are the ways by which its calls and tokens became known; empty where that was not noted. `unseen` are
    further parts that cannot be seen. `paused` is what the agent needs to go on in another process with a turn of a
    chat that waits; None where it cannot. `media` go with the text of the query. `start_time` is the one of the
    first turn of its conversation, in seconds since 1970 by the clock of its player; None where it was not noted.
    """

    query: str
    events: tuple[Event, ...] = ()
    state_before: JsonObject = field(default_factory=dict)
    state_after: JsonObject = field(default_factory=dict)
    duration_ms: float = 0.0
    stop_reason: StopReason = "answered"
    asked_by: AskedBy | None = None
    captures: tuple[Capture, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    paused: JsonValue = None
    media: tuple[Media, ...] = ()
    start_time: float | None = None

    @property
    def open_requests(self) -> tuple[Waiting, ...]:
        """The requests to a person, in a turn that ended with them."""
        return waiting_of(self.events) if self.stop_reason == AWAITING else ()

    @property
    def hides_calls(self) -> bool:
        """Whether only its answer was seen: it may have called any tool. (decision 520)"""
        return "answers" in self.captures

    @property
    def own_events(self) -> tuple[Event, ...]:
        """The events of the agent itself, and of the agents it hands over to; model calls inside a tool are paid, too.

        What else happened inside a tool is no step of the agent: nothing judges, compares or exports it as one.
        """
        return tuple(event for event in self.events if not event.within or event.usage)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the agent in order, without calls inside a tool."""
        return tuple(event.call for event in self.own_events if event.kind == "tool_call" and event.call)

    @property
    def known_calls(self) -> tuple[ToolCall, ...] | None:
        """The calls of `tool_calls`; None where only the answer was seen, so that a case can expect none of them."""
        return None if self.hides_calls else self.tool_calls

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of `tool_calls` without a result."""
        results = Counter(call_key(event.call) for event in self.events if event.kind == "tool_result" and event.call)
        calls = []
        for call in self.tool_calls:
            results[call_key(call)] -= 1
            if results[call_key(call)] < 0:
                calls.append(call)
        return tuple(calls)

    # A call that waits or was cut off did not happen: decision 251.
    @property
    def judged_calls(self) -> tuple[ToolCall, ...]:
        """`tool_calls` as they are compared with the expected calls.

        In a turn that ended before its agent did, a call on which it waits for a person, or that has no result, gets a
        name that no expected call has: what a tool told before the decision is no result of the call. An agent that
        tells no results at all is judged by its calls, unless they wait. A turn of a file is only interrupted, or ended
        by a bound, where the file would tell them.
        """
        calls, unmade = self.tool_calls, set[int]()
        n_results = Counter(call_key(event.call) for event in self.events if event.kind == "tool_result" and event.call)
        is_waiting = self.stop_reason == AWAITING
        is_told = "adapter" in self.captures or (not self.captures and self.stop_reason in BOUNDS | {"interrupted"})
        if self.stop_reason == "answered" or not (n_results or is_waiting or is_told):
            return calls
        for at, call in enumerate(calls):
            n_results[call_key(call)] -= 1
            if n_results[call_key(call)] < 0:
                unmade.add(at)
        free = set(range(len(calls)))
        for request in self.open_requests:
            same_name = [at for at in free if calls[at].name == request.tool]
            likeness = [
                (calls[at].id == request.id, calls[at].args == request.args, at in unmade, at) for at in same_name
            ]
            *is_like, nearest = max(likeness, default=(False, 0))
            if any(is_like) or (same_name and not request.args):
                free.discard(nearest)
                unmade.add(nearest)
        why = UNMADE[is_waiting]
        return tuple(replace(call, name=call.name + why) if at in unmade else call for at, call in enumerate(calls))

    @property
    def answer(self) -> str:
        """The agent's last message, when no tool call follows it; empty when it never answered.

        A model's text beside a tool call is not its answer, even when nothing comes after; nor is any text in a turn
        that reached its bound or waits for a person.
        """
        messages = self._messages
        return messages[-1].text if messages and self._is_answered else ""

    @property
    def intermediate(self) -> tuple[tuple[str, str], ...]:
        """The agent's messages before its answer, as (author, text)."""
        messages = self._messages[:-1] if self._is_answered else self._messages
        return tuple((event.author, event.text) for event in messages)

    @property
    def usages(self) -> tuple[Usage, ...]:
        """One entry for each model call of the turn."""
        return tuple(event.usage for event in self.events if event.usage)

    @property
    def is_cut(self) -> bool:
        """Whether an answer of the agent's model was cut at its limit of tokens."""
        return any(usage.is_cut and usage.role == "agent" for usage in self.usages)

    @property
    def all_media(self) -> tuple[Media, ...]:
        """The media of its query, and of the messages of the agent."""
        return (*self.media, *(item for event in self.events for item in event.media))

    @property
    def guardrail(self) -> str:
        """The name of the guardrail that refused the turn; empty for any other turn."""
        if self.stop_reason != "refused_by_guardrail":
            return ""
        texts = (event.text for event in reversed(self.events) if event.kind == "log")
        return next((text[len(REFUSED_BY) :] for text in texts if text.startswith(REFUSED_BY)), "")

    @property
    def error(self) -> ErrorRecord | None:
        """Why the turn broke off, or None."""
        return next((event.error for event in self.events if event.error), None)

    @property
    def _is_answered(self) -> bool:
        if self.stop_reason in UNANSWERED:
            return False
        kinds = [event.kind for event in self.events if not (event.is_partial or event.within)]
        answers = [kind for kind in kinds if kind in {"agent_message", "tool_call"}]
        return bool(answers) and answers[-1] == "agent_message"

    @property
    def _messages(self) -> list[Event]:
        answers = (event for event in self.events if event.kind == "agent_message")
        return [event for event in answers if not (event.is_partial or event.within)]


def call_key(call: ToolCall) -> str:
    """The id that a call shares with its result; its name where it has no id."""
    return call.id or call.name


def waiting_of(events: Iterable[Event]) -> tuple[Waiting, ...]:
    """The open requests to a person, in order."""
    requests: dict[str, Waiting] = {}
    for event in events:
        if event.waiting and event.kind == "waiting":
            requests[event.waiting.id] = event.waiting
        elif event.waiting and event.kind == "decision":
            requests.pop(event.waiting.id, None)
    return tuple(requests.values())


def last_stop(turns: Sequence[TurnRecord]) -> StopReason:
    """The stop reason of a trial of these turns without an error, also that an earlier turn waits for a person."""
    if turns and turns[-1].stop_reason in UNANSWERED:
        return turns[-1].stop_reason
    return AWAITING if any(turn.stop_reason == AWAITING for turn in turns) else "answered"


def image_length(event: Event) -> int:
    """Characters of the images in a result of a tool."""
    if event.kind != "tool_result":
        return 0
    return sum(len(item.data) for item in images_in(event.result))


def broken_turn(
    query: str,
    events: Sequence[Event],
    state_before: JsonObject,
    stop_reason: StopReason,
    error: ErrorRecord | None = None,
    duration_ms: float | None = None,
) -> TurnRecord:
    """The record of a turn that ended before its agent did, made of its events so far.

    The state after it is the one before with every change that was seen. `error` is its last event, unless the agent
    named an error last itself; a cancelled turn has none. Without `duration_ms` it lasted until its last event.
    """
    full_events = [event for event in events if not event.is_partial]
    if not any(event.kind == "user_message" for event in full_events):
        full_events.insert(0, Event("user_message", author="user", text=query))
    duration_ms = full_events[-1].at_ms if duration_ms is None else duration_ms
    if error and full_events[-1].kind != "error":
        full_events.append(Event("error", at_ms=duration_ms, error=error))
    state = dict(state_before)
    for change in (change for event in full_events for change in event.changes):
        state.pop(change.key, None)
        if change.is_present:
            state[change.key] = change.after
    return TurnRecord(query, tuple(full_events), state_before, state, duration_ms, stop_reason)


def interrupted_turn(query: str, events: Sequence[Event], state: JsonObject, asked_by: AskedBy) -> TurnRecord:
    """The record of a turn whose desk died: its events so far, and the pieces of an unfinished answer as one message.

    The state is the one before the turn: the agent's changes were not the state of a finished turn.
    """
    pieces: list[Event] = []
    for event in events:
        if event.kind == "agent_message":
            pieces = [*pieces, event] if event.is_partial else []
    if pieces:
        message = replace(pieces[0], text="".join(piece.text for piece in pieces), is_partial=False)
        events = (*events, message)
    record = broken_turn(query, events, state, "interrupted", duration_ms=events[-1].at_ms if events else 0.0)
    return replace(record, state_after=state, asked_by=asked_by)


def told_captures(captures: Sequence[Capture]) -> tuple[Capture, ...]:
    """The captures of a turn whose agent turned out to tell its tool calls: no call told is no call."""
    ways = {"told" if way == "answers" else way for way in captures}
    return tuple(way for way in get_args(Capture) if way in ways)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The turns of a trial or of a chat session."""

    turns: tuple[TurnRecord, ...] = ()

    @property
    def start_time(self) -> float | None:
        """The start of the first turn, in seconds since 1970; None where that was not noted."""
        return self.turns[0].start_time if self.turns else None

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The ways by which calls and tokens became known, in a fixed order; empty where that was not noted."""
        ways = {way for turn in self.turns for way in turn.captures}
        return tuple(way for way in get_args(Capture) if way in ways)

    @property
    def visibility(self) -> Visibility:
        """How far the agent can be seen; whole where that was not noted, as of a transcript of a file."""
        n_unseen = sum(turn.hides_calls for turn in self.turns)
        calls = _level(n_unseen, len(self.turns))
        usages = [usage for turn in self.turns for usage in turn.usages if usage.role == "agent"]
        tokens = _level(sum(usage.is_least for usage in usages), len(usages))
        if not usages and self.captures and "adapter" not in self.captures:
            tokens = "none" if calls == "none" else "part"  # it may have asked no model at all
        open_calls = [call for turn in self.turns if turn.stop_reason == "answered" for call in turn.open_calls]
        return Visibility(
            calls=calls,
            results="part" if open_calls and calls == "whole" else calls,
            inner_calls="none" if calls == "none" else "whole" if "spans" in self.captures else "part",
            tokens=tokens,
            state=_level(sum("state" in turn.unseen for turn in self.turns), len(self.turns)),
        )

    @property
    def media(self) -> tuple[Media, ...]:
        """The images, sounds and files of all its messages."""
        return tuple(item for turn in self.turns for item in turn.all_media)

    @property
    def artifacts(self) -> JsonObject:
        """The texts of the files that the agent made, by their names; the last version of each."""
        logs = (event.text for turn in self.turns for event in turn.events if event.author == ARTIFACTS)
        return {name: text for name, is_named, text in (log.partition(":\n") for log in logs) if is_named}

    @property
    def final_state(self) -> JsonObject:
        """The session state after the last turn; empty when no turn was played."""
        return self.turns[-1].state_after if self.turns else {}


def _level(n_unseen: int, n: int) -> Level:
    if not n_unseen:
        return "whole"
    return "none" if n_unseen == n else "part"


@dataclass(slots=True)
class Session:
    """One conversation with an agent, as the agent's adapter sees it; `state` is the agent's to change.

    `turns` holds the finished turns. `memory` belongs to the adapter (an instance of the user's class, say):
    it lives as long as the worker keeps the session and is never stored. `paused` is what the adapter needs to go on
    with a turn that waits where that memory is gone, as JSON; None where it cannot. `media` go with the text of the
    message that the agent is to answer.
    """

    id: str
    state: dict[str, JsonValue] = field(default_factory=dict)
    turns: list[TurnRecord] = field(default_factory=list)
    app_name: str = ""
    user_id: str = "user"
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    is_streaming: bool = False
    memory: dict[str, object] = field(default_factory=dict)
    paused: JsonValue = None
    media: tuple[Media, ...] = ()


AUTHOR = "report"
ARTEFACT = "artefact"


def report(values: JsonObject) -> Event:
    """The event that carries `values`, which must be plain JSON."""
    return Event("log", author=AUTHOR, text=f"The agent reports {', '.join(values)}.", result=dict(values))


def reported_values(transcript: Transcript) -> dict[str, JsonValue]:
    """All reports of a trial, by name; the last of a name counts."""
    values: dict[str, JsonValue] = {}
    for turn in transcript.turns:
        for event in turn.events:
            if event.kind == "log" and event.author == AUTHOR and isinstance(event.result, dict):
                values |= event.result
    return values


def artefact(form: str, text: str) -> Event:
    """The event that carries the result of the agent's own code, byte for byte; `form` names its format."""
    return Event("log", author=ARTEFACT, result={"form": form, "text": text})


def is_artefact(event: Event) -> bool:
    """Whether the event carries such a text, whole."""
    content = event.result
    if event.kind != "log" or event.author != ARTEFACT or not isinstance(content, dict):
        return False
    return set(content) == {"form", "text"} and all(isinstance(value, str) for value in content.values())


def artefact_text(transcript: Transcript, form: str) -> str | None:
    """The text that the code of the agent gave in that form; None where there is none, or it had to be cut."""
    for turn in transcript.turns:
        for event in turn.events:
            if is_artefact(event) and isinstance(event.result, dict) and event.result["form"] == form:
                return str(event.result["text"])
    return None


# Larger whole numbers are no longer exact as floats of JSON readers: decision 028.
MAX_NUMBER = 2**53
"""The largest number of tokens, dollars or milliseconds: what a float still counts by ones."""


def checked_amount(name: str, value: object) -> float:
    """The number, from 0 to 2**53, of any numeric type. Raises BadNumberError naming the field."""
    number = value if type(value) is float or type(value) is int else _as_number(value)
    if not isinstance(number, int | float) or not 0 <= number <= MAX_NUMBER:
        value_words = value if isinstance(value, int | float) else f"{type(value).__name__} {str(value)[:NAME_LIMIT]!r}"
        raise BadNumberError(f"{name} must be a number from 0 to 2**53, got {str(value_words)[:VALUE_LIMIT]}")
    return number


def checked_count(name: str, value: object) -> int:
    """As `checked_amount`, for a whole number."""
    number = checked_amount(name, value)
    if number != int(number):
        raise BadNumberError(f"{name} must be a whole number, got {number}")
    return int(number)


# Never 0: a sum with it is "at least" (decision 300).
UNKNOWN = Usage("unknown", is_least=True)
"""The usage of a call of which nothing is known."""


def is_score(value: object) -> TypeGuard[float]:
    """Whether a score can have that value: a number, not a truth value, from -2**53 to 2**53."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def check_turn(turn: TurnRecord) -> None:
    """Raise BadNumberError for a time of the turn or of one of its events that cannot be."""
    checked_amount("turn.duration_ms", turn.duration_ms)
    if turn.start_time is not None:
        checked_amount("turn.start_time", turn.start_time)
    for event in turn.events:
        check_event(event)


def check_event(event: Event) -> None:
    """Raise BadNumberError for a time of the event that cannot be."""
    checked_amount("event.at_ms", event.at_ms)
    if event.duration_ms is not None:
        checked_amount("event.duration_ms", event.duration_ms)


def _as_number(value: object) -> float | None:
    """A number of another library as a float; None for any other value, truth values included."""
    is_number = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type] # both can be made a float
