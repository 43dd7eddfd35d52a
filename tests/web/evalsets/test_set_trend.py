"""The trend of a set: its line over comparable runs, the marks between them, and each case over the last runs."""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Connection

from evaldesk.matching.case_version import version_of_set
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, RunConfig, Score, TrialResult, Turn
from evaldesk.model.conclusion import Gates
from evaldesk.model.run import ExperimentPart
from evaldesk.pages.set_trend import trend_page

Pages = Any
CASES = tuple(Case(f"case_{at}", (Turn(f"question {at}"),)) for at in range(4))


def add_run(pages: Pages, calc: str, n_passed: int, cases: tuple[Case, ...] = CASES, n: int = 5, **changes: Any) -> int:
    """A finished run of `n` trials a case, of which `n_passed` pass in each."""
    config = RunConfig(AgentRef("dice", "dice:agent"), calc, n=n, agent_model="small", **changes)
    config = replace(config, set_version=version_of_set(EvalSet("calc", cases=cases)))
    runs = pages.desk.store.runs
    run_id: int = runs.create(config, list(cases))
    results = [
        TrialResult(run_id, case, trial, "finished", "passed" if trial < n_passed else "failed", duration_ms=100.0)
        for case in range(len(cases))
        for trial in range(n)
    ]
    runs.record(results)
    runs.set_status(run_id, "finished")
    return run_id


def series(pages: Pages, calc: str, *passes: int, **changes: Any) -> list[int]:
    return [add_run(pages, calc, n_passed, **changes) for n_passed in passes]


def test_a_fall_is_told_with_the_mark_between_the_two_runs(pages: Pages, calc: str) -> None:
    ids = series(pages, calc, 5, 5, 4, 5, 5, 5)
    series(pages, calc, 1, 2, 1, 1, model="large")

    text = pages.get(f"/evalsets/{calc}/trend").text
    trend = trend_page(pages.desk, calc)

    assert trend.headline == (f"Fell from 97 % to 25 % after run {ids[-1]},", "when the model changed to large")
    assert f"after run {ids[-1]}, <span>when the model changed to large</span>" in text
    assert all(case.way == "worse" for case in trend.cases)
    assert "no cause" in text


def test_a_mark_elsewhere_is_not_named(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5)
    series(pages, calc, 5, 5, 5, 4, 1, 1, 1, 1, model="large")

    first, rest = trend_page(pages.desk, calc).headline

    assert first.startswith("Fell from ")
    assert rest == ""


def test_noise_is_no_change(pages: Pages, calc: str) -> None:
    series(pages, calc, 4, 5, 4, 5, 4, 5, 4, 5)

    assert trend_page(pages.desk, calc).headline[1] == "no change beyond chance in 8 runs"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cases": (*CASES[:3], Case("case_3", (Turn("other"),)))}, "the set changed"),
        ({"criteria": (Criterion("response_match_score", 0.5),)}, "the criteria changed"),
    ],
    ids=["set", "criteria"],
)
def test_a_line_breaks_where_set_or_criteria_changed(
    pages: Pages, calc: str, changes: dict[str, Any], words: str
) -> None:
    series(pages, calc, 5, 5, 5)
    series(pages, calc, 4, 4, **changes)

    chart = trend_page(pages.desk, calc).chart

    assert chart is not None
    assert len(chart.lines) == 2
    assert [(mark.words, mark.is_break) for mark in chart.marks] == [((words,), True)]


def block_of(pages: Pages, calc: str, agent: str = "") -> str:
    """The text of the block "Changed between these runs" of the trend."""
    page = pages.get(f"/evalsets/{calc}/trend?agent={agent}").text
    section = page.partition('aria-labelledby="between"')[2].partition("</section>")[0]
    return " ".join(html.unescape(re.sub(r"(?s)<[^>]*>|[^>]*$", " ", f"<i{section}<i>")).split())


