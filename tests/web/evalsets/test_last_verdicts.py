"""The last verdicts on the page of an eval set."""

from __future__ import annotations

from typing import Any

from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn


def _ran(pages: Any, set_id: str) -> int:
    """A run of the second case in which the first of two trials failed."""
    config = RunConfig(AgentRef("dice", "agent:root_agent"), set_id, n=2)
    cases = [Case(name, (Turn("Hello"),)) for name in ("other", "quiet")]
    run_id: int = pages.desk.store.runs.create(config, cases)
    pages.desk.store.runs.record([TrialResult(run_id, 1, 0, "finished", verdict="failed")])
    return run_id


def test_each_square_leads_to_its_trial(pages: Any, calc: str) -> None:
    run_id = _ran(pages, calc)

    text = pages.get(f"/evalsets/{calc}").text

    trials = f'href="/runs/{run_id}/cases/1/trials'
    assert f'data-status="failed" {trials}/0" aria-label="trial 1 failed"' in text
    assert f'data-status="queued" {trials}/1" aria-label="trial 2 queued"' in text


def test_errors_count_as_on_the_page_of_the_run(pages: Any, calc: str) -> None:
    config = RunConfig(AgentRef("dice", "agent:root_agent"), calc, n=2, errors_are_failures=True)
    run_id = pages.desk.store.runs.create(config, [Case("quiet", (Turn("Hello"),))])
    results = TrialResult(run_id, 0, 0, "finished", "passed"), TrialResult(run_id, 0, 1, "errored", "errored")
    pages.desk.store.runs.record(results)

    assert "1 of 2</a>" in pages.get(f"/evalsets/{calc}").text
    assert "1 of 2" in pages.get(f"/runs/{run_id}").text


def test_the_case_editor_shows_them_too(pages: Any, calc: str) -> None:
    run_id = _ran(pages, calc)

    text = pages.get(pages.case_address(calc, "quiet")).text

    assert f'href="/runs/{run_id}/cases/1/trials/0"' in text


def test_a_renamed_set_keeps_them(pages: Any, calc: str) -> None:
    run_id = _ran(pages, calc)

    renamed = pages.desk.evalsets.change(calc, "dice", "")

    assert renamed != calc
    assert f"/runs/{run_id}/cases/1/trials/0" in pages.get(f"/evalsets/{renamed}").text
    assert pages.desk.store.runs.summary(run_id).config.evalset_path.endswith("dice.evalset.json")


def test_the_form_says_that_runs_come_along(pages: Any, calc: str) -> None:
    assert "Past runs stay linked." in pages.get(f"/evalsets/{calc}/settings").text
