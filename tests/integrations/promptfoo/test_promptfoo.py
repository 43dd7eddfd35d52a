"""Results of promptfoo: repeats, several providers, errors, conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.integrations.promptfoo.results import Promptfoo
from evaldesk.model import Criterion, RecordedPlan, ToolCall

WHOLE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "formats/exchange_samples/promptfoo.json").read_bytes())
FIRST: dict[str, Any] = WHOLE["results"]["results"][0]


def _read(*rows: dict[str, Any]) -> Imported:
    numbered = [{**row, "testIdx": number} for number, row in enumerate(rows)]
    data = json.dumps({**WHOLE, "results": {**WHOLE["results"], "results": numbered}}).encode()
    assert Promptfoo.recognises(data, "r.json")
    return Promptfoo.read(data, source="r.json")


def test_repeats_of_a_test_are_trials_of_one_case() -> None:
    (run,) = _read(*WHOLE["results"]["results"]).runs

    (case,), (first, second) = run.cases, run.results
    assert (case.id, case.turns[0].query, case.turns[0].expected.reference) == ("sums", "What is 2+2?", "4")
    assert case.rubrics == ({"rubric_id": "assert_2", "rubric_content": {"text_property": "Is brief."}},)
    assert case.extra == {"vars": {"q": "2+2"}, "assert": FIRST["testCase"]["assert"], "metadata": {"level": 1}}
    assert [(one.trial_index, one.verdict) for one in run.results] == [(0, "passed"), (1, "failed")]
    assert (second.scores[0].reason, second.transcript.turns[0].answer) == ("Expected 4", "5")
    assert (first.tokens, first.cost, first.duration_ms) == (12, 0.001, 120.0)
    assert run.criteria == (
        Criterion("promptfoo", 1.0),
        *(Criterion(name) for name in ("score", "brevity", "equals", "llm-rubric")),
    )


def test_each_prompt_and_provider_is_a_run() -> None:
    other = {**FIRST, "provider": {"id": "demo:n"}, "success": False}

    found = _read(FIRST, other)

    assert [(run.name, run.agent) for run in found.runs] == [("r demo:m", "demo:m"), ("r demo:n", "demo:n")]
    assert [run.results[0].verdict for run in found.runs] == ["passed", "failed"]
    assert "2 runs, one for each prompt and provider; the eval set is that of the first." in found.understood


def test_an_error_of_the_provider_is_no_failure() -> None:
    broken = {**FIRST, "success": False, "failureReason": 2, "error": "rate limited", "response": None}
    failed = {**FIRST, "success": False, "failureReason": 1, "error": "Expected 4"}

    first, second = _read(broken, failed).runs[0].results

    assert (first.verdict, first.error and first.error.message, first.scores) == ("errored", "rate limited", ())
    assert second.verdict == "failed"


def test_a_prompt_of_messages_and_an_answer_of_calls() -> None:
    prompt = json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Roll."}])
    calls = [{"id": "1", "type": "function", "function": {"name": "roll", "arguments": '{"sides": 6}'}}]
    row = {**FIRST, "prompt": {"raw": prompt, "label": "p"}, "response": {"output": calls}}

    (run,) = _read(row).runs

    (turn,) = run.results[0].transcript.turns
    assert (turn.query, turn.tool_calls) == ("Roll.", (ToolCall("roll", {"sides": 6}, "1"),))
    assert run.cases[0].turns[0].query == "Roll."


def test_a_conversation_that_the_provider_recorded_is_the_transcript() -> None:
    spoken = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    row = {**FIRST, "response": {"output": "d", "metadata": {"messages": spoken}}}
    odd = {**FIRST, "response": {"output": "d", "metadata": {"messages": [{"role": "wizard"}]}}}

    found = _read(row, odd)

    first, second = (result.transcript.turns for result in found.runs[0].results)
    assert [turn.query for turn in first] == ["a", "c"]
    assert second[0].answer == "d"
    assert "cannot be read, at results.results[1].response.metadata.messages" in found.refused[0]


def test_tests_with_one_description_have_own_names_and_cached_answers_are_noted() -> None:
    other = {
        **FIRST,
        "testCase": {**FIRST["testCase"], "vars": {"q": "3+3"}},
        "response": {"output": "6", "cached": True},
    }

    found = _read(FIRST, other)

    assert [case.id for case in found.runs[0].cases] == ["sums", "sums (2)"]
    assert found.understood[-1] == ("1 answer came from promptfoo's cache: repeats of one answer are not independent.")


def test_rows_as_json_lines_and_as_a_bare_list_say_the_same() -> None:
    rows = WHOLE["results"]["results"]
    lines = b"\n".join(json.dumps(row).encode() for row in rows)
    old = json.dumps({"version": 2, "results": rows, "stats": {}, "table": {}}).encode()

    for data in (lines, old):
        assert Promptfoo.recognises(data, "r.jsonl")
        (run,) = Promptfoo.read(data, source="r.json").runs
        assert (run.cases, run.results) == (_read(*rows).runs[0].cases, _read(*rows).runs[0].results)
        assert run.plan == RecordedPlan()  # neither has statistics


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"evalId": "e", "results": {"results": []}}', "the file has no results"),
        (b'{"evalId": "e", "results": {"results": [3]}}', "results.results[0]: expected an object, got the number 3"),
        (b'{"evalId": "e", "results": 3}', "results: expected a list, got the number 3"),
    ],
)
def test_a_file_without_rows_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        Promptfoo.read(data, source="r.json")

    assert said in str(caught.value)
