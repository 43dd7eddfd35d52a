"""The page of one run, put together from stored values."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import NamedTuple

from evaldesk.desk.runs.provenance import ForeignRun
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import StoredRuns, is_held, run_title
from evaldesk.model import Conclusion, GateOutcome
from evaldesk.model.conclusion import counted
from evaldesk.model.run import LIVE, Place
from evaldesk.model.stored import CaseFilter, CaseSort, ErrorGroup, MetricRow, RunSummary, TrialKey
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.pages.runs.facts import Fact, run_facts
from evaldesk.pages.runs.matrix import (
    Cell,
    Column,
    MatrixRow,
    columns_of,
    dash_sentence,
    is_measured,
    matrix_rows,
    metric_rows_of,
)
from evaldesk.pages.runs.table import CaseTable
from evaldesk.pages.runs.view import (
    PAGE_SIZE,
    SORTS,
    Filter,
    Reliability,
    RunQuery,
    Scoring,
    columns_k,
    known_cost,
    reliability,
    requested_gates,
    run_badge,
    scorings,
)
from evaldesk.run_options import budget_of
from evaldesk.store import RunStore
from evaldesk.store.runs.run_store import is_imported, is_playable
from evaldesk.wording.places import again_sentence, is_telling, places_words
from evaldesk.wording.words import (
    NOTHING_SCORED,
    asserted_lines,
    cost_words,
    errors_sentence,
    in_page_words,
    rate_of_counts,
    stopped_words,
    trials_each_words,
)

MAX_ERROR_GROUPS = 20
ONLY_WORDS: Mapping[CaseFilter, str] = {
    "failed": "Only cases with a failed trial.",
    "errored": "Only cases with an errored trial.",
    "unscored": "Only cases with an unscored trial.",
    "flaky": "Only cases that passed in some trials and failed in others.",
    "passed": "Only cases that passed.",
}


class Figure(NamedTuple):
    """A number of the run beside its answer, by its kind; a lower bound where it `is_least`."""

    label: str
    kind: str
    value: float | None
    is_least: bool = False


@dataclass(frozen=True, slots=True)
class RunPage:
    """All that the page of a run shows."""

    summary: RunSummary
    title: str
    badge: str
    status_word: str
    conclusion: Conclusion | None
    gates: Sequence[GateOutcome]
    is_live: bool
    has_agents: bool
    can_stop: bool
    can_resume: bool
    can_retry: bool
    again_href: str
    here: str
    events_href: str
    all_href: str
    more_href: str
    progress: Progress
    reason: tuple[str, str, str]
    answer: str
    errors_sentence: str
    dash_sentence: str
    figures: Sequence[Figure]
    filters: Sequence[Filter]
    sorts: Sequence[Filter]
    only_words: str
    k: int
    columns: Sequence[Column]
    rows: Sequence[MatrixRow]
    total: Sequence[Cell]
    metrics: Sequence[MetricRow]
    asserted: Sequence[str]
    errors: Sequence[ErrorGroup]
    error_cases: Mapping[int, str]
    reliability: Reliability
    facts: Sequence[Fact]
    scorings: Sequence[Scoring]
    places: Sequence[Place]
    accept_href: str = ""
    away: str = ""
    foreign: ForeignRun | None = None
    set_sentence: str = ""
    table: CaseTable | None = None

    @property
    def crumbs(self) -> Sequence[tuple[object, str]]:
        """The way to this page; through its experiment, if the run is a variant of one."""
        part = self.summary.config.experiment
        way = ((f"Experiment {part.experiment_id}", f"/experiments/{part.experiment_id}"),) if part else ()
        return ("Runs", "/runs"), *way, (part.variant if part else self.summary.id, "")

    @property
    def places_words(self) -> str:
        """The places together."""
        return places_words(self.places)

    @property
    def again_sentence(self) -> str:
        """The trials that were lost and played again, with the places that were lost once no table shows them."""
        run = self.summary
        return again_sentence(run.n_played_again, () if self.is_live else run.places) if run.n_played_again else ""

    @property
    def id(self) -> int:
        """The number of the run."""
        return self.summary.id

    @property
    def created_at(self) -> datetime:
        """When the configuration was frozen."""
        return self.summary.created_at

    @property
    def each_words(self) -> str:
        """`5 trials`, `2 to 9 trials`: those of a case."""
        return trials_each_words(self.summary.n_least, self.summary.n_most)

    @property
    def may_draw(self) -> bool:
        """Whether there are curves that Plotly may draw, or will be when the run is over."""
        return self.reliability.figure is not None or (self.is_live and self.k > 0)


async def run_page(runs: RunDesk, run_id: int, query: RunQuery, most: int | None = None) -> RunPage:
    """The page of a run at this moment, from its stored part and the state of this process. Raises as `read_run`."""
    flying, trouble, pause = runs.in_flight(run_id), runs.trouble(run_id), runs.pause(run_id)
    places = runs.places(run_id)
    page = await asyncio.to_thread(read_run, runs.run_store, run_id, query, flying, trouble, pause, most, places)
    may_go_on = page.can_resume or page.can_retry
    if page.is_live and places is None:  # another process may play it at this moment
        may_go_on = not await asyncio.to_thread(is_held, runs.run_store, page.summary)
    foreign = await asyncio.to_thread(runs.foreign, page.summary) if may_go_on else None
    if foreign is None:
        return page
    if page.summary.status == "pending":
        waits = "Is played nowhere." if foreign.is_refused else "Waits for your consent."
        page = replace(page, progress=replace(page.progress, detail=waits))
    return replace(page, foreign=foreign)


def read_run(
    runs: RunStore,
    run_id: int,
    query: RunQuery,
    in_flight: Collection[TrialKey] = frozenset(),
    trouble: str = "",
    pause: str = "",
    most: int | None = None,
    places: Sequence[Place] | None = None,
) -> RunPage:
    """The page of a run with `most` cases, or a page of them; of a run of another process `places` are the stored ones.

    Raises NotFoundError; UsageError for a strange cursor.
    """
    summary, most = runs.summary(run_id), PAGE_SIZE if most is None else most
    is_live = summary.status in LIVE
    # A trial that is over and waits for its commit is in flight, too; more than are played at once is not said.
    remote_places = summary.places if is_live and places is None else ()
    n_told = min(sum(each.n_under_way for each in remote_places), summary.n_todo)
    n_running = min(len(in_flight) or n_told, summary.config.concurrency)
    sort: CaseSort = query.sort or ("file" if is_live else "worst")
    rows = runs.case_rows(run_id, sort=sort, only=query.only, after=query.after, limit=most + 1)
    metrics = metric_rows_of(runs, summary)
    if is_live:  # intervals of a run that goes on would be drawn anew at each look
        metrics = [replace(each, kinds=()) for each in metrics]
    outcomes = runs.outcome_counts(run_id)
    k = columns_k(summary.n_least)
    stored_runs = StoredRuns(runs)
    before = _run_before(runs, summary) if is_live else None
    curves, point = reliability(outcomes, summary, k, before, stored_runs.equal_counts(summary))
    if not summary.counts.scored:
        curves = replace(curves, doubt="", detail=_why_nothing(summary), why="")
    stored_conclusion = None if is_live else stored_runs.conclusion(summary, outcomes)
    conclusion = in_page_words(stored_conclusion) if stored_conclusion else None
    badge, word = run_badge(summary.status, conclusion)
    can_go_on = not is_live and is_playable(summary.config)
    can_repeat = not is_live and not is_imported(summary.config)
    columns = columns_of(summary, metrics, curves, point, in_flight)
    errors = runs.error_groups(run_id)[:MAX_ERROR_GROUPS] if summary.n_to_retry else []
    places_of_run = summary.places if places is None else places
    more = query.href(run_id, sort=sort, after=rows[most - 1].cursor) if len(rows) > most > 0 else ""
    return RunPage(
        summary=summary,
        title=run_title(summary),
        badge=badge,
        status_word=word,
        conclusion=conclusion,
        gates=requested_gates(summary, conclusion),
        is_live=is_live,
        has_agents=not is_live and runs.has_agent_totals(run_id),
        can_stop=summary.status in ("running", "pending"),
        can_resume=can_go_on and summary.n_todo > 0,
        can_retry=can_go_on and summary.n_to_retry > 0,
        again_href=f"/runs/new?like={run_id}" if can_repeat else "",
        here=query.href(run_id),
        events_href=query.href(run_id, events=True),
        all_href=query.href(run_id, only=None, after=None),
        more_href=more,
        progress=progress(summary, n_running, pause),
        reason=reason_note(summary, trouble, stored_conclusion),
        answer=rate_of_counts(summary.counts) if summary.counts.scored else NOTHING_SCORED,
        errors_sentence=errors_sentence(summary.counts),
        dash_sentence=dash_sentence(summary, rows[:most], k),
        figures=_figures(summary),
        filters=_filters(summary, query, n_running),
        sorts=[
            Filter(text, 0, "", query.href(run_id, sort=name, after=None), name == sort)
            for name, text in SORTS
            if name not in ("slow", "cost") or is_measured(summary)
        ],
        only_words=ONLY_WORDS[query.only] if query.only else "",
        k=k,
        columns=columns,
        rows=matrix_rows(runs, columns, run_id, rows[:most]),
        total=[column.total_cell for column in columns] if not query.only else (),
        metrics=metrics,
        asserted=asserted_lines(summary.config, summary.n_cases),
        errors=errors,
        error_cases=runs.case_ids(run_id, [group.first[0] for group in errors]) if errors else {},
        reliability=curves,
        facts=run_facts(summary),
        scorings=scorings(runs, summary),
        places=places_of_run if is_live and is_telling(places_of_run) else (),
    )


def _run_before(runs: RunStore, summary: RunSummary) -> RunSummary | None:
    """The run of the same agent and eval set that ended last before this one."""
    config = summary.config
    summaries = runs.list(
        status="finished", agent_id=config.agent.id, evalset_id=config.evalset_id, before=summary.id, limit=1
    )
    return summaries[0] if summaries else None


def _filters(summary: RunSummary, query: RunQuery, n_running: int) -> list[Filter]:
    counts: tuple[tuple[CaseFilter, int], ...] = (
        ("passed", summary.counts.passed),
        ("failed", summary.counts.failed),
        ("errored", summary.counts.errored),
        ("unscored", summary.counts.unscored),
    )
    filters = [
        Filter(name, n, name, query.href(summary.id, only=name, after=None), query.only == name) for name, n in counts
    ]
    if n_running:
        filters.append(Filter("running", n_running, "running"))
    n_queued = summary.counts.unplayed - n_running
    if n_queued > 0:
        filters.append(Filter("queued" if summary.status in LIVE else "not played", n_queued, "queued"))
    return filters


def _figures(summary: RunSummary) -> list[Figure]:
    """The figures; an imported run has only the figures of its file."""
    cost, is_least = known_cost(summary, summary), summary.n_uncounted > 0
    figures = [Figure("cost", "dollars", cost.dollars, cost.is_least)]
    if summary.n_unpriced:
        figures.append(Figure("cost unknown", "trials", summary.n_unpriced, summary.n_uncounted > 0))
    n_in, n_out = (summary.tokens_in, summary.tokens_out) if summary.tokens else (None, None)
    figures += [
        Figure("mean of a trial", "duration", summary.mean_ms),
        Figure("start of players", "duration", summary.start_ms or None),
        Figure("time", "duration", summary.active_ms or None),
        Figure("tokens in", "count", n_in, is_least),
        Figure("tokens out", "count", n_out, is_least),
    ]
    return [each for each in figures if each.value is not None] if is_imported(summary.config) else figures


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run; `quarter` changes rarely, for screen readers."""

    done_words: str
    detail: str
    clock: str
    quarter: str


