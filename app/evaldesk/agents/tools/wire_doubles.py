"""Doubles and denials for agents without an adapter: the model's call is answered before its client sees it.

The call and its answer are put into the request, and the model is asked again. Later requests of the client get the
calls that it never saw. (decision 508)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evaldesk.agents.tools.doubles import CURRENT_DOUBLES, ToolDoubles
from evaldesk.agents.tools.functions import Outcome
from evaldesk.errors import NO_DOUBLE, FormatError, ModelError, NoDoubleError
from evaldesk.llm.apis import Api, api_of
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import Session, ToolCall, Waiting
from evaldesk.model.decisions import Decision
from evaldesk.transcripts.answered_calls import (
    MESSAGES,
    AnsweredCall,
    continued_request,
    hidden_messages,
    is_from_model,
    messages_of,
    prefix_key,
    result_messages,
    with_answered_calls,
    without_calls,
)
from evaldesk.transcripts.model_exchanges import read_exchange
from evaldesk.transcripts.plumbing import is_answer_call

MAX_ROUNDS = 100
"""Answers that doubles alone can answer, one after the other."""
DENIED = "The call was denied."
CASE = "case"  # the mark in a transcript of a call that a decision of the case refused
UNANSWERED = (
    "The requests of this agent's model client cannot be answered here: use a client that sends by httpx, "
    "requests, urllib3, aiohttp or that of Google, start it as a process or a command with model_gateway, or let the "
    "agent call its tools by evaldesk.call_tool: docs/tool-doubles.md"
)
_MEMORY = "wire_doubles"
_OTHER_SHAPE = (FormatError, ValueError, LookupError, TypeError, AttributeError, RecursionError)

Log: TypeAlias = Callable[[str, str], object]
"""Takes a text and its author."""


def answer_calls(session: Session, log: Log | None = None, *, denies: bool) -> None:
    """Answer the tool calls of the current turn's model requests by the doubles of the trial.

    With `denies`, the agent cannot wait for a person: a call that the case denies is refused to the model.
    """
    turn, doubles = PLAYED_TURN.get(), CURRENT_DOUBLES.get()
    if turn is None or (doubles is None and not (denies and turn.has_denials)):
        return
    answers = session.memory.get(_MEMORY)
    if not isinstance(answers, WireDoubles):
        answers = session.memory[_MEMORY] = WireDoubles(session, doubles)
    answers.log, answers.take_denial = log or turn.log_note, turn.take_denial if denies else _no_denial
    turn.answer_calls(answers)


def _no_denial(_: Waiting) -> None:
    return None


@dataclass(frozen=True, slots=True)
class _HiddenRound:
    """The calls of one request that its client never saw: `key` are its first `n` messages.

    `messages` follow them; `answered` were made beside the calls of the message after them.
    """

    n: int
    key: str
    messages: Sequence[Any]
    answered: Sequence[AnsweredCall]


@dataclass(slots=True)
class WireDoubles:
    """The doubles and the denials of one trial at the requests of its client; `failure` ends the trial."""

    session: Session
    doubles: ToolDoubles | None
    log: Log = print
    take_denial: Callable[[Waiting], Decision | None] = _no_denial
    failure: NoDoubleError | None = None
    rounds: list[_HiddenRound] = field(default_factory=list)
    outputs: dict[str, Sequence[AnsweredCall]] = field(default_factory=dict)
    failed: dict[str, AnsweredRequest] = field(default_factory=dict)
    n_calls: Counter[str] = field(default_factory=Counter)
    # Clients of one trial may call their model from several threads at once (decision 508).
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, path: str, body: Mapping[str, Any]) -> AnsweredRequest:
        """The request of a client, with the calls that it never saw."""
        self.check()
        api = api_of(path)
        assert api  # noqa: S101 - no other request is answered
        own = messages_of(api, body)
        with self.lock:
            failed_request = self.failed.pop(prefix_key(own), None)
        if failed_request:  # the client sends it again: the model goes on where it was
            return failed_request
        messages, n_more = list(own), 0
        with self.lock:
            rounds = [each for each in self.rounds if _belongs(api, each, own)]
            earlier = self.outputs.get(_server_state(body), ())
        for each in rounds:
            at = each.n + n_more
            longer = [*messages[:at], *each.messages, *messages[at:]]
            if each.answered:
                longer = with_answered_calls(api, longer, at + len(each.messages), each.answered)
            messages, n_more = longer, n_more + len(longer) - len(messages)
        request = dict(body)
        if rounds or earlier:
            request[MESSAGES[api]] = [*result_messages(api, earlier), *messages]
        return AnsweredRequest(self, api, path, request, own)

    def check(self) -> None:
        """Raise the failure that ends the trial as the failure of a model call, which no client tries again."""
        if self.failure:
            raise ModelError(str(self.failure), kind=NO_DOUBLE)

    def check_calls(self, names: Iterable[str]) -> None:
        """Raise NoDoubleError for a call of a tool with doubles that none of them was asked about."""
        self.n_calls.update(names)
        for name in self.doubles.plan.tools if self.doubles else ():
            if self.doubles and self.n_calls[name] > self.doubles.n_calls[name]:
                raise NoDoubleError(f"{name} was called past its double. {UNANSWERED}")

    async def outcome(self, call: ToolCall) -> Outcome | None:
        """The outcome of a call without its tool; None to hand it to the client. Raises NoDoubleError."""
        outcome = self._denied(call)
        if self.doubles and outcome:
            self.doubles.n_calls[call.name] += 1
        elif self.doubles:
            outcome = await self.doubles.answer(call.name, call.args, self.session.state)
        if outcome:
            self.log(outcome.note, outcome.source)
        return outcome

    def _denied(self, call: ToolCall) -> Outcome | None:
        request = Waiting(call.id or "", call.name, call.args, ("deny",))
        denial = self.take_denial(request)
        if denial is None:
            return None
        note = f"{call.name} was refused to the model, as the case decides; the agent asked nobody"
        return Outcome(denial.reason or DENIED, is_error=True, note=note, source=CASE)


@dataclass(slots=True)
class AnsweredRequest:
    """A request of a client until it gets its answer. `body` is the request to send next."""

    doubles: WireDoubles
    api: Api
    path: str
    body: dict[str, Any]
    own: Sequence[Any]
    _hidden: list[Any] = field(default_factory=list)
    _n_rounds: int = 0

    async def go_on(self, answer: bytes) -> bytes | None:
        """The answer for the client; None where the model reads results first. Raises ModelError without a double."""
        try:
            exchange = read_exchange(self.api, self.path, self.body, answer)
        except _OTHER_SHAPE:
            return answer
        answered: dict[int, AnsweredCall] = {}
        try:
            for place, call in enumerate(exchange.answer.calls):
                if is_answer_call(call.name, self.body):
                    continue
                outcome = await self.doubles.outcome(call)
                if outcome:
                    answered[place] = AnsweredCall(call, outcome.result, outcome.is_error)
            if self._n_rounds == MAX_ROUNDS:
                raise NoDoubleError(f"doubles answered {MAX_ROUNDS} calls of one request; the model ends nowhere")
        except NoDoubleError as error:
            self.doubles.failure = error
        self.doubles.check()
        calls = [*answered.values()]
        self._n_rounds += 1
        if calls and len(calls) == len(exchange.answer.calls):
            self._hidden += hidden_messages(self.api, exchange, calls)
            self.body = continued_request(self.api, self.body, exchange, calls)
            return None
        self._close(exchange.id, calls)
        return without_calls(self.api, answer, answered) if calls else answer

    def fail(self) -> None:
        """Go on from here when the client sends its request again."""
        if self._hidden:
            with self.doubles.lock:
                self.doubles.failed[prefix_key(self.own)] = self

    def _close(self, answer_id: str, answered: Sequence[AnsweredCall]) -> None:
        if not (self._hidden or answered):
            return
        with self.doubles.lock:
            state = _server_state(self.body)
            if answered and (answer_id or state):
                conversation = self.body.get("conversation")
                self.doubles.outputs[_server_state({"conversation": conversation}) or answer_id] = answered
            if not state:
                key = prefix_key(self.own)
                self.doubles.rounds.append(_HiddenRound(len(self.own), key, self._hidden, answered))


def _server_state(body: Mapping[str, Any]) -> str:
    """The response or conversation from which a server goes on by itself; empty where the request has it all."""
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    return str(body.get("previous_response_id") or conversation or "")


def _belongs(api: Api, hidden: _HiddenRound, messages: Sequence[Any]) -> bool:
    """Whether the client goes on from the answer after the hidden calls."""
    return (
        len(messages) > hidden.n
        and is_from_model(api, messages[hidden.n])
        and prefix_key(messages[: hidden.n]) == hidden.key
    )
