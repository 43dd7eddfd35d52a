"""Benchmarks in the manner of OpenHands: `process_instance(instance, metadata[, reset_logger])` is the agent.

(reference/openhands_tau.md sections 1, 2, 4 and 5)
"""

from __future__ import annotations

import contextvars
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from evaldesk.agents.agent import CALL_OPTIONS, Agent, ModelCaller, own_python, parameter_names, summary_of
from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.group_guard import end_group, kill_group, watch_group
from evaldesk.agents.in_thread import run_in_thread
from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.agents.workspaces import Workspace, isolation, open_workspace
from evaldesk.backports import UTC
from evaldesk.codec import msgspec
from evaldesk.errors import VALUE_LIMIT, AgentError, ModelError, UsageError
from evaldesk.integrations.openhands.metadata import Options, Task
from evaldesk.integrations.openhands.output import has_history, output_events
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.pacing import FOLDER, folder_of_books
from evaldesk.llm.retry_events import (
    CURRENT_LISTENER,
    PLAYED_TURN,
    RetryWait,
    note_capture,
    note_hidden_work,
    note_unseen,
)
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, JsonObject, Session
from evaldesk.model.transcript import report
from evaldesk.unpacking import MAX_ANSWER
from evaldesk.wire import converted, from_json, plain_json, plain_text, to_json

KIND = "benchmark"


def adapt(candidate: object, ref: AgentRef) -> Agent | None:
    """The agent around a function that takes an instance; None for anything else. Raises AgentError."""
    if not callable(candidate) or (inspect.isclass(candidate) and not (ref.kind == KIND and is_evaluation(candidate))):
        return None
    if ref.kind != KIND and (parameter_names(candidate) or [])[:1] != ["instance"]:
        return None
    try:
        options = from_json(ref.declared or "{}", Options)
    except msgspec.ValidationError as error:
        raise AgentError(f"{ref.id}: {error}") from error
    if inspect.isclass(candidate) and options.evaluation is None:
        raise AgentError(f"{ref.id}: start its script, such as `evaldesk benchmark {_script_of(ref)} LLM_CONFIG`")
    return BenchmarkAgent(candidate, ref, options, _target(candidate, ref))


def is_evaluation(candidate: object) -> bool:
    """Whether it is a subclass of `Evaluation` in OpenHands' benchmarks on its SDK."""
    return all(callable(getattr(candidate, name, None)) for name in ("prepare_workspace", "evaluate_instance"))


def _script_of(ref: AgentRef) -> str:
    return f"{ref.target.partition(':')[0].replace('.', '/')}.py"