def test_changed_cases_criteria_and_gates_are_named_with_their_runs_and_authors(pages: Pages, calc: str) -> None:
    edited = (Case("case_0", (Turn("easier <b>"),)), *CASES[1:])
    criteria = (Criterion("tool_trajectory_avg_score", 1), Criterion("response_match_score", 0.5))
    ids = series(pages, calc, 5, 5)
    ids += series(pages, calc, 5, cases=edited)
    ids += series(pages, calc, 5, cases=edited, criteria=criteria, gates=Gates(min_pass_rate=0.5))

    text = block_of(pages, calc)

    who = pages.desk.store.runs.summary(ids[-1]).started_by or "changed outside"
    assert text.startswith("Changed between these runs Changed cases, criteria and gates Runs Kind Name Change By")
    assert text.partition("By ")[2] == (
        f"{ids[2]} to {ids[3]} criterion response_match_score threshold 0.8 -> threshold 0.5 {who} "
        f"{ids[2]} to {ids[3]} gate min_pass_rate none -> 0.5 {who} "
        f"{ids[1]} to {ids[2]} case case_0 edited changed outside"
    )


def test_a_case_in_quarantine_is_named_though_the_set_is_as_before(pages: Pages, calc: str) -> None:
    ids = series(pages, calc, 5) + series(pages, calc, 5, left_out=("case_0",))

    text = block_of(pages, calc)

    assert text.partition("By ")[2] == f"{ids[0]} to {ids[1]} case case_0 put in quarantine changed outside"


def test_without_a_change_of_set_criteria_or_gates_there_is_no_block(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 4)
    series(pages, calc, 3, model="large")
    series(pages, calc, 3, cases=(replace(CASES[0], id="other"), *CASES[1:]))

    assert not block_of(pages, calc)


