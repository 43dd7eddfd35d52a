"""Runs, their comparison and their gates, for coding agents and for `evaldesk run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.gates.conclusion import conclude
from evaldesk.desk.runs.run_changes import changes_sentence, differences, run_before
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model.run import RunStatus
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.pages.compared_sources import change_object, comparison_object, comparison_page
from evaldesk.pages.door.filters import read_choice, read_filter
from evaldesk.pages.runs.divergences import NO_DIVERGENCE
from evaldesk.pages.runs.matrix import first_message
from evaldesk.pages.runs.objects import agent_objects, conclusion_object, metric_objects, run_item, run_object
from evaldesk.store import Store

RUN_KEYS = ("status", "agent", "evalset", "model")
N_RUNS, N_WORST, N_DIVERGENCES = 20, 5, 10


def status_answer(desk: Desk) -> dict[str, Any]:
    """The contents of the workspace, its running runs, and the next steps."""
    from evaldesk.pages.next_steps import read_next_steps

    runs = desk.stored_runs
    running = runs.list_newest("running", N_RUNS)[0]
    tasks = read_next_steps(desk, desk.agents.list())
    newest_id = tasks.runs[0].summary.id if tasks.runs else None
    rows = () if newest_id is None else desk.store.runs.case_rows(newest_id, sort="worst", limit=N_WORST)
    bad_rows = [row for row in rows if row.counts.failed + row.counts.errored]
    worst = [(row, first_message(desk.store.runs, newest_id or 0, row)) for row in bad_rows]
    return {
        "workspace": str(desk.settings.workspace),
        "is_trusted": not desk.is_restricted,
        "is_read_only": desk.is_read_only,
        "n_open_proposals": desk.store.client_proposals.n_open(),
        "n_runs": tasks.n_runs,
        "n_evalsets": len(tasks.evalsets),
        "running": [item_of(runs, run) for run in running],
        "newest_runs": [item_of(runs, line.summary) for line in tasks.runs[:N_WORST]],
        "worst_cases": [_worst(row, message) for row, message in worst],
        "kinds": [{"name": mode.name, "life": mode.life_words} for mode in tasks.kinds],
        "next": [{"title": step.title, "text": step.text, "page": step.address} for step in tasks.steps],
        "page": "/",
    }


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The runs that a filter means: parts of names, and words of name, note, agent, eval set or model."""

    status: RunStatus | None
    agent: str | None
    evalset: str | None
    model: str | None
    text: str


def read_run_filter(text: str) -> RunFilter:
    """The filter in a text such as `status:finished agent:dice nightly`. Raises UsageError with the column."""
    text_filter = read_filter(text, RUN_KEYS)
    status: Any = read_choice(text_filter, "status", get_args(RunStatus))
    agent, evalset, model = (text_filter.value(key) for key in ("agent", "evalset", "model"))
    return RunFilter(status, agent, evalset, model, text_filter.text)


def run_items(desk: Desk, text: str = "", cursor: int | None = None, limit: int = N_RUNS) -> dict[str, Any]:
    """The newest runs; the filter has words, `status:`, `agent:`, `evalset:` and `model:`."""
    run_filter = read_run_filter(text)
    runs = desk.stored_runs
    page, n_all = runs.list_newest(
        run_filter.status,
        limit + 1,
        agent_id=run_filter.agent,
        evalset_id=run_filter.evalset,
        model=run_filter.model,
        text=run_filter.text,
        is_part=True,
        before=cursor or None,
    )
    return listed_runs(runs, page[:limit], n_all, has_more=len(page) > limit)


def listed_runs(runs: StoredRuns, page: Sequence[RunSummary], n_all: int, *, has_more: bool) -> dict[str, Any]:
    """A page of runs as `evaldesk run list --json` prints it; the next page begins before the run `next_cursor`."""
    return {
        "items": [item_of(runs, run) for run in page],
        "total_count": n_all,
        "has_more": has_more,
        "next_cursor": page[-1].id if page and has_more else None,
        "page": "/runs",
    }


def item_of(runs: StoredRuns, run: RunSummary) -> dict[str, Any]:
    """A run as an item of a list."""
    return run_item(run, runs.outcome(run)) | {"status": runs.shown_status(run), "page": f"/runs/{run.id}"}


def run_answer(desk: Desk, name: str) -> dict[str, Any]:
    """A run with its conclusion and numbers, its worst cases, the ways to fail, and the changes before it."""
    runs = desk.stored_runs
    run = runs.find_by_name(name)
    numbers = runs.numbers(run)
    results = {
        **run_object(run, numbers),
        **conclusion_object(conclude(run.config.gates, numbers, runs.change(run))),
        "capture": list(runs.captures(run)),
        "metrics": metric_objects(runs, run),
        "agents": agent_objects(runs, run),
    }
    rows = desk.store.runs.case_rows(run.id, sort="worst", limit=N_WORST)
    divergences = desk.store.runs.divergence_counts(run.id)[:N_DIVERGENCES]
    trials_by_mode = {
        mode.name: desk.store.failures.trials_by_run(mode.id).get(run.id, 0)
        for mode in desk.store.failures.modes()
        if mode.is_active
    }
    item = item_of(runs, run)
    # A cut answer keeps its first keys: its rate, and that easier cases bought it, are in each.
    return {
        "data": {
            "id": item["id"],
            "changes": _changes_before(desk.store, run),
            "outcome": item["outcome"],
            "summary": item["summary"],
            "interval": results["interval"],
            **item,
            "worst_cases": [_worst(row, first_message(desk.store.runs, run.id, row)) for row in rows],
            "divergences": [
                {"words": each.words or NO_DIVERGENCE, "n_trials": each.n, "n_cases": each.n_cases}
                for each in divergences
            ],
            "kinds": [{"name": mode, "n_trials": n} for mode, n in trials_by_mode.items() if n],
            "results": results,
        }
    }


def _changes_before(store: Store, run: RunSummary) -> dict[str, Any] | None:
    """The changes since the run before of the same agent and eval set; None for the first one."""
    earlier = run_before(store, run)
    return None if earlier is None else _changes_object(store, earlier, run)


def changes_answer(desk: Desk, before: str, after: str) -> dict[str, Any]:
    """The changes of eval set, criteria and gates between two runs."""
    runs = desk.stored_runs
    return _changes_object(desk.store, runs.find_by_name(before), runs.find_by_name(after))


def _changes_object(store: Store, before: RunSummary, after: RunSummary) -> dict[str, Any]:
    changes = differences(store, before, after)
    return {
        "before": before.id,
        "after": after.id,
        "sentence": changes_sentence(before, after, changes),
        "items": [change_object(each) for each in changes],
        "page": comparison_page([before.id, after.id]),
    }


def _worst(row: CaseRow, message: str) -> dict[str, Any]:
    return {
        "case_id": row.case_id,
        "first_message": message or None,
        "verdicts": row.verdicts,
        "passed": row.counts.passed,
        "failed": row.counts.failed,
        "errored": row.counts.errored,
    }


def compare_answer(desk: Desk, names: Sequence[str]) -> dict[str, Any]:
    """2 to 20 stored runs against the first. Raises UsageError, NotFoundError."""
    from evaldesk.desk.runs.run_sources import compare_sources, read_run_sources

    return comparison_object(compare_sources(read_run_sources(names, desk.store), 0, None))


def gate_answer(desk: Desk, name: str) -> dict[str, Any]:
    """How often the gates of a run fail although nothing changed."""
    from evaldesk.pages.gate_explanation import explained_run

    return explained_run(desk.stored_runs, name, {}).as_json
