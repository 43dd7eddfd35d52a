"""How sure a run is, and how often an agent that may try again, or must always work, would get through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.desk.run_recording import repeats_recorded
from evaldesk.desk.run_view import LIVE, Bar, bar
from evaldesk.report import (
    CurvePoint,
    Interval,
    anytime_interval,
    basis_sentence,
    curve_note,
    curve_point,
    curve_sentence,
    doubt_words,
    live_doubt_words,
    pass_curve,
    pass_figure,
    rate_interval,
    stop_sentence,
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
    outcomes: Sequence[tuple[int, int, int]], summary: RunSummary, k: int, earlier: RunSummary | None = None
) -> tuple[Reliability, CurvePoint]:
    """From how many cases have so many scored and passed trials; the point is the one at `k`.

    `earlier` is the run that a run which is watched may be stopped against.
    """
    # One looks at a run that goes on again and again, and may stop it when the answer pleases.
    is_watched = summary.status in LIVE and summary.config.n == 1
    interval = anytime_interval(summary.n_passed, summary.n_scored) if is_watched else rate_interval(outcomes)
    points = pass_curve(outcomes)
    found = Reliability(
        bar=bar(summary.n_passed, summary.n_scored, interval),
        doubt=(live_doubt_words if is_watched else doubt_words)(summary.n_scored, interval),
        detail=_stop_words(interval, earlier) if is_watched and interval else basis_sentence(outcomes, interval),
        points=points,
        figure=coloured(pass_figure(points)) if len(points) > 1 else None,
        words=curve_sentence(points),
        note=" ".join(filter(None, (_note(points, summary), _replay_note(summary)))),
    )
    return found, curve_point(outcomes, k)


def coloured(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure with each trace in the colour of its series, as names that the page resolves, as high as its box."""
    figure["layout"]["autosize"] = True
    for trace in figure["data"]:
        trace["line"]["color"] = trace["marker"]["color"] = f"var(--series-{trace['meta']['series']})"
    return figure


def _stop_words(interval: Interval, earlier: RunSummary | None) -> str:
    """Whether the answer is in already, compared with the run before."""
    if earlier is None or not earlier.n_scored:
        return "This interval stays valid while the run goes on."
    return f"{stop_sentence(interval, earlier.n_passed / earlier.n_scored)}. That is the rate of run {earlier.id}."


def _replay_note(summary: RunSummary) -> str:
    """What the interval does not say of trials that are recorded ones."""
    if not repeats_recorded(summary.config):
        return ""
    return (
        "These trials may be recorded ones played again. The interval is that of the recording: it gets no narrower, "
        "and no surer, by playing them again or by adding this run to the one that was recorded."
    )


def _note(points: Sequence[CurvePoint], summary: RunSummary) -> str:
    """Why the curves are not there, or rest on fewer cases than the run has."""
    if summary.config.n == 1:
        return "Each case was played once, so there is nothing to repeat: run with more trials to see what is flaky."
    if not points:
        return "Nothing was scored yet."
    fewest = points[-1]
    if fewest.n_cases < summary.n_cases:
        return curve_note(fewest.n_cases, summary.n_cases, fewest.k, is_live=summary.status in LIVE)
    if fewest.k < summary.config.n:
        return f"No case has more than {fewest.k} scored trials, so larger k are undefined."
    return ""
