"""The first divergences in the failed trials of a run, equal ones counted together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.pages.runs.view import trial_href

N_SHOWN = 3
MAX_CASES = 50
MAX_TRIALS = 200
N_NAMED = 3


@dataclass(frozen=True, slots=True)
class BrokenPlace:
    """A first divergence: its number of trials, its words, its cases, and the address of the first such trial."""

    n: int
    words: str
    case_ids: Sequence[str]
    n_more_cases: int
    href: str


@dataclass(frozen=True, slots=True)
class RunDivergences:
    """The ways to fail in `n_read` failed trials, the most frequent first; `n_more` ways are not shown."""

    summary: RunSummary
    title: str
    n_read: int
    places: Sequence[BrokenPlace]
    n_more: int


def read_divergences(desk: Desk, run_id: int) -> RunDivergences:
    """The first divergences in the failed trials of the worst cases. Raises NotFoundError."""
    runs = desk.store.runs
    summary = runs.summary(run_id)
    rows = runs.case_rows(run_id, sort="worst", only="failed", limit=MAX_CASES)
    names = {row.case_index: row.case_id for row in rows}
    keys = [(row.case_index, at) for row in rows for at, letter in enumerate(row.verdicts) if letter == "f"]
    keys = keys[:MAX_TRIALS]
    alike: defaultdict[str, list[TrialKey]] = defaultdict(list)
    words = {}
    for key, signature in desk.failures.signatures(run_id, keys).items():
        alike[signature.key].append(key)
        words[signature.key] = signature.words
    divergences = sorted(alike, key=lambda each: (-len(alike[each]), alike[each][0]))
    return RunDivergences(
        summary,
        run_title(summary),
        len(keys),
        [_place(run_id, words[key], names, alike[key]) for key in divergences[:N_SHOWN]],
        max(0, len(divergences) - N_SHOWN),
    )


def _place(run_id: int, words: str, names: Mapping[int, str], keys: Sequence[TrialKey]) -> BrokenPlace:
    case_ids = list(dict.fromkeys(names[case_index] for case_index, _ in keys))
    return BrokenPlace(len(keys), words, case_ids[:N_NAMED], len(case_ids[N_NAMED:]), trial_href(run_id, keys[0]))
