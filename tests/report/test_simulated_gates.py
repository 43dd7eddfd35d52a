"""The table of docs/ci.md is what the simulation gave, and names what its figures assume."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def script(name: str) -> ModuleType:
    """A script of bench/, which is beside the tests and not installed."""
    spec = spec_from_file_location(f"bench.{name}", Path(__file__).parents[2] / "bench" / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulation = script("simulate_gates")


def rows_of_page() -> dict[str, list[str]]:
    shown = re.search(f"(?s){simulation.FIRST}(.*?){simulation.LAST}", simulation.PAGE.read_text("utf-8"))
    assert shown
    return {line.split("|")[1].strip(" `"): line.split("|")[2:-1] for line in shown[1].splitlines() if "`" in line}


def test_the_page_has_a_row_for_each_rule_and_a_figure_for_each_mixture() -> None:
    found = rows_of_page()

    assert list(found) == [rule.options for rule in simulation.RULES]
    assert {len(cells) for cells in found.values()} == {len(simulation.MIXTURES) + 4}


@pytest.mark.parametrize("rule", simulation.RULES, ids=lambda rule: rule.options)
def test_a_rule_fails_a_broken_agent_and_no_perfect_one(rule: simulation.Rule) -> None:  # type: ignore[name-defined]
    random = np.random.default_rng(3)
    perfect, broken = np.ones(20), np.zeros(20)

    assert not rule.build(random, simulation.history_of(random, perfect, rule), perfect).fails
    assert rule.build(random, simulation.history_of(random, perfect, rule), broken).fails
