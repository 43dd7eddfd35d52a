"""The page of a trial that another tool played: what its file does not say is not made up."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.islands import of_tools

from evaldesk.formats.files import read_file
from evaldesk.model import Usage

pytestmark = of_tools("swe_agent", "tau")

SAMPLES = Path(__file__).parents[2] / "formats" / "exchange_samples"


def _page(pages: Any, name: str) -> str:
    path = SAMPLES / name
    taken = pages.desk.imports.take_in(read_file(path.read_bytes(), path.name), source=path.name, name="imported")
    return str(pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text)


def test_a_trial_without_times_and_usage_says_that_they_are_unknown(pages: Any) -> None:
    page = _page(pages, "tau-bench.json")

    assert "time unknown, no model call reported" in page
    assert "0 ms" not in page
    assert '<th scope="col">Expected</th>' not in page
    assert "<b>reward:</b> The database and the required outputs are as expected." in page


def test_a_file_that_tells_what_a_trial_cost_and_no_tokens_has_no_trial_of_0_tokens(pages: Any) -> None:
    imported = read_file((SAMPLES / "tau-bench.json").read_bytes(), "tau-bench.json")
    (run,) = imported.runs
    results = tuple(replace(each, usages=(Usage("gpt-4o", cost=0.0707),)) for each in run.results)
    whole = replace(imported, runs=(replace(run, results=results),))
    taken = pages.desk.imports.take_in(whole, source="t.json", name="imported")

    page = pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text

    assert "time unknown, tokens unknown, $0.0707" in page


def test_a_trial_that_nothing_scored_finished_all_the_same(pages: Any) -> None:
    page = _page(pages, "otel.json")

    assert "No metric scored this trial." in page
    assert "What did not finish" not in page
    assert "2.9 s" in page


def test_a_long_explanation_of_a_scorer_is_folded_and_read_as_markdown(pages: Any) -> None:
    explained = "## Steps\n\n- **first**\n- second <script>\n" + "word " * 60
    imported = read_file((SAMPLES / "tau-bench.json").read_bytes(), "tau-bench.json")
    (run,) = imported.runs
    results = [
        replace(each, scores=tuple(replace(score, reason=explained) for score in each.scores)) for each in run.results
    ]
    whole = replace(imported, runs=(replace(run, results=tuple(results)),))
    taken = pages.desk.imports.take_in(whole, source="t.json", name="imported")

    page = pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text

    scores = page.partition('id="scores-title"')[2].partition("</section>")[0]
    assert re.search(r'<details class="disclosure"><summary><span><b>reward</b>: ## Steps', scores)
    assert "<li><strong>first</strong></li>" in scores
    assert "<script>" not in scores


def test_the_patch_of_swe_agent_has_its_panel(pages: Any) -> None:
    trial = json.loads((SAMPLES / "swe-agent.traj").read_text())
    patch = "\ndiff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    trial["info"] = {"submission": patch, "edited_files30": "[File: f.py]\n1: new", "exit_status": "submitted"}
    imported = read_file(json.dumps(trial).encode(), "one.traj")
    taken = pages.desk.imports.take_in(imported, source="one.traj", name="imported")

    page = pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text

    panel = page.partition('id="source"')[2].partition("</section>")[0]
    assert "Submission: 1 line added, 1 removed" in panel
    assert '<table class="patch">' in panel
    assert "edited_files30" not in panel.lower().replace(" ", "_")


def test_an_imported_run_says_what_its_cases_are_and_why_trials_failed(pages: Any) -> None:
    path = SAMPLES / "tau-bench.json"
    (trial, other) = json.loads(path.read_text())
    trial["traj"][1]["content"] = "My <b>order</b> is late."
    data = json.dumps([trial, other]).encode()
    imported = read_file(data, path.name)
    run_id, again = (
        pages.desk.imports.take_in(imported, source=path.name, name=name, again=True).run_ids[0]
        for name in ("imported", "again")
    )

    page, table = (pages.get(address).text for address in (f"/runs/{run_id}", f"/table?runs={run_id},{again}"))
    bars = pages.get(f"/runs/{run_id}/divergences").text

    for text in (page, table):
        assert '>0</a> <span class="sub">My &lt;b&gt;order&lt;/b&gt; is late.</span>' in text
        assert ">too few<" not in text
    assert re.search(r"<b>1</b> <span>reward: [^<]+</span>", bars)
    (signature,) = pages.desk.failures.signatures(run_id, [(0, 1)]).values()
    assert f"<span>{signature.words}</span>" in bars
