"""The page of one trial: expected beside actual, and where its links and keys lead."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from evaldesk.llm.faults import INJECTED
from evaldesk.model import (
    Case,
    ErrorRecord,
    Event,
    Expected,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.run import Place
from evaldesk.model.trial_turns import turns_in_memory
from evaldesk.pages.conversation import TurnPart
from evaldesk.pages.trial_turns import MAX_TEXT, TurnPanel, drawn_turns, turn_pieces


def test_a_failed_trial_names_the_first_divergence_with_a_link(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/1/trials/0").text

    assert "First divergence: turn 1, call 1" in page
    assert "roll_die was expected and not called" in page
    assert 'href="#turn-1">Go to turn 1' in page
    assert '<span class="small muted">scripted user' in page


def test_a_trial_says_how_the_calls_of_its_agent_became_known(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/1/trials/0").text

    words = "Tool calls, results and state seen; inner calls and tokens seen in part"
    assert f'<p class="small">Recorded as the agent reported it. {words}' in page


def test_calls_arguments_and_words_stand_beside_each_other(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/1/trials/0").text

    assert '<tr data-op="-">' in page
    assert re.search(r"<dt>sides</dt><dd>20</dd>.*missing.*not called", page, re.DOTALL)
    assert "<del>nothing of the kind</del>" in page
    assert "<ins>greet</ins>" in page


def test_each_metric_speaks_on_the_turn_it_judged_and_on_no_other(pages: Any) -> None:
    judged, open_turn = (pages.get(f"/runs/1/cases/{index}/trials/0").text for index in _cases(pages, 1, 3))

    assert 'aria-label="Verdicts on turn 1"' in judged
    assert 'aria-label="Verdicts on turn 1"' not in open_turn
    assert "<b>Tool trajectory:</b> No turn of this case says which tools should be called." in open_turn


def test_a_turn_that_expects_nothing_is_a_conversation(pages: Any) -> None:
    expecting, open_turn = (pages.get(f"/runs/1/cases/{index}/trials/0").text for index in _cases(pages, 1, 3))

    assert '<th scope="col">Expected</th>' in expecting
    assert "Expected" not in open_turn
    assert re.search(
        r'<article class="message" id="turn-1-event-\d">\s*<header><b>\w+</b><span></span><a [^>]*>#</a></header>\s*'
        r"<p>anything</p>",
        open_turn,
    )
    assert '<table class="diff">' not in open_turn


def test_the_expected_column_is_there_for_each_turn_that_asserts_something() -> None:
    call = ToolCall("roll_die", {"sides": 6}, "1")
    expectations = {
        "nothing": Expected(),
        "no tool": Expected(tool_calls=()),
        "a call": Expected(tool_calls=(call,)),
        "a message": Expected(intermediate=(("dice", "I roll"),)),
        "an answer": Expected(reference=""),
    }
    case = Case("one", turns=tuple(Turn(words, expected) for words, expected in expectations.items()))
    played = TurnRecord("roll", (Event("tool_call", call=call), Event("tool_result", call=call, result=4)))
    result = TrialResult(1, 0, 0, "finished", "passed", transcript=Transcript((played,) * len(expectations)))

    panels = _panels(case, result)

    shown = {panel.query.text: panel.parts for panel in panels}
    assert {words for words, parts in shown.items() if parts is None} == expectations.keys() - {"nothing"}
    assert shown["nothing"] == (TurnPart("call", call=call, result="4"),)


def test_a_turn_beyond_the_case_is_a_conversation_cut_where_events_are() -> None:
    call = ToolCall("read_file", {"path": "log.txt"}, "1")
    result = Event("tool_result", call=call, result="x" * (MAX_TEXT + 7))
    error = Event("error", error=ErrorRecord("timeout", "too slow"))
    played = TurnRecord("read", (Event("log", text="a system prompt"), Event("tool_call", call=call), result, error))

    trial = TrialResult(1, 0, 0, "errored", "errored", transcript=Transcript((played,)))

    (panel,) = _panels(Case("none"), trial)

    assert panel.parts is not None
    (part,) = panel.parts
    assert part.result == "x" * MAX_TEXT + "… (7 more characters)"


def test_a_turn_tells_which_faults_were_injected_and_output_tells_none() -> None:
    text = f"{INJECTED}1 of this turn, to <b>m</b>: HTTP 429"
    events = (Event("log", author="evaldesk", text=text), Event("log", author="output", text=f"{INJECTED}2"))
    result = TrialResult(1, 0, 0, "finished", "passed", transcript=Transcript((TurnRecord("q", events),)))

    (panel,) = _panels(Case("c", (Turn("q"),)), result)

    assert panel.faults == [text]


def test_a_turn_that_expects_nothing_and_was_not_played_says_so(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(gate=threading.Event())
    address = pages.start()

    page = pages.get(f"{address}/cases/3/trials/0").text

    assert "Expected" not in page
    assert '<p class="small muted">Not yet</p>' in page


def test_an_errored_trial_shows_its_trace_as_text(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/2/trials/0").text

    assert "ValueError: no such thing as &lt;b&gt;this&lt;/b&gt;" in page
    assert "Traceback" in page
    assert "Not scored: the trial did not finish." in page


def test_adks_own_verdict_is_named_where_it_differs(pages: Any) -> None:
    metrics = ["response_match_score", "final_state_match"]
    address = pages.finish(metric=metrics, strict="1", **{"final_state_match.threshold": "1"})

    page = pages.get(f"{address}/cases/0/trials/0").text

    assert "Unscored here, passed by adk eval: it does not decide by final_state_match." in page


def test_what_adk_reads_into_a_case_that_asserts_nothing_is_said(pages: Any) -> None:
    addresses = [pages.finish(metric=[metric]) for metric in ("response_match_score", "tool_trajectory_avg_score")]

    answer, calls = (pages.get(f"{address}/cases/3/trials/0").text for address in addresses)

    assert "Unscored here, failed by adk eval: response_match_score is 0 there, where a turn" in answer
    assert "Unscored here, passed by adk eval: tool_trajectory_avg_score is 1 there, where a turn" in calls


def test_every_event_is_there_with_its_time(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/0/trials/0").text

    assert re.search(r"<td data-num data-fit>\d+</td><td data-fit>agent message</td><td[^>]*>.*hello there</td>", page)


def test_keys_lead_to_the_trials_beside_it_and_to_the_next_mismatch(pages: Any) -> None:
    address = pages.finish()
    page = pages.get(f"{address}/cases/1/trials/1").text

    by_key = {key: href for href, key in re.findall(r'href="([^"]+)" data-key="([^"])"', page)}
    assert by_key["h"] == f"{address}/cases/1/trials/0"
    assert "l" not in by_key
    assert by_key["p"] == f"{address}/cases/1/trials/0"
    assert by_key["n"] == f"{address}/cases/2/trials/0"
    assert by_key["e"].startswith(f"/evalsets/{pages.evalset}/cases/")
    assert "case=misses" in by_key["r"]


def test_the_strip_marks_where_one_is(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/0/trials/1").text

    verdicts = re.findall(
        r'<a class="square" data-status="(\w+)" href="[^"]*/trials/(\d)"( aria-current="page")?>', page
    )
    assert verdicts == [("passed", "0", ""), ("passed", "1", ' aria-current="page"')]


def test_a_trial_that_is_not_played_yet_shows_what_is_expected(open_runs: Callable[..., Any]) -> None:
    pages = open_runs(gate=threading.Event())
    address = pages.start(concurrency="1")
    pages.until(address, "1 running")

    running, queued = (pages.get(f"{address}/cases/{index}/trials/0").text for index in (0, 1))

    assert "This trial is running" in running
    assert "This trial has not run yet" in queued
    assert "roll_die" in queued
    assert ">not yet</td>" in queued
    assert "never played" not in queued
    assert 'data-op="' not in queued, "what is not played yet is no deviation"


def test_a_trial_that_is_waited_for_is_loaded_anew_once_it_is_over(open_runs: Callable[..., Any]) -> None:
    gate = threading.Event()
    pages = open_runs(gate=gate)
    address = pages.start(n="1")
    trial = f"{address}/cases/0/trials/0"

    before, text = pages.get(trial, **{"HX-Target": "div#waiting"}), pages.get(trial).text
    gate.set()
    pages.get(f"{address}/events")
    after = pages.get(trial, **{"HX-Target": "div#waiting"})

    assert (before.status_code, before.headers.get("hx-refresh")) == (204, None)
    assert f'hx-get="{trial}" hx-target="#waiting" hx-swap="none" hx-trigger="every 2s"' in text
    assert (after.status_code, after.headers.get("hx-refresh")) == (204, "true")
    assert 'id="waiting"' not in pages.get(trial).text


@pytest.mark.parametrize("place", ["9/cases/0/trials/0", "1/cases/9/trials/0", "1/cases/0/trials/9"])
def test_a_trial_that_was_never_planned_is_a_404(pages: Any, place: str) -> None:
    pages.finish(n="1")

    assert pages.get(f"/runs/{place}").status_code == 404


def test_a_trial_page_takes_no_post(pages: Any) -> None:
    assert pages.post(f"{pages.finish(n='1')}/cases/0/trials/0").status_code == 405


def _cases(pages: Any, *indexes: int) -> tuple[int, ...]:
    pages.finish()
    return indexes


def test_a_trial_that_was_lost_before_says_where_and_why(pages: Any) -> None:
    address = pages.finish()
    run_id = int(address.rpartition("/")[2])
    runs = pages.desk.store.runs
    config = runs.summary(run_id).config
    again = runs.create(config, runs.cases(run_id))
    lost = TrialResult(
        again, 0, 0, "finished", "passed", attempt=3, place="gpu-02", losses=("its host gpu-07 was lost", "<b>")
    )
    runs.record([lost])

    page = pages.get(f"/runs/{again}/cases/0/trials/0").text

    assert ", attempt 3, on gpu-02</p>" in page
    assert "Attempt 1 was lost: its host gpu-07 was lost. Attempt 2 was lost: &lt;b&gt;. Its model calls" in page


def test_a_trial_that_changed_its_process_says_what(pages: Any) -> None:
    run_id = int(pages.finish().rpartition("/")[2])
    runs = pages.desk.store.runs
    again = runs.create(runs.summary(run_id).config, runs.cases(run_id))
    runs.record([TrialResult(again, 0, 0, "finished", "passed", logs="hello\n", changes="the umask to <b>")])

    page = pages.get(f"/runs/{again}/cases/0/trials/0").text

    assert 'id="changes">This trial changed the umask to &lt;b&gt;. Its process was ended after it.</p>' in page


def _panels(case: Case, result: TrialResult) -> tuple[TurnPanel, ...]:
    turns = turns_in_memory(case, result)
    return drawn_turns(turn_pieces(turns, [range(turns.n_turns)]))


def test_the_page_of_a_run_names_the_hosts_that_play_it(pages: Any) -> None:
    runs = pages.desk.store.runs
    config = runs.summary(int(pages.finish().rpartition("/")[2])).config
    run_id = runs.create(config, [Case("a", (Turn("hi"),))], "17 far-away 5@0badcafe")
    places = (Place("<i>gpu</i>", "host", 4, 7), Place("gpu-02", "host", state="lost", note="its node is gone"))
    runs.set_status(run_id, "running")
    assert runs.renew(run_id, 1, places)

    page = pages.get(f"/runs/{run_id}").text

    assert "<p>1 host, 4 workers</p>" in page
    assert "2 running" in page  # there are two trials to do, however many the host says
    assert "&lt;i&gt;gpu&lt;/i&gt;</span></th>" in page
    assert "<td>4 workers, 7 trials under way</td>" in page
    assert "<td>its node is gone</td>" in page
