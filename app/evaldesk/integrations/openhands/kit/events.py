"""Actions and observations with the names, fields and dicts of OpenHands.

(All-Hands-AI/OpenHands openhands/events, serialization/event.py; reference/openhands_tau.md section 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, ClassVar

from evaldesk.backports import StrEnum

__all__ = [
    "Action",
    "AgentDelegateAction",
    "AgentFinishAction",
    "AgentRejectAction",
    "AgentStateChangedObservation",
    "AgentThinkAction",
    "AgentThinkObservation",
    "BrowseInteractiveAction",
    "BrowseURLAction",
    "CmdOutputMetadata",
    "CmdOutputObservation",
    "CmdRunAction",
    "ErrorObservation",
    "Event",
    "EventSource",
    "FileEditAction",
    "FileReadAction",
    "FileReadObservation",
    "FileWriteAction",
    "FileWriteObservation",
    "IPythonRunCellAction",
    "IPythonRunCellObservation",
    "MessageAction",
    "NullAction",
    "NullObservation",
    "Observation",
    "SystemMessageAction",
    "event_from_dict",
    "event_to_dict",
    "event_to_trajectory",
    "get_pairs_from_events",
]


class EventSource(StrEnum):
    """The author of an event."""

    AGENT = "agent"
    USER = "user"
    ENVIRONMENT = "environment"


@dataclass
class Event:
    """An event of a history. `id`, `timestamp`, `source` and `cause` are set when it joins one."""

    INVALID_ID: ClassVar[int] = -1
    _id: int = field(default=-1, init=False, repr=False, compare=False)
    _timestamp: str = field(default="", init=False, repr=False, compare=False)
    _source: EventSource | None = field(default=None, init=False, repr=False, compare=False)
    _cause: int | None = field(default=None, init=False, repr=False, compare=False)
    _timeout: float | None = field(default=None, init=False, repr=False, compare=False)
    tool_call_metadata: Any = field(default=None, init=False, repr=False, compare=False)

    id = property(attrgetter("_id"), doc="Its place in the history; -1 before it joined one.")
    timestamp = property(attrgetter("_timestamp"), doc="When it joined the history, in ISO format.")
    source = property(attrgetter("_source"), doc="The author.")
    cause = property(attrgetter("_cause"), doc="The id of the action that an observation belongs to.")
    timeout = property(attrgetter("_timeout"), doc="Seconds that an action may take; None leaves it to the runtime.")

    def set_hard_timeout(self, value: float | None, blocking: bool = True) -> None:
        """Set the time limit of an action."""
        self._timeout = value
        if hasattr(self, "blocking"):
            self.blocking = blocking

    @property
    def message(self) -> str | None:
        """A short text of the event."""
        return None

    def join(self, place: int, source: str, cause: int | None = None) -> None:
        """Set place, source and cause when the event joins a history."""
        self._id, self._source, self._cause = place, EventSource(source), cause
        self._timestamp = datetime.now().isoformat()


@dataclass
class Action(Event):
    """An action of the agent or the user."""

    action: ClassVar[str] = "null"
    runnable: ClassVar[bool] = False


@dataclass
class NullAction(Action):
    """No action."""


@dataclass
class MessageAction(Action):
    """A message of the agent or the user."""

    content: str = ""
    file_urls: list[str] | None = None
    image_urls: list[str] | None = None
    wait_for_response: bool = False
    security_risk: Any = None
    action: ClassVar[str] = "message"

    @property
    def message(self) -> str:
        """Its text."""
        return self.content


@dataclass
class SystemMessageAction(Action):
    """The prompt of the system."""

    content: str = ""
    tools: list[Any] | None = None
    agent_class: str | None = None
    action: ClassVar[str] = "system"

    @property
    def message(self) -> str:
        """Its text."""
        return self.content


@dataclass
class CmdRunAction(Action):
    """A command for the shell."""

    command: str = ""
    is_input: bool = False
    thought: str = ""
    blocking: bool = False
    is_static: bool = False
    cwd: str | None = None
    hidden: bool = False
    confirmation_state: str = "confirmed"
    security_risk: Any = None
    action: ClassVar[str] = "run"
    runnable: ClassVar[bool] = True

    @property
    def message(self) -> str:
        """The command in words."""
        return f"Running command: {self.command}"


@dataclass
class IPythonRunCellAction(Action):
    """Python code."""

    code: str = ""
    thought: str = ""
    include_extra: bool = True
    confirmation_state: str = "confirmed"
    security_risk: Any = None
    kernel_init_code: str = ""
    action: ClassVar[str] = "run_ipython"
    runnable: ClassVar[bool] = True

    @property
    def message(self) -> str:
        """The code in words."""
        return f"Running Python code interactively: {self.code}"


@dataclass
class FileReadAction(Action):
    """Reading a file."""

    path: str = ""
    start: int = 0
    end: int = -1
    thought: str = ""
    action: ClassVar[str] = "read"
    runnable: ClassVar[bool] = True

    @property
    def message(self) -> str:
        """The file in words."""
        return f"Reading file: {self.path}"


@dataclass
class FileWriteAction(Action):
    """Writing a file."""

    path: str = ""
    content: str = ""
    start: int = 0
    end: int = -1
    thought: str = ""
    action: ClassVar[str] = "write"
    runnable: ClassVar[bool] = True

    @property
    def message(self) -> str:
        """The file in words."""
        return f"Writing file: {self.path}"


@dataclass
class FileEditAction(Action):
    """Editing a file: `command` is view, create, str_replace or insert."""

    path: str = ""
    command: str = ""
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    content: str = ""
    start: int = 1
    end: int = -1
    thought: str = ""
    action: ClassVar[str] = "edit"
    runnable: ClassVar[bool] = True


@dataclass
class BrowseURLAction(Action):
    """Opening a page."""

    url: str = ""
    thought: str = ""
    action: ClassVar[str] = "browse"
    runnable: ClassVar[bool] = True


@dataclass
class BrowseInteractiveAction(Action):
    """Acting on a page."""

    browser_actions: str = ""
    thought: str = ""
    action: ClassVar[str] = "browse_interactive"
    runnable: ClassVar[bool] = True


@dataclass
class AgentThinkAction(Action):
    """A thought of the agent."""

    thought: str = ""
    action: ClassVar[str] = "think"


@dataclass
class AgentFinishAction(Action):
    """The end of the agent's work."""

    final_thought: str = ""
    outputs: dict[str, Any] = field(default_factory=dict)
    thought: str = ""
    task_completed: Any = None
    action: ClassVar[str] = "finish"

    @property
    def message(self) -> str:
        """The last words."""
        return self.final_thought or self.thought or "All done! What's next on the agenda?"