def progress(summary: RunSummary, n_running: int, pause: str = "") -> Progress:
    """The progress of the run, and the reasons why its trials wait."""
    n, n_done = summary.n_trials, summary.n_done
    done_words = (
        f"{n_done:,} of {n:,} trials done."
        if n_done < n
        else f"All {n:,} trials done."
        if n > 1
        else "The one trial is done."
    )
    parts = []
    if summary.status == "pending":
        parts.append("Waits until another run is done.")
    elif summary.status in LIVE:
        queued = summary.n_todo - n_running
        parts.append(", ".join(filter(None, [f"{n_running} running", f"{queued:,} queued" if queued > 0 else ""])))
        seconds_left = _seconds_left(summary)
        parts[-1] += f"; about {_seconds(seconds_left)} left." if seconds_left is not None else "."
        parts += [money] if (money := _money_left(summary)) else []
        parts += [pause] if pause else []
    elif summary.n_todo:
        parts.append(f"{summary.n_todo:,} not played.")
    clock = f"{_seconds(summary.active_ms / 1000)} so far." if summary.status in LIVE else ""
    if not clock and summary.active_ms:
        clock = f"It took {_seconds(round(min(summary.active_ms, MAX_NUMBER) / 1000))}."
    quarter = f"{25 * (4 * n_done // n)} % of the trials are done" if n else ""
    return Progress(done_words, " ".join(parts), clock, quarter)


