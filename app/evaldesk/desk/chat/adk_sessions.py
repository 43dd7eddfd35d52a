"""The chat sessions of `adk web`, found beside the agents of the workspace and read as proposals for cases.

Nothing is imported, nothing runs and nothing is written: the databases are opened read only, in their place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.chat.recording import LEFT_OUT, RecordedTurn, Recording, propose_case_id
from evaldesk.errors import FormatError, NotFoundError
from evaldesk.formats.adk.session import case_of, recorded_at, state_changes
from evaldesk.formats.adk.session_database import (
    MAGIC,
    ListedSession,
    SessionName,
    list_sessions,
    opened_file,
    read_session,
    session_names,
)
from evaldesk.model import Case, Expected, SessionInit, ToolCall, Turn
from evaldesk.reading.notes import Notes
from evaldesk.reading.regular_file import check_regular
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.settings import Settings
from evaldesk.store.evalsets.found import folders_of

PAGE_SIZE = 50
MAX_DATABASES = 50
SUFFIXES = (".db", ".sqlite", ".sqlite3")
OF_ADK = Path(".adk", "session.db")
N_LETTERS = 24
"""Letters of a digest that stand for a file or a session in an address."""


@dataclass(frozen=True, slots=True)
class AdkLine:
    """A session in the list; `id` stands for it in an address."""

    id: str
    app_name: str
    user_id: str
    session_id: str
    updated_at: datetime | None
    n_events: int
    message: str


@dataclass(frozen=True, slots=True)
class AdkDatabase:
    """One database with a page of its sessions, last used first; `older` is the id of the last where more follow."""

    id: str
    place: str
    sessions: Sequence[AdkLine] = ()
    older: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class AdkSession:
    """A session that can be added to an eval set."""

    id: str
    place: str
    name: SessionName
    case: Case
    reasons: Sequence[str]
    changed_keys: frozenset[str]
    recorded_at: datetime | None = None

    @property
    def app_name(self) -> str:
        """The app of ADK, which has the name of its agent's folder."""
        return self.name[0]

    def record(self, used_ids: Container[str] = ()) -> Recording:
        """The proposal for an eval set whose case ids are `used_ids`."""
        session = self.case.initial_session or SessionInit()
        turns = [RecordedTurn(turn, why) for turn, why in zip(self.case.turns, self.reasons, strict=True)]
        return Recording(
            case_id=propose_case_id("", self.case.turns[0].query, used_ids),
            app_name=session.app_name,
            user_id=session.user_id or "user",
            turns=tuple(turns),
            initial_state=session.state,
            final_state=self.case.final_state or {},
            unknown_start=tuple(sorted(self.changed_keys)),
            recorded_at=self.recorded_at,
        )


