"""Our own trajectory metrics: strict JSON equality and maximum matching. (reference/reliability_stats.md D2)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

from evaldesk.matching import CallRule, Order, Step, TrajectoryMatch, match_by_rule
from evaldesk.metrics.metric import NOT_PLAYED, Judgement, MetricInfo, has_calls, score_turns
from evaldesk.metrics.responses.answers import part_of
from evaldesk.metrics.tools.call_words import accepted_calls, aligned_details, other_calls, same_calls
from evaldesk.metrics.tools.options import ToolOptions
from evaldesk.model import Case, Expected, JsonObject, Score, ToolCall, Transcript, TurnRecord

_HARMLESS: Mapping[str, tuple[str, ...]] = {
    "exact": (),
    "in_order": ("+",),
    "any_order": ("+", "moved"),
    "unordered": ("moved",),
    "subset": ("-", "moved"),
}


@dataclass(frozen=True)
class _ToolMatch(ToolOptions):
    """Tool calls against the expected ones, turn by turn or over the whole conversation."""

    order: ClassVar[Order] = "exact"
    part: ClassVar[Literal["score", "precision", "recall", "f1"]] = "score"
    info: ClassVar[MetricInfo]

    @cached_property
    def _rule(self) -> CallRule:
        return self.rule()

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for each turn that asserts its calls, and their mean; or one for all of these taken as one.

        `details.conversation` is the score of all asserted turns taken as one: right calls in a wrong turn show there.
        """
        if self.scope == "conversation":
            return [self._conversation_score(transcript, case)]
        *turns, mean = score_turns(self.info.name, transcript, case, has_calls, self._judge)
        conversation_score = self._conversation_score(transcript, case)
        return [*turns, replace(mean, details={**mean.details, "conversation": conversation_score.value})]

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        return self._compare(expected.tool_calls or (), record.judged_calls)

    def _conversation_score(self, transcript: Transcript, case: Case) -> Score:
        turns = [index for index, turn in enumerate(case.turns) if has_calls(turn.expected)]
        if not turns:
            return Score(self.info.name, reason="No turn of this case is asserted.")
        unplayed_turn = next((index for index in turns if index >= len(transcript.turns)), None)
        if unplayed_turn is not None:
            return Score(self.info.name, 0.0, reason=NOT_PLAYED.replace("This turn", f"Turn {unplayed_turn + 1}"))
        expected_calls = [call for index in turns for call in case.turns[index].expected.tool_calls or ()]
        actual_calls = [call for index in turns for call in transcript.turns[index].judged_calls]
        value, reason, details = self._compare(expected_calls, actual_calls)
        return Score(self.info.name, value, reason=reason, details=details)

    def _compare(self, expected_calls: Sequence[ToolCall], actual_calls: Sequence[ToolCall]) -> Judgement:
        match = match_by_rule(expected_calls, actual_calls, self.order, self._rule)
        # The steps are worth their time only where something differs.
        steps = () if match.f1 == 1.0 and self._rule.is_plain and match.score else match.alignment
        accepted_steps = [(step, because) for step in steps if (because := match.because(step))]
        details: JsonObject = {
            "precision": match.precision,
            "recall": match.recall,
            "f1": match.f1,
            "n_matched": match.n_matched,
            "n_expected": len(expected_calls),
            "n_given": len(actual_calls),
            **({} if self._rule.is_plain else aligned_details(steps, accepted_steps)),
        }
        harmless = {step for step, _ in accepted_steps if step[0] == "~"}
        reason = self._reason(expected_calls, actual_calls, match, [step for step in steps if step not in harmless])
        return getattr(match, self.part), reason + accepted_calls(accepted_steps), details

    def _reason(
        self,
        expected_calls: Sequence[ToolCall],
        actual_calls: Sequence[ToolCall],
        match: TrajectoryMatch,
        steps: Sequence[Step],
    ) -> str:
        if match.f1 == 1.0 and match.score == 1.0:
            return same_calls(expected_calls, actual_calls)
        n = match.n_matched or 0
        if self.part != "score":
            precision_words = part_of(n, len(actual_calls), "call", "was expected", "were expected")
            recall_words = part_of(n, len(expected_calls), "expected call", "was made", "were made")
            return {"precision": f"{precision_words}.", "recall": f"{recall_words}."}.get(
                self.part, f"{precision_words}, {recall_words}."
            )
        if match.score == 1.0 and self.order == "subset":
            return f"Nothing but expected calls was made, {n} of {len(expected_calls)}."
        if match.score == 1.0:
            return same_calls(expected_calls, actual_calls)
        return other_calls(expected_calls, actual_calls, steps, harmless=_HARMLESS[self.order]) or "The calls differ."


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


class ToolUnordered(_ToolMatch):
    """The expected calls in any order and no other."""

    order = "unordered"
    info = _info("tool_unordered", "Tools, unordered", "Share of turns with exactly the expected calls, in any order.")


class ToolSubset(_ToolMatch):
    """No call but expected ones, each at most as often as it is expected; any may be left out."""

    order = "subset"
    info = _info("tool_subset", "Tools, none but expected", "Share of turns without any call that was not expected.")


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
