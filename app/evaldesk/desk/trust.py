"""Whether the agents and the stored runs of a workspace may run, the question that a person is asked, and the answer.

Three things count as a yes: an answer that is kept for the folder, `EVALDESK_TRUST=1` for this process, and the name of
an agent in a command, for that agent alone. The runs of a database that this user's desk made were submitted by this
user; those of any other database wait for the answer.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evaldesk import paths
from evaldesk.agents import declared_refs, find_agents, merge_refs
from evaldesk.agents.discovery import with_place
from evaldesk.desk.process_owner import starter
from evaldesk.durable_files import create_file, make_folder, replace_file
from evaldesk.errors import ConflictError, TrustError, UsageError
from evaldesk.model import AgentRef, RunConfig
from evaldesk.paths import check_no_links, interpreter_path, make_private_folder
from evaldesk.settings import CONFIG_NAME, STORE_VARIABLE, InboxSettings, Settings
from evaldesk.store import Store

VARIABLE = "EVALDESK_TRUST"
_BY_COMMAND = f"with --trust of `evaldesk ui` or `evaldesk agents`, or for one command with {VARIABLE}=1"
NEXT_STEP = f"trust it on the page of `evaldesk ui`, {_BY_COMMAND}; until then nothing of it runs"


@dataclass(frozen=True, slots=True)
class Question:
    """The things that would run after a yes: agents with their files, stored runs, settings, `.env` files.

    `server` is the database where it is one of a server; empty for a file.
    """

    folders: tuple[Path, ...]
    agents: tuple[AgentRef, ...]
    has_stored_runs: bool
    has_settings: bool
    environment_files: tuple[Path, ...]
    server: str = ""
    inbox: InboxSettings | None = None


class Trust:
    """The consent of a person to run the code of a workspace."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._settings = settings
        self._answers = Answers(environment)
        self._named_refs: set[AgentRef] = set()
        self.is_look_only = False
        state, has_database = settings.state_folder, _has_database(settings)
        self._is_own = not settings.store and (not has_database or self._answers.is_own(state))
        self._is_made = not settings.store and (not has_database or self._answers.is_made(state))
        self._is_given = environment.get(VARIABLE) == "1" or self._is_answered()
        self._has_foreign_parts = not self._is_given and self._finds_foreign_parts()

    @property
    def is_given(self) -> bool:
        """Whether everything of the workspace may run."""
        return self._is_given

    @property
    def is_restricted(self) -> bool:
        """Whether the workspace holds something that nobody has trusted."""
        return not self._is_given and self._has_foreign_parts

    @property
    def has_foreign_runs(self) -> bool:
        """Whether the database was made elsewhere, and nobody has trusted it."""
        return not (self._is_given or self._is_own)

    @property
    def is_database_ours(self) -> bool:
        """Whether this user's desk made the database, and nobody else writes into it: no server, and no cloned file."""
        return self._is_made

    @property
    def state_home(self) -> Path | None:
        """The folder of answers and consents of this user; None where there is no home."""
        return self._answers.home

    def question(self) -> Question:
        """The things that would run after a yes, found by reading files."""
        from evaldesk.agents.env_files import env_file_of

        settings = self._settings
        workspace_refs = [] if settings.is_demo else find_agents(settings.roots)
        refs = merge_refs(workspace_refs, declared_refs(settings.agents, settings.workspace))
        agents = [with_place(ref, settings.python, settings.container) for ref in refs]
        files = [env_file_of(Path(place)) for ref in agents if (place := ref.folder)]
        return Question(
            folders=self._folders(),
            agents=tuple(agents),
            has_stored_runs=not self._is_own,
            has_settings=_has_settings(settings),
            environment_files=tuple(dict.fromkeys(file for file in files if file)),
            server=str(settings.store or ""),
            inbox=settings.inbox,
        )

    def give(self) -> bool:
        """Trust the folders of this workspace from now on; False where the answer cannot be kept for the next time."""
        self._is_given = True
        are_stored = [self._answers.trust(folder) for folder in self._folders()]
        state = self._settings.state_folder
        is_made = not _has_database(self._settings) or self._answers.is_made(state)
        with suppress(OSError):  # before the mark, which makes all of the folder one's own
            self._answers.remove_foreign_caches(state)
        return self._answers.mark_own(state, is_made=is_made) and all(are_stored)

    def disown_rows(self) -> None:
        """Let the rows of the database count as those of others from now on, as after a restore of a file."""
        if self._is_made:
            self._is_made = False
            self._answers.mark_own(self._settings.state_folder, is_made=False)

    def look_only(self) -> None:
        """Ask no more on the first page; nothing may run."""
        self.is_look_only = True

    def name(self, ref: AgentRef) -> None:
        """Take an agent that a command names as one that may run.

        Raises TrustError where the agent is from elsewhere, and untrusted settings of the workspace say where keys go.
        """
        settings = self._settings
        options, path = (settings.model_options, settings.user.options), settings.workspace / CONFIG_NAME
        if ref.python and ref.python in _interpreters(settings) and not self._is_ours(ref, path):
            raise TrustError(
                f"{path} names the interpreter {ref.python}, and the agent {ref.id} is from elsewhere; name it with "
                f"--python, start in another folder, or {NEXT_STEP}"
            )
        if any(each.base_url or each.api_key_env for each in options) and not self._is_ours(ref, path):
            raise TrustError(
                f"{path} says where the keys of models are sent, and the agent "
                f"{ref.id} is from elsewhere; start in another folder, or {NEXT_STEP}"
            )
        self._named_refs.add(ref)

    def check_criteria_file(self, ref: AgentRef, path: Path) -> None:
        """Refuse a criteria file with code or addresses that nobody named, where it is not of the agent's folder.

        Raises TrustError.
        """
        if not self._is_ours(ref, path):
            raise TrustError(
                f"{path} names code or an address, and the agent {ref.id} is from elsewhere; name the file with "
                f"--config-file-path, or {NEXT_STEP}"
            )

    def check_executor(self, config: RunConfig) -> None:
        """Raise TrustError where untrusted settings say to which machines an agent from elsewhere is sent."""
        path = self._settings.workspace / CONFIG_NAME
        if config.executor.name and not self._is_ours(config.agent, path):
            raise TrustError(
                f"{path} says where [executors.{config.executor.name}] is, and the agent {config.agent.id} is from "
                f"elsewhere; start in another folder, or {NEXT_STEP}"
            )

    def allows(self, ref: AgentRef) -> bool:
        """Whether the agent may be imported."""
        if self._is_given or ref in self._named_refs:
            return True
        if self._has_foreign_parts:
            return False
        return _is_sample(ref) or self._answers.is_trusted(self._place(ref))

    def check_agent(self, ref: AgentRef) -> None:
        """Raise TrustError for an agent that may not be imported."""
        if not self.allows(ref):
            self._has_foreign_parts = True
            raise TrustError(f"{ref.folder or self._settings.workspace} is not trusted; {NEXT_STEP}")

    def check_all(self) -> None:
        """Raise TrustError while the workspace holds something that nobody has trusted."""
        if self.is_restricted:
            raise TrustError(f"{self._settings.workspace} is not trusted; {NEXT_STEP}")

    def check_repair(self) -> None:
        """Raise TrustError where neither this user's desk made the files nor somebody trusted the workspace."""
        if not self._answers.is_own(self._settings.state_folder):
            self.check_all()

    def check_runs(self) -> None:
        """Raise TrustError for the stored runs of a workspace that nobody has trusted."""
        if not (self._is_given or self._is_own):
            raise TrustError(f"{self._settings.database} is not trusted; {NEXT_STEP}")

    def check_store(self) -> None:
        """Raise TrustError where an untrusted `evaldesk.toml` names the server, which would be told a password."""
        settings = self._settings
        if settings.store and settings.is_store_of_file and not self._is_given:
            raise TrustError(
                f"{settings.workspace / CONFIG_NAME} names the database {settings.store}, and nobody has trusted it; "
                f"trust it {_BY_COMMAND}, or name the database in {STORE_VARIABLE}"
            )

    def opened_store(self) -> Store:
        """The database of the workspace; a file that is made here and now belongs to this user.

        Raises WorkspaceError, and TrustError before a server is spoken to that an untrusted `evaldesk.toml` names.
        """
        self.check_store()
        settings = self._settings
        is_new = not (settings.store or _has_database(settings))
        if settings.store:
            check_no_links(settings.state_folder)
            make_private_folder(settings.state_folder)  # of logs, uploads and trash
        with suppress(OSError):  # of a read-only folder, which is shown as it is
            self._answers.remove_foreign_caches(settings.state_folder)
        store = Store.open(settings.database, starter=starter(settings))
        if is_new:
            self._answers.mark_own(settings.state_folder)
            if _is_empty(settings):
                self._answers.trust(settings.workspace, MADE)
        return store

    def _folders(self) -> tuple[Path, ...]:
        """The workspace, and the folders of agents that are not inside of it."""
        home = self._settings.workspace.resolve()
        shipped = paths.samples()
        roots = [root.resolve() for root in self._settings.roots]
        return (home, *(root for root in roots if not root.is_relative_to(home) and root != shipped))

    def _is_answered(self) -> bool:
        """Whether there is an answer for each folder, and the workspace still is the one that it was given for."""
        is_own = self._answers.is_own(self._settings.state_folder)
        return is_own and all(self._answers.how(folder) == ANSWERED for folder in self._folders())

    def _is_ours(self, ref: AgentRef, path: Path) -> bool:
        """Whether the file is trusted, or belongs to the agent that a person named: one folder or one repository."""
        folder = path.resolve().parent
        if self._is_given or self._answers.is_trusted(folder) or not path.exists():
            return True
        if ref.declared:
            return path == self._settings.workspace / CONFIG_NAME
        if not (ref.folder or ref.root):
            return False
        place, home = Path(ref.folder or ref.root).resolve(), self._settings.workspace.resolve()
        homes = {each for each in (home, folder, _repository(folder)) if each and folder.is_relative_to(each)}
        return folder.is_relative_to(place) or any(place.is_relative_to(each) for each in homes)

    def _finds_foreign_parts(self) -> bool:
        if not self._is_own:
            return True
        settings = self._settings
        is_ours = self._answers.is_own(settings.state_folder)
        places = [settings.workspace] if _has_settings(settings) else []
        places += [self._place(ref) for ref in ([] if settings.is_demo else find_agents(settings.roots))]
        return any(not (is_ours and self._answers.is_trusted(place)) for place in places)

    def _place(self, ref: AgentRef) -> Path:
        return Path(ref.folder or ref.root or self._settings.workspace)


