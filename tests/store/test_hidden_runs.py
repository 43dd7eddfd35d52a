"""A run that is hidden, until its import is finished or after its deletion, is in no answer of the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from evaldesk.errors import NotFoundError
from evaldesk.model import Case, RunConfig, TrialResult, Turn
from evaldesk.model.case_table import CaseLayout, RowFilter, RowSort
from evaldesk.model.failures import FindingDraft
from evaldesk.model.stored import LabelFilter
from evaldesk.store import LabelStore, RunStore, Store
from evaldesk.store.failures import FailureStore
from evaldesk.store.proposals import ProposalStore
from evaldesk.store.runs.imports import new_run
from evaldesk.store.runs.run_store import imported_agent

HIDDEN = "the-hidden-one"
CASES = (Case(HIDDEN, (Turn(HIDDEN),)),)
Asked = Callable[[Store, int], object]

ASKED: dict[str, Asked] = {
    "pending": lambda store, run: store.runs.pending(run),
    "counts_by_status": lambda store, run: store.runs.counts_by_status(),
    "agents": lambda store, run: store.runs.agents(),
    "evalsets": lambda store, run: store.runs.evalsets(),
    "models": lambda store, run: store.runs.models(),
    "metric_rows": lambda store, run: store.runs.metric_rows(run),
    "case_totals": lambda store, run: store.runs.case_totals(run),
    "error_groups": lambda store, run: store.runs.error_groups(run),
    "has_agent_totals": lambda store, run: store.runs.has_agent_totals(run),
    "agent_totals": lambda store, run: store.runs.agent_totals(run),
    "trials": lambda store, run: store.runs.trials(run, [(0, 0)]),
    "trial": lambda store, run: store.runs.trial(run, 0, 0),
    "turns": lambda store, run: store.runs.turns(run, 0, 0),
    "prompts": lambda store, run: store.runs.prompts(run, (0, 0), 1),
    "last_verdicts": lambda store, run: store.runs.last_verdicts(HIDDEN),
    "last_run": lambda store, run: store.runs.last_run(HIDDEN),
    "baseline": lambda store, run: store.runs.baseline(run),
    "case": lambda store, run: store.runs.case(run, 0),
    "cases": lambda store, run: store.runs.cases(run),
    "some_cases": lambda store, run: store.runs.some_cases(run, [0]),
    "n_unplanned": lambda store, run: store.runs.n_unplanned(run),
    "cut_to_planned": lambda store, run: store.runs.cut_to_planned(run),
    "case_rows": lambda store, run: store.runs.case_rows(run),
    "case_row": lambda store, run: store.runs.case_row(run, 0),
    "case_ids": lambda store, run: store.runs.case_ids(run),
    "table_part": lambda store, run: store.runs.table_part(CaseLayout((run,)), RowSort(), RowFilter()),
    "ranks_by_spread": lambda store, run: store.runs.ranks_by_spread(CaseLayout((run,))),
    "are_alike": lambda store, run: store.runs.are_alike((run, run)),
    "divergence_words": lambda store, run: store.runs.divergence_words({run: [(0, 0)]}),
    "first_divergences": lambda store, run: store.runs.first_divergences({run: [0]}),
    "facet_counts": lambda store, run: store.runs.facet_counts((run,), "tag"),
    "divergence_counts": lambda store, run: store.runs.divergence_counts(run),
    "time_quantiles": lambda store, run: store.runs.time_quantiles(run, [0.5]),
    "add_facets": lambda store, run: store.runs.add_facets(run),
    "case_versions": lambda store, run: store.runs.case_versions(run),
    "case_keys": lambda store, run: store.runs.case_keys(run),
    "case_histories": lambda store, run: store.runs.case_histories(HIDDEN, []).cases,
    "ended_counts": lambda store, run: store.runs.ended_counts(run),
    "find_case": lambda store, run: store.runs.find_case(run, "c"),
    "cases_named": lambda store, run: store.runs.cases_named(run, "", limit=5),
    "case_counts": lambda store, run: store.runs.case_counts(run),
    "case_outcomes": lambda store, run: store.runs.case_outcomes(run),
    "metric_samples": lambda store, run: store.runs.metric_samples(run),
    "pooled_failures": lambda store, run: store.runs.pooled_failures(run),
    "set_pooled_failures": lambda store, run: store.runs.set_pooled_failures(run, {0: "failed"}),
    "trial_samples": lambda store, run: store.runs.trial_samples(run),
    "strips": lambda store, run: store.runs.strips(run),
    "outcome_counts": lambda store, run: store.runs.outcome_counts(run),
    "median_ms": lambda store, run: store.runs.median_ms(run),
    "newest_counts": lambda store, run: store.runs.newest_counts(run, 1),
    "score_counts": lambda store, run: store.runs.score_counts(run),
    "neighbours": lambda store, run: store.runs.neighbours(run, 0, 0),
    "summary": lambda store, run: store.runs.summary(run),
    "summaries": lambda store, run: store.runs.summaries([run]),
    "list": lambda store, run: store.runs.list(text=HIDDEN) + store.runs.list(),
    "iterate_named": lambda store, run: [*store.runs.iterate_named(HIDDEN)],
    "newest_of_evalsets": lambda store, run: store.runs.newest_of_evalsets(),
    "unfinished_runs": lambda store, run: store.runs.unfinished_runs(),
    "scorings": lambda store, run: store.runs.scorings(run),
    "trend_runs": lambda store, run: store.runs.trend_runs(HIDDEN),
    "trend_cases": lambda store, run: store.runs.trend_cases([run]),
    "trend_metrics": lambda store, run: store.runs.trend_metrics([run]),
    "trend_medians": lambda store, run: store.runs.trend_medians([run]),
    "quarantine_runs": lambda store, run: store.runs.quarantine_runs(imported_agent(HIDDEN).id, [HIDDEN]),
    "set_runs": lambda store, run: store.runs.set_runs(HIDDEN, imported_agent(HIDDEN).id),
    "set_status": lambda store, run: store.runs.set_status(run, "running"),
    "end": lambda store, run: store.runs.end(run, "finished", lease=1),
    "renew": lambda store, run: store.runs.renew(run, 1),
    "is_leased": lambda store, run: store.runs.is_leased(run),
    "known_loop_bound": lambda store, run: store.runs.known_loop_bound(run),
    "set_note": lambda store, run: store.runs.set_note(run, "x"),
    "set_stop_rule": lambda store, run: store.runs.set_stop_rule(run, "exact"),
    "plan_confirming": lambda store, run: store.runs.plan_confirming(run, {"a"}, 1),
    "retry_errored": lambda store, run: store.runs.retry_errored(run),
    "delete": lambda store, run: store.runs.delete(run),
    "restore": lambda store, run: store.runs.restore(run),
    "deleted": lambda store, run: store.runs.deleted(),
    "in_trash": lambda store, run: store.runs.in_trash([run]),
    "labels.put": lambda store, run: store.labels.put(run, (0, 0), None, "me", "passed", ""),
    "labels.remove": lambda store, run: store.labels.remove(run, (0, 0), None, "me"),
    "labels.of_trial": lambda store, run: store.labels.of_trial(run, (0, 0)),
    "labels.list": lambda store, run: store.labels.list(LabelFilter()),
    "labels.count": lambda store, run: store.labels.count(LabelFilter()),
    "labels.labellers": lambda store, run: store.labels.labellers(),
    "labels.of_turns": lambda store, run: store.labels.of_turns(None, 10),
    "labels.pairs": lambda store, run: store.labels.pairs(None, run),
    "failures.add": lambda store, run: store.failures.add(FindingDraft(run, 0, 0, "x"), "me"),
    "proposals.propose": lambda store, run: store.proposals.propose([FindingDraft(run, 0, 0, "x")], "signature"),
    "failures.clear": lambda store, run: store.failures.clear(run, (0, 0), "me"),
    "failures.mark_fixed": lambda store, run: store.failures.mark_fixed(
        store.failures.create_mode("me", name="m"), run, "me"
    ),
    "failures.of_trial": lambda store, run: store.failures.of_trial(run, (0, 0)),
    "failures.of_mode": lambda store, run: store.failures.of_mode(1, run),
    "failures.n_of_mode": lambda store, run: store.failures.n_of_mode(1, run),
    "proposals.quotes": lambda store, run: store.proposals.quotes(range(1, 100)),
    "proposals.keep_question": lambda store, run: store.proposals.keep_question(run, "m", 1, 1, None),
    "proposals.model_use": lambda store, run: store.proposals.model_use(run).n,
    "proposals.asked_of_model": lambda store, run: store.proposals.asked_of_model(run),
    "failures.list": lambda store, run: store.failures.list(run),
    "failures.trials_by_run": lambda store, run: store.failures.trials_by_run(1),
    "failures.verdicts": lambda store, run: store.failures.verdicts(run),
    "failures.read_runs": lambda store, run: store.failures.read_runs(),
    "failures.readings": lambda store, run: store.failures.readings(run),
    "failures.read_trials": lambda store, run: store.failures.read_trials(run).read,
    "failures.judged_trials": lambda store, run: any(
        store.failures.judged_trials(run, "tool_trajectory_avg_score").values()
    ),
    "proposals.proposed": lambda store, run: store.proposals.proposed(run),
    "failures.last_step": lambda store, run: store.failures.last_step(
        "me", datetime(2000, 1, 1, tzinfo=UTC), {(run, 0, 0)}
    ),
}
NOT_ASKED = {
    "add_totals",
    "create",
    "planning",
    "record",
    "move_on",
    "finish_deleting",
    "remove_deleted",
    "sizes",
    "is_any_played_from",
}
"""Methods of runs that name no hidden run: they make one, or were given what an earlier answer said."""

OF_KNOWN = {
    *(
        f"failures.{name}"
        for name in (
            "take_in",
            "last_author",
            "name",
            "remove",
            "create_mode",
            "edit_mode",
            "merge",
            "split",
            "retire",
            "undo",
            "modes",
        )
    ),
    "proposals.decide",
}
"""Methods that name findings or modes, and no run."""


def test_every_question_about_runs_is_asked_here() -> None:
    of_runs = {name for name in vars(RunStore) if not name.startswith("_")}
    of_labels = {f"labels.{name}" for name in vars(LabelStore) if not name.startswith("_")}
    of_failures = {f"failures.{name}" for name in vars(FailureStore) if not name.startswith("_")}
    of_proposals = {f"proposals.{name}" for name in vars(ProposalStore) if not name.startswith("_")}
    assert of_runs - NOT_ASKED | of_labels | (of_failures | of_proposals) - OF_KNOWN == set(ASKED)


@pytest.fixture
def hidden(store: Store, end: Callable[..., TrialResult]) -> int:
    """A run that is stored in full, and not shown yet."""
    run = new_run(RunConfig(imported_agent(HIDDEN), HIDDEN), CASES, [end(0, 0, 0, "errored")], HIDDEN, "digest")
    import_id, (run_id,) = store.imports.begin("a.json", [run], "owner")
    for _ in store.imports.add(import_id, run_id, run, lambda result: result):
        pass
    store.imports.make_ready(import_id)
    return run_id


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_says_nothing_of_a_hidden_run(store: Store, hidden: int, name: str) -> None:
    try:
        answer = ASKED[name](store, hidden)
    except NotFoundError:
        return

    assert not answer, answer
    assert store.imports.summary(1).run_ids == ()


def test_the_run_is_in_the_answers_once_it_is_shown(store: Store, hidden: int) -> None:
    store.imports.publish(1)
    store.imports.name_last_runs(1)

    answers = [ASKED[name](store, hidden) for name in ("list", "summary", "last_verdicts", "agents", "case_ids")]

    assert all(HIDDEN in str(answer) for answer in answers)
    assert store.imports.summary(1).run_ids == (hidden,)
