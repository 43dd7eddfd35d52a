"""What lies behind the means of a run, as a page and as the part that the run page fetches."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.model.conclusion import Verdict
from evaldesk.pages.runs.spread import BASE, LEFT, RIGHT, TOP, read_spread


def test_the_spread_stands_in_words_a_picture_and_a_table(pages: Any) -> None:
    run = pages.finish(metric=["response_match_score", "tool_call_count_v1"], **{"tool_call_count_v1.threshold": "3"})

    text = pages.get(f"{run}/spread").text

    assert f'href="{run}/spread"' in pages.get(run).text
    assert "Mean" in text
    assert "are at least 0.80." in text
    assert "are at most 3.00." in text
    assert text.count('aria-label="Histogram of ') == 2
    assert text.count('aria-label="G-Pass@2: ') == 1
    assert "0.90 to 1.00</th>" in text
    assert "With them: " in text
    assert "0 of 3 cases are flaky" in text
    assert "at least 2 of 2 trials pass" in text
    assert "(p50)" in text


def test_the_run_page_fetches_only_the_block(pages: Any) -> None:
    run = pages.finish(n="1")

    answer = pages.get(f"{run}/spread", **{"HX-Target": "section#spread"})

    assert answer.text.lstrip().startswith('<section class="panel" id="spread"')
    assert "Needs more than one trial per case." in answer.text


def test_a_run_that_does_not_exist_has_no_spread(pages: Any) -> None:
    assert pages.get("/runs/99/spread").status_code == 404


def test_each_histogram_has_its_axes_counts_and_threshold(pages: Any) -> None:
    metrics = ["response_match_score", "tool_call_count_v1"]
    run = pages.finish(metric=metrics, **{"tool_call_count_v1.threshold": "3"})

    spread = read_spread(pages.desk, int(run.rsplit("/", 1)[1]))
    shares, counts = spread.metrics
    text = pages.get(f"{run}/spread").text

    assert shares.ticks == [(LEFT, "0.00"), ((LEFT + RIGHT) / 2, "0.50"), (RIGHT, "1.00")]
    assert shares.threshold_x == pytest.approx(LEFT + 0.8 * (RIGHT - LEFT))
    assert [words for _, words in counts.ticks] == sorted({bar.words for bar in counts.bars}, key=int)[:3]
    rows = pages.desk.store.runs.metric_rows(spread.summary.id)
    for metric, row in zip(spread.metrics, rows, strict=True):
        assert sum(bar.n for bar in metric.bars) == row.n
        assert max(bar.n for bar in metric.bars) == metric.most
        assert {bar.y for bar in metric.bars if bar.n == metric.most} == {TOP}
        assert all(bar.y == BASE and not bar.label for bar in metric.bars if not bar.n)
        assert all(bar.x >= LEFT and bar.x + bar.width <= RIGHT + 1e-9 for bar in metric.bars)
    drawn = re.findall(r"<rect [^>]*><title>([^<]*): ([0-9]+) trials?</title></rect>", text)
    assert [int(n) for _, n in drawn] == [bar.n for metric in spread.metrics for bar in metric.bars if bar.n]


def test_the_points_of_g_pass_fall_between_the_ends_of_their_axis(pages: Any) -> None:
    cases = [Case(f"case_{at}", (Turn("Hello"),)) for at in range(5)]
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice:agent"), "dice", n=4), cases)
    verdicts: list[tuple[int, int, Verdict]] = [
        (case, trial, "passed" if trial < case else "failed") for case in range(5) for trial in range(4)
    ]
    runs.record([TrialResult(run_id, case, trial, "finished", verdict) for case, trial, verdict in verdicts])
    runs.set_status(run_id, "finished")

    points = read_spread(pages.desk, run_id).g_pass

    assert [point.n_needed for point in points] == [1, 2, 3, 4]
    assert [point.value for point in points] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert [point.y for point in points] == [pytest.approx(BASE - point.value * (BASE - TOP)) for point in points]
    assert points[-1].x == RIGHT
