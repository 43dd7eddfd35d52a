"""The cost of a trial: calls, model calls, tokens, seconds, as ADK counts them. (reference/adk.md, efficiency metrics)

They inform unless they are given a threshold, which is then the most that is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.metrics.metric import MetricInfo, mean
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, Score, Transcript, TurnRecord, Usage
from evaldesk.model.conclusion import counted


def _info(name: str, title: str, summary: str) -> MetricInfo:
    return MetricInfo(name, title, summary, high=math.inf, is_higher_better=False, default_threshold=None)


@dataclass(frozen=True, slots=True)
class ToolCallCount:
    """Tool calls of each turn, and their mean."""

    info: ClassVar[MetricInfo] = _info("tool_call_count_v1", "Tool calls", "Tool calls per turn, as in ADK.")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The number of calls in each turn that was played, and their mean."""
        counts = [float(len(record.tool_calls)) for record in transcript.turns]
        return _scores(self.info.name, counts, lambda count: counted(count, "tool call"), "")


@dataclass(frozen=True, slots=True)
class InferenceCallCount:
    """Model calls of each turn, and their mean; a turn that reports none is left out."""

    info: ClassVar[MetricInfo] = _info(
        "inference_call_count_v1", "Model calls", "Calls of the agent's model per turn, as in ADK."
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The number of model calls in each turn that reports any, and their mean."""
        counts = [float(len(_usages(record))) or None for record in transcript.turns]
        missing = "The agent reports no model call."
        return _scores(self.info.name, counts, lambda count: counted(count, "model call"), missing)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the agent's model in each turn, and their mean over all turns: one that reports none counts as 0."""

    info: ClassVar[MetricInfo] = _info(
        "token_usage_v1", "Tokens", "Tokens in and out of the agent's model per turn, as in ADK."
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The tokens of each turn, and their mean; details say how many went in and came out."""
        n_in = [float(sum(usage.tokens_in for usage in _usages(record))) for record in transcript.turns]
        n_out = [float(sum(usage.tokens_out for usage in _usages(record))) for record in transcript.turns]
        totals = [(a + b) or None for a, b in zip(n_in, n_out, strict=True)]
        *turns, whole = _scores(
            self.info.name, totals, lambda n: counted(n, "token"), "The agent reports no tokens.", is_none_zero=True
        )
        if whole.value is None:
            return [*turns, whole]
        least = [any(usage.is_least for usage in _usages(record)) for record in transcript.turns]
        if any(least):
            turns = [_least(turn) if is_least else turn for turn, is_least in zip(turns, least, strict=True)]
            return [*turns, _least(whole)]
        parts = {"total_tokens": whole.value, "input_tokens": mean(n_in), "output_tokens": mean(n_out)}
        return [*turns, replace(whole, details={**whole.details, **parts})]


def _least(score: Score) -> Score:
    """Without its number, which would pass a limit that nobody knows it to keep."""
    return replace(score, value=None, reason=f"A model call did not tell its tokens; known are: {score.reason}")


@dataclass(frozen=True, slots=True)
class InvocationDuration:
    """Seconds of each turn, and their mean; a turn without a time is left out."""

    info: ClassVar[MetricInfo] = _info(
        "invocation_duration_v1", "Seconds", "Seconds per turn, split into model, tools and the rest, as in ADK."
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The seconds of each turn, and their mean; details split it into model, tools and the rest."""
        seconds = [record.duration_ms / 1000 or None for record in transcript.turns]
        *turns, whole = _scores(self.info.name, seconds, lambda s: f"{s:.2f} s", "This turn has no time.")
        if whole.value is None:
            return [*turns, whole]
        parts = _split(whole.value, transcript)
        titles = (("model", "model"), ("tool", "tools"), ("framework", "the rest"))
        words = ", ".join(f"{parts[f'{part}_seconds']:.2f} s {word}" for part, word in titles)
        return [*turns, replace(whole, reason=f"{whole.reason} Of it {words}.", details={**whole.details, **parts})]


def _split(total: float, transcript: Transcript) -> dict[str, float]:
    timed = [record for record in transcript.turns if record.duration_ms]
    model = mean([sum(usage.duration_ms for usage in _usages(record)) / 1000 for record in timed])
    ended = [[event for event in record.events if event.kind == "tool_result"] for record in timed]
    tool = mean([sum(event.duration_ms or 0.0 for event in events) / 1000 for events in ended])
    # Calls made at the same time add up to more than the turn.
    rest = max(total - model - tool, 0.0)
    return {"total_seconds": total, "model_seconds": model, "tool_seconds": tool, "framework_seconds": rest}


def _scores(
    metric: str,
    values: Sequence[float | None],
    say: Callable[[float], str],
    missing: str,
    *,
    is_none_zero: bool = False,
) -> list[Score]:
    """One score for each turn that was played and their mean; a turn without a value says `missing`."""
    turns = [
        Score(metric, value, turn, reason=missing if value is None else f"{say(value)}.")
        for turn, value in enumerate(values)
    ]
    known = [value for value in values if value is not None]
    if not known:
        return [*turns, Score(metric, reason=missing if values else "No turn was played.")]
    n_missing = len(values) - len(known)
    whole = mean(known + [0.0] * n_missing if is_none_zero else known)
    reason = f"{say(whole)} per turn"
    if n_missing:
        one, many = ("counts", "count") if is_none_zero else ("is left out", "are left out")
        ending = " as 0" if is_none_zero else ""
        silent = part_of(n_missing, len(values), "turn", f"says nothing and {one}", f"say nothing and {many}")
        reason += f"; {silent}{ending}"
    return [*turns, Score(metric, whole, reason=f"{reason}.", details={"n_turns": len(values), "n_missing": n_missing})]


def _usages(record: TurnRecord) -> list[Usage]:
    """Those of the agent, without the usage of a judge or a simulated user."""
    return [usage for usage in record.usages if usage.role == "agent"]
