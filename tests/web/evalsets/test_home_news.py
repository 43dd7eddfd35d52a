"""The changes since the last visit: only tests tell that something got worse, and nothing is told of an import."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.web.evalsets.test_set_trend import CASES, add_run, series

from evaldesk.model import RunConfig, TrialResult
from evaldesk.model.conclusion import Gates
from evaldesk.model.set_trend import TrendCase
from evaldesk.pages.home_news import News, read_news
from evaldesk.pages.set_trend import trend_page
from evaldesk.pages.trend_alarm import newest_verdict
from evaldesk.pages.trend_sparks import newest_sparks, set_sparks
from evaldesk.store.runs.run_store import imported_agent

Pages = Any


def news(pages: Pages, hours: float = 24) -> News:
    now = pages.desk.store.now()
    return read_news(pages.desk, now - timedelta(hours=hours), pages.desk.evalsets.list(), now)


def test_the_newest_of_events_at_one_place_keeps_its_label(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 4)

    events = news(pages).events

    assert [each.at for each in events] == sorted(each.at for each in events)
    assert events[-1].row == "above"
    assert {each.row for each in events if each.x == events[-1].x and each is not events[-1]} <= {""}


def test_a_newest_run_below_its_history_is_worse(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 4, 5, 5)
    run_id = add_run(pages, calc, 1)

    found = news(pages)
    text = pages.get("/").text

    assert found.worse[0].title == "calc"
    assert (found.worse[0].now, found.worse[0].was) == ("20 %", "96 %")
    assert found.worse[0].run_ids == (run_id,)
    assert {each.title for each in found.worse[1:]} <= {case.id for case in CASES}
    assert "calc fell from 96 % to 20 %" in text
    assert text.count("beyond chance") == 1


def test_a_fall_is_told_after_the_visit_in_which_it_came_and_not_after_the_next(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 4, 5, 5, 5)
    series(pages, calc, 1, 2, 1, 1, model="large")

    assert [each.title for each in news(pages).worse][:1] == ["calc"]
    assert news(pages).worse[0].reason == "when the model changed to large"
    assert news(pages, hours=-1).worse == ()


def test_noise_and_short_histories_are_not_worse(pages: Pages, calc: str) -> None:
    add_run(pages, calc, 5, n=1)
    add_run(pages, calc, 0, n=1)
    short = news(pages)
    series(pages, calc, 4, 5, 4, 5, 4, 5, 4, 5, 4)
    noise = news(pages)

    assert (short.worse, short.n_told) == ((), 0)
    assert short.sentence == ("2 runs ended", "too few comparable runs before to tell a change")
    assert (noise.worse, noise.n_told) == ((), 1)
    assert noise.sentence[0] == "Nothing got worse beyond chance"


def test_a_gate_that_held_and_failed_for_the_same_agent_has_a_card(pages: Pages, calc: str) -> None:
    gates = Gates(min_pass_rate=0.9)
    before = series(pages, calc, 5, 5, gates=gates)
    quiet = news(pages)
    run_id = add_run(pages, calc, 4, gates=gates)

    after, later = news(pages), news(pages, hours=-1)
    add_run(pages, calc, 5, gates=gates)
    text = pages.get("/").text

    assert quiet.flips == later.flips == ()
    (row,) = after.flips
    assert [answer.state for answer in row.answers] == ["held"] * len(before) + ["failed"]
    assert row.answers[-1].run_id == run_id
    assert row.joins == ((1, 2),)
    assert after.sentence == (
        "1 gate held and failed for the same agent",
        "too few comparable runs before to tell a change",
    )
    assert after.summary == "1 gate that flips"
    assert text.count('data-kind="answers"') == 1
    assert "flips <span>1 of 4 failed</span>" in text
    assert "In doubt" in text


def test_another_version_of_the_agent_flips_no_gate(pages: Pages, calc: str) -> None:
    gates = Gates(min_pass_rate=0.7)
    series(pages, calc, 5, 5, gates=gates, agent_version="v1")
    series(pages, calc, 3, gates=gates, agent_version="v2")

    assert news(pages).flips == ()


def test_a_case_in_quarantine_raises_no_alarm(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 5, 5, 5)
    left_out = tuple(case.id for case in CASES)
    add_run(pages, calc, 0, left_out=left_out)

    trend = trend_page(pages.desk, calc, is_strip=True)

    assert trend.alarm is None


def test_an_alarm_compares_the_same_cases_only(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 5, 5, 5, 5)
    trend = trend_page(pages.desk, calc)
    ids = [run.id for run in trend.compared]
    rows = [TrendCase(run_id, "old" if run_id < ids[-1] else "new", "same", 5, 5) for run_id in ids]

    renamed = newest_verdict(trend.compared, rows)
    edited = newest_verdict(trend.compared, [replace(row, digest=row.case_id) for row in rows])

    assert renamed is None or renamed.scored == 5
    assert edited is None


def test_an_unscored_import_fills_nothing(pages: Pages, calc: str) -> None:
    for _ in range(5):
        config = RunConfig(imported_agent("theirs"), calc)
        run_id = pages.desk.store.runs.create(config, [replace(case, id=str(at)) for at, case in enumerate(CASES, 1)])
        results = [TrialResult(run_id, at, 0, "finished", "unscored") for at in range(4)]
        pages.desk.store.runs.record(results)
        pages.desk.store.runs.set_status(run_id, "finished")

    found = news(pages)
    text = pages.get("/").text

    assert (found.worse, found.n_told) == ((), 0)
    assert set_sparks(pages.desk) == []
    assert "Worst" not in text
    assert "beyond chance" not in text
    assert not any(f">{number}</a>" in text for number in range(1, 7))


def test_each_set_has_one_small_trend_and_each_agent_its_own(pages: Pages, calc: str) -> None:
    series(pages, calc, 5, 4, 3)
    config = RunConfig(imported_agent("other"), calc)
    run_id = pages.desk.store.runs.create(config, list(CASES))
    pages.desk.store.runs.record([TrialResult(run_id, at, 0, "finished", "failed") for at in range(4)])
    pages.desk.store.runs.set_status(run_id, "finished")

    sparks = set_sparks(pages.desk)

    assert [(spark.agent_id, spark.value) for spark in sparks] == [("other (imported)", "0 %"), ("dice", "60 %")]
    assert newest_sparks(sparks) == sparks[:1]
    assert sparks[0].path == ""
    assert pages.get("/").text.count('class="spark"') == 1


def test_a_name_with_markup_is_text_in_every_picture(pages: Pages, calc: str) -> None:
    cases = tuple(replace(case, id=f"<b>{case.id}</b>") for case in CASES)
    series(pages, calc, 5, 5, 4, 5, 5, cases=cases)
    add_run(pages, calc, 0, cases=cases)

    text = pages.get("/").text
    strip = pages.get(f"/evalsets/{calc}/trend", **{"HX-Request": "true", "HX-Target": "section#strip"}).text

    assert "&lt;b&gt;case_" in text
    assert "<b>case_" not in text + strip
    assert "fewer than" in strip
