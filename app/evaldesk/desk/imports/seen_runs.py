"""Recorded conversations stored as trials of the eval set that they were matched to: seen, not played."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evaldesk.desk.imports.importing import ImportDesk, Watch
from evaldesk.desk.imports.matching import Matching
from evaldesk.desk.runs.plan import digest_of_file
from evaldesk.errors import ConflictError
from evaldesk.formats.exchange import Imported
from evaldesk.model import AgentRef
from evaldesk.store.evalsets.names import identity_of
from evaldesk.store.runs.imports import AlreadyImportedError, NewRun
from evaldesk.store.runs.run_store import imported_agent


def agent_of(matching: Matching) -> AgentRef:
    """The agent whose conversations were recorded; it is not here, so it cannot be played."""
    return imported_agent(matching.run.agent)


def store_seen_run(
    imports: ImportDesk, matching: Matching, path: Path, home: Path, *, source: str, watch: Watch | None = None
) -> int:
    """The id of a run with the matched conversations, unscored, of the eval set in the file `path`.

    Conversations that were stored before for the same cases are not stored again. `home` is the workspace, `source`
    names the files for the reader of the run. Raises as an import does.
    """
    evalset_path = path.resolve()
    identity, version = identity_of(path, home), digest_of_file(path)

    def as_seen(run: NewRun) -> NewRun:
        config = replace(
            run.config, evalset_id=identity, evalset_path=str(evalset_path), evalset_version=version, recorded=None
        )
        return replace(run, config=config, reason=f"Seen in {source}, not played; scored by a run of its own.")

    contents = Imported("", None, (matching.run,))
    try:
        start = imports.begin(contents, source=source, name="", change=as_seen)
    except AlreadyImportedError as error:
        return error.run_ids[-1]
    run_ids = imports.finish(start, watch).run_ids
    if not run_ids:
        raise ConflictError("the conversations were not stored")
    return run_ids[-1]
