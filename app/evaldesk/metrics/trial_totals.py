"""The totals of a trial: its cost, its turns, and repeated calls.

They inform unless they are given a threshold, which is then the most that is allowed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from evaldesk.matching import json_key
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.tools.options import SCOPES, Scope
from evaldesk.model import Case, JsonObject, Score, ToolCall, Transcript, TurnRecord
from evaldesk.model.conclusion import counted

NOT_PLAYED = "No turn was played."

_Key = tuple[str, Hashable]


def _info(name: str, title: str, summary: str) -> MetricInfo:
    return MetricInfo(name, title, summary, high=math.inf, is_higher_better=False, default_threshold=None)


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars for the agent's own model calls, of each turn and of the trial; unknown where a price is."""

    info: ClassVar[MetricInfo] = _info("cost", "Cost", "US dollars of the agent's model calls in the trial.")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The cost of each turn, and their sum."""
        turns = [_cost(self.info.name, turn, record) for turn, record in enumerate(transcript.turns)]
        usages = [usage for record in transcript.turns for usage in record.usages if usage.role == "agent"]
        if not usages:
            reason = "The agent reports no model call." if transcript.turns else NOT_PLAYED
            return [*turns, Score(self.info.name, reason=reason)]
        if any(usage.cost is None for usage in usages):
            models = ", ".join(sorted({usage.model for usage in usages if usage.cost is None}))
            return [*turns, Score(self.info.name, reason=f"The price of {models} is not known.")]
        total = math.fsum(usage.cost or 0.0 for usage in usages)
        return [
            *turns,
            Score(self.info.name, total, reason=f"{_dollars(total)} for {counted(len(usages), 'model call')}."),
        ]


@dataclass(frozen=True, slots=True)
class TurnCount:
    """How many turns were played."""

    info: ClassVar[MetricInfo] = _info("turn_count", "Turns", "Turns that the trial took.")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        n_turns = len(transcript.turns)
        if not n_turns:
            return [Score(self.info.name, reason=NOT_PLAYED)]
        played = counted(n_turns, "turn")
        reason = f"{n_turns} of {len(case.turns)} turns." if len(case.turns) > n_turns else f"{played}."
        return [Score(self.info.name, float(n_turns), reason=reason)]


@dataclass(frozen=True, slots=True)
class RepeatedCallCount:
    """How many calls were made that had been made before: same tool, same arguments."""

    scope: Scope = option(
        "turn", "choice", "Repeated within", "Whether an equal call of an earlier turn counts.", choices=SCOPES
    )

    info: ClassVar[MetricInfo] = _info(
        "repeated_call_count", "Repeated calls", "Tool calls that were made before with the same arguments."
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The repetitions in each turn, and their sum."""
        if not transcript.turns:
            return [Score(self.info.name, reason=NOT_PLAYED)]
        scores, again = [], Counter[str]()
        seen: set[_Key] = set()
        for turn, record in enumerate(transcript.turns):
            found = _repeated(record.tool_calls, seen if self.scope == "conversation" else set())
            again.update(found)
            scores.append(self._score(found, turn))
        return [*scores, self._score(again, None)]

    def _score(self, again: Counter[str], turn: int | None) -> Score:
        n = again.total()
        named = ", ".join(f"{name} {count} times" if count > 1 else name for name, count in again.most_common(3))
        reason = f"{counted(n, 'call')} made again: {named}." if n else "No call was made again."
        details: JsonObject = {"repeated": dict(again)}
        return Score(self.info.name, float(n), turn, reason=reason, details=details)


def _cost(metric: str, turn: int, record: TurnRecord) -> Score:
    usages = [usage for usage in record.usages if usage.role == "agent"]
    if not usages:
        return Score(metric, turn=turn, reason="The agent reports no model call.")
    if any(usage.cost is None for usage in usages):
        return Score(metric, turn=turn, reason="The price is not known.")
    total = math.fsum(usage.cost or 0.0 for usage in usages)
    return Score(metric, total, turn, reason=f"{_dollars(total)}.")


def _repeated(calls: tuple[ToolCall, ...], seen: set[_Key]) -> Counter[str]:
    """How often each tool was called as it had been before; adds the calls to `seen`."""
    again: Counter[str] = Counter()
    for call in calls:
        key = (call.name, json_key(call.args))
        again[call.name] += key in seen
        seen.add(key)
    return +again


def _dollars(cost: float) -> str:
    if not cost:
        return "$0"
    return f"${cost:,.{2 if cost >= 1 else max(4, 1 - math.floor(math.log10(cost)))}f}"
