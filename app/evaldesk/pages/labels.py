"""The page of labels: every labelled trial, and how far people agree with one another and with the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.labels import VERDICTS
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.model.stored import LabelFilter, LabelledTrial, LabelPair, RunSummary, TrialKey, TurnLabel
from evaldesk.pages.runs.view import Filter, trial_href
from evaldesk.statistics.agreement import JudgeSkill, agreement, judge_skill, nominal_alpha
from evaldesk.store import Store
from evaldesk.wording.agreement import (
    alpha_sentence,
    enough_sentence,
    kappa_words,
    next_labels_sentence,
    skill_sentence,
)
from evaldesk.wording.noise import corrected_sentence
from evaldesk.wording.words import short_title

PAGE_SIZE = 50
HALF_WIDTH = 0.1
"""The half width of an interval for which the page counts the labels that are missing."""
BADGES: Mapping[str, str] = {"passed": "passed", "failed": "failed", "unsure": "unscored"}


@dataclass(frozen=True, slots=True)
class LabelListing:
    """All that the page shows; `run` is None for the labels of all runs."""

    labels: Sequence[LabelledTrial]
    n_all: int
    n_found: int
    filters: Sequence[Filter]
    labellers: Sequence[str]
    label_filter: LabelFilter
    run: RunSummary | None
    alpha: str
    agreements: Sequence[MetricAgreement]
    turn_bound: str
    turn_alpha: str
    turn_agreements: Sequence[MetricAgreement]
    older_href: str


def read_labels(desk: Desk, label_filter: LabelFilter, before: datetime | None = None) -> LabelListing:
    """A page of labels, newest first, and the agreement over all of a run or of the workspace. Raises NotFoundError."""
    store, run_id = desk.store, label_filter.run_id
    run = store.runs.summary(run_id) if run_id is not None else None
    store_filter = replace(label_filter, run_id=played_run_id(store.runs, run.id) if run else None)
    labels = store.labels.list(store_filter, before=before, limit=PAGE_SIZE + 1)
    pairs = store.labels.pairs(store_filter.run_id, run.id if run else None)
    turns = turn_pairs(store, store_filter.run_id, run.id if run else None)
    return LabelListing(
        labels=labels[:PAGE_SIZE],
        n_all=store.labels.count(LabelFilter(run_id=store_filter.run_id)),
        n_found=store.labels.count(store_filter),
        filters=_filters(store, label_filter, store_filter),
        labellers=store.labels.labellers(),
        label_filter=label_filter,
        run=run,
        alpha=people_words(pairs),
        agreements=metric_agreements(pairs, _verdict_counts(store, run) if run else {}),
        turn_bound=bound_words(turns),
        turn_alpha=people_words(turns, "turn"),
        turn_agreements=metric_agreements(turns, {}),
        older_href=_href(label_filter, _cursor(labels[PAGE_SIZE - 1])) if len(labels) > PAGE_SIZE else "",
    )


def cursor_time(text: str) -> datetime | None:
    """The moment that a page of labels ends with; None for a text that no page gave."""
    try:
        return datetime.fromtimestamp(int(text) / 1_000_000, UTC) if text.isdecimal() and len(text) < 18 else None
    except (ValueError, OverflowError, OSError):
        return None


def label_href(labelled_trial: LabelledTrial) -> str:
    """The address of a labelled trial, at the turn that the label is of."""
    turn = labelled_trial.label.turn
    return trial_href(labelled_trial.run_id, labelled_trial.key) + ("" if turn is None else f"#turn-{turn + 1}")


def verdict_badge(verdict: str) -> str:
    """The status whose colour shows a person's verdict; that of none for a verdict that another program wrote."""
    return BADGES.get(verdict, "unscored")


def _verdict_counts(store: Store, run: RunSummary) -> dict[str, tuple[int, int]]:
    """The numbers of trials that each metric passes and fails; under the empty name, by verdict."""
    rows = [row for row in store.runs.metric_rows(run.id) if row.threshold is not None]
    counts = {row.metric: (row.n_passed, row.n - row.n_passed) for row in rows}
    return counts | ({"": (run.counts.passed, run.counts.failed)} if run.counts.scored else {})


def _filters(store: Store, label_filter: LabelFilter, store_filter: LabelFilter) -> list[Filter]:
    free = replace(store_filter, verdict=None, is_disagreement=False)
    everything = replace(label_filter, verdict=None, is_disagreement=False)
    is_free = label_filter.verdict is None and not label_filter.is_disagreement
    filters = [Filter("All", store.labels.count(free), "", _href(everything), is_free)]
    for verdict in VERDICTS:
        n = store.labels.count(replace(free, verdict=verdict))
        href, is_current = _href(replace(everything, verdict=verdict)), label_filter.verdict == verdict
        filters.append(Filter(verdict, n, BADGES[verdict], href, is_current))
    n = store.labels.count(replace(free, is_disagreement=True))
    href = _href(replace(everything, is_disagreement=True))
    return [*filters, Filter("metrics disagree", n, "errored", href, label_filter.is_disagreement)]


