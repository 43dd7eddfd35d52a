"""`final_state_match`: the session ends in the expected state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaldesk.matching import json_equal
from evaldesk.metrics.metric import MetricInfo
from evaldesk.model import Case, JsonObject, Score, Transcript


@dataclass(frozen=True, slots=True)
class FinalStateMatch:
    """1 when every key of the expected final state has its value at the end, else 0; other keys are free."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "final_state_match",
        "Final state",
        "Whether the session ends with the expected values in its state.",
        needs="final_state",
        default_threshold=1.0,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        if case.final_state is None:
            return [Score(self.info.name, reason="The case does not say what the final state should be.")]
        if len(transcript.turns) < len(case.turns):
            return [Score(self.info.name, 0.0, reason=f"Turn {len(transcript.turns) + 1} was never played.")]
        state = transcript.final_state
        absent = [key for key in case.final_state if key not in state]
        other = [key for key in case.final_state if key in state and not json_equal(state[key], case.final_state[key])]
        n_keys = len(case.final_state)
        n_equal = n_keys - len(absent) - len(other)
        details: JsonObject = {"n_equal": n_equal, "n_expected": n_keys, "absent": [*absent], "other": [*other]}
        reason = _reason(n_equal, absent, other)
        return [Score(self.info.name, float(n_equal == n_keys), reason=reason, details=details)]


def _reason(n_equal: int, absent: list[str], other: list[str]) -> str:
    n_keys = n_equal + len(absent) + len(other)
    if not n_keys:
        return "The expected state names no keys."
    groups = ((other, "not as expected"), (absent, "not set"))
    said = "; ".join(f"{', '.join(keys)} {word}" for keys, word in groups if keys)
    return f"{n_equal} of {n_keys} expected keys have their value at the end{': ' if said else ''}{said}."
