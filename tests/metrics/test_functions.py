"""Functions of the user as metrics: what they see, and what they may return."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from evaldesk.metrics import grade_trial
from evaldesk.model import Case, Criterion, Expected, ToolCall, Transcript, Turn

from .rewards import CASE, TRANSCRIPT, record, scored


def seen() -> list[Any]:
    found: list[Any] = sys.modules["own_rewards"].SEEN
    return found


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "value"),
    [("exact", 1.0), ("later", 1.0), ("full", 0.5), ("short", 0.5), ("whole", 1.0), ("seven", 7.0), ("judge", 0.5)],
)
async def test_a_function_gives_the_value_of_the_trial(root: str, name: str, value: float) -> None:
    score = await scored(root, name)

    assert (score.value, score.passed, score.error) == (value, True, None)
    assert score.metric == f"own_rewards:{name}"
    assert score.reason.endswith(".")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("numpy.bool_(True)", 1.0),
        ("numpy.bool_(False)", 0.0),
        ("numpy.float32(0.5)", 0.5),
        ("numpy.float64(0.25)", 0.25),
        ("numpy.int64(1)", 1.0),
        ("numpy.array(0.5)", 0.5),
        ("Fraction(1, 2)", 0.5),
        ("Score('x', numpy.float32(0.5))", 0.5),
    ],
)
async def test_a_scalar_of_numpy_is_the_value_that_it_holds(tmp_path: Path, source: str, value: float) -> None:
    pytest.importorskip("numpy")
    module = f"scalars_{abs(hash(source))}"
    text = "import numpy\nfrom fractions import Fraction\nfrom evaldesk.model import Score\n"
    (tmp_path / f"{module}.py").write_text(f"{text}def judge(solution_str, ground_truth):\n    return {source}\n")

    score = await scored(str(tmp_path), "judge", module=module)

    assert (score.value, score.error) == (value, None)
    assert type(score.value) in (float, int)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("numpy.bool_(True)", 0.0),
        ("numpy.float32(0.5)", 0.0),
        ("numpy.int64(1)", 0.0),
        ("Fraction(1, 2)", 0.0),
        ("numpy.float64(0.25)", 0.25),
        ("True", 1.0),
        ("7", 7.0),
        ("math.inf", 2.0**53),
        ("-math.inf", -(2.0**53)),
        ("10**20", 2.0**53),
    ],
)
async def test_osmosis_takes_the_numbers_of_python_alone(tmp_path: Path, source: str, value: float) -> None:
    """`isinstance(result, (int, float))` there: rollout/eval/evaluation/eval_fn.py."""
    pytest.importorskip("numpy")
    module = f"numbers_{abs(hash(source))}"
    text = "import math\nimport numpy\nfrom fractions import Fraction\n"
    judge = "def judge(solution_str, ground_truth, extra_info=None):\n"
    (tmp_path / f"{module}.py").write_text(f"{text}{judge}    return {source}\n")

    score = await scored(str(tmp_path), "judge", module=module, compat="osmosis")

    assert (score.value, score.error) == (value, None)


@pytest.mark.anyio
async def test_nan_of_numpy_and_an_array_are_no_values(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    text = "import numpy\ndef nan(solution_str): return numpy.float32('nan')\n"
    (tmp_path / "no_scalars.py").write_text(text + "def array(solution_str): return numpy.array([1.0, 0.0])\n")

    for name in ("nan", "array"):
        score = await scored(str(tmp_path), name, module="no_scalars")

        assert score.error is not None
        assert score.value is None


@pytest.mark.anyio
async def test_a_simple_function_sees_the_answer_and_the_row(root: str) -> None:
    await scored(root, "exact")

    row = {"system_prompt": "Be short.", "user_prompt": "What is 6 x 7?", "ground_truth": "42", "level": 3}
    assert seen() == [("42", "42", row)]


@pytest.mark.anyio
async def test_a_full_function_sees_the_messages(root: str) -> None:
    await scored(root, "full")

    (messages,) = seen()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "multiply", "arguments": '{"a":6,"b":7}'}
    assert messages[-1]["content"] == "42"


@pytest.mark.anyio
async def test_a_function_may_compare_the_state_a_replay_gives(root: str) -> None:
    case = Case("shop", (Turn("Order tea", Expected((ToolCall("order", {"item": "tea"}),))),))
    criterion = Criterion("db", 1.0, {"function": "own_rewards:database", "root": root})
    good, bad = (Transcript((record("Done", orders=orders),)) for orders in (["tea"], ["tea", "tea"]))

    assert (await grade_trial(good, case, [criterion])).scores[0].passed is True
    assert (await grade_trial(bad, case, [criterion])).scores[0].passed is False


@pytest.mark.anyio
async def test_a_function_may_give_scores_of_its_own(root: str) -> None:
    criterion = Criterion("mine", 0.5, {"function": "own_rewards:scores", "root": root})

    turn, whole = (await grade_trial(TRANSCRIPT, CASE, [criterion])).scores

    assert (turn.metric, turn.turn, turn.value, turn.passed) == ("mine", 0, 0.25, False)
    assert (whole.value, whole.passed, whole.reason, whole.details) == (0.75, True, "Both.", {"why": "so"})
