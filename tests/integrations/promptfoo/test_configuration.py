"""Configurations of promptfoo: tests as cases, assertions as criteria; files written by its documented schema."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evaldesk.desk.criteria.criteria import criteria_of_set
from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file, recognised
from evaldesk.integrations.promptfoo.assertions import MAX_CRITERIA
from evaldesk.integrations.promptfoo.configuration import MAX_TESTS, PromptfooConfig
from evaldesk.integrations.promptfoo.results import Promptfoo
from evaldesk.metrics.scoring import grade_trial
from evaldesk.model import Event, ToolCall, Transcript, TurnRecord
from evaldesk.model.evalset import CRITERIA, NEEDS_REVIEW, REVIEW_REASON, own_bars

SAMPLES = Path(__file__).parents[2] / "formats" / "exchange_samples"


def _read(text: str, source: str = "promptfooconfig.yaml") -> Imported:
    assert recognised(text.encode(), source) == "promptfoo-config"
    return read_file(text.encode(), source)


def _config(**own: Any) -> Imported:
    return _read(json.dumps({"prompts": ["{{q}}"], "providers": ["echo"]} | own), "promptfooconfig.json")


def _cases(*tests: Any, **own: Any) -> Any:
    evalset = _config(tests=list(tests), **own).evalset
    assert evalset
    return evalset.cases


def test_the_configuration_and_its_results_have_the_same_case() -> None:
    config = PromptfooConfig.read((SAMPLES / "promptfoo-config.yaml").read_bytes(), source="c.yaml").evalset
    results = Promptfoo.read((SAMPLES / "promptfoo.json").read_bytes(), source="r.json").evalset
    assert config
    assert results

    by_config, by_results = config.cases[0], results.cases[0]

    assert (by_config.id, by_config.turns) == (by_results.id, by_results.turns)
    assert [each["rubric_content"] for each in by_config.rubrics] == [
        each["rubric_content"] for each in by_results.rubrics
    ]
    assert (by_config.extra["vars"], by_config.extra["metadata"]) == (
        by_results.extra["vars"],
        by_results.extra["metadata"],
    )


JUDGED: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "equals": ({"type": "equals", "value": "4"}, ["4"], ["5", "44"]),
    "equals of JSON": ({"type": "equals", "value": {"a": 1}}, ['{"a": 1}'], ['{"a": 2}']),
    "contains": ({"type": "contains", "value": "a.b"}, ["x a.b y"], ["A.B", "axb"]),
    "contains a number": ({"type": "contains", "value": 0}, ["10"], ["1"]),
    "icontains": ({"type": "icontains", "value": "Wien"}, ["in WIEN"], ["Graz"]),
    "contains-all": ({"type": "contains-all", "value": ["a", "b"]}, ["b\na"], ["a", "b"]),
    "icontains-all": ({"type": "icontains-all", "value": ["a", "b"]}, ["B\nA"], ["a", "b"]),
    "contains-any": ({"type": "contains-any", "value": ["a", "b"]}, ["xb", "a"], ["c", "A"]),
    "icontains-any": ({"type": "icontains-any", "value": ["a", "b"]}, ["xB", "a"], ["c"]),
    "starts-with": ({"type": "starts-with", "value": "(a"}, ["(a b"], ["b (a"]),
    "regex": ({"type": "regex", "value": r"\d{4}"}, ["in 2026"], ["in 26"]),
    "not-regex": ({"type": "not-regex", "value": r"\d"}, ["none"], ["1"]),
    "not-contains": ({"type": "not-contains", "value": "sorry"}, ["yes"], ["so sorry"]),
    "not-icontains": ({"type": "not-icontains", "value": "sorry"}, ["yes"], ["Sorry"]),
    "not-contains-all": ({"type": "not-contains-all", "value": ["a", "b"]}, ["a", "b"], ["ab"]),
    "not-contains-any": ({"type": "not-contains-any", "value": ["a", "b"]}, ["c"], ["a", "b"]),
    "is-json": ({"type": "is-json"}, ["[1]", '{"a": 1}'], ["{a", "yes"]),
    "is-json by a schema": ({"type": "is-json", "value": {"required": ["a"]}}, ['{"a": 1}'], ['{"b": 1}']),
    "rouge-n": ({"type": "rouge-n", "value": "one two three four"}, ["one two three four"], ["five"]),
    "a set": (
        {"type": "assert-set", "assert": [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b"}]},
        ["ab"],
        ["a"],
    ),
}


@pytest.mark.parametrize(("assertion", "passing", "failing"), JUDGED.values(), ids=JUDGED)
def test_an_assertion_passes_the_answers_that_promptfoo_passes(
    assertion: dict[str, Any], passing: list[str], failing: list[str]
) -> None:
    evalset = _config(tests=[{"vars": {"q": "hello"}, "assert": [assertion]}]).evalset
    assert evalset

    assert NEEDS_REVIEW not in evalset.cases[0].tags
    for answer, is_passed in [*((each, True) for each in passing), *((each, False) for each in failing)]:
        assert _passed(evalset, TurnRecord("hello", _events("hello", answer))) is is_passed, answer


CALLS: dict[str, tuple[dict[str, Any], list[list[ToolCall]], list[list[ToolCall]]]] = {
    "used": ({"type": "trajectory:tool-used", "value": "find"}, [[ToolCall("find")]], [[], [ToolCall("book")]]),
    "all used": (
        {"type": "trajectory:tool-used", "value": ["find", "book"]},
        [[ToolCall("book"), ToolCall("find")]],
        [[ToolCall("find")]],
    ),
    "used so often": (
        {"type": "trajectory:tool-used", "value": {"pattern": "find", "min": 2, "max": 2}},
        [[ToolCall("find")] * 2],
        [[ToolCall("find")], [ToolCall("find")] * 3],
    ),
    "not used": ({"type": "not-trajectory:tool-used", "value": "find"}, [[], [ToolCall("book")]], [[ToolCall("find")]]),
    "sequence": (
        {"type": "trajectory:tool-sequence", "value": {"steps": ["find", "book"]}},
        [[ToolCall("find", {"a": 1}), ToolCall("see"), ToolCall("book")]],
        [[ToolCall("book"), ToolCall("find")]],
    ),
    "exact sequence": (
        {"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["find", "book"]}},
        [[ToolCall("find"), ToolCall("book", {"a": 1})]],
        [[ToolCall("find"), ToolCall("see"), ToolCall("book")]],
    ),
    "arguments": (
        {"type": "trajectory:tool-args-match", "value": {"name": "find", "args": {"to": "{{q}}"}}},
        [[ToolCall("find", {"to": "Graz", "n": 2}), ToolCall("book")]],
        [[ToolCall("find", {"to": "Linz"})]],
    ),
    "exact arguments": (
        {"type": "trajectory:tool-args-match", "value": {"name": "find", "mode": "exact", "arguments": {"n": 1}}},
        [[ToolCall("find", {"n": 1})]],
        [[ToolCall("find", {"n": 1, "m": 2})]],
    ),
}


@pytest.mark.parametrize(("assertion", "passing", "failing"), CALLS.values(), ids=CALLS)
def test_an_assertion_passes_the_calls_that_promptfoo_passes(
    assertion: dict[str, Any], passing: list[list[ToolCall]], failing: list[list[ToolCall]]
) -> None:
    evalset = _config(tests=[{"vars": {"q": "Graz"}, "assert": [assertion]}]).evalset
    assert evalset

    assert NEEDS_REVIEW not in evalset.cases[0].tags
    for calls, is_passed in [*((each, True) for each in passing), *((each, False) for each in failing)]:
        record = TurnRecord("Graz", _events("Graz", "done", calls))
        assert _passed(evalset, record) is is_passed, calls


def _events(query: str, answer: str, calls: list[ToolCall] | None = None) -> tuple[Event, ...]:
    made = [ToolCall(call.name, call.args, f"c{at}") for at, call in enumerate(calls or ())]
    inner = [
        event
        for call in made
        for event in (Event("tool_call", call=call), Event("tool_result", call=call, result="ok"))
    ]
    return (Event("user_message", text=query), *inner, Event("agent_message", text=answer))


def _passed(evalset: Any, record: TurnRecord) -> bool:
    criteria = criteria_of_set(evalset)
    assert criteria
    scores = asyncio.run(grade_trial(Transcript((record,)), evalset.cases[0], criteria)).scores
    verdicts = [score.passed for score in scores if score.turn is None and score.is_applicable]
    assert verdicts
    assert None not in verdicts
    return all(verdicts)


def test_bounds_of_cost_and_time_and_judges_are_criteria_with_own_thresholds() -> None:
    first, second = _cases(
        {"vars": {"q": "a"}, "assert": [{"type": "latency", "threshold": 5000}, {"type": "cost", "threshold": 0.01}]},
        {"vars": {"q": "b"}, "assert": [{"type": "latency", "threshold": 250}, {"type": "factuality", "value": "4"}]},
    )

    assert first.extra[CRITERIA] == {"invocation_duration_v1": 5.0, "cost": 0.01}
    assert second.extra[CRITERIA] == {"invocation_duration_v1": 0.25, "final_response_match_v2": 1.0}
    assert second.turns[0].expected.reference == "4"


UNJUDGED: dict[str, dict[str, Any]] = {
    "code": {"type": "javascript", "value": "output.length < 5"},
    "python": {"type": "python", "value": "file://check.py"},
    "an address": {"type": "webhook", "value": "http://127.0.0.1/check"},
    "embeddings": {"type": "similar", "value": "x"},
    "another judge": {"type": "llm-rubric", "value": "Kind.", "provider": "openai:gpt-5"},
    "a changed answer": {"type": "contains", "value": "x", "transform": "output.text"},
    "a file": {"type": "contains-all", "value": "file://words.txt"},
    "some of a set": {"type": "assert-set", "threshold": 0.5, "assert": [{"type": "contains", "value": "x"}]},
    "a template": {"type": "contains", "value": "{{ q | upper }}"},
    "another variable": {"type": "contains", "value": "{{ env.KEY }}"},
    "a wild card": {"type": "trajectory:tool-used", "value": {"pattern": "find*"}},
    "a broken pattern": {"type": "regex", "value": "("},
    "two references": {"type": "equals", "value": "other"},
    "no type": {"value": 3},
}


@pytest.mark.parametrize("assertion", UNJUDGED.values(), ids=UNJUDGED)
def test_an_assertion_without_a_metric_is_named_and_the_case_waits_for_a_person(assertion: dict[str, Any]) -> None:
    imported = _config(tests=[{"vars": {"q": "hi"}, "assert": [{"type": "equals", "value": "yes"}, assertion]}])
    assert imported.evalset
    (case,) = imported.evalset.cases

    assert NEEDS_REVIEW in case.tags
    assert "no metric here judges its assertion" in str(case.extra[REVIEW_REASON])
    assert case.extra["assert"] == [{"type": "equals", "value": "yes"}, assertion]  # nothing of the file is lost
    assert any("which no metric here judges" in words for words in imported.refused)


def test_a_test_without_an_assertion_is_judged_by_no_criterion_of_another() -> None:
    evalset = _config(
        tests=[{"vars": {"q": "a"}, "assert": [{"type": "contains", "value": "x"}]}, {"vars": {"q": "b"}}]
    ).evalset
    assert evalset
    criteria = criteria_of_set(evalset)
    assert criteria

    record = TurnRecord("b", _events("b", "no"))
    scores = asyncio.run(grade_trial(Transcript((record,)), evalset.cases[1], criteria)).scores

    assert [score.is_applicable for score in scores] == [False, False]


def test_defaults_lists_of_variables_templates_and_scenarios_make_the_tests() -> None:
    imported = _read(
        """
