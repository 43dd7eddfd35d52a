"""Figures for Plotly as plain dicts. Colours are the page's: `meta.series` says which one a trace takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaldesk.statistics.intervals import CurvePoint

_CLEAR = "rgba(0,0,0,0)"


def pass_figure(points: Sequence[CurvePoint]) -> dict[str, Any]:
    """pass@k and pass^k by k. The two traces differ in dash and marker, too; an undefined value is a gap."""
    ks = [point.k for point in points]
    return {
        "data": [
            _trace("pass@k", "at least one of k works", points, lambda point: point.pass_at_k, 1, "solid", "circle"),
            _trace("pass^k", "all k work", points, lambda point: point.pass_hat_k, 2, "dash", "diamond"),
        ],
        "layout": {
            "paper_bgcolor": _CLEAR,
            "plot_bgcolor": _CLEAR,
            "margin": {"l": 44, "r": 12, "t": 8, "b": 40},
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "hovermode": "x unified",
            "xaxis": {"title": {"text": "k trials"}, "fixedrange": True, **_ticks(ks)},
            "yaxis": {"range": [-0.03, 1.03], "dtick": 0.25, "tickformat": ".2f", "fixedrange": True},
        },
        "config": {"displayModeBar": False, "responsive": True},
    }


def _trace(
    name: str,
    meaning: str,
    points: Sequence[CurvePoint],
    value: Callable[[CurvePoint], float | None],
    series: int,
    dash: str,
    symbol: str,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [point.k for point in points],
        "y": [value(point) for point in points],
        "customdata": [point.n_cases for point in points],
        "line": {"dash": dash, "width": 2},
        "marker": {"symbol": symbol, "size": 8},
        "connectgaps": False,
        "hovertemplate": "%{y:.2f}, " + meaning + ", %{customdata} cases<extra>" + name + "</extra>",
        "meta": {"series": series},
    }


def _ticks(ks: Sequence[int]) -> dict[str, Any]:
    if ks and max(ks) > 20:
        return {"type": "log", "tickvals": [k for k in ks if k & (k - 1) == 0 or k == max(ks)]}
    return {"tickmode": "array", "tickvals": list(ks)}
