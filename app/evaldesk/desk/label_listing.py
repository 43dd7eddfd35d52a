"""The page of labels: every labelled trial, and how far people agree with one another and with the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from evaldesk.desk.label_agreement import MetricAgreement, bound_words, metric_agreements, people_words, turn_pairs
from evaldesk.desk.labels import VERDICTS
from evaldesk.desk.rescoring import played_run_id
from evaldesk.desk.run_names import run_title
from evaldesk.desk.run_view import Filter
from evaldesk.store import LabelFilter, LabelledTrial, RunSummary, Store

PAGE_SIZE = 50
BADGES: Mapping[str, str] = {"passed": "passed", "failed": "failed", "unsure": "unscored"}


@dataclass(frozen=True, slots=True)
class LabelLine:
    """One label with where it was given; `is_disagreement` where the metrics say otherwise."""

    found: LabelledTrial
    href: str
    where: str
    badge: str
    is_disagreement: bool


@dataclass(frozen=True, slots=True)
class LabelListing:
    """All that the page shows."""

    lines: Sequence[LabelLine]
    n_all: int
    n_found: int
    filters: Sequence[Filter]
    labellers: Sequence[str]
    wanted: LabelFilter
    run_id: int | None
    run_title: str
    alpha: str
    agreements: Sequence[MetricAgreement]
    turn_bound: str
    turn_alpha: str
    turn_agreements: Sequence[MetricAgreement]
    older_href: str


def read_labels(store: Store, wanted: LabelFilter, before: datetime | None = None) -> LabelListing:
    """A page of labels, newest first, and the agreement over all of a run or of the workspace. Raises NotFoundError."""
    run_id = wanted.run_id
    run = store.runs.summary(run_id) if run_id is not None else None
    kept = replace(wanted, run_id=played_run_id(store.runs, run.id) if run else None)
    found = store.labels.list(kept, before=before, limit=PAGE_SIZE + 1)
    pairs = store.labels.pairs(kept.run_id, run.id if run else None)
    turns = turn_pairs(store, kept.run_id, run.id if run else None)
    return LabelListing(
        lines=[_line(each) for each in found[:PAGE_SIZE]],
        n_all=store.labels.count(LabelFilter(run_id=kept.run_id)),
        n_found=store.labels.count(kept),
        filters=_filters(store, wanted, kept),
        labellers=store.labels.labellers(),
        wanted=wanted,
        run_id=run_id,
        run_title=run_title(run) if run else "",
        alpha=people_words(pairs),
        agreements=metric_agreements(pairs, _pass_rates(store, run) if run else {}),
        turn_bound=bound_words(turns),
        turn_alpha=people_words(turns, "turn"),
        turn_agreements=metric_agreements(turns, {}),
        older_href=_href(wanted, _cursor(found[PAGE_SIZE - 1])) if len(found) > PAGE_SIZE else "",
    )


def cursor_time(text: str) -> datetime | None:
    """The moment that a page of labels ends with; None for text that nobody was given."""
    try:
        return datetime.fromtimestamp(int(text) / 1_000_000, UTC) if text.isdecimal() and len(text) < 18 else None
    except (ValueError, OverflowError, OSError):
        return None


def _line(found: LabelledTrial) -> LabelLine:
    case_index, trial_index = found.key
    turn = found.label.turn
    verdict, said = found.trial_verdict, found.label.verdict
    return LabelLine(
        found=found,
        href=f"/runs/{found.run_id}/cases/{case_index}/trials/{trial_index}"
        + ("" if turn is None else f"#turn-{turn + 1}"),
        where=f"trial {trial_index + 1}" + ("" if turn is None else f", turn {turn + 1}"),
        badge=BADGES.get(said or "", ""),
        is_disagreement=turn is None and {verdict, said} == {"passed", "failed"},
    )


def _pass_rates(store: Store, run: RunSummary) -> dict[str, float]:
    """How often each metric passes a trial of the run; under no name, how often trials pass."""
    rates = {row.metric: row.n_passed / row.n for row in store.runs.metric_rows(run.id) if row.threshold is not None}
    return rates | ({"": run.n_passed / run.n_scored} if run.n_scored else {})


def _filters(store: Store, wanted: LabelFilter, kept: LabelFilter) -> list[Filter]:
    free = replace(kept, verdict=None, is_disagreement=False)
    everything = replace(wanted, verdict=None, is_disagreement=False)
    is_free = wanted.verdict is None and not wanted.is_disagreement
    found = [Filter("All", store.labels.count(free), "", _href(everything), is_free)]
    for verdict in VERDICTS:
        n = store.labels.count(replace(free, verdict=verdict))
        href, is_current = _href(replace(everything, verdict=verdict)), wanted.verdict == verdict
        found.append(Filter(verdict, n, BADGES[verdict], href, is_current))
    n = store.labels.count(replace(free, is_disagreement=True))
    href = _href(replace(everything, is_disagreement=True))
    return [*found, Filter("metrics disagree", n, "errored", href, wanted.is_disagreement)]


def _cursor(found: LabelledTrial) -> str:
    return str(round(found.label.labelled_at.timestamp() * 1_000_000))


def _href(wanted: LabelFilter, before: str = "") -> str:
    only = "disagreements" if wanted.is_disagreement else wanted.verdict
    parts = {"run": wanted.run_id, "labeller": wanted.labeller, "only": only, "before": before}
    query = urlencode({name: value for name, value in parts.items() if value})
    return "/labels" + (f"?{query}" if query else "")