def test_a_trend_of_many_changes_names_the_newest_and_reads_no_more(
    pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [
        add_run(pages, calc, 1, tuple(Case(f"case_{case}", (Turn(f"{at}"),)) for case in range(7)), n=1)
        for at in range(14)
    ]
    read_runs: list[int] = []
    versions = pages.desk.store.runs.case_versions

    def counted_versions(run_id: int) -> Any:
        read_runs.append(run_id)
        return versions(run_id)

    monkeypatch.setattr(pages.desk.store.runs, "case_versions", counted_versions)

    text = block_of(pages, calc)

    assert [f"{a} to {b}" in text for a, b in pairwise(ids)] == [False] * 3 + [True] * 10
    assert text.count("case_4 edited") == 10
    assert "case_5" not in text
    assert f"5 of 7; evaldesk run changes {ids[-2]} {ids[-1]} lists all." in text
    assert len(read_runs) == 20
    monkeypatch.setattr("evaldesk.pages.run_changes.MOST_CASES_READ", 30)
    assert f"{ids[-3]} to" in block_of(pages, calc)
    assert f"{ids[-4]} to" not in block_of(pages, calc)


def test_a_renamed_case_and_tags_break_no_line(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5)
    series(pages, calc, 5, 5, cases=(replace(CASES[0], id="other", tags=("quarantine",)), *CASES[1:]))

    chart = trend_page(pages.desk, calc).chart

    assert chart is not None
    assert (len(chart.lines), chart.marks) == (1, ())


def test_the_dashed_line_is_of_the_cases_that_all_runs_played(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 3)
    series(pages, calc, 4, 4, cases=(*CASES[1:], Case("new", (Turn("new"),))))

    trend = trend_page(pages.desk, calc)

    assert trend.n_common == 3
    assert trend.chart is not None
    assert trend.chart.thin.count("L") == 3


def test_an_edited_case_counts_from_its_edit_on(pages: Pages, calc: str) -> None:
    series(pages, calc, 0, 0, 0)
    edited = (Case("case_0", (Turn("easier"),)), *CASES[1:])
    series(pages, calc, 5, 5, cases=edited)

    case = next(each for each in trend_page(pages.desk, calc).cases if each.case_id == "case_0")

    assert (case.before, case.after) == ((5, 5), (5, 5))
    assert case.cut_at is not None


def test_a_case_is_flaky_where_trials_of_a_run_differ_in_three_of_five(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 3, 2, 4)

    trend = trend_page(pages.desk, calc)

    assert trend.counts is not None
    assert trend.counts["flaky"] == 4


def test_unfinished_and_unscored_runs_are_in_no_trend(pages: Pages, calc: str) -> None:
    run_id = add_run(pages, calc, 5)
    pages.desk.store.runs.set_status(run_id, "stopped")

    assert trend_page(pages.desk, calc).runs == ()
    assert "No complete run yet" in pages.get(f"/evalsets/{calc}/trend").text


def test_runs_of_other_agents_are_chosen_by_their_name(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5)
    other = RunConfig(AgentRef("<b>cards</b>", "cards:agent"), calc)
    run_id = pages.desk.store.runs.create(other, list(CASES))
    results = [TrialResult(run_id, at, 0, "finished", "failed") for at in range(4)]
    pages.desk.store.runs.record(results)
    pages.desk.store.runs.set_status(run_id, "finished")

    text = pages.get(f"/evalsets/{calc}/trend").text

    assert "&lt;b&gt;cards&lt;/b&gt;" in text
    assert "<b>cards</b>" not in text
    assert len(trend_page(pages.desk, calc, "dice").runs) == 2
    assert pages.get(f"/evalsets/{calc}/trend?agent=nobody&sort=nothing").status_code == 200


def test_five_hundred_runs_fit_a_small_page(pages: Pages, calc: str) -> None:
    for at in range(505):
        add_run(pages, calc, at % 2, CASES[:2], n=1)

    text = pages.get(f"/evalsets/{calc}/trend").text

    assert len(trend_page(pages.desk, calc).runs) == 500
    assert len(text.encode()) <= 60_000
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_cases_in_quarantine_now_count_in_no_run_of_the_trend(pages: Pages, calc: str) -> None:
    for at in range(8):
        add_run(pages, calc, 4, left_out=() if at < 4 else ("case_3",))
    runs = pages.desk.store.runs
    plain = trend_page(pages.desk, calc)

    for run in plain.runs[:4]:  # the case passed always before it was put in quarantine, and never since
        runs.record([TrialResult(run.id, 3, trial, "finished", "passed") for trial in range(5)])
    for run in plain.runs[4:]:
        runs.record([TrialResult(run.id, 3, trial, "finished", "failed") for trial in range(5)])
    trend = trend_page(pages.desk, calc)

    assert [(run.n_passed, run.n_scored) for run in trend.runs] == [(12, 15)] * 8
    assert trend.changes == ()
    assert "1 case in quarantine is not counted." in pages.get(f"/evalsets/{calc}/trend").text


def test_a_case_that_left_quarantine_counts_in_every_run_again(pages: Pages, calc: str) -> None:
    add_run(pages, calc, 4, left_out=("case_3",))
    add_run(pages, calc, 4)

    assert [run.n_scored for run in trend_page(pages.desk, calc).runs] == [20, 20]


def test_a_square_opens_the_first_failed_trial_of_its_run(pages: Pages, calc: str) -> None:
    first = add_run(pages, calc, 5, CASES[:1])
    second = add_run(pages, calc, 2, (CASES[1], CASES[0]))

    text = html.unescape(pages.get(f"/evalsets/{calc}/trend?sort=name").text)
    opened = pages.get(f"/evalsets/{calc}/trend?case=case_0").text

    assert f'data-runs="{first} {second}"' in text
    assert re.findall(r'data-trials="([^"]*)"', text) == ["0.0 1.2", "- 0.2"]
    assert "case=case_0#past" in text
    links = re.findall(r'data-status="(\w+)" href="([^"]+)" aria-label="([^"]+)"', opened)
    assert links == [
        ("passed", f"/runs/{first}/cases/0/trials/0", f"run {first}, 5 of 5 passed"),
        ("failed", f"/runs/{second}/cases/1/trials/2", f"run {second}, 2 of 5 passed"),
    ]
    assert [pages.get(href).status_code for _, href, _ in links] == [200, 200]
    assert pages.get(f"/evalsets/{calc}/trend?case=%3Cnone%3E").status_code == 200


def scored_run(pages: Pages, calc: str, value: float, duration_ms: float, **changes: Any) -> int:
    """A finished run of three trials with that score and about that time."""
    runs = pages.desk.store.runs
    run_id: int = runs.create(RunConfig(AgentRef("dice", "dice:agent"), calc, n=3, **changes), list(CASES[:1]))
    score = Score("response_match_score", value, threshold=0.5, passed=value >= 0.5)
    runs.record(
        [
            TrialResult(run_id, 0, at, "finished", "passed", scores=(score,), duration_ms=duration_ms * factor)
            for at, factor in enumerate((0.5, 1.0, 9.0))
        ]
    )
    runs.set_status(run_id, "finished")
    return run_id


def test_time_is_the_median_and_each_metric_has_a_line(pages: Pages, calc: str) -> None:
    for value, duration_ms in ((0.5, 2_000.0), (0.75, 3_000.0), (0.9, 4_000.0)):
        scored_run(pages, calc, value, duration_ms)

    smalls = {small.title: small.value for small in trend_page(pages.desk, calc).smalls}

    assert smalls == {"p50 of a trial": "4.0 s", "response_match_score": "0.90"}
    assert "response_match_score, now 0.90" in pages.get(f"/evalsets/{calc}/trend").text


def test_variants_have_lines_of_their_own_and_the_newest_is_judged(pages: Pages, calc: str) -> None:
    for _ in range(4):
        for at, (name, n_passed) in enumerate((("<i>short</i>", 1), ("long", 5))):
            add_run(pages, calc, n_passed, experiment=ExperimentPart(1, at, name))

    trend = trend_page(pages.desk, calc)
    text = pages.get(f"/evalsets/{calc}/trend").text

    assert trend.chart is not None
    assert [(each.name, len(each.paths)) for each in trend.chart.variants] == [("<i>short</i>", 1)]
    assert len(trend.chart.lines) == 1
    assert {run.variant for run in trend.compared} == {"long"}
    assert "&lt;i&gt;short&lt;/i&gt;" in text
    assert "<i>short" not in text


def test_the_button_compares_the_runs_around_the_newest_change(pages: Pages, calc: str) -> None:
    ids = series(pages, calc, 5, 5, 4, 5, 5, 5)
    unchanged = trend_page(pages.desk, calc).compared_pair
    later_ids = series(pages, calc, 1, 2, 1, 1, model="large")

    text = pages.get(f"/evalsets/{calc}/trend").text

    assert unchanged == (ids[-2], ids[-1])
    assert f'href="/compare?a={ids[-1]}&amp;b={later_ids[-1]}"' in text
    assert pages.get(f"/compare?a={ids[-1]}&b={later_ids[-1]}").headers["location"].startswith("/table")


def test_the_alarm_marks_the_newest_run(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 4, 5, 5)
    run_id = add_run(pages, calc, 1)

    trend = trend_page(pages.desk, calc)

    assert trend.headline[0] == f"Run {run_id} passed 4 of 20,"
    assert trend.is_worse
    assert trend.chart is not None
    assert [dot.is_bad for dot in trend.chart.dots] == [False] * 5 + [True]


def test_a_trend_asks_the_store_as_often_for_many_runs_as_for_few(
    pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Counter[int]()
    execute = Connection.execute

    def counting(self: Connection, *values: Any, **options: Any) -> Any:
        questions[n_runs] += 1
        return execute(self, *values, **options)

    for n_runs in (3, 60):
        series(pages, calc, *[5] * n_runs, cases=CASES[:2], n=1)
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", counting)
            trend_page(pages.desk, calc)

    assert questions[60] == questions[3] <= 12
