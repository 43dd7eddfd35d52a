"""Recorded conversations stored as trials of the eval set that they were matched to: seen, not played."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from evaldesk.desk.imports.importing import ImportDesk, Watch
from evaldesk.desk.imports.matching import Matching
from evaldesk.desk.runs.plan import check_reviewed, digest_of_file, left_out_ids, with_tag_authors
from evaldesk.errors import ConflictError
from evaldesk.formats.exchange import Imported
from evaldesk.model import AgentRef
from evaldesk.run_options import BY_NAME
from evaldesk.store.evalsets.names import identity_of
from evaldesk.store.runs.imports import AlreadyImportedError, NewRun
from evaldesk.store.runs.run_store import imported_agent
from evaldesk.transcripts.recorded import digest_of


def agent_of(matching: Matching) -> AgentRef:
    """The agent whose conversations were recorded; it is not here, so it cannot be played."""
    return imported_agent(matching.run.agent)


def store_seen_run(
    imports: ImportDesk, matching: Matching, path: Path, home: Path, *, source: str, watch: Watch | None = None
) -> int:
    """The id of a run with the matched conversations, unscored, of the eval set in the file `path`.

    Cases in quarantine are in no gate of it. Conversations that were stored before for the same set are not stored
    again. `home` is the workspace, `source` names the files for the reader of the run. Raises UsageError for cases that
    nobody has reviewed, and as an import does.
    """
    check_reviewed(matching.run.cases)
    evalset_path = path.resolve()
    identity, version = identity_of(path, home), digest_of_file(path)

    def as_seen(run: NewRun) -> NewRun:
        config = replace(
            run.config,
            evalset_id=identity,
            evalset_path=str(evalset_path),
            evalset_version=version,
            left_out=left_out_ids(run.cases, BY_NAME["without"].default),
            recorded=None,
        )
        config = with_tag_authors(imports.tag_authors, config)
        return replace(run, config=config, reason=f"Seen in {source}, not played; scored by a run of its own.")

    contents = Imported("", None, (matching.run,))
    digest = sha256(f"{digest_of(matching.run)} {identity} {version}".encode()).hexdigest()
    try:
        start = imports.begin(contents, source=source, name="", digests=[digest], change=as_seen)
    except AlreadyImportedError as error:
        return error.run_ids[-1]
    run_ids = imports.finish(start, watch).run_ids
    if not run_ids:
        raise ConflictError("the conversations were not stored")
    return run_ids[-1]
