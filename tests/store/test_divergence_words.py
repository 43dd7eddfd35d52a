"""The words of first divergences of an import: equal for cases in memory and on the disk, at few looks for a case."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.store.runs.imports import DivergenceWords, new_run
from evaldesk.transcripts.recorded import ReadItems

N_CASES = 400
METRIC = "tool_trajectory_avg_score"
CASES = tuple(
    Case(f"c{at}", turns=(Turn("hi", Expected(tool_calls=(ToolCall(f"tool_{at}", {}),))),)) for at in range(N_CASES)
)


def failed_result(case_index: int) -> TrialResult:
    transcript = Transcript(turns=(TurnRecord("hi"),))
    score = Score(METRIC, 0.0, turn=0, passed=False)
    return TrialResult(0, case_index, 0, "finished", "failed", transcript=transcript, scores=(score,))


ORDERS = {
    "in order": [*range(N_CASES)],
    "some passed": [*range(0, N_CASES, 7)],
    "by rounds": [*range(N_CASES), *range(N_CASES)],
    "several trials each": [at for at in range(N_CASES) for _ in range(3)],
}


@pytest.mark.parametrize("order", [*ORDERS.values()], ids=[*ORDERS])
def test_cases_on_the_disk_are_looked_for_seldom(order: list[int]) -> None:
    n_looks, n_read = 0, 0

    def read(first: int) -> Iterator[Case]:
        nonlocal n_looks, n_read
        n_looks += 1
        for case in CASES[first:]:
            n_read += 1
            yield case

    words_of = words_of_cases(ReadItems(N_CASES, read))

    assert [words_of(failed_result(at)) for at in order] == [f"tool_{at} missing" for at in order]
    assert (n_looks <= 2, n_read <= 2 * N_CASES) == (True, True)


def test_an_order_of_chance_has_the_same_words() -> None:
    order = random.Random(7).choices(range(N_CASES), k=300)
    on_disk = words_of_cases(ReadItems(N_CASES, lambda first: iter(CASES[first:])))
    in_memory = words_of_cases(CASES)

    assert [on_disk(failed_result(at)) for at in order] == [in_memory(failed_result(at)) for at in order]


def words_of_cases(cases: ReadItems[Case] | tuple[Case, ...]) -> DivergenceWords:
    config = RunConfig(AgentRef("a", "a:a"), "set", criteria=(Criterion(METRIC, 1.0),))
    return DivergenceWords(new_run(config, cases, (failed_result(0),), "", ""))