def _money_left(summary: RunSummary) -> str:
    """`$3.80 of the budget of $5 left.`: the rest of the cost limit or budget; empty without either."""
    budget, limit = summary.config.budget, summary.config.gates.max_cost
    amount, is_money = budget_of(budget) if budget else (0.0, False)
    if limit is not None:
        amount, word = limit, "limit"
    elif is_money:
        word = "budget"
    else:
        return ""
    if summary.is_cost_unknown:
        return f"Some costs are not known, so it is not known how much of the {word} of ${amount:g} is left."
    return f"{cost_words(max(0.0, amount - summary.cost))} of the {word} of ${amount:g} left."


def reason_note(summary: RunSummary, trouble: str, conclusion: Conclusion | None) -> tuple[str, str, str]:
    """Kind of note, its title and its text; empty when there is nothing to say.

    The conclusion says why a run was decided or where it came from; the note does not say it again.
    """
    if trouble:
        return "errored", "Results not stored yet", trouble
    if not summary.reason:
        return "", "", ""
    if summary.status == "failed":
        return "failed", "The run was aborted", summary.reason
    if summary.stop and not summary.stop.answers:
        more = f"Resume run {summary.config.source_run_id}, then this one, for narrower intervals."
        return "plain", "Decided", f"{summary.reason} {more}"
    if summary.stop:
        can = "could not" if summary.stop.rule == "exact" else "are not likely to"
        rest_words = f"The trials that are left {can} change the answer; play them for narrower intervals."
        is_told = conclusion is not None and bool(conclusion.reasons)
        why = f"{stopped_words(summary.stop, summary.n_trials)}." if is_told else summary.reason
        return "plain", "Decided", f"{why} {rest_words}"
    if conclusion and summary.reason in conclusion.reasons and is_imported(summary.config):
        return "", "", ""
    return "plain", "Note", summary.reason


def _why_nothing(summary: RunSummary) -> str:
    if summary.n_done == 0:
        return "Verdicts appear here when trials finish."
    parts = [f"{summary.counts.errored:,} errored" if summary.counts.errored else ""]
    parts.append(f"{summary.counts.unscored:,} unscored" if summary.counts.unscored else "")
    trials = counted(summary.n_done, "trial")
    return f"{trials}: {', '.join(filter(None, parts))}."


def _seconds_left(summary: RunSummary) -> float | None:
    """An estimate from the pace so far; None before there is one."""
    if summary.n_done < 1 or not summary.active_ms:
        return None
    return summary.active_ms / 1000 / summary.n_done * summary.n_todo


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return "1 s"
    if seconds < 100:
        return f"{ceil(seconds)} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
