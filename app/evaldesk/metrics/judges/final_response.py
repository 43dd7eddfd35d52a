"""`final_response_match_v2`: judges decide whether the answer agrees with the reference. (reference/adk.md 2.3)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaldesk.metrics.judges.judge_metric import TurnJudgeMetric, vote
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView
from evaldesk.metrics.judges.material import answer_text
from evaldesk.metrics.judges.panel import Panel, Task
from evaldesk.metrics.judges.replies import Validity
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.model import Case

TASK = Task(
    """
The user asked the QUESTION. REFERENCE is an answer known to be right. Decide whether ANSWER, the agent's answer, is \
valid: whether it gives the user everything that the reference gives, and nothing that contradicts it. Other words, \
another order, another format and further true details are valid. A missing or different fact, number, name, unit or \
entity is invalid, and so is an answer that only announces what it will do.
""",
    Validity,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalResponseMatch(TurnJudgeMetric):
    """Share of turns whose answer most judges find valid beside its reference."""

    include_intermediate_responses_in_final: bool = option(
        False, "switch", "With messages on the way", "Judge the messages before the answer together with it."
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "final_response_match_v2",
        "Response, judged",
        "Share of turns whose answer a judge finds as good as the reference, as in ADK.",
        needs="reference",
        default_threshold=0.8,
        has_judge=True,
    )

    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        answer = answer_text(view.record, with_intermediate=self.include_intermediate_responses_in_final)
        if not answer:
            return Judgement(0.0, "The agent gave no answer.")
        return await vote(panel, TASK, view.sections(answer), ("valid", "invalid"))
