"""An agent that is a command: it reads turns from stdin and writes events to stdout, one JSON object a line.

It is started when a session begins, kept for all of its turns, and killed with its process group at the end.
(docs/protocol.md)
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evaldesk.agents.agent import Agent, SessionResource
from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.group_guard import end_group, watch_group
from evaldesk.agents.in_thread import run_in_thread
from evaldesk.agents.remote.http_protocol import read_options
from evaldesk.agents.remote.protocol import Calls, read_events, turn_body
from evaldesk.agents.spans import OPEN_SPANS
from evaldesk.agents.tools.wire_doubles import answer_calls
from evaldesk.codec import msgspec
from evaldesk.errors import VALUE_LIMIT, AgentError, FormatError
from evaldesk.llm.retry_events import note_capture, note_hidden_work, note_unseen
from evaldesk.model import AgentDescription, AgentRef, Event, JsonObject, Session
from evaldesk.model.decisions import Decided
from evaldesk.reading.strict_json import parse_json
from evaldesk.unpacking import MAX_ANSWER
from evaldesk.wire import plain_text, to_json

if TYPE_CHECKING:
    from evaldesk.agents.remote.model_gateway import ModelGateway
    from evaldesk.agents.span_endpoint import SpanEndpoint

KIND = "command"

_MEMORY = "command"
_DRAIN_TIMEOUT_S = 2.0
"""Time to read the last output of an ended command, and for its last spans after the end of its input."""
_N_LINES = 200
MAX_LINE = 10_000


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's table. `tells_cost`: the command writes a usage with its cost for every model call, `tells_calls`: an
    event for every tool call.

    `model_gateway`: its model calls, tokens and tool calls are recorded by a proxy, not by its own events.
    `spans`: it gets an endpoint for its OpenTelemetry spans, with the same facts.
    """

    tells_cost: bool = False
    tells_calls: bool = False
    model_gateway: bool = False
    spans: bool = False


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent of a command line. Raises AgentError."""
    try:
        words = shlex.split(ref.target)
    except ValueError as error:
        raise AgentError(f"the command {ref.target!r} cannot be read: {error}") from error
    if not words:
        raise AgentError(f"{ref.id} has no command")
    options = read_options(ref, Options)
    return CommandAgent(ref, tuple(words), options)


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """A command, run in the folder where the desk was started."""

    ref: AgentRef
    words: tuple[str, ...]
    options: Options

    def describe(self) -> AgentDescription:
        """The command line; the command is not started."""
        text = f"The command {shlex.join(self.words)}"
        return AgentDescription(
            name=self.ref.id,
            kind=KIND,
            description=text,
            tells_cost=self.options.tells_cost,
            tells_calls=self.options.tells_calls,
        )

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Write the turn and yield the events of the command until it says `done`. Raises AgentError."""
        return self.resume(session, message, ())

    def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """As `reply`, with the decisions of a person; a restarted command gets the whole session, too."""
        note_capture("told")
        if self.options.model_gateway:
            note_capture("gateway")
        note_unseen("state")  # until it reports one
        if not self.options.tells_calls:
            note_hidden_work()
        memory_entry = session.memory.get(_MEMORY)
        process = (
            memory_entry if isinstance(memory_entry, CommandProcess) and memory_entry.is_alive else self._start(session)
        )

        async def work(send: SendEvent) -> None:
            body = turn_body(session, message, decided)
            await run_in_thread(lambda: process.play_turn(session, body, send, self.ref.id), on_cancel=process.kill)

        return events_of(work)

    def _start(self, session: Session) -> CommandProcess:
        try:
            process = CommandProcess(self.words, self.ref.root, self.options)
        except OSError as error:
            raise AgentError(f"the command {self.words[0]!r} cannot be started: {error}") from error
        session.memory[_MEMORY] = process
        return process


