"""Files of other tools taken in: stored as an eval set and as runs, whole or not at all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock, RLock
from typing import TypedDict, Unpack

from sqlalchemy.exc import SQLAlchemyError

from evaldesk import __version__
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.evalsets.names import slug
from evaldesk.desk.imports.staging import Staging
from evaldesk.desk.process_owner import current_owner, is_at_work
from evaldesk.desk.trust import Trust
from evaldesk.errors import (
    DiskError,
    EvaldeskError,
    FormatError,
    NotFoundError,
    UsageError,
    WorkspaceError,
)
from evaldesk.formats.exchange import FORMATS, Imported
from evaldesk.formats.files import title_of
from evaldesk.model import EvalSet, RunConfig, TrialResult
from evaldesk.model.evalset import renamed_repeats, repeats_words
from evaldesk.model.stored import ImportSummary
from evaldesk.reading.regular_file import version_of_file
from evaldesk.run_options import KEEP
from evaldesk.settings import DatabaseUrl, Settings
from evaldesk.store import Store
from evaldesk.store.evalsets.files import PreparedSet
from evaldesk.store.experiments import NewExperiment
from evaldesk.store.runs.imports import (
    PROCESS_ENDED,
    AlreadyImportedError,
    ImportEndedError,
    ImportUnderWayError,
    NewRun,
    new_run,
)
from evaldesk.store.runs.planning import NO_EVALSET
from evaldesk.store.runs.run_store import imported_agent
from evaldesk.transcripts.recorded import RecordedRun, digest_of
from evaldesk.wire import value_scrubber

__all__ = [
    "AlreadyImportedError",
    "Arrival",
    "ImportDesk",
    "ImportEndedError",
    "ImportUnderWayError",
    "StartedImport",
    "TakenIn",
    "file_titles",
    "open_imports",
]

log = logging.getLogger("evaldesk.desk")

MAX_AGENT_NAME = 200
RENEW_S = 20.0
"""The time between two renewals of the imports that wait in line; a lease lasts three times as long."""

N_AT_ONCE = 1_000
"""An import of so few cases and trials is stored while its page is awaited; larger ones wait in line."""

STOPPED = "the desk was stopped before the import was finished; import the file again"

_going: set[tuple[Path | DatabaseUrl, int]] = set()
"""The imports that this process stores, by database and id."""

_beginning = RLock()
"""Held until an import that has begun is in `_going`."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The contents of a file called `source` that is to be imported; its eval set, if there is one, as `name`."""

    contents: Imported
    source: str
    name: str


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The result of an import."""

    evalset_id: str | None
    run_ids: tuple[int, ...]


@dataclass(slots=True)
class StartedImport:
    """An import that is not shown yet; `id` is None where no run is to be stored.

    `known_run_ids` are the runs of the file that were there before, None for each of `runs`, in the order of the file.
    """

    id: int | None
    known_run_ids: Sequence[int | None]
    runs: Sequence[NewRun]
    run_ids: Sequence[int]
    prepared: PreparedSet | None
    resources: ExitStack = field(repr=False)

    @property
    def n_total(self) -> int:
        """Cases and trials to store."""
        return sum(len(run.cases) + len(run.results) for run in self.runs)

    @property
    def result(self) -> TakenIn:
        """The result, once it is stored."""
        new_ids = iter(self.run_ids)
        run_ids = tuple(next(new_ids) if run_id is None else run_id for run_id in self.known_run_ids)
        return TakenIn(self.prepared.id if self.prepared else None, run_ids)


class Answers(TypedDict, total=False):
    """A person's choice for an import whose set, cases or runs exist already."""

    replaces: bool
    renames: bool
    again: bool


def file_titles() -> list[str]:
    """The names of the files that can be imported."""
    return [title_of(name) for name in FORMATS]


@contextmanager
def open_imports(settings: Settings) -> Iterator[ImportDesk]:
    """The imports of a workspace, whose database is made when needed. Raises WorkspaceError."""
    with Trust(settings).opened_store() as store:
        yield ImportDesk(settings, store, EvalSetDesk(settings, store))


Watch = Callable[[int, int], None]
"""Is told after each transaction how many of how many cases and trials are stored."""


