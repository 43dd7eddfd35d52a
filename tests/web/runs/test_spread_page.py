"""What lies behind the means of a run, as a page and as the part that the run page fetches."""

from __future__ import annotations

from typing import Any


def test_the_spread_stands_in_words_a_picture_and_a_table(pages: Any) -> None:
    run = pages.finish(metric=["response_match_score", "tool_call_count_v1"], **{"tool_call_count_v1.threshold": "3"})

    text = pages.get(f"{run}/spread").text

    assert f'href="{run}/spread"' in pages.get(run).text
    assert "Mean" in text
    assert "are at least 0.80." in text
    assert "are at most 3.00." in text
    assert text.count('<svg class="histogram"') == 2
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
