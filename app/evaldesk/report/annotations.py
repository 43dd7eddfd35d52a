"""GitHub annotations: workflow commands on standard output that mark what did not pass in the checks of a commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaldesk.report.gates import GateOutcome
from evaldesk.report.run_result import CaseResult
from evaldesk.report.turn_text import first_words, in_one_line

MOST_CASES = 10
"""GitHub shows ten annotations of each kind and step."""


def case_annotation(case: CaseResult, path: str) -> str:
    """`::error file=…,title=…::…` for a case that did not pass; empty for one that did."""
    worst = next((trial for trial in case if trial.verdict in ("failed", "errored")), None)
    if worst is None:
        return ""
    level = "error" if worst.verdict == "failed" else "warning"
    title = f"{case.id}: {case.n_passed} of {case.n_scored} passed"
    place = f"file={_property(path)}," if path else ""
    words = _data(f"trial {worst.trial_index + 1} {worst.verdict}: {first_words(case.case, worst)}")
    return f"::{level} {place}title={_property(title)}::{words}"


def gate_annotations(outcomes: Sequence[GateOutcome]) -> Iterator[str]:
    """A line for each gate that did not hold."""
    for outcome in outcomes:
        if not outcome.is_held:
            yield f"::error title={_property(f'Gate {outcome.name}')}::{_data(outcome.sentence)}"


def _data(text: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    return in_one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
