"""Failure modes over runs: their cost in one, their shares over several, and the changes between two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.errors import NotFoundError
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import TRIALS, Mode, ReadTrials
from evaldesk.pages.samples import Draw
from evaldesk.statistics.failure_modes import mode_changes, prevalence
from evaldesk.store import Store
from evaldesk.wording.comparison import p_words, points_words
from evaldesk.wording.words import share_words

N_TREND, N_SEARCHED = 8, 50


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One kind of failure in two runs."""

    name: str
    href: str
    before: int
    after: int
    words: str


@dataclass(frozen=True, slots=True)
class SpentRow:
    """Cost and time of the trials of one kind; dollars are a lower bound where some are not known.

    `trend` is the share in each run, the oldest first, None for an unread run; `path` is its line.
    """

    name: str
    href: str
    n: int
    cost: float | None
    is_bound: bool
    duration_ms: float | None
    trend: Sequence[float | None]
    path: str

    @property
    def trend_words(self) -> str:
        """`20 %, –, 40 %`."""
        return ", ".join("–" if share is None else share_words(share) for share in self.trend)


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of each failure mode of a run, and its share in the runs of the eval set, the oldest first."""

    run_id: int
    runs: Sequence[int]
    rows: Sequence[SpentRow]


def read_spent(desk: Desk, run_id: int | None) -> Spent:
    """The money and time of the trials read of a run by kind, and the shares of the last runs.

    Without `run_id` it is the newest run with read trials. Raises NotFoundError.
    """
    store = desk.store
    read_runs = store.failures.read_runs()
    if run_id is None and not read_runs:
        raise NotFoundError("no failed trial was read yet")
    run_id = played_run_id(store.runs, read_runs[0] if run_id is None else run_id)
    run, reading, spent = store.runs.summary(run_id), store.failures.read_trials(run_id), store.failures.spent(run_id)
    modes = {mode.id: mode for mode in store.failures.modes()}
    earlier = [each for each in read_runs if each <= run_id][:N_SEARCHED]
    of_set = (each for each in earlier if store.runs.summary(each).config.evalset_id == run.config.evalset_id)
    runs = sorted(islice(of_set, N_TREND))
    shares = [_shares_of(store, each) for each in runs]
    known = [(modes[mode_id].name, mode_id, trials) for mode_id, trials in reading.by_mode.items() if mode_id in modes]
    named = sorted(known, key=lambda row: (-len(row[2]), row[1]))
    kinds: list[tuple[str, int | None, Set[int]]] = [*named, ("no name yet", None, reading.unnamed)]
    rows = [_spent_row(name, mode_id, trials, spent, shares) for name, mode_id, trials in kinds if trials]
    return Spent(run_id, runs, rows)


def _spent_row(
    name: str,
    mode_id: int | None,
    trials: Set[int],
    spent: Mapping[int, tuple[float | None, float]],
    shares: Sequence[Mapping[int, float] | None],
) -> SpentRow:
    found = [spent[trial] for trial in sorted(trials) if trial in spent]
    costs = [cost for cost, _ in found if cost is not None]
    trend = [None if each is None else each.get(mode_id, 0.0) for each in shares] if mode_id is not None else []
    return SpentRow(
        name=name,
        href="" if mode_id is None else f"/failures/{mode_id}",
        n=len(trials),
        cost=sum(costs) if costs else None,
        is_bound=bool(costs) and len(costs) < len(found),
        duration_ms=sum(duration_ms for _, duration_ms in found) or None,
        trend=trend,
        path=_trend_path(trend),
    )


def _shares_of(store: Store, run_id: int) -> Mapping[int, float] | None:
    """The share of each mode of a run in its drawn trials; None where no sample of it was read."""
    reading = store.failures.read_trials(run_id)
    sampled = Draw(store, run_id).sampled(reading.read)
    by_mode = {
        mode_id: prevalence([each.stratum(trials) for each in sampled.values()])
        for mode_id, trials in {0: frozenset[int](), **reading.by_mode}.items()
    }
    if by_mode[0] is None:
        return None
    return {mode_id: found.share for mode_id, found in by_mode.items() if found}


def _trend_path(trend: Sequence[float | None]) -> str:
    """A line in a box of 100 by 20 from none to all trials; runs without a share are left out."""
    step = 100 / max(len(trend) - 1, 1)
    points = [f"{at * step:.1f} {19 - 18 * share:.1f}" for at, share in enumerate(trend) if share is not None]
    return f"M{'L'.join(points)}" if len(points) > 1 else ""


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
    found = {mode_id for side in shares for trials, _ in side.values() for mode_id in trials}
    differences = {
        str(mode_id): [b[mode_id] / n_b - a[mode_id] / n_a for (a, n_a), (b, n_b) in pairs]
        for mode_id in sorted(found & set(modes))
    }
    rows = []
    for mode_id, change in mode_changes(differences).items():
        counts = [sum(side[case][0][int(mode_id)] for case in cases) for side in shares]
        moved = f"less in {change.n_less:,} and more in {change.n_more:,} of {counted(change.n_cases, 'case')}"
        if change.n_less and not counts[1]:
            moved = f"gone in {change.n_less:,} of {counted(change.n_less, 'case')}"
        kinds = f" after {len(differences):,} kinds" if len(differences) > 1 else ""
        by = f"{points_words(change.difference)} {'less' if change.difference < 0 else 'more'} over all cases"
        words = f"{moved}; {by} ({p_words(change.p_holm)}{kinds})"
        rows.append(ChangeRow(modes[int(mode_id)].name, f"/failures/{mode_id}", counts[0], counts[1], words))
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
