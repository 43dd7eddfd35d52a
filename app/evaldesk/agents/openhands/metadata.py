"""The arguments of `process_instance`: the instance, and the facts of the run."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from evaldesk.agents.openhands.llm_profiles import LlmProfile, read_profile
from evaldesk.agents.workspaces import Workspace
from evaldesk.model import JsonObject, ModelOptions

DEFAULT_MAX_ITERATIONS = 30


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a benchmark in the agent's table or on the command line.

    `llm` names a group of `config_file`, `workspace` a folder that each trial begins with a copy of.
    `tells_cost`: its metrics have the cost of every model call.
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
    tells_cost: bool = False


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
    """The facts of the run for a benchmark. `workspace`, `trial_index`, `seed` and `log` are ours."""

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


@dataclass(frozen=True, slots=True)
class Task:
    """One instance of a run, as the process that works on it is told: plain values, and no key among them.

    `target` is imported with `root` first on `path`, which is the parent's `sys.path`; `folder` is the workspace and
    `command_env` the environment of its commands.
    """

    target: str
    root: str
    path: tuple[str, ...]
    options: Options
    instance: JsonObject
    folder: str
    command_env: dict[str, str]
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    seed: int | None = None
    trial_index: int = 0


def metadata_of(task: Task, workspace: Workspace, log: Callable[[str], None]) -> Metadata:
    """The metadata of a task. Raises UsageError for a group of models that is not there."""
    options = task.options
    return Metadata(
        agent_class=options.agent_class,
        llm_config=_profile(task),
        max_iterations=task.model_options.max_turns or options.max_iterations,
        workspace=workspace,
        log=log,
        trial_index=task.trial_index,
        seed=task.seed,
        eval_output_dir=options.output_folder,
        dataset=options.dataset or None,
        data_split=options.data_split or None,
        eval_note=options.note,
    )


def arguments_of(function: Callable[..., Any], instance: Instance, metadata: Metadata) -> dict[str, Any]:
    """The arguments of the function by its own names: the first two by position, and those that we know by name."""
    names = parameters(function)
    offered: dict[str, Any] = {"reset_logger": False, "runtime_failure_count": 0, "workspace": metadata.workspace}
    given = dict(zip(names[:2], (instance, metadata), strict=False))
    return {**given, **{name: offered[name] for name in names[2:] if name in offered}}


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of its parameters; none where it has no signature."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _profile(task: Task) -> LlmProfile | None:
    """The group that was named, else the model of the run, else none."""
    if task.options.llm:
        return read_profile(Path(task.root, task.options.config_file), task.options.llm, os.environ)
    if not task.model:
        return None
    asked = task.model_options
    return LlmProfile(
        "run",
        task.model,
        base_url=asked.base_url,
        temperature=asked.temperature,
        top_p=asked.top_p,
        max_output_tokens=asked.max_tokens,
        num_retries=asked.n_retries,
        seed=task.seed,
        extra=asked.extra,
    )
