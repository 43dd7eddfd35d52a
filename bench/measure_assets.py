"""What the first visit loads."""

from __future__ import annotations

import gzip
from pathlib import Path

from bench.row import Row
from evaldesk import paths

FIRST = "first load, all assets, compressed"
FIRST_LOAD = (
    "app.css",
    "app.js",
    "icons.svg",
    "mark.svg",
    "vendor/htmx-4.0.1.min.js",
    "vendor/hx-csp-4.0.1.min.js",
    "vendor/hx-sse-4.0.1.min.js",
)


def measure(_: Path) -> list[Row]:
    """Bytes of all assets of a page without a chart, and of the chart library, compressed."""
    static = paths.shipped("static")
    weight = {name: len(gzip.compress((static / name).read_bytes(), 6)) for name in FIRST_LOAD}
    chart = len(gzip.compress((static / "vendor/plotly-basic-4.1.1.min.js").read_bytes(), 6))
    return [
        Row(FIRST, round(sum(weight.values()) / 1000, 1), "kB", 90),
        Row("chart library, compressed, on the run page only", round(chart / 1000, 1), "kB"),
    ]