def _cursor(labelled_trial: LabelledTrial) -> str:
    return str(round(labelled_trial.label.labelled_at.timestamp() * 1_000_000))


def _href(label_filter: LabelFilter, before: str = "") -> str:
    only = "disagreements" if label_filter.is_disagreement else label_filter.verdict
    parts = {"run": label_filter.run_id, "labeller": label_filter.labeller, "only": only, "before": before}
    query = urlencode({name: value for name, value in parts.items() if value})
    return "/labels" + (f"?{query}" if query else "")


MAX_TRIALS = 100
"""The trials whose transcripts are read for the scores of turns: those labelled last."""


@dataclass(frozen=True, slots=True)
class MetricAgreement:
    """How far a metric agrees with the labels, in words; the last three may be empty."""

    title: str
    counts: JudgeSkill
    skill: str
    kappa: str
    enough: str
    corrected: str
    next_labels: str


def metric_agreements(
    pairs: Sequence[LabelPair], counts_by_metric: Mapping[str, tuple[int, int]]
) -> list[MetricAgreement]:
    """Each metric against the labels, the verdict first; `counts_by_metric` are the trials that it passes and fails."""
    by_metric: dict[str, list[LabelPair]] = defaultdict(list)
    for pair in pairs:
        if pair.is_passed is not None:
            by_metric[pair.metric].append(pair)
    return [
        _agreement(metric, of_metric, counts_by_metric.get(metric)) for metric, of_metric in sorted(by_metric.items())
    ]


def people_words(pairs: Sequence[LabelPair], noun: str = "trial") -> str:
    """Agreement of people with one another, over trials that more than one of them labelled."""
    units: dict[tuple[int, ...], dict[str, bool]] = defaultdict(dict)
    for pair in pairs:
        if not pair.metric:
            units[pair.trial][pair.labeller] = pair.is_good
    units_of_two = [unit for unit in units.values() if len(unit) > 1]
    return alpha_sentence(
        len({who for unit in units_of_two for who in unit}), len(units_of_two), nominal_alpha(units_of_two), noun
    )


def turn_pairs(store: Store, labelled_run: int | None, scored_run: int | None = None) -> list[LabelPair]:
    """Every verdict of a person on a turn, and beside it each metric's score of that turn.

    Of one run, whose trials `scored_run` may have scored again, or of all; of the MAX_TRIALS trials labelled last.
    """
    labels = store.labels.of_turns(labelled_run, MAX_TRIALS)
    keys: dict[int, set[TrialKey]] = defaultdict(set)
    for each in labels:
        keys[each.run_id].add(each.key)
    scores: dict[tuple[int, ...], dict[str, bool]] = defaultdict(dict)
    for run_id, of_run in keys.items():
        for key, result in store.runs.trials(scored_run or run_id, sorted(of_run)).items():
            for score in result.scores:
                if score.turn is not None and score.passed is not None:
                    scores[run_id, *key, score.turn][score.metric] = score.passed
    return [pair for each in labels for pair in _pairs(each, scores)]


def bound_words(pairs: Sequence[LabelPair]) -> str:
    """That older labels of turns are left out; empty where there are none."""
    n = len({pair.trial[:3] for pair in pairs})
    return f"Based on the {MAX_TRIALS:,} most recently labelled trials." if n >= MAX_TRIALS else ""


def _pairs(label: TurnLabel, scores: Mapping[tuple[int, ...], Mapping[str, bool]]) -> Iterator[LabelPair]:
    place = (label.run_id, *label.key, label.turn)
    yield LabelPair(label.labeller, place, label.is_good, "", None)
    for metric, is_passed in scores.get(place, {}).items():
        yield LabelPair(label.labeller, place, label.is_good, metric, is_passed)


def _agreement(metric: str, pairs: Sequence[LabelPair], counts: tuple[int, int] | None) -> MetricAgreement:
    title = short_title(metric) if metric else "The verdict"
    majority = _by_majority(pairs)
    passed = {pair.trial: pair.is_passed for pair in pairs if pair.is_passed is not None}
    verdict_pairs = [(is_passed, majority[trial]) for trial, is_passed in passed.items() if trial in majority]
    skill = judge_skill(verdict_pairs)
    rate = counts[0] / sum(counts) if counts and sum(counts) else None
    corrected = skill.correct(rate) if rate is not None and skill.n_good and skill.n_bad else None
    return MetricAgreement(
        title=title,
        counts=skill,
        skill=skill_sentence(title, skill),
        kappa=kappa_words(agreement(verdict_pairs)),
        enough=enough_sentence(skill),
        corrected=corrected_sentence(corrected, title) if corrected else "",
        next_labels=next_labels_sentence(skill.labels_to_add(HALF_WIDTH, counts), HALF_WIDTH) if counts else "",
    )


def _by_majority(pairs: Sequence[LabelPair]) -> dict[tuple[int, ...], bool]:
    """One verdict of people on each thing; where they are evenly split there is none."""
    votes: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    for pair in pairs:
        votes[pair.trial].append(pair.is_good)
    return {trial: 2 * sum(passed) > len(passed) for trial, passed in votes.items() if 2 * sum(passed) != len(passed)}
