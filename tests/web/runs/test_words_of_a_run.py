"""What is said of a run in words: the same on its page and in the shell, and with doubt that suits who watches."""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import threading
from typing import Any

import pytest
from tests.options_of_a_run import config_with, run_of

from evaldesk.cli.runs.show import info
from evaldesk.desk.runs.gates import conclusion as gates
from evaldesk.model import AgentRef, Container, Gates, RunConfig
from evaldesk.model.conclusion import WITHOUT
from evaldesk.pages.runs.facts import played_in
from evaldesk.pages.runs.page import progress
from evaldesk.statistics.intervals import rate_interval
from evaldesk.wording.words import GATE_TITLES, passed_sentence


def test_the_command_line_and_the_page_say_the_same(pages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = pages.finish(n="3")
    summary = pages.desk.store.runs.summary(int(run[6:]))
    interval = rate_interval(pages.desk.store.runs.outcome_counts(summary.id))
    sentence = passed_sentence(summary.counts, interval)

    info.main([str(summary.id), "--workspace", str(pages.desk.settings.workspace)], standalone_mode=False)

    assert sentence in capsys.readouterr().out
    text = html.unescape(re.sub(r"<[^>]+>", "", pages.get(run).text))
    assert sentence in re.sub(r"\s+", " ", text)


def test_a_run_that_is_watched_has_doubt_that_stays_valid(open_runs: Any) -> None:
    gate = threading.Event()
    gate.set()
    pages = open_runs(gate=gate)
    earlier = pages.finish(n="1")
    gate.clear()
    run = pages.start(n="1")
    store, run_id = pages.desk.store, int(run[6:])
    played = [store.runs.trial(int(earlier[6:]), case_index, 0) for case_index in (0, 1)]
    store.runs.record([dataclasses.replace(each, run_id=run_id) for each in played])

    text = pages.get(run).text

    assert f"Reference: pass rate of run {earlier[6:]}." in text
    assert "Too close to 50 % to stop; 95 % CI" in text
    gate.set()


def test_the_page_the_list_and_home_show_the_conclusion(pages: Any) -> None:
    run = pages.finish(n="1")

    shown = [html.unescape(re.sub(r"<[^>]+>", "", pages.get(address).text)) for address in (run, "/runs", "/")]

    page, runs, home = (re.sub(r"\s+", " ", text) for text in shown)
    # No outcome of the errored trial could save the run, so it is not left open.
    assert "Failed. Every trial must pass: 1 of 4 trials passed (1 errored, 1 unscored)." in page
    assert "1 of 4 trials errored (25 %), more than the tolerated 0." in page
    for listed in (runs, home):
        # The badge says the word, once.
        assert "failed every trial must pass: 1 of 4 trials passed (1 errored, 1 unscored)" in listed


def test_a_run_whose_errors_alone_leave_it_open_is_undecided(pages: Any) -> None:
    run = pages.finish(n="1", cases="selected", case=["greets", "breaks"])

    shown = [html.unescape(re.sub(r"<[^>]+>", "", pages.get(address).text)) for address in (run, "/runs", "/")]

    page, *lists = (re.sub(r"\s+", " ", text) for text in shown)
    assert "Undecided. 1 of 2 trials errored (50 %), more than the tolerated 0." in page
    for listed in lists:
        assert "undecided 1 of 2 trials errored" in listed


def test_no_page_names_a_gate_by_an_option_of_the_command_line(pages: Any) -> None:
    run = pages.finish()

    for address in ("/", "/runs", run, "/agents"):
        text = pages.get(address).text
        assert "--m" not in text.partition("<main")[2], address
    assert "every trial must pass: 2 of 8 trials passed (2 errored, 2 unscored)" in pages.get("/runs").text
    assert "2 of 8 trials errored (25 %)" in pages.get(run).text


def test_the_agents_page_says_how_many_of_its_last_trials_errored(pages: Any) -> None:
    assert "<dt>Errored</dt>" not in pages.get("/agents").text

    pages.finish()
    pages.finish()

    assert "<dt>Errored</dt><dd>4 of the last 16 trials</dd>" in pages.get("/agents").text


def test_home_says_how_many_of_the_last_trials_of_an_agent_errored(pages: Any) -> None:
    assert "of the last" not in pages.get("/").text

    pages.finish()
    pages.finish()

    assert "errored 4 of the last 16 trials" in pages.get("/").text


def test_no_more_than_the_last_200_trials_of_an_agent_are_counted(pages: Any) -> None:
    pages.finish(n="60")
    pages.finish(n="1")

    assert "of the last 200 trials" in pages.get("/agents").text
    assert "of the last 200 trials" in pages.get("/").text


def test_the_noise_has_its_advice_first_and_the_reason_folded_up(pages: Any) -> None:
    text = pages.get(f"{pages.finish()}/spread").text

    said = re.search(r"<p>(\d+ % between trials .*?)</p>\s*<details class=\"disclosure\"><summary>Why", text)
    assert "Noise:" not in text
    assert said or "without a flip" in text


def test_every_gate_has_words_for_the_pages() -> None:
    text = inspect.getsource(gates)

    assert {*re.findall(r'"(--[a-z-]+)"', text), WITHOUT} == {*GATE_TITLES}


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        (AgentRef("a", "m:a"), {}, "this machine, in processes that trials share"),
        (AgentRef("a", "m:a"), {"isolation": "process"}, "this machine, in processes, one for each trial"),
        (AgentRef("a", "http://127.0.0.1:1/x", kind="http"), {}, "the server at http://127.0.0.1:1/x"),
        (AgentRef("a", "node a.js", kind="command"), {}, "a process of the command for each trial, on this machine"),
        (AgentRef("a", "a.json", kind="replay"), {}, ""),
        (AgentRef("a", "m:a"), {"source_run_id": 1}, ""),
        (
            AgentRef("a", "m:a", container=Container("shop:7")),
            {"isolation": "container"},
            "a container of shop:7: no network, 1 CPU, 2,048 MiB, 512 processes, one for each trial",
        ),
    ],
)
def test_a_run_says_where_its_trials_were_played(agent: AgentRef, changes: dict[str, Any], words: str) -> None:
    assert played_in(RunConfig(agent, "set", evalset_version="v", **changes)) == words


@pytest.mark.parametrize(
    ("options", "asked", "cost", "said"),
    [
        ({"budget": "5usd"}, Gates(), 1.2, "$3.80 of the budget of $5 left."),
        ({"budget": "5usd"}, Gates(max_cost=2.0), 1.2, "$0.80 of the limit of $2 left."),
        ({}, Gates(max_cost=2.0), 2.5, "$0 of the limit of $2 left."),
        ({"budget": "200"}, Gates(), 1.2, ""),
        ({}, Gates(), 1.2, ""),
    ],
)
def test_a_run_under_way_says_how_much_money_is_left(
    options: dict[str, Any], asked: Gates, cost: float, said: str
) -> None:
    run = dataclasses.replace(
        run_of(dataclasses.replace(config_with(**options), gates=asked)), status="running", cost=cost
    )

    rest = progress(run, 1).detail

    assert rest.endswith(said)
    assert ("left." in rest) == bool(said)


def test_a_cost_that_is_not_known_leaves_no_number() -> None:
    run = dataclasses.replace(run_of(config_with(budget="5usd")), status="running", n_unpriced=1)

    assert "it is not known how much of the budget of $5 is left" in progress(run, 1).detail
