"""Where the time and the tokens of a session's turns went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.model import Event, TurnRecord
from evaldesk.model.transcript import known_sum

CHART_WIDTH = 212.0
CHART_LEFT = 48.0
MAX_BARS = 12


@dataclass(frozen=True, slots=True)
class TurnTiming:
    """Milliseconds of one turn, on the clock: tools that ran side by side count once. `cost` None is unknown.

    Where it `is_least` a call did not tell its tokens.
    """

    number: int
    total_ms: float
    model_ms: float
    tools_ms: float
    tokens_in: int
    tokens_out: int
    cost: float | None
    is_least: bool

    @property
    def rest_ms(self) -> float:
        """The rest of the time, beyond the model and the tools."""
        return max(0.0, self.total_ms - self.model_ms - self.tools_ms)


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a turn in the chart, in its units."""

    part: str
    x: float
    width: float


def timings(turns: Sequence[TurnRecord], first: int = 0) -> tuple[TurnTiming, ...]:
    """One row for each turn, from the index `first` on."""
    return tuple(_timing(number, turn) for number, turn in enumerate(turns, first + 1))


def bars(rows: Sequence[TurnTiming]) -> tuple[tuple[TurnTiming, tuple[Bar, ...]], ...]:
    """The last MAX_BARS turns as bars on one scale."""
    last_rows = rows[-MAX_BARS:]
    longest = max((row.total_ms for row in last_rows), default=0.0) or 1.0
    return tuple((row, _bars(row, CHART_WIDTH / longest)) for row in last_rows)


def total_cost(rows: Sequence[TurnTiming]) -> float | None:
    """US dollars of all turns; None as soon as one is unknown, and when there is no turn."""
    return known_sum(row.cost for row in rows)


def _timing(number: int, turn: TurnRecord) -> TurnTiming:
    usages = turn.usages
    model_ms = sum(usage.duration_ms for usage in usages)
    return TurnTiming(
        number=number,
        total_ms=turn.duration_ms,
        model_ms=min(model_ms, turn.duration_ms),
        tools_ms=_tools_ms(turn.events),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        cost=known_sum(usage.cost for usage in usages) if usages else 0.0,
        is_least=any(usage.is_least for usage in usages),
    )


def _tools_ms(events: Sequence[Event]) -> float:
    """Time during which at least one tool ran."""
    spans = sorted(
        (event.at_ms - event.duration_ms, event.at_ms)
        for event in events
        if event.kind == "tool_result" and event.duration_ms is not None
    )
    total, end = 0.0, float("-inf")
    for start, stop in spans:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _bars(row: TurnTiming, scale: float) -> tuple[Bar, ...]:
    row_bars: list[Bar] = []
    x = CHART_LEFT
    for part, duration_ms in (("model", row.model_ms), ("tool", row.tools_ms), ("other", row.rest_ms)):
        width = duration_ms * scale
        if width >= 0.5:
            row_bars.append(Bar(part, round(x, 1), round(width, 1)))
            x += width
    return tuple(row_bars)
