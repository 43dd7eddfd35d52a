"""`per_turn_user_simulator_quality_v1`: whether the simulated user kept to its scenario. (reference/adk.md 2.3)"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from evaldesk.metrics.judges.judge_metric import TurnJudgeMetric, vote
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView, whole_score
from evaldesk.metrics.judges.material import conversation_text, text_of_value
from evaldesk.metrics.judges.panel import Panel, Task
from evaldesk.metrics.judges.replies import Verdict
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.pinned import earlier_turns
from evaldesk.model import Case, Score, Transcript

FOLLOWS = Task(
    """
MESSAGE was written by a simulated user, who should follow PLAN in the manner of PERSONA. CONVERSATION is what was \
said before. Decide whether the message keeps to the plan: it goes on with the next open step or answers the agent, \
tells only what the plan knows, repeats nothing that is done, and stays in the user's part. Verdict yes means it does.
""",
    Verdict,
)
ENDS = Task(
    """
CONVERSATION is a whole dialogue between a simulated user, who should follow PLAN, and an agent. The user has said \
nothing after it. Decide whether that was the right moment to end: all steps of the plan are done, or the agent cannot \
help further. Verdict yes means right, no means that a step of the plan was still to be asked for.
""",
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSimulatorQuality(TurnJudgeMetric):
    """Share of turns in which the simulated user kept to its scenario.

    `stop_signal` is the user's last word, in ADK.
    """

    stop_signal: str = option(
        "</finished>", "text", "Stop signal", "What the simulated user says to end; it is cut from its messages."
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "per_turn_user_simulator_quality_v1",
        "Simulated user, judged",
        "Share of turns in which a judge finds that the simulated user kept to its scenario, as in ADK.",
        has_judge=True,
    )

    def missing(self, case: Case) -> str | None:
        """A case without a scenario has no simulated user."""
        return None if case.scenario else "The case has no scenario: its user is not simulated."

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each turn; an end at the wrong moment fails the last."""
        *turns, trial_score = await TurnJudgeMetric.score(self, transcript, case)
        if not turns or turns[-1].value != 1.0:
            return [*turns, trial_score]
        plan = text_of_value(dict(case.scenario or {}).get("conversation_plan"))
        sections = {"PLAN": plan, "CONVERSATION": conversation_text((*earlier_turns(), *transcript.turns))}
        end = await vote(self.panel(), ENDS, sections, ("right end", "wrong end"))
        if end.value != 1.0:
            turns[-1] = replace(turns[-1], value=end.value, reason=end.reason, details=end.details)
        return [*turns, whole_score(self.info.name, turns)]

    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        scenario: dict[str, Any] = dict(case.scenario or {})
        message = view.record.query.replace(self.stop_signal, "").strip() if self.stop_signal else view.record.query
        if not view.before:
            is_same = message == str(scenario.get("starting_prompt", "")).strip()
            reason = "The first message is the starting prompt." if is_same else "The first message is another."
            return Judgement(float(is_same), reason)
        sections = {
            "PLAN": text_of_value(scenario.get("conversation_plan")),
            "PERSONA": text_of_value(scenario.get("user_persona") or "(none)"),
            "CONVERSATION": conversation_text(view.before),
            "MESSAGE": message,
        }
        return await vote(panel, FOLLOWS, sections, ("in keeping", "out of keeping"))
