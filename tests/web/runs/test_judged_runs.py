"""Runs that are judged, and scored by functions: chosen in the form, told on the page of a trial."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaldesk.demo_model import judge
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import Usage

PANEL = "evaldesk.metrics.judges.panel.complete"
RUBRICS = "rubric_based_final_response_quality_v1"
FUNCTION = """
def greets(transcript, case, state):
    return 1.0
"""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    judges: list[str] = []

    async def complete(call: ModelCall) -> ModelReply:
        judges.append(call.model)
        text = "no verdict" if call.seed == 1 else judge.reply(call.messages, seed=call.seed, share=0.0)
        return ModelReply(text, (), Usage(call.model, tokens_in=5, tokens_out=2, cost=0.25))

    monkeypatch.setattr(PANEL, complete)
    return judges


def test_a_trial_shows_every_rubric_and_every_reply(open_runs: Callable[..., Any], scripted: list[str]) -> None:
    pages = open_runs(judges=("demo/judge", "demo/judge?mistakes=0.3"))
    address = pages.finish(
        metric=[RUBRICS],
        n="1",
        **{
            f"{RUBRICS}.threshold": "0.5",
            f"{RUBRICS}.rubrics": "greets: hello there\nIt sings <b>loudly</b>",
            f"{RUBRICS}.num_samples": "3",
            f"{RUBRICS}.judge_model": "demo/judge",
        },
    )

    page = pages.get(f"{address}/cases/0/trials/0").text

    assert "Judged by demo/judge: 3 replies, 1 could not be read" in page
    votes = r'<td data-label="votes">2 yes, 0 no</td>'
    assert re.search(rf"<code>greets</code> hello there</th><td>.*met.*</td>{votes}", page)
    assert "It sings &lt;b&gt;loudly&lt;/b&gt;" in page
    assert "the reply contains no JSON object" in page
    assert ">no verdict</pre>" in page
    assert "judges 21, $0.75" in page
    assert set(scripted) == {"demo/judge"}
    assert "rubrics [&#34;greets: hello there&#34;, " in pages.get(address).text


def test_a_judge_leads_to_the_prompt_that_it_was_sent_and_to_its_answer(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(judges=("demo/judge",))
    rubrics = {f"{RUBRICS}.threshold": "0.5", f"{RUBRICS}.rubrics": "It sings <b>loudly</b>"}
    address = pages.finish(metric=[RUBRICS], n="1", **rubrics, **{f"{RUBRICS}.num_samples": "1"})
    trial = f"{address}/cases/0/trials/0"

    href = f"{trial}/timeline?judge={RUBRICS}&amp;turn=1#span"
    assert f'<a href="{href}">See how they were asked</a>' in pages.get(trial).text
    line = pages.get(f"{trial}/timeline?judge={RUBRICS}&turn=1").text

    assert re.search(
        rf'href="\?span=judges\.\d+#span" aria-current="true"><span class="hidden">judge </span>{RUBRICS}', line
    )
    assert "You judge the work of an AI agent." in line
    assert "It sings &lt;b&gt;loudly&lt;/b&gt;" in line
    assert "rubrics" in line.partition("<h3>Answer</h3>")[2]
    raw = re.search(rf"{trial}/calls/\d+", line)
    assert raw
    assert "You judge the work" in pages.get(raw[0]).text


def test_a_judge_whose_prompts_were_not_kept_says_so(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(judges=("demo/judge",))
    address = pages.finish(metric=["safety_v1"], n="1", prompts="off", **{"safety_v1.threshold": "0.8"})

    line = pages.get(f"{address}/cases/0/trials/0/timeline?judge=safety_v1&turn=1")

    assert line.status_code == 200
    assert "The run kept no prompts" in line.text
    assert "You judge the work" not in line.text


def test_the_first_allowed_judge_judges_unless_another_is_chosen(
    open_runs: Callable[..., Any], scripted: list[str]
) -> None:
    pages = open_runs(judges=("demo/judge",))

    pages.finish(metric=["safety_v1"], n="1", **{"safety_v1.threshold": "0.8"})

    assert set(scripted) == {"demo/judge"}


@pytest.mark.parametrize("model", ["openai/gpt@http://evil.invalid", "os:system", "openai/big"])
def test_a_judge_that_nobody_allowed_is_refused(open_runs: Callable[..., Any], scripted: list[str], model: str) -> None:
    pages = open_runs(judges=("demo/judge",))

    answer = pages.post("/runs", **pages.form(metric=["safety_v1"], **{"safety_v1.judge_model": model}))

    assert answer.status_code == 422
    assert "is not among the allowed judges: demo/judge" in answer.text
    assert scripted == []


@pytest.mark.parametrize(
    "options",
    ['{"judge_model_options": {"base_url": "http://evil.invalid"}}', '{"function": "os:system"}'],
)
def test_other_options_reach_neither_an_address_nor_an_import(
    open_runs: Callable[..., Any], scripted: list[str], options: str
) -> None:
    pages = open_runs(judges=("demo/judge",))

    answer = pages.post("/runs", **pages.form(metric=["safety_v1"], **{"safety_v1.other": options}))

    assert answer.status_code == 422
    assert scripted == []


def test_a_function_of_the_settings_scores_a_run(open_runs: Callable[..., Any], tmp_path: Path) -> None:
    pages = open_runs(functions={"greets": "greeting_of_test_run:greets"})
    (tmp_path / "agents" / "greeting_of_test_run.py").write_text(FUNCTION)

    address = pages.finish(metric=["greets"], n="1", **{"greets.threshold": "1"})

    page = pages.get(f"{address}/cases/0/trials/0").text
    assert "<b>greets:</b> greeting_of_test_run:greets gave 1." in page
    assert "greets" in pages.get("/runs/new?list=1").text
    run = pages.get(address).text
    assert "greets is at least 1.00 (function greeting_of_test_run:greets)" in run
    assert str(tmp_path) not in run
