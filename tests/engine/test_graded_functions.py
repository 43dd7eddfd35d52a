"""Functions of the user in a trial: imported before it is played, with something to import for Osmosis' decorators."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.islands import of_tools

from evaldesk.engine import grade
from evaldesk.engine.frames import Ended, Grade, GradeSpec, SourceCopy, frame_from_worker, grade_spec, grader_result
from evaldesk.engine.frames import player_result as played_by
from evaldesk.engine.worker.attempt import Attempt, grading_timeout_s
from evaldesk.engine.worker.jobs import GradeJob, run_trial
from evaldesk.engine.worker.player import adopt, disown
from evaldesk.metrics.functions import import_guard, loading
from evaldesk.model import AgentRef, Case, Criterion, Expected, Limits, Prompt, Prompts, TrialResult, TrialSpec, Turn
from evaldesk.model.transcript import Role

pytestmark = pytest.mark.anyio

REWARDS = """
from osmosis_ai import osmosis_reward

@osmosis_reward
def reward(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    print("rewarding")
    return 1.0 if solution_str == ground_truth else 0.0

@osmosis_reward
def whole(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return 1
"""
REF = AgentRef("echo", "here:echo")
CASE = Case("c", (Turn("hi", Expected(reference="hi")),))


@pytest.fixture
def played(tmp_path: Path) -> Iterator[list[str]]:
    messages: list[str] = []

    def echo(message: str) -> str:
        messages.append(message)
        return message

    (tmp_path / "decorated_rewards.py").write_text(REWARDS)
    adopt(REF, echo)
    yield messages
    disown(REF)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    sys.modules.pop("decorated_rewards", None)


def spec(root: Path, name: str, **options: str) -> TrialSpec:
    function = {"function": f"decorated_rewards:{name}", "root": str(root), **options}
    return TrialSpec(1, 0, 0, CASE, REF, (Criterion("reward", 1.0, function),))


@of_tools("osmosis")
async def test_a_reward_of_osmosis_scores_a_trial(played: list[str], tmp_path: Path) -> None:
    result = await run_trial(spec(tmp_path, "reward"), Attempt())

    assert (result.verdict, result.scores[0].value, played) == ("passed", 1.0, ["hi"])


@of_tools("osmosis")
async def test_a_reward_that_returns_no_float_is_an_error(played: list[str], tmp_path: Path) -> None:
    result = await run_trial(spec(tmp_path, "whole"), Attempt())

    assert result.verdict == "errored"
    assert "Function whole must return a float, got int" in result.scores[0].reason


@of_tools("osmosis")
async def test_a_function_that_cannot_be_imported_ends_the_trial_before_it_costs(
    played: list[str], tmp_path: Path
) -> None:
    result = await run_trial(spec(tmp_path, "nowhere"), Attempt())

    assert result.error is not None
    assert (result.status, result.error.kind, played) == ("errored", "metric_import", [])
    assert "has no attribute 'nowhere'" in result.error.message


def test_only_what_may_wait_lengthens_the_grading() -> None:
    judged, function = Criterion("safety_v1", 0.8), Criterion("f", 1.0, {"function": "a:f"})
    limits = Limits(judge_timeout_s=7)

    assert grading_timeout_s([Criterion("tool_f1", 1.0), Criterion("gone", 1.0)]) == 60
    assert grading_timeout_s([judged, function]) == 60 + 300 + 60
    assert grading_timeout_s([judged, function], limits) == 60 + 7 + 7


@of_tools("osmosis")
async def test_a_stored_trial_is_scored_again_by_a_function(played: list[str], tmp_path: Path) -> None:
    stored = replace(await run_trial(replace(spec(tmp_path, "reward"), criteria=()), Attempt()), usages=())

    again = await grade(stored, CASE, spec(tmp_path, "reward").criteria)
    broken = await grade(stored, CASE, spec(tmp_path, "nowhere").criteria)

    assert (again.verdict, broken.verdict) == ("passed", "errored")
    assert played == ["hi"]


JUDGED = Criterion("safety_v1", 0.8, {"judge_model": "demo/judge", "num_samples": 2})


@pytest.mark.parametrize("keeps", [True, False])
async def test_how_judges_were_asked_is_kept_after_how_the_agent_was(keeps: bool, played: list[str]) -> None:
    asked = TrialSpec(1, 0, 0, CASE, REF, (JUDGED,), keeps_prompts=keeps)

    result = await run_trial(asked, Attempt())

    calls = result.prompts.calls if result.prompts else ()
    assert [(call.role, call.criterion, call.turn) for call in calls] == [("judge", "safety_v1", 0)] * 2 * keeps
    assert [(call.tokens_in, call.tokens_out) for call in calls] == [
        (usage.tokens_in, usage.tokens_out) for usage in result.usages if keeps
    ]


def test_no_player_speaks_for_a_judge_and_no_grader_for_the_agent() -> None:
    asked = TrialSpec(1, 0, 0, CASE, REF, (JUDGED,))
    forged = Prompts(("hi",), tuple(Prompt(0, 1.0, 1.0, "m", messages=(0,), role=role) for role in get_args(Role)))
    result = TrialResult(1, 0, 0, "finished", "passed", "answered", prompts=forged)

    by_player = played_by(asked, result)
    by_grader = grader_result(grade_spec(asked, by_player), result)

    assert by_player.prompts
    assert by_grader.prompts
    assert [call.role for call in by_player.prompts.calls] == ["agent", "user", "agent"]
    assert [call.role for call in by_grader.prompts.calls] == ["agent", "user", "agent", "judge", "judge", "judge"]


async def test_a_trial_beside_the_one_with_the_copy_is_scored_by_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come to a new grader together, and any of them may import first."""
    monkeypatch.setattr(loading, "_copy", loading._copy)  # that of this process is put back
    monkeypatch.setattr(import_guard, "_guard", None)
    now, before = (f"def reward(solution_str, ground_truth, extra_info):\n    return {value}\n" for value in (1.0, 0.0))
    (tmp_path / "told_rewards.py").write_text(now)
    function = {"function": "told_rewards:reward", "root": str(tmp_path)}
    criteria = (Criterion("reward", 1.0, function),)
    result = TrialResult(1, 0, 0, "finished", "unscored")
    copy = SourceCopy({str(tmp_path / "told_rewards.py"): before}, time.time_ns())

    GradeJob(Grade(1, GradeSpec(result, CASE, criteria, is_first=True, copy=copy)))  # its thread has not begun
    frame = frame_from_worker(await GradeJob(Grade(2, GradeSpec(result, CASE, criteria, is_first=True))).run())

    assert isinstance(frame, Ended)
    assert [score.value for score in frame.result.scores] == [0.0]
