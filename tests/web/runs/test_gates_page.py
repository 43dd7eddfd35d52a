"""The page of gates: each gate over the last runs, and what to know of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.desk.runs_by_hand import ended, subject

from evaldesk.desk.runs.plan import RunOptions
from evaldesk.model import Gates, RunStatus, TrialSpec, Verdict
from evaldesk.model.forecast import Range
from evaldesk.pages.gates import GateRow, read_gate_flips, read_gates
from evaldesk.store.runs.run_store import imported_agent


def played(
    pages: Any, letters: str, gates: Gates, *, version: str = "v1", status: RunStatus = "finished", **changes: Any
) -> int:
    """A stored run of as many cases as letters, with one trial each."""
    verdicts: dict[str, Verdict] = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}
    plan = pages.desk.runs.plan_for(subject(len(letters)), RunOptions(gates=gates))
    config = replace(plan.config, agent_version=version, **changes)
    store = pages.desk.runs.run_store
    run_id: int = store.create(config, plan.cases)
    specs = [TrialSpec(run_id, index, 0, case, config.agent) for index, case in enumerate(plan.cases)]
    store.record([ended(spec, verdicts[each]) for spec, each in zip(specs, letters, strict=True) if each != "."])
    store.set_status(run_id, status)
    return run_id


def rows(pages: Any, show: str = "") -> list[GateRow]:
    return list(read_gates(pages.desk.runs.run_store, show).rows)


def test_a_gate_that_answers_differently_for_the_same_agent_comes_first(pages: Any) -> None:
    gates = Gates(min_pass_rate=0.5)
    first, second = played(pages, "pp", gates), played(pages, "ff", gates)
    other = played(pages, "pf", gates, version="v2")
    for _ in range(5):
        played(pages, "pp", Gates(min_pass_rate=0.1))

    found = rows(pages)

    assert [(row.options, row.flag) for row in found] == [
        ("--n 1 --min-pass-rate 0.5", "flips"),
        ("--n 1 --min-pass-rate 0.1", "never-failed"),
    ]
    assert [(answer.run_id, answer.state) for answer in found[0].answers] == [
        (first, "held"),
        (second, "failed"),
        (other, "held"),
    ]
    (flip,) = found[0].flips
    assert [answer.run_id for answer in flip.answers] == [second, first]
    assert [row.flag for row in rows(pages, "never-failed")] == ["never-failed"]
    assert len(rows(pages, "nonsense")) == 2


def test_another_agent_version_or_baseline_is_no_flip(pages: Any) -> None:
    gates = Gates(min_pass_rate=0.5)
    played(pages, "pp", gates, version="v1")
    played(pages, "ff", gates, version="v2")

    assert [row.flag for row in rows(pages)] == ["below-bar"]


@pytest.mark.parametrize(
    ("letters", "flag", "before"),
    [("ff", "below-bar", "below-bar"), ("pp", "never-failed", ""), ("uu", "never-held", "")],
)
def test_never_is_said_from_five_answers_on(pages: Any, letters: str, flag: str, before: str) -> None:
    for n in range(1, 6):
        played(pages, letters, Gates(min_pass_rate=0.5, max_unscored_rate=1.0))
        (row,) = [row for row in rows(pages) if "min-pass-rate" in row.options]
        assert row.flag == (flag if n == 5 else before)
        assert row.has_never_held == (letters == "ff")


def test_a_gate_on_a_level_that_the_agent_does_not_reach_is_right_to_fail(pages: Any) -> None:
    for _ in range(3):
        played(pages, "p" * 7 + "fff", Gates(min_pass_rate=0.9))

    text = " ".join(html.unescape(re.sub("<[^>]+>", " ", pages.get("/gates").text)).split())

    assert "1 of 1 gate needs attention" in text
    assert "The agent is below the bar. It never held. 3 of 10 cases fail every time" in text
    assert "every time. Fix them, or accept them as known failures." in text
    assert text.count("this agent is below the bar") == 0, "the standing is named before the note"
    assert "Often fails" not in text
    assert "Better gates" not in text


def test_a_gate_on_change_that_often_fails_for_nothing_needs_a_look(pages: Any) -> None:
    run_id = played(pages, "pppppfff", Gates())
    for letters in ("pfppffpp", "fppfppfp", "ppfpfpfp", "fpfppfpp", "pfpfpppf"):
        played(pages, letters, Gates())
    for letters in ("ppfpppff", "fpppfpfp"):
        played(pages, letters, Gates(max_regressions=0, baseline=f"run {run_id}"))

    (row,) = [each for each in rows(pages) if "max-regressions" in each.options]

    assert row.flag == "often-fails"
    assert row.measured_rate.startswith("Measured: of 8 unchanged runs against each other, ")
    assert "% of pairs failed" in row.measured_rate
    text = " ".join(html.unescape(re.sub("<[^>]+>", " ", pages.get("/gates").text)).split())
    assert "Often fails although nothing changed." in text
    assert row.measured_rate in text


@pytest.mark.parametrize(
    ("share", "ends"),
    [
        (Range(0.5, 0.0, 1.0), ("5.0 30.0", "55.0 30.0", "30.0 5.0")),
        (Range(0.0, 0.0, 0.0), ("5.0 30.0", "5.0 28.4", "5.0 30.0")),
        (Range(1.0, 1.0, 1.0), ("55.0 28.4", "55.0 30.0", "55.0 30.0")),
    ],
    ids=["unknown", "never", "always"],
)
def test_the_dial_has_the_range_and_the_mean_and_never_an_empty_range(
    pages: Any, share: Range, ends: tuple[str, str, str]
) -> None:
    played(pages, "pppf", Gates(min_pass_rate=0.5))
    (row,) = rows(pages)
    assert row.figures

    dial = replace(row.figures, forecast=replace(row.figures.forecast, false_alarm=share)).dial

    start, end, mean = ends
    assert dial.band == f"M{start}A25 25 0 0 1 {end}"
    assert dial.needle == f"M30 30L{mean}"
    assert pages.get("/gates").text.count('class="dial"') == 1


def test_the_newest_answers_are_drawn_and_those_of_the_same_agent_joined(pages: Any) -> None:
    gates = Gates(min_pass_rate=0.5)
    run_ids = [played(pages, "ff" if at in (1, 22) else "pp", gates) for at in range(24)]

    (row,) = rows(pages)

    assert [answer.run_id for answer in row.newest] == run_ids[4:]
    assert row.joins == ((17, 18), (18, 19))
    assert (row.counts["held"], row.counts["failed"]) == (22, 2)
    assert pages.get("/gates").text.count('class="square"') == 20


def test_a_flip_is_news_where_somebody_asked_for_the_gate_and_a_new_run_is_in_it(pages: Any) -> None:
    gates, store = Gates(min_pass_rate=0.4), pages.desk.runs.run_store
    first = [played(pages, letters, gates) for letters in ("ppp", "fff")]
    other = [played(pages, letters, Gates()) for letters in ("ppp", "ppf")]

    assert [row.options for row in read_gate_flips(store, first)] == ["--n 1 --min-pass-rate 0.4"]
    assert [row.options for row in read_gate_flips(store, first[:1])] == ["--n 1 --min-pass-rate 0.4"]
    assert read_gate_flips(store, other) == []
    assert read_gate_flips(store, [10_000]) == []


def test_a_gate_by_which_no_run_was_judged_has_no_row(pages: Any) -> None:
    played(pages, "pf", Gates(), agent=imported_agent("elsewhere"))

    assert rows(pages) == []


def test_a_re_score_is_no_further_answer(pages: Any) -> None:
    first = played(pages, "pp", Gates(min_pass_rate=0.5))
    played(pages, "ff", Gates(min_pass_rate=0.5), source_run_id=first)

    page = read_gates(pages.desk.runs.run_store)

    assert page.n_runs == 1
    assert [[answer.run_id for answer in row.answers] for row in page.rows] == [[first]]


def test_errors_are_counted_apart_and_stopped_runs_not_at_all(pages: Any) -> None:
    gates = Gates(min_pass_rate=0.5)
    for _ in range(6):
        played(pages, "pe", gates)
    played(pages, "pp", gates)
    played(pages, "p.", gates, status="stopped")
    (row,) = rows(pages)

    assert row.counts == {"errored": 6, "held": 1}
    assert row.flag == ""


def test_each_gate_of_a_run_has_a_row_with_what_changes_its_answer(pages: Any) -> None:
    gates = Gates(
        min_pass_rate=0.5,
        pass_at=((1, 0.25),),
        min_scored=1,
        max_cost=2.0,
        max_error_rate=0.5,
        undecided="neutral",
    )
    played(pages, "pe", gates)
    played(pages, "pp", Gates())

    assert sorted(row.options for row in rows(pages)) == [
        "--n 1 (every trial must pass)",
        "--n 1 --max-cost 2",
        "--n 1 --max-error-rate 0.5",
        "--n 1 --min-pass-rate 0.5 --undecided neutral",
        "--n 1 --min-scored 1",
        "--n 1 --pass-at 1=0.25 --undecided neutral",
    ]


@pytest.mark.parametrize(
    "gates",
    [Gates(max_error_rate=1.0), Gates(max_unscored_rate=0.5), Gates(min_scored=1), Gates(max_cost=2.0)],
    ids=str,
)
def test_a_gate_without_a_known_chance_has_not_that_of_another_gate(pages: Any, gates: Gates) -> None:
    played(pages, "pppf", gates)

    found = {row.options: row.figures for row in rows(pages)}

    found.pop("--n 1 (every trial must pass)", None)
    assert list(found.values()) == [None]


def test_the_page_says_what_to_know(pages: Any) -> None:
    gates = Gates(min_pass_rate=0.9)
    runs = [played(pages, letters, gates) for letters in ("pppppppppp", "ppppppppff", *["pppppppppf"] * 3)]
    text = pages.get("/gates").text
    shown = " ".join(html.unescape(re.sub("<[^>]+>", " ", text)).split())

    assert "1 of 1 gate needs attention" in shown
    assert re.search(
        r"The agent is at the bar\. (It never held\. )?Its level is 0\.\d\d–[01]\.\d\d: this gate will flip, and fails "
        r"about \d+ % of builds \((under )?\d+–\d+ %\)",
        shown,
    )
    assert "--n 1 --min-pass-rate 0.9" in shown
    assert re.search(r"An agent that is 15 points worse passes in (under )?\d+ % of builds", shown)
    for run_id in runs:
        assert f'href="/runs/{run_id}"' in text
    assert 'href="/gates"' in pages.get("/runs").text


@pytest.mark.parametrize(
    ("letters", "gates"),
    [("p" * 6, Gates()), ("p" * 6, Gates(min_pass_rate=0.9)), ("pppppf", Gates(min_pass_rate=0.8))],
    ids=["all pass, each must", "all pass", "some fail"],
)
def test_few_trials_do_not_place_an_agent_at_the_bar(pages: Any, letters: str, gates: Gates) -> None:
    played(pages, letters, gates)

    (row,) = rows(pages)

    assert row.figures is not None
    assert (row.flag, row.figures.forecast.standing, row.figures.forecast.false_alarm) == ("", "not known yet", None)
    assert re.search(
        r"\d of 6 passed so far: this gate fails .*\d % of unchanged builds\. About \d+ trials", row.figures.alarm
    )


def test_without_a_run_the_page_says_what_a_gate_is(pages: Any) -> None:
    assert "No answers yet" in pages.get("/gates").text


def test_the_forecast_is_of_all_runs_of_the_newest_agent(pages: Any) -> None:
    gates = Gates(min_pass_rate=1.0)
    played(pages, "ff", gates, version="v1")
    for letters in ("pf", "pp"):
        played(pages, letters, gates, version="v2")
    (row,) = rows(pages)

    assert row.figures
    assert (row.figures.forecast.basis.n_passed, row.figures.forecast.basis.n_scored) == (3, 4)


def test_a_gate_that_misses_worse_agents_says_what_to_do(pages: Any) -> None:
    for _ in range(2):
        played(pages, "p" * 18 + "ff", Gates(min_pass_rate=0.5))

    (row,) = read_gates(pages.desk.runs.run_store).rows

    assert row.flag == ""
    assert row.figures is not None
    assert row.figures.is_blind
    assert row.advice == "It misses many agents that are worse: play more trials, or take a better gate."
    assert row.advice in pages.get("/gates").text


def test_a_gate_that_is_too_close_to_tell_never_cries_wolf(pages: Any) -> None:
    for letters in ("ppppppppff", "pppppppppf", "ppppppppff", "pppppppppf"):
        played(pages, letters, Gates(min_pass_rate=0.9, undecided="neutral"))

    (row,) = read_gates(pages.desk.runs.run_store).rows

    assert row.figures is not None
    assert not row.figures.is_frequent
    assert row.figures.is_vague
    page = pages.get("/gates").text
    assert row.flag == "below-bar"  # two of ten cases fail every time or nearly so
    assert "It is too close to tell in" in row.advice
    assert "Nothing to do" not in page


def test_a_gate_with_a_likely_stop_has_the_chances_of_such_a_run(pages: Any) -> None:
    played(pages, "pppppppppf", Gates(min_pass_rate=0.5, stop_when_decided="likely"))
    played(pages, "pppppppppf", Gates(min_pass_rate=0.5, min_case_pass_rate=0.1, stop_when_decided="likely"))

    found = {row.options: row.figures for row in read_gates(pages.desk.runs.run_store).rows}

    alone = found["--n 1 --min-pass-rate 0.5 --stop-when-decided likely"]
    assert alone
    assert any("It stops after about" in note for note in alone.notes)
    assert "--n 1 --min-pass-rate 0.5" in found
