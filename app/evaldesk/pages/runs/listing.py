"""The list of runs: one line for each, filters with counts, pages by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import StoredRuns, run_title
from evaldesk.model import Conclusion, Counts, GateOutcome, RunStatus
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.runs.view import BADGES, Cost, Filter, gate_lines, known_cost, run_badge
from evaldesk.statistics.intervals import CaseCounts
from evaldesk.store import RunStore
from evaldesk.wording.words import doubt_cell, in_page_words, passed_cell, trials_each

PAGE_SIZE = 50
STATUSES: tuple[RunStatus, ...] = ("running", "pending", "stopping", "finished", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in the list; `doubt` is empty when nothing was scored, `conclusion` is None while the run goes on.

    `gates` are the answers of the requested gates, the held ones included.
    `by` is the person that started it, if another one.
    """

    id: int
    title: str
    badge: str
    status_word: str
    conclusion: Conclusion | None
    gates: Sequence[GateOutcome]
    note: str
    source: str
    agent: str
    shape: str
    counts: Counts
    n_trials: int
    passed: str
    doubt: str
    cost: Cost
    created_at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class RunListing:
    """A page of the list."""

    lines: Sequence[RunLine]
    filters: Sequence[Filter]
    agents: Sequence[tuple[str, str]]
    evalsets: Sequence[tuple[str, str]]
    models: Sequence[str]
    agent: str
    evalset: str
    model: str
    status: str
    text: str
    n_all: int
    span: str
    newest_href: str
    older_href: str


def read_listing(
    desk: Desk,
    *,
    status: RunStatus | None,
    agent: str | None,
    evalset: str | None,
    model: str | None,
    text: str,
    before: int | None,
) -> RunListing:
    """A page of runs, newest first."""
    runs = desk.store.runs
    summaries = runs.list(
        status=status, agent_id=agent, evalset_id=evalset, model=model, text=text, before=before, limit=PAGE_SIZE + 1
    )
    page_runs = summaries[:PAGE_SIZE]
    counts = runs.counts_by_status(agent_id=agent, evalset_id=evalset, model=model, text=text)
    query = {"q": text, "agent": agent, "evalset": evalset, "model": model, "status": status}
    n_fitting = counts.get(status, 0) if status else sum(counts.values())
    return RunListing(
        lines=[run_line(runs, summary, desk.me) for summary in page_runs],
        filters=_filters(counts, status, query),
        agents=[(agent_id, agent_id) for agent_id in runs.agents()],
        evalsets=_evalsets(runs, page_runs),
        models=runs.models(),
        agent=agent or "",
        evalset=evalset or "",
        model=model or "",
        status=status or "",
        text=text,
        n_all=sum(runs.counts_by_status().values()),
        span=f"{'Newest ' if before is None and len(summaries) > PAGE_SIZE else ''}{len(page_runs)} of {n_fitting}",
        newest_href=_href(query) if before is not None else "",
        older_href=_href(query | {"before": str(page_runs[-1].id)}) if len(summaries) > PAGE_SIZE else "",
    )


def run_line(runs: RunStore, summary: RunSummary, me: str) -> RunLine:
    """A run as one line; also for the home page. Runs that `me` started do not say so."""
    outcomes = _outcomes(runs, summary.id, summary.counts)
    conclusion = None if summary.status in LIVE else StoredRuns(runs).conclusion(summary, outcomes)
    badge, word = run_badge(summary.status, conclusion)
    return RunLine(
        id=summary.id,
        title=run_title(summary),
        badge=badge,
        status_word=word,
        note=summary.note,
        source="" if summary.config.source_run_id is None else f"re-score of run {summary.config.source_run_id}",
        agent=summary.config.agent.id,
        shape=f"{summary.n_cases:,} × {trials_each(summary.n_least, summary.n_most)}",
        conclusion=in_page_words(conclusion) if conclusion else None,
        gates=gate_lines(summary, conclusion),
        counts=summary.counts,
        n_trials=summary.n_trials,
        passed=passed_cell(summary.counts),
        doubt=doubt_cell(summary.counts.scored, StoredRuns(runs).interval(summary, outcomes)),
        cost=known_cost(summary, summary),
        created_at=summary.created_at,
        by=summary.started_by if summary.started_by != me else "",
    )


@lru_cache(maxsize=4096)
def _outcomes(runs: RunStore, run_id: int, _: Counts) -> tuple[CaseCounts, ...]:
    """The cases of a run by how they ended; kept as long as its counts stay the same."""
    return tuple(runs.outcome_counts(run_id))


def _filters(
    counts: Mapping[RunStatus, int], status: RunStatus | None, query: Mapping[str, str | None]
) -> list[Filter]:
    everything = Filter("All", sum(counts.values()), "", _href({**query, "status": None}), status is None)
    return [everything] + [
        Filter(BADGES[each][1], counts[each], BADGES[each][0], _href({**query, "status": each}), status == each)
        for each in STATUSES
        if counts.get(each)
    ]


def _evalsets(runs: RunStore, summaries: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Ids with names: the name stands in the newest run of each set."""
    names = {summary.config.evalset_id: summary.config.evalset_name for summary in summaries}
    for evalset_id in runs.evalsets():
        if evalset_id not in names:
            newest = runs.list(evalset_id=evalset_id, limit=1)
            names[evalset_id] = newest[0].config.evalset_name if newest else evalset_id
    return sorted(names.items(), key=lambda item: item[1])


def _href(query: Mapping[str, str | None]) -> str:
    text = urlencode({name: value for name, value in query.items() if value})
    return "/runs" + (f"?{text}" if text else "")
