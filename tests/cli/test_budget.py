"""`--budget` and `--allocate`: where trials go, what every writer says of them, and how a run is run again."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from evaldesk import evaluate
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.pages.runs.facts import run_fingerprint
from evaldesk.pages.runs.listing import run_line
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.web.forms.run import like_run, read_options

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

ANSWERS = {"one": "one", "flaky": "flaky", "three": "no", "four": "four"}
"""The first and the last case always pass, the second every other time, the third never."""


def sizes(place: CommandFolder, run_id: int) -> list[int]:
    with place.store() as store:
        return [len(strip) for strip in store.runs.strips(run_id)]


def test_a_budget_without_an_earlier_run_is_spread_evenly(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)

    place.eval(path, "--budget", "10", "--allocate", "uncertain", "--min-pass-rate", "0")

    assert sizes(place, 1) == [3, 3, 2, 2]
    info = place.run("run", "info", "1").output
    assert "10 trials for 4 cases, 2 to 3 each: spread evenly, since no earlier run of this agent, model" in info


def test_a_budget_goes_where_earlier_runs_were_uncertain(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)
    place.eval(path, "--n", "6", "--min-pass-rate", "0")

    place.eval(path, "--budget", "40", "--allocate", "uncertain", "--n", "2", "--min-pass-rate", "0")
    place.eval(path, "--budget", "40", "--allocate", "uncertain", "--n", "9", "--min-pass-rate", "0")

    found = sizes(place, 2)
    assert sum(found) == 40
    assert found[1] == max(found) >= 2 * max(found[0], found[2], found[3])
    assert min(found) >= 2
    assert min(sizes(place, 3)) == 9
    assert "more where the outcome was less certain in run 1." in place.run("run", "info", "2").output
    assert "in runs 2, 1." in place.run("run", "info", "3").output


def test_an_edited_case_and_another_model_are_not_known(place: CommandFolder) -> None:
    place.eval(place.evalset("set", ANSWERS), "--n", "9", "--min-pass-rate", "0")
    path = place.evalset("set", {**ANSWERS, "flaky": "flaky or not"})

    place.eval(path, "--budget", "40", "--allocate", "uncertain", "--min-pass-rate", "0")

    one, edited, *others = sizes(place, 2)
    assert edited > max(one, *others)
    assert max(one, *others) - min(one, *others) <= 1


def test_every_writer_shows_the_run_of_a_budget_alike(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)
    place.eval(path, "--n", "6", "--min-pass-rate", "0")
    gates = ["--min-pass-rate", "0.6", "--pass-at", "2=0.5"]

    result = place.eval(
        path, "--budget", "30", "--allocate", "uncertain", "--n", "2", *gates, "-o", "out.json", "-o", "out.csv",
        "--junit", "junit.xml", "--summary", "summary.md",
    )  # fmt: skip

    whole = json.loads((place.folder / "out.json").read_text())
    (run,) = whole["runs"]
    cases = run["cases"]
    rate = sum(case["pass_rate"] for case in cases) / 4
    with place.store() as store:
        summary, page, line = (
            store.runs.summary(2),
            read_run(store.runs, 2, RunQuery()),
            run_line(store.runs, store.runs.summary(2)),
        )
        value, stored = StoredRuns(store.runs).result(2), StoredRuns(store.runs)
        numbers, interval = stored.numbers(summary), stored.interval(summary)
    assert rate != pytest.approx(run["n_passed"] / run["n_scored"])
    assert [run["pass_rate"], summary.pass_rate, value.pass_rate, numbers.counts.rate] == pytest.approx([rate] * 4)
    assert list(run["interval"]) == [value.interval.low, value.interval.high]  # type: ignore[union-attr]
    assert value.interval == numbers.interval == interval
    assert (run["n_trials"], run["n"], run["n_least"], run["n_most"]) == (30, 2, summary.n_least, summary.n_most)
    assert sum(case["n_planned"] for case in cases) == 30
    assert run["options"]["budget"] == "30"
    assert run["allocated_from"] == [1]
    percent = f"{100 * rate:.0f} % in a case on average"
    assert percent in result.output
    assert percent in (place.folder / "summary.md").read_text()
    assert percent in place.run("run", "info", "2").output
    assert percent in page.answer
    assert page.reliability.bar is not None
    assert page.reliability.bar.rate == pytest.approx(rate)
    assert [len(row.cells[0].value.squares) for row in sorted(page.rows, key=lambda row: row.case_id)] == sizes(
        place, 2
    )
    assert line.shape == f"4 × {summary.n_least} to {summary.n_most}"
    assert len((place.folder / "out.csv").read_text().splitlines()) == 31
    listed = json.loads(place.run("run", "list", "--json").output)
    row = next(each for each in listed["items"] if each["id"] == 2)
    assert row["summary"]["pass_rate"] == pytest.approx(rate)
    suites = ET.parse(place.folder / "junit.xml").getroot()  # noqa: S314
    planned = [prop.get("value") for prop in suites.iter("property") if prop.get("name") == "n_planned"]
    assert not planned or sum(int(each or 0) for each in planned) == 30


def test_pass_at_k_is_over_as_many_trials_of_each_case(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)
    place.eval(path, "--n", "6", "--min-pass-rate", "0")
    place.eval(path, "--budget", "30", "--allocate", "uncertain", "--n", "2", "--min-pass-rate", "0", "-o", "out.json")

    (run,) = json.loads((place.folder / "out.json").read_text())["runs"]
    with place.store() as store:
        strips = store.runs.strips(2)
        page, value = read_run(store.runs, 2, RunQuery()), StoredRuns(store.runs).result(2)
    least, most = min(map(len, strips)), max(map(len, strips))
    firsts = [strip[:least] for strip in strips]
    assert list(run["pass_at_k"]) == [str(k) for k in range(1, most + 1)]
    assert {k for k, value in run["pass_at_k"].items() if value is None} == {str(k) for k in range(least + 1, most + 1)}
    assert run["pass_at_k"]["1"] == pytest.approx(sum(strip.count("p") / least for strip in firsts) / 4)
    assert run["pass_at_k"][str(least)] == pytest.approx(sum("p" in strip for strip in firsts) / 4)
    assert value.pass_at(least) == pytest.approx(run["pass_at_k"][str(least)])
    assert value.pass_at(least + 1) is None
    assert page.reliability.note == f"Over the first {least} trials of each case, so that all cases weigh the same."


def test_a_run_of_a_budget_is_run_again_resumed_retried_and_scored_again_with_the_same_trials(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("set", ANSWERS)
    monkeypatch.setenv("ECHO_RAISE", "four")
    place.eval(path, "--budget", "10", "--min-pass-rate", "0")
    monkeypatch.delenv("ECHO_RAISE")

    place.run("run", "retry", "1")
    place.run("run", "rescore", "1", "--config-file-path", place.folder / "test_config.json")

    assert sizes(place, 1) == sizes(place, 2) == [3, 3, 2, 2]
    with place.store() as store:
        first, again = store.runs.summary(1), store.runs.summary(2)
    assert (first.status, again.status, again.n_errored) == ("finished", "finished", 0)
    assert first.counts == again.counts
    options = read_options(like_run(first), first.config)
    assert (options.value("budget"), options.value("allocate"), options.value("n")) == ("10", "even", 1)
    place.eval(path, "--n", "3", "--min-pass-rate", "0")
    with place.store() as store:
        assert run_fingerprint(store.runs.summary(3).config) == run_fingerprint(first.config)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "3"], "budget = 3: 4 cases with 1 trial each need 4; say that or more"),
        (["--budget", "10", "--n", "5"], "budget = 10: 4 cases with 5 trials each need 20; say that or more"),
        (["--budget", "5000"], "budget = 5000: 4 cases with 1,000 trials each, the most, need 4000; say that or less"),
        (["--budget", "5usd"], "budget = 5usd: no earlier run of these cases tells its costs, so it is not known how"),
        (["--allocate", "uncertain"], "allocate = 'uncertain' spreads a budget, and there is none; say budget = 200"),
        (["--budget", "20", "--pass-hat", "3=0.5"], "--pass-hat 3 asks for 3 trials of each case; say --n 3 or more"),
    ],
)
def test_a_budget_that_cannot_be_spread_is_refused_before_the_start(
    place: CommandFolder, words: list[str], said: str
) -> None:
    result = place.eval(place.evalset("set", ANSWERS), *words)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


@pytest.mark.parametrize("text", ["0", "-3", "usd", "5eur", "1.5", "nan", "infusd", "0usd", "9" * 40, "5 usd usd", "٣"])
def test_a_text_that_is_no_budget_is_refused(place: CommandFolder, text: str) -> None:
    result = place.eval(place.evalset("set", ANSWERS), f"--budget={text}")

    assert result.exit_code == 2
    assert "a number of trials such as 200, 1 to 1e+06, or US dollars such as 5usd" in result.output


def test_a_budget_is_of_one_run(place: CommandFolder) -> None:
    first, second = place.evalset("first", ANSWERS), place.evalset("second", ANSWERS)

    result = place.eval(first, second, "--budget", "20")

    assert isinstance(result.exception, UsageError)
    assert "--budget 20 is of one run, and these are 2" in str(result.exception)


def test_a_check_says_how_a_budget_would_be_spread(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)

    result = place.eval(path, "--budget", "10", "--check")

    assert "4 cases x 2 to 3 = 10 trials" in result.output
    assert "10 trials for 4 cases, 2 to 3 each: spread evenly." in result.output


def test_a_budget_of_python_is_a_number_or_a_text(place: CommandFolder) -> None:
    path = place.evalset("set", ANSWERS)

    by_number = evaluate(place.agent, path, criteria={"response_match_score": 0.8}, budget=6)
    by_text = evaluate(place.agent, path, criteria={"response_match_score": 0.8}, budget="6")

    assert [case.n_planned for case in by_number] == [case.n_planned for case in by_text] == [2, 2, 1, 1]
    assert by_number.config.budget == by_text.config.budget == "6"
    assert "4 cases x 1 to 2" in repr(by_number)
    assert by_number.pass_rate == pytest.approx(sum(case.pass_rate or 0.0 for case in by_number) / 4)
