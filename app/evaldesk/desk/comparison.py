"""Two runs, compared case by case: what changed, whether it could be chance, and what was different from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.comparison_cases import CHANGED, KINDS, CaseChange, by_id, case_changes, rates, verdicts
from evaldesk.desk.comparison_config import ConfigDifference, config_difference, warnings
from evaldesk.desk.run_names import run_title
from evaldesk.desk.run_reliability import reliability
from evaldesk.desk.run_view import LIVE, Bar, Filter, columns_k, is_higher_better, is_share, known_cost, short_title
from evaldesk.errors import UsageError
from evaldesk.report import (
    DOLLARS,
    FEWER_IS_BETTER,
    MILLISECONDS,
    SCORES,
    Comparison,
    Unit,
    changes_sentence,
    compare_scores,
    compare_verdicts,
    comparison_sentence,
    difference_words,
    flips_sentence,
    holm,
    p_words,
    pairing_note,
)
from evaldesk.store import CaseOutcome, RunStore, RunSummary

PAGE_SIZE = 100
BADGES: Mapping[str, str] = {"broken": "failed", "fixed": "passed"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs, as a line."""

    letter: str
    summary: RunSummary
    title: str
    counts: Mapping[str, int]
    passed: str
    bar: Bar | None
    doubt: str
    pass_hat_k: float | None
    cost: float | None
    median_ms: float | None

    @property
    def href(self) -> str:
        """Where the run is."""
        return f"/runs/{self.summary.id}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One quantity in both runs, over the cases that have it in both; `way` is better, worse, or empty for chance."""

    title: str
    kind: str
    before: float
    after: float
    words: str
    p: str
    way: str
    n_cases: int


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """All that the page of a comparison shows."""

    a: Side
    b: Side
    k: int
    verdict: str
    doubt: str
    flips: str
    notes: Sequence[str]
    warnings: Sequence[str]
    differences: Sequence[Difference]
    config: ConfigDifference
    filters: Sequence[Filter]
    changes: Sequence[CaseChange]
    n_fitting: int
    more_href: str
    swap_href: str
    is_live: bool

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both runs, the earlier choice first."""
        return self.a, self.b


def read_comparison(runs: RunStore, a_id: int, b_id: int, show: str = "", start: int = 0) -> ComparisonPage:
    """Run `b_id` against run `a_id`. Raises NotFoundError; UsageError for a run and itself."""
    if a_id == b_id:
        raise UsageError(f"run {a_id} is the same as itself; choose two different runs", field="b")
    a, b = runs.summary(a_id), runs.summary(b_id)
    before, after = by_id(runs.case_outcomes(a_id)), by_id(runs.case_outcomes(b_id))
    changes = case_changes(a, b, before, after)
    compared = compare_scores(rates(before, a.config), rates(after, b.config))
    flips = compare_verdicts(verdicts(before, a.config), verdicts(after, b.config))
    fitting = [change for change in changes if (change.kind == show if show in KINDS else change.kind in CHANGED)]
    k = min(columns_k(a.config.n), columns_k(b.config.n))
    verdict, _, doubt = comparison_sentence(compared).partition("; ")
    return ComparisonPage(
        a=_side(runs, "A", a, k),
        b=_side(runs, "B", b, k),
        k=k,
        verdict=verdict,
        doubt=doubt,
        flips=flips_sentence(flips),
        notes=[note for note in (pairing_note(compared) if compared else "", _outstanding(changes)) if note],
        warnings=warnings(a, b, [change.case_id for change in changes if change.was_edited]),
        differences=_differences(a, b, before, after),
        config=config_difference(a, b),
        filters=_filters(a_id, b_id, changes, show),
        changes=fitting[start : start + PAGE_SIZE],
        n_fitting=len(fitting),
        more_href=_href(a_id, b_id, show, start + PAGE_SIZE) if len(fitting) > start + PAGE_SIZE else "",
        swap_href=_href(b_id, a_id),
        is_live=bool({a.status, b.status} & LIVE),
    )


def _side(runs: RunStore, letter: str, summary: RunSummary, k: int) -> Side:
    found, point = reliability(runs.outcome_counts(summary.id), summary, k)
    counts = {name: getattr(summary, f"n_{name}") for name in ("passed", "failed", "errored", "unscored")}
    return Side(
        letter=letter,
        summary=summary,
        title=run_title(summary),
        counts=counts,
        passed=f"{summary.n_passed:,} of {summary.n_scored:,}",
        bar=found.bar,
        doubt=found.doubt.removeprefix("could be "),
        pass_hat_k=point.pass_hat_k,
        cost=known_cost(summary, summary.cost, summary.n_unpriced),
        median_ms=runs.median_ms(summary.id),
    )


def _differences(
    a: RunSummary, b: RunSummary, before: Mapping[str, CaseOutcome], after: Mapping[str, CaseOutcome]
) -> list[Difference]:
    """Each metric that both runs have, then time and cost of a trial."""
    names = dict.fromkeys(name for cases in (before, after) for case in cases.values() for name in case.means)
    order = [criterion.metric for criterion in (*a.config.criteria, *b.config.criteria)]
    names = dict.fromkeys([*(name for name in order if name in names), *names])
    found = [
        _difference(short_title(name), "score", _means(before, name), _means(after, name), _unit(name))
        for name in names
    ]
    found.append(_difference("Time of a trial", "duration", _times(before), _times(after), MILLISECONDS))
    if not a.n_unpriced and not b.n_unpriced and (a.cost or b.cost):
        found.append(_difference("Cost of a trial", "dollars", _costs(before), _costs(after), DOLLARS))
    return [each for each in found if each]


def _difference(
    title: str, kind: str, before: Mapping[str, float], after: Mapping[str, float], unit: Unit | None
) -> Difference | None:
    compared = compare_scores(before, after)
    if compared is None:
        return None
    return Difference(
        title=title,
        kind=kind,
        before=compared.before,
        after=compared.after,
        words=difference_words(compared, unit),
        p=p_words(compared.p),
        way=_way(compared, unit),
        n_cases=compared.n_cases,
    )


def _way(compared: Comparison, unit: Unit | None) -> str:
    """Whether B is `better` or `worse`; empty where that could be chance."""
    if not compared.is_distinguishable:
        return ""
    is_up_good = unit is None or unit.more == "better"
    return "better" if (compared.difference > 0) == is_up_good else "worse"


def _unit(metric: str) -> Unit | None:
    """Points for scores of 0 to 1; plain numbers for what counts or measures something."""
    if not is_higher_better(metric):
        return FEWER_IS_BETTER
    return None if is_share(metric) else SCORES


def _means(cases: Mapping[str, CaseOutcome], metric: str) -> dict[str, float]:
    return {case_id: case.means[metric] for case_id, case in cases.items() if metric in case.means}


def _times(cases: Mapping[str, CaseOutcome]) -> dict[str, float]:
    return {case_id: case.duration_ms / case.n_done for case_id, case in cases.items() if case.n_done}


def _costs(cases: Mapping[str, CaseOutcome]) -> dict[str, float]:
    return {case_id: case.cost / case.n_done for case_id, case in cases.items() if case.n_done}


def _outstanding(changes: Sequence[CaseChange]) -> str:
    """How many cases changed by more than chance among so many; empty where one trial a case can never tell."""
    tested = [change for change in changes if change.p is not None]
    if not tested:
        return ""
    n_stand_out = sum(change.stands_out for change in tested)
    said = f"{changes_sentence(n_stand_out, len(tested))} (Benjamini-Hochberg)."
    is_any = min(holm([change.p or 0.0 for change in tested])) < 0.05
    return said if is_any or n_stand_out else f"{said} No single case proves a change."


def _filters(a_id: int, b_id: int, changes: Sequence[CaseChange], show: str) -> list[Filter]:
    counts = {kind: sum(change.kind == kind for change in changes) for kind in KINDS}
    n_changed = sum(counts[kind] for kind in CHANGED)
    found = [Filter("Changed", n_changed, "", _href(a_id, b_id), show not in KINDS)]
    return found + [
        Filter(kind, n, BADGES.get(kind, ""), _href(a_id, b_id, kind), show == kind)
        for kind, n in counts.items()
        if n or show == kind
    ]


def _href(a_id: int, b_id: int, show: str = "", start: int = 0) -> str:
    parts = {"a": a_id, "b": b_id, "show": show, "from": start}
    return f"/compare?{urlencode({name: value for name, value in parts.items() if value})}"
