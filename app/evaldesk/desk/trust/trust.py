"""Whether the agents and the stored runs of a workspace may run, and the question that a person is asked.

Three things count as a yes: an answer that is kept for the folder, `EVALDESK_TRUST=1` for this process, and the name of
an agent in a command, for that agent alone. The runs of a database that this user's desk made were submitted by this
user; those of any other database wait for the answer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evaldesk import paths
from evaldesk.agents import declared_refs, find_agents, with_declared
from evaldesk.desk.trust.answers import ANSWERED, MADE, Answers
from evaldesk.errors import TrustError
from evaldesk.model import AgentRef
from evaldesk.settings import CONFIG_NAME, Settings
from evaldesk.store import Store

VARIABLE = "EVALDESK_TRUST"
NEXT_STEP = (
    f"trust it on the page of `evaldesk ui`, with --trust, or for one command with {VARIABLE}=1; "
    "until then nothing of it runs"
)


@dataclass(frozen=True, slots=True)
class Question:
    """The things that would run after a yes: agents with their files, stored runs, settings, `.env` files."""

    folders: tuple[Path, ...]
    agents: tuple[AgentRef, ...]
    has_stored_runs: bool
    has_settings: bool
    environment_files: tuple[Path, ...]


class Trust:
    """The consent of a person to run what a workspace holds."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._settings = settings
        self._answers = Answers(environment)
        self._named: set[AgentRef] = set()
        self.is_look_only = False
        self._is_own = not _has_database(settings) or self._answers.is_own(settings.state_folder)
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

    def question(self) -> Question:
        """The things that would run after a yes, found by reading files."""
        from evaldesk.agents.loading import nearest

        settings = self._settings
        found = [] if settings.is_demo else find_agents(settings.roots)
        agents = with_declared(found, declared_refs(settings.agents, settings.workspace))
        files = [nearest(Path(place)) for ref in agents if (place := ref.folder)]
        return Question(
            folders=self._folders(),
            agents=tuple(agents),
            has_stored_runs=not self._is_own,
            has_settings=_has_settings(settings),
            environment_files=tuple(dict.fromkeys(file for file in files if file)),
        )

    def give(self) -> bool:
        """Trust the folders of this workspace from now on; False where the answer cannot be kept for the next time."""
        self._is_given = True
        kept = [self._answers.trust(folder) for folder in self._folders()]
        return self._answers.mark_own(self._settings.state_folder) and all(kept)

    def look_only(self) -> None:
        """Ask no more on the first page; nothing may run."""
        self.is_look_only = True

    def name(self, ref: AgentRef) -> None:
        """Take an agent that a command names as one that may run."""
        self._named.add(ref)

    def allows(self, ref: AgentRef) -> bool:
        """Whether the agent may be imported."""
        if self._is_given or ref in self._named:
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

    def allows_run(self, ref: AgentRef) -> bool:
        """Whether a stored run of this agent may be played or scored."""
        return self._is_given or self._is_own or ref in self._named

    def check_run(self, ref: AgentRef) -> None:
        """Raise TrustError for a stored run that somebody else may have submitted."""
        if not self.allows_run(ref):
            raise TrustError(f"{self._settings.database} is not trusted; {NEXT_STEP}")

    def opened_store(self) -> Store:
        """The database of the workspace; one that is made here and now belongs to this user. Raises WorkspaceError."""
        settings = self._settings
        is_new = not _has_database(settings)
        store = Store.open(settings.database)
        if is_new:
            self._answers.mark_own(settings.state_folder)
            if not (_has_settings(settings) or find_agents([settings.workspace])):
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


def _has_database(settings: Settings) -> bool:
    """Whether there is a database, or a log from which SQLite would make one."""
    return any(settings.state_folder.glob(f"{settings.database.name}*"))


def _has_settings(settings: Settings) -> bool:
    return (settings.workspace / CONFIG_NAME).exists()


def _is_sample(ref: AgentRef) -> bool:
    return bool(ref.folder) and Path(ref.folder).is_relative_to(paths.samples())
