"""Our own trajectory metrics: strict JSON equality and maximum matching. (reference/reliability_stats.md D2)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from evaldesk.matching import Order, TrajectoryMatch, match_trajectory
from evaldesk.metrics.call_words import other_calls, same_calls
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.turn_scores import Judgement, score_turns
from evaldesk.model import Case, Expected, Score, ToolCall, Transcript, TurnRecord

_HARMLESS: Mapping[str, tuple[str, ...]] = {"exact": (), "in_order": ("+",), "any_order": ("+", "moved")}


@dataclass(frozen=True, slots=True)
class _ToolMatch:
    """Tool calls of each turn against the expected ones; `args` is how arguments are compared."""

    args: Literal["exact", "ignore", "superset", "subset"] | list[str] = "exact"

    order: ClassVar[Order] = "exact"
    part: ClassVar[Literal["score", "precision", "recall", "f1"]] = "score"
    info: ClassVar[MetricInfo]

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for each turn that asserts its calls, and their mean.

        `details.conversation` is the score of all asserted turns taken as one: right calls in a wrong turn show there.
        """
        *turns, whole = score_turns(self.info.name, transcript, case, _is_asserted, self._judge)
        return [*turns, replace(whole, details={**whole.details, "conversation": self._conversation(transcript, case)})]

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        wanted, made = expected.tool_calls or (), record.tool_calls
        match = match_trajectory(wanted, made, order=self.order, args=self.args)
        details = {
            "precision": match.precision,
            "recall": match.recall,
            "f1": match.f1,
            "n_matched": match.n_matched,
            "n_expected": len(wanted),
            "n_given": len(made),
        }
        return getattr(match, self.part), self._reason(wanted, made, match), details

    def _reason(self, wanted: Sequence[ToolCall], made: Sequence[ToolCall], match: TrajectoryMatch) -> str:
        if match.f1 == 1.0 and match.score == 1.0:
            return same_calls(wanted, made)
        if self.part != "score":
            given = f"{match.n_matched} of {len(made)} calls made were expected"
            asked = f"{match.n_matched} of {len(wanted)} expected calls were made"
            return {"precision": f"{given}.", "recall": f"{asked}."}.get(self.part, f"{given}, {asked}.")
        if match.score == 1.0:
            return same_calls(wanted, made)
        harmless = (*_HARMLESS[self.order], *(("~",) if self.args == "ignore" else ()))
        return other_calls(wanted, made, harmless=harmless) or "The calls differ."

    def _conversation(self, transcript: Transcript, case: Case) -> float | None:
        turns = [index for index, turn in enumerate(case.turns) if _is_asserted(turn.expected)]
        wanted = [call for index in turns for call in case.turns[index].expected.tool_calls or ()]
        played = [index for index in turns if index < len(transcript.turns)]
        made = [call for index in played for call in transcript.turns[index].tool_calls]
        value = getattr(match_trajectory(wanted, made, order=self.order, args=self.args), self.part)
        return float(value) if turns else None


def _is_asserted(expected: Expected) -> bool:
    return expected.tool_calls is not None


def _info(name: str, title: str, summary: str, default_threshold: float = 1.0) -> MetricInfo:
    return MetricInfo(name, title, summary, needs="tool_calls", default_threshold=default_threshold)


class ToolExact(_ToolMatch):
    """The expected calls in the expected order and no other."""

    info = _info("tool_exact", "Tools, exact", "Share of turns with exactly the expected calls, in order.")


class ToolInOrder(_ToolMatch):
    """The expected calls in order; extra calls are free."""

    order = "in_order"
    info = _info("tool_in_order", "Tools, in order", "Share of turns with the expected calls in order, extras allowed.")


class ToolAnyOrder(_ToolMatch):
    """The expected calls in any order; extra calls are free."""

    order = "any_order"
    info = _info("tool_any_order", "Tools, any order", "Share of turns with all expected calls, extras allowed.")


class ToolPrecision(_ToolMatch):
    """Share of the calls made that were expected; 0 when calls were expected and none was made."""

    part = "precision"
    info = _info("tool_precision", "Tool precision", "Share of the calls made that were expected.", 0.8)


class ToolRecall(_ToolMatch):
    """Share of the expected calls that were made; 1 when none was expected."""

    part = "recall"
    info = _info("tool_recall", "Tool recall", "Share of the expected calls that were made.", 0.8)


class ToolF1(_ToolMatch):
    """Harmonic mean of precision and recall."""

    part = "f1"
    info = _info("tool_f1", "Tool F1", "Balance of expected calls made and unexpected calls left out.", 0.8)
