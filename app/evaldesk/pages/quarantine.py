"""Cases in quarantine on the page of their set: since when, by whom, and how they did since."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.desk import Desk
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import QUARANTINE
from evaldesk.wording.words import passed_words


@dataclass(frozen=True, slots=True)
class QuarantineLine:
    """A case in quarantine: `since` is the time of its tag, None where no desk of this workspace set it."""

    since: datetime | None
    words: str
    """` by ana`, or ` since run 12, tag changed outside`, behind the time."""
    result: str
    """`4 of 5 passed since, in 2 runs`."""


def quarantine_lines(desk: Desk, evalset_id: str, case_ids: Collection[str]) -> Mapping[str, QuarantineLine]:
    """A line for each of these cases, which are in quarantine."""
    if not case_ids:
        return {}
    authors = desk.store.case_tags.authors(evalset_id, QUARANTINE, case_ids)
    runs = desk.store.runs.quarantine_runs(evalset_id, case_ids)
    lines = {}
    for case_id in case_ids:
        author, own_runs = authors.get(case_id), runs.get(case_id)
        is_of_desk = author is not None and author.is_added
        words = f" by {author.name}" if author and is_of_desk and author.name else ""
        if not is_of_desk:
            run_words = (
                f" since run {own_runs.first_run_id}{' or before' if own_runs.is_cut else ''}" if own_runs else ""
            )
            words = f"{run_words}, tag changed outside"
        result = "not played since"
        if own_runs:
            trials = passed_words(own_runs.n_passed, own_runs.n_scored) if own_runs.n_scored else "no scored trial"
            result = f"{trials} since, in {counted(own_runs.n_runs, 'run')}"
        lines[case_id] = QuarantineLine(author.changed_at if author and is_of_desk else None, words, result)
    return lines
