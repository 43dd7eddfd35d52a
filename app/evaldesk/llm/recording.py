"""Recordings: answers of models and tools in files, to replay a trial without model and tool calls.

The recording key is the content of the request, the index of the trial, and the number of earlier equal requests in the
trial, so repeats of a case never share an answer. The seed is left out, because it differs between runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.durable_files import make_folder, replace_file
from evaldesk.errors import NOT_RECORDED, PREFIX_DIVERGED, BadNumberError, ModelError
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.model import JsonObject
from evaldesk.model.options import Recording
from evaldesk.secrets import mask_values, scrubber
from evaldesk.wire import converted

# Messages are plain JSON, but for objects that a framework may leave in them.
_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=repr)
_decoder = msgspec.json.Decoder(dict[str, Any])


@dataclass(slots=True)
class Recorder:
    """The recording in one trial; `replay_error` is the error of a call without an answer in the replay.

    With `n_prefix_calls` it is that of a fork inside a turn: the first model calls, and the tool calls among and after
    them, are answered from the recording of the parent, the later ones are live, and nothing is recorded.

    `place` names the recorded trial. The requests of its turns are kept by it, so that a fork can show the recorded one
    beside its own; empty keeps none.
    """

    recording: Recording
    trial_index: int
    replay_error: ModelError | None = None
    n_prefix_calls: int = 0
    place: str = ""
    _turn: int = 0
    _n_of_turn: int = 0
    _newest: bytes = b""
    _n_model_calls: int = 0
    _n_requests: Counter[bytes] = field(default_factory=Counter)

    @property
    def is_in_prefix(self) -> bool:
        """Whether the newest call is one before the point of a fork."""
        return 0 < self.n_prefix_calls >= self._n_model_calls

    @property
    def prefix_error(self) -> ModelError | None:
        """The error of a turn that ends before it has asked for all recorded calls of the prefix."""
        if self.replay_error or self._n_model_calls >= self.n_prefix_calls:
            return None
        return diverged_error(
            f"the agent asked for {self._n_model_calls:,} of the {self.n_prefix_calls:,} recorded model calls before "
            "the point, and then ended its turn"
        )

    def begin_turn(self, index: int) -> None:
        """Count the requests of another turn, from 0."""
        self._turn, self._n_of_turn = index, 0

    async def reply(
        self, call: ModelCall, on_text: Callable[[str], None] | None, ask: Callable[[], Awaitable[ModelReply]]
    ) -> ModelReply:
        """The recorded reply, else the newly recorded result of `ask`. Raises ModelError."""
        key = self.key("model", _content(call))
        reply = self.recorded_reply(key, f"the call of {call.model}")
        if reply is None:
            reply = await ask()
            self.keep(key, asdict(reply))
            return reply
        if on_text and reply.text:
            on_text(reply.text)
        return replace(reply, usage=replace(reply.usage, cost=0.0, n_attempts=0, duration_ms=0.0, is_replayed=True))

    def recorded_reply(self, key: str, what: str) -> ModelReply | None:
        """The recorded reply of a model; None to call it. Raises ModelError as `find` does."""
        entry = self.find(key, what)
        try:
            return None if entry is None else converted(entry, ModelReply)
        except (msgspec.MsgspecError, BadNumberError) as error:
            raise _unreadable(what, error) from error

    def key(self, kind: str, content: JsonObject) -> str:
        """The recording key: the hash of the request and its repeat number."""
        if "tool" not in kind:
            self._n_model_calls += 1
        encoded_content = _encoder.encode([kind, content])
        self._n_requests[encoded_content] += 1
        self._n_of_turn += 1
        self._newest = encoded_content
        self._keep_request()
        digest_input = _encoder.encode([self.trial_index, self._n_requests[encoded_content]]) + encoded_content
        return hashlib.blake2b(digest_input, digest_size=20).hexdigest()

    def release(self, kind: str, content: JsonObject) -> None:
        """Release the key of an unanswered request for the next equal one."""
        self._n_requests[_encoder.encode([kind, content])] -= 1

    def find(self, key: str, what: str) -> dict[str, Any] | None:
        """The recorded answer; None to call `what`. Raises ModelError when a replay lacks it."""
        if not self.recording.may_replay or (self.n_prefix_calls and not self.is_in_prefix):
            return None
        try:
            return _decoder.decode(self._path(key).read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise _unreadable(what, error) from error
        if self.is_in_prefix:
            self.replay_error = diverged_error(
                f"{what}, after {max(self._n_model_calls - 1, 0):,} of {self.n_prefix_calls:,} recorded model calls, "
                "is not the recorded one: the agent asks otherwise than in the trial. Look for a change of the "
                "instruction, the model, the tools or the agent's code, or play on from before the turn",
                self._request_diff(),
            )
            raise self.replay_error
        if self.recording.mode == "auto":
            return None
        self.replay_error = not_recorded_error(
            f"{what} is not in the recording (trial {self.trial_index + 1}); run once with `record` or `auto`, "
            "or look for a change since then: the instruction, the tools, an earlier answer"
        )
        raise self.replay_error

    def keep(self, key: str, answer: JsonObject) -> None:
        """Write an answer atomically, without secrets; not in a fork."""
        if self.n_prefix_calls:
            return
        path = self._path(key)
        make_folder(path.parent)
        data = _encoder.encode(_scrub(answer, scrubber(os.environ)))
        replace_file(path, data, mode=0o600)

    def _keep_request(self) -> None:
        """Keep the newest request by its number in the turn, without secrets; not in a fork, nor in a replay."""
        if self.place and not self.n_prefix_calls and self.recording.mode in ("record", "auto"):
            path = self._request_path()
            make_folder(path.parent)
            replace_file(path, _encoder.encode(_readable(self._newest)), mode=0o600)

    def _request_diff(self) -> str:
        """The recorded request and the newest one, line by line; empty where the recorded one was not kept."""
        with suppress(OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            if self.place:
                recorded = msgspec.json.decode(self._request_path().read_bytes())
                return _diff_lines(recorded, _readable(self._newest))
        return ""

    def _request_path(self) -> Path:
        name = f"{self.place}/{self._turn}/{self._n_of_turn}".encode()
        digest = hashlib.blake2b(name, digest_size=20).hexdigest()
        return Path(self.recording.folder, digest[:2], f"{digest}.request")

    def _path(self, key: str) -> Path:
        return Path(self.recording.folder, key[:2], f"{key}.json")


def not_recorded_error(sentence: str) -> ModelError:
    """The error of a call without an answer in the replay."""
    return ModelError(sentence, kind=NOT_RECORDED)


def diverged_error(sentence: str, diff: str = "") -> ModelError:
    """The error of a fork inside a turn whose agent asks otherwise before the point; `diff` is of both requests."""
    return ModelError(sentence, kind=PREFIX_DIVERGED, trace=diff)


MOST_DIFF_LINES = 2_000
"""Lines of a request that are compared, from the first one that differs."""


def _readable(encoded_content: bytes) -> Any:
    """The kind and the content of a request, without secrets."""
    return _scrub(msgspec.json.decode(encoded_content), scrubber(os.environ))


def _diff_lines(recorded: Any, asked: Any) -> str:
    old_lines, new_lines = (
        json.dumps(each, indent=2, ensure_ascii=False, sort_keys=True).splitlines() for each in (recorded, asked)
    )
    pairs = zip(old_lines, new_lines, strict=False)
    n_same = max(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) - N_CONTEXT, 0)
    old_lines, new_lines = (lines[n_same : n_same + MOST_DIFF_LINES] for lines in (old_lines, new_lines))
    return "\n".join(
        unified_diff(old_lines, new_lines, "recorded request", "request of the fork", "", "", N_CONTEXT, "")
    )


N_CONTEXT = 3
"""Equal lines around a difference."""


def _unreadable(what: str, error: Exception) -> ModelError:
    return not_recorded_error(f"the recording of {what} cannot be read: {error}")


CURRENT_RECORDER: ContextVar[Recorder | None] = ContextVar("current_recorder", default=None)

_replaying: list[Recorder] = []


@contextmanager
def replay_only(recorder: Recorder) -> Iterator[None]:
    """Mark a replayed trial of this process in the context, if its mode is `replay`."""
    if recorder.recording.mode != "replay":
        yield
        return
    _replaying.append(recorder)
    try:
        yield
    finally:
        _replaying.remove(recorder)


def is_replaying() -> bool:
    """Whether a trial of this process is a replay."""
    return bool(_replaying)


def _scrub(value: Any, scrub: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {key: _scrub(item, scrub) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrub(item, scrub) for item in value]
    return value


def _content(call: ModelCall) -> dict[str, Any]:
    return {
        "model": call.model,
        "messages": list(call.messages),
        "tools": list(call.tools),
        "temperature": call.temperature,
        "top_p": call.top_p,
        "max_tokens": call.max_tokens,
        "extra": mask_values(call.extra),
        **({"reasoning_effort": call.reasoning_effort} if call.reasoning_effort else {}),  # not in older recordings
    }
