"""The result of a review queue that was read whole, and the words that its pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import NotFoundError
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import Mode, trial_number
from evaldesk.model.queues import QUEUE_KINDS, VERDICT_KINDS, Queue, QueueItem, QueueKind
from evaldesk.model.stored import RunSummary
from evaldesk.pages.samples import drawing_orders, samples
from evaldesk.statistics.agreement import JudgeSkill, agreement, judge_skill
from evaldesk.statistics.failure_modes import prevalence
from evaldesk.wording.agreement import kappa_words
from evaldesk.wording.words import interval_words, share_words, short_title

VERDICTS = "".join(VERDICT_KINDS)
BREAK_S = 600
"""A longer time between two verdicts was a break, not reading."""


@dataclass(frozen=True, slots=True)
class ModeShare:
    """A kind of failure in the trials that were read; `could_be` is its share of all failed trials."""

    mode: Mode
    n: int
    could_be: str


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something to do after a queue: a link, or the kinds of another queue of the same runs."""

    icon: str
    title: str
    words: str
    href: str = ""
    kinds: Sequence[QueueKind] = ()


@dataclass(frozen=True, slots=True)
class QueueResult:
    """The results of a completed queue."""

    sentence: str
    detail: str
    shares: Sequence[str]
    figures: Sequence[tuple[str, str]]
    modes: Sequence[ModeShare]
    n_failed: int
    next_steps: Sequence[NextStep]
    matrices: Sequence[tuple[str, JudgeSkill]]
    """The verdict of the metrics together, and each metric, beside the labels of the reader."""


def queue_result(
    desk: Desk, queue: Queue, items: Sequence[QueueItem], runs: Mapping[int, RunSummary], reader: str
) -> QueueResult:
    """The counts of a queue that was read to its end, and the next steps."""
    verdicts = Counter(each.verdict for each in items)
    count_words = [
        f"{verdicts[verdict]:,} {SAID[verdict]}" for verdict in ("failed", "passed", "unsure") if verdicts[verdict]
    ]
    agreed = _agreed("the metrics", [(each.verdict, each.trial_verdict) for each in items])
    others = [
        _agreed(
            name, [(each.verdict, verdicts_by_place[each.place]) for each in items if each.place in verdicts_by_place]
        )
        for name, verdicts_by_place in desk.store.queues.verdicts(queue.id).items()
        if name != reader
    ]
    steps = desk.store.queues.steps(queue.id, reader)
    n_blind = sum(each.n for each in steps if each.is_blind)
    n_given = sum(each.n for each in steps)
    blind = ", blind" if n_given and n_blind == n_given else f", {n_blind:,} of {n_given:,} blind" if n_blind else ""
    gaps = [(b.taken_at - a.taken_at).total_seconds() for a, b in pairwise(steps)]
    worked = [gap for gap in gaps if gap <= BREAK_S]
    minutes = f" in {_time(sum(worked))}" if worked else ""
    by_mode = desk.store.queues.findings(queue.id, reader)
    failed = [each for each in items if each.verdict == "failed"]
    strips = {run_id: [strip for _, strip in desk.store.failures.verdicts(run_id)] for run_id in runs}
    figures = [
        ("a trial, median", _time(median(worked)) if worked else "–"),
        ("kinds of failure seen", f"{sum(mode is not None for mode in by_mode):,}"),
        ("notes", f"{sum(bool(each.label and each.label.note) for each in items):,}"),
    ]
    return QueueResult(
        sentence=f"All {len(items):,} read: {', '.join(count_words)}",
        detail=f"Read by {reader}{minutes}{blind}. {agreed}".strip(),
        shares=[*filter(None, [_share_of_run(desk, run, strips[run.id], reader) for run in runs.values()] + others)],
        figures=figures,
        modes=_mode_shares(desk, items, by_mode, strips),
        n_failed=len(failed),
        next_steps=_next_steps(desk, queue, items, runs, reader),
        matrices=_matrices(desk, items, runs, reader),
    )


def _matrices(
    desk: Desk, items: Sequence[QueueItem], runs: Mapping[int, RunSummary], reader: str
) -> list[tuple[str, JudgeSkill]]:
    """The trials of the queue by the reader's label and by the verdict of each metric, all metrics together first."""
    by_metric: dict[str, list[tuple[bool, bool]]] = {}
    for run_id in runs:
        keys = {each.key for each in items if each.run_id == run_id}
        for pair in desk.store.labels.pairs(played_run_id(desk.store.runs, run_id), run_id):
            if pair.labeller == reader and pair.trial[1:] in keys and pair.is_passed is not None:
                by_metric.setdefault(pair.metric, []).append((pair.is_passed, pair.is_good))
    return [
        (short_title(metric) if metric else "The verdict", judge_skill(pairs))
        for metric, pairs in sorted(by_metric.items())
    ]


def _agreed(who: str, pairs: Iterable[tuple[str | None, str | None]]) -> str:
    """`You agree with sam on 8 of 10; kappa 0.55`; empty where no trial has two verdicts."""
    result = agreement((a == "passed", b == "passed") for a, b in pairs if a in DECIDED and b in DECIDED)
    return f"You agree with {who} on {result.n_agreed:,} of {result.n:,}; {kappa_words(result)}." if result.n else ""


