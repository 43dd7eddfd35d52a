"""The list of runs: one line for each, filters with counts, pages by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Conclusion, Counts, GateOutcome, RunStatus
from evaldesk.model.conclusion import Interval
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.runs.view import BADGES, Filter, requested_gates, run_badge
from evaldesk.statistics.intervals import CaseCounts
from evaldesk.store import RunStore
from evaldesk.wording.words import in_page_words, trials_each

PAGE_SIZE = 50
STATUSES: tuple[RunStatus, ...] = ("running", "pending", "stopping", "finished", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run in a list; `conclusion` is None while the run goes on, `interval` is that of its pass rate."""

    summary: RunSummary
    conclusion: Conclusion | None
    interval: Interval | None

    @property
    def badge(self) -> str:
        """The status whose colour the badge has; empty for none."""
        return run_badge(self.summary.status, self.conclusion)[0]

    @property
    def status_word(self) -> str:
        """The word of the badge."""
        return run_badge(self.summary.status, self.conclusion)[1]

    @property
    def gates(self) -> Sequence[GateOutcome]:
        """The answers of the requested gates, the held ones included."""
        return requested_gates(self.summary, self.conclusion)

    @property
    def shape(self) -> str:
        """`4 × 5`: cases by trials."""
        return f"{self.summary.n_cases:,} × {trials_each(self.summary.n_least, self.summary.n_most)}"


@dataclass(frozen=True, slots=True)
class RunListing:
    """A page of the list; `me` is the person whose runs need no name."""

    me: str
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
        me=desk.me,
        lines=[run_line(runs, summary) for summary in page_runs],
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


def run_line(runs: RunStore, summary: RunSummary) -> RunLine:
    """A run as one line; also for the home page."""
    outcomes = _outcomes(runs, summary.id, summary.counts)
    conclusion = None if summary.status in LIVE else in_page_words(StoredRuns(runs).conclusion(summary, outcomes))
    return RunLine(summary, conclusion, StoredRuns(runs).interval(summary, outcomes))


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
