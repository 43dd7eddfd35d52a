"""The scripted judge as any other model: through LiteLLM, with its usage on the trial's account."""

from __future__ import annotations

from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.metrics import grade_trial
from evaldesk.metrics.judges.replies import Properties, ReplyError, read_reply
from evaldesk.model import Case, Criterion, Event, Expected, Transcript, Turn, TurnRecord


@pytest.mark.anyio
async def test_a_judge_is_asked_through_litellm() -> None:
    case = Case("c", (Turn("q", Expected(reference="You rolled 12.")),))
    played = Transcript((TurnRecord("q", (Event("agent_message", text="You rolled a 12."),)),))
    criterion = Criterion("final_response_match_v2", 0.8, {"judge_model": "demo/judge", "num_samples": 2})

    grading = await grade_trial(played, case, [criterion])

    assert [score.value for score in grading.scores] == [1.0, 1.0]
    assert [(usage.model, usage.role, usage.cost) for usage in grading.usages] == [("demo/judge", "judge", 0.0)] * 2
    assert all(usage.tokens_in > 100 for usage in grading.usages)


@pytest.mark.anyio
async def test_a_judge_that_does_not_exist_is_an_error() -> None:
    case = Case("c", (Turn("q", Expected(reference="a")),))
    played = Transcript((TurnRecord("q", (Event("agent_message", text="a"),)),))

    (score,) = (
        await grade_trial(played, case, [Criterion("final_response_match_v2", 0.8, {"judge_model": "demo/judgee"})])
    ).scores

    assert score.error is not None
    assert score.error.kind == "unknown_model"


def test_lines_in_the_form_of_adks_judge_are_no_verdict_here() -> None:
    """ADK takes a reply apart by patterns; here a judge is asked for JSON, and anything else gives no verdict."""
    rows: Any = golden("adk_metrics")["rubrics"]["parse"]
    assert len(rows) == 4

    for row in rows:
        with pytest.raises(ReplyError, match="contains no JSON object"):
            read_reply(row["judge_text"], Properties)
