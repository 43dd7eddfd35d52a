"""`required_calls`: calls that the agent must make somewhere in the conversation. (tau2's reward basis ACTION)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaldesk.matching import required_calls
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, JsonObject, Score, Transcript

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class RequiredCalls:
    """Share of the required calls that the agent makes, in any turn, in any order and beside other calls.

    A case brings them under `required_calls`, or under `evaluation_criteria.actions` of tau2 where `reward_basis` has
    ACTION. One call may be each of several required ones that it is like, as in tau2.
    """

    info: ClassVar[MetricInfo] = MetricInfo(
        "required_calls",
        "Required calls",
        "Share of the required calls that the agent makes in the conversation.",
        reads_calls=True,
    )

    def missing(self, case: Case) -> str | None:
        """A case without a list of its own has nothing to judge."""
        return None if required_calls(case) is not None else "The case does not say which calls are required."

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        calls = required_calls(case) or ()
        if len(transcript.turns) < len(case.turns):
            return [Score(self.info.name, 0.0, reason=f"Turn {len(transcript.turns) + 1} was never played.")]
        if not calls:
            return [Score(self.info.name, 1.0, reason="No call is required.")]
        actual_calls = [call for turn in transcript.turns for call in turn.judged_calls]
        unmade = [each.name for each in calls if not any(map(each.is_made_by, actual_calls))]
        n_made = len(calls) - len(unmade)
        reason = part_of(n_made, len(calls), "required call", "is made", "are made")
        names = ", ".join(unmade[:_MOST_NAMED])
        more = f" and {len(unmade) - _MOST_NAMED} more" if unmade[_MOST_NAMED:] else ""
        reason += f"; not made: {names}{more}." if unmade else "."
        details: JsonObject = {"n_expected": len(calls), "n_given": len(actual_calls), "unmade": [*unmade]}
        return [Score(self.info.name, n_made / len(calls), reason=reason, details=details)]
