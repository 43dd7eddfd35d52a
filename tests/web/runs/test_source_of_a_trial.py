"""Beside a trial stands what its source knows: reference actions, checks, scenario, patch, test output, report."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.formats.files import read_file
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.pages.prose import Prose
from evaldesk.pages.source import MAX_LINES, PatchLine, source_of, source_texts

pytestmark = of_tools("inspect", "tau")

SAMPLES = Path(__file__).parents[2] / "formats" / "exchange_samples"
PATCH = """diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -3,3 +3,3 @@ def add
 def add(a, b):
-    return a - b
+    return a + b
 # end
"""


def imported(pages: Any, name: str) -> str:
    path = SAMPLES / name
    taken = pages.desk.imports.take_in(read_file(path.read_bytes(), path.name), source=path.name, name=path.stem)
    return str(pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0").text)


def played(*calls: ToolCall, details: dict[str, Any] | None = None, **result: Any) -> TrialResult:
    events = tuple(Event("tool_call", call=call) for call in calls)
    scores = (Score("reward", value=0.0, passed=False, threshold=1.0, details=details or {}),)
    transcript = Transcript((TurnRecord("Book.", events),))
    return TrialResult(1, 0, 0, "finished", "failed", transcript=transcript, scores=scores, **result)


def test_reference_actions_stand_beside_the_calls_that_were_made() -> None:
    right, wrong, extra = ToolCall("book", {"n": 1}), ToolCall("pay", {"by": "cash"}), ToolCall("look", {})
    actions: list[Any] = [
        {"name": "pay", "arguments": {"by": "card"}},
        {"name": "book", "arguments": {"n": 1}},
        {"name": "cancel"},
    ]
    case = Case("trip", scenario={}, extra={"evaluation_criteria": {"actions": actions}})

    found = source_of(case, played(extra, right, wrong)).actions

    assert [(each.op, each.name, each.href) for each in found] == [
        ("~", "pay", "#turn-1-event-2"),
        ("=", "book", "#turn-1-event-1"),
        ("-", "cancel", ""),
    ]
    assert [(row.key, row.op) for row in found[0].args] == [("by", "~")]


def test_each_call_answers_one_reference_action_and_an_equal_one_goes_first() -> None:
    actions: list[Any] = [{"name": "book", "kwargs": {"n": n}} for n in (1, 2, 3)]

    found = source_of(Case("trip", extra={"actions": actions}), played(*(ToolCall("book", {"n": n}) for n in (2, 9))))

    assert [(each.op, each.href[-1:]) for each in found.actions] == [("~", "1"), ("=", "0"), ("-", "")]


def test_the_checks_of_a_reward_are_listed_with_what_held() -> None:
    details = {
        "db_check": {"db_match": False},
        "communicate_checks": [{"info": "42 dollars", "met": True}],
        "nl_assertions": [{"nl_assertion": "It is polite.", "met": False}, {"nl_assertion": "odd", "met": "yes"}, 3],
    }

    found = source_of(Case("trip"), played(details=details)).checks

    assert [(each.name, each.text, each.holds) for each in found] == [
        ("Database", "differs from that of the reference actions", False),
        ("Said", "42 dollars", True),
        ("Judged", "It is polite.", False),
        ("Judged", "odd", None),
    ]


def test_a_trial_of_tau2_shows_persona_plan_actions_and_database(pages: Any) -> None:
    page = imported(pages, "tau2-results.json")

    panel = page.split('id="source"')[1].split("</section>")[0]
    assert re.search(r"<summary>Persona</summary><p[^>]*>Brief</p>", panel)
    assert re.search(r"<summary>Plan</summary><p[^>]*>Domain: tables", panel)
    assert re.search(r"<summary>Stop reason</summary><p[^>]*>user stop</p>", panel)
    assert "as the reference actions leave it" in panel
    assert re.search(r"= made</span>\s*<a href=\"#turn-\d-event-\d+\"><code>book</code></a>", panel)


def test_a_trial_of_tau_bench_shows_its_actions_and_database(pages: Any) -> None:
    page = imported(pages, "tau-bench.json")

    assert "Reference actions" in page
    assert "as the reference actions leave it" in page


def test_a_sample_of_inspect_shows_what_its_scorer_read_and_said(pages: Any) -> None:
    page = imported(pages, "inspect.json")

    assert re.search(r"<summary>Answer that match read</summary><p[^>]*>4</p>", page)
    assert re.search(r"<summary>Explanation of match</summary><p[^>]*>compared</p>", page)
    assert source_of(Case("a", extra={"target": ["4", "four"]}), None).prose_texts == [("Target", Prose("4\nfour"))]


def test_a_long_explanation_of_a_scorer_is_markdown_and_a_plain_text_stands_as_it_is() -> None:
    score = Score(
        "match", 0.0, False, reason="**Wrong**: <script>x</script> " + "more " * 200, details={"answer": "4 < 5"}
    )
    trial = replace(played(), scores=(score,))

    (_, answer), (title, long) = source_of(Case("a"), trial).prose_texts

    assert (answer.text, answer.html) == ("4 < 5", "")
    assert title == "Explanation of match"
    assert "<strong>Wrong</strong>" in long.html
    assert "<script" not in long.html
    ((_, cut),) = source_of(Case("a", extra={"target": "*a* " * 50_000}), None).prose_texts
    assert len(cut.text) < 5_000
    assert "more characters" in cut.text


def test_a_patch_is_a_diff_with_its_line_numbers(pages: Any) -> None:
    runs = pages.desk.store.runs
    output = "1 failed\n=== 1 failed, 2 passed in 0.3s ==="
    test = {"git_patch": PATCH, "test_output": output, "report": {"resolved": False, "log": "a\nb"}}
    case = Case("fix", (Turn("Fix."),), extra={"instance": {"patch": PATCH.replace("a + b", "b + a"), "repo": "calc"}})
    run_id = runs.create(RunConfig(AgentRef("a", "a"), "s", n=1, criteria=(Criterion("reward", 1.0),)), [case])
    trial = played(details={"test_result": test})
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", trial.transcript, trial.scores)])
    address = f"/runs/{run_id}/cases/0/trials/0"

    page = pages.get(address).text

    assert page.count(' id="source-0" open><summary>Git patch: 1 line added, 1 removed</summary>') == 1
    assert '<div class="beside" data-side="patch">' in page
    assert "<p data-text>Git patch: 1 line added, 1 removed. Test output: 1 failed, 2 passed.</p>" in page
    assert '<tr data-op="f"><th scope="rowgroup" colspan="4">calc.py</th></tr>' in page
    assert ' id="source-1"><summary>Reference patch: 1 line added, 1 removed</summary>' in page
    assert '<tr data-op="-"><td>4</td><td></td><td>−</td><td>    return a <del>-</del> b</td></tr>' in page
    assert '<tr data-op="+"><td></td><td>4</td><td>+</td><td>    return a <ins>+</ins> b</td></tr>' in page
    assert "<tr><td>5</td><td>5</td><td></td><td># end</td></tr>" in page
    assert re.search(r"<summary>Test output: 1 failed, 2 passed</summary>\s*<pre[^>]*>1 failed\n===", page)
    assert re.search(r"<summary>Report</summary>.*<b>resolved</b> <samp>false</samp>", page, re.DOTALL)


def test_what_a_trial_without_a_first_difference_came_to_stands_on_top(pages: Any) -> None:
    passed, unscored = imported(pages, "tau-bench.json"), imported(pages, "otel.json")
    runs = pages.desk.store.runs
    criteria = (Criterion("reward", 1.0),)
    run_id = runs.create(RunConfig(AgentRef("a", "a"), "s", n=1, criteria=criteria), [Case("fix", (Turn("Fix."),))])
    trial = played(ToolCall("look", {}))
    scores = (Score("reward", value=0.0, passed=False, threshold=1.0, reason="Not <b>said</b>: 5." + "x" * 400),)
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", trial.transcript, scores)])

    failed = pages.get(f"/runs/{run_id}/cases/0/trials/0").text

    answers = [re.search(r'id="answer".*?<h2>(.*?)</h2><p[^>]*>(.*?)</p>', page) for page in (passed, unscored, failed)]
    assert [answer and answer[1] for answer in answers] == [
        "Passed",
        "No verdict: no metric decided this trial",
        "Failed: reward is 0.00 and must be at least 1.00",
    ]
    assert answers[0]
    assert re.fullmatch(r"(\d) of \1 reference actions? made\.", answers[0][2])
    assert answers[1]
    assert re.fullmatch(r"1 tool call in 2 turns\.", answers[1][2])
    assert answers[2]
    assert re.fullmatch(r"Not &lt;b&gt;said&lt;/b&gt;: 5\.x{281}… \(119 more characters\)", answers[2][2])


def test_a_patch_of_the_reference_is_never_shown_as_that_of_the_agent() -> None:
    case = Case("fix", extra={"instance": {"patch": PATCH, "test_patch": PATCH + "+more\n"}})

    found = source_of(case, played(details={"test_result": {"git_patch": ""}}))

    assert [text.title for text in found.texts] == ["Reference patch", "Reference test patch"]
    assert (found.patch, found.summary) == (None, "")


def test_a_long_patch_is_cut_and_opens_whole(pages: Any) -> None:
    long = PATCH + "+more\n" * (2 * MAX_LINES)
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("a", "a"), "s", n=1), [Case("fix", (Turn("Fix."),))])
    trial = played(details={"test_result": {"git_patch": long}})
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", trial.transcript, trial.scores)])
    address = f"/runs/{run_id}/cases/0/trials/0"

    page, whole = pages.get(address).text, pages.get(f"{address}/source/0").text

    assert page.count("<td>more</td>") < MAX_LINES
    assert f'<a href="{address}/source/0">Open the whole text</a>' in page
    assert whole.count("+more") == 2 * MAX_LINES
    assert f'href="{address}#source-0">Back to the trial' in whole
    assert pages.get(f"{address}/source/1").status_code == 404


@pytest.mark.parametrize(
    "text", ["", "--- a", "@@ -1 +1 @@\n+x", "diff --git \n@@ -x +y @@\n-", "diff --git a b\n\n\\ No newline"]
)
def test_a_text_that_is_nearly_a_patch_is_shown_all_the_same(text: str) -> None:
    case = Case("fix", extra={"instance": {"patch": text}})

    found = source_of(case, played(details={"test_result": {"patch": text}})).texts

    assert len(found) == len(source_texts(case, played(details={"test_result": {"patch": text}})))
    assert all(isinstance(line, PatchLine) for each in found for line in each.lines)


@pytest.mark.parametrize("odd", [None, 3, "text", [], {}, [3], {"actions": 3}, {"actions": [{"name": 3}, 4]}])
def test_what_a_source_says_may_be_anything(odd: Any) -> None:
    keys = ("db_check", "outputs", "r_actions", "nl_assertions", "test_result", "answer", "env_assertions")
    extra = dict.fromkeys(("actions", "evaluation_criteria", "user_scenario", "instance", "target"), odd)
    case = Case("odd", scenario={"persona": odd, "conversation_plan": odd}, extra=extra)

    source_of(case, played(details=dict.fromkeys(keys, odd)))


def test_a_trial_of_which_nothing_more_is_known_has_no_such_panel(pages: Any) -> None:
    assert 'id="source"' not in pages.get(f"{pages.finish()}/cases/1/trials/0").text
