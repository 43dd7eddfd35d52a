"""Files of other tools taken in: looked at first, then stored as an eval set and as runs."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

import msgspec

from evaldesk import __version__
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.evalsets.names import slug
from evaldesk.desk.trust import Trust
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError
from evaldesk.formats.exchange import FORMATS, Imported
from evaldesk.formats.files import as_one_file, read_file, title_of
from evaldesk.formats.process import Answer, Request
from evaldesk.model import RunConfig, TrialResult
from evaldesk.model.evalset import renamed_repeats, repeats_words
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs.run_store import NO_EVALSET, check_trials, imported_agent
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.wire import from_json, to_json, value_scrubber

MAX_STAGED = 4
MAX_AGENT_NAME = 200


@dataclass(frozen=True, slots=True)
class Staged:
    """An uploaded file that is not confirmed yet; `name` is proposed for its eval set.

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
    """The result of an import."""

    evalset_id: str | None
    run_ids: tuple[int, ...]


class AlreadyImportedError(ConflictError):
    """Every run of the file was imported before; `run_ids` are these runs."""

    def __init__(self, run_ids: Sequence[int]) -> None:
        names = ", ".join(map(str, run_ids))
        super().__init__(f"already imported as run {names}; --again imports it once more")
        self.run_ids = tuple(run_ids)


def file_titles() -> list[str]:
    """The names of the files that can be imported."""
    return [title_of(name) for name in FORMATS]


@contextmanager
def open_imports(settings: Settings) -> Iterator[ImportDesk]:
    """The imports of a workspace, whose database is made when needed. Raises WorkspaceError."""
    with Trust(settings).opened_store() as store:
        yield ImportDesk(settings, store, EvalSetDesk(settings, store))


class ImportDesk:
    """Reads, stages and stores imported files. Works on files and the database: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store, evalsets: EvalSetDesk) -> None:
        self._store = store
        self._evalsets = evalsets
        self._scrubbed = value_scrubber(settings.environment)
        self._staged: OrderedDict[str, Staged] = OrderedDict()
        self._lock = Lock()

    def stage(self, data: bytes, source: str) -> Staged:
        """Keep the contents of the file until a person confirms them; of very many the oldest go.

        Raises FormatError.
        """
        return self._keep(secrets.token_urlsafe(12), data, source, read_upload(data, source))

    def stage_parts(self, parts: Sequence[tuple[str, bytes]]) -> Staged:
        """Keep several files that are one thing, as one: names and bytes. Raises FormatError."""
        source, data = as_one_file(parts)
        return self.stage(data, source)

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

    def take_in(
        self,
        imported: Imported,
        *,
        source: str,
        name: str,
        replaces: bool = False,
        renames: bool = False,
        again: bool = False,
    ) -> TakenIn:
        """Store all that a file holds; the eval set, if there is one, as `name`.

        A retry after a kill goes on where it was: the set and the runs that are stored already stay. With `renames`
        cases that share an id get one each. Raises AlreadyImportedError when every run is stored, unless `again`.
        Raises UsageError, SetNameTakenError and DiskError before anything is stored.
        """
        for run in imported.runs:
            check_trials(run.cases, run.results)
        digests = [_digest(run) for run in imported.runs]
        known = [None if again else self._store.recorded_runs.known(digest) for digest in digests]
        if known and None not in known:
            raise AlreadyImportedError([run_id for run_id in known if run_id is not None])
        evalset_id = None
        if imported.evalset is not None:
            evalset = imported.evalset
            repeats = repeats_words(evalset.cases)
            if repeats and not renames:
                raise UsageError(
                    f"several cases have the same id: {repeats}; let the import give each its own (--rename-cases)"
                )
            if repeats:
                evalset = replace(evalset, cases=renamed_repeats(evalset.cases))
            evalset_id = self._evalsets.take_in(
                name, evalset, replaces=replaces, continues=bool(imported.runs) and not again
            )
        run_ids = [
            self._add_run(run, imported.format, source, evalset_id, digest) if run_id is None else run_id
            for run, digest, run_id in zip(imported.runs, digests, known, strict=True)
        ]
        return TakenIn(evalset_id, tuple(run_ids))

    def _add_run(self, run: RecordedRun, format_name: str, source: str, evalset_id: str | None, digest: str) -> int:
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
        reason = f"Imported from {source} ({title_of(format_name)}). Verdicts and scores from the file."
        return self._store.recorded_runs.add(config, run.cases, results, reason, digest)


def _digest(run: RecordedRun) -> str:
    """A hash of all that a run says in its file."""
    return hashlib.sha256(to_json(run)).hexdigest()


def proposed_name(source: str) -> str:
    """The name of an eval set from that of a file."""
    stem = source.partition(".")[0]
    return stem if stem.isascii() and stem.isidentifier() and len(stem) <= 100 else slug(stem, default="imported")


SMALL = 512 * 1024
"""Up to so many bytes are read at once: a process costs as much as a MiB does."""
TIMEOUT_S = 120.0
PACKED = (b"PK", b"PAR1")
"""How archives and Parquet begin: a small one may hold much."""
COMMAND = (sys.executable, "-P", "-m", "evaldesk.formats.process")


def read_upload(data: bytes, source: str, outcome: str = "") -> Imported:
    """The contents of an uploaded file. Raises FormatError, also for one that takes too long or too much."""
    if len(data) <= SMALL and not data.startswith(PACKED):
        return read_file(data, source, outcome=outcome)
    request = to_json(Request(source, outcome)) + b"\n" + data
    try:
        done = subprocess.run(COMMAND, input=request, capture_output=True, timeout=TIMEOUT_S, check=False)
        answer = from_json(done.stdout, Answer)
    except subprocess.TimeoutExpired:
        raise _too_much(source, f"it was not read within {TIMEOUT_S:g} s") from None
    except msgspec.MsgspecError:
        raise _too_much(source, "reading it broke off") from None
    if answer.imported is None:
        raise answer.refusal.error() if answer.refusal else _too_much(source, "reading it broke off")
    return answer.imported


def _too_much(source: str, what: str) -> FormatError:
    return FormatError(f"{what}; `evaldesk import FILE` on the command line has no such limit", source=source)
