"""Numbers that the agent's own code reports."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.metrics.reported_value import ReportedValue
from evaldesk.model import Case, Transcript, TurnRecord
from evaldesk.model.transcript import report


def played(*values: Any) -> Transcript:
    return Transcript(tuple(TurnRecord("q", (report(value),)) for value in values))


@pytest.mark.parametrize(
    ("path", "transcript", "value"),
    [
        ("reward", played({"reward": 0.5}, {"reward": 0.75}), 0.75),
        ("reward", played({"reward": -3}), -3.0),
        ("test_result.success", played({"test_result": {"success": True}}), 1.0),
        ("test_result.success", played({"test_result": {"success": False}}), 0.0),
        ("reward", played({"reward": "NaN"}), None),
        ("reward", played({"other": 1}), None),
        ("reward.deep", played({"reward": 1}), None),
        ("reward", Transcript(), None),
    ],
)
def test_the_last_report_counts(path: str, transcript: Transcript, value: float | None) -> None:
    [score] = ReportedValue(path).score(transcript, Case("c"))

    assert score.value == value
    assert path in score.reason


def test_what_is_missing_is_said_with_what_there_is() -> None:
    [score] = ReportedValue("score").score(played({"reward": 1}), Case("c"))

    assert score.reason == "The agent reported no score; it reported reward."
