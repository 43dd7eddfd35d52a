"""`reported_value`: a number that the agent's own code reports: the reward of a grader, a field of a test result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from evaldesk.errors import VALUE_LIMIT
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.model import Case, JsonValue, Score, Transcript
from evaldesk.model.transcript import is_score, reported_values


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """The number at `path` in the agent's reports; true counts as 1, false as 0.

    Osmosis loops and graders report `reward`, OpenHands-style benchmarks `test_result`. A missing report, or a value
    that is no number, leaves the metric unscored.
    """

    path: str = option(
        "reward", "text", "Path", "Names separated by dots: where the number is.", example="test_result.success"
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "reported_value",
        "Reported value",
        "A number that the agent's own code reports, such as its reward.",
        low=-math.inf,
        high=math.inf,
        default_threshold=None,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        value, reason = self._find_value(transcript)
        return [Score(self.info.name, value, reason=reason)]

    def _find_value(self, transcript: Transcript) -> tuple[float | None, str]:
        values = reported_values(transcript)
        value: JsonValue = dict(values)
        for name in self.path.split("."):
            if not isinstance(value, dict) or name not in value:
                names = ", ".join(sorted(values)) or "nothing"
                return None, f"The agent reported no {self.path}; it reported {names}."
            value = value[name]
        if not (isinstance(value, bool) or is_score(value)):
            return (
                None,
                f"The agent reported {self.path}, but it is not a finite number up to 2**53: "
                f"{str(value)[:VALUE_LIMIT]!r}.",
            )
        return float(value), f"The agent reported {self.path} {value}."
