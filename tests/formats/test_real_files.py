"""Every real ADK file beside the checkout is read, or refused with a reason that is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats import evalset_format, losses, read_evalset, write_evalset
from evaldesk.model import Expected

# File, format, cases, turns.
READ = [
    ("adk-docs/docs__evaluate__index.md__json00.json", "adk", 1, 1),
    ("adk-docs/docs__evaluate__index.md__json01.json", "adk", 2, 3),
    (
        "adk-python/contributing__samples__live__live_non_blocking_tool_agent__live_non_blocking_tool_agent.evalset.json",
        "adk",
        2,
        2,
    ),
    ("adk-python/tests__integration__fixture__conversation_scenario__conversation_scenario.test.json", "adk", 1, 0),
    ("adk-python/tests__integration__fixture__ecommerce_customer_service_agent__order_query.test.json", "adk", 1, 4),
    (
        "adk-python/tests__integration__fixture__ecommerce_customer_service_agent__order_query.test.old_schema.json",
        "adk-flat",
        1,
        4,
    ),
    ("adk-python/tests__integration__fixture__elicitation_agent__elicitation_flow.test.json", "adk", 1, 2),
    ("adk-python/tests__integration__fixture__hello_world_agent__roll_die.test.json", "adk", 1, 3),
    ("adk-python/tests__integration__fixture__hello_world_agent__roll_die.test.old_schema.json", "adk-flat", 1, 3),
    ("adk-python/tests__integration__fixture__home_automation_agent__simple_test.test.json", "adk", 1, 1),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__simple_test.test.old_schema.json",
        "adk-flat",
        1,
        1,
    ),
    ("adk-python/tests__integration__fixture__home_automation_agent__simple_test2.test.json", "adk-flat", 1, 1),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__dependent_tool_calls.test.json",
        "adk",
        1,
        2,
    ),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__dependent_tool_calls.test.old_schema.json",
        "adk-flat",
        1,
        2,
    ),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__memorizing_past_events__eval_data.test.json",
        "adk",
        1,
        2,
    ),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__memorizing_past_events__eval_data.test.old_schema.json",
        "adk-flat",
        1,
        2,
    ),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__simple_multi_turn_conversation.test.json",
        "adk",
        1,
        2,
    ),
    (
        "adk-python/tests__integration__fixture__home_automation_agent__test_files__simple_multi_turn_conversation.test.old_schema.json",
        "adk-flat",
        1,
        2,
    ),
    ("adk-python/tests__integration__fixture__home_automation_agent__test_files__simple_test.test.json", "adk", 1, 2),
    ("adk-python/tests__integration__fixture__home_automation_agent__test_files__simple_test2.test.json", "adk", 1, 1),
    (
        "adk-python/tests__integration__fixture__trip_planner_agent__test_files__trip_inquiry_sub_agent.test.json",
        "adk",
        1,
        1,
    ),
    (
        "adk-python/tests__integration__fixture__trip_planner_agent__test_files__trip_inquiry_sub_agent.test.old_schema.json",
        "adk-flat",
        1,
        1,
    ),
    ("adk-python/tests__integration__fixture__trip_planner_agent__trip_inquiry.test.json", "adk-flat", 1, 2),
    ("adk-samples/agents__code-reviewer__eval__data__evalset001.evalset.json", "adk-old", 2, 16),
    ("adk-samples/agents__code-reviewer__eval__data__evalset002.evalset.json", "adk-old", 2, 14),
    ("adk-samples/contrib__python__crypto-payroll-agent__eval__crypto_payroll_eval_set.evalset.json", "adk", 6, 11),
    ("adk-samples/core__python__long-horizon-harness__tests__eval__evalsets__basic.evalset.json", "adk", 2, 2),
    ("adk-samples/python__agents__RAG__eval__data__conversation.test.json", "adk-flat", 1, 22),
    ("adk-samples/python__agents__academic-research__eval__data__academic_research_evalset.test.json", "adk", 1, 1),
    ("adk-samples/python__agents__academic-research__eval__data__seminal.test.json", "adk", 1, 1),
    ("adk-samples/python__agents__brand-search-optimization__eval__data__eval_data1.evalset.json", "adk-old", 1, 6),
    ("adk-samples/python__agents__customer-service__eval__eval_data__full_conversation.test.json", "adk-flat", 1, 10),
    ("adk-samples/python__agents__customer-service__eval__eval_data__simple.test.json", "adk-flat", 1, 2),
    ("adk-samples/python__agents__data-science__eval__eval_data__simple.test.json", "adk-flat", 1, 2),
    ("adk-samples/python__agents__financial-advisor__eval__data__financial-advisor.test.json", "adk", 1, 2),
    ("adk-samples/python__agents__financial-advisor__eval__data__seminal.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__llm-auditor__eval__data__blueberries.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__llm-auditor__eval__data__ice_cream_sandwich.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__marketing-agency__eval__data__seminal.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__personalized-shopping__eval__eval_data__simple.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__personalized-shopping__tests__tools__tools.test.json", "adk-flat", 1, 1),
    ("adk-samples/python__agents__travel-concierge__eval__data__inspire.test.json", "adk", 1, 3),
    ("adk-samples/python__agents__travel-concierge__eval__data__intrip.test.json", "adk", 1, 4),
    ("adk-samples/python__agents__travel-concierge__eval__data__pretrip.test.json", "adk", 1, 2),
]
REFUSED = {
    "this is an eval config (test_config.json)": [
        "adk-docs/docs__evaluate__criteria.md__json00.json",
        "adk-docs/docs__evaluate__criteria.md__json03.json",
        "adk-docs/docs__evaluate__criteria.md__json04.json",
        "adk-docs/docs__evaluate__criteria.md__json05.json",
        "adk-docs/docs__evaluate__criteria.md__json06.json",
        "adk-docs/docs__evaluate__criteria.md__json08.json",
        "adk-docs/docs__evaluate__criteria.md__json10.json",
        "adk-docs/docs__evaluate__criteria.md__json12.json",
        "adk-docs/docs__evaluate__criteria.md__json14.json",
        "adk-docs/docs__evaluate__custom_metrics.md__json00.json",
        "adk-docs/docs__evaluate__custom_metrics.md__json01.json",
        "adk-docs/docs__evaluate__index.md__json02.json",
        "adk-docs/docs__evaluate__user-sim.md__json04.json",
        "adk-docs/docs__evaluate__user-sim.md__json05.json",
        "adk-python/tests__integration__fixture__conversation_scenario__test_config.json",
        "adk-python/tests__integration__fixture__ecommerce_customer_service_agent__test_config.json",
        "adk-python/tests__integration__fixture__hello_world_agent__test_config.json",
        "adk-python/tests__integration__fixture__home_automation_agent__test_config.json",
        "adk-python/tests__integration__fixture__trip_planner_agent__test_config.json",
        "adk-samples/python__agents__RAG__eval__data__test_config.json",
        "adk-samples/python__agents__brand-search-optimization__eval__data__test_config.json",
        "adk-samples/python__agents__customer-service__eval__eval_data__test_config.json",
        "adk-samples/python__agents__llm-auditor__eval__data__test_config.json",
        "adk-samples/python__agents__personalized-shopping__eval__eval_data__test_config.json",
        "adk-samples/python__agents__personalized-shopping__tests__tools__test_config.json",
        "adk-samples/python__agents__travel-concierge__eval__data__test_config.json",
    ],
    "this is one conversation scenario": [
        "adk-docs/docs__evaluate__user-sim.md__json01.json",
        "adk-docs/docs__evaluate__user-sim.md__json06.json",
    ],
    "this is a list of conversation scenarios": [
        "adk-docs/docs__evaluate__user-sim.md__json02.json",
    ],
    "this is a session input (the start of a session)": [
        "adk-docs/docs__evaluate__user-sim.md__json03.json",
    ],
    "this is a config for generating conversations": [
        "adk-docs/docs__evaluate__user-sim.md__json07.json",
    ],
    "this is an input for `adk run --replay`": [
        "adk-python/contributing__samples__session_state_agent__input.json",
    ],
    "this is a recording for `adk test` (a list of events)": [
        "adk-python/contributing__samples__tools__parallel_functions__tests__test_parallel_weather.json",
    ],
    "this is a session export of an ADK before its release": [
        "adk-python/tests__integration__fixture__context_update_test__successful_test.session.json",
        "adk-python/tests__integration__fixture__flow_complex_spark__sample.session.json",
    ],
    "this is a session export": [
        "adk-python/tests__integration__fixture__trip_planner_agent__initial.session.json",
        "adk-samples/python__agents__customer-service__eval__sessions__123.session.json",
        "adk-samples/python__agents__personalized-shopping__tests__example_interactions__image_search_denim_skirt.session.json",
        "adk-samples/python__agents__personalized-shopping__tests__example_interactions__text_search_floral_dress.session.json",
    ],
}
REFUSALS = [(name, reason) for reason, names in REFUSED.items() for name in names]


@pytest.fixture(scope="module")
def files(shared: Path) -> Path:
    return shared / "data" / "adk"


def test_the_tables_name_every_file_there_is(files: Path) -> None:
    there = {path.relative_to(files).as_posix() for path in files.glob("*/*.json")}

    named = {name for name, *_ in READ} | {name for name, _ in REFUSALS}

    assert named == there


@pytest.mark.parametrize(("name", "file_format", "n_cases", "n_turns"), READ)
def test_a_real_file_is_read_in_full(files: Path, name: str, file_format: str, n_cases: int, n_turns: int) -> None:
    evalset = read_evalset((files / name).read_bytes(), source=name)

    assert evalset_format(evalset) == file_format
    assert len(evalset.cases) == n_cases
    assert sum(len(case.turns) for case in evalset.cases) == n_turns


@pytest.mark.parametrize(("name", "reason"), REFUSALS)
def test_a_real_file_of_another_kind_is_refused_by_its_name(files: Path, name: str, reason: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_evalset((files / name).read_bytes(), source=name)

    assert refused.value.reason.startswith(reason)
    assert refused.value.source == name


@pytest.mark.parametrize("name", [name for name, *_ in READ])
def test_an_untouched_real_file_is_written_back_with_every_key_in_its_place(files: Path, name: str) -> None:
    data = (files / name).read_bytes()
    evalset = read_evalset(data, source=name)

    written = write_evalset(evalset, evalset_format(evalset))

    # Compared as text, so that the order of keys and 1 against 1.0 count.
    assert json.dumps(json.loads(written)) == json.dumps(json.loads(data))
    assert read_evalset(written, source=name) == evalset


@pytest.mark.parametrize("name", [name for name, *_ in READ])
def test_editing_one_turn_of_a_real_file_changes_nothing_else(files: Path, name: str) -> None:
    evalset = read_evalset((files / name).read_bytes(), source=name)
    if not any(case.turns for case in evalset.cases):
        pytest.skip("only scenarios")
    case = next(case for case in evalset.cases if case.turns)
    index = evalset.cases.index(case)
    turn = replace(case.turns[0], query="an entirely new question")
    edited_case = replace(case, turns=(turn, *case.turns[1:]))
    cases = (*evalset.cases[:index], edited_case, *evalset.cases[index + 1 :])
    edited = replace(evalset, cases=cases)

    written = write_evalset(edited, evalset_format(evalset))

    before = json.dumps(json.loads((files / name).read_bytes()))
    after = json.dumps(json.loads(written)).replace(
        "an entirely new question", json.dumps(case.turns[0].query)[1:-1], 1
    )
    assert after == before


@pytest.mark.parametrize("name", [name for name, *_ in READ])
def test_a_real_file_says_the_same_in_the_new_form(files: Path, name: str) -> None:
    evalset = read_evalset((files / name).read_bytes(), source=name)

    again = read_evalset(write_evalset(evalset, "adk"), source=name)

    assert [case.id for case in again.cases] == [case.id for case in evalset.cases]
    for one, other in zip(again.cases, evalset.cases, strict=True):
        assert one.initial_state == other.initial_state
        assert [turn.query for turn in one.turns] == [turn.query for turn in other.turns]
        assert [_asserted(turn.expected) for turn in one.turns] == [_asserted(turn.expected) for turn in other.turns]


@pytest.mark.parametrize("name", [name for name, file_format, *_ in READ if file_format != "adk"])
def test_a_real_old_file_loses_nothing_in_its_own_form(files: Path, name: str) -> None:
    evalset = read_evalset((files / name).read_bytes(), source=name)

    assert losses(evalset, evalset_format(evalset)) == ()


def _asserted(expected: Expected) -> tuple[object, ...]:
    calls = expected.tool_calls
    return calls and [(call.name, call.args) for call in calls], expected.intermediate, expected.reference
