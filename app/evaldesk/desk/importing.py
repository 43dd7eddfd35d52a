"""Files of other tools taken in: looked at first, then stored as an eval set and as runs."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

from evaldesk import __version__
from evaldesk.desk.evalsets import EvalSetDesk
from evaldesk.desk.names import slug
from evaldesk.desk.reading_apart import read_upload
from evaldesk.desk.scrubbing import value_scrubber
from evaldesk.errors import NotFoundError
from evaldesk.formats.exchange import Imported, RecordedRun
from evaldesk.formats.files import title_of
from evaldesk.model import RunConfig, TrialResult
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.recorded_runs import NO_EVALSET, check_trials, imported_agent

MAX_STAGED = 4
MAX_AGENT_NAME = 200


@dataclass(frozen=True, slots=True)
class Staged:
    """An uploaded file that nobody has said yes to yet; `name` is proposed for its eval set.

    `data` are its bytes where it may have to be read again, by another outcome; empty otherwise.
    """

    token: str
    source: str
    title: str
    name: str
    imported: Imported
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of a file."""

    evalset_id: str | None
    run_ids: tuple[int, ...]


class ImportDesk:
    """Reads, stages and stores imported files. Works on files and the database: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store, evalsets: EvalSetDesk) -> None:
        self._store = store
        self._evalsets = evalsets
        self._scrubbed = value_scrubber(settings.environment)
        self._staged: OrderedDict[str, Staged] = OrderedDict()
        self._lock = Lock()

    def stage(self, data: bytes, source: str) -> Staged:
        """Keep what the file holds until somebody confirms it; of very many the oldest go. Raises FormatError."""
        return self._keep(secrets.token_urlsafe(12), data, source, read_upload(data, source))

    def stage_by(self, token: str, outcome: str) -> Staged:
        """Read a staged file again, by another of its outcomes. Raises NotFoundError, FormatError."""
        staged = self.staged(token)
        if not staged.data or outcome == staged.imported.outcome:
            return staged
        return self._keep(token, staged.data, staged.source, read_upload(staged.data, staged.source, outcome))

    def _keep(self, token: str, data: bytes, source: str, imported: Imported) -> Staged:
        again = data if len(imported.outcomes) > 1 or (imported.outcomes and not imported.outcome) else b""
        staged = Staged(token, source, title_of(imported.format), proposed_name(source), imported, again)
        with self._lock:
            self._staged[staged.token] = staged
            while len(self._staged) > MAX_STAGED:
                self._staged.popitem(last=False)
        return staged

    def staged(self, token: str) -> Staged:
        """The file that was staged under this token. Raises NotFoundError."""
        with self._lock:
            found = self._staged.get(token)
        if found is None:
            raise NotFoundError("This upload is not here any more: it was imported, or others came after it.")
        return found

    def drop(self, token: str) -> None:
        """Forget a staged file."""
        with self._lock:
            self._staged.pop(token, None)

    def take_in(self, imported: Imported, *, source: str, name: str, replaces: bool = False) -> TakenIn:
        """Store all that a file holds; the eval set, if there is one, as `name`.

        Raises UsageError and SetNameTakenError before anything is stored.
        """
        for run in imported.runs:
            check_trials(run.cases, run.results)
        evalset_id = None
        if imported.evalset is not None:
            evalset_id = self._evalsets.take_in(name, imported.evalset, replaces=replaces)
        run_ids = [self._add_run(run, imported.format, source, evalset_id) for run in imported.runs]
        return TakenIn(evalset_id, tuple(run_ids))

    def _add_run(self, run: RecordedRun, format_name: str, source: str, evalset_id: str | None) -> int:
        path = str(self._evalsets.file(evalset_id).path) if evalset_id else run.name
        config = RunConfig(
            agent=imported_agent(run.agent[:MAX_AGENT_NAME] or "unknown"),
            evalset_id=evalset_id or f"{NO_EVALSET}{slug(run.name, default='run')}",
            evalset_path=path,
            criteria=run.criteria,
            agent_model=run.model,
            note=run.note,
            evaldesk_version=__version__,
        )
        results: tuple[TrialResult, ...] = tuple(self._scrubbed(result) for result in run.results)
        reason = f"Imported from {source} ({title_of(format_name)}). Verdicts and scores stand as the file says."
        return self._store.recorded_runs.add(config, run.cases, results, reason)


def proposed_name(source: str) -> str:
    """The name of an eval set from that of a file."""
    stem = source.partition(".")[0]
    return stem if stem.isascii() and stem.isidentifier() and len(stem) <= 100 else slug(stem, default="imported")
