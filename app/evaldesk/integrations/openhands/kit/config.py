"""The configuration of OpenHands as benchmarks build it, and the arguments of their scripts.

(All-Hands-AI/OpenHands openhands/core/config; reference/openhands_tau.md section 2)
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.kit.logger import openhands_logger
from evaldesk.integrations.openhands.llm_profiles import OPTIONS, LlmProfile, read_profile
from evaldesk.integrations.openhands.run_facts import SCORE_KEY

__all__ = [
    "AgentConfig",
    "AppConfig",
    "CondenserConfig",
    "LLMConfig",
    "NoOpCondenserConfig",
    "OpenHandsConfig",
    "SandboxConfig",
    "get_agent_config_arg",
    "get_condenser_config_arg",
    "get_evaluation_parser",
    "get_llm_config_arg",
    "get_parser",
    "load_from_toml",
    "load_openhands_config",
    "parse_arguments",
]


class _Config(BaseModel):
    """A table of settings. Unknown keys are stored and have no effect."""

    model_config = ConfigDict(extra="allow", validate_assignment=False, protected_namespaces=())


class LLMConfig(_Config):
    """A model and its options. The key is never part of a dump."""

    model: str = "claude-sonnet-4-20250514"
    api_key: SecretStr | None = None
    base_url: str | None = None
    api_version: str | None = None
    temperature: float | None = 0.0
    top_p: float | None = 1.0
    max_output_tokens: int | None = None
    num_retries: int | None = None
    timeout: float | None = None
    custom_llm_provider: str | None = None
    seed: int | None = None
    drop_params: bool = True
    modify_params: bool = True
    caching_prompt: bool = True
    native_tool_calling: bool | None = None
    log_completions: bool = False
    log_completions_folder: str = "logs/completions"
    _group: str = PrivateAttr("")
    _file: str = PrivateAttr("")

    @property
    def place(self) -> tuple[str, str]:
        """The group and the file of the configuration; empty for one made in code."""
        return self._group, self._file

    def as_profile(self) -> LlmProfile:
        """The configuration as a model profile, with its API key."""
        options = {name: getattr(self, name) for name in OPTIONS}
        profile = LlmProfile(self._group or "run", self.model, **options, extra=self.model_extra or {})
        return profile.model_copy({"api_key": self.api_key})


def llm_config_of(profile: LlmProfile, file: str = "") -> LLMConfig:
    """The configuration of a profile; unset options stay unset."""
    values: dict[str, Any] = {name: getattr(profile, name) for name in OPTIONS}
    key = SecretStr(profile.api_key.get_secret_value()) if profile.api_key else None
    config = LLMConfig(model=profile.model, api_key=key, **{**profile.extra, **values})
    config._group, config._file = profile.name, file
    return config


class AgentConfig(_Config):
    """The options of an agent; the agent of this kit has none of them."""

    enable_browsing: bool = False
    enable_jupyter: bool = True
    enable_llm_editor: bool = False
    enable_prompt_extensions: bool = False


class CondenserConfig(_Config):
    """The condenser of a history; no effect here."""

    type: str = "noop"


class NoOpCondenserConfig(CondenserConfig):
    """The condenser that keeps the whole history."""


class SandboxConfig(_Config):
    """The options of a sandbox. `timeout`, in seconds, has an effect; the image only for commands in containers."""

    base_container_image: str | None = None
    runtime_container_image: str | None = None
    timeout: int = 120
    enable_auto_lint: bool = False
    use_host_network: bool = False
    remote_runtime_api_url: str | None = None
    api_key: str | None = None
    runtime_startup_env_vars: dict[str, str] = Field(default_factory=dict)
    platform: str | None = None


class OpenHandsConfig(_Config):
    """The configuration of a run. `max_iterations` bounds the model calls."""

    default_agent: str = "CodeActAgent"
    run_as_openhands: bool = True
    runtime: str = "docker"
    max_iterations: int = 100
    max_budget_per_task: float | None = None
    enable_browser: bool = False
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    workspace_base: str | None = None
    workspace_mount_path: str | None = None
    workspace_mount_path_in_sandbox: str = "/workspace"
    llms: dict[str, LLMConfig] = Field(default_factory=dict)
    agents: dict[str, AgentConfig] = Field(default_factory=dict)

    def set_llm_config(self, value: LLMConfig | None, name: str = "llm") -> None:
        """Set the model of that name."""
        if value is not None:
            self.llms[name] = value

    def get_llm_config(self, name: str = "llm") -> LLMConfig | None:
        """The model of that name; None without one."""
        return self.llms.get(name)

    def get_llm_config_from_agent(self, name: str = "agent") -> LLMConfig | None:
        """The model of an agent; all agents share one."""
        return self.get_llm_config()

    def set_agent_config(self, value: AgentConfig, name: str = "agent") -> None:
        """Set the options of the agent of that name."""
        self.agents[name] = value

    def get_agent_config(self, name: str = "agent") -> AgentConfig:
        """The options of the agent of that name."""
        return self.agents.setdefault(name, AgentConfig())


AppConfig = OpenHandsConfig


def get_llm_config_arg(llm_config_arg: str, toml_file: str = "config.toml") -> LLMConfig | None:
    """The group of `config.toml` over the values of `[llm]`; None for a missing group, as in OpenHands."""
    try:
        profile = read_profile(Path(toml_file), llm_config_arg, os.environ)
    except UsageError as error:
        openhands_logger.error("%s", error)
        return None
    return llm_config_of(profile, str(Path(toml_file).absolute()))


def get_agent_config_arg(agent_config_arg: str, toml_file: str = "config.toml") -> AgentConfig | None:
    """None: the agent of this kit has no options."""
    return None


def get_condenser_config_arg(condenser_config_arg: str, toml_file: str = "config.toml") -> CondenserConfig | None:
    """The condenser that keeps the whole history, for any argument."""
    return NoOpCondenserConfig()


def load_from_toml(cfg: OpenHandsConfig, toml_file: str = "config.toml") -> None:
    """Set the model of `[llm]`, if the file has one."""
    if Path(toml_file).is_file():
        cfg.set_llm_config(get_llm_config_arg("llm", toml_file))


def load_openhands_config(set_logging_levels: bool = True, config_file: str = "config.toml") -> OpenHandsConfig:
    """A configuration with the model of `[llm]`, if the file has one."""
    config = OpenHandsConfig()
    load_from_toml(config, config_file)
    return config


def get_parser() -> argparse.ArgumentParser:
    """The arguments of OpenHands' main program."""
    parser = argparse.ArgumentParser(description="Run an agent")
    parser.add_argument("-t", "--task", type=str, default="", help="The task for the agent to perform")
    parser.add_argument("-f", "--file", type=str, help="Path to a file containing the task")
    parser.add_argument("-d", "--directory", type=str, help="The working directory for the agent")
    parser.add_argument("-c", "--agent-cls", default="CodeActAgent", type=str, help="Name of the agent class")
    parser.add_argument("-i", "--max-iterations", default=None, type=int, help="Most model calls")
    parser.add_argument("-b", "--max-budget-per-task", type=float, help="Most US dollars for a task")
    parser.add_argument("-l", "--llm-config", default=None, type=str, help="Group of config.toml")
    parser.add_argument("--agent-config", default=None, type=str, help="Group of config.toml")
    parser.add_argument("--config-file", type=str, default="config.toml", help="Path to the config file")
    parser.add_argument("-n", "--name", default="", type=str, help="Name of the session")
    parser.add_argument("--no-auto-continue", action="store_true", help="Do not go on by itself")
    parser.add_argument("--selected-repo", type=str, default=None, help="A repository to clone")
    parser.add_argument("--log-level", type=str, default=None, help="Level of the log")
    parser.add_argument("-v", "--version", action="store_true", help="Show the version")
    return parser


def get_evaluation_parser() -> argparse.ArgumentParser:
    """The arguments of a benchmark's script."""
    parser = get_parser()
    parser.add_argument(
        "--eval-output-dir", default="evaluation/evaluation_outputs/outputs", type=str, help="Folder of the results"
    )
    parser.add_argument("--eval-n-limit", default=None, type=int, help="Number of instances to run")
    parser.add_argument("--eval-num-workers", default=4, type=int, help="Number of instances at once")
    parser.add_argument("--eval-note", default=None, type=str, help="Note that ends the name of the folder")
    parser.add_argument("--eval-ids", default=None, type=str, help="Comma-separated ids of the instances to run")
    parser.add_argument(
        "--score-key", action=_ScoreKey, help="Evaldesk's own: the key of test_result that decides; default: success"
    )
    return parser


class _ScoreKey(argparse.Action):
    """Leaves the key in the environment, where `run_evaluation` finds it: scripts do not pass it on."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        """Note the key."""
        os.environ[SCORE_KEY] = str(values)
        setattr(namespace, self.dest, values)


def parse_arguments() -> argparse.Namespace:
    """The arguments of a benchmark's script, from the command line."""
    return get_evaluation_parser().parse_args()
