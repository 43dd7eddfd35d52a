"""Result files of `adk eval` become runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file, recognised, write_file
from evaldesk.model import ErrorRecord, TrialResult
from evaldesk.transcripts.recorded import RecordedRun

SAMPLE = Path(__file__).parent / "exchange_samples" / "adk-results.evalset_result.json"


def recorded(data: bytes) -> RecordedRun:
    imported = read_file(data, "dice.evalset_result.json")
    assert imported.evalset is None
    return imported.runs[0]


def test_a_case_that_is_there_twice_has_two_trials() -> None:
    run = recorded(SAMPLE.read_bytes())

    assert [case.id for case in run.cases] == ["roll", "crashed"]
    assert [(trial.case_index, trial.trial_index, trial.verdict) for trial in run.results] == [
        (0, 0, "passed"),
        (0, 1, "failed"),
        (1, 0, "failed"),
    ]
    assert (run.name, run.agent) == ("dice", "dice_agent")


def test_expected_and_actual_stand_side_by_side() -> None:
    run = recorded(SAMPLE.read_bytes())

    turn, record = run.cases[0].turns[0], run.results[0].transcript.turns[0]
    assert [call.name for call in turn.expected.tool_calls or ()] == ["roll_die"]
    assert [call.args for call in record.tool_calls] == [{"sides": 6}]
    assert (record.answer, turn.expected.reference) == ("You rolled 4.", "You rolled 4.")
    assert (run.results[0].tokens, run.results[0].cost) == (13, None)
    assert run.results[0].transcript.final_state == {"rolls": [4]}


def test_a_metric_that_only_informs_and_one_that_was_not_evaluated_have_no_verdict() -> None:
    run = recorded(SAMPLE.read_bytes())

    scores = {score.metric: score for score in run.results[0].scores if score.turn is None}
    assert scores["tool_trajectory_avg_score"].verdict == "passed"
    assert (scores["tool_call_count_v1"].value, scores["tool_call_count_v1"].passed) == (1.0, None)
    assert (scores["hallucinations_v1"].verdict, scores["hallucinations_v1"].threshold) == ("unscored", 0.5)
    assert scores["rubric_based_final_response_quality_v1"].reason == "It is short."
    thresholds = {criterion.metric: criterion.threshold for criterion in run.criteria}
    assert thresholds["tool_call_count_v1"] is None
    assert thresholds["tool_trajectory_avg_score"] == 1.0


def test_results_that_are_a_string_inside_the_json_are_the_same() -> None:
    data = SAMPLE.read_bytes()

    again = json.dumps(data.decode()).encode()

    assert recognised(again, "old.evalset_result.json") == "adk-results"
    assert recorded(again) == recorded(data)


def test_the_keys_in_camel_case_mean_the_same() -> None:
    camel = SAMPLE.read_text().replace("eval_case_results", "evalCaseResults").replace("eval_status", "evalStatus")
    camel = camel.replace("actual_invocation", "actualInvocation").replace("metric_name", "metricName")

    assert recorded(camel.encode()).results == recorded(SAMPLE.read_bytes()).results


def test_an_errored_trial_is_written_as_not_evaluated() -> None:
    run = recorded(SAMPLE.read_bytes())
    error = ErrorRecord("crash", "It broke.")
    errored = RecordedRun("s", "a", run.cases[:1], (TrialResult(0, 0, 0, "errored", "errored", error=error),))

    written = json.loads(write_file(errored, "adk-results"))

    assert [result["final_eval_status"] for result in written["eval_case_results"]] == [3]


@pytest.mark.parametrize("odd", ["user_content", ["user_content"], 5])
def test_a_case_whose_only_invocation_is_no_object_is_refused_with_its_place(odd: object) -> None:
    pair = {"actual_invocation": odd}
    result = {"eval_id": "roll", "final_eval_status": 1, "eval_metric_result_per_invocation": [pair]}

    with pytest.raises(FormatError, match=r"per_invocation\[0\].actual_invocation: expected an object"):
        recorded(json.dumps({"eval_case_results": [result]}).encode())