class CommandProcess(SessionResource):
    """A running command; its stderr goes to the turn's log."""

    def __init__(self, words: tuple[str, ...], folder: str, options: Options) -> None:
        self._gateway = _open_gateway() if options.model_gateway else None
        self._spans = _open_span_endpoint() if options.spans else None
        self._process = subprocess.Popen(
            words,
            cwd=folder or None,
            env={
                **os.environ,
                **(self._gateway.variables() if self._gateway else {}),
                **(self._spans.variables(os.environ) if self._spans else {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # one group for the command and its children, to kill them together: decision 099
        )
        watch_group(self._process.pid)
        self._stderr: deque[str] = deque(maxlen=_N_LINES)
        self._stderr_reader = threading.Thread(target=_drain, args=(self._process, self._stderr), daemon=True)
        self._stderr_reader.start()
        self._finalizer = weakref.finalize(self, _end, self._process)  # also at exit, and for a forgotten session

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Wait for its last spans, if it has an endpoint for them, and kill its process group."""
        if self._spans and self._process.stdin:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._process.stdin.close()
                self._process.wait(_DRAIN_TIMEOUT_S)
            self.has_late_calls = self._spans.has_late_calls
        self.kill()

    def kill(self) -> None:
        """Kill its process group."""
        self._finalizer()
        if self._gateway:
            self._gateway.close()
        if self._spans:
            self._spans.close()

    def play_turn(self, session: Session, body: JsonObject, send: SendEvent, author: str) -> None:
        """Play a turn, or resume it. Raises AgentError when the command ends early or writes an invalid event."""
        open_turn = OPEN_SPANS.get() if self._spans else None
        with self._spans.listening(open_turn()) if self._spans and open_turn else nullcontext():
            if self._gateway is None:
                self._exchange(session, body, send, author)
                return
            replaces = self._gateway.replaces
            answer_calls(session, lambda text, author: send(Event("log", author=author, text=text)), denies=False)
            with self._gateway.listening(session, send, goes_on=bool(body["decisions"])):
                self._exchange(session, body, lambda event: None if replaces(event) else send(event), author)

    def _exchange(self, session: Session, body: JsonObject, send: SendEvent, author: str) -> None:
        calls, log = Calls(), _Lines(send)
        try:
            self._write({"type": "turn", **body})
            while True:
                line = self._read()
                if not line.lstrip().startswith(b"{"):
                    log.add(line)
                    continue
                log.end()
                value = _parse_line(line)
                if isinstance(value, dict) and value.get("kind") == "done":
                    return
                for event in read_events(value, session, author):
                    send(calls.with_call(event))
        finally:
            log.end()
            stderr_text = plain_text("".join(self._stderr.popleft() for _ in range(len(self._stderr))))
            if stderr_text:
                send(Event("log", author="stderr", text=stderr_text))

    def _write(self, body: object) -> None:
        assert self._process.stdin  # noqa: S101 - it was asked for
        try:
            self._process.stdin.write(to_json(body) + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise AgentError(self._ending()) from None

    def _read(self) -> bytes:
        assert self._process.stdout  # noqa: S101 - it was asked for
        line = self._process.stdout.readline(MAX_ANSWER)
        if not line:
            raise AgentError(self._ending())
        if len(line) >= MAX_ANSWER:
            raise AgentError(f"the command wrote a line of more than {MAX_ANSWER // 2**20} MiB")
        return line

    def _ending(self) -> str:
        code = self._process.wait()
        self._stderr_reader.join(_DRAIN_TIMEOUT_S)  # a process that it left behind may keep stderr open
        last = "".join(list(self._stderr)[-5:]).strip()
        return f"the command ended with exit code {code} before its turn was done" + (f": {last}" if last else "")


@dataclass(slots=True)
class _Lines:
    """Lines of stdout that are no events, as of a library that prints. Consecutive lines become one log event."""

    send: SendEvent
    _lines: deque[bytes] = field(default_factory=lambda: deque(maxlen=_N_LINES))

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._lines.append(line[:MAX_LINE])

    def end(self) -> None:
        """Send the collected lines as a log event."""
        if text := plain_text(b"".join(self._lines).decode("utf-8", "replace")).strip():
            self.send(Event("log", author="stdout", text=text))
        self._lines.clear()


def _parse_line(line: bytes) -> object:
    try:
        return parse_json(line, source="", max_bytes=MAX_ANSWER).value
    except FormatError as error:
        where = f"column {error.column}: {error.path}: " if error.column else ""
        raise AgentError(
            f"the command wrote a line that is not a JSON object: {line[:VALUE_LIMIT]!r}: {where}{error.reason}"
        ) from None


def _open_gateway() -> ModelGateway:
    from evaldesk.agents.remote.forwarding import open_gateway  # the client of HTTP is for those who ask for it

    return open_gateway(dict(os.environ))


def _open_span_endpoint() -> SpanEndpoint:
    from evaldesk.agents.span_endpoint import SpanEndpoint  # as above

    endpoint = SpanEndpoint()
    endpoint.open()
    return endpoint


def _drain(process: subprocess.Popen[bytes], lines: deque[str]) -> None:
    assert process.stderr  # noqa: S101 - it was asked for
    with process.stderr as stream:
        for line in iter(lambda: stream.readline(MAX_LINE), b""):
            lines.append(line.decode("utf-8", "replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    end_group(process.pid)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            with suppress(BrokenPipeError):
                stream.close()
