"""Every error that Evaldesk raises on purpose, drawn as one tree.

EvaldeskError
├── UsageError          the caller asked for something that cannot be (exit code 2, HTTP 422)
│   ├── NotFoundError   a name that leads nowhere; says which names exist (exit code 2, HTTP 404)
│   └── LossError       the file's own format cannot hold the new contents (exit code 2, HTTP 422)
├── ConflictError       the thing changed or exists already (HTTP 409)
├── DiskError           a file could not be written: the disk is full, broken or read-only (HTTP 507)
├── FormatError         a file does not say what it should; says where (HTTP 422)
├── AgentError          the user's agent could not be loaded or did not keep its contract
│   └── NoDoubleError   a tool was called for which its case has no double
├── BadNumberError      tokens, a cost or a time that cannot be, by the name of its field
├── MetricError         a metric cannot judge what it was given
├── ModelError          a model call failed for good
├── TrustError          a person has not said yet that this folder may run code (exit code 2, HTTP 403)
└── WorkspaceError      the workspace cannot be used: held by another desk, newer schema, not writable
    ├── LostDatabaseError   the database was deleted or replaced while it was open (exit code 3)
    └── DamagedDatabaseError    the database is damaged (exit code 3, HTTP 500)
"""

from __future__ import annotations

from collections.abc import Iterable

NAME_LIMIT, VALUE_LIMIT, TEXT_LIMIT, REASON_LIMIT = 40, 80, 200, 500
"""Foreign text is cut, in characters: a name or key, a value, an address or the message of another program, and the
sentence that is stored as the reason of a failed call or trial."""


class EvaldeskError(Exception):
    """An error with a sentence: the place, the value found, and the next step."""


class UsageError(EvaldeskError):
    """The caller asked for something that cannot be; `field` names the form field or option at fault."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class EmptyShardError(UsageError):
    """A shard of an eval set has no case: there is nothing to play, and nothing is wrong."""


class NotFoundError(UsageError):
    """A name that leads nowhere."""

    @classmethod
    def among(cls, kind: str, name: str, known_names: Iterable[str]) -> NotFoundError:
        """Say that `name` is no `kind`, and name the nearest known one, or all of them when they are few."""
        names, name = sorted(known_names), name[:TEXT_LIMIT]
        from difflib import get_close_matches

        nearest = get_close_matches(name, names, n=1)
        if nearest:
            return cls(f"no {kind} named {name!r}; did you mean {nearest[0]!r}?")
        if not names:
            return cls(f"no {kind} named {name!r}; there is none yet")
        name_list = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        return cls(f"no {kind} named {name!r}; there are: {name_list}")


class ConflictError(EvaldeskError):
    """The thing exists already, or changed since it was read."""


class DiskError(EvaldeskError, OSError):
    """A file could not be written; the file of that name is as it was. `strerror` is the system's message."""

    def __init__(self, number: int, strerror: str, message: str) -> None:
        super().__init__(number, strerror)
        self._message = message

    def __str__(self) -> str:
        return self._message


class FormatError(EvaldeskError):
    """A file does not have the expected contents.

    `source` is the file name, `path` the JSON path inside it (`eval_cases[2].conversation`), `line` and
    `column` count from 1 where the place in the text is known.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        path: str = "",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        place = source + (f":{line}" if line else "") + (f":{column}" if line and column else "")
        super().__init__(": ".join(part for part in (place, path, message) if part))
        self.reason = message
        self.source = source
        self.path = path
        self.line = line
        self.column = column


class AgentError(EvaldeskError):
    """The user's agent could not be loaded, or did not keep the agent contract; `trace` has the user's frames."""

    def __init__(self, message: str, *, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


NO_DOUBLE = "no_double"
"""The kind of a failure by a call that no double of the case answers."""


class NoDoubleError(AgentError):
    """A tool was called that no double of the case answers, and the case says that this ends the trial."""

    kind = NO_DOUBLE


class BadNumberError(EvaldeskError, ValueError):
    """A number of tokens, dollars or milliseconds that cannot be; the sentence names the field and the value."""


class MetricError(EvaldeskError):
    """A metric cannot judge its input."""


NOT_RECORDED = "not_recorded"
"""The kind of a ModelError for a call that a replay does not answer."""

PREFIX_DIVERGED = "prefix_diverged"
"""The kind of a ModelError for a call that is not the recorded one before the point of a fork."""


class ModelError(EvaldeskError):
    """A model call failed for good; `kind` is a short stable word such as `rate_limit`.

    `trace` is shown below the message in place of a traceback: two requests that differ.
    """

    def __init__(self, message: str, *, kind: str = "model", is_fatal: bool = False, trace: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.is_fatal = is_fatal
        self.trace = trace


class RemoteError(EvaldeskError):
    """A tool behind an address cannot be used; `status` is its HTTP status, 0 without an answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class TrustError(EvaldeskError):
    """Something of a folder would run that nobody has trusted; nothing of it ran."""


class WorkspaceError(EvaldeskError):
    """The workspace cannot be used: held by another desk, newer schema, not writable."""


class LossError(UsageError):
    """The file's own format cannot hold the new contents; `losses` names them, one sentence each."""

    def __init__(self, message: str, losses: tuple[str, ...]) -> None:
        super().__init__(message)
        self.losses = losses


class LostDatabaseError(WorkspaceError):
    """The database was deleted or replaced while it was open: nothing more can be stored, and no retry helps."""


class BrokenRowError(WorkspaceError):
    """A row holds a value that Evaldesk never writes: the sentence names table, row and column where they are known."""


class DamagedDatabaseError(WorkspaceError):
    """Bytes of the database are damaged: it cannot be read or written whole, and no retry helps."""

    @classmethod
    def at(cls, path: object, reason: object) -> DamagedDatabaseError:
        """Name the file, the reason of SQLite, and the next step."""
        return cls(
            f"{path} is damaged ({reason}). Stop every evaldesk that uses it and copy it with its -wal file; "
            "put a backup in its place, or let `evaldesk doctor --repair` recover the rows that can be read"
        )