@dataclass
class AgentRejectAction(Action):
    """The agent rejects the task."""

    outputs: dict[str, Any] = field(default_factory=dict)
    thought: str = ""
    action: ClassVar[str] = "reject"


@dataclass
class AgentDelegateAction(Action):
    """The agent delegates to another agent."""

    agent: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    thought: str = ""
    action: ClassVar[str] = "delegate"


@dataclass
class Observation(Event):
    """The result of an action."""

    content: str = ""
    observation: ClassVar[str] = "null"


@dataclass
class NullObservation(Observation):
    """No result."""


@dataclass
class CmdOutputMetadata:
    """The metadata of a finished command."""

    exit_code: int = -1
    pid: int = -1
    username: str | None = None
    hostname: str | None = None
    working_dir: str | None = None
    py_interpreter_path: str | None = None
    prefix: str = ""
    suffix: str = ""


@dataclass
class CmdOutputObservation(Observation):
    """The output of a command; `exit_code` is -1 when it was killed at its time limit."""

    command: str = ""
    metadata: CmdOutputMetadata = field(default_factory=CmdOutputMetadata)
    hidden: bool = False
    observation: ClassVar[str] = "run"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return self.metadata.exit_code

    @property
    def error(self) -> bool:
        """Whether the command failed."""
        return self.exit_code != 0

    @property
    def success(self) -> bool:
        """Whether the command ended with 0."""
        return not self.error

    @property
    def message(self) -> str:
        """The exit code in a sentence."""
        return f"Command `{self.command}` executed with exit code {self.exit_code}."


@dataclass
class IPythonRunCellObservation(Observation):
    """The output of Python code."""

    code: str = ""
    image_urls: list[str] | None = None
    observation: ClassVar[str] = "run_ipython"