def check_store(settings: Settings) -> None:
    """Raise TrustError where `evaldesk.toml` names a server, and nobody has trusted it; a file is never refused."""
    if settings.store and settings.is_store_of_file:
        Trust(settings).check_store()


def _has_database(settings: Settings) -> bool:
    """Whether there is a database file, or a log from which SQLite would make one."""
    return any(settings.state_folder.glob(f"{settings.database_file.name}*"))


def _is_empty(settings: Settings) -> bool:
    """Whether all that will be in the workspace comes later: code can lie deeper than agents are looked for."""
    return all(path == settings.state_folder for path in settings.workspace.iterdir())


def _has_settings(settings: Settings) -> bool:
    return (settings.workspace / CONFIG_NAME).exists()


def _interpreters(settings: Settings) -> Iterator[str]:
    """The folders that the settings name."""
    yield settings.python
    for environment in settings.environments.values():
        with suppress(UsageError):
            yield interpreter_path(environment.python, settings.workspace)


def _is_sample(ref: AgentRef) -> bool:
    return bool(ref.folder) and Path(ref.folder).is_relative_to(paths.samples())


def _repository(folder: Path) -> Path | None:
    """The repository that the folder is in."""
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)


MARK_NAME = "owner"
KEY_NAME = "key"
ANSWERED, MADE = "answered", "made"
TAKEN_OVER = b"\0taken over"
"""Goes into the mark of a folder that was there before; no path holds the character NUL."""
CACHES_NAME, CACHES = "caches", b"\0caches"
"""The mark of a folder whose indexes this user's desk made, whoever made its database."""
DERIVED = ("search.db", "search.db-wal", "search.db-shm", "indexes")
"""Files and folders that are made again from others; a forged index would hide cases or trials."""
MAX_FILE = 4096


