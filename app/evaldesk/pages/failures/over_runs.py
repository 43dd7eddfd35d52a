"""The changes of failure modes between two runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import TRIALS, Mode, ReadTrials
from evaldesk.pages.samples import Draw
from evaldesk.statistics.failure_modes import mode_changes
from evaldesk.store import Store
from evaldesk.wording.comparison import p_words, points_words


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One kind of failure in two runs."""

    mode: Mode
    before: int
    after: int
    words: str


def failure_changes(desk: Desk, before_id: int, after_id: int) -> tuple[str, Sequence[ChangeRow]]:
    """The changed failure modes in the second of two runs, or why there are none; empty where one was not read."""
    store = desk.store
    before, after = (played_run_id(store.runs, run_id) for run_id in (before_id, after_id))
    if before == after or not {before, after} <= {*store.failures.read_runs()}:
        return "", ()
    return changes_between(store, before, after, {mode.id: mode for mode in store.failures.modes()})


def changes_between(store: Store, before: int, after: int, modes: Mapping[int, Mode]) -> tuple[str, list[ChangeRow]]:
    """Each kind in the cases that both runs have; told only when every failed trial of both was read."""
    sides = [(Draw(store, run_id), store.failures.read_trials(run_id)) for run_id in (before, after)]
    for run_id, (draw, reading) in zip((before, after), sides, strict=True):
        n_unread = len(set(draw.strata["f"]) - reading.read)
        if n_unread:
            return f"Read the {counted(n_unread, 'failed trial')} of run {run_id} that nobody read yet.", []
    shares = [_shares(draw, reading) for draw, reading in sides]
    cases = sorted(set(shares[0]) & set(shares[1]))
    if not cases:
        return "The two runs have no case in common.", []
    pairs = [(shares[0][case], shares[1][case]) for case in cases]
    mode_ids = {mode_id for side in shares for trials, _ in side.values() for mode_id in trials}
    differences = {
        str(mode_id): [b[mode_id] / n_b - a[mode_id] / n_a for (a, n_a), (b, n_b) in pairs]
        for mode_id in sorted(mode_ids & set(modes))
    }
    rows = []
    for mode_id, change in mode_changes(differences).items():
        counts = [sum(side[case][0][int(mode_id)] for case in cases) for side in shares]
        change_words = f"less in {change.n_less:,} and more in {change.n_more:,} of {counted(change.n_cases, 'case')}"
        if change.n_less and not counts[1]:
            change_words = f"gone in {change.n_less:,} of {counted(change.n_less, 'case')}"
        kinds = f" after {len(differences):,} kinds" if len(differences) > 1 else ""
        by = f"{points_words(change.difference)} {'less' if change.difference < 0 else 'more'} over all cases"
        words = f"{change_words}; {by} ({p_words(change.p_holm)}{kinds})"
        rows.append(ChangeRow(modes[int(mode_id)], counts[0], counts[1], words))
    return "", sorted(rows, key=lambda row: row.after - row.before)


def _shares(draw: Draw, reading: ReadTrials) -> dict[str, tuple[Counter[int], int]]:
    """For each case the trials with each mode, and the number of scored ones."""
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for mode_id, trials in reading.by_mode.items():
        for number in trials:
            counts[number // TRIALS][mode_id] += 1
    return {
        case_id: (counts[at], n)
        for at, (case_id, letters) in enumerate(draw.cases)
        if (n := letters.count("p") + letters.count("f"))
    }
