"""How the state of a run is put into words: how far it is, what it says, why it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from evaldesk.desk.run_reliability import Reliability
from evaldesk.desk.run_view import LIVE
from evaldesk.report import passed_words
from evaldesk.store import RunSummary


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; `quarter` changes rarely, for those who listen instead of looking."""

    done: str
    rest: str
    clock: str
    quarter: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result in words: count first, then the doubt."""

    count: str
    doubt: str
    detail: str


def progress(summary: RunSummary, n_running: int, pause: str = "") -> Progress:
    """How far the run is, and for what its trials wait."""
    n, done = summary.n_trials, summary.n_done
    played = f"{done:,} of {n:,} trials done." if done < n else f"{_all(n)} done."
    parts = []
    if summary.status == "pending":
        parts.append("Waits until another run is done.")
    elif summary.status in LIVE:
        queued = summary.n_todo - n_running
        parts.append(", ".join(filter(None, [f"{n_running} running", f"{queued:,} queued" if queued > 0 else ""])))
        left = _seconds_left(summary)
        parts[-1] += f"; about {_seconds(left)} left." if left is not None else "."
        parts += [pause] if pause else []
    elif summary.n_todo:
        parts.append(f"{summary.n_todo:,} not played.")
    clock = f"{_seconds(summary.active_ms / 1000)} so far." if summary.status in LIVE else ""
    if not clock and summary.active_ms:
        clock = f"It took {_seconds(round(summary.active_ms / 1000))}."
    quarter = f"{25 * (4 * done // n)} % of the trials are done" if n else ""
    return Progress(played, " ".join(parts), clock, quarter)


def answer(summary: RunSummary, found: Reliability) -> Answer:
    """The answer as a sentence; says what the interval is over."""
    if not summary.n_scored:
        return Answer(
            "Nothing scored yet" if summary.status in LIVE else "Nothing was scored", "", _why_nothing(summary)
        )
    return Answer(passed_words(summary.n_passed, summary.n_scored), found.doubt, found.detail)


def reason_note(summary: RunSummary, trouble: str) -> tuple[str, str, str]:
    """Kind of note, its title and its text; empty when there is nothing to say."""
    if trouble:
        return "errored", "Results wait to be stored", trouble
    if not summary.reason:
        return "", "", ""
    if summary.status == "failed":
        return "failed", "The run was broken off", summary.reason
    return "plain", "Note", summary.reason


def _why_nothing(summary: RunSummary) -> str:
    if summary.n_done == 0:
        return "The first verdicts appear as soon as they are stored."
    parts = [f"{summary.n_errored:,} errored" if summary.n_errored else ""]
    parts.append(f"{summary.n_unscored:,} could not be scored" if summary.n_unscored else "")
    trials = "1 trial" if summary.n_done == 1 else f"{summary.n_done:,} trials"
    return f"Of {trials} {' and '.join(filter(None, parts))}. A rate of nothing is not a rate."


def _seconds_left(summary: RunSummary) -> float | None:
    """An estimate from the pace so far; None before there is one."""
    if summary.n_done < 1 or not summary.active_ms:
        return None
    return summary.active_ms / 1000 / summary.n_done * summary.n_todo


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return "1 s"
    if seconds < 100:
        return f"{ceil(seconds)} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _all(n: int) -> str:
    return f"All {n:,} trials" if n > 1 else "The one trial is"
