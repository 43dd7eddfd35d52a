"""GitHub annotations: workflow commands on standard output that mark cases that did not pass."""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.model import Conclusion
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.trial_text import first_words

MOST_CASES = 10
"""GitHub shows ten annotations of each kind and step."""


def case_annotation(case: CaseResult, path: str, *, is_tolerated: bool = False) -> str:
    """`::error file=…,title=…::…` for a case with a failed trial, or a warning if tolerated; empty without one."""
    worst = next((trial for trial in case if trial.verdict in ("failed", "errored")), None)
    if worst is None:
        return ""
    level = "error" if worst.verdict == "failed" and not is_tolerated else "warning"
    counts = case.counts
    passed = f"{counts.passed} of {counts.scored} passed" if counts.scored else "nothing was scored"
    title = f"{case.id}: {passed}"
    place = f"file={_property(path)}," if path else ""
    words = _data(f"trial {worst.trial_index + 1} {worst.verdict}: {first_words(case.case, worst)}")
    return f"::{level} {place}title={_property(title)}::{words}"


def conclusion_annotations(conclusion: Conclusion) -> Iterator[str]:
    """A line for each gate that did not hold; one for the run where they held and it has no verdict all the same."""
    not_held = [gate for gate in conclusion.gates if not gate.is_held]
    for gate in not_held:
        level = "notice" if gate.is_neutral else "error"
        yield f"::{level} title={_property(f'Gate {gate.name}')}::{_data(gate.sentence)}"
    if not not_held and not conclusion.is_passed:
        yield f"::error title={_property(f'Evaluation {conclusion.outcome}')}::{_data(conclusion.reason)}"


def _data(text: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    return in_one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
