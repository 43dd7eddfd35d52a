"""`tool_trajectory_avg_score` as ADK computes it. (reference/adk.md 2.1)

Arguments are compared with Python's `==`, as ADK does: 1, 1.0 and true are the same there. One difference: a turn
that asserts no calls is left out of the mean, where ADK takes it for "no call expected"; the score of the trial
carries ADK's values in its details.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.matching import CallRule, Order, Step, align, match_trajectory
from evaldesk.metrics.metric import Judgement, MetricInfo, has_calls, mean, score_turns
from evaldesk.metrics.option import option
from evaldesk.metrics.tools.call_words import aligned_details, other_calls, same_calls
from evaldesk.model import Case, Expected, JsonObject, Score, ToolCall, Transcript, Turn, TurnRecord

MATCH_TYPES = ("EXACT", "IN_ORDER", "ANY_ORDER")

_ANY_ARGS = CallRule("ignore")
_RULES: Mapping[str, tuple[Order, str, tuple[str, ...]]] = {
    # match type: our word for it, the text on the page, the alignment steps that do not lower the score
    "EXACT": ("exact", "Exact order", ()),
    "IN_ORDER": ("in_order", "In order, extra calls allowed", ("+",)),
    "ANY_ORDER": ("any_order", "Any order, extra calls allowed", ("+", "moved")),
}


@dataclass(frozen=True, slots=True)
class ToolTrajectoryAvgScore:
    """Share of turns whose tool calls match. `match_type` takes ADK's spellings: any case, - or _, or 0, 1, 2."""

    match_type: str | int = option(
        "EXACT",
        "choice",
        "Order",
        "Whether extra calls are allowed, and whether the order counts.",
        choices=(
            ("EXACT", "exact"),
            ("IN_ORDER", "in order, extra calls allowed"),
            ("ANY_ORDER", "any order, extra calls allowed"),
        ),
    )
    ignore_args: bool = option(False, "switch", "Ignore arguments", "Compare the names of the tools only.")

    info: ClassVar[MetricInfo] = MetricInfo(
        "tool_trajectory_avg_score",
        "Tool trajectory",
        "Share of turns whose tool calls match the expected ones, as in ADK.",
        needs="tool_calls",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "match_type", _match_type(self.match_type))

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each turn that asserts its calls, and their mean."""
        *turns, trial_score = score_turns(self.info.name, transcript, case, has_calls, self._judge)
        adk_turns = [self._adk_value(turn.expected, record) for turn, record in _turn_pairs(case, transcript)]
        # ADK ends the whole run with an error when a turn is missing: it has no value then.
        is_whole = len(adk_turns) == len(case.turns) > 0
        details: JsonObject = {
            **trial_score.details,
            "adk_value": mean(adk_turns) if is_whole else None,
            "adk_turns": [*adk_turns],
        }
        return [*turns, replace(trial_score, details=details)]

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        expected_calls, actual_calls = expected.tool_calls or (), record.judged_calls
        order, words, harmless = _RULES[str(self.match_type)]
        ending = f"{words}, {'arguments ignored' if self.ignore_args else 'exact arguments'}."
        value = self._adk_value(expected, record)
        details: JsonObject = {"n_expected": len(expected_calls), "n_given": len(actual_calls)}
        steps = align(expected_calls, actual_calls, rule=_ANY_ARGS if self.ignore_args else None)
        if self.ignore_args:
            details = {**details, **aligned_details(steps, _accepted_steps(steps, expected_calls, actual_calls))}
            harmless = (*harmless, "~")
        if not value:
            sentence = other_calls(expected_calls, actual_calls, steps, harmless=harmless) or "The calls differ."
        elif self.ignore_args or match_trajectory(expected_calls, actual_calls, order=order).score:
            sentence = same_calls(expected_calls, actual_calls)
        else:
            sentence = (
                f"{same_calls(expected_calls, actual_calls)} ADK takes 1 and true for the same; strictly they differ."
            )
        return value, f"{sentence} {ending}" if expected_calls or not value else sentence, details

    def _adk_value(self, expected: Expected, record: TurnRecord) -> float:
        expected_calls, actual_calls = expected.tool_calls or (), record.judged_calls
        if self.match_type == "EXACT":
            return float(
                len(expected_calls) == len(actual_calls) and all(map(self._is_same, expected_calls, actual_calls))
            )
        if self.match_type == "IN_ORDER":
            return float(self._is_subsequence(expected_calls, actual_calls))
        return float(self._is_bag(expected_calls, actual_calls))

    def _is_subsequence(self, expected: Sequence[ToolCall], actual: Sequence[ToolCall]) -> bool:
        calls = iter(actual)
        return all(any(self._is_same(wish, call) for call in calls) for wish in expected)

    def _is_bag(self, expected: Sequence[ToolCall], actual: Sequence[ToolCall]) -> bool:
        unmatched = list(actual)
        for wish in expected:
            at = next((index for index, call in enumerate(unmatched) if self._is_same(wish, call)), None)
            if at is None:
                return False
            unmatched.pop(at)
        return True

    def _is_same(self, wish: ToolCall, call: ToolCall) -> bool:
        return wish.name == call.name and (self.ignore_args or wish.args == call.args)


def _accepted_steps(
    steps: Sequence[Step], expected_calls: Sequence[ToolCall], actual_calls: Sequence[ToolCall]
) -> list[tuple[Step, tuple[str, ...]]]:
    """The steps in which arguments differ, and why that does no harm."""
    pairs = [
        (step, expected_calls[step[1]], actual_calls[step[2]])
        for step in steps
        if step[1] is not None and step[2] is not None
    ]
    reasons = [
        (step, _ANY_ARGS.because((wish.name, wish.args or {}), (call.name, call.args or {})))
        for step, wish, call in pairs
    ]
    return [(step, because) for step, because in reasons if because]


def _turn_pairs(case: Case, transcript: Transcript) -> Iterator[tuple[Turn, TurnRecord]]:
    return zip(case.turns, transcript.turns, strict=False)


def _match_type(spelling: str | int) -> str:
    if isinstance(spelling, int) and not isinstance(spelling, bool):
        if 0 <= spelling < len(MATCH_TYPES):
            return MATCH_TYPES[spelling]
        raise UsageError(f"match_type {spelling} is none of 0 (EXACT), 1 (IN_ORDER), 2 (ANY_ORDER)")
    name = str(spelling).strip().upper().replace("-", "_").replace(" ", "_")
    if name not in MATCH_TYPES:
        raise NotFoundError.among("match_type", str(spelling), MATCH_TYPES)
    return name
