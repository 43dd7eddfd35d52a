"""Judges beside ADK's own: options, labels, votes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, check_criteria
from evaldesk.metrics.judges.judged_turns import whole_score
from evaldesk.metrics.judges.replies import ReplyError, Validity, read_reply
from evaldesk.metrics.judges.rubrics.sources import normalise
from evaldesk.metrics.judges.voting import by_rubric, count, mean_of
from evaldesk.model import Criterion, Score

from .judged import FINAL, JUDGES

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"judge_model_options": {"nope": 1}}, "judge_model_options", "no option of judge_model_options named 'nope'"),
        ({"judge_model_options": {"num_sample": 1}}, "judge_model_options", "did you mean 'num_samples'?"),
        ({"judge_model_options": {"num_samples": 0}}, "judge_model_options", "num_samples must be 1 to 100, got 0"),
        ({"judge_model_options": {"judge_model": "a", "judge_models": ["b"]}}, "judge_model_options", "not both"),
        ({"judge_model_options": {"judge_model_config": {"temprature": 1}}}, "judge_model_options", "'temperature'"),
        ({"num_samples": 0}, "num_samples", "num_samples must be 1 to 100"),
        ({"rubrics": [{"rubric_id": "a"}]}, "rubrics", "rubric 1 says nothing"),
        ({"rubrics": "short"}, "rubrics", "Expected `array`"),
    ],
)
def test_a_wrong_option_of_a_judge_is_refused(options: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_criteria([Criterion(FINAL, 0.5, options)])

    assert caught.value.field == f"{FINAL}.{field}"


DEPARTURES = {
    '{"is_the_agent_response_valid": [valid]}': "ADK reads it by a pattern; it is no JSON, so it gives no verdict here",
    '{"is_the_agent_response_invalid": "true"}': "ADK has a second key for the opposite; nobody asks for it here",
}


def test_labels_are_read_as_adk_reads_them() -> None:
    rows = golden("adk_metrics")["judge_labels"]
    assert len(rows) == 8

    for row in rows:
        try:
            found = "VALID" if read_reply(row["judge_text"], Validity).vote else "INVALID"
        except ReplyError:
            found = "NOT_FOUND"
        assert (found == row["adk_label"]) is (row["judge_text"] not in DEPARTURES), row


def test_votes_are_counted_as_adk_counts_them() -> None:
    for row in golden("adk_metrics")["judge_votes"]:
        if "samples_of_one_turn" in row:
            assert count(row["samples_of_one_turn"]).value == row["adk_turn_score"], row
            continue
        turns = [Score("m", value, index) for index, value in enumerate(row["turn_scores"])]
        whole = whole_score("m", turns)
        adk = whole.details["adk_value"] if whole.value is None else whole.value
        assert adk == row["adk_case_score"]
        assert (whole.value is None) is (None in row["turn_scores"])


def test_rubrics_are_counted_as_adk_counts_them() -> None:
    rubrics = golden("adk_metrics")["rubrics"]

    for row in rubrics["majority"]:
        votes = by_rubric(row["samples"])
        assert {name: found.value for name, found in votes.items()} == row["adk"]["rubrics"]
        assert mean_of(found.value for found in votes.values()) == row["adk"]["score"]
    for row in rubrics["mean"]:
        values = [value for turn in row["turns"] for value in turn.values()]
        assert mean_of(values) == row["adk"]["score"]
        names = dict.fromkeys(name for turn in row["turns"] for name in turn)
        means = {name: mean_of(turn.get(name) for turn in row["turns"]) for name in names}
        assert means == row["adk"]["rubrics"]


def test_texts_of_rubrics_are_compared_as_adk_compares_them() -> None:
    for row in golden("adk_metrics")["rubrics"]["normalise"]:
        assert normalise(row["text"]) == row["adk"]


def test_judges_are_built_without_asking_anybody() -> None:
    for name in JUDGES:
        assert build_metric(Criterion(name)).info.has_judge
