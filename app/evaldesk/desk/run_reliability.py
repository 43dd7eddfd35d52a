"""How sure a run is, and how often an agent that may try again, or must always work, would get through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.desk.run_view import LIVE, Bar, bar
from evaldesk.report import (
    CurvePoint,
    basis_sentence,
    curve_point,
    doubt_words,
    pass_curve,
    pass_figure,
    rate_interval,
)
from evaldesk.store import RunSummary


@dataclass(frozen=True, slots=True)
class Reliability:
    """The rate with its interval, and pass@k and pass^k by k; `figure` is for Plotly, None with fewer than 2 points."""

    bar: Bar | None
    doubt: str
    detail: str
    points: Sequence[CurvePoint]
    figure: dict[str, Any] | None
    words: str
    note: str


def reliability(
    outcomes: Sequence[tuple[int, int, int]], summary: RunSummary, k: int
) -> tuple[Reliability, CurvePoint]:
    """From how many cases have so many scored and passed trials; the point is the one at `k`."""
    interval = rate_interval(outcomes)
    points = pass_curve(outcomes)
    found = Reliability(
        bar=bar(summary.n_passed, summary.n_scored, interval),
        doubt=doubt_words(summary.n_scored, interval),
        detail=basis_sentence(outcomes, interval),
        points=points,
        figure=coloured(pass_figure(points)) if len(points) > 1 else None,
        words=_words(points),
        note=_note(points, summary),
    )
    return found, curve_point(outcomes, k)


def coloured(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure with each trace in the colour of its series, as names that the page resolves, as high as its box."""
    figure["layout"]["autosize"] = True
    for trace in figure["data"]:
        trace["line"]["color"] = trace["marker"]["color"] = f"var(--series-{trace['meta']['series']})"
    return figure


def _words(points: Sequence[CurvePoint]) -> str:
    """The curves for those who cannot see them."""
    if len(points) < 2 or points[0].pass_at_k is None:
        return ""
    last = points[-1]
    at_k = f"pass@k goes from {points[0].pass_at_k:.2f} to {last.pass_at_k or 0:.2f}"
    return f"{at_k}, pass^k from {points[0].pass_hat_k or 0:.2f} to {last.pass_hat_k or 0:.2f} at k {last.k}"


def _note(points: Sequence[CurvePoint], summary: RunSummary) -> str:
    """Why the curves are not there, or rest on fewer cases than the run has."""
    if summary.config.n == 1:
        return "Each case was played once, so there is nothing to repeat: run with more trials to see what is flaky."
    if not points:
        return "Nothing was scored yet."
    fewest = points[-1]
    if fewest.n_cases < summary.n_cases:
        ending = "these rows still move." if summary.status in LIVE else "the others are left out of these rows."
        return f"{fewest.n_cases:,} of {summary.n_cases:,} cases have {fewest.k} scored trials; {ending}"
    if fewest.k < summary.config.n:
        return f"No case has more than {fewest.k} scored trials, so larger k are undefined."
    return ""
