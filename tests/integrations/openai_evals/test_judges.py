"""Judges of OpenAI Evals as criteria."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.integrations.openai_evals.judges import judge_options
from evaldesk.metrics import build_metric
from evaldesk.model import Criterion

ASK: list[Any] = [
    {"role": "system", "content": "Grade {{ sample.output_text }}."},
    {"role": "user", "content": {"type": "input_text", "text": "Compare with {{item.answer}}."}},
]


def test_a_score_model_keeps_its_scale_and_threshold() -> None:
    grader: dict[str, Any] = {
        "type": "score_model",
        "model": "o3",
        "input": ASK,
        "range": [1, 7],
        "pass_threshold": 5.5,
    }

    options: dict[str, Any] = dict(judge_options(grader))

    assert options == {
        "threshold": 0.75,
        "rubric": "Grade ANSWER.\n\nCompare with {{item.answer}}.",
        "score_min": 1,
        "score_max": 7,
        "judge_model": "openai/o3",
    }
    build_metric(Criterion("rubric_score/a", options.pop("threshold"), options))


def test_a_label_model_asks_for_a_label_that_passes() -> None:
    labels = {"labels": ["good", "bad"], "passing_labels": ["good"]}
    grader: dict[str, Any] = {"type": "label_model", "input": ASK, **labels}

    options: dict[str, Any] = dict(judge_options(grader))

    assert options["rubric"].endswith(
        'Choose one of the labels ["good", "bad"]. The grade is 1 if it is one of ["good"], and 0 otherwise.'
    )
    assert options["threshold"] == 0.5


@pytest.mark.parametrize(
    "grader",
    [
        {"type": "score_model"},
        {"type": "score_model", "input": [1, {"content": 2}]},
        {"type": "score_model", "input": ASK, "range": [1, 1]},
        {"type": "score_model", "input": ASK, "range": [None, "b"]},
        {"type": "label_model", "input": ASK, "labels": ["good"]},
    ],
    ids=["nothing", "broken", "no span", "no numbers", "no label passes"],
)
def test_a_judge_without_a_text_or_a_scale_gives_no_criterion(grader: dict[str, Any]) -> None:
    assert judge_options(grader) == {}
