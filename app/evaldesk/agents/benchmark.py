"""Benchmarks in the manner of OpenHands: `process_instance(instance, metadata[, reset_logger])` is the agent.

(reference/openhands_tau.md sections 1, 2, 4 and 5)
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from evaldesk.agents.agent import Agent, ModelCaller
from evaldesk.agents.benchmark_metadata import Options, Task, parameters
from evaldesk.agents.benchmark_output import output_events
from evaldesk.agents.benchmark_process import InstanceProcess
from evaldesk.agents.event_pump import Say, events_of
from evaldesk.agents.in_thread import called
from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.agents.workspaces import LABEL, Workspace, open_workspace
from evaldesk.errors import AgentError, ModelError, UsageError
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, JsonObject, Session
from evaldesk.wire import plain

KIND = "benchmark"


def adapt(found: object, ref: AgentRef) -> Agent | None:
    """The agent around a function that takes an instance; None for anything else. Raises AgentError."""
    if not callable(found) or inspect.isclass(found):
        return None
    if ref.kind != KIND and parameters(found)[:1] != ["instance"]:
        return None
    try:
        options = msgspec.json.decode(ref.declared or "{}", type=Options)
    except msgspec.ValidationError as error:
        raise AgentError(f"{ref.id}: {error}") from error
    return BenchmarkAgent(found, ref, options, _target(found, ref))


@dataclass(frozen=True, slots=True)
class BenchmarkAgent(ModelCaller):
    """A benchmark; its module may have `setup(workspace, case)` and `teardown(workspace, case) -> dict`.

    Each instance is processed by a process of its own, which imports `target`.
    """

    function: Callable[..., Any]
    ref: AgentRef
    options: Options
    target: str

    def describe(self) -> AgentDescription:
        """Name and docstring of the function, and that its commands are not isolated."""
        summary = (inspect.getdoc(self.function) or "").partition("\n\n")[0].replace("\n", " ")
        return AgentDescription(
            name=self.ref.id, kind=KIND, description=f"{summary} ({LABEL})".strip(), model=self.options.llm or None
        )

    def warm(self, session: Session) -> None:
        """Nothing: the model is called by the process of each instance."""

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Process one instance; `teardown` is called whatever becomes of it. Raises ModelError and AgentError."""

        async def work(say: Say) -> None:
            await self._process(session, message, say)

        async for event in events_of(work):
            yield event

    async def _process(self, session: Session, message: str, say: Say) -> None:
        instance = _instance(message)
        folder = Path(self.options.workspace) if self.options.workspace else None
        workspace = open_workspace(os.environ, folder)
        try:
            _write_files(workspace, instance)
            workspace.remember()
            said = await self._done(self._task(session, workspace, instance), workspace, say)
            if "failed" in said:
                fail(said["failed"], say)
                return
            for event in output_events(said["output"], said["more"], self.ref.id):
                say(event)
        finally:
            workspace.close()

    async def _done(self, task: Task, workspace: Workspace, say: Say) -> dict[str, Any]:
        """What its process says last, after what it did to the workspace was told."""
        process = InstanceProcess(task, os.environ)
        try:

            def talk() -> dict[str, Any]:
                return process.talk(workspace.remember, lambda text: say(Event("log", author=self.ref.id, text=text)))

            found: dict[str, Any] = await called(talk, {}, on_cancel=process.interrupt)
            return found
        finally:
            process.close()
            changed, diff = workspace.changes()
            text = f"{len(changed)} files changed in the workspace ({LABEL})"
            say(Event("log", author="workspace", text=text, result=plain({"changed": changed, "diff": diff})))

    def _task(self, session: Session, workspace: Workspace, instance: JsonObject) -> Task:
        trial = CURRENT_TRIAL.get()
        return Task(
            target=self.target,
            root=self.ref.root,
            path=tuple(sys.path),
            options=_absolute(self.options),
            instance=instance,
            folder=str(workspace.path),
            command_env=workspace.env,
            model=session.model,
            model_options=session.model_options,
            seed=session.seed,
            trial_index=trial.trial_index if trial else 0,
        )


def _absolute(options: Options) -> Options:
    """The options for a process that stands in another folder."""
    folder = options.output_folder
    return msgspec.structs.replace(options, output_folder=str(Path(folder).absolute()) if folder else "")


def fail(said: dict[str, Any], say: Say) -> None:
    """Say why an instance failed, as its process tells it. Raises ModelError for what a provider refused."""
    if "is_fatal" in said:
        raise ModelError(said["message"], kind=said["kind"], is_fatal=said["is_fatal"])
    say(Event("error", error=ErrorRecord(said["kind"], said["message"], said.get("trace", ""))))


def _target(function: Callable[..., Any], ref: AgentRef) -> str:
    """What the process of an instance imports. Raises AgentError for a function that only this process has."""
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
    """The row of the case, with an id and the message as what is asked where the row does not say."""
    trial = CURRENT_TRIAL.get()
    row = trial.columns if trial else {}
    return {
        "instance_id": trial.case.id if trial else "chat",
        "question": message,
        "instruction": message,
        **row,
    }


def _write_files(workspace: Workspace, instance: JsonObject) -> None:
    files = instance.get("files")
    for name, text in files.items() if isinstance(files, Mapping) else ():
        if not isinstance(text, str):
            raise UsageError(f"the file {name!r} of the instance must be text")
        workspace.write(str(name), text)


def declared_options(**values: Any) -> str:
    """The options of a benchmark as the text that `AgentRef.declared` holds; raises UsageError for unknown ones."""
    try:
        msgspec.convert(values, Options)
    except msgspec.ValidationError as error:
        raise UsageError(f"benchmark: {error}") from error
    return json.dumps(values)
