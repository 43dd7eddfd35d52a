"""The arguments of `process_instance`: the instance, and the facts of the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from evaldesk.agents.agent import parameter_names
from evaldesk.agents.workspaces import Workspace
from evaldesk.codec import msgspec
from evaldesk.integrations.openhands.llm_profiles import LlmProfile, read_profile
from evaldesk.integrations.openhands.run_facts import KEY_VARIABLE, git_commit, start_time
from evaldesk.model import Container, JsonObject, ModelOptions

DEFAULT_MAX_ITERATIONS = 30
RUN, EFFORT = "run", "reasoning_effort"
"""The profile name of the run's own model, and the key of its reasoning effort."""


class Evaluation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The script whose `Evaluation` is played: its module, and `sys.argv` and the folder that it is run with.

    `is_local`: in the folder of the trial in the place of its own workspace. `has_own_id`: the data of its instances
    have their `instance_id`. `has_critic`: its metadata name a critic.
    """

    module: str
    arguments: tuple[str, ...]
    folder: str
    is_local: bool = False
    has_own_id: bool = True
    has_critic: bool = True


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a benchmark in the agent's table or on the command line.

    `llm` names a group of `config_file`, `workspace` a folder that each trial begins with a copy of.
    `tells_cost`: its metrics have the cost of every model call. `metadata` is the EvalMetadata of the benchmark's own
    script, without a key. `evaluation` is the script of a benchmark on OpenHands' SDK.
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
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    evaluation: Evaluation | None = None


class Instance(dict[str, Any]):
    """A row with access by key and by attribute, as in a data frame."""

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
    """The facts of the run for a benchmark. `workspace`, `trial_index`, `seed` and `log` are additions of Evaldesk."""

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

    def model_dump(self) -> dict[str, Any]:
        """The fields of OpenHands as a dict, without an API key."""
        own_names = {"workspace", "log", "trial_index", "seed", "llm_config"}
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in own_names}
        return {**facts, "llm_config": {"model": self.llm_config.model} if self.llm_config else None}


_FACTS = frozenset(each.name for each in fields(Metadata))


@dataclass(frozen=True, slots=True)
class Task:
    """One instance of a run as the message to its process: plain values without API keys.

    `target` is imported with `root` first on `path`, the parent's `sys.path`; `folder` is the workspace and
    `command_env` the environment of its commands. `commands` is the container of a runtime's commands, if any.
    """

    target: str
    root: str
    path: tuple[str, ...]
    options: Options
    instance: JsonObject
    folder: str
    command_env: dict[str, str]
    commands: Container | None = None
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    seed: int | None = None
    trial_index: int = 0


def metadata_of(task: Task, workspace: Workspace, log: Callable[[str], None]) -> Any:
    """The metadata of a task, in the type of the stand-in or of OpenHands itself, if the benchmark imported one.

    Raises UsageError for a group of models that is not there.
    """
    options, profile = task.options, profile_of(task)
    facts: dict[str, Any] = {
        "agent_class": options.agent_class,
        "eval_output_dir": options.output_folder,
        "start_time": start_time(),
        "git_commit": git_commit(Path(task.root)),
        "dataset": options.dataset or None,
        "data_split": options.data_split or None,
        "eval_note": options.note,
        "details": {},
        **options.metadata,
        "max_iterations": task.model_options.max_turns or options.max_iterations,
    }
    llm_overrides = facts.pop("llm_config", None) or {}
    own_fields: dict[str, Any] = {
        "workspace": workspace,
        "log": log,
        "trial_index": task.trial_index,
        "seed": task.seed,
    }
    shared_module = sys.modules.get("evaluation.utils.shared")
    if shared_module is None:
        facts_of_type = {name: facts[name] for name in facts if name in _FACTS}
        return Metadata(llm_config=profile, **own_fields, **facts_of_type)
    from evaldesk.integrations.openhands.kit.config import LLMConfig, llm_config_of
    from evaldesk.integrations.openhands.kit.shared import EvalMetadata

    if shared_module.EvalMetadata is not EvalMetadata:  # OpenHands itself is here
        config = sys.modules["openhands.core.config"].get_llm_config_arg(options.llm, options.config_file)
        return shared_module.EvalMetadata(llm_config=config, **facts)
    llm_overrides.pop("api_key", None)
    llm = llm_config_of(profile, options.config_file).model_copy(update=llm_overrides) if profile else None
    if llm is None and llm_overrides:
        llm = LLMConfig.model_validate({**llm_overrides, "api_key": os.environ.get(KEY_VARIABLE)})
    return EvalMetadata(llm_config=llm, **own_fields, **facts)


def arguments_of(function: Callable[..., Any], instance: Instance, metadata: Metadata) -> dict[str, Any]:
    """The arguments of the function by its own parameter names: the first two by position, others by name."""
    names = parameter_names(function) or []
    optional: dict[str, Any] = {"reset_logger": False, "runtime_failure_count": 0, "workspace": metadata.workspace}
    positional = dict(zip(names[:2], (instance, metadata), strict=False))
    return {**positional, **{name: optional[name] for name in names[2:] if name in optional}}


def profile_of(task: Task) -> LlmProfile | None:
    """The configured profile, else a profile of the run's model, else None."""
    if task.options.llm:
        return read_profile(Path(task.root, task.options.config_file), task.options.llm, os.environ)
    if not task.model:
        return None
    options = task.model_options
    effort = {EFFORT: options.reasoning_effort} if options.reasoning_effort else {}
    return LlmProfile(
        RUN,
        task.model,
        base_url=options.base_url,
        temperature=options.temperature,
        top_p=options.top_p,
        max_output_tokens=options.max_tokens,
        num_retries=options.n_retries,
        seed=task.seed,
        extra={**options.extra, **effort},
    )
