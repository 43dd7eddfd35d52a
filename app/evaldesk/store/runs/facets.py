"""Facets of cases by which a table is filtered: tags, called tools, and the first divergences of failed trials.

They are stored with the cases and with each trial. A run of an earlier version gets them in steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import MsgspecError
from sqlalchemy import Connection, bindparam, delete, select, update
from zstandard import ZstdError

from evaldesk.errors import WorkspaceError
from evaldesk.model import Case, RunConfig, TrialResult
from evaldesk.store.database import execute_many
from evaldesk.store.pinned_turns import with_pinned
from evaldesk.store.runs.histories import IMPORTED
from evaldesk.store.tables.columns import unpack, upsert
from evaldesk.store.tables.runs import CASE_FACET, CASE_SNAPSHOT, RUN, TRANSCRIPT, TRIAL
from evaldesk.wire import from_json

if TYPE_CHECKING:
    from evaldesk.diff.divergence import Divergence

MAX_VALUE = 200
"""Characters of a tag or of the name of a tool."""
MAX_WORDS = 300
MAX_TOOLS = 100
"""Different tools of one trial."""
CASES_AT_ONCE = 50
"""Cases of an older run that one transaction reads."""
_UNREADABLE = (WorkspaceError, MsgspecError, ZstdError)


def add_tags(connection: Connection, run_id: int, cases: Iterable[tuple[int, Case]]) -> None:
    """Store the tags of cases of a run, each with its index."""
    _add(connection, {(run_id, "tag", tag[:MAX_VALUE], index) for index, case in cases for tag in case.tags})


def add_tools(connection: Connection, results: Iterable[TrialResult]) -> None:
    """Store the tools that these trials called."""
    _add(
        connection,
        {(result.run_id, "tool", tool, result.case_index) for result in results for tool in called_tools(result)},
    )


def called_tools(result: TrialResult) -> list[str]:
    """The names of the called tools, in the order of their first calls."""
    events = (event for turn in result.transcript.turns for event in turn.events)
    names = dict.fromkeys(event.call.name[:MAX_VALUE] for event in events if event.kind == "tool_call" and event.call)
    return [*names][:MAX_TOOLS]


def divergence_words(codec: int, data: bytes, result: TrialResult, config: RunConfig) -> str:
    """The first divergence of a failed trial from its stored case in words; empty without one."""
    from evaldesk.store.runs.long_trials import stored_divergence

    return words_of_divergence(stored_divergence(codec, data, result, config), result, config)


def words_of_divergence(divergence: Divergence | None, result: TrialResult, config: RunConfig) -> str:
    """The words of the first divergence of a failed trial, else of the reason that an imported score has."""
    from evaldesk.diff.signature import signature_of
    from evaldesk.store.runs.long_trials import gating_scores
    from evaldesk.wording.words import short_title

    scores = gating_scores(result, config)
    signature = signature_of(divergence, scores, short_title, tells_reasons=tells_reasons(config))
    return signature.words[:MAX_WORDS] if signature else ""


def tells_reasons(config: RunConfig) -> bool:
    """Whether the scores of the run are those of another tool, whose reasons are kinds of failure."""
    return config.agent.kind == IMPORTED and config.source_run_id is None


def add_some_facets(connection: Connection, run_id: int) -> bool:
    """Store the facets of the next cases of an older run; False when there are no more."""
    run = connection.execute(select(RUN.c.n_faceted, RUN.c.n_cases, RUN.c.config).where(RUN.c.id == run_id)).first()
    if run is None or run.n_faceted >= run.n_cases:
        return False
    config, first, end = from_json(run.config, RunConfig), run.n_faceted, run.n_faceted + CASES_AT_ONCE
    columns = CASE_SNAPSHOT.c
    some = (columns.run_id == run_id) & (columns.case_index >= first) & (columns.case_index < end)
    cases = {row.case_index: row for row in connection.execute(select(CASE_SNAPSHOT).where(some)).all()}
    add_tags(connection, run_id, _readable_cases(cases.values()))
    changes = []
    for row in connection.execute(_newest_transcripts(run_id, first, end)).all():
        try:
            result = unpack(row.codec, row.data, TrialResult)
            words = None
            if row.verdict == "failed" and row.case_index in cases:
                case = cases[row.case_index]
                (whole_result,) = with_pinned(connection, run_id, [replace(result, case_index=row.case_index)])
                words = divergence_words(case.codec, case.data, whole_result, config)
        except _UNREADABLE:  # its page says so
            continue
        _add(connection, {(run_id, "tool", tool, row.case_index) for tool in called_tools(result)})
        if words is not None:
            changes.append({"at_case": row.case_index, "at_trial": row.trial_index, "words": words})
    own = (TRIAL.c.run_id == run_id) & (TRIAL.c.case_index == bindparam("at_case"))
    change = update(TRIAL).where(own, TRIAL.c.trial_index == bindparam("at_trial"))
    execute_many(connection, change.values(divergence=bindparam("words")), changes)
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(n_faceted=min(end, run.n_cases)))
    return bool(end < run.n_cases)


def forget_facets(connection: Connection, run_id: int) -> None:
    """Let the facets of a run be read from its cases and trials again."""
    connection.execute(delete(CASE_FACET).where(CASE_FACET.c.run_id == run_id))
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(n_faceted=0))


def _readable_cases(rows: Iterable[Any]) -> Iterable[tuple[int, Case]]:
    for row in rows:
        try:
            yield row.case_index, unpack(row.codec, row.data, Case)
        except _UNREADABLE:
            continue


def _newest_transcripts(run_id: int, first: int, end: int) -> Any:
    place = [TRIAL.c[name] == TRANSCRIPT.c[name] for name in ("run_id", "case_index", "trial_index", "attempt")]
    rows = select(TRIAL.c.case_index, TRIAL.c.trial_index, TRIAL.c.verdict, TRANSCRIPT.c.codec, TRANSCRIPT.c.data)
    some = (TRIAL.c.run_id == run_id) & (TRIAL.c.case_index >= first) & (TRIAL.c.case_index < end)
    return rows.where(some, *place, TRIAL.c.verdict.is_not(None))


def _add(connection: Connection, facets: Iterable[tuple[int, str, str, int]]) -> None:
    names = ("run_id", "kind", "value", "case_index")
    rows = [dict(zip(names, facet, strict=True)) for facet in sorted(facets)]
    execute_many(connection, _if_absent(connection.dialect.name), rows)


@cache
def _if_absent(dialect: str) -> Any:
    return upsert(dialect, CASE_FACET).on_conflict_do_nothing()
