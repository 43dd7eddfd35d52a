"""Benchmarks in the manner of OpenHands: `process_instance(instance, metadata[, reset_logger])` is the agent.

(reference/openhands_tau.md sections 1, 2, 4 and 5)
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from evaldesk.agents.agent import Agent
from evaldesk.agents.benchmark_output import output_events
from evaldesk.agents.event_pump import Say, events_of
from evaldesk.agents.in_thread import called
from evaldesk.agents.llm_profiles import LlmProfile, read_profile
from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.agents.workspaces import LABEL, Workspace, open_workspace
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentDescription, AgentRef, Event, Session
from evaldesk.wire import plain

KIND = "benchmark"
DEFAULT_MAX_ITERATIONS = 30

_SETUPS = ("setup", "initialize_runtime")
_TEARDOWNS = ("teardown", "complete_runtime")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent's table, or the command line, says of a benchmark.

    `llm` names a group of `config_file`, `workspace` a folder that each trial begins with a copy of.
    """

    llm: str = ""
    config_file: str = "config.toml"
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    agent_class: str = "CodeActAgent"
    dataset: str = ""
    data_split: str = ""
    note: str = ""
    workspace: str = ""
    output_folder: str = ""


class Instance(dict[str, Any]):
    """A row, by key and by attribute, as a row of a data frame is."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the instance has no {name}; it has: {', '.join(self)}") from None

    def to_dict(self) -> dict[str, Any]:
        """A plain copy."""
        return dict(self)


@dataclass(slots=True)
class Metadata:
    """What a benchmark knows of the run. `workspace`, `trial_index`, `seed` and `log` are ours."""

    agent_class: str
    llm_config: LlmProfile | None
    max_iterations: int
    workspace: Workspace
    log: Callable[[str], None]
    trial_index: int = 0
    seed: int | None = None
    eval_output_dir: str = ""
    start_time: str = ""
    git_commit: str = ""
    dataset: str | None = None
    data_split: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    agent_config: Any = None
    condenser_config: Any = None
    instruction_template_name: str | None = None
    eval_note: str = ""


def adapt(found: object, ref: AgentRef) -> Agent | None:
    """The agent around a function that takes an instance; None for anything else. Raises AgentError."""
    if not callable(found) or inspect.isclass(found):
        return None
    if ref.kind != KIND and _parameters(found)[:1] != ["instance"]:
        return None
    try:
        options = msgspec.json.decode(ref.declared or "{}", type=Options)
    except msgspec.ValidationError as error:
        raise AgentError(f"{ref.id}: {error}") from error
    return BenchmarkAgent(found, ref, options)


@dataclass(frozen=True, slots=True)
class BenchmarkAgent:
    """A benchmark; its module may have `setup(workspace, case)` and `teardown(workspace, case) -> dict`."""

    function: Callable[..., Any]
    ref: AgentRef
    options: Options

    def describe(self) -> AgentDescription:
        """Name and docstring of the function, and that its commands are not isolated."""
        summary = (inspect.getdoc(self.function) or "").partition("\n\n")[0].replace("\n", " ")
        return AgentDescription(
            name=self.ref.id, kind=KIND, description=f"{summary} ({LABEL})".strip(), model=self.options.llm or None
        )

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Process one instance. What the function raises passes through; `teardown` is called all the same."""

        async def work(say: Say) -> None:
            await self._process(session, message, say)

        async for event in events_of(work):
            yield event

    async def _process(self, session: Session, message: str, say: Say) -> None:
        instance = _instance(message)
        folder = Path(self.options.workspace) if self.options.workspace else None
        workspace = open_workspace(os.environ, folder)
        try:
            metadata = self._metadata(session, workspace, say)
            _write_files(workspace, instance)
            workspace.remember()
            found, more = None, {}
            try:
                await self._hook(_SETUPS, workspace, instance)
                workspace.remember()
                arguments = _arguments(self.function, instance, metadata)
                found = await called(self.function, arguments, on_cancel=workspace.kill)
            finally:
                more = await self._hook(_TEARDOWNS, workspace, instance)
                workspace.kill()
                changed, diff = workspace.changes()
                text = f"{len(changed)} files changed in the workspace ({LABEL})"
                say(Event("log", author="workspace", text=text, result=plain({"changed": changed, "diff": diff})))
            for event in output_events(found, more, self.ref.id):
                say(event)
        finally:
            workspace.close()

    def _metadata(self, session: Session, workspace: Workspace, say: Say) -> Metadata:
        options, trial = self.options, CURRENT_TRIAL.get()
        return Metadata(
            agent_class=options.agent_class,
            llm_config=self._profile(session),
            max_iterations=session.model_options.max_turns or options.max_iterations,
            workspace=workspace,
            log=lambda text: say(Event("log", author=self.ref.id, text=str(text))),
            trial_index=trial.trial_index if trial else 0,
            seed=session.seed,
            eval_output_dir=options.output_folder,
            dataset=options.dataset or None,
            data_split=options.data_split or None,
            eval_note=options.note,
        )

    def _profile(self, session: Session) -> LlmProfile | None:
        """The group that was named, else the model of the run, else none."""
        if self.options.llm:
            return read_profile(Path(self.ref.root, self.options.config_file), self.options.llm, os.environ)
        if not session.model:
            return None
        asked = session.model_options
        return LlmProfile(
            "run",
            session.model,
            base_url=asked.base_url,
            temperature=asked.temperature,
            top_p=asked.top_p,
            max_output_tokens=asked.max_tokens,
            num_retries=asked.n_retries,
            seed=session.seed,
            extra=asked.extra,
        )

    async def _hook(self, names: tuple[str, ...], workspace: Workspace, instance: Instance) -> dict[str, Any]:
        """Call the hook of that name in the module of the function; the dict it returns."""
        module = sys.modules.get(getattr(self.function, "__module__", ""))
        hook = next((found for name in names if callable(found := getattr(module, name, None))), None)
        if hook is None:
            return {}
        found = await called(hook, {"workspace": workspace, "instance": instance}, on_cancel=workspace.kill)
        return dict(found) if isinstance(found, Mapping) else {}


def _instance(message: str) -> Instance:
    """The row of the case, with an id and the message as what is asked where the row does not say."""
    trial = CURRENT_TRIAL.get()
    row = trial.columns if trial else {}
    asked = {"instance_id": trial.case.id if trial else "chat", "question": message, "instruction": message}
    return Instance({**asked, **row})


def _write_files(workspace: Workspace, instance: Instance) -> None:
    files = instance.get("files")
    for name, text in files.items() if isinstance(files, Mapping) else ():
        if not isinstance(text, str):
            raise UsageError(f"the file {name!r} of the instance must be text")
        workspace.write(str(name), text)


def _arguments(function: Callable[..., Any], instance: Instance, metadata: Metadata) -> dict[str, Any]:
    """What the function takes, by its own names: the first two, whatever they are called, and those we know."""
    names = _parameters(function)
    offered: dict[str, Any] = {"reset_logger": False, "runtime_failure_count": 0, "workspace": metadata.workspace}
    given = dict(zip(names[:2], (instance, metadata), strict=False))
    return {**given, **{name: offered[name] for name in names[2:] if name in offered}}


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def declared_options(**values: Any) -> str:
    """The options of a benchmark as the text that `AgentRef.declared` holds; raises UsageError for unknown ones."""
    try:
        msgspec.convert(values, Options)
    except msgspec.ValidationError as error:
        raise UsageError(f"benchmark: {error}") from error
    return json.dumps(values)
