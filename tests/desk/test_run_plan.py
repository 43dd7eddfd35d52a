"""What a run may be asked for, and what is refused with the field at fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaldesk.desk.run_plan import RunOptions, RunPlan, RunSubject, plan_run
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Expected, Turn

ASSERTED = Case("asserted", (Turn("roll", Expected((), (), "You rolled 3")),))
OPEN = Case("open", (Turn("hello"),))
SUBJECT = RunSubject(
    AgentRef("dice", "dice:agent"), EvalSet("set", cases=(ASSERTED, OPEN)), "set", agent_model="own/model"
)


def planned(**options: Any) -> RunPlan:
    return plan_run(SUBJECT, RunOptions(**options), models=("openai/big",), seed=7)


def test_a_plan_freezes_what_was_asked() -> None:
    plan = planned(n=3, model="openai/big", note="  after the fix ", concurrency=9, timeout_s=5.0)

    config = plan.config
    assert (config.n, config.model, config.note, config.concurrency) == (3, "openai/big", "after the fix", 9)
    assert (config.limits.trial_timeout_s, config.seed, plan.n_trials) == (5.0, 7, 6)


def test_the_agents_own_model_is_no_override() -> None:
    assert planned(model="own/model").config.model is None


def test_selected_cases_keep_the_order_of_the_file() -> None:
    assert [case.id for case in planned(case_ids=("open", "asserted")).cases] == ["asserted", "open"]


def test_it_says_before_the_run_which_cases_will_be_unscored_and_why() -> None:
    unscored = {each.metric: each for each in planned().unscored}

    assert unscored["tool_trajectory_avg_score"].case_ids == ("open",)
    assert "which tools should be called" in unscored["tool_trajectory_avg_score"].reason
    assert unscored["response_match_score"].case_ids == ("open",)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"n": 0}, "n"),
        ({"n": 1001}, "n"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"pass_threshold": 1.5}, "pass_threshold"),
        ({"note": "x" * 2001}, "note"),
        ({"model": "http://elsewhere"}, "model"),
        ({"case_ids": ()}, "cases"),
        ({"case_ids": ("gone",)}, "cases"),
        ({"criteria": ()}, "metric"),
        ({"criteria": (Criterion("tool_f1"),)}, "metric"),
        ({"criteria": (Criterion("os.system", 1.0),)}, "metric"),
        ({"criteria": (Criterion("response_match_score", 80.0),)}, "response_match_score.threshold"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as refusal:
        planned(**options)

    assert refusal.value.field == field


def test_an_eval_set_without_cases_cannot_be_run() -> None:
    with pytest.raises(UsageError, match="no cases yet"):
        plan_run(replace(SUBJECT, evalset=EvalSet("empty")), RunOptions(), models=(), seed=0)