class ImportDesk:
    """Reads, stages and stores imported files. Works on files and the database: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store, evalsets: EvalSetDesk) -> None:
        self._store = store
        self.summary, self.list = store.imports.summary, store.imports.list
        self.tag_authors = store.case_tags.authors
        self._database = settings.database
        self._evalsets = evalsets
        self._scrubbed = value_scrubber(settings.environment)
        self._keeps_prompts = settings.prompts == KEEP
        self.staging = Staging(settings)
        self._lock = Lock()
        self._is_closing = False
        self._renewed_s = time.monotonic()
        self._queue: dict[int, StartedImport] = {}

    def take_in(
        self,
        contents: Imported,
        *,
        source: str,
        name: str,
        watch: Watch | None = None,
        **answers: Unpack[Answers],
    ) -> TakenIn:
        """Store all that a file holds; the eval set, if there is one, as `name`. Raises as `begin` and `finish` do."""
        return self.finish(self.begin(contents, source=source, name=name, **answers), watch)

    def begin(
        self,
        contents: Imported,
        *,
        source: str,
        name: str,
        replaces: bool = False,
        renames: bool = False,
        again: bool = False,
        digests: Sequence[str] = (),
        change: Callable[[NewRun], NewRun] = lambda run: run,
        may_be_empty: bool = False,
        experiment: NewExperiment | None = None,
    ) -> StartedImport:
        """Check an import and begin it: nothing of it is shown before `finish`, which must follow.

        `digests` are those of its runs, where they are known; `change` is made in each new run before it is stored.
        `experiment` is that of the runs, if `change` gives them their parts of it.
        A run without a trial is refused unless it `may_be_empty`. With `renames` cases that share an id get one each.
        Raises AlreadyImportedError when every run is stored, or the eval set of a file without runs, and
        ImportUnderWayError when one is being stored, unless `again`. Raises UsageError, SetNameTakenError and DiskError
        before anything is stored.
        """
        self.recover()
        digests = digests or [digest_of(run) for run in contents.runs]
        known_run_ids = [None if again else self._store.imports.find_run(digest) for digest in digests]
        if known_run_ids and None not in known_run_ids:
            raise AlreadyImportedError([run_id for run_id in known_run_ids if run_id is not None])
        runs = [
            change(self._new_run(run, contents.format, source, digest, may_be_empty=may_be_empty))
            for run, digest, run_id in zip(contents.runs, digests, known_run_ids, strict=True)
            if run_id is None
        ]
        with ExitStack() as stack:
            prepared = None
            if contents.evalset is not None:
                evalset = _without_repeats(contents.evalset, source, renames=renames)
                if not (contents.runs or again or replaces) and self._evalsets.holds(name, evalset):
                    raise AlreadyImportedError((), name)
                continues = bool(contents.runs) and not again
                ready = self._evalsets.prepare(name, evalset, replaces=replaces, continues=continues)
                prepared = stack.enter_context(ready)
                runs = [_of_set(run, prepared) for run in runs]
            start = StartedImport(None, known_run_ids, runs, (), prepared, stack)
            if runs:
                set_id = prepared.id if prepared else ""
                with _beginning, self._swept():
                    ids = self._store.imports.begin(
                        source, runs, current_owner(), set_id=set_id, is_again=again, experiment=experiment
                    )
                    start.id, start.run_ids = ids
                    _going.add((self._database, start.id))
            start.resources = stack.pop_all()
            return start

    @contextmanager
    def begin_all(self, arrivals: Sequence[Arrival], **answers: Unpack[Answers]) -> Iterator[Sequence[StartedImport]]:
        """Begin the imports of several files, or of none where one is refused; those not finished are removed.

        Raises as `begin` does, and UsageError when two files would be the same eval set.
        """
        _check_names(arrivals)
        starts: list[StartedImport] = []
        try:
            for each in arrivals:
                starts.append(self.begin(each.contents, source=each.source, name=each.name, **answers))
            yield starts
        except (Exception, KeyboardInterrupt) as error:
            for start in starts:
                self._abandon(start, error)
            raise

    def _abandon(self, start: StartedImport, error: BaseException) -> None:
        """Remove an import that has begun; a finished one stays."""
        start.resources.close()
        if start.id is not None and (self._database, start.id) in _going:
            self._give_up(start.id, error)
            _going.discard((self._database, start.id))

    @contextmanager
    def _swept(self) -> Iterator[None]:
        """Delete the rows of an import that cannot begin."""
        try:
            yield
        except (Exception, KeyboardInterrupt):
            with suppress(EvaldeskError, SQLAlchemyError):
                self._store.runs.finish_deleting()
            raise

    def finish(self, start: StartedImport, watch: Watch | None = None) -> TakenIn:
        """Store an import that has begun, and show all of it at its end.

        An error, Ctrl-C and a cancellation remove all of it; a killed process leaves that to the next start. Raises
        ImportEndedError, ConflictError, DiskError, WorkspaceError.
        """
        with start.resources:
            if start.id is None:
                if start.prepared:
                    start.prepared.write()
                return start.result
            try:
                self._store_rows(start.id, start, watch or (lambda _, __: None))
                self._publish(start.id, start.prepared)
            except (Exception, KeyboardInterrupt) as error:
                if not (isinstance(error, KeyboardInterrupt) and self._is_shown(start.id)):
                    self._give_up(start.id, error)
                    raise
                self._store.imports.name_last_runs(start.id)  # Ctrl-C came too late
            finally:
                _going.discard((self._database, start.id))
            return start.result

    def _store_rows(self, import_id: int, start: StartedImport, watch: Watch) -> None:
        n_done = 0
        for run_id, run in zip(start.run_ids, start.runs, strict=True):
            for n in self._store.imports.add(import_id, run_id, run, self._as_stored):
                n_done += n
                self._renew_others(import_id)
                watch(n_done, start.n_total)
                if self._is_closing:
                    raise WorkspaceError(STOPPED)

    def _as_stored(self, result: TrialResult) -> TrialResult:
        """The trial as it is kept: without secrets, and without prompts where the workspace keeps none."""
        return self._scrubbed(result if self._keeps_prompts else replace(result, prompts=None))

    def _renew_others(self, import_id: int) -> None:
        """Keep the imports of this process that wait for this one."""
        others = [each for place, each in list(_going) if place == self._database and each != import_id]
        if others and time.monotonic() - self._renewed_s > RENEW_S:
            self._store.imports.renew(others)
            self._renewed_s = time.monotonic()

    def _publish(self, import_id: int, prepared: PreparedSet | None) -> None:
        imports = self._store.imports
        if prepared is None:
            imports.make_ready(import_id)
            imports.publish(import_id)
        else:
            imports.make_ready(import_id, set_path=str(prepared.path), set_version=prepared.version)
            try:
                imports.publish(import_id, prepared.write)
            except (Exception, KeyboardInterrupt):
                if not self._is_shown(import_id):
                    prepared.take_back()
                raise
        imports.name_last_runs(import_id)

    def _is_shown(self, import_id: int) -> bool:
        return self._store.imports.summary(import_id).stage == "naming"

    def _give_up(self, import_id: int, error: BaseException) -> None:
        """Remove an import that failed; where the disk does not let it, the next start does."""
        is_asked = isinstance(error, KeyboardInterrupt | ImportEndedError)
        reason = str(error) if isinstance(error, EvaldeskError) else f"{type(error).__name__}: {error}"
        with suppress(EvaldeskError, SQLAlchemyError):
            self._store.imports.end(import_id, "cancelled" if is_asked else "failed", reason)
            if not self._is_closing:
                self._store.runs.finish_deleting()

    def start(self, start: StartedImport, token: str = "") -> None:
        """Store an import in the background, after earlier ones; the upload is removed at its end."""
        if start.id is None:
            raise ValueError("an import without runs is finished at once")
        with self._lock:
            self._queue[start.id] = start
        self._worker.submit(self._finish_queued, start.id, start, token)

    def _finish_queued(self, import_id: int, start: StartedImport, token: str) -> None:
        try:
            self.finish(start)
        except ImportEndedError:
            log.info("import %s was cancelled", import_id)
        except (EvaldeskError, SQLAlchemyError, OSError) as error:
            log.warning("import %s of an upload failed: %s", import_id, error)
        else:
            if token:
                with suppress(NotFoundError, DiskError):
                    self.staging.drop(token)
        finally:
            with self._lock:
                self._queue.pop(import_id, None)

    @cached_property
    def _worker(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "import")

    def n_before(self, import_id: int) -> int:
        """The number of imports of this process before this one."""
        with self._lock:
            return sum(each < import_id for each in self._queue) if import_id in self._queue else 0

    def cancel(self, import_id: int) -> bool:
        """Cancel an import of any process; False when it is over. Raises NotFoundError.

        The process that stores it removes its rows.
        """
        summary = self._store.imports.summary(import_id)
        is_ended = self._store.imports.end(import_id, "cancelled", "Cancelled by a person.")
        if self._is_dead(summary):
            self._store.runs.finish_deleting()
        return is_ended

    def recover(self) -> None:
        """Finish the imports of dead processes that were stored in full, and remove the others."""
        dead = [each for each in self._store.imports.list(1_000, is_unfinished=True) if self._is_dead(each)]
        for each in dead:
            with suppress(ImportEndedError):
                self._end_dead(each)
        if dead:
            self._store.runs.finish_deleting()

    def _end_dead(self, each: ImportSummary) -> None:
        imports = self._store.imports
        if each.stage == "ready" and _is_in_place(each):
            imports.publish(each.id)
        elif each.stage != "naming":
            imports.end(each.id, "failed", PROCESS_ENDED)
            return
        imports.name_last_runs(each.id)

    def _is_dead(self, each: ImportSummary) -> bool:
        if each.owner == current_owner():
            with _beginning:
                return (self._database, each.id) not in _going
        return not is_at_work(each.owner, is_leased=each.is_leased)

    def close(self) -> None:
        """End the imports of this process; incomplete ones are removed at the next start."""
        self._is_closing = True
        self.staging.close()
        if "_worker" in self.__dict__:
            self._worker.shutdown(cancel_futures=True)
        with self._lock:
            queue, self._queue = self._queue, {}
        error = WorkspaceError("the desk was stopped before the import began; import the file again")
        for start in queue.values():
            self._abandon(start, error)

    def _new_run(
        self, run: RecordedRun, format_name: str, source: str, digest: str, *, may_be_empty: bool = False
    ) -> NewRun:
        config = RunConfig(
            agent=imported_agent(run.agent[:MAX_AGENT_NAME] or "unknown"),
            evalset_id=f"{NO_EVALSET}{slug(run.name, default='run')}",
            evalset_path=run.name,
            criteria=run.criteria,
            agent_model=run.model,
            note=run.note,
            evaldesk_version=__version__,
            recorded=run.plan,
        )
        of_tool = f" ({title_of(format_name)})" if format_name else ""
        reason = f"Imported from {source}{of_tool}. Verdicts and scores from the file."
        return new_run(config, run.cases, run.results, reason, digest, may_be_empty=may_be_empty)


def _check_names(arrivals: Sequence[Arrival]) -> None:
    """Raise UsageError when two of the files would be the same eval set."""
    by_name: dict[str, Arrival] = {}
    for each in arrivals:
        if each.contents.evalset is None:
            continue
        first = by_name.setdefault(each.name.casefold(), each)
        if first is not each:
            raise UsageError(
                f"{first.source} and {each.source} would both be the eval set {each.name!r}; import them one by one, "
                "with --name"
            )


def _of_set(run: NewRun, prepared: PreparedSet) -> NewRun:
    return replace(run, config=replace(run.config, evalset_id=prepared.id, evalset_path=str(prepared.path)))


def _without_repeats(evalset: EvalSet, source: str, *, renames: bool) -> EvalSet:
    repeats = repeats_words(evalset.cases)
    if repeats and not renames:
        raise UsageError(
            f"{source}: several cases have the same id: {repeats}; let the import give each its own (--rename-cases)"
        )
    return replace(evalset, cases=renamed_repeats(evalset.cases)) if repeats else evalset


def _is_in_place(each: ImportSummary) -> bool:
    """Whether the eval set of an import is the file that its import put there."""
    if not each.set_path:
        return True
    try:
        return version_of_file(Path(each.set_path)) == each.set_version
    except (OSError, FormatError):
        return False
