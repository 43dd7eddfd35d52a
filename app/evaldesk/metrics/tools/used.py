"""`tool_used`: whether one named tool was called, how often, or not at all; arguments play no part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaldesk.errors import UsageError
from evaldesk.metrics.metric import NOT_PLAYED, MetricInfo, mean
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import NO_TURN
from evaldesk.metrics.tools.options import SCOPES, Scope
from evaldesk.model import Case, Event, Score, Transcript, TurnRecord

UNSEEN_AGENT = (
    "No step of {} was seen in this trial, so its calls are not judged. The trial page lists the agents that were "
    "seen; docs/agents.md says which frameworks show the agents inside of a tool."
)


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """1 when the tool was called at least and at most so often, else 0; `at_most` None is no upper limit.

    `at_least` 1 alone is "used", both 2 is "used twice", both 0 is "not used".
    """

    tool: str = option("", "text", "Tool", "The name of the tool; upper and lower case matter.", example="get_weather")
    at_least: int = option(1, "whole", "At least", "How often it must be called; 0 where it need not be.", low=0)
    at_most: int | None = option(
        None, "whole", "At most", "How often it may be called; 0 for never, empty for any number.", low=0
    )
    agent: str = option(
        "",
        "text",
        "Agent",
        "The agent of a tree that calls it, also inside a tool; empty for any agent, outside of tools.",
        example="scout",
    )
    scope: Scope = option(
        "conversation", "choice", "Counted over", "Each turn by itself, or all calls together.", choices=SCOPES[::-1]
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "tool_used",
        "Tool used",
        "Whether one named tool was used, used so many times, or not used.",
        required=("tool",),
        reads_calls=True,
    )

    def __post_init__(self) -> None:
        if self.at_least < 0:
            raise UsageError(f"at_least must be 0 or more, got {self.at_least}", field="at_least")
        if self.at_most is not None and self.at_most < self.at_least:
            both = " Make both 0 for a tool that may not be called." if self.at_most == 0 else ""
            raise UsageError(
                f"at_most is {self.at_most}, less than at_least, which is {self.at_least}.{both}", field="at_most"
            )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial; or one for each turn, and their mean. A turn that was never played scores 0.

        None where no step of the named agent was seen: frameworks do not show all agents inside of a tool.
        """
        name = self.info.name
        if self.agent and not any(event.author == self.agent for turn in transcript.turns for event in turn.events):
            return [Score(name, reason=UNSEEN_AGENT.format(self.agent))]
        counts = [self._counts(record) for record in transcript.turns]
        n_missing = max(len(case.turns) - len(counts), 0)
        if n_missing and self.scope == "conversation":
            return [Score(name, 0.0, reason=f"Turn {len(counts) + 1} was never played.")]
        if self.scope == "conversation":
            totals = sum(n_calls for n_calls, _ in counts), sum(n_made for _, n_made in counts)
            return [Score(name, self._value(*totals), reason=self._reason(*totals), details=_count_details(totals[0]))]
        turns = [
            Score(name, self._value(*count), turn, reason=self._reason(*count), details=_count_details(count[0]))
            for turn, count in enumerate(counts)
        ]
        turns += [Score(name, 0.0, len(counts) + index, reason=NOT_PLAYED) for index in range(n_missing)]
        if not turns:
            return [Score(name, reason=NO_TURN)]
        n_met = sum(score.value == 1.0 for score in turns)
        reason = f"{n_met} of {len(turns)} turns call {self.tool} {self._limits()}."
        return [*turns, Score(name, mean([score.value or 0.0 for score in turns]), reason=reason)]

    def _counts(self, record: TurnRecord) -> tuple[int, int]:
        """How often the tool was called, and how often it was so that the call was made."""
        own = [event for event in record.own_events if event.kind == "tool_call" and event.call]
        inner = [event for event in record.events if event.kind == "tool_call" and event.within] if self.agent else []
        counted_calls = [event for event in (*own, *inner) if self._is_counted(event)]
        unmade_calls = [
            event
            for event, call in zip(own, record.judged_calls, strict=True)
            if self._is_counted(event) and call is not event.call
        ]
        return len(counted_calls), len(counted_calls) - len(unmade_calls)

    def _is_counted(self, event: Event) -> bool:
        return event.call is not None and event.call.name == self.tool and self.agent in ("", event.author)

    def _value(self, n_calls: int, n_made: int) -> float:
        return float(self.at_least <= n_made and (self.at_most is None or n_calls <= self.at_most))

    def _reason(self, n_calls: int, n_made: int) -> str:
        times = {0: "not called", 1: "called once", 2: "called twice"}.get(n_calls, f"called {n_calls} times")
        unmade = "" if n_calls == n_made else f", {n_calls - n_made} not finished"
        by = f" by {self.agent}" if self.agent else ""
        limits = "" if self._value(n_calls, n_made) else f", wanted {self._limits()}"
        return f"{self.tool} was {times}{by}{unmade}{limits}."

    def _limits(self) -> str:
        low, high = self.at_least, self.at_most
        if high is None:
            return "any number of times" if low == 0 else f"{_times(low)} or more"
        if low == high:
            return "never" if not low else f"exactly {_times(low)}"
        return f"at most {_times(high)}" if not low else f"{low} to {high} times"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _count_details(count: int) -> dict[str, int]:
    return {"n_calls": count}
