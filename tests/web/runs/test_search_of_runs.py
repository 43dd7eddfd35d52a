"""Runs and trials in the search over the whole workspace."""

from __future__ import annotations

from typing import Any

import pytest


def found(pages: Any, typed: str) -> str:
    return str(pages.client.get("/search", params={"q": typed}, headers={"HX-Target": "div#found"}).text)


def test_a_run_is_found_by_its_number_its_note_and_its_agent(pages: Any) -> None:
    run = pages.finish(n="1", note="cold start")

    for typed in (run[6:], f"run {run[6:]}", "cold st", "dice"):
        assert f'href="{run}"' in found(pages, typed)
    assert f'href="{run}"' not in found(pages, "999")


@pytest.mark.parametrize("typed", ["{run}:greets", "{run} greet", "{run}:greets:2", "{run} : GREETS : 2"])
def test_a_trial_is_named_by_its_run_its_case_and_its_number(pages: Any, typed: str) -> None:
    run = pages.finish(n="2")

    trial = 1 if typed.endswith("2") else 0
    assert f'href="{run}/cases/0/trials/{trial}"' in found(pages, typed.format(run=run[6:]))


@pytest.mark.parametrize(
    "typed", ["{run}:greets:3", "{run}:greets:0", "{run}:nothing", "999:greets", "9" * 40 + ":greets"]
)
def test_a_trial_that_is_not_there_is_not_found(pages: Any, typed: str) -> None:
    run = pages.finish(n="2")

    assert "/trials/" not in found(pages, typed.format(run=run[6:]))
