"""The report of a run: one file that says what the page of the run says, and needs nothing else."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, cast

import pytest

from evaldesk.model import AgentRef, Case, Event, RunConfig, Score, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.model.conclusion import Verdict
from evaldesk.web.report import MAX_TRIALS_BYTES, comparison_report, run_report

HOSTILE = '</script></style><script>alert(1)</script><img src=x onerror=alert(1)><use href="/static/icons.svg#mark"/>'
KEY = "sk-a&b<c>d-0123456789abcdef"


def stored(pages: Any, answers: list[str], verdicts: Sequence[str] = ()) -> int:
    """A finished run of one case for each answer; they failed unless said otherwise."""
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=1)
    run_id: int = pages.desk.store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(len(answers))])
    results = []
    for at, (answer, verdict) in enumerate(zip(answers, verdicts or ["failed"] * len(answers), strict=True)):
        record = TurnRecord("hi", (Event("agent_message", text=answer),))
        result = TrialResult(run_id, at, 0, "finished", cast("Verdict", verdict), transcript=Transcript((record,)))
        results.append(result)
    pages.desk.store.runs.record(results)
    pages.desk.store.runs.set_status(run_id, "finished")
    return run_id


def text_of(pages: Any, run_id: int, **environment: str) -> str:
    return run_report(pages.desk.stored_runs, run_id, environment).data.decode()


def test_the_report_says_what_the_page_says(pages: Any) -> None:
    address = pages.finish()

    answer = pages.get(f"{address}/report")

    page = pages.get(address).text
    assert answer.headers["content-disposition"] == 'attachment; filename="run_1_dice_set.html"'
    for said in ("2 of 4 passed", "Errors do not count as failures. With them: 2 of 6.", "Response match"):
        assert said in page
        assert said in answer.text
    assert answer.text.count('class="square"') == page.count('class="square"') == 8
    assert answer.text.count('<details class="disclosure" id="run-1-case-') == 8
    assert "8 of 8 recorded trials with their transcripts" in answer.text
    linked = set(re.findall(r'class="square" data-status="[a-z]+" href="#([^"]+)"', answer.text))
    assert linked == set(re.findall(r'<details class="disclosure" id="([^"]+)"', answer.text))
    assert len(re.findall(r'\bid="', answer.text)) == len(set(re.findall(r'\bid="([^"]+)"', answer.text)))
    assert f'href="/runs/{address.rpartition("/")[2]}/report"' in pages.get(f"{address}/exports").text


def test_nothing_is_loaded_and_only_our_styles_and_script_are_let_in(pages: Any) -> None:
    text = text_of(pages, stored(pages, [HOSTILE]))

    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[0].replace("&#39;", "'")
    for kind, tag in (("style", "style"), ("script", "script")):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(inside) == 1
        assert f"{kind}-src 'sha256-{b64encode(sha256(inside[0].encode()).digest()).decode()}';" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    rest = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    assert {*re.findall(r'(?:src|href)="(.)', rest)} == {"#"}
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_secrets_are_masked_and_listed_with_their_cases(pages: Any) -> None:
    run_id = stored(pages, ["nothing", f"the key is {KEY}"])

    found = run_report(pages.desk.stored_runs, run_id, {"SERVICE_API_KEY": KEY})

    text = found.data.decode()
    assert found.masked.endswith("SERVICE_API_KEY in case c1.")
    assert found.masked in text
    assert "[SERVICE_API_KEY]" in text
    assert KEY not in text
    assert KEY.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") not in text
    assert "No secret was found in this report." in text_of(pages, run_id)


def test_a_trial_has_the_data_of_its_source_under_addresses_of_its_own(pages: Any) -> None:
    patch = f"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-a = '{KEY}'\n+a = '{HOSTILE}'\n"
    tests: dict[str, Any] = {"tests_status": {"FAIL_TO_PASS": {"failure": ["a.py::test_a"], "success": []}}}
    scores = (Score("resolved", 0.0, details={"test_result": {"git_patch": patch, "report": tests}}),)
    runs, record = pages.desk.store.runs, TurnRecord("hi", (Event("agent_message", text="done"),))
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "calc", n=2), [Case("c", (Turn("hi"),))])
    whole = Transcript((record,))
    trials = [TrialResult(run_id, 0, at, "finished", "failed", "answered", whole, scores) for at in (0, 1)]
    runs.record(trials)
    runs.set_status(run_id, "finished")

    text = text_of(pages, run_id, SERVICE_API_KEY=KEY)

    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert f'id="run-{run_id}-case-1-trial-2-source-0"' in text
    assert text.count('<th scope="row">Must turn green</th>') == 2
    assert "[SERVICE_API_KEY]" in text
    assert KEY not in text
    assert HOSTILE not in text
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_what_did_not_pass_has_room_first_and_the_rest_is_counted(pages: Any) -> None:
    large = "word " * (MAX_TRIALS_BYTES // 16)
    run_id = stored(pages, [large] * 8, ["passed"] * 7 + ["failed"])

    text = text_of(pages, run_id)

    inside = re.findall(r'<details class="disclosure" id="run-1-case-(\d+)-trial', text)
    n_left = 8 - len(inside)
    assert 0 < len(inside) < 8
    assert inside[0] == "8"
    assert f"{len(inside)} of 8 recorded trials with their transcripts; the other {n_left} are in the counts" in text
    assert len(text) < MAX_TRIALS_BYTES + 300_000
    assert text.count('<i class="square"') == n_left


def test_a_run_under_way_is_reported_as_such(pages: Any) -> None:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=2)
    run_id = pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))])

    assert "The run was not over" in text_of(pages, run_id)
    assert pages.get("/runs/99/report").status_code == 404


def test_a_comparison_is_reported_with_the_trials_of_changed_cases_first(pages: Any) -> None:
    before = stored(pages, ["same", "was right"], ["failed", "passed"])
    after = stored(pages, [f"same {KEY}", HOSTILE], ["failed", "failed"])

    answer = pages.get(f"/table/report?runs={before},{after}")

    page = pages.get(f"/table?runs={before},{after}")
    assert f'href="/table/report?runs={before}%2C{after}' in page.text
    assert answer.headers["content-disposition"] == f'attachment; filename="run_{after}_against_{before}.html"'
    for said in ("1 of 2 cases broke", "Same in both", "broken"):
        assert (said in page.text) == (said in answer.text)
    inside = re.findall(r'<details class="disclosure" id="([^"]+)"', answer.text)
    assert inside[:2] == [f"run-{after}-case-2-trial-1", f"run-{before}-case-2-trial-1"]
    assert len(inside) == 4
    assert {*re.findall(r'href="#(run-[^"]+)"', answer.text)} == {*inside}
    body = re.sub(r"<(style|script)>.*?</\1>", "", answer.text, flags=re.DOTALL)
    assert {*re.findall(r'(?:src|href)="(.)', body)} == {"#"}
    masked = comparison_report(pages.desk.stored_runs, before, after, {"SERVICE_API_KEY": KEY})
    assert masked.masked.endswith("SERVICE_API_KEY in case c0.")
    assert KEY not in masked.data.decode()
    assert pages.get("/compare/report?a=1").headers["location"] == "/compare"
    assert pages.get("/table/report?runs=1,1").status_code == 422


@pytest.mark.long
def test_a_comparison_of_a_thousand_cases_stays_below_2_mb(pages: Any) -> None:
    text = "a sentence of an answer. " * 100
    verdicts = ["passed", "failed"] * 500
    before, after = stored(pages, [text] * 1000, verdicts), stored(pages, [text] * 1000, verdicts[::-1])

    data = comparison_report(pages.desk.stored_runs, before, after, {}).data

    assert len(re.findall(r'<th scope="row"><a[^>]*>c\d+</a></th>', data.decode())) == 1000
    assert len(data) < 2_000_000
