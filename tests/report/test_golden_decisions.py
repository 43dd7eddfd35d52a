"""Every known value about gates is that of our code; the other tests of a list are named beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.desk.runs.deciding import Decider
from evaldesk.desk.runs.gates.conclusion import Spent
from evaldesk.model import AgentRef, Gates, RunConfig
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.history.draws import Draws, assumed_rates
from evaldesk.statistics.history.gates import case_fails, needed_passes, rate_fails

RATES = {
    "20 cases at .9, n=1, bar .9": [(0.9, 20)],
    "20 at .95, n=5, bar .9": [(0.95, 20)],
    "49 at .99, one at 0, n=10, bar .9": [(0.99, 49), (0.0, 1)],
    "20 cases p=.9, n=5, threshold .8": [(0.9, 20)],
    "20 cases p=.95, n=10, threshold .8": [(0.95, 20)],
    "49 at .99 and one at 0; n=10, threshold .8": [(0.99, 49), (0.0, 1)],
}


DECISIONS = golden("decisions")


def drawn(row: Any) -> Draws:
    return assumed_rates([p for p, n_cases in RATES[row["name"]] for _ in range(n_cases)])


def pooled(rows: Any) -> None:
    for row in rows:
        assert needed_passes(row["of"], row["bar"]) == row["need"]
        draws = drawn(row)
        found = 1 - rate_fails(draws, [row["n"]] * draws.n_cases, row["bar"])[0]
        # More than 400 trials are computed by the normal.
        assert found == pytest.approx(row["holds"], abs=1e-9 if row["n"] * draws.n_cases <= 400 else 0.0014)


def every_case(rows: Any) -> None:
    for row in rows:
        n, threshold = (float(text.rpartition("=")[2].rpartition(" ")[2]) for text in row["name"].split(", ")[-2:])
        if ";" in row["name"]:
            n = 10
        draws = drawn(row)
        found = 1 - case_fails(draws, [int(n)] * draws.n_cases, threshold)[0]
        assert found == pytest.approx(row["holds"], rel=1e-9, abs=1e-12)


def curtailed(rows: Any) -> None:
    """A case that is played until its rule is decided, one trial after the other."""
    for row in rows:
        n, needed, p = row["n"], row["m"], row["p"]
        going = {0: 1.0}
        n_trials = passes = 0.0
        for played in range(1, n + 1):
            n_trials += sum(going.values())
            then: dict[int, float] = {}
            for passed, chance in going.items():
                for more, share in ((1, p), (0, 1 - p)):
                    then[passed + more] = then.get(passed + more, 0.0) + chance * share
            ended = {passed for passed in then if answer(passed, played - passed, n, needed)}
            passes += sum(then[passed] for passed in ended if answer(passed, played - passed, n, needed) == "held")
            going = {passed: chance for passed, chance in then.items() if passed not in ended}
        assert n_trials == pytest.approx(row["expected_trials"], rel=1e-9)
        assert passes == pytest.approx(row["passes"], rel=1e-9)


@cache
def answer(passed: int, failed: int, n: int, needed: int) -> str:
    """The answer that stops a case with so many passed and failed trials; empty while it goes on."""
    if passed + failed == n:
        return "held" if passed >= needed else "failed"
    gates = Gates(min_case_pass_rate=needed / n)
    decider = Decider(RunConfig(AgentRef("a", "a"), "s", n=n, gates=gates), [n], "exact", names=lambda: ["c"])
    letters = "p" * passed + "f" * failed + "." * (n - passed - failed)
    stop = decider.look(lambda _: [letters], Spent())
    return stop.answers[0].answer if stop else ""


def anytime(rows: Any) -> None:
    for row in rows:
        found = anytime_interval(row["c"], row["n"])
        assert [found.low, found.high] == pytest.approx([row["low"], row["high"]], abs=1e-9)


CHECKED: dict[str, Callable[[Any], None] | str] = {
    "case_rule": "test_gate_chances.py",
    "pooled_gate": pooled,
    "every_case": every_case,
    "no_change_baseline": "test_gate_chances.py",
    "curtailed": curtailed,
    "anytime": anytime,
    "anytime_first_stop": "test_anytime.py",
    "sign_evalue": "test_anytime.py",
    "betting_difference": "test_anytime.py",
}
REPLACED = {"aa_case", "aa_suite", "aa_suite_majority"}
"""Rates of one run taken for the truth: those of forecasts.json stand in their place."""
"""How the values of each list are checked, or the file whose tests do it."""


@pytest.mark.parametrize("name", [name for name, check in CHECKED.items() if not isinstance(check, str)])
def test_known_values_are_ours(name: str) -> None:
    check = CHECKED[name]

    assert DECISIONS[name]
    assert not isinstance(check, str)
    check(DECISIONS[name])


def test_no_list_of_known_values_is_left_unused() -> None:
    assert DECISIONS.keys() == CHECKED.keys() | REPLACED
    for name, file in CHECKED.items():
        if isinstance(file, str):
            assert f'DECISIONS["{name}"]' in (Path(__file__).parent / file).read_text("utf-8"), name
