"""What a run may be asked for, and what is refused with the field at fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject, chosen_cases, plan_run
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Expected, Turn

ASSERTED = Case("asserted", (Turn("roll", Expected((), (), "You rolled 3")),))
OPEN = Case("open", (Turn("hello"),))
STATEFUL = replace(ASSERTED, id="stateful", final_state={"paid": True})
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


def test_it_says_before_a_strict_run_which_cases_will_be_unscored_and_why() -> None:
    unscored = {each.metric: each for each in planned(strict=True).foresight.unscored}

    assert unscored["tool_trajectory_avg_score"].case_ids == ("open",)
    assert "which tools should be called" in unscored["tool_trajectory_avg_score"].reason
    assert unscored["response_match_score"].case_ids == ("open",)


def test_a_metric_is_asserted_in_so_many_cases_and_not_applicable_elsewhere() -> None:
    foresight = planned().foresight

    assert [(each.metric, each.case_ids) for each in foresight.not_applicable] == [
        ("tool_trajectory_avg_score", ("open",)),
        ("response_match_score", ("open",)),
    ]
    assert planned().config.n_asserted == {"tool_trajectory_avg_score": 1, "response_match_score": 1}
    assert planned(strict=True).config.n_asserted == {}


def test_a_case_to_which_no_criterion_applies_will_be_unscored() -> None:
    (bare,) = planned().foresight.unscored

    assert (bare.metric, bare.case_ids) == ("", ("open",))
    assert bare.reason == "No criterion applies: the case asserts nothing that they judge."


def test_a_metric_that_informs_only_keeps_no_case_from_being_unscored() -> None:
    criteria = (Criterion("response_match_score", 0.8), Criterion("tool_call_count_v1"))

    assert [each.case_ids for each in planned(criteria=criteria).foresight.unscored] == [("open",)]


@pytest.mark.parametrize(
    ("case", "strict", "is_judged"),
    [(STATEFUL, False, True), (STATEFUL, True, False), (ASSERTED, False, False)],
    ids=["asserted", "strict", "not asserted"],
)
def test_a_recorded_final_state_is_judged_by_default(case: Case, strict: bool, is_judged: bool) -> None:
    subject = replace(SUBJECT, evalset=EvalSet("set", cases=(OPEN, case)))

    config = plan_run(subject, RunOptions(strict=strict), models=(), seed=7).config

    assert ("final_state_match" in [each.metric for each in config.criteria]) is is_judged
    assert config.n_asserted.get("final_state_match") == (1 if is_judged else None)


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
    subject = replace(SUBJECT, evalset=EvalSet("empty"), evalset_path="sets/empty.json")

    with pytest.raises(UsageError, match=r"^empty\.json has no cases yet"):
        plan_run(subject, RunOptions(), models=(), seed=0)


def test_cases_with_the_same_id_are_refused_by_name_before_the_start() -> None:
    evalset = EvalSet("set", cases=(Case("greeting"), Case("other"), Case("greeting")))

    with pytest.raises(UsageError, match=r'^set: several cases have the same id: "greeting" \(cases 1 and 3\)'):
        chosen_cases(evalset, ("other",))


def test_the_refusal_of_repeated_ids_names_the_file_and_not_only_the_set() -> None:
    evalset = EvalSet("set", cases=(Case("greeting"), Case("greeting")))
    subject = replace(SUBJECT, evalset=evalset, evalset_path="sets/copy.evalset.json")

    with pytest.raises(UsageError, match=r'^copy\.evalset\.json: several cases have the same id: "greeting"'):
        plan_run(subject, RunOptions(), models=(), seed=0)


@pytest.mark.parametrize(("name", "hint"), [("opem", "; did you mean 'open'?"), ("x", "")], ids=["near", "far"])
def test_an_unknown_case_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        planned(case_ids=(name,))

    assert str(refusal.value) == f"this eval set has no case {name!r}{hint}"
