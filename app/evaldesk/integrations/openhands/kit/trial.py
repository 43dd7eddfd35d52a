"""The only trial of this process: each instance has a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from evaldesk.agents.workspaces import Workspace
from evaldesk.errors import AgentError
from evaldesk.integrations.openhands.llm_profiles import LlmProfile
from evaldesk.model import Container, ModelOptions


@dataclass(frozen=True, slots=True)
class InstanceTrial:
    """The current trial: its workspace, model profile, log, seed, and the container of its commands.

    `options` are the model options of the run; their rate limits apply to every model.
    """

    workspace: Workspace
    profile: LlmProfile | None
    log: Callable[[str], None]
    seed: int | None = None
    commands: Container | None = None
    options: ModelOptions = field(default_factory=ModelOptions)


_current: list[InstanceTrial] = []


def begin_trial(trial: InstanceTrial) -> None:
    """Set the trial of this process."""
    _current[:] = [trial]


def current_trial() -> InstanceTrial:
    """The trial of this process. Raises AgentError outside of one."""
    if not _current:
        raise AgentError(
            "there is no trial in this process: a runtime and an agent exist only while process_instance runs"
        )
    return _current[0]