@dataclass
class FileReadObservation(Observation):
    """The text of a file."""

    path: str = ""
    observation: ClassVar[str] = "read"


@dataclass
class FileWriteObservation(Observation):
    """A file was written."""

    path: str = ""
    observation: ClassVar[str] = "write"


@dataclass
class AgentThinkObservation(Observation):
    """A thought was kept."""

    observation: ClassVar[str] = "think"


@dataclass
class AgentStateChangedObservation(Observation):
    """The agent's state changed."""

    agent_state: str = ""
    reason: str = ""
    observation: ClassVar[str] = "agent_state_changed"


@dataclass
class ErrorObservation(Observation):
    """A failed action."""

    error_id: str = ""
    observation: ClassVar[str] = "error"

    @property
    def message(self) -> str:
        """The error's text."""
        return self.content


_BASE_FIELDS = {each.name for each in fields(Event)}
_NULL_EVENTS = {"NullAction", "NullObservation"}


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event in the form of a row of a benchmark's history."""
    row: dict[str, Any] = {}
    if event.id != Event.INVALID_ID:
        row = {"id": event.id, "timestamp": event.timestamp}
    if event.source is not None:
        row["source"] = event.source.value
    row["message"] = event.message
    if event.cause is not None:
        row["cause"] = event.cause
    if event.tool_call_metadata is not None:
        row["tool_call_metadata"] = event.tool_call_metadata
    values = {
        each.name: _json_value(getattr(event, each.name)) for each in fields(event) if each.name not in _BASE_FIELDS
    }
    if isinstance(event, Action):
        row["action"] = event.action
        if event.timeout is not None:
            row["timeout"] = event.timeout
        row["args"] = values
    elif isinstance(event, Observation):
        row["observation"] = event.observation
        row["content"] = values.pop("content")
        row["extras"] = values
        if isinstance(event, CmdOutputObservation):
            row["success"] = event.success
    return row


def event_to_trajectory(event: Event, include_screenshots: bool = False) -> dict[str, Any]:
    """As `event_to_dict`; there are no screenshots here."""
    return event_to_dict(event)


def event_from_dict(value: Mapping[str, Any]) -> Event:
    """The event of a history's row; an unknown kind becomes a NullAction or a NullObservation."""
    kinds: Sequence[type[Event]] = Action.__subclasses__() if "action" in value else Observation.__subclasses__()
    word = value.get("action", value.get("observation"))
    kind = next((each for each in kinds if vars(each).get("action", vars(each).get("observation")) == word), None)
    kind = kind or (NullAction if "action" in value else NullObservation)
    values = dict(value.get("args") or {}) if "action" in value else dict(value.get("extras") or {})
    if "observation" in value:
        values["content"] = value.get("content", "")
    field_names = {each.name for each in fields(kind) if each.init}
    if isinstance(values.get("metadata"), Mapping):
        known_metadata = {each.name for each in fields(CmdOutputMetadata)}
        values["metadata"] = CmdOutputMetadata(**{k: v for k, v in values["metadata"].items() if k in known_metadata})
    event = kind(**{name: values[name] for name in values if name in field_names})
    event._id = value.get("id", Event.INVALID_ID)
    event._timestamp = str(value.get("timestamp", ""))
    event._source = (
        EventSource(value["source"]) if value.get("source") in {each.value for each in EventSource} else None
    )
    event._cause = value.get("cause")
    return event


def get_pairs_from_events(events: Iterable[Event]) -> list[tuple[Action, Observation]]:
    """Actions with their observations, by the cause of an observation; a missing half is a null event."""
    actions: dict[int, Action] = {}
    observations: dict[int, Observation] = {}
    for event in events:
        if isinstance(event, Action) and type(event).__name__ not in _NULL_EVENTS:
            actions[event.id] = event
        elif isinstance(event, Observation) and event.cause is not None and type(event).__name__ not in _NULL_EVENTS:
            observations[event.cause] = event
    pairs: list[tuple[Action, Observation]] = [
        (action, observations.get(place, NullObservation(""))) for place, action in actions.items()
    ]
    return pairs + [(NullAction(), event) for cause, event in observations.items() if cause not in actions]


def _json_value(value: Any) -> Any:
    return asdict(value) if isinstance(value, CmdOutputMetadata) else value
