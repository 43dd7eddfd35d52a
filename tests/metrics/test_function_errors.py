"""Functions of the user: what becomes of what is no score, and when they are imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import MetricError, UsageError
from evaldesk.metrics import build_metric, check_criteria, grade_trial, load_function_of, missing_reasons, score_trial
from evaldesk.model import Criterion, ToolCall, Transcript

from .rewards import CASE, TRANSCRIPT, record, scored


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", "ZeroDivisionError: by nought"),
        ("leaving", "SystemExit: 2"),
        ("nothing", "the function returned None"),
        ("text", "the function returned str"),
        ("nan", "the function returned nan"),
        ("infinite", "the function returned inf"),
        ("odd", "first parameter is 'answer'"),
        ("bare", "Eval function has no parameters"),
        ("NUMBER", "'NUMBER' in 'own_rewards' is not callable"),
        ("absent", "Module 'own_rewards' has no attribute 'absent'. Available: ['math', "),
    ],
)
async def test_what_is_no_number_is_an_error_with_its_trace(root: str, name: str, said: str) -> None:
    score = await scored(root, name)

    assert score.error is not None
    assert said in score.error.message
    assert (score.verdict, score.value) == ("errored", None)
    assert "Traceback" in score.error.trace


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["raising", "nothing", "text", "nan", "short", "absent"])
async def test_osmosis_counts_the_same_as_zero(root: str, name: str) -> None:
    score = await scored(root, name, compat="osmosis")

    assert (score.value, score.passed, score.error) == (0.0, False, None)
    assert score.reason.startswith("Counted as 0, as Osmosis does: ")


@pytest.mark.anyio
async def test_only_osmosis_scores_an_older_answer(root: str) -> None:
    stale = Transcript((record("42"), record("", (ToolCall("multiply", {}),))))

    assert (await scored(root, "exact", transcript=stale)).value == 0.0
    assert (await scored(root, "exact", transcript=stale, compat="osmosis")).value == 1.0


@pytest.mark.anyio
async def test_a_declared_range_is_kept_to(root: str) -> None:
    score = await scored(root, "seven", low=0, high=1)

    assert score.error is not None
    assert "gave 7.0, outside of 0 to 1" in score.error.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": "a:b", "compatt": "osmosis"}, "did you mean 'compat'?"),
        ({"function": "a:b", "compat": "inspect"}, "Invalid enum value 'inspect'"),
        ({"function": 3}, "Expected `str`, got `int`"),
        ({"function": "a:b", "low": 1, "high": 0}, "low must lie under high"),
        ({"function": "a:b", "low": 0, "high": 1, "threshold": 2}, "no option of mine named 'threshold'"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_criteria([Criterion("mine", 0.5, options)])


def test_a_threshold_outside_of_the_declared_range_is_refused() -> None:
    with pytest.raises(UsageError, match="out of range"):
        check_criteria([Criterion("mine", 7, {"function": "a:b", "low": 0, "high": 1})])


def test_nothing_is_imported_before_the_worker_scores(root: str) -> None:
    criterion = Criterion("mine", 0.5, {"function": "own_rewards:exact", "root": root})

    check_criteria([criterion])
    build_metric(criterion)

    assert missing_reasons(criterion, [CASE]).get(CASE.id) is None
    assert "own_rewards" not in sys.modules


def test_functions_are_imported_ahead_of_the_first_turn(root: str) -> None:
    good, bad = (Criterion(name, 0.5, {"function": f"own_rewards:{name}", "root": root}) for name in ("exact", "no"))

    load_function_of(good)

    assert "own_rewards" in sys.modules
    with pytest.raises(Exception, match="has no attribute 'no'"):
        load_function_of(bad)


def test_a_function_is_imported_while_another_thread_imports_a_module(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[dict[str, Any]] = [sys.path_importer_cache]

    class SeenDuringAnImport(str):
        def startswith(self, *start: Any) -> bool:
            for each in noted:
                monkeypatch.setitem(each, f"beside{len(each)}", None)
            return str.startswith(self, *start)

    for each in noted:
        monkeypatch.setitem(each, SeenDuringAnImport("another"), None)

    load_function_of(Criterion("exact", 0.5, {"function": "own_rewards:exact", "root": root}))

    assert "own_rewards" in sys.modules


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "class Scorer:\n    def __call__(self, solution_str, other): ...\nscore = Scorer()",
            "needs other, which it is never",
        ),
        ("score = lambda solution_str, other: 1", "needs other, which it is never"),
        ("score = lambda solution_str, /: 1", "called by keyword"),
    ],
    ids=["an object", "a lambda", "positions only"],
)
def test_what_no_call_can_give_is_refused_before_the_trial(tmp_path: Path, written: str, said: str) -> None:
    module = tmp_path.name
    (tmp_path / f"{module}.py").write_text(written)

    with pytest.raises(MetricError, match=said):
        load_function_of(Criterion("m", 0.5, {"function": f"{module}:score", "root": str(tmp_path)}))


def test_a_wrapper_that_fills_in_what_its_function_needs_is_taken(tmp_path: Path) -> None:
    (tmp_path / "filled_in.py").write_text(
        "import functools\n"
        "def inner(solution_str, other): return 1\n"
        "@functools.wraps(inner)\n"
        "def score(**given): return inner(given['solution_str'], other=2)\n"
    )

    load_function_of(Criterion("m", 0.5, {"function": "filled_in:score", "root": str(tmp_path)}))


def test_scoring_at_once_says_what_it_cannot_do(root: str) -> None:
    (score,) = score_trial(TRANSCRIPT, CASE, [Criterion("m", 0.5, {"function": "own_rewards:exact", "root": root})])

    assert score.value == 1.0


ADK = """
from types import SimpleNamespace

def same_answer(eval_metric, actual_invocations, expected_invocations=None, conversation_scenario=None):
    results = []
    for actual, expected in zip(actual_invocations, expected_invocations):
        said = actual.final_response.parts[0].text == expected.final_response.parts[0].text
        names = [call.name for call in actual.intermediate_data.tool_uses]
        assert names == ["multiply"] and actual.intermediate_data.tool_uses[0].args == {"a": 6, "b": 7}
        results.append(SimpleNamespace(score=float(said)))
    assert (eval_metric.metric_name, eval_metric.threshold) == ("mine", 0.5)
    return SimpleNamespace(overall_score=sum(r.score for r in results) / len(results), per_invocation_results=results)

def too_few(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return SimpleNamespace(overall_score=1.0, per_invocation_results=[SimpleNamespace(score=1.0)] * 2)

def not_evaluated(eval_metric, actual_invocations, expected_invocations, conversation_scenario):
    return SimpleNamespace(overall_score=None, per_invocation_results=[])
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("same_answer", "passed", "The function gave 1."),
        ("too_few", "errored", "the function gave 2 results for 1 turns"),
        ("not_evaluated", "unscored", "The function evaluated nothing here."),
    ],
)
async def test_a_custom_metric_of_adk_runs_unchanged(
    root: str, monkeypatch: pytest.MonkeyPatch, name: str, verdict: str, said: str
) -> None:
    monkeypatch.setattr("evaldesk.metrics.functions.eval_function._has_adk", lambda: False)  # its import takes seconds
    Path(root, "own_rewards.py").write_text(ADK)
    criterion = Criterion("mine", 0.5, {"function": f"own_rewards:{name}", "root": root})

    grading = await grade_trial(TRANSCRIPT, CASE, [criterion])

    assert grading.scores[-1].verdict == verdict
    assert said in grading.scores[-1].reason