def _share_of_run(desk: Desk, run: RunSummary, strips: Sequence[str], reader: str) -> str:
    """The estimated number of trials of a run that the reader would fail, where every verdict was drawn from."""
    trials_by_verdict = desk.store.queues.trials_by_verdict(played_run_id(desk.store.runs, run.id), reader)
    orders = drawing_orders(run.id, tuple(strips), VERDICTS)
    trials_read, failed = frozenset().union(*trials_by_verdict.values()), trials_by_verdict.get("failed", frozenset())
    strata = [each.stratum(failed) for each in samples(orders, trials_read).values() if each.n_all]
    estimate = prevalence(strata) if strata and all(each.n_read for each in strata) else None
    if estimate is None:
        return ""
    could_be = f"{share_words(estimate.share)} ({interval_words(estimate.interval)})"
    n_all = sum(each.n_all for each in strata)
    metrics_share = share_words(run.counts.failed / n_all)
    return f"Of all {n_all:,} trials of run {run.id} you would fail {could_be}; the metrics failed {metrics_share}."


def _mode_shares(
    desk: Desk, items: Sequence[QueueItem], by_mode: Mapping[int | None, set[int]], strips: Mapping[int, Sequence[str]]
) -> list[ModeShare]:
    """The kinds that were found, each with the share of failed trials it could have, over the runs of the queue."""
    modes = {mode.id: mode for mode in desk.store.failures.modes()}
    keys = {each.place: each for each in items}
    failed = {}
    for run_id, of_run in strips.items():
        trial_numbers = {trial_number(each.key) for each in items if each.run_id == run_id and each.verdict}
        failed[run_id] = samples(drawing_orders(run_id, tuple(of_run), VERDICTS), trial_numbers)["f"]
    rows = []
    for mode_id, places in sorted(by_mode.items(), key=lambda pair: -len(pair[1])):
        if mode_id in modes:
            here = {(keys[place].run_id, trial_number(keys[place].key)) for place in places if place in keys}
            strata = [each.stratum({key for run, key in here if run == run_id}) for run_id, each in failed.items()]
            estimate = prevalence([each for each in strata if each.n_read])
            rows.append(ModeShare(modes[mode_id], len(places), interval_words(estimate.interval) if estimate else ""))
    return rows


def _next_steps(
    desk: Desk, queue: Queue, items: Sequence[QueueItem], runs: Iterable[int], reader: str
) -> list[NextStep]:
    """Suggested next steps; sampling steps show their pool size."""
    narrow = [each for each in items if each.verdict == "passed" and each.trial_verdict == "failed"]
    loose = [each for each in items if each.verdict == "failed" and each.trial_verdict == "passed"]
    steps = []
    for run_id, n in Counter(each.run_id for each in narrow).most_common():
        words = "You said pass, the metrics said failed: the expectation is too narrow."
        title = f"Accept what {counted(n, 'trial')} of run {run_id} did"
        if desk.evalsets.id_of_run(desk.store.runs.summary(run_id).config):
            steps.append(NextStep("edit", title, words, f"/runs/{run_id}/acceptance?queue={queue.id}"))
    candidates = [desk.queues.candidates(run_id, reader) for run_id in runs]
    n_readers, n_doubted = (sum(len(each.find(kind)) for each in candidates) for kind in ("readers", "doubted"))
    if n_readers:
        title = f"Read {counted(n_readers, 'trial')} where readers disagree"
        steps.append(NextStep("compare", title, "Two people labelled them differently.", kinds=("readers",)))
    if loose:
        title = f"Look again at {counted(n_doubted, 'trial')} where people and metrics disagree"
        words = (
            "Where you said fail and the metrics passed, the expectation is too loose, or something is not asserted."
        )
        steps.append(NextStep("label", title, words, kinds=("doubted",)))
    if not steps:
        steps.append(
            NextStep(
                "search",
                "Read 10 more of each verdict, drawn at random",
                "Shares over all trials get narrower.",
                kinds=tuple(VERDICT_KINDS.values()),
            )
        )
    return steps


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


SAID: Mapping[str, str] = {"passed": "pass", "failed": "fail", "unsure": "unsure"}
DECIDED = ("passed", "failed")


def runs_of(desk: Desk, queue: Queue) -> dict[int, RunSummary]:
    """The runs of a queue that are still there."""
    runs = {}
    for run_id in queue.run_ids:
        with suppress(NotFoundError):
            runs[run_id] = desk.store.runs.summary(run_id)
    return runs


def queue_title(queue: Queue, runs: Mapping[int, RunSummary]) -> str:
    """`Run 61, trips`; of several runs their numbers."""
    ids = queue.run_ids
    if len(ids) == 1:
        return run_title(runs[ids[0]]) if ids[0] in runs else f"Run {ids[0]}"
    return f"Runs {', '.join(map(str, ids))}"


def queue_words(queue: Queue) -> str:
    """`10 of 40 failed, 10 of 157 passed, drawn at random`: nothing for a blind reader."""
    n: Counter[QueueKind] = Counter()
    n_all: Counter[QueueKind] = Counter()
    for each in queue.strata:
        n[each.kind] += each.n
        n_all[each.kind] += each.n_all
    parts = [f"{n[kind]:,} of {n_all[kind]:,} {QUEUE_KINDS[kind][0]}" for kind in queue.kinds if n_all[kind]]
    return f"{', '.join(parts)}, drawn at random" if parts else ""


def trial_name(item: QueueItem) -> str:
    """`norway_with_children, trial 2`."""
    return f"{item.case_id}, trial {item.key[1] + 1}"
