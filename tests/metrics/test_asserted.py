"""Whether a metric applies to a case is seen from the asserted part of the case alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evaldesk.errors import EvaldeskError
from evaldesk.metrics import METRICS, build_metric, missing_of
from evaldesk.metrics.asserted import asserted_part
from evaldesk.model import Case, Criterion, Expected, ToolCall, Turn

CALLS = st.sampled_from([None, (), (ToolCall("f"),), (ToolCall("g", {"a": 1}), ToolCall("f"))])
REFERENCES = st.none() | st.sampled_from(
    ["", "yes", "1", "$1,000", "{}", '{"a": 1}', "[2]", '"x"', "```json\n{}\n```", "NaN", "about 7", "{", "null", "-"]
)
KINDS = ("FINAL_RESPONSE_QUALITY", "TOOL_USE_QUALITY", "TRAJECTORY_QUALITY", None)
RUBRIC = st.builds(
    lambda name, kind: {"rubric_id": name, "rubric_content": {"text_property": "Is it so?"}, "type": kind},
    st.sampled_from(["a", "b"]),
    st.sampled_from(KINDS),
)
RUBRICS = st.lists(RUBRIC, max_size=2, unique_by=lambda each: each["rubric_id"]).map(tuple)
TURN = st.builds(
    Turn,
    st.text(max_size=3),
    st.builds(Expected, CALLS, st.sampled_from([(), (("a", "text"),)]), REFERENCES),
    RUBRICS,
)
EXTRA = st.sampled_from(
    [
        {},
        {"required_outputs": ["x"]},
        {"outputs": []},
        {"required_outputs": 1},
        {"evaluation_criteria": {"communicate_info": ["x"]}},
        {"evaluation_criteria": 1},
        {"human_decisions": [{"turn": 2, "decision": "approve"}]},
        {"human_decisions": [{"decision": "approve"}]},
        {"human_decisions": [{"turn": 0}]},
        {"expected_outcomes": [{"outcome": "refused_by_model", "turn": 2}]},
        {"expected_outcomes": []},
        {"expected_outcomes": "refused"},
        {"required_calls": [{"name": "f", "arguments": {}}]},
        {"required_calls": [{}]},
        {"evaluation_criteria": {"actions": [{"name": "f", "arguments": {}}], "reward_basis": ["ACTION"]}},
        {"evaluation_criteria": {"actions": [{"name": "f", "arguments": {}}], "reward_basis": ["DB"]}},
    ]
)
CASE = st.builds(
    Case,
    st.text(max_size=3),
    st.lists(TURN, max_size=4).map(tuple),
    st.sampled_from([None, {}, {"conversation_plan": "x"}]),
    st.none(),
    st.sampled_from([None, {}, {"a": 1}]),
    RUBRICS,
    st.just(("tag",)),
    EXTRA,
)


@given(CASE)
def test_each_metric_applies_to_the_part_as_to_the_case(case: Case) -> None:
    part = asserted_part(case)

    assert {name: _missing(name, part) for name in METRICS} == {name: _missing(name, case) for name in METRICS}


@given(CASE)
def test_the_part_of_a_part_is_the_same(case: Case) -> None:
    part = asserted_part(case)

    assert asserted_part(part) == part
    assert not part.id
    assert not any(turn.query for turn in part.turns)


def test_cases_that_assert_alike_have_one_part() -> None:
    cases = [
        Case(f"c{n}", (Turn(f"Roll {n}", Expected((ToolCall("roll", {"n": n}),), (), f"You rolled {n}.")),))
        for n in range(5)
    ]

    assert len({repr(asserted_part(case)) for case in cases}) == 1


def _missing(name: str, case: Case) -> str | None:
    try:
        return missing_of(build_metric(Criterion(name)), case)
    except EvaldeskError as error:
        return type(error).__name__
