"""Efficiency of a trial: dollars, turns, repeated calls; calls, model calls, tokens, seconds as ADK counts them.

They inform unless they are given a threshold, which is then the most that is allowed. (reference/adk.md, efficiency
metrics)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.matching import json_key
from evaldesk.metrics.metric import MetricInfo, mean
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import NO_TURN, part_of
from evaldesk.metrics.tools.options import SCOPES, Scope
from evaldesk.model import Case, JsonObject, Score, ToolCall, Transcript, TurnRecord, Usage
from evaldesk.model.conclusion import counted
from evaldesk.model.transcript import UNKNOWN

NO_CALL = "The agent reports no model call."
UNKNOWN_TOKENS = "A model call did not tell its tokens, so there may be more calls and costs than are known."


def _info(name: str, title: str, summary: str, *, reads_calls: bool = False, reads_tokens: bool = False) -> MetricInfo:
    return MetricInfo(
        name,
        title,
        summary,
        high=math.inf,
        is_higher_better=False,
        default_threshold=None,
        reads_calls=reads_calls,
        reads_tokens=reads_tokens,
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars for the agent's own model calls, of each turn and of the trial; unknown where a price is."""

    info: ClassVar[MetricInfo] = _info(
        "cost", "Cost", "US dollars of the agent's model calls in the trial.", reads_tokens=True
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The cost of each turn, and their sum."""
        turns = [self._cost(_usages(record), turn, NO_CALL) for turn, record in enumerate(transcript.turns)]
        usages = [usage for record in transcript.turns for usage in _usages(record)]
        return [*turns, self._cost(usages, None, NO_CALL if transcript.turns else NO_TURN)]

    def _cost(self, usages: Sequence[Usage], turn: int | None, reason: str) -> Score:
        name, models = self.info.name, sorted({usage.model for usage in usages if usage.cost is None})
        if not usages:
            return Score(name, turn=turn, reason=reason)
        if any(usage.is_least for usage in usages):
            return Score(name, turn=turn, reason=UNKNOWN_TOKENS)
        if models:
            return Score(name, turn=turn, reason=f"The price of {', '.join(models)} is not known.")
        total = math.fsum(usage.cost or 0.0 for usage in usages)
        return Score(name, total, turn, reason=f"{_dollars(total)} for {counted(len(usages), 'model call')}.")


@dataclass(frozen=True, slots=True)
class TurnCount:
    """The number of played turns."""

    info: ClassVar[MetricInfo] = _info("turn_count", "Turns", "Turns that the trial took.")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        n_turns = len(transcript.turns)
        if not n_turns:
            return [Score(self.info.name, reason=NO_TURN)]
        turns = counted(n_turns, "turn")
        reason = f"{n_turns} of {len(case.turns)} turns." if len(case.turns) > n_turns else f"{turns}."
        return [Score(self.info.name, float(n_turns), reason=reason)]


@dataclass(frozen=True, slots=True)
class RepeatedCallCount:
    """The number of repeated calls: same tool, same arguments."""

    scope: Scope = option(
        "turn", "choice", "Repeated within", "Whether an equal call of an earlier turn counts.", choices=SCOPES
    )

    info: ClassVar[MetricInfo] = _info(
        "repeated_call_count",
        "Repeated calls",
        "Tool calls that were made before with the same arguments.",
        reads_calls=True,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The repetitions in each turn, and their sum."""
        if not transcript.turns:
            return [Score(self.info.name, reason=NO_TURN)]
        scores, again = [], Counter[str]()
        call_keys: set[tuple[str, Hashable]] = set()
        for turn, record in enumerate(transcript.turns):
            repetitions = _count_repeated(record.tool_calls, call_keys if self.scope == "conversation" else set())
            again.update(repetitions)
            scores.append(self._score(repetitions, turn))
        return [*scores, self._score(again, None)]

    def _score(self, again: Counter[str], turn: int | None) -> Score:
        n = again.total()
        tools = ", ".join(f"{name} {count} times" if count > 1 else name for name, count in again.most_common(3))
        reason = f"{counted(n, 'call')} made again: {tools}." if n else "No call was made again."
        details: JsonObject = {"repeated": dict(again)}
        return Score(self.info.name, float(n), turn, reason=reason, details=details)


@dataclass(frozen=True, slots=True)
class ToolCallCount:
    """Tool calls of each turn, and their mean."""

    info: ClassVar[MetricInfo] = _info(
        "tool_call_count_v1", "Tool calls", "Tool calls per turn, as in ADK.", reads_calls=True
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The number of calls in each turn that was played, and their mean."""
        counts = [float(len(record.tool_calls)) for record in transcript.turns]
        return _scores(self.info.name, counts, lambda count: counted(count, "tool call"), "")


@dataclass(frozen=True, slots=True)
class InferenceCallCount:
    """Model calls of each turn, and their mean; a turn that reports none is left out."""

    info: ClassVar[MetricInfo] = _info(
        "inference_call_count_v1", "Model calls", "Calls of the agent's model per turn, as in ADK.", reads_tokens=True
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The number of model calls in each turn that reports any, and their mean."""
        counts = [float(len(_usages(record))) or None for record in transcript.turns]
        *turns, trial_score = _scores(self.info.name, counts, lambda count: counted(count, "model call"), NO_CALL)
        unseen = [any(_is_unseen(usage) for usage in _usages(record)) for record in transcript.turns]
        if not any(unseen):
            return [*turns, trial_score]
        turns = [
            _least(turn, UNSEEN_CALL) if is_unseen else turn for turn, is_unseen in zip(turns, unseen, strict=True)
        ]
        return [*turns, _least(trial_score, UNSEEN_CALL)]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of the agent's model in each turn, and their mean over all turns; a turn without a report counts as 0."""

    info: ClassVar[MetricInfo] = _info(
        "token_usage_v1", "Tokens", "Tokens in and out of the agent's model per turn, as in ADK.", reads_tokens=True
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The tokens of each turn, and their mean; details have input and output apart."""
        n_in = [float(sum(usage.tokens_in for usage in _usages(record))) for record in transcript.turns]
        n_out = [float(sum(usage.tokens_out for usage in _usages(record))) for record in transcript.turns]
        totals = [(a + b) or None for a, b in zip(n_in, n_out, strict=True)]
        *turns, trial_score = _scores(
            self.info.name, totals, lambda n: counted(n, "token"), "The agent reports no tokens.", is_none_zero=True
        )
        if trial_score.value is None:
            return [*turns, trial_score]
        least = [any(usage.is_least for usage in _usages(record)) for record in transcript.turns]
        if any(least):
            turns = [_least(turn) if is_least else turn for turn, is_least in zip(turns, least, strict=True)]
            return [*turns, _least(trial_score)]
        parts = {"total_tokens": trial_score.value, "input_tokens": mean(n_in), "output_tokens": mean(n_out)}
        return [*turns, replace(trial_score, details={**trial_score.details, **parts})]


UNSEEN_CALL = "The number of model calls is not known, as not all of them were seen"


def _is_unseen(usage: Usage) -> bool:
    """Whether it stands for a call, or calls, that were not read."""
    return usage.is_least and usage.model == UNKNOWN.model


def _least(score: Score, why: str = "A model call did not tell its tokens") -> Score:
    """Without its number, which would pass a limit that nobody knows it to keep."""
    return replace(score, value=None, reason=f"{why}; known are: {score.reason}")


@dataclass(frozen=True, slots=True)
class InvocationDuration:
    """Seconds of each turn, and their mean; a turn without a time is left out."""

    info: ClassVar[MetricInfo] = _info(
        "invocation_duration_v1", "Seconds", "Seconds per turn, split into model, tools and the rest, as in ADK."
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The seconds of each turn, and their mean; details split it into model, tools and the rest."""
        seconds = [record.duration_ms / 1000 or None for record in transcript.turns]
        *turns, trial_score = _scores(self.info.name, seconds, lambda s: f"{s:.2f} s", "This turn has no time.")
        if trial_score.value is None:
            return [*turns, trial_score]
        parts = _duration_parts(trial_score.value, transcript)
        titles = (("model", "model"), ("tool", "tools"), ("framework", "the rest"))
        words = ", ".join(f"{parts[f'{part}_seconds']:.2f} s {word}" for part, word in titles)
        return [
            *turns,
            replace(
                trial_score, reason=f"{trial_score.reason} Of it {words}.", details={**trial_score.details, **parts}
            ),
        ]


def _duration_parts(total: float, transcript: Transcript) -> dict[str, float]:
    timed = [record for record in transcript.turns if record.duration_ms]
    model = mean([sum(usage.duration_ms for usage in _usages(record)) / 1000 for record in timed])
    results_by_turn = [[event for event in record.own_events if event.kind == "tool_result"] for record in timed]
    tool = mean([sum(event.duration_ms or 0.0 for event in events) / 1000 for events in results_by_turn])
    # Calls made at the same time add up to more than the turn.
    framework = max(total - model - tool, 0.0)
    return {"total_seconds": total, "model_seconds": model, "tool_seconds": tool, "framework_seconds": framework}


def _scores(
    metric: str,
    values: Sequence[float | None],
    say: Callable[[float], str],
    missing_reason: str,
    *,
    is_none_zero: bool = False,
) -> list[Score]:
    """One score for each turn that was played and their mean; a turn without a value says `missing_reason`."""
    turns = [
        Score(metric, value, turn, reason=missing_reason if value is None else f"{say(value)}.")
        for turn, value in enumerate(values)
    ]
    known_values = [value for value in values if value is not None]
    if not known_values:
        return [*turns, Score(metric, reason=missing_reason if values else NO_TURN)]
    n_missing = len(values) - len(known_values)
    trial_value = mean(known_values + [0.0] * n_missing if is_none_zero else known_values)
    reason = f"{say(trial_value)} per turn"
    if n_missing:
        one, many = ("counts", "count") if is_none_zero else ("is left out", "are left out")
        ending = " as 0" if is_none_zero else ""
        silent = part_of(n_missing, len(values), "turn", f"says nothing and {one}", f"say nothing and {many}")
        reason += f"; {silent}{ending}"
    return [
        *turns,
        Score(metric, trial_value, reason=f"{reason}.", details={"n_turns": len(values), "n_missing": n_missing}),
    ]


def _usages(record: TurnRecord) -> list[Usage]:
    """Those of the agent, without the usage of a judge or a simulated user."""
    return [usage for usage in record.usages if usage.role == "agent"]


def _count_repeated(calls: tuple[ToolCall, ...], call_keys: set[tuple[str, Hashable]]) -> Counter[str]:
    """How often each tool was called as it had been before; adds the calls to `seen`."""
    again: Counter[str] = Counter()
    for call in calls:
        key = (call.name, json_key(call.args))
        again[call.name] += key in call_keys
        call_keys.add(key)
    return +again


def _dollars(cost: float) -> str:
    if not cost:
        return "$0"
    return f"${cost:,.{2 if cost >= 1 else max(4, 1 - math.floor(math.log10(cost)))}f}"
