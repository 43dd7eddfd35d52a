"""The eval sets that ship: well written, and passed by a demo model that makes no mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from evaldesk.agents import agent_ref
from evaldesk.engine import InlineExecutor
from evaldesk.formats import load_evalset, losses, write_evalset
from evaldesk.model import AgentRef, Case, TrialResult, TrialSpec
from evaldesk.paths import shipped

FLAWLESS = {"hello_world": "demo/dice?mistakes=0&delay_ms=0", "trip_planner": "demo/trips?mistakes=0&delay_ms=0"}


@pytest.mark.parametrize("name", FLAWLESS)
def test_a_sample_is_described_tagged_and_written_as_adk_writes(name: str) -> None:
    path = shipped("evalsets") / f"{name}.evalset.json"

    evalset = load_evalset(path)

    assert evalset.id == name
    assert evalset.name
    assert evalset.description
    assert all(case.tags and case.initial_session for case in evalset.cases)
    assert write_evalset(evalset) == path.read_bytes()
    assert len(losses(evalset, "adk-old")) == 2


@pytest.mark.usefixtures("own_imports")
@pytest.mark.anyio
@pytest.mark.parametrize("name", FLAWLESS)
async def test_a_demo_model_without_mistakes_passes_every_sample_case(name: str) -> None:
    evalset = load_evalset(shipped("evalsets") / f"{name}.evalset.json")

    results = await _played(agent_ref(f"samples/{name}"), evalset.cases, FLAWLESS[name])

    verdicts = {evalset.cases[result.case_index].id: (result.verdict, result.error) for result in results}
    assert verdicts == {case.id: ("passed", None) for case in evalset.cases}


async def _played(agent: AgentRef, cases: Sequence[Case], model: str) -> list[TrialResult]:
    executor = InlineExecutor()
    for index, case in enumerate(cases):
        await executor.submit(TrialSpec(1, index, 0, case, agent, model=model, seed=index))
    results = executor.results()
    found = [await asyncio.wait_for(anext(results), 300) for _ in cases]
    await executor.close()
    return found
