"""The list of runs, the page of one, and what is done to it, over HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from evaldesk import paths
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.model.stored import RunSummary
from evaldesk.pages.runs import matrix
from evaldesk.pages.runs.view import BADGES, OUTCOME_BADGES
from evaldesk.settings import DatabaseUrl
from evaldesk.wording.words import FEW_TRIALS


def summary_of(pages: Any, address: str) -> RunSummary:
    summary: RunSummary = pages.desk.store.runs.summary(int(address.rpartition("/")[2]))
    return summary


def test_a_finished_run_shows_its_answer_its_matrix_and_no_connection(pages: Any) -> None:
    page = pages.get(pages.finish())

    assert page.status_code == 200
    assert "2 of 4 passed" in page.text
    assert page.text.count('class="square"') == 8
    assert 'data-status="errored"' in page.text
    assert "hx-sse:connect" not in page.text
    assert "no such thing as &lt;b&gt;this&lt;/b&gt;" in page.text


def test_the_trials_that_were_not_played_are_counted_as_in_the_sentences(pages: Any) -> None:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=1_234)
    run_id = pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))])

    text = pages.get(f"/runs/{run_id}").text

    assert re.search(r"1,234 (?:queued|not played)</", text)
    assert "1234 " not in text


def test_the_icon_of_the_tab_has_a_colour_for_every_end_of_a_run() -> None:
    script = paths.shipped("static").joinpath("app.js").read_text("utf-8")
    coloured = set(re.findall(r"(\w+): \"#", script.partition("const STATES = {")[2].partition("}")[0]))

    assert {*OUTCOME_BADGES.values(), BADGES["stopped"][0], BADGES["failed"][0], "running"} == coloured


def test_the_list_is_filtered_and_searched_by_model(pages: Any) -> None:
    for model in ("openai/small", "openai/large"):
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", model=model)
        pages.desk.store.runs.create(config, [Case("a", (Turn("hi"),))])

    chosen = pages.get("/runs?model=openai%2Fsmall").text
    found = pages.get("/runs?q=LARGE").text

    assert '<option value="openai/small" selected>' in chosen
    assert ('href="/runs/1"' in chosen, 'href="/runs/2"' in chosen) == (True, False)
    assert ('href="/runs/1"' in found, 'href="/runs/2"' in found) == (False, True)
    assert 'href="/runs?model=openai%2Fsmall&amp;status=pending"' in chosen


def test_errors_and_unscored_trials_stay_out_of_the_rate(pages: Any) -> None:
    address = pages.finish()

    summary = summary_of(pages, address)

    assert (summary.n_passed, summary.n_failed, summary.n_errored, summary.n_unscored) == (2, 2, 2, 2)
    assert "Errors do not count as failures. With them: 2 of 6." in pages.get(address).text


def test_a_run_that_counts_errors_says_so(pages: Any) -> None:
    page = pages.get(pages.finish(errors_are_failures="1")).text

    assert "2 of 6 passed" in page
    assert "Errors count as failures." in page


def test_pass_at_k_is_drawn_and_stands_in_a_table_with_its_reason(pages: Any) -> None:
    page = pages.get(pages.finish())

    figure = re.search(
        r"<script type=\"application/json\"[^>]*data-figure=\"passk-plot\"[^>]*>(.*?)</script>", page.text
    )
    assert figure is not None
    assert json.loads(figure[1])["data"][0]["y"] == [0.5, 0.5]
    assert "style-src 'self' 'unsafe-inline'" in page.headers["content-security-policy"]
    assert "2 of 4 cases have 2 scored trials" in page.text


def test_a_run_of_single_trials_has_no_chart_and_a_strict_policy(pages: Any) -> None:
    page = pages.get(pages.finish(n="1"))

    assert "plotly" not in page.text
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert "One trial per case" in page.text


@pytest.mark.parametrize(("only", "case_id"), [("failed", "misses"), ("errored", "breaks"), ("unscored", "open")])
def test_counts_filter_the_cases(pages: Any, only: str, case_id: str) -> None:
    page = pages.get(f"{pages.finish()}?only={only}").text

    rows = re.findall(r'<th scope="row"><a href="[^"]*">(\w+)</a></th>', page)
    assert rows == [case_id]


def test_more_cases_come_as_rows_alone(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.web.routes.runs.PAGE_SIZE", 3)
    page = pages.get(pages.finish()).text
    more = re.search(r'<tr id="more">.*?hx-get="([^"]+)"', page)
    assert more is not None

    rows = pages.get(more[1].replace("&amp;", "&"), **{"HX-Target": "tr#more", "HX-Request": "true"})

    assert rows.text.lstrip().startswith('<tr id="case-3">')
    assert rows.text.count("<tr") == 1
    assert "<html" not in rows.text


def test_the_frozen_configuration_is_there_as_json(pages: Any) -> None:
    config = pages.get(f"{pages.finish(n='3')}/configuration")

    assert config.headers["content-type"] == "application/json"
    assert config.json()["n"] == 3
    assert config.json()["evalset_version"]


def test_a_live_run_streams_its_blocks_without_htmx_attributes_and_then_done(
    open_runs: Callable[..., Any],
) -> None:
    pages = open_runs()
    address = pages.start(n="3")

    stream = pages.get(f"{address}/events")

    messages = stream.text.split("\n\n")
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["content-encoding"] == "gzip"
    assert 'id="head"' in messages[0]
    wrappers = (
        r'<hx-partial hx-target="#[a-z0-9-]+" hx-swap="outerMorph">|</hx-partial>|<div hx-swap-oob="outerHTML:#broke">'
    )
    assert "hx-" not in re.sub(wrappers, "", stream.text)
    assert "<!--" not in stream.text
    assert messages[-2] == "event: done\ndata: done"
    assert any("All 12 trials done." in message for message in messages[-4:-2])  # the last may be what broke first


def test_a_live_run_connects_to_its_stream_with_the_nonce_of_the_page(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(gate=threading.Event())
    page = pages.until(pages.start(), 'data-status="running"')

    nonce = re.search(r"nonce-([\w-]+)", page.headers["content-security-policy"])
    assert nonce is not None
    assert re.search(rf'hx-nonce="{nonce[1]}" hx-sse:connect="/runs/1/events"', page.text)
    assert re.search(r"Mean over cases, after 0 of \d+ trials; brought up to date when the run ends", page.text)


def test_a_run_is_cancelled_and_resumed(open_runs: Callable[..., Any]) -> None:
    gate = threading.Event()
    pages = open_runs(gate=gate)
    address = pages.start()
    pages.until(address, "2 running")

    stopped = pages.post(f"{address}/cancellation", how="now")
    pages.get(f"{address}/events")
    page = pages.get(address).text
    before = summary_of(pages, address)
    resumed = pages.post(f"{address}/resumption")
    again = pages.get(address).text
    gate.set()
    pages.get(f"{address}/events")
    after = summary_of(pages, address)

    assert (stopped.status_code, resumed.status_code) == (303, 303)
    assert before.status == "stopped"
    assert "Resume 8 trials" in page
    assert "brought up to date" not in page
    assert "hx-sse:connect" in again
    assert (after.status, after.n_done) == ("finished", 8)


def test_a_run_is_told_to_end_once_it_is_decided_and_plays_the_rest_when_asked(open_runs: Callable[..., Any]) -> None:
    gate = threading.Event()
    pages = open_runs(gate=gate)
    address = pages.start(n="5", min_pass_rate="0.9", max_error_rate="1", max_unscored_rate="1", concurrency="2")
    live = pages.until(address, "2 running").text

    assert pages.post(f"{address}/cancellation", how="decided").status_code == 303
    told = pages.get(address).text
    pages.post(f"{address}/cancellation", how="whole")
    untold = pages.get(address).text
    pages.post(f"{address}/cancellation", how="decided")
    gate.set()
    pages.get(f"{address}/events")
    run, page, listed = summary_of(pages, address), pages.get(address).text, pages.get("/runs").text

    assert "Stop once it is decided" in live
    assert "ends by itself once its gates are decided" in told
    assert "ends by itself" not in untold
    assert run.stop is not None
    assert (run.status, run.stop.rule, run.stop.n_blocks) == ("finished", "exact", 2)
    assert 8 <= run.n_done < 20
    assert "after 8 of 20 trials. The trials that are left could not" in page
    assert page.count("ass rate cannot reach 0.9 any more") == 1
    assert "holds although the run stopped when it was decided" in page
    assert ("gate at 90 %" in page) == (run.counts.scored >= FEW_TRIALS)
    assert f"Play the {run.n_todo} trials left" in page
    assert "<b>Failed.</b>" in page
    assert "Failed" in listed or "failed" in listed

    pages.post(f"{address}/resumption")
    pages.get(f"{address}/events")
    whole = summary_of(pages, address)

    assert (whole.status, whole.n_done, whole.stop) == ("finished", 20, None)


def test_errored_trials_are_retried(pages: Any) -> None:
    address = pages.finish()

    answer = pages.post(f"{address}/retries")
    pages.get(f"{address}/events")

    assert answer.headers["location"] == address
    assert pages.desk.store.runs.trial(1, 2, 0).attempt == 2


def test_a_note_is_kept_and_one_that_is_too_long_comes_back(pages: Any) -> None:
    address = pages.finish()

    kept = pages.post(address, note=" after the fix\r\nof Tuesday ")
    refused = pages.post(address, note="x" * 2001)

    assert kept.status_code == 303
    assert pages.desk.store.runs.summary(1).note == "after the fix\nof Tuesday"
    assert refused.status_code == 422
    assert "x" * 2001 in refused.text
    assert "2,000 fit" in refused.text


def test_a_note_that_somebody_changed_meanwhile_comes_back_as_it_was_typed(pages: Any) -> None:
    address = pages.finish()
    pages.post(address, note="theirs <b>", seen="")

    refused = pages.post(address, note="mine <i>", seen="")

    assert refused.status_code == 409
    assert "mine &lt;i&gt;</textarea>" in refused.text
    assert "Stored now:</span> theirs &lt;b&gt;" in refused.text
    assert 'name="seen" value="theirs &lt;b&gt;"' in refused.text
    assert pages.post(address, note="mine <i>", seen="theirs <b>").status_code == 303


def test_a_deleted_run_is_gone(pages: Any) -> None:
    address = pages.finish()

    answer = pages.post(f"{address}/deletion")

    assert answer.headers["location"] == "/runs?deleted=1"
    assert pages.get(address).status_code == 404
    assert pages.get(f"{address}/events").status_code == 404


def test_the_list_says_what_to_do_when_it_is_empty(pages: Any) -> None:
    page = pages.get("/runs")

    assert "No runs yet" in page.text
    assert 'href="/runs/new"' in page.text


def test_the_list_filters_and_counts(pages: Any) -> None:
    pages.finish(note="before")
    pages.finish(note="after", n="1")

    everything, one, none = pages.get("/runs"), pages.get("/runs?q=before"), pages.get("/runs?status=stopped")

    assert [line.split(",")[0] for line in re.findall(r">(Run \d+, \w+)<", everything.text)] == ["Run 2", "Run 1"]
    assert re.findall(r">(Run \d+), dice_set<", one.text) == ["Run 1"]
    assert "No matching runs" in none.text
    assert "finished <b>2</b>" in everything.text


def test_the_list_goes_on_by_key(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.pages.runs.listing.PAGE_SIZE", 1)
    pages.finish(n="1")
    pages.finish(n="1")

    older = re.search(r'href="(/runs\?before=\d+)"', pages.get("/runs").text)

    assert older is not None
    assert re.findall(r">(Run \d+), dice_set<", pages.get(older[1]).text) == ["Run 1"]


@pytest.mark.parametrize(
    "address", ["/runs/9", "/runs/9/events", "/runs/9/configuration", "/runs/99999999999999999999"]
)
def test_a_run_that_is_not_there_is_a_404(pages: Any, address: str) -> None:
    answer = pages.get(address)

    assert answer.status_code == 404
    assert "Nothing is at this address" in answer.text
    assert answer.headers["HX-Reswap"] == "none"


@pytest.mark.parametrize("action", ["cancellation", "resumption", "retries", "deletion", "restoration"])
def test_what_changes_a_run_takes_no_get_and_needs_a_run(pages: Any, action: str) -> None:
    assert pages.get(f"/runs/1/{action}").status_code == 405
    assert pages.post(f"/runs/1/{action}").status_code == 404


@pytest.mark.parametrize("after", ["nonsense", "WzEsMl0", "%00"])
def test_a_strange_cursor_is_refused_in_words(pages: Any, after: str) -> None:
    assert pages.get(f"{pages.finish(n='1')}?after={after}").status_code == 422


def test_another_site_cannot_start_stop_or_watch_a_run(pages: Any) -> None:
    address = pages.finish(n="1")
    foreign = {"Sec-Fetch-Site": "cross-site", "Origin": "https://elsewhere.example"}

    answers = [
        pages.client.post("/runs", data=pages.form(), headers=foreign),
        pages.client.post(f"{address}/deletion", headers=foreign),
        pages.client.get(f"{address}/events", headers=foreign),
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert pages.get(address).status_code == 200


def test_a_lost_live_view_is_told_above_what_it_showed(open_runs: Any) -> None:
    pages = open_runs(gate=threading.Event())

    page = pages.get(pages.start()).text

    assert page.index("data-when-lost hidden") < page.index('id="live"')


def test_a_list_in_a_shared_database_is_asked_for_again_and_not_while_runs_are_ticked(pages: Any) -> None:
    own = pages.client.get("/runs?agent=dice").text
    pages.desk.settings = replace(pages.desk.settings, store=DatabaseUrl("db.example", "evals"))
    empty = pages.client.get("/runs?agent=dice&deleted=7").text
    pages.finish(n="1")
    shown = pages.client.get("/runs?agent=dice&q=a+b").text
    ticked = pages.client.get("/runs?agent=dice&run=1", headers={"HX-Request": "true"})

    assert "every 5s" not in own
    assert 'hx-get="/runs?agent=dice" hx-target="#main"' in empty
    assert 'id="listing" hx-nonce' in shown
    assert 'hx-get="/runs?agent=dice&amp;q=a+b" hx-target="#listing"' in shown
    assert 'hx-include="#listing [name=run]:checked"' in shown
    assert (ticked.status_code, ticked.text) == (204, "")
    assert pages.client.get("/runs?agent=dice&run=1").status_code == 200


def test_a_column_of_the_cases_is_one_entry_of_one_list(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    columns_of = matrix.columns_of

    def with_tokens(summary: RunSummary, *more: Any) -> list[matrix.Column]:
        tokens = matrix.Column("Tokens", "text", lambda row: f"{row.tokens} tokens", "7 tokens in all", label="tokens")
        return [*columns_of(summary, *more), tokens]

    for name in ("page", "table"):
        monkeypatch.setattr(f"evaldesk.pages.runs.{name}.columns_of", with_tokens)
    run = pages.finish()
    page, report = (pages.get(address).text for address in (run, f"{run}/report"))

    for text, n_last_lines in ((page, 1), (report, 0)):
        assert text.count(">Tokens</th>") == 1
        assert text.count('<td data-num data-label="tokens">0 tokens</td>') == 4
        assert text.count('<td data-num data-label="tokens">7 tokens in all</td>') == n_last_lines
