"""Runs of a trend that played given cases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from evaldesk.model.set_trend import TrendRun

NOW = datetime(2026, 11, 29, tzinfo=UTC)


def trend_run(run_id: int, version: Sequence[tuple[str, str]]) -> TrendRun:
    """A run of the cases of a version, each with three passed trials."""
    content = " ".join(sorted(digest for _, digest in version))
    outcomes = ((3, 3, max(1, len(version))),)
    return TrendRun(run_id, NOW, "dice", "", "", "", "", "", content, len(version), outcomes, 0.0, 0.0, 0)