class Answers:
    """The folders that this user trusts on this machine, kept in `$XDG_STATE_HOME/evaldesk` and nowhere else.

    That is `~/.local/state/evaldesk` by default; there are no answers where there is no home. A workspace of this user
    carries a mark that only this user can make: a digest of its path under a key that never leaves that folder. A
    repository that comes with a `.evaldesk` of its own has no such mark, and a folder that was deleted and made again
    at the same path has lost it. A `.evaldesk` that was there before this user trusted it has another mark: it is used,
    and its rows stay those of others.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.home = _state_home(environment)

    def is_trusted(self, folder: Path) -> bool:
        """Whether the folder, or one above it, is trusted."""
        return bool(self.how(folder))

    def how(self, folder: Path) -> str:
        """How the folder, or one above it, came to be trusted; empty where it is not.

        The yes for a folder that was empty does not hold for another repository inside of it.
        """
        is_other_repository = False
        folder = folder.resolve()
        for each in (folder, *folder.parents):
            how = self._answer(each)
            if how:
                return "" if how == MADE and is_other_repository else how
            is_other_repository |= (each / ".git").exists()
        return ""

    def trust(self, folder: Path, how: str = ANSWERED) -> bool:
        """Write down that the folder is trusted; False where it cannot be kept."""
        folder = folder.resolve()
        try:
            stat = folder.stat()
            # The inode tells a clone at the path of a deleted folder: decision 044.
            answer = {"folder": str(folder), "inode": stat.st_ino, "owner": stat.st_uid, "how": how}
            path = self._path(folder)
            if path is None:
                return False
            make_private_folder(path.parents[1])
            make_folder(path.parent)
            replace_file(path, json.dumps(answer).encode(), mode=0o600)
        except OSError:
            return False
        return True

    def is_own(self, state_folder: Path) -> bool:
        """Whether this user's desk made the folder `.evaldesk` or this user trusted it, here and at this path."""
        return self.is_made(state_folder) or self._has_mark(state_folder, TAKEN_OVER)

    def is_made(self, state_folder: Path) -> bool:
        """Whether this user's desk made the folder `.evaldesk`, on this machine and at this path."""
        return self._has_mark(state_folder)

    def mark_own(self, state_folder: Path, *, is_made: bool = True) -> bool:
        """Mark `.evaldesk` as made by this user, or else as trusted; False where that cannot be stored.

        Raises WorkspaceError for a link.
        """
        check_no_links(state_folder)
        try:
            self._make_key()
            mark = self._mark(state_folder, b"" if is_made else TAKEN_OVER)
            if mark:
                make_private_folder(state_folder)
                replace_file(state_folder / ".gitignore", b"*\n", mode=0o600)
                replace_file(state_folder / MARK_NAME, mark.encode(), mode=0o600)
        except OSError:
            return False
        return bool(mark)

    def remove_foreign_caches(self, state_folder: Path) -> None:
        """Remove indexes that came with the folder: they are made again from the rows and files that they are about.

        Once is enough where the mark can be stored. Raises OSError, and WorkspaceError for a link.
        """
        if not state_folder.is_dir() or self.is_own(state_folder) or self._has_mark(state_folder, CACHES, CACHES_NAME):
            return
        check_no_links(state_folder)
        for name in DERIVED:
            path = state_folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self._make_key()
        if mark := self._mark(state_folder, CACHES):
            replace_file(state_folder / CACHES_NAME, mark.encode(), mode=0o600)

    def _answer(self, folder: Path) -> str:
        """How the folder came to be trusted; empty where it is not, or is another folder at the same path."""
        path = self._path(folder)
        try:
            answer = json.loads(_read_own(path) or "null") if path else None
            stat = folder.stat()
        except (OSError, ValueError, RecursionError):
            return ""
        if not isinstance(answer, dict):
            return ""
        now = {"folder": str(folder), "inode": stat.st_ino, "owner": stat.st_uid}
        return str(answer.get("how", "")) if answer.items() >= now.items() else ""

    def _path(self, folder: Path) -> Path | None:
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
        return self.home / "trusted" / f"{name}.json" if self.home else None

    def _has_mark(self, state_folder: Path, kind: bytes = b"", name: str = MARK_NAME) -> bool:
        right_mark, mark = self._mark(state_folder, kind), _read_own(state_folder / name)
        return bool(right_mark and mark) and hmac.compare_digest(right_mark, mark)

    def _mark(self, state_folder: Path, kind: bytes = b"") -> str:
        """The digest that the folder carries; empty where there is no key."""
        key = _read_own(self.home / KEY_NAME) if self.home else ""
        if not key:
            return ""
        place = os.fsencode(state_folder.parent.resolve() / state_folder.name)
        return hmac.new(key.encode(), place + kind, hashlib.sha256).hexdigest()

    def _make_key(self) -> None:
        if self.home is None or (path := self.home / KEY_NAME).exists():
            return
        make_private_folder(self.home)
        with suppress(ConflictError):  # another desk of this user was quicker
            create_file(path, secrets.token_hex(32).encode(), mode=0o600)


