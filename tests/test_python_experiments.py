"""`evaluate(variants=)`: an experiment from Python, with the values that the shell, files and pages have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import evaldesk
from evaldesk.errors import EvaldeskError, NotFoundError, UsageError
from evaldesk.model import Case, EvalSet, Expected, Turn
from evaldesk.model.experiment import Factor, Variant
from evaldesk.store import Store

pytestmark = pytest.mark.usefixtures("own_imports")

ANSWER = {"response_match_score": 0.8}
N_CASES = 16
EVALSET = EvalSet(
    "numbers", cases=tuple(Case(f"c{at}", (Turn(f"{at}", Expected(reference=f"right {at}")),)) for at in range(N_CASES))
)
RIGHT = {"low": 4, "middle": 8, "high": 16}
"""The number of cases that each instruction gets right."""


def follows(message: str, instruction: str = "low", session: object = None) -> str:
    return f"right {message}" if int(message) < RIGHT[instruction] else "wrong"


def lazy(message: str) -> str:
    return "wrong"


INSTRUCTIONS = [{"instruction": name} for name in RIGHT]


def test_variants_give_one_result_with_each_run_its_table_and_its_differences() -> None:
    result = evaldesk.evaluate(follows, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS, n=2)

    assert result.variants == ("low", "middle", "high")
    assert [run.pass_rate for run in result] == [0.25, 0.5, 1.0]
    assert result["high"].all_passed
    assert (result["high"], len(result)) == (result[2], 3)
    assert [(each.variant, each.value, each.word) for each in result.differences] == [
        ("middle", 0.25, "cannot be told"),
        ("high", 0.75, "better"),
    ]
    assert (result.baseline, result.may_be_best, result.best) == ("low", ("high",), "high")
    frame = result.table()
    assert list(frame.variant) == ["low", "middle", "high"]
    assert list(frame.pass_rate) == [0.25, 0.5, 1.0]
    assert list(frame.word) == ["baseline", "cannot be told", "better"]
    assert list(frame.n_trials) == [32, 32, 32]
    assert str(result).startswith("high is better than low by ")
    with pytest.raises(NotFoundError, match="did you mean 'high'"):
        result["hihg"]


def test_the_variants_are_played_in_turn_with_one_seed() -> None:
    played: list[str] = []

    def noting(message: str, instruction: str = "low") -> str:
        played.append(instruction)
        return follows(message, instruction)

    result = evaldesk.evaluate(noting, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS, n=2, concurrency=1)

    assert len({run.config.seed for run in result}) == 1
    first_block = played[: 3 * N_CASES]
    assert sorted(first_block) == sorted([*RIGHT] * N_CASES)
    assert first_block != sorted(first_block, key=list(RIGHT).index)


def test_listed_variants_that_are_a_full_grid_have_its_factors() -> None:
    variants = [{"temperature": t, "instruction": name} for t in (0, 1) for name in ("low", "high")]

    result = evaldesk.evaluate(follows, EVALSET, criteria=ANSWER, variants=variants)

    factors = result.results.experiment.plan.factors
    assert factors == (
        Factor("temperature", ("temperature=0", "temperature=1")),
        Factor("instruction", ("low", "high")),
    )
    effects = {(each.level, each.is_interaction): (each.value, each.word) for each in result.analysis.effects}
    assert effects[("high", False)] == (0.75, "better")
    assert effects[("temperature=1", False)] == (0.0, "cannot be told")


def test_a_variant_may_be_another_agent_and_have_a_name_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "p1.md").write_text("high")
    variants: Sequence[Mapping[str, object] | Variant] = [
        {"agent": lazy},
        {"name": "by file", "instruction": tmp_path / "p1.md"},
        Variant("by value", {"instruction": "middle"}),
    ]

    result = evaldesk.evaluate(follows, EVALSET, criteria=ANSWER, variants=variants, baseline_variant="by value")

    assert result.variants == ("lazy", "by file", "by value")
    assert [run.pass_rate for run in result] == [0.0, 1.0, 0.5]
    assert [each.variant for each in result.differences] == ["lazy", "by file"]
    assert result.baseline == "by value"


def test_a_gate_counts_for_the_variants_that_are_named() -> None:
    result = evaldesk.evaluate(
        follows, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS, min_pass_rate=0.9, gate_variants=["low", "high"]
    )

    assert [result[name].conclusion.outcome for name in ("low", "high")] == ["failed", "passed"]
    assert result["middle"].config.gates.asks_nothing


def test_progress_is_that_of_every_variant_and_one_budget_ends_all() -> None:
    variants_of_progress = set()

    def note(summary: Any) -> None:
        variants_of_progress.add(summary.config.experiment.variant)

    result = evaldesk.evaluate(
        follows, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS, n=3, budget=52, on_progress=note
    )

    assert variants_of_progress == set(RIGHT)
    assert sum(len(run.trials) for run in result) == 52
    assert result.results.is_cut
    assert [each.n_trials for each in result.analysis.rates] == [N_CASES] * 3


@pytest.mark.anyio
async def test_evaluate_async_takes_variants_as_well() -> None:
    result = await evaldesk.evaluate_async(follows, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS[1:])

    assert result.best == "high"


@pytest.mark.anyio
async def test_cancelling_an_experiment_keeps_its_finished_trials(tmp_path: Path) -> None:
    reached, held = asyncio.Event(), asyncio.Event()

    async def slow(message: str, instruction: str = "low") -> str:
        if message == "15":  # of every variant: none is played to its end, in whatever order their cells come
            reached.set()
            await held.wait()
        return follows(message, instruction)

    work = asyncio.create_task(
        evaldesk.evaluate_async(slow, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS, workspace=tmp_path)
    )
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        await work
    with Store.open(tmp_path / ".evaldesk/evaldesk.db") as store:
        runs = [store.runs.summary(run_id) for run_id in store.experiments.get(1).run_ids]
    assert {run.status for run in runs} == {"stopped"}


REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "one variant": ({"variants": INSTRUCTIONS[:1]}, "at least 2 variants, and this has 1"),
    "no variant": ({"variants": []}, "at least 2 variants, and this has 0"),
    "61 variants": ({"variants": [{"max_tokens": at} for at in range(1, 62)]}, "at most 60 variants, and this has 61"),
    "two equal ones": (
        {"variants": [{"name": "a", "temperature": 0}, {"name": "b", "temperature": 0.0}]},
        "b is the same as a",
    ),
    "two of one name": ({"variants": [{"temperature": 0}, {"temperature": 0}]}, "two variants are named"),
    "an unknown option": ({"variants": [{"modle": "a"}, {"model": "b"}]}, "did you mean 'model'"),
    "an option of the experiment": ({"variants": [{"seed": 1}, {"seed": 2}]}, "seed is one for all variants"),
    "a value that cannot be": (
        {"variants": [{"temperature": "hot"}, {"temperature": 1}]},
        "variant 'temperature=hot': .*temperature",
    ),
    "no mapping": ({"variants": ["a", "b"]}, "variant 1 must be a mapping of options"),
    "a name that is no text": ({"variants": [{"name": 1}, {"name": 2}]}, "variant 1: name must be text"),
    "an empty file": ({"variants": [{"instruction": Path("/dev/null")}, {"temperature": 1}]}, "the file is empty"),
    "an unknown baseline": ({"variants": INSTRUCTIONS, "baseline_variant": "hihg"}, "did you mean 'high'"),
    "a gate for all": ({"variants": INSTRUCTIONS, "min_pass_rate": 0.5}, "say gate_variants="),
    "a run as the baseline": ({"variants": INSTRUCTIONS, "baseline": __file__}, "say baseline_variant="),
    "a shard": ({"variants": INSTRUCTIONS, "shard": "1/2"}, "leave out shard="),
    "an allocation": ({"variants": INSTRUCTIONS, "budget": 100, "allocate": "uncertain"}, "leave out allocate="),
    "a stop rule": (
        {
            "variants": INSTRUCTIONS,
            "min_pass_rate": 0.5,
            "gate_variants": ["low", "middle", "high"],
            "stop_when_decided": "exact",
        },
        "an experiment plays all trials",
    ),
    "an argument of experiments alone": ({"drop_worse": True}, "drop_worse= is of an experiment; say variants="),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_variants_that_cannot_be_are_refused_before_any_trial(options: dict[str, Any], words: str) -> None:
    played: list[str] = []

    def noting(message: str, instruction: str = "low") -> str:
        played.append(message)
        return message

    with pytest.raises(EvaldeskError, match=words):
        evaldesk.evaluate(noting, EVALSET, criteria=ANSWER, **options)
    assert played == []


def test_an_instruction_for_an_agent_without_one_is_refused_by_the_variant() -> None:
    with pytest.raises(UsageError, match=r"variant 'low': .* instruction"):
        evaldesk.evaluate(lazy, EVALSET, criteria=ANSWER, variants=INSTRUCTIONS)


def test_equal_variants_are_played_where_they_are_allowed() -> None:
    variants = [{"name": name, "temperature": 0} for name in ("a", "b")]

    result = evaldesk.evaluate(follows, EVALSET, criteria=ANSWER, variants=variants, allow_equal=True)

    assert [(each.value, each.word) for each in result.differences] == [(0.0, "cannot be told")]