@dataclass(frozen=True, slots=True)
class BenchmarkAgent(ModelCaller):
    """A benchmark; its module may have `setup(workspace, case)` and `teardown(workspace, case) -> dict`.

    Each instance has a process of its own, which imports `target`. (decision 046)
    """

    function: Callable[..., Any]
    ref: AgentRef
    options: Options
    target: str

    def describe(self) -> AgentDescription:
        """Name and docstring of the function, and the isolation of its commands."""
        return AgentDescription(
            name=self.ref.id,
            kind=KIND,
            description=f"{summary_of(self.function)} ({isolation(self.ref.commands)})".strip(),
            model=self.options.llm or None,
            tells_cost=self.options.tells_cost,
            # a profile of its own has them in place of the run
            unused_options=tuple(name for name in CALL_OPTIONS if name != "max_turns") if self.options.llm else (),
        )

    def warm(self, session: Session) -> None:
        """Do nothing: the process of each instance calls the model."""

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Process one instance; `teardown` is always called. Raises ModelError and AgentError."""
        note_capture("told")
        note_unseen("state")
        return events_of(lambda send: self._process(session, message, send))

    async def _process(self, session: Session, message: str, send: SendEvent) -> None:
        instance = _instance(message)
        folder = Path(self.options.workspace) if self.options.workspace else None
        workspace = open_workspace(os.environ, folder)
        try:
            files = instance.get("files")
            for name, text in files.items() if isinstance(files, Mapping) else ():
                if not isinstance(text, str):
                    raise UsageError(f"the file {name!r} of the instance must be text")
                workspace.write(str(name), text)
            workspace.remember()
            outcome = await self._run_instance(self._task(session, workspace, instance), workspace, send)
            if "failed" in outcome:
                report_failure(outcome["failed"], send)
                return
            if not has_history(outcome["output"]):
                note_hidden_work()
            for event in output_events(outcome["output"], outcome["more"], message):
                send(event)
            if outcome.get("reports"):
                send(report(outcome["reports"]))
        finally:
            workspace.close()

    async def _run_instance(self, task: Task, workspace: Workspace, send: SendEvent) -> dict[str, Any]:
        """Run the instance in its process; the last message, after a log event with the changed files."""
        process = InstanceProcess(task, os.environ)

        def log(text: str) -> None:
            send(Event("log", author=self.ref.id, text=text))

        try:
            return await run_in_thread(lambda: process.talk(workspace.remember, log), on_cancel=process.interrupt)
        finally:
            process.close()
            file_names, diff = workspace.changes()
            text = f"{len(file_names)} files changed in the workspace ({isolation(self.ref.commands)})"
            send(Event("log", author="workspace", text=text, result=plain_json({"changed": file_names, "diff": diff})))

    def _task(self, session: Session, workspace: Workspace, instance: JsonObject) -> Task:
        trial = CURRENT_TRIAL.get()
        return Task(
            target=self.target,
            root=self.ref.root,
            path=tuple(sys.path),
            options=_with_absolute_folder(self.options),
            instance=instance,
            folder=str(workspace.path),
            command_env=workspace.env,
            commands=self.ref.commands,
            model=session.model,
            model_options=session.model_options,
            seed=session.seed,
            trial_index=trial.trial_index if trial else 0,
        )


def _with_absolute_folder(options: Options) -> Options:
    """The options with an absolute output folder, for a process with another working folder."""
    folder = options.output_folder
    return msgspec.structs.replace(options, output_folder=str(Path(folder).absolute()) if folder else "")


def report_failure(failure: dict[str, Any], send: SendEvent) -> None:
    """Send the error event for the failure report of an instance's process.

    Raises ModelError for a refusal of the provider.
    """
    if "is_fatal" in failure:
        raise ModelError(failure["message"], kind=failure["kind"], is_fatal=failure["is_fatal"])
    send(Event("error", error=ErrorRecord(failure["kind"], failure["message"], failure.get("trace", ""))))


def _target(function: Callable[..., Any], ref: AgentRef) -> str:
    """The import target for the process of an instance.

    Raises AgentError for a function that another process cannot import.
    """
    if ":" in ref.target:
        return ref.target
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<locals>")
    if not module or module == "__main__" or "<" in name:
        raise AgentError(
            f"{ref.id}: each instance is processed by a process of its own, which imports the function; "
            "put it into a module of its own, at its top level"
        )
    return f"{module}:{name}"


def _instance(message: str) -> JsonObject:
    """The row of the case; for a case of another format, an instance from its id and message."""
    trial = CURRENT_TRIAL.get()
    row = trial.columns if trial else {}
    if "instance_id" in row:
        return dict(row)
    return {
        "instance_id": trial.case.id if trial else "chat",
        "question": message,
        "instruction": message,
        **row,
    }


def encode_options(**values: Any) -> str:
    """The options of a benchmark as JSON for `AgentRef.declared`. Raises UsageError for unknown options."""
    try:
        converted(values, Options)
    except msgspec.ValidationError as error:
        raise UsageError(f"benchmark: {error}") from error
    return json.dumps(values)


def table_options(table: Mapping[str, Any], workspace: Path) -> str:
    """As `encode_options`, of a table; its paths are relative to the workspace."""
    places = {name: str(workspace / str(table[name])) for name in ("config_file", "workspace") if name in table}
    return encode_options(**{**table, **places})


MODULE = "evaldesk.integrations.openhands.child"
ENDING_S = 5.0
"""Seconds for `teardown` after a cancellation or a timeout of the trial."""

PRINTING_S = 5.0  # a process that left the group may hold the pipe for ever

_N_LAST = 2_000


def _command() -> tuple[str, ...]:
    """The command of the process; on the agent's own interpreter and in a container it starts by the player's file."""
    started_by = getattr(sys.modules.get("__main__"), "__file__", "")
    return (sys.executable, started_by, "--module", MODULE) if own_python() else (sys.executable, "-P", "-m", MODULE)


class InstanceProcess:
    """The process of one instance, in the folder of the task's workspace."""

    def __init__(self, task: Task, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            _command(),
            cwd=task.folder,
            env={**environment, "PWD": task.folder, "TMPDIR": task.folder, FOLDER: str(folder_of_books())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # one group for the process and its commands, to kill them together: decision 099
        )
        watch_group(self._process.pid)
        self._task = task
        self._is_started = False
        self._last = ""
        self._killer = threading.Timer(ENDING_S, kill_group, (self._process.pid,))
        self._killer.daemon = True
        context = contextvars.copy_context()  # `sys.stdout` of a player finds the trial by its context
        self._printing = threading.Thread(target=context.run, args=(self._print,), daemon=True)
        self._printing.start()

    def talk(self, on_ready: Callable[[], None], on_log: Callable[[str], None]) -> dict[str, Any]:
        """Run the task; the last message of the process, `output` or `failed`.

        `on_ready` is called after the setup of the workspace, before the instance is processed. Raises AgentError when
        the process ends early.
        """
        self._write(to_json(self._task))
        while True:
            frame = self._read()
            if "started" in frame:
                self._is_started = True
            elif "ready" in frame:
                on_ready()
                self._write(b"")
            elif "log" in frame:
                on_log(frame["log"])
            elif "waits" in frame:
                _report_pause(**frame["waits"])
            elif "whole" in frame:
                if turn := PLAYED_TURN.get():
                    turn.note_reply()
            else:
                return frame

    def interrupt(self) -> None:
        """Stop the process by SIGINT, so that `teardown` runs; after ENDING_S its group is killed."""
        if not self._is_started:
            kill_group(self._process.pid)
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
        if not self._killer.is_alive():
            self._killer.start()

    def close(self) -> None:
        """Kill its process group, and close the pipes."""
        self._killer.cancel()
        end_group(self._process.pid)
        self._process.wait()
        self._printing.join(PRINTING_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError):  # its end is seen where it is read
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout  # noqa: S101 - it was asked for
        line = self._process.stdout.readline(MAX_ANSWER)
        if not line:
            raise AgentError(self._ending())
        return read_line(line)

    def _ending(self) -> str:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._printing.join(PRINTING_S)
        last = self._last.strip()
        return f"the process of the instance {how} before it was done" + (f": {last}" if last else "")

    def _print(self) -> None:
        assert self._process.stderr  # noqa: S101 - it was asked for
        with self._process.stderr as stream:
            for line in iter(lambda: stream.readline(10_000), b""):
                text = plain_text(line.decode("utf-8", "replace"))
                self._last = (self._last + text)[-_N_LAST:]
                sys.stdout.write(text)


def _report_pause(failure: dict[str, Any], n_tried: int, n_attempts: int, seconds: float) -> None:
    """Report a retry pause of a model call of the process to the trial."""
    if listener := CURRENT_LISTENER.get():
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        listener(RetryWait(ModelFailure(**failure), n_tried, n_attempts, until, seconds))


def read_line(line: bytes) -> dict[str, Any]:
    """A message line of the process. Raises AgentError for a line that is too long, or no JSON object."""
    if len(line) >= MAX_ANSWER:
        raise AgentError(f"process_instance returned more than {MAX_ANSWER // 2**20} MiB")
    try:
        return from_json(line, dict)
    except msgspec.MsgspecError:
        sentence = f"the process of the instance wrote a line that is not a JSON object: {line[:VALUE_LIMIT]!r}"
        raise AgentError(sentence) from None
