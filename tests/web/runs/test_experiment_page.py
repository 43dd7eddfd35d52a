"""The page of an experiment: its sentence, its plots, its heads and its table, by golden numbers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.golden_values import golden

from evaldesk.desk.experiments.results import results
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn, Usage, Verdict
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.run import ExperimentPart

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages


@pytest.fixture
def values() -> dict[str, dict[str, list[int]]]:
    """12 cases x 5 trials x 6 variants with the passes of each."""
    known: dict[str, dict[str, list[int]]] = golden("experiments")
    return known


@pytest.fixture
def experiment(pages: RunPages, values: dict[str, dict[str, list[int]]]) -> dict[str, int]:
    """The run of each variant of experiment 1."""
    store, passes = pages.desk.store, values["passes"]
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in passes), 7, 4)
    number = store.experiments.create(plan)
    runs = {}
    for index, (name, of_cases) in enumerate(passes.items()):
        part = ExperimentPart(number, index, name)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=5, model=name, experiment=part)
        run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(len(of_cases))])
        cost = float(values["cost_per_trial"][name])  # type: ignore[arg-type]
        store.runs.record(
            [
                TrialResult(
                    run_id,
                    case,
                    at,
                    "finished",
                    "passed" if at < n else "failed",
                    usages=(Usage(model=name, tokens_in=9, tokens_out=1, cost=cost),),
                    duration_ms=100.0 + at,
                )
                for case, n in enumerate(of_cases)
                for at in range(5)
            ]
        )
        store.runs.set_status(run_id, "finished")
        runs[name] = run_id
    return runs


def test_the_page_says_what_may_be_told_of_the_golden_experiment(pages: RunPages, experiment: dict[str, int]) -> None:
    text = pages.get("/experiments/1").text

    assert "m3/p1 is worse than m1/p1" in text
    assert "May be the best: m1/p1, m1/p2, m2/p1 and m2/p2" in text
    assert text.count('data-part="family"') == 5
    assert "+12 points, 95 % CI +5 points to +18 points" in text
    assert "No variant is dominated" in text
    assert text.count("data-hollow") == 1
    assert "the best of 6 equal variants with 60 trials each looks" in text
    assert "Confirm on fresh trials" in text
    assert re.findall(r'data-group="(.)"', text) == [*"ABCDEF"]
    assert "<b>70 %</b>" in text
    assert "$0.0200 a trial" in text or "$0.02 a trial" in text


def test_a_head_has_the_rate_of_the_other_doors_where_cases_have_unequal_trials(pages: RunPages) -> None:
    store, names = pages.desk.store, ("even", "uneven")
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number = store.experiments.create(plan)
    for index, name in enumerate(names):
        config = RunConfig(
            AgentRef("dice", "dice:root_agent"), "calc", n=5, experiment=ExperimentPart(number, index, name)
        )
        run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(6)])
        for case in range(6):
            for at in range(5):
                is_errored = name == "uneven" and case < 3 and at > 0
                verdict: Verdict = "errored" if is_errored else "passed" if case >= 3 else "failed"
                store.runs.record([TrialResult(run_id, case, at, "errored" if is_errored else "finished", verdict)])
        store.runs.set_status(run_id, "finished")

    shares = re.findall(r"<b>(\d+) %</b>", pages.get(f"/experiments/{number}").text)

    assert [round(100 * (each.rate or 0)) for each in results(store, number).analysis.rates] == [50, 50]
    assert shares[:2] == ["50", "50"]


def test_any_variant_may_be_the_baseline(pages: RunPages, experiment: dict[str, int]) -> None:
    run = experiment["m3/p1"]

    text = pages.get(f"/experiments/1?baseline={run}").text

    assert "m1/p2 is better than m3/p1" in text
    first = re.search(r'data-group="A".*?<a href="/runs/(\d+)">', text, re.DOTALL)
    assert first
    assert int(first[1]) == run


def test_a_deleted_variant_is_a_grey_column(pages: RunPages, experiment: dict[str, int]) -> None:
    pages.post(f"/runs/{experiment['m2/p1']}/deletion")

    text = pages.get("/experiments/1").text

    assert "Variant m2/p1 was deleted; its column is empty." in text
    assert "data-gone" in text


def test_the_address_filters_the_table_and_htmx_gets_it_alone(pages: RunPages, experiment: dict[str, int]) -> None:
    answer = pages.get("/experiments/1?q=c11&disagree=1", **{"HX-Request": "true", "HX-Target": "div#table"})

    assert answer.text.strip().startswith('<div id="table"')
    assert re.findall(r'<th scope="row"><a href="[^"]+">(c\d+)</a>', answer.text) == ["c11"]


def test_the_exports_are_those_of_its_runs(pages: RunPages, experiment: dict[str, int]) -> None:
    hrefs = re.findall(r'href="(/table/[^"]+)" download', pages.get("/experiments/1").text)

    report, lines, value = (pages.get(href.replace("&amp;", "&")) for href in hrefs)

    assert "is worse than" in report.text
    assert len(lines.text.splitlines()) == 13
    assert len(json.loads(value.text)["cases"]) == 12


def test_an_experiment_that_is_not_there_is_not_found(pages: RunPages) -> None:
    assert pages.get("/experiments/99").status_code == 404
