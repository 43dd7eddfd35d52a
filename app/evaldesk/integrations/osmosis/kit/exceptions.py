"""The exception classes of `osmosis_ai`."""

from __future__ import annotations

__all__ = [
    "AgentLoopNotFoundError",
    "OsmosisRolloutError",
    "OsmosisServerError",
    "OsmosisTimeoutError",
    "OsmosisTransportError",
    "OsmosisValidationError",
    "ToolArgumentError",
    "ToolExecutionError",
]


class OsmosisRolloutError(Exception):
    """Any failure of a rollout."""


class OsmosisTransportError(OsmosisRolloutError):
    """The model could not be reached."""


class OsmosisServerError(OsmosisRolloutError):
    """The model's server failed; `status_code` is its answer."""

    def __init__(self, message: str, status_code: int = 500) -> None:
        super().__init__(message)
        self.status_code = status_code


class OsmosisValidationError(OsmosisServerError):
    """The model's server refused the request."""

    def __init__(self, message: str, status_code: int = 400) -> None:
        super().__init__(message, status_code)


class OsmosisTimeoutError(OsmosisRolloutError):
    """The model did not answer in time."""


class AgentLoopNotFoundError(OsmosisRolloutError):
    """No agent loop has that name."""


class ToolExecutionError(OsmosisRolloutError):
    """A tool failed; the call and the tool are named where they are known."""

    def __init__(self, message: str, tool_call_id: str | None = None, tool_name: str | None = None) -> None:
        super().__init__(message)
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name


class ToolArgumentError(ToolExecutionError):
    """The arguments of a tool call are no JSON object."""
