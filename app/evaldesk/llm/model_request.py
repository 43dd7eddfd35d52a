"""A model request that an HTTP library sends, and the turn and the recording that it belongs to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import REASON_LIMIT
from evaldesk.llm.apis import OWN_ADDRESSES, api_of, model_in
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder, diverged_error, is_replaying, not_recorded_error
from evaldesk.llm.redirects import is_asking_model
from evaldesk.llm.refusals import STRICTNESS, dropped_fields_note, without_fields
from evaldesk.llm.retry_events import (
    PLAYED_TURN,
    AnsweredRequest,
    CallAnswers,
    HttpCall,
    TurnListener,
    body_of,
    current_turns,
    hide_requests,
    hides_requests,
)
from evaldesk.model import JsonObject

_SEED = "seed"  # differs from run to run
_KIND = "http"
END_MARK = b"[DONE]"
"""The last line of a stream of OpenAI's API."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model request of a turn, and its key in the recording of the trial, if any."""

    path: str
    data: bytes | Mapping[str, Any] | None
    turn: TurnListener | None
    recorder: Recorder | None = None
    content: JsonObject = field(default_factory=dict)
    key: str = ""
    start_s: float = field(default_factory=time.perf_counter)

    @property
    def has_usage(self) -> bool:
        """Whether its answer has token usage."""
        return api_of(self.path) is not None

    def find_recording(self) -> dict[str, Any] | None:
        """The recorded answer; None to call the model. Raises ModelError."""
        entry = self.recorder.find(self.key, f"the call of {self.model}") if self.recorder else None
        if self.turn and self.has_usage:
            self.turn.note_request()
        return entry

    @property
    def model(self) -> str:
        """The model in the body or path of the request, else its path."""
        body = self.content.get("body") if self.recorder else _body(self.data)
        name = body.get("model") if isinstance(body, Mapping) else None
        return name if isinstance(name, str) else model_in(self.path) or self.path

    def without_unsupported(self, request: Any) -> Any:
        """The request without the fields that its model refused before; None without such fields.

        Only fields of the run's options count: a field of the agent itself fails here as in production.
        """
        body = body_of(request.content)
        names = STRICTNESS.unknown_to(str(body.get("model")), str(request.url)) & self._optional_fields(body)
        if not names:
            return None
        return with_body(request, without_fields(body, names))

    def learn_refusal(self, request: Any, status: int, answer: bytes) -> Any:
        """The request without the fields that this answer refuses, which are reported to the turn; None without any."""
        body = body_of(request.content)
        optional_fields, model, text = (
            self._optional_fields(body),
            str(body.get("model")),
            answer.decode("utf-8", "replace"),
        )
        new_fields = STRICTNESS.learn(model, str(request.url), optional_fields, status, text) & optional_fields
        if self.turn and (note := dropped_fields_note(model, new_fields)):
            self.turn.log_note(note)
        return self.without_unsupported(request)  # also what a call beside it learned meanwhile

    def _optional_fields(self, body: JsonObject) -> frozenset[str]:
        return self.turn.optional_fields & body.keys() if self.turn and self.has_usage else frozenset()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """A context to send the request in; a failure is recorded, and its recording key is released."""
        try:
            with hide_requests():
                yield
        except BaseException as error:
            self.record_error(error)
            raise

    def record_answer(self, data: bytes, answer: JsonObject) -> None:
        """Record the answer, and report it to the turn."""
        if self.recorder:
            self.recorder.keep(self.key, answer)
        self.report(data)

    def record_error(self, error: BaseException) -> None:
        """Report a request that raised."""
        self.record_failure(f"{type(error).__name__}: {error}"[:REASON_LIMIT])

    def record_failure(self, why: str) -> None:
        """Report a failed request, and release its recording key."""
        self.release()
        if self.turn and self.has_usage:
            self.turn.note_failed_request()
            took_ms = (time.perf_counter() - self.start_s) * 1000
            self.turn.note_failure(HttpCall(self.path, self.data or b"", b"", took_ms), why, took_ms)

    def release(self) -> None:
        """Release the recording key for the next equal request."""
        if self.recorder:
            self.recorder.release(_KIND, self.content)

    def fault(self) -> str:
        """The fault to inject into the request; empty for none."""
        return self.turn.fault(self.model) if self.turn and self.has_usage else ""

    def report(self, data: bytes, *, is_replayed: bool = False) -> None:
        """Report the answer to the turn, if it has token usage."""
        if self.turn and self.has_usage:
            took_ms = (time.perf_counter() - self.start_s) * 1000
            self.turn.note_answer(HttpCall(self.path, self.data or b"", data, took_ms, is_replayed=is_replayed))


