"""Experiments as they are stored: their variants are runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.store.conftest import plan_run

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.model.comparison import Sample
from evaldesk.model.experiment import ExperimentPlan, Factor, Member, Variant
from evaldesk.model.run import ExperimentPart
from evaldesk.statistics.experiment import analyse
from evaldesk.store import Store

PLAN = ExperimentPlan(
    "prompts",
    tuple(Variant(name, {"model": name}, (name,)) for name in ("a", "b", "c")),
    seed=7,
    concurrency=4,
    budget="20usd",
    factors=(Factor("model", ("a", "b", "c")),),
)


def play(store: Store, experiment_id: int, index: int) -> int:
    """Plan the run of a variant."""
    part = ExperimentPart(experiment_id, index, PLAN.variants[index].name)
    config = RunConfig(AgentRef("hello", "a:b"), "calc", experiment=part)
    return store.runs.create(config, [Case("one", (Turn("Hi"),))])


def test_an_experiment_comes_back_with_the_runs_of_its_variants(store: Store) -> None:
    experiment_id = store.experiments.begin(PLAN, [])
    runs = [play(store, experiment_id, index) for index in (1, 0)]

    found = store.experiments.get(experiment_id)

    assert (found.id, found.plan) == (experiment_id, PLAN)
    assert found.members == (Member(0, runs[1]), Member(1, runs[0]), Member(2, None))
    assert found.run_ids == (runs[1], runs[0])
    assert store.runs.summary(runs[0]).config.experiment == ExperimentPart(experiment_id, 1, "b")


def test_a_deleted_run_keeps_its_place_and_a_later_run_of_the_variant_takes_it(store: Store) -> None:
    experiment_id = store.experiments.begin(PLAN, [])
    gone, _ = play(store, experiment_id, 0), play(store, experiment_id, 1)
    store.runs.set_status(gone, "stopped")
    store.runs.delete(gone)

    assert store.experiments.get(experiment_id).members[0] == Member(0, gone, is_deleted=True)

    later = play(store, experiment_id, 0)

    assert store.experiments.get(experiment_id).members[0] == Member(0, later)


def test_experiments_are_listed_newest_first_in_pages(store: Store) -> None:
    ids = [store.experiments.begin(replace(PLAN, name=f"e{at}"), []) for at in range(5)]
    for experiment_id in ids:
        play(store, experiment_id, 0)

    first = store.experiments.list(limit=3)
    rest = store.experiments.list(before=first[-1].id, limit=3)

    assert [each.id for each in (*first, *rest)] == ids[::-1]


def test_an_experiment_in_the_trash_is_not_listed_and_goes_with_its_last_run(store: Store) -> None:
    experiment_id = store.experiments.begin(PLAN, [])
    run_ids = [play(store, experiment_id, index) for index in range(2)]
    for run_id in run_ids:
        store.runs.set_status(run_id, "stopped")

    store.runs.delete(run_ids[0])
    assert [each.id for each in store.experiments.list()] == [experiment_id]
    store.runs.delete(run_ids[1])
    assert store.experiments.list() == []
    store.runs.restore(run_ids[1])
    assert [each.id for each in store.experiments.list()] == [experiment_id]

    store.runs.remove_deleted()
    assert store.experiments.get(experiment_id).members == (Member(0, None), Member(1, run_ids[1]), Member(2, None))
    store.runs.delete(run_ids[1])
    store.runs.remove_deleted()
    with pytest.raises(NotFoundError):
        store.experiments.get(experiment_id)


def test_runs_begin_together_or_none_of_them(store: Store) -> None:
    config = RunConfig(AgentRef("hello", "a:b"), "calc")
    cases = [Case(f"c{at}", (Turn("Hi"),)) for at in range(900)]
    plannings = [store.runs.planning(config, cases) for _ in PLAN.variants]

    experiment_id = store.experiments.begin(PLAN, plannings)

    assert store.experiments.get(experiment_id).run_ids == tuple(each.run_id for each in plannings)
    assert len({each.run_id for each in plannings}) == 3
    assert [each.config.experiment for each in plannings] == [
        ExperimentPart(experiment_id, at, variant.name) for at, variant in enumerate(PLAN.variants)
    ]
    assert {each.n_planned for each in plannings} == {166}  # a third of the rows of one transaction
    for each in plannings:
        while not each.is_done:
            each.step()
        assert store.runs.summary(each.run_id).n_trials == 900

    with pytest.raises(NotFoundError):
        store.experiments.extend(99, PLAN, [store.runs.planning(config, cases) for _ in range(2)])
    assert len(store.runs.list()) == 3


def test_variants_that_two_people_add_at_once_are_those_of_the_first(store: Store) -> None:
    config, cases = RunConfig(AgentRef("hello", "a:b"), "calc"), [Case("c", (Turn("Hi"),))]
    experiment_id = store.experiments.begin(PLAN, [store.runs.planning(config, cases) for _ in PLAN.variants])

    def add(name: str) -> None:
        plan = replace(PLAN, variants=(*PLAN.variants, replace(PLAN.variants[0], name=name)), factors=())
        store.experiments.extend(experiment_id, plan, [store.runs.planning(config, cases)])

    add("of jo")
    with pytest.raises(ConflictError, match="got other variants meanwhile"):
        add("of mia")

    experiment = store.experiments.get(experiment_id)
    assert experiment.plan.variants[-1].name == "of jo"
    assert [each.variant_index for each in experiment.members] == [0, 1, 2, 3]
    assert len(store.runs.list()) == 4


def test_an_analysis_is_read_again_until_a_trial_is_added(store: Store) -> None:
    experiment_id = store.experiments.begin(PLAN, [])
    cases: Mapping[str, Mapping[int, Sample]] = {
        name: {at: Sample.of_sums(5, passes, passes) for at in range(6)} for name, passes in (("a", 5), ("b", 3))
    }
    analysis = analyse(cases, "a")

    store.experiments.keep_analysis(experiment_id, "60 trials", analysis)

    assert store.experiments.analysis(experiment_id, "60 trials") == analysis
    assert store.experiments.analysis(experiment_id, "61 trials") is None


def test_a_dropped_variant_is_noted_beside_the_others(store: Store) -> None:
    experiment_id = store.experiments.begin(PLAN, [])

    store.experiments.note_drop(experiment_id, 2, 3)
    store.experiments.note_drop(experiment_id, 1, 4)

    assert store.experiments.get(experiment_id).dropped == {2: 3, 1: 4}


def test_an_unknown_experiment_is_refused_with_the_command_that_lists_them(store: Store) -> None:
    for call in (store.experiments.get, lambda each: store.experiments.note_drop(each, 0, 1)):
        with pytest.raises(NotFoundError, match="no experiment 9; `evaldesk experiment list` shows them"):
            call(9)


def test_a_run_outside_of_an_experiment_belongs_to_none(store: Store) -> None:
    run_id = plan_run(store)

    assert store.runs.summary(run_id).config.experiment is None
