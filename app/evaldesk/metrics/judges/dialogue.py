"""Metrics that one question about the whole dialogue answers: task success, quality of the way, use of tools.

ADK has them from Vertex; here any judge answers them. (reference/adk.md 2.2)
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from evaldesk.metrics.judges.judge_metric import JudgeMetric, grade, vote
from evaldesk.metrics.judges.judged_turns import Judgement
from evaldesk.metrics.judges.material import conversation_text, earlier_section
from evaldesk.metrics.judges.panel import Panel, Task
from evaldesk.metrics.judges.replies import Rating, Verdict
from evaldesk.metrics.metric import NOT_PLAYED, MetricInfo
from evaldesk.model import Case, Score, Transcript

SUCCESS = Task(
    """
CONVERSATION is a whole dialogue between a user and an agent, with the agent's tool calls and their results. Work out \
what the user wanted, then decide whether at the end all of it is reached, as the tool results show, and not only \
announced or claimed. Verdict yes means reached, no means not or only in part.
""",
    Verdict,
)
TRAJECTORY = Task(
    """
CONVERSATION is a whole dialogue between a user and an agent, with the agent's tool calls and their results. Grade the \
way the agent went: whether each step follows from what was known, helps what the user wants, and repeats nothing \
without need. 5: no step could be better. 3: it arrives, by detours. 1: it goes wrong.
""",
    Rating,
)
TOOL_USE = Task(
    """
CONVERSATION is a whole dialogue between a user and an agent, with the agent's tool calls and their results. Grade \
the use of tools: whether the right ones are called, with right arguments, no more often than needed, and whether what \
they gave is used truly. Where no tool was needed and none was called, grade 5. 5: flawless. 3: useful, with mistakes. \
1: useless or harmful.
""",
    Rating,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DialogueMetric(JudgeMetric):
    """One judgement of the whole dialogue."""

    info: ClassVar[MetricInfo]

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The score of the trial, and the same for its last turn, which is where ADK puts it."""
        last = len(transcript.turns) - 1
        if last < 0 or last + 1 < len(case.turns):
            return [Score(self.info.name, 0.0, reason=NOT_PLAYED)]
        judgement = await self._judge(
            self.panel(), earlier_section() | {"CONVERSATION": conversation_text(transcript.turns, with_steps=True)}
        )
        return [
            Score(self.info.name, judgement.value, turn, reason=judgement.reason, details=judgement.details)
            for turn in (last, None)
        ]

    @abstractmethod
    async def _judge(self, panel: Panel, sections: dict[str, str]) -> Judgement:
        """The panel's verdict on the dialogue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DialogueGrade(_DialogueMetric):
    """The grade of the whole dialogue, as a share."""

    task: ClassVar[Task[Rating]]

    async def _judge(self, panel: Panel, sections: dict[str, str]) -> Judgement:
        return await grade(panel, self.task, sections, 1, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSuccess(_DialogueMetric):
    """1 where most judges find that the user got all that was wanted."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "multi_turn_task_success_v1",
        "Task success, judged",
        "Whether a judge finds that the whole dialogue reached the user's goal.",
        has_judge=True,
    )

    async def _judge(self, panel: Panel, sections: dict[str, str]) -> Judgement:
        return await vote(panel, SUCCESS, sections, ("reached", "not reached"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryQuality(_DialogueGrade):
    """The grade of the way the agent went through the whole dialogue, as a share."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "multi_turn_trajectory_quality_v1",
        "Dialogue, graded",
        "How well a judge finds the agent's steps through the whole dialogue, 0 to 1.",
        default_threshold=0.7,
        has_judge=True,
        reads_calls=True,
    )
    task: ClassVar[Task[Rating]] = TRAJECTORY


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUseQuality(_DialogueGrade):
    """The grade of the tool use in the whole dialogue, as a share."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "multi_turn_tool_use_quality_v1",
        "Tool use, graded",
        "How well a judge finds the use of tools in the whole dialogue, 0 to 1.",
        default_threshold=0.7,
        has_judge=True,
        reads_calls=True,
    )
    task: ClassVar[Task[Rating]] = TOOL_USE
