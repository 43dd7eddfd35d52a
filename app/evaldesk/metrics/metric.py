"""A metric: a frozen dataclass whose fields are its options, with a description of itself."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

from evaldesk.model import Case, Score, Transcript

Need: TypeAlias = Literal["tool_calls", "reference", "reference_json", "reference_number", "final_state", "nothing"]


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The description of a metric for people and forms. Scores lie in [low, high].

    `needs` is the assertion that a case must have; otherwise the metric is not applicable. `has_judge` means that a
    model judges, and costs. `required` are options without a usable default: a run without them is refused.
    """

    name: str
    title: str
    summary: str
    needs: Need = "nothing"
    low: float = 0.0
    high: float = 1.0
    is_higher_better: bool = True
    default_threshold: float | None = 1.0
    has_judge: bool = False
    required: tuple[str, ...] = ()

    def passes(self, value: float, threshold: float | None) -> bool | None:
        """Whether `value` reaches the threshold, which is inclusive; None without a threshold."""
        if threshold is None:
            return None
        return value >= threshold if self.is_higher_better else value <= threshold


class Metric(Protocol):
    """A way to score a trial.

    One that needs more than `info.needs` says has a method `missing(case)`, too: the missing assertion of the case, or
    None when the metric applies to it; and may have `missing_turn(case, turn)`, the same for one turn of such a case.
    """

    info: ClassVar[MetricInfo]

    def score(self, transcript: Transcript, case: Case) -> list[Score] | Awaitable[list[Score]]:
        """One score for the trial (`turn` None) and one for each turn that the metric judged."""
        ...