# tests of a shop
prompts:
  - id: file://prompt.txt
  - '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{q}} in {{place.name}}"}]'
  - another {{q}}
targets: [echo]
defaultTest:
  vars: {place: {name: Graz}}
  assert: [{type: not-contains, value: sorry}]
assertionTemplates:
  polite: {type: icontains, value: please}
tests:
  - description: trains
    vars: {q: [Trains, Trams]}
    assert:
      - $ref: '#/assertionTemplates/polite'
  - file://more.csv
scenarios:
  - config: [{vars: {q: Buses}}, {vars: {q: Bikes}}]
    tests: [{description: rides, vars: {place: {name: Linz}}}]
evaluateOptions: {repeat: 3}
"""
    )
    assert imported.evalset

    assert [(case.id, case.turns[0].query) for case in imported.evalset.cases] == [
        ("trains", "Trains in Graz"),
        ("trains (2)", "Trams in Graz"),
        ("rides", "Buses in Linz"),
        ("rides (2)", "Bikes in Linz"),
    ]
    assert {tuple(own_bars(case)) for case in imported.evalset.cases} == {
        ("response_regex/not-contains", "required_outputs"),
        ("response_regex/not-contains",),
    }
    words = " ".join(imported.refused)
    for part in ("a prompt in another file", "a further prompt", "tests in another file", "evaluateOptions"):
        assert part in words


def test_without_a_prompt_the_message_is_the_usual_variable() -> None:
    (usual,) = _cases({"vars": {"name": "Eva", "question": "Where?"}}, prompts=["file://p.txt"])
    (other,) = _cases({"vars": {"name": "Eva", "town": "Graz"}}, prompts=["{% if a %}x{% endif %}"])
    (none,) = _cases({"assert": [{"type": "contains", "value": "x"}]}, prompts=["file://p.txt"])

    assert (usual.turns[0].query, usual.tags) == ("Where?", ())
    assert (other.turns[0].query, other.extra[REVIEW_REASON]) == (
        "Eva",
        "its message is the variable 'name', since no prompt is known",
    )
    assert none.extra[REVIEW_REASON] == "its message is not in the file"


def test_a_file_of_tests_alone_is_known_by_its_variables() -> None:
    imported = _read("- description: one\n  vars:\n    question: Where?\n  assert:\n    - {type: contains, value: x}\n")

    assert imported.evalset
    assert [case.turns[0].query for case in imported.evalset.cases] == ["Where?"]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("tests: [1]\n", "a.yaml"),
        ("prompts: []\nproviders: []\n", "a.yml"),
        ("- question: Where?\n  answer: There.\n", "rows.yaml"),
        ("services:\n  web:\n    image: tests\n", "compose.yaml"),
        ('{"tests": [{"name": "x"}]}', "a.json"),
    ],
)
def test_yaml_of_another_shape_is_no_configuration(text: str, source: str) -> None:
    assert recognised(text.encode(), source) is None


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"tests": "file://tests.csv"}, "has no test of its own"),
        ({"tests": [{"vars": {"q": [*range(200)], "r": [*range(200)]}}]}, f"more than {MAX_TESTS:,} tests"),
    ],
    ids=["elsewhere", "too many"],
)
def test_a_configuration_without_tests_or_with_too_many_is_refused(own: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        _config(**own)


def test_the_criteria_of_a_set_are_bounded() -> None:
    tests = [
        {"vars": {"q": f"{n}"}, "assert": [{"type": "contains", "value": f"<{n}>"}]} for n in range(MAX_CRITERIA + 5)
    ]

    evalset = _config(tests=tests).evalset

    assert evalset
    assert len(criteria_of_set(evalset) or ()) == MAX_CRITERIA + 1  # the one that judges nothing is added once
    assert sum(NEEDS_REVIEW in case.tags for case in evalset.cases) == 5


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], [{}], {"path": "x"}, True, 1e300])
@pytest.mark.parametrize(
    "key", ["tests", "scenarios", "prompts", "defaultTest", "assertionTemplates", "vars", "assert", "options", "type"]
)
def test_odd_values_are_read_or_refused(key: str, value: Any) -> None:
    test: dict[str, Any] = {"vars": {"q": "x"}, "assert": [{"$ref": "#/a/b"}, {"type": "contains", "value": "x"}]}
    config: dict[str, Any] = {"prompts": ["{{q}}"], "tests": [test], "scenarios": [{"config": [test], "tests": [test]}]}
    (config if key in config or key in ("defaultTest", "assertionTemplates") else test)[key] = value
    if key == "type":
        test["assert"][1][key] = value

    try:
        imported = PromptfooConfig.read(json.dumps(config).encode(), source="c.json")
    except FormatError:
        return
    assert imported.evalset
    assert criteria_of_set(imported.evalset) or not imported.evalset.extra[CRITERIA]
