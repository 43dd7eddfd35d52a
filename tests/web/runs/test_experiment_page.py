"""The page of an experiment: its sentence, its plots, its heads and its table, by golden numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.golden_values import golden

from evaldesk.cli.experiments.show import show_experiment
from evaldesk.desk.experiments.results import results
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn, Usage, Verdict
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.run import ExperimentPart
from evaldesk.pages.experiment_files import experiment_lines, experiment_markdown
from evaldesk.wording.experiments import analysis_sentence

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

    from evaldesk.desk.desk import Desk


async def _has_ended(desk: Desk, run_id: int) -> None:
    async for _tick in desk.runs.watch(run_id):
        pass


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
    number = store.experiments.begin(plan, [])
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
    assert '<h2 id="against">Against A</h2>' in text
    points = [int(each.replace("−", "-")) for each in re.findall(r'data-part="value"[^>]*>([+−]?\d+) points<', text)]
    assert points == sorted(points, reverse=True)
    listed = re.findall(r'<li><span class="letter" data-variant="(.)">', text)
    assert listed == re.findall(r'<g data-variant="(.)"><text x="4"', text)
    assert "Cannot be told from A." in text
    assert "No variant is dominated" in text
    assert text.count("data-hollow") == 1
    assert "the best of 6 equal variants with 60 trials each looks" in text
    assert "Confirm on fresh trials" in text
    assert re.findall(r'data-group="(.)"', text) == [*"ABCDEF"]
    assert "<b>70 %</b>" in text
    assert "$0.0200 a trial" in text or "$0.02 a trial" in text


@pytest.mark.parametrize("address", ["/experiments/1", "/table?runs=1,2,3"])
def test_a_head_has_the_rate_of_the_other_doors_where_cases_have_unequal_trials(pages: RunPages, address: str) -> None:
    store, names = pages.desk.store, ("even", "uneven", "other")
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number = store.experiments.begin(plan, [])
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

    shares = re.findall(r"<b>(\d+) %</b>", pages.get(address).text)

    assert [round(100 * (each.rate or 0)) for each in results(store, number).analysis.rates] == [50, 50, 50]
    assert shares[:3] == ["50", "50", "50"]


@pytest.mark.parametrize("n_done", [0, 8])
def test_a_variant_whose_run_failed_takes_no_trial_from_the_others(pages: RunPages, n_done: int) -> None:
    store, names = pages.desk.store, ("as now", "broken", "weak")
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number = store.experiments.begin(plan, [])
    for index, name in enumerate(names):
        part = ExperimentPart(number, index, name)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=2, experiment=part)
        run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(12)])
        cells = [(case, at) for at in range(2) for case in range(12)][: n_done if name == "broken" else None]
        verdict: Verdict = "failed" if name == "weak" else "passed"
        store.runs.record([TrialResult(run_id, case, at, "finished", verdict) for case, at in cells])
        is_broken = name == "broken"
        store.runs.set_status(run_id, "failed" if is_broken else "finished", reason="No <model>." if is_broken else "")

    found = results(store, number)
    text = pages.get(f"/experiments/{number}").text
    sentence = f"broken failed after {n_done} trials of 24: No <model>."

    assert (found.n_blocks, found.is_cut) == (2, False)
    assert [each.n_trials for each in found.analysis.rates] == [24, n_done, 24]
    assert [each.word for each in found.analysis.differences if each.variant == "weak"] == ["worse"]
    assert sentence.replace("<", "&lt;").replace(">", "&gt;") in text
    assert '<span class="tag">failed</span>' in text
    assert any(line.endswith("; failed: No <model>.") for line in experiment_lines(found))
    assert r"No \<model\>." in experiment_markdown(found)


def test_an_option_that_the_experiment_varies_is_no_limit_of_its_comparison(
    pages: RunPages, experiment: dict[str, int]
) -> None:
    runs = [*experiment.values()][:3]
    alone = pages.desk.store.runs.create(
        RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=5, model="m9"), [Case("c0", (Turn("hi"),))]
    )

    of_experiment = pages.get(f"/table?runs={','.join(map(str, runs))}").text
    of_any = pages.get(f"/table?runs={','.join(map(str, (*runs[:2], alone)))}").text

    assert "Model differs" not in of_experiment
    assert '<span class="tag" title="Model">' in of_experiment
    assert "Model differs" in of_any


def test_the_leader_is_confirmed_on_fresh_trials_of_it_and_its_baseline(pages: RunPages) -> None:
    for temperature, cases in (("0", ["greets", "misses"]), ("1", ["greets"]), ("0.5", ["misses"])):
        pages.finish(temperature=temperature, cases="selected", case=cases)
    old_runs = [pages.desk.store.runs.summary(number) for number in (1, 2)]
    page_text = pages.get("/table?runs=1,2,3").text

    answer = pages.post("/experiments", baseline="1", leader="2")

    assert re.search(r'action="/experiments".*name="baseline" value="1".*name="leader" value="2"', page_text)
    assert "run 2 against run 1 again: 6 trials with new seeds." in page_text
    assert answer.headers["location"] == "/experiments/1"
    runs = [pages.desk.store.runs.summary(number) for number in (4, 5)]
    for run in runs:
        pages.client.within(_has_ended, pages.desk, run.id)
    runs = [pages.desk.store.runs.summary(number) for number in (4, 5)]
    assert [run.config.model_options for run in runs] == [run.config.model_options for run in old_runs]
    assert [(run.n_cases, run.config.n, run.status) for run in runs] == [(2, 2, "finished"), (1, 2, "finished")]
    assert len({run.config.seed for run in runs}) == 1
    assert not {run.config.seed for run in runs} & {run.config.seed for run in old_runs}
    assert "like run 2 against like run 1, fresh trials" in pages.get("/experiments/1").text
    assert results(pages.desk.store, 1).analysis.rates[0].n_trials == 4  # pooled with nothing


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"baseline": "1", "leader": "1"}, 422, "compared with itself"),
        ({"baseline": "1"}, 422, "name the numbers of two runs"),
        ({"baseline": "x", "leader": "2"}, 422, "name the numbers of two runs"),
        ({"baseline": "1", "leader": "99"}, 404, "99"),
    ],
    ids=["one run", "a missing number", "no number", "a run that is not there"],
)
def test_a_confirmation_that_cannot_be_says_why(
    pages: RunPages, experiment: dict[str, int], fields: dict[str, str], status: int, words: str
) -> None:
    answer = pages.post("/experiments", **fields)

    assert (answer.status_code, words in answer.text) == (status, True)


def test_a_baseline_that_leads_is_confirmed_against_the_next_one(pages: RunPages, experiment: dict[str, int]) -> None:
    text = pages.get(f"/experiments/1?baseline={experiment['m1/p2']}").text

    assert f'name="baseline" value="{experiment["m1/p2"]}"' in text
    assert f'name="leader" value="{experiment["m2/p2"]}"' in text
    assert "m2/p2 against m1/p2 again: 120 trials with new seeds, about $1.86" in text


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


@pytest.mark.parametrize("n_variants", [3, 22])
def test_the_exports_of_the_page_are_those_of_the_commands(pages: RunPages, n_variants: int) -> None:
    store, names = pages.desk.store, [f"variant {at}" for at in range(n_variants)]
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number = store.experiments.begin(plan, [])
    for index, name in enumerate(names):
        part = ExperimentPart(number, index, name)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=3, model=name, experiment=part)
        run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(6)])
        cells = [(case, at) for at in range(2 if index else 3) for case in range(6)][: 12 if index else 15]
        store.runs.record(
            [TrialResult(run_id, case, at, "finished", "passed" if case > index else "failed") for case, at in cells]
        )
        store.runs.set_status(run_id, "stopped")
    text = pages.get(f"/experiments/{number}").text
    hrefs = re.findall(r'href="([^"]+)" download', text)

    report, lines, value = (pages.get(href.replace("&amp;", "&")) for href in hrefs)

    folder = str(pages.desk.settings.workspace)
    of_commands = [
        CliRunner().invoke(show_experiment, [str(number), option, "--workspace", folder]).output
        for option in ("--json", "--csv")
    ]
    assert json.loads(value.text) == json.loads(of_commands[0])
    assert lines.text.splitlines() == of_commands[1].splitlines()
    assert json.loads(value.text)["is_cut"]
    assert f"<h1>Experiment {number}, trips</h1>" in report.text
    assert analysis_sentence(results(store, number).analysis).split("; ")[0] in report.text
    assert "Only the first 2 trials of each case count" in report.text
    assert all(name in report.text for name in names)
    assert "only 2 trials of each case count" in experiment_markdown(results(store, number))


def test_the_exports_are_against_the_baseline_of_the_page(pages: RunPages, experiment: dict[str, int]) -> None:
    text = pages.get(f"/experiments/1?baseline={experiment['m3/p1']}&hide={experiment['m1/p1']}").text
    hrefs = re.findall(r'href="(/experiments/1/[^"]+)" download', text)

    report, lines, value = (pages.get(href.replace("&amp;", "&")) for href in hrefs)

    assert "m1/p2 is better than m3/p1" in report.text
    assert "<form" not in report.text
    assert len(lines.text.splitlines()) == 7
    assert json.loads(value.text)["baseline"] == "m3/p1"
    assert [pages.get(f"/experiments/99/{name}").status_code for name in ("report", "csv", "json")] == [404] * 3


def test_an_experiment_that_is_not_there_is_not_found(pages: RunPages) -> None:
    assert pages.get("/experiments/99").status_code == 404


def test_a_filter_holds_in_any_run_or_in_the_chosen_one(pages: RunPages, experiment: dict[str, int]) -> None:
    first, second = experiment["m1/p1"], experiment["m1/p2"]  # c2 fails in the first alone

    in_any = pages.get(f"/experiments/1?only=failed&hide={','.join(map(str, [*experiment.values()][2:]))}").text
    in_second = pages.get(f"/table?runs={first},{second}&only=failed&in={second}").text

    assert ">c2</a>" in in_any
    assert ">c2</a>" not in in_second
    assert re.search(rf'name="in"><option value="">Any run</option>.*<option value="{second}" selected>B: ', in_second)
    assert f'type="hidden" name="in" value="{second}"' not in in_second
    assert re.search(rf'<option value="{second}">B: m1/p2</option>', in_any)


def test_the_list_names_each_variant_with_its_run(pages: RunPages, experiment: dict[str, int]) -> None:
    text = pages.get("/experiments").text

    assert re.findall(r'<a href="(/experiments/\d+)">(.*?)</a>', text) == [("/experiments/1", "Experiment 1, trips")]
    assert "6 variants of 12 × 5" in text
    assert re.findall(r'</span> <a href="/runs/(\d+)">(.*?)</a>', text) == [
        (str(run_id), name) for name, run_id in experiment.items()
    ]


def test_runs_lead_to_their_experiment(pages: RunPages, experiment: dict[str, int]) -> None:
    name, run_id = next(iter(experiment.items()))

    assert pages.get("/runs").text.count(" of experiment 1</a>") == len(experiment)
    assert f'<li><a href="/experiments/1">Experiment 1</a></li><li>{name}</li>' in pages.get(f"/runs/{run_id}").text


def test_the_list_has_pages_and_leaves_out_deleted_variants(pages: RunPages) -> None:
    store, variants = pages.desk.store, (Variant("old", {}), Variant("new", {}))
    for at in range(23):
        plannings = [
            store.runs.planning(RunConfig(AgentRef("dice", "dice:root_agent"), "calc"), [Case("c", (Turn("hi"),))])
            for _ in variants
        ]
        store.experiments.begin(ExperimentPlan(f"number {at}", variants, 7, 4), plannings)
    store.runs.set_status(1, "stopped")
    store.runs.delete(1)

    first, second = pages.get("/experiments").text, pages.get("/experiments?before=4").text

    assert first.count("<tbody>") == 20
    assert re.findall(r'href="(/experiments\?.*?)"', first) == ["/experiments?before=4"]
    assert second.count("<tbody>") == 3
    assert 'href="/experiments">Newest</a>' in second
    assert re.findall(r'</span> <a href="/runs/(\d+)">(.*?)</a>', second)[-3:] == [
        ("3", "old"),
        ("4", "new"),
        ("2", "new"),
    ]


def test_a_list_without_experiments_leads_to_the_form(pages: RunPages) -> None:
    assert '<a class="button" href="/runs/new">Add variants to a run</a>' in pages.get("/experiments").text


def test_the_page_tells_that_the_set_was_changed_and_that_all_variants_have_its_earlier_cases(pages: RunPages) -> None:
    of_form = {"vary": ["temperature"], "vary.temperature": ["0", "1"], "cases": "selected"}
    address = pages.start(**of_form, case=["greets", "misses"])
    for number in (1, 2):
        pages.client.within(_has_ended, pages.desk, number)
    before = pages.get(address).text
    file = pages.desk.evalsets.list()[0]
    evalset, version, _ = pages.desk.evalsets.read(file.id)
    cases = tuple(each for each in evalset.cases if each.id != "greets")
    pages.desk.evalsets.save(file.id, replace(evalset, cases=cases), version)

    after = pages.get(address).text

    assert "The eval set differs" not in before
    assert after.count("The eval set differs") == 1
    assert "1 case is gone (greets)" in after
    assert "All variants have the cases as they were at the start of the experiment." in after


def says(text: str) -> str:
    """The answer, the figures and the notes of a page with a table."""
    part = re.search(
        r'<div id="says" data-contents>.*?</div>\s*<(?:div class="columns" data-side|section class="panel" id="cases")',
        text,
        re.DOTALL,
    )
    assert part
    return re.sub(r"&amp;hide=[\d%C]*|hide=[\d%C]*&amp;|\?hide=[\d%C]*", "", part[0])


@pytest.mark.parametrize("address", ["/experiments/1?", "/experiments/1?baseline={2}&", "/table?runs={0},{1},{2},{4}&"])
@pytest.mark.parametrize("n_hidden", [1, 2, 3])
def test_a_hidden_column_changes_no_answer(
    pages: RunPages, experiment: dict[str, int], address: str, n_hidden: int
) -> None:
    run_ids = [*experiment.values()]
    of_all = address.format(*run_ids)
    hidden_ids = [run_ids[0], run_ids[2], run_ids[1]][:n_hidden]

    before = pages.get(of_all.rstrip("&?")).text
    after = pages.get(f"{of_all}hide={','.join(map(str, hidden_ids))}").text

    assert says(after) == says(before)
    assert "May be the best: " in after or "is the best: " in after
    points = [re.findall(r'<circle data-part="point"[^>]*>', text) for text in (before, after)]
    assert points[0] == points[1] != []
    n_columns = [len(re.findall(r'data-group="(?:.)"', text)) for text in (before, after)]
    assert n_columns[1] == (n_columns[0] - n_hidden if n_columns[0] - n_hidden > 1 else 0)  # a single one has no head


def test_a_hidden_variant_is_called_by_its_name(pages: RunPages, experiment: dict[str, int]) -> None:
    text = pages.get(f"/experiments/1?hide={experiment['m2/p1']},99").text

    assert re.findall(r">Show ([^<]+)</a>", text) == ["m2/p1"]


@pytest.mark.parametrize("query", ["", "?baseline={}", "?baseline={}&hide={}"])
def test_after_a_cut_the_same_trials_count_against_any_baseline(pages: RunPages, query: str) -> None:
    """The third trials, of which only the first variant has some, all fail."""
    store, names = pages.desk.store, ("as now", "warm", "hot")
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number, run_ids = store.experiments.begin(plan, []), []
    for index, name in enumerate(names):
        part = ExperimentPart(number, index, name)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=3, model=name, experiment=part)
        run_ids.append(store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(8)]))
        cells = [(case, at) for at in range(2) for case in range(8)] + [(case, 2) for case in range(5) if index == 0]
        store.runs.record(
            [
                TrialResult(run_ids[-1], case, at, "finished", "passed" if at < 2 and case < 4 else "failed")
                for case, at in cells
            ]
        )
        store.runs.set_status(run_ids[-1], "stopped")

    text = pages.get(f"/experiments/{number}{query.format(run_ids[2], run_ids[1])}").text

    assert "Only the first 2 trials of each case count" in text
    foot = re.search(r'<tfoot id="total">.*?</tfoot>', text, re.DOTALL)
    assert foot
    n_columns = 2 if "hide" in query else 3
    assert re.findall(r"\d+ of \d+", foot[0]) == ["8 of 16"] * n_columns
    assert re.findall(r"<b>(\d+) %</b>", text)[:n_columns] == ["50"] * n_columns


def test_all_but_two_of_sixty_variants_can_be_hidden(pages: RunPages) -> None:
    store, names = pages.desk.store, [f"v{at}" for at in range(60)]
    plan = ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 5)
    number = store.experiments.begin(plan, [])
    for index, name in enumerate(names):
        part = ExperimentPart(number, index, name)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=1, experiment=part)
        run_id = store.runs.create(config, [Case("c", (Turn("hi"),))])
        store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed")])
        store.runs.set_status(run_id, "finished")
    hidden = ",".join(map(str, store.experiments.get(number).run_ids[:58]))

    text = pages.get(f"/experiments/{number}?hide={hidden}").text

    assert len(re.findall(r"data-group=", text)) == 2
    assert len(re.findall(r">Show v\d+</a>", text)) == 58
