"""`rubric_score`: judges grade the answer by a rubric in free words, on any scale. (reference/osmosis.md 2.2)"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from evaldesk.errors import UsageError
from evaldesk.metrics.judges.judge_metric import JudgeMetric, TurnJudgeMetric, grade
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView
from evaldesk.metrics.judges.material import answer_text
from evaldesk.metrics.judges.panel import Panel, Task
from evaldesk.metrics.judges.replies import Points, ReplyError
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.model import Case

_INSTRUCTION = """
Grade ANSWER, what an agent said, by RUBRIC and by nothing else, with a number from {low:g} (worst) to {high:g} \
(best); fractions are fine. Other sections, where there are any, are what the answer is to be judged beside.
"""

_FIELD = re.compile(r"\{\{\s*([\w-]+(?:\.[\w-]+)*)\s*\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricScore(TurnJudgeMetric):
    """Mean grade of the answers by `rubric`, as a share of the way from `score_min` to `score_max`."""

    rubric: str = option(
        "",
        "long_text",
        "Rubric",
        "What a good answer is, in free words; {{item.answer}} stands for a value of the case's extra fields.",
        example="Polite, correct, and no longer than two sentences.",
    )
    score_min: float = option(0.0, "number", "Worst grade", "The lowest number a judge may give.")
    score_max: float = option(1.0, "number", "Best grade", "The highest number a judge may give.")

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_score",
        "Rubric, graded",
        "How well a judge finds the answers by a rubric in free words, 0 to 1.",
        default_threshold=0.7,
        has_judge=True,
        required=("rubric",),
    )

    def __post_init__(self) -> None:
        JudgeMetric.__post_init__(self)
        check_scale(self.score_min, self.score_max)

    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        answer = answer_text(view.record)
        if not answer:
            return Judgement(0.0, "The agent gave no answer.")
        low, high, sections = self.score_min, self.score_max, view.sections(answer)
        sections["RUBRIC"] = fill_fields(self.rubric, case.extra)
        return await grade(panel, points_task(low, high), sections, low, high)


def fill_fields(text: str, fields: Mapping[str, Any]) -> str:
    """The text with `{{a.b}}` as the value of `fields` at that path; where there is none, it stays as it is."""

    def put(match: re.Match[str]) -> str:
        value: Any = fields
        for name in match[1].split("."):
            if not isinstance(value, Mapping) or name not in value:
                return match[0]
            value = value[name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _FIELD.sub(put, text)


def points_task(low: float, high: float, instructions: str = "") -> Task[Points]:
    """The question for a number between `low` and `high`; `instructions` come first."""

    def check(answer: Points) -> None:
        if not math.isfinite(answer.score) or not low <= answer.score <= high:
            raise ReplyError(f"the grade {answer.score:g} is not between {low:g} and {high:g}")

    return Task(f"{instructions}\n{_INSTRUCTION.format(low=low, high=high)}", Points, check)


def check_scale(low: float, high: float) -> None:
    """Raise UsageError unless the grades lie between two finite numbers, the lower first."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"score_min must lie under score_max, got {low:g} and {high:g}", field="score_max")