def with_body(request: Any, body: Mapping[str, Any]) -> Any:
    """The request of httpx with another body."""
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    data = json.dumps(body).encode()
    return type(request)(request.method, request.url, headers=headers, content=data, extensions=request.extensions)


def answers_of_turn(path: str) -> CallAnswers | None:
    """The answers to the calls of a model request; None inside of a call of our own client, or without any."""
    if hides_requests() or api_of(path) is None:
        return None
    turns = current_turns()
    turn = PLAYED_TURN.get() or (turns[0] if len(turns) == 1 else None)
    return turn.call_answers if turn else None


@contextmanager
def sending_again(answered: AnsweredRequest) -> Iterator[None]:
    """Note a request that fails, so that it goes on where it was when its client sends it again."""
    try:
        yield
    except BaseException:
        answered.fail()
        raise


def request_of_turn(path: str, data: bytes | Mapping[str, Any] | None) -> ModelRequest | None:
    """The model request; None inside a call of our own client, or without a turn. Raises ModelError in a replay."""
    if hides_requests():
        return None
    turn, recorder = PLAYED_TURN.get(), CURRENT_RECORDER.get()
    if recorder is not None:
        content: dict[str, Any] = {"path": path, "body": _body(data)}
        return ModelRequest(path, data, turn, recorder, content, recorder.key(_KIND, content))
    if turn is None:
        refuse_in_replay("it is asked from a thread that does not know its trial")
        turn = only_turn()
    return ModelRequest(path, data, turn) if turn else None


def unrecorded_request(path: str, data: bytes | Mapping[str, Any], reason: str) -> ModelRequest | None:
    """A request that is counted and not recorded, for a `reason`; None where nobody listens or its API is not known.

    Raises ModelError in a replay.
    """
    if hides_requests():
        return None
    refuse_in_replay(reason)
    turn = PLAYED_TURN.get() or only_turn()
    if turn is None:
        return None
    request = ModelRequest(path, data, turn)
    (turn.note_request if request.has_usage else turn.note_missed_call)()
    return request if request.has_usage else None


def only_turn() -> TurnListener | None:
    """The only current turn, for a request from an agent's own thread; several turns each note a missed call."""
    turns = current_turns()
    if len(turns) > 1:
        for turn in turns:
            turn.note_missed_call()
    return turns[0] if len(turns) == 1 else None


def _body(data: bytes | Mapping[str, Any] | None) -> object:
    if data is None or isinstance(data, Mapping):
        body: object = data
    else:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace")
    return {name: value for name, value in body.items() if name != _SEED} if isinstance(body, Mapping) else body


def note_missed_call(reason: str) -> None:
    """Note a request with an unreadable answer. Raises ModelError in a replay."""
    if hides_requests():
        return
    refuse_in_replay(reason)
    turn = PLAYED_TURN.get() or only_turn()
    if turn:
        turn.note_missed_call()


def refuse_in_replay(reason: str) -> None:
    """Raise ModelError when model calls are not allowed: the trial, or another one of the process, is a replay."""
    recorder = CURRENT_RECORDER.get()
    replays = is_replaying() and PLAYED_TURN.get() is None
    if recorder and recorder.n_prefix_calls and recorder.prefix_error:
        recorder.replay_error = diverged_error(f"a call before the point of the fork cannot be recorded: {reason}")
        raise recorder.replay_error
    if recorder.recording.mode == "replay" if recorder else replays:
        error = not_recorded_error(f"a replay asks no model, and this call cannot be recorded: {reason}")
        if recorder:
            recorder.replay_error = error
        raise error


def is_to_model(host: str, path: str) -> bool:
    return host not in OWN_ADDRESSES and (is_asking_model() or api_of(path) is not None)
