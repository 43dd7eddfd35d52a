"""A case of a run in the words of a report: its counts, and its first trial without a pass."""

from __future__ import annotations

from dataclasses import dataclass

from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.model import Counts
from evaldesk.wording.trial_text import first_words, trial_text

LONGEST = 20_000
"""The letters of a trial that a report shows."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """A case, for JUnit XML and Markdown.

    `trial_index` is the index of the first failed or errored trial, else of the first one; None where none was played.
    `words` are the reason of this trial on one line, None where it passed; `text` shows its turns. `reason` is the
    reason of the first trial without a pass. All three are missing where all trials passed.
    """

    id: str
    counts: Counts
    duration_ms: float
    trial_index: int | None = None
    words: str | None = None
    text: str = ""
    reason: str = ""

    @classmethod
    def of(cls, case: CaseResult) -> CaseReport:
        """The report of a case with its whole trials."""
        counts, duration_ms = case.counts, sum(trial.duration_ms for trial in case)
        if counts.all_passed or not len(case):
            return cls(case.id, counts, duration_ms, 0 if len(case) else None)
        worst = next((trial for trial in case if trial.verdict in ("failed", "errored")), case[0])
        words = first_words(case.case, worst) if worst.verdict != "passed" else None
        first = next((trial for trial in case if trial.verdict != "passed"), None)
        return cls(
            case.id,
            counts,
            duration_ms,
            worst.trial_index,
            words,
            trial_text(case.case, worst)[:LONGEST],
            first_words(case.case, first) if first else "",
        )
