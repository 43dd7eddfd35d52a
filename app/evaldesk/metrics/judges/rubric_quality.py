"""ADK's rubric metrics: of the answer, of the tool use, and of the whole dialogue. (reference/adk.md 2.3)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.metrics.judges.judged_turns import TurnView, whole_score
from evaldesk.metrics.judges.material import NOTHING, answer_text, conversation_text, steps_text
from evaldesk.metrics.judges.rubric_metric import RubricMetric
from evaldesk.metrics.judges.rubrics import rubrics_for
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.turn_scores import NOT_PLAYED
from evaldesk.model import Case, Score, Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricFinalResponse(RubricMetric):
    """Share of rubrics that the answers have."""

    include_intermediate_responses_in_final: bool = option(
        False, "switch", "With messages on the way", "Judge what the agent said before its answer together with it."
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_final_response_quality_v1",
        "Response rubrics",
        "Share of rubrics that a judge finds met by the answers, as in ADK.",
        default_threshold=0.8,
        has_judge=True,
    )
    kind: ClassVar[str] = "FINAL_RESPONSE_QUALITY"
    what: ClassVar[str] = "ANSWER, the agent's answer to QUESTION,"

    def _sections(self, view: TurnView) -> Mapping[str, str]:
        answer = answer_text(view.record, with_intermediate=self.include_intermediate_responses_in_final)
        return {
            "EARLIER CONVERSATION": conversation_text(view.before),
            "QUESTION": view.record.query,
            "TOOL CALLS": steps_text(view.record),
            "ANSWER": answer or NOTHING,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricToolUse(RubricMetric):
    """Share of rubrics that the tool calls have."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_tool_use_quality_v1",
        "Tool use rubrics",
        "Share of rubrics that a judge finds met by the tool calls, as in ADK.",
        default_threshold=1.0,
        has_judge=True,
    )
    kind: ClassVar[str] = "TOOL_USE_QUALITY"
    what: ClassVar[str] = "the agent's use of tools for QUESTION, in TOOL CALLS,"

    def _sections(self, view: TurnView) -> Mapping[str, str]:
        return {
            "EARLIER CONVERSATION": conversation_text(view.before),
            "QUESTION": view.record.query,
            "TOOL CALLS": steps_text(view.record),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricTrajectory(RubricMetric):
    """Share of rubrics that the whole dialogue has, judged once, at its last turn."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_multi_turn_trajectory_quality_v1",
        "Dialogue rubrics",
        "Share of rubrics that a judge finds met by the whole dialogue, as in ADK.",
        default_threshold=0.7,
        has_judge=True,
    )
    kind: ClassVar[str] = "TRAJECTORY_QUALITY"
    what: ClassVar[str] = "the agent's part in CONVERSATION, as a whole,"

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The score of the last turn, and that of the trial, which is the same."""
        last = len(transcript.turns) - 1
        if last < 0 or last + 1 < len(case.turns):
            return [Score(self.info.name, 0.0, reason=NOT_PLAYED)]
        turn = case.turns[-1] if case.turns else None
        rubrics = rubrics_for(self.rubrics, case, turn, self.kind)
        sections = {"CONVERSATION": conversation_text(transcript.turns, with_steps=True)}
        found = await self._judge(self.panel(), rubrics, sections)
        score = Score(self.info.name, found.value, last, reason=found.reason, details=found.details)
        return [score, replace(whole_score(self.info.name, [score]))]

    def missing(self, case: Case) -> str | None:
        """Why the case cannot be judged; only the rubrics of the last turn count."""
        last = replace(case, turns=case.turns[-1:])
        return RubricMetric.missing(self, last)
