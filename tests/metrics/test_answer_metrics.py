"""Answers judged by themselves: patterns, JSON schemas, required outputs."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, missing_reasons, score_trial
from evaldesk.model import Case, Criterion, Event, Score, Transcript, Turn, TurnRecord


def answered(*answers: str, n_turns: int | None = None, extra: Any = None, metric: str, **options: Any) -> list[Score]:
    records = tuple(TurnRecord("q", (Event("agent_message", text=answer),)) for answer in answers)
    case = Case("c", tuple(Turn("q") for _ in range(n_turns or len(answers))), extra=extra or {})
    return list(score_trial(Transcript(records), case, [Criterion(metric, 1.0, options)]))


@pytest.mark.parametrize(
    ("answer", "options", "value", "reason"),
    [
        ("Order 123456 is on its way.", {}, 1.0, "The pattern is found in the answer."),
        ("Order 12 is on its way.", {}, 0.0, "The pattern is not found in the answer."),
        ("order 123456", {"pattern": r"(?i)ORDER \d+"}, 1.0, "The pattern is found in the answer."),
        ("123456\n", {"want": "whole"}, 1.0, "The pattern matches the whole answer."),
        ("no. 123456", {"want": "whole"}, 0.0, "The pattern does not match the whole answer."),
        ("Hello", {"want": "absent"}, 1.0, "The pattern is not found in the answer."),
        ("Your key is 123456", {"want": "absent"}, 0.0, "The pattern is found in the answer."),
        (" ", {"want": "absent"}, 0.0, "The agent gave no answer."),
    ],
)
def test_patterns(answer: str, options: dict[str, Any], value: float, reason: str) -> None:
    score = answered(answer, metric="response_regex", **{"pattern": r"\d{6}", **options})[0]

    assert (score.value, score.reason) == (value, reason)


def test_each_answer_counts_or_the_last() -> None:
    each = answered("no", "yes", metric="response_regex", pattern="yes")
    last = answered("no", "yes", metric="response_regex", pattern="yes", turns="last")
    cut = answered("yes", n_turns=2, metric="response_regex", pattern="yes", turns="last")

    assert [(score.turn, score.value) for score in each] == [(0, 0.0), (1, 1.0), (None, 0.5)]
    assert [(score.turn, score.value) for score in last] == [(1, 1.0), (None, 1.0)]
    assert (cut[-1].value, cut[-1].reason) == (0.0, "This turn was never played.")


@pytest.mark.parametrize(
    ("answer", "metric", "options"),
    [
        ('"{}"', "response_regex", {"pattern": "(x+x+)+y"}),
        ('"{}"', "response_json_schema", {"schema": {"type": "string", "pattern": "(x+x+)+y"}}),
        ('{{"{}": 1}}', "response_json_schema", {"schema": {"patternProperties": {"(x+x+)+y": False}}}),
        (
            '{{"{}": 1}}',
            "response_json_schema",
            {"schema": {"additionalProperties": False, "patternProperties": {"(x+x+)+y": True}}},
        ),
    ],
)
def test_a_pattern_that_takes_ages_is_an_error(
    answer: str, metric: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.matching.tolerance.LIMIT_S", 0.05)

    (score,) = answered(answer.format("x" * 30_000), metric=metric, **options)

    assert score.verdict == "errored"
    assert "takes more than 0.05 s on this text" in score.reason


SCHEMA = {
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "number"}, "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "$defs": {"item": {"type": "object", "properties": {"a/b": {"type": "string", "pattern": "^x"}}}},
}


@pytest.mark.parametrize(
    ("answer", "value", "reason"),
    [
        ('{"total": 3, "items": [{"a/b": "xy"}]}', 1.0, "The answer matches the schema."),
        ('```json\n{"total": 3}\n```', 1.0, "The answer matches the schema."),
        ("{}", 0.0, "At the top: 'total' is a required property."),
        ('{"total": "3"}', 0.0, "At /total: '3' is not of type 'number'."),
        ('{"total": true}', 0.0, "At /total: True is not of type 'number'."),
        ('{"total": 1, "items": [{}, {"a/b": "y"}]}', 0.0, "At /items/1/a~1b: 'y' does not match '^x'."),
        ('{"total": "3", "items": 1}', 0.0, "At /items: 1 is not of type 'array', and 1 more."),
        ("three", 0.0, "The answer is not JSON: Expecting value: line 1 column 1 (char 0)."),
        ("", 0.0, "The agent gave no answer."),
    ],
)
def test_json_schema(answer: str, value: float, reason: str) -> None:
    score = answered(answer, metric="response_json_schema", schema=SCHEMA)[0]

    assert (score.value, score.reason) == (value, reason)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"n_a": 1, "name": "x"}', "The answer matches the schema."),
        ('{"n_a": "1"}', "At /n_a: '1' is not of type 'number'."),
        ('{"b": 1}', "At the top: Additional properties are not allowed ('b' was unexpected)."),
    ],
)
@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-04/schema#", ""])
def test_a_schema_may_name_properties_by_pattern(answer: str, reason: str, draft: str) -> None:
    schema: dict[str, Any] = {"additionalProperties": False, "patternProperties": {"^n_": {"type": "number"}}}
    schema |= {"properties": {"name": {}}} | ({"$schema": draft} if draft else {})

    assert answered(answer, metric="response_json_schema", schema=schema)[0].reason == reason


def test_a_schema_never_leads_into_the_network() -> None:
    (score,) = answered("1", metric="response_json_schema", schema={"$ref": "http://127.0.0.1:9/schema.json"})

    assert score.verdict == "errored"
    assert "refers to 'http://127.0.0.1:9/schema.json', which is not in it" in score.reason


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        ("response_regex", {"pattern": "("}, "the pattern is not a regular expression: missing )"),
        ("response_json_schema", {"schema": {"type": "nmber"}}, "this is not a JSON Schema: at type, 'nmber' is not"),
        ("response_json_schema", {"schema": []}, "Expected `object`, got `array`"),
        ("state_path", {"path": "cart"}, "'cart' is not a JSON path such as $.cart.items[0].id: expected"),
        ("state_path", {"path": "$[?search(@.a, 'x')]"}, "is not a JSON path"),
    ],
)
def test_impossible_options_are_refused(metric: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        build_metric(Criterion(metric, 1.0, options))

    assert message in str(caught.value)
    assert caught.value.field == f"{metric}.{next(iter(options))}"


@pytest.mark.parametrize(
    ("output", "answer", "token", "substring"),
    [
        pytest.param("54.04", "You get $54.04 back.", True, True, id="between-signs"),
        pytest.param("5", "It costs 5.", True, True, id="before-a-full-stop"),
        pytest.param("5", "It costs 5.50.", False, True, id="not-the-start-of-a-number"),
        pytest.param("5", "It costs 0.5 or 15 or A5.", False, True, id="not-the-end-of-a-number-or-word"),
        pytest.param("1234", "That is 1,234 in all.", True, True, id="commas-in-the-answer"),
        pytest.param("1,234", "That is 1234 in all.", True, True, id="commas-in-the-output"),
        pytest.param("Paris, France", "off to PARIS, FRANCE!", True, True, id="case"),
        pytest.param("a.c", "abc", False, False, id="no-pattern"),
        pytest.param("-5", "down to -5 degrees", True, True, id="sign"),
        pytest.param("no", "nothing", False, True, id="part-of-a-word"),
    ],
)
def test_outputs_as_tokens_and_as_substrings(output: str, answer: str, token: bool, substring: bool) -> None:
    by_match = {
        match: answered(answer, metric="required_outputs", outputs=[output], match=match)[0]
        for match in ("token", "substring")
    }

    assert (by_match["token"].value, by_match["substring"].value) == (token, substring)
    assert "as whole tokens" in by_match["token"].reason
    assert "as substrings" in by_match["substring"].reason


def test_outputs_may_be_said_in_any_turn_and_before_the_answer() -> None:
    messages = (Event("agent_message", text="It is 7."), Event("agent_message", text="So goodbye."))
    transcript = Transcript((TurnRecord("q", messages), TurnRecord("q", (Event("agent_message", text="And 8."),))))
    criterion = Criterion("required_outputs", 1.0, {"outputs": ["7", "8", "9", "10"]})

    (score,) = score_trial(transcript, Case("c", (Turn("q"), Turn("q"))), [criterion])

    assert score.value == 0.5
    assert score.reason == "2 of 4 required texts are said, as whole tokens; not said: “9”, “10”."


@pytest.mark.parametrize(
    ("extra", "value"),
    [
        ({"required_outputs": ["7"]}, 1.0),
        ({"outputs": ["7", "8"]}, 0.5),
        ({"outputs": []}, 1.0),
        ({"evaluation_criteria": {"communicate_info": ["8"]}}, 0.0),
    ],
    ids=str,
)
def test_a_case_brings_its_own_outputs(extra: dict[str, Any], value: float) -> None:
    assert answered("7", extra=extra, metric="required_outputs")[0].value == value


def test_a_case_that_requires_nothing_is_not_judged() -> None:
    (score,) = answered("7", metric="required_outputs")

    assert (score.verdict, score.reason) == ("not_applicable", "The case does not say which texts are required.")
    assert missing_reasons(Criterion("required_outputs", 1.0, {"outputs": ["7"]}), [Case("c", (Turn("q"),))]) == {}


def test_outputs_of_a_conversation_that_was_cut_short_do_not_count() -> None:
    (score,) = answered("7", n_turns=2, metric="required_outputs", outputs=["7"])

    assert (score.value, score.reason) == (0.0, "Turn 2 was never played.")