class AdkSessions:
    """The session databases under the settings' roots. Reads files: from pages, call it in a thread."""

    def __init__(self, settings: Settings, agents: AgentDesk) -> None:
        folders = (settings.workspace, *settings.roots)
        self._roots = tuple(dict.fromkeys(Path(os.path.realpath(folder)) for folder in folders))
        self._agents = agents
        self._paths: dict[str, Path] | None = None

    def look_once(self) -> None:
        """Search the folders, where that was not done yet; `list` searches them each time."""
        if self._paths is None:
            self._search()

    @property
    def is_any(self) -> bool:
        """Whether a database was found, or an agent has one since."""
        of_agents = (Path(agent.ref.folder) for agent in self._agents.list())
        own = [folder for folder in of_agents if any(folder.is_relative_to(root) for root in self._roots)]
        since = (folder / OF_ADK for folder in (*self._roots, *own))
        return any(path.is_file() for path in (*(self._paths or {}).values(), *since))

    def list(self, database_id: str = "", older: str = "") -> Sequence[AdkDatabase]:
        """The databases, each with its newest sessions; for `database_id` the ones after the session `older`."""
        paths = self._search()
        if database_id and database_id not in paths:
            raise NotFoundError("This session database is gone.")
        databases = {database_id: paths[database_id]} if database_id else paths
        listed_databases = (self._database(file_id, path, older) for file_id, path in databases.items())
        return [database for database in listed_databases if database]

    def get(self, session_id: str) -> AdkSession:
        """A session by its id in an address. Raises NotFoundError, and FormatError for an unreadable one."""
        file_id = session_id[:N_LETTERS]
        path = (self._paths or {}).get(file_id) or self._search().get(file_id)
        if path is None:
            raise NotFoundError("This session database is gone.")
        check_regular(path)
        with opened_file(path) as connection:
            names = (name for name, _ in session_names(connection))
            name = next((name for name in names if _id_of(file_id, name) == session_id), None)
            raw = read_session(connection, name, path.name) if name else None
        if name is None or raw is None:
            raise NotFoundError("This session is not in its database any more.")
        return _session(session_id, self._place(path), name, raw)

    def _database(self, file_id: str, path: Path, older: str) -> AdkDatabase | None:
        """None for a file that is not of ADK."""
        try:
            check_regular(path)
            with opened_file(path) as connection:
                names = session_names(connection)
                ids = [_id_of(file_id, name) for name, _ in names]
                start = ids.index(older) + 1 if older in ids else 0
                listed_sessions = list_sessions(connection, names[start : start + PAGE_SIZE], path.name)
        except (FormatError, OSError) as error:
            is_named = path.parts[-2:] == OF_ADK.parts
            return AdkDatabase(file_id, self._place(path), error=str(error)) if is_named else None
        lines = [_line(file_id, session) for session in listed_sessions]
        more = lines[-1].id if lines and start + PAGE_SIZE < len(names) else ""
        return AdkDatabase(file_id, self._place(path), lines, more)

    def _search(self) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        for path in _candidates(self._roots):
            if len(paths) >= MAX_DATABASES:
                break
            paths[_digest(os.fspath(path))] = path
        self._paths = paths
        return paths

    def _place(self, path: Path) -> str:
        root = next(root for root in self._roots if path.is_relative_to(root))
        return path.relative_to(root).as_posix()


def _candidates(roots: Sequence[Path]) -> Iterator[Path]:
    """The databases of `adk web`, then other SQLite files, which `--session_service_uri` may name."""
    folders = folders_of(roots)
    yield from (path for folder in folders if _is_sqlite(path := folder / OF_ADK))
    for folder in folders:
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        yield from (path for path in entries if path.suffix.lower() in SUFFIXES and _is_sqlite(path))


def _is_sqlite(path: Path) -> bool:
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, FormatError):
        return False


def _session(session_id: str, place: str, name: SessionName, raw: dict[str, Any]) -> AdkSession:
    """Raises FormatError for a session without a turn."""
    here = JsonPosition(Document(raw, source=f"{Path(place).name}!session {name[2]}"))
    case = case_of(here, raw, name[2], Notes())
    if case is None:
        raise FormatError("no event has content: the session contains no turn", source=here.document.source)
    reasons = ["" if turn.expected.reference is not None else LEFT_OUT["unanswered"] for turn in case.turns]
    left_out = {turn.extra.get("invocation_id") for turn, why in zip(case.turns, reasons, strict=True) if why}
    events: list[dict[str, Any]] = raw["events"]
    if any(reasons):
        answered_events = [
            each for each in events if each.get("invocation_id", each.get("invocationId")) not in left_out
        ]
        case = replace(case, final_state=state_changes(here.at("events"), answered_events))
    all_keys = frozenset(state_changes(here.at("events"), events))
    end = recorded_at(events)
    ended_at = datetime.fromtimestamp(end, UTC) if end else None
    return AdkSession(session_id, place, name, _as_expectations(case), reasons, all_keys, ended_at)


def _as_expectations(case: Case) -> Case:
    """The case as one of a chat has it: expectations, without the events that were recorded."""
    turns = tuple(Turn(turn.query, _as_expectation(turn.expected), media=turn.media) for turn in case.turns)
    return Case(case.id, turns=turns, initial_session=case.initial_session, final_state=case.final_state)


def _as_expectation(turn_record: Expected) -> Expected:
    calls = tuple(ToolCall(call.name, call.args) for call in turn_record.tool_calls or ())
    is_answered = turn_record.reference is not None
    return Expected(calls if is_answered else calls or None, turn_record.intermediate, turn_record.reference)


def _line(file_id: str, session: ListedSession) -> AdkLine:
    app_name, user_id, session_id = session.name
    message = " ".join(session.message.split())
    return AdkLine(
        _id_of(file_id, session.name), app_name, user_id, session_id, session.updated_at, session.n_events, message
    )


def _id_of(file_id: str, name: SessionName) -> str:
    return file_id + _digest("\x00".join(name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:N_LETTERS]
