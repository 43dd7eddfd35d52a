"""The golden answers of google-adk: from their definitions, and from google-adk itself where it is installed."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations, permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rouge_score import rouge_scorer
from tests.agents.installed import skip_without
from tests.golden_values import golden

TABLE: dict[str, Any] = golden("adk_metrics")
Row = dict[str, Any]
Calls = list[list[Any]]


def status(score: float | None, threshold: float) -> str:
    return "NOT_EVALUATED" if score is None else "PASSED" if score >= threshold else "FAILED"


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def f1(reference: list[str], candidate: list[str]) -> tuple[float, float, float]:
    """Precision, recall and F of the words that both texts have, each as often as in the one that has it less often."""
    n_shared = sum(min(reference.count(word), candidate.count(word)) for word in {*reference})
    precision, recall = n_shared / max(1, len(candidate)), n_shared / max(1, len(reference))
    return precision, recall, 2 * precision * recall / (precision + recall) if n_shared else 0.0


def matches(expected: Calls, actual: Calls, order: str, is_same: Any) -> bool:
    """Whether some choice of actual calls, one for each expected call, is as the order wants; all choices are tried."""
    choices = {
        "EXACT": [tuple(actual)] if len(actual) == len(expected) else [],
        "IN_ORDER": combinations(actual, len(expected)),
        "ANY_ORDER": permutations(actual, len(expected)),
    }[order]
    return any(all(map(is_same, expected, choice)) for choice in choices)


def test_response_match_follows_from_the_words_of_both_texts() -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=True)
    for row in TABLE["response_match_score"]:
        adk = row["adk"]
        precision, recall, fmeasure = f1(adk["reference_tokens"], adk["candidate_tokens"])

        assert (adk["precision"], adk["recall"]) == (pytest.approx(precision), pytest.approx(recall)), row["id"]
        assert adk["score"] == adk["fmeasure"] == pytest.approx(fmeasure), row["id"]
        assert adk["status"] == status(adk["score"], row["threshold"])
        assert row["plain_rouge_score_f"] == scorer.score(row["reference"], row["candidate"])["rouge1"].fmeasure
        if (row["reference"] + row["candidate"]).isascii():
            assert row["plain_rouge_score_f"] == adk["fmeasure"]
            words = rouge_words(scorer, row["candidate"]), rouge_words(scorer, row["reference"])
            assert (adk["candidate_tokens"], adk["reference_tokens"]) == words
    for row in TABLE["response_match_score_turns"]:
        if "error" in row["adk"]:
            assert len(row["actual"]) != len(row["expected"])
            continue
        texts = zip(row["expected"], row["actual"], strict=True)
        check_turns(row, [f1((expected or "").split(), actual.split())[2] for expected, actual in texts])


def rouge_words(scorer: Any, text: str) -> list[str]:
    return list(scorer._tokenizer.tokenize(text))


def check_turns(row: Row, values: list[float]) -> None:
    adk, threshold = row["adk"], row["threshold"]
    assert adk["per_invocation"] == [[pytest.approx(value), status(value, threshold)] for value in values]
    assert adk["overall_score"] == (pytest.approx(fmean(values)) if values else None)
    assert adk["overall_status"] == status(adk["overall_score"], threshold)


def test_trajectories_match_where_some_choice_of_calls_does() -> None:
    for row in TABLE["tool_trajectory_avg_score"]:
        for mode, answer in row["adk"].items():
            order, _, ignore_args = mode.partition("+")
            n_compared = 1 if ignore_args else 2
            found = matches(row["expected"], row["actual"], order, lambda a, b, n=n_compared: same(a[:n], b[:n]))
            assert answer == [float(found), status(float(found), row["threshold"])], (row["id"], mode)
    for row in TABLE["tool_trajectory_turns"]:
        turns = zip(row["expected"], row["actual"], strict=True)
        check_turns(row, [float(same(expected, actual)) for expected, actual in turns])
    for row in TABLE["tool_trajectory_shapes"]:
        is_same = (row["expected_shape"] == "absent") == (row["actual_shape"] == "absent")
        check_turns({**row, "threshold": 1.0}, [float(is_same)])


def same(a: Any, b: Any) -> bool:
    """As Python compares, in which True is 1."""
    return bool(a == b)


def test_a_case_fails_with_one_metric_and_passes_with_one_where_none_fails() -> None:
    for row in TABLE["final_eval_status"]:
        known = {*row["metric_statuses"]}

        assert row["adk"] == next((each for each in ("FAILED", "PASSED") if each in known), "NOT_EVALUATED")


def test_repeated_runs_are_judged_by_the_mean_of_all_their_turns() -> None:
    for row in TABLE["agent_evaluator_pooling"]:
        values = [value for run in row["runs_of_turn_scores"] for value in run if value is not None]
        told = re.fullmatch(r"m for agent Failed\. Expected (\S+), but got (\S+)\.", "".join(row["adk_failures"]))

        if not values:
            assert "was not evaluated" in row["adk_failures"][0]
        elif fmean(values) >= row["threshold"]:
            assert row["adk_failures"] == []
        else:
            assert told
            assert [*map(float, told.groups())] == [row["threshold"], fmean(values)]


def test_votes_of_judges_go_to_the_majority_and_turns_to_the_mean() -> None:
    for row in TABLE["judge_votes"]:
        if "samples_of_one_turn" in row:
            votes = Counter(vote for vote in row["samples_of_one_turn"] if vote is not None)
            assert row["adk_turn_score"] == (max(sorted(votes), key=votes.__getitem__) if votes else None)
        else:
            whole = mean([value for value in row["turn_scores"] if value is not None])
            assert (row["adk_case_score"], row["adk_case_status"]) == (whole, status(whole, row["threshold"]))
    for name, pool in (("majority", majority), ("mean", fmean)):
        for row in TABLE["rubrics"][name]:
            parts = row["samples" if name == "majority" else "turns"]
            values = [{rubric: value for rubric, value in part.items() if value is not None} for part in parts]
            rubrics = {
                rubric: [part[rubric] for part in values if rubric in part] for part in values for rubric in part
            }
            each = {rubric: pool(of_rubric) for rubric, of_rubric in rubrics.items()}
            score = mean([*each.values()] if name == "majority" else [v for part in values for v in part.values()])
            assert row["adk"] == {"score": score, "status": status(score, row["threshold"]), "rubrics": each}


def majority(votes: list[float]) -> float:
    return float(2 * sum(votes) > len(votes))


def test_costs_of_a_case_are_the_means_over_its_turns() -> None:
    for row in TABLE["efficiency"]:
        turns = [turn.get("intermediate_data") or {} for turn in row["invocations"]]
        events = [turn.get("invocation_events", []) for turn in turns]
        parts = [[part for event in each for part in event.get("content", {}).get("parts", [])] for each in events]
        usages = [[event["usage_metadata"] for event in each if "usage_metadata" in event] for each in events]
        n_asked = [sum("usage_metadata" in each or "model_version" in each for each in turn) for turn in events]
        n_called = [
            sum("function_call" in part for part in of_turn) + len(turn.get("tool_uses", []))
            for turn, of_turn in zip(turns, parts, strict=True)
        ]
        counts: dict[str, list[Any]] = {
            "tool_call_count_v1": [float(n) for n in n_called],
            "inference_call_count_v1": [float(n) or None for n in n_asked],
            "token_usage_v1": [float(sum(use["total_token_count"] for use in turn)) or None for turn in usages],
            "invocation_duration_v1": [turn.get("duration") for turn in row["invocations"]],
        }
        for name, values in counts.items():
            adk = row["adk"][name]
            assert adk["turns"] == values, (row["id"], name)
            known = [value for value in values if value is not None]
            is_halved = name == "token_usage_v1" and known
            assert adk["overall"] == (sum(known) / len(values) if is_halved else mean(known)), (row["id"], name)


@pytest.fixture(scope="module")
def adk() -> Any:
    skip_without("google.adk")
    from google.adk.evaluation import eval_case, eval_metrics

    return eval_case, eval_metrics


def invocation(adk: Any, calls: Calls = (), answer: str | None = None) -> Any:  # type: ignore[assignment]
    from google.genai import types

    uses = [types.FunctionCall(name=name, args=args) for name, args in calls]
    return adk[0].Invocation(
        user_content=types.Content(parts=[types.Part(text="q")], role="user"),
        final_response=None if answer is None else types.Content(parts=[types.Part(text=answer)], role="model"),
        intermediate_data=adk[0].IntermediateData(tool_uses=uses),
    )


def test_google_adk_gives_the_scores(adk: Any) -> None:
    from google.adk.evaluation.final_response_match_v1 import RougeEvaluator
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator

    def scored(evaluator: Any, actual: list[Any], expected: list[Any]) -> Any:
        found = evaluator.evaluate_invocations(actual, expected)
        turns = [[turn.score, turn.eval_status.name] for turn in found.per_invocation_results]
        return found.overall_score, found.overall_eval_status.name, turns

    for name, evaluator, kind in (
        ("response_match_score", RougeEvaluator, "answer"),
        ("tool_trajectory_avg_score", TrajectoryEvaluator, "calls"),
    ):
        for row in TABLE["response_match_score_turns" if kind == "answer" else "tool_trajectory_turns"]:
            actual, expected = (
                [invocation(adk, **{kind: each}) for each in row[side]] for side in ("actual", "expected")
            )
            judge = evaluator(eval_metric=adk[1].EvalMetric(metric_name=name, threshold=row["threshold"]))
            if "error" in row["adk"]:
                with pytest.raises(ValueError, match="same length"):
                    judge.evaluate_invocations(actual, expected)
                continue
            assert scored(judge, actual, expected) == tuple(row["adk"].values()), row["id"]
    for row in TABLE["response_match_score"]:
        metric = adk[1].EvalMetric(metric_name="response_match_score", threshold=row["threshold"])
        texts = [invocation(adk, answer=row["candidate"])], [invocation(adk, answer=row["reference"])]
        assert scored(RougeEvaluator(metric), *texts)[:2] == (row["adk"]["score"], row["adk"]["status"]), row["id"]
    for row in TABLE["tool_trajectory_avg_score"]:
        for mode, answer in row["adk"].items():
            order, _, ignore_args = mode.partition("+")
            criterion = adk[1].ToolTrajectoryCriterion(
                threshold=row["threshold"], match_type=order, ignore_args=bool(ignore_args)
            )
            metric = adk[1].EvalMetric(metric_name="tool_trajectory_avg_score", criterion=criterion)
            calls = [invocation(adk, row["actual"])], [invocation(adk, row["expected"])]
            assert [*scored(TrajectoryEvaluator(eval_metric=metric), *calls)[:2]] == answer, (row["id"], mode)


def test_google_adk_reads_and_writes_the_files(adk: Any, tmp_path: Path) -> None:
    from google.adk.evaluation.eval_set import EvalSet
    from google.adk.evaluation.evaluation_generator import EvaluationGenerator
    from google.adk.evaluation.local_eval_sets_manager import (
        LocalEvalSetsManager,
        convert_eval_set_to_pydantic_schema,
    )
    from google.adk.events.event import Event
    from pydantic import ValidationError

    manager = LocalEvalSetsManager(str(tmp_path))
    for row in TABLE["eval_sets"]:
        if "error" in row["adk"]:
            with pytest.raises(ValidationError):
                EvalSet.model_validate(row["json"])
            continue
        manager._write_eval_set_to_path(str(tmp_path / "set.json"), EvalSet.model_validate(row["json"]))
        written = json.loads((tmp_path / "set.json").read_text("utf-8"))
        assert without(written, "creation_timestamp", "invocation_id") == json.loads(row["adk"]["written_file"])
    for row in TABLE["old_schema"]:
        if "error" in row["adk"]:
            with pytest.raises(KeyError):
                convert_eval_set_to_pydantic_schema("set", row["old"])
            continue
        found = convert_eval_set_to_pydantic_schema("set", row["old"]).model_dump(mode="json", exclude_none=True)
        varied = ("creation_timestamp", "invocation_id")
        assert without(found, *varied) == without(row["adk"], *varied), row["id"]
    for row in TABLE["session_to_invocations"]:
        events = [Event.model_validate(event) for event in row["events"]]
        invocations = EvaluationGenerator.convert_events_to_eval_invocations(events)
        dumped = [each.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for each in invocations]
        assert dumped == row["adk_invocations"], row["id"]


def without(value: Any, *keys: str) -> Any:
    """The JSON value without the keys, at every depth."""
    if isinstance(value, dict):
        return {key: without(each, *keys) for key, each in value.items() if key not in keys}
    return [without(each, *keys) for each in value] if isinstance(value, list) else value


def test_google_adk_chooses_cases_names_and_first_states(adk: Any, tmp_path: Path) -> None:
    from google.adk.agents import LlmAgent
    from google.adk.cli.cli_eval import parse_and_get_evals_to_run
    from google.adk.cli.utils.state import create_empty_state
    from google.adk.evaluation.local_eval_sets_manager import LocalEvalSetsManager

    for row in TABLE["selection"]:
        assert parse_and_get_evals_to_run(row["args"]) == row["adk"]
    (tmp_path / "app").mkdir()
    for row in TABLE["eval_set_id_rule"]:
        try:
            LocalEvalSetsManager(str(tmp_path)).create_eval_set("app", row["eval_set_id"])
        except ValueError:
            assert not row["adk_can_create"], row
        else:
            assert row["adk_can_create"], row
    for row in TABLE["initial_state_from_instruction"]:
        assert create_empty_state(LlmAgent(name="a", instruction=row["instruction"])) == row["adk_initial_state"]
