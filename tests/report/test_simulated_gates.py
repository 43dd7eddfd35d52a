"""The table of docs/ci.md is what the simulation gave, and names what its figures assume."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from evaldesk.statistics.history.days import FEWEST_RUNS


def script(name: str) -> ModuleType:
    """A script of bench/, which is beside the tests and not installed."""
    spec = spec_from_file_location(f"bench.{name}", Path(__file__).parents[2] / "bench" / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulation = script("simulate_gates")


def rows_of_page() -> dict[tuple[str, str], list[str]]:
    """The figures of each rule, by its options and the trials of a case before."""
    shown = re.search(f"(?s){simulation.FIRST}(.*?){simulation.LAST}", simulation.PAGE.read_text("utf-8"))
    assert shown
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in shown[1].splitlines() if "`" in line]
    return {(options, before): cells for options, before, *cells in rows}


def test_the_page_has_a_row_for_each_rule_and_a_figure_for_each_mixture() -> None:
    found = rows_of_page()

    assert list(found) == [(rule.options, rule.before) for rule in simulation.RULES]
    assert {len(cells) for cells in found.values()} == {len(simulation.MIXTURES) + 4}


@pytest.mark.parametrize("rule", simulation.PROMISED, ids=lambda rule: f"{rule.options}, {rule.before}")
def test_the_recommended_gate_reaches_what_the_page_promises(rule: simulation.Rule) -> None:  # type: ignore[name-defined]
    """At most 5 % and three standard errors over all mixtures, and over days where they are known; 80 % power."""
    cells = rows_of_page()[rule.options, rule.before]
    n = len(simulation.MIXTURES)
    false_alarms, days, *power = (float(cell.split()[0]) for cell in (max(cells[:n], key=percent), *cells[n : n + 3]))
    error = 3 * standard_error(rule.n_builds)

    assert false_alarms <= 5 + error
    assert days <= 5 + error or rule.n_runs < FEWEST_RUNS
    assert min(power) >= 80
    assert float(cells[-1]) <= 20


def percent(cell: str) -> float:
    return float(cell.split(maxsplit=1)[0])


def test_the_workflow_of_the_page_asks_for_the_recommended_gate() -> None:
    page = simulation.PAGE.read_text("utf-8")
    (line,) = re.findall(r"- run: (evaldesk eval .*--baseline .*)", page)
    asked = " ".join(re.findall(r"--(?:n|max-regressions|regression-rule|confirm|min-[a-z-]+|pass-[a-z]+) \S+", line))

    assert asked == simulation.RECOMMENDED


def test_the_page_says_how_many_builds_its_figures_are_of() -> None:
    page = " ".join(simulation.PAGE.read_text("utf-8").split())

    assert (
        f"{simulation.N_BUILDS} builds were simulated for each cell, so a share of 5 % has a standard error of "
        f"{standard_error(simulation.N_BUILDS):.1f} points; {simulation.N_AFTER_RUNS} where six runs stand before, so "
        f"that it is {standard_error(simulation.N_AFTER_RUNS):.1f}."
    ) in page


def standard_error(n_builds: int) -> float:
    """That of a share of 5 %, in points."""
    return 100 * float((0.05 * 0.95 / n_builds) ** 0.5)


@pytest.mark.parametrize("rule", simulation.RULES, ids=lambda rule: rule.options)
def test_a_rule_fails_a_broken_agent_and_no_perfect_one(rule: simulation.Rule) -> None:  # type: ignore[name-defined]
    random = np.random.default_rng(3)
    perfect, broken = np.ones(20), np.zeros(20)

    assert not rule.build(random, simulation.history_of(random, perfect, rule), perfect).fails
    assert rule.build(random, simulation.history_of(random, perfect, rule), broken).fails
