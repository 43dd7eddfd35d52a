"""Simulated builds agree with the exact chances, and the table of docs/ci.md with both."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evaldesk.desk.runs.gates.answers import assumed_subject
from evaldesk.desk.runs.gates.chances import DROPS, FOUND, SOUGHT, TOLERATED, gate_chances

pytestmark = pytest.mark.long


def script(name: str) -> ModuleType:
    """A script of bench/, which is beside the tests and not installed."""
    spec = spec_from_file_location(f"bench.{name}", Path(__file__).parents[2] / "bench" / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulation = script("simulate_gates")
RULES = simulation.RULES
GOOD = [rule for rule in RULES if "--confirm" in rule.options or "--n 2 --min-pass-rate" in rule.options]
RECOMMENDED = [rule for rule in GOOD if "confirm 7/10" not in rule.options]
"""The cheapest of those that rarely fail by chance and find a worse agent: `gate explain` proposes them."""
STOPPED = [rule for rule in RULES if rule.gates.stop_when_decided]
LIKELY = [rule for rule in STOPPED if rule.gates.stop_when_decided == "likely"]


def exact(rule: Any) -> tuple[float, float]:
    """The chance of a false alarm, and that of finding the worse agent."""
    (gate,) = gate_chances(rule.gates, assumed_subject(simulation.RATE, [rule.n] * simulation.N_CASES, 1.0))
    assert gate.false_alarm is not None
    return gate.false_alarm, dict(gate.worse)[simulation.DROP].fails


def is_near(found: float, chance: float, n_builds: int) -> bool:
    """Whether a share of builds is within four standard errors and the rounding of the table."""
    return abs(found - chance) <= 4 * sqrt(chance * (1 - chance) / n_builds) + 0.001


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.options)
def test_simulated_builds_fail_as_often_as_is_computed(rule: Any) -> None:
    found = simulation.simulate(rule, 300)

    false_alarm, finds = exact(rule)
    assert is_near(found.false_alarm, false_alarm, 300)
    assert is_near(found.finds, finds, 300)


def test_the_page_shows_what_5000_builds_of_each_rule_gave() -> None:
    shown = re.search(f"(?s){simulation.FIRST}(.*?){simulation.LAST}", simulation.PAGE.read_text("utf-8"))
    assert shown
    rows = dict(re.findall(r"\| `(.*?)` \| (.*?) \|\n", shown[1]))

    assert list(rows) == [rule.options for rule in RULES]
    for rule in RULES:
        false_alarm, finds = (float(share.strip(" %")) / 100 for share in rows[rule.options].split("|")[:2])
        assert is_near(false_alarm, exact(rule)[0], simulation.N_BUILDS)
        assert is_near(finds, exact(rule)[1], simulation.N_BUILDS)


@pytest.mark.parametrize("rule", STOPPED, ids=lambda rule: rule.options)
def test_a_build_that_stops_when_decided_plays_less_and_errs_rarely(rule: Any) -> None:
    found, n_fixed = simulation.simulate(rule, 300), rule.n * simulation.N_CASES

    assert found.false_alarm <= 0.05
    assert found.finds >= 0.9
    assert found.n_trials_worse < n_fixed
    if rule in LIKELY:
        assert max(found.n_trials, found.n_trials_worse) <= n_fixed / 2


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.options)
def test_a_gate_that_plays_suspects_again_needs_half_the_trials_of_one_that_plays_all_of_them(rule: Any) -> None:
    """In the median, against as many trials of every case as a suspect gets; a rate needs as many in any build."""
    found = simulation.simulate(rule, 300)

    n_fresh = rule.gates.confirm[1] if rule.gates.regression_rule == "confirm" else 0
    n_fixed = (rule.n + n_fresh) * simulation.N_CASES
    assert max(found.n_trials, found.n_trials_worse) <= (n_fixed / 2 if n_fresh else n_fixed)


def test_the_workflow_of_the_page_asks_for_a_recommended_gate() -> None:
    page = simulation.PAGE.read_text("utf-8")
    (line,) = re.findall(r"- run: (evaldesk eval .*--baseline .*)", page)
    asked = " ".join(re.findall(r"--(?:n|max-regressions|regression-rule|confirm|min-[a-z-]+|pass-[a-z]+) \S+", line))
    (before,) = re.findall(r"- run: (evaldesk eval .* -o baseline.json)", page)

    assert asked in [rule.options for rule in RECOMMENDED]
    assert re.findall(r"--n \d+", before) == re.findall(r"--n \d+", line)


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.options)
def test_a_recommended_gate_has_few_false_alarms_and_finds_a_drop_of_15_points(rule: Any) -> None:
    false_alarm, finds = exact(rule)

    assert false_alarm <= TOLERATED
    assert finds >= FOUND
    assert SOUGHT == simulation.DROP
    assert simulation.DROP in DROPS


@pytest.mark.parametrize("rule", RECOMMENDED, ids=lambda rule: rule.options)
def test_a_recommended_gate_is_the_one_that_is_proposed(rule: Any) -> None:
    (gate,) = gate_chances(rule.gates, assumed_subject(simulation.RATE, [rule.n] * simulation.N_CASES, 1.0))

    assert gate.proposal
    assert gate.proposal.options == rule.options