def _state_home(environment: Mapping[str, str]) -> Path | None:
    xdg_folder = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(xdg_folder):
        return Path(xdg_folder) / "evaldesk"
    home = environment.get("HOME", "")
    return Path(home) / ".local" / "state" / "evaldesk" if os.path.isabs(home) else None


def _read_own(path: Path) -> str:
    """The text of a file that this user alone can write; empty for any other."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        file_stat = os.fstat(handle)
        is_ours = stat.S_ISREG(file_stat.st_mode) and file_stat.st_uid == os.geteuid() and not file_stat.st_mode & 0o022
        return os.read(handle, MAX_FILE).decode("ascii", "replace") if is_ours else ""
    except OSError:
        return ""
    finally:
        os.close(handle)


STATE_NAME = ".evaldesk"


def question_words(question: Question) -> list[tuple[str, str]]:
    """A title and a text for each thing that would run."""
    entries = [
        (f"agent {ref.id}", _place(ref) + (f", on {ref.python}" if ref.python else "")) for ref in question.agents
    ]
    if question.has_settings:
        entries.append((CONFIG_NAME, "chooses models, their addresses and your own metrics"))
    entries += _inbox_words(question.inbox) if question.inbox else []
    if question.server:
        entries.append(("database", f"{question.server}, whose waiting runs of these agents would go on"))
    elif question.has_stored_runs:
        entries.append((STATE_NAME, "its database was made elsewhere; its waiting runs of these agents would go on"))
    return [*entries, *((path.name, str(path)) for path in question.environment_files)]


def _inbox_words(inbox: InboxSettings) -> Iterator[tuple[str, str]]:
    """The command that an alarm starts, the address of scores, and those that traces are pulled from with keys."""
    if inbox.on_alarm:
        yield "[inbox] on_alarm", f"starts {shlex.join(inbox.on_alarm)} at an alarm"
    if inbox.emit:
        yield "[inbox] emit", f"sends scores to {inbox.emit}"
    for name, pull in inbox.pull.items():
        keys = f", with {' and '.join(pull.keys)}" if pull.keys else ""
        yield f"[inbox.pull.{name}]", f"pulls traces each hour from {pull.url or pull.tool}{keys}"


def _place(ref: AgentRef) -> str:
    """The file of an agent, or the place where it is declared."""
    if not ref.folder:
        return f"{CONFIG_NAME}: {ref.target}" if ref.target else CONFIG_NAME
    module = ref.target.partition(":")[0]
    path = Path(ref.root, *module.split(".")).with_suffix(".py")
    return str(path) if os.path.isfile(path) else ref.folder
