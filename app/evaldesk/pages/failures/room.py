"""The failure room of a run: its read trials, their failure modes, and the next trial to read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import MAX_MODE_NAME, TypedFinding
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.diff.signature import group_notes
from evaldesk.errors import EvaldeskError
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.conclusion import Answer, Interval, counted
from evaldesk.model.failures import TRIALS, Asked, Finding, Mode, ProposedGroup, ReadTrials
from evaldesk.model.stored import RunSummary
from evaldesk.pages.failures.decisive import DecisiveTurns, read_decisive_turns
from evaldesk.pages.failures.over_runs import ChangeRow, changes_between
from evaldesk.pages.json_tree import cut
from evaldesk.pages.prose import Markdown, Prose
from evaldesk.pages.runs.view import STATUS_OF, trial_href
from evaldesk.pages.samples import Draw, Sample
from evaldesk.statistics.agreement import agreement
from evaldesk.statistics.failure_modes import Prevalence, Saturation, accumulation, prevalence, saturation
from evaldesk.statistics.intervals import failure_bound
from evaldesk.store import Store
from evaldesk.wording.agreement import kappa_words
from evaldesk.wording.words import divergence_sentence, interval_words, share_words

N_RUNS = 50
N_PROPOSALS, N_QUOTES = 20, 3
N_KEYS, N_NOTES = 9, 40
N_POINTS = 40
CURVE_WIDTH, CURVE_HEIGHT = 400, 120
ENOUGH_COVERAGE = 0.5


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of failure in a run: `n` trials read show it; the estimate of its share is over all drawn strata."""

    mode: Mode | None
    name: str
    n: int
    estimate: Prevalence | None
    key: str = ""

    @property
    def range_words(self) -> str:
        """`12–40 %`: the 95 % CI of the share; empty where it is a point, and without an estimate."""
        interval = self.estimate.interval if self.estimate else None
        return interval_words(interval) if interval and interval.high > interval.low else ""


@dataclass(frozen=True, slots=True)
class CurvePoints:
    """The expected number of modes by read trials, as a path and as a table; `n_most` is the top of the chart."""

    path: str
    rows: Sequence[tuple[int, str]]
    n_most: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """Trials that fail alike; `mode` is the kind they are proposed to, None where they need a new one.

    A model's has `quotes`: those of the first findings, by the finding.
    """

    group: ProposedGroup
    mode: Mode | None
    quotes: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_of_model(self) -> bool:
        """Whether a model proposed it."""
        return self.group.source == "model"

    @property
    def kind_name(self) -> str:
        """The name of the kind, else the one to propose for a kind of its own."""
        note = self.group.note
        return self.mode.name if self.mode else (note.partition(": ")[0] if self.is_of_model else note)[:MAX_MODE_NAME]


@dataclass(frozen=True, slots=True)
class NextTrial:
    """The trial to read next: why it failed, and the turn in which it first differs, else its last one."""

    href: str
    name: str
    status: str
    why: str
    query: Prose
    answer: Prose


@dataclass(frozen=True, slots=True)
class FailureRoom:
    """All that the page shows. `next_trial` is None when all that is to be read was read."""

    run: RunSummary
    runs: Sequence[RunSummary]
    newest_runs: Sequence[RunSummary]
    n_failed: int
    n_read: int
    n_passed_read: int
    n_passed: int
    modes: Collection[Mode]
    rows: Sequence[KindRow]
    unnamed: KindRow | None
    clear: KindRow | None
    share_of: str
    saturation: Saturation
    sentence: str
    why: str
    curve: CurvePoints | None
    agreements: Sequence[tuple[str, str]]
    proposals: Sequence[Proposal]
    notes: Sequence[tuple[str, Sequence[Finding]]]
    first_proposal: int
    n_proposals: int
    models: Sequence[str]
    model_use: Asked
    agents: Sequence[AgentTotals]
    next_proposal: Proposal | None
    next_trial: NextTrial | None
    draft: TypedFinding
    problem: str
    against: RunSummary | None
    against_problem: str
    changes: Sequence[ChangeRow]
    decisive: DecisiveTurns

    @property
    def next_proposals(self) -> int:
        """The place of the first proposal of the next page; 0 where there is none."""
        following = self.first_proposal + len(self.proposals)
        return following if following < self.n_proposals else 0


def read_failures(
    desk: Desk,
    run_id: int | None,
    before_id: int | None = None,
    draft: TypedFinding | None = None,
    error: EvaldeskError | None = None,
    first: int = 0,
) -> FailureRoom | None:
    """The failure room of a run, of the newest one with failures without `run_id`; None where there is none.

    Its proposals are shown from the one at `first` on.
    """
    store = desk.store
    newest_runs = store.runs.list(limit=N_RUNS)
    runs = [run for run in newest_runs if run.counts.failed or run.counts.errored]
    if run_id is None:
        if not runs:
            return None
        run_id = runs[0].id
    run_id = played_run_id(store.runs, run_id)
    run, draw, reading = store.runs.summary(run_id), Draw(store, run_id), store.failures.read_trials(run_id)
    trials_read, by_mode, failed = reading.read, reading.by_mode, frozenset(draw.strata["f"])
    modes = {mode.id: mode for mode in store.failures.modes()}
    following, samples = draw.next(trials_read), draw.samples(trials_read)
    times = [len(trials & failed) for trials in by_mode.values()]
    saturation_of_run = saturation(times, len(trials_read & failed))
    n_left, n_since = len(failed - trials_read), _n_since_new(draw.strata["f"], reading)
    proposed = store.proposals.proposed(run_id)
    proposals = _proposals(proposed, modes, lambda trial: trial not in trials_read)
    first = first if 0 < first < len(proposals) else 0
    before = store.runs.summary(played_run_id(store.runs, before_id)) if before_id is not None else None
    if before and before.id == run_id:
        before = None
    problem, changes = changes_between(store, before.id, run_id, modes) if before else ("", [])
    return FailureRoom(
        run=run,
        runs=runs,
        newest_runs=newest_runs,
        n_failed=len(draw.strata["f"]),
        n_read=len(trials_read & failed),
        n_passed_read=len(trials_read.intersection(draw.strata["p"])),
        n_passed=len(draw.strata["p"]),
        modes=modes.values(),
        rows=_kind_rows(modes, by_mode, samples),
        unnamed=_other_row("no name yet", reading.trials_without_mode, samples),
        clear=_other_row("nothing wrong", reading.all_clear & failed, samples, "0"),
        share_of=_share_of(samples, len(trials_read)),
        saturation=saturation_of_run,
        sentence=_seen_sentence(saturation_of_run, n_left, n_since),
        why=_why(saturation_of_run, n_since),
        curve=_curve(times, saturation_of_run),
        agreements=_agreements(modes, reading),
        proposals=_with_quotes(store, proposals[first : first + N_PROPOSALS]),
        notes=_notes(store, run_id) if any(None in each for each in reading.findings.values()) else [],
        first_proposal=first,
        n_proposals=len(proposals),
        models=desk.model_proposals.models,
        model_use=store.proposals.model_use(run_id),
        agents=store.runs.agent_totals(run_id, "failed"),
        next_proposal=next(iter(_proposals(proposed, modes, lambda trial: trial == following)), None),
        next_trial=_next_trial(store, run, following, draw) if following is not None else None,
        draft=draft or TypedFinding(desk.person.name()),
        problem=str(error or ""),
        against=before,
        against_problem=problem,
        changes=changes,
        decisive=read_decisive_turns(desk, run_id),
    )


def _next_trial(store: Store, run: RunSummary, number: int, draw: Draw) -> NextTrial:
    case_index, at = divmod(number, TRIALS)
    turns, divergence = store.runs.turns(run.id, case_index, at)
    n_turns, result = turns.summary.n_turns, turns.result
    last = min(divergence.turn if divergence else n_turns, n_turns)
    turn = turns.read_turns(last - 1, last)[0].record if last else None
    place = f"{divergence.place[:1].upper()}{divergence.place[1:]}" if divergence else ""
    why = f"{place}: {divergence_sentence(divergence)}." if divergence else ""
    scores = [*(result.scores if result else ()), *(turns.read_turns(last - 1, last)[0].scores if last else ())]
    reasons = (score.reason for score in scores if score.passed is False and score.reason)
    markdown = Markdown()
    return NextTrial(
        href=numbered_trial_href(run.id, number),
        name=f"{turns.case.id}, trial {at + 1}",
        status=STATUS_OF[draw.cases[case_index][1][at]],
        why=why or (result.error.message if result and result.error else next(reasons, "")),
        query=markdown.prose(cut(turn.query, 400) if turn else ""),
        answer=markdown.prose(cut(turn.answer or "", 600) if turn else ""),
    )


def _kind_rows(
    modes: Mapping[int, Mode], trials: Mapping[int, Set[int]], samples: Mapping[str, Sample]
) -> list[KindRow]:
    order = sorted(trials, key=lambda mode_id: (-len(trials[mode_id]), mode_id))
    unseen = [mode.id for mode in modes.values() if mode.is_active and mode.id not in trials]
    rows = []
    for at, mode_id in enumerate([*order, *unseen]):
        mode = modes.get(mode_id)
        name = mode.name if mode else f"kind {mode_id}"
        key = str(at + 1) if at < N_KEYS and mode and mode.is_active else ""
        rows.append(kind_row(name, trials.get(mode_id, frozenset()), samples, key, mode))
    return rows


def _other_row(name: str, trials: Set[int], samples: Mapping[str, Sample], key: str = "") -> KindRow | None:
    return kind_row(name, trials, samples, key) if trials else None


def kind_row(
    name: str,
    trials: Set[int],
    samples: Mapping[str, Sample],
    key: str = "",
    mode: Mode | None = None,
) -> KindRow:
    estimate = prevalence([each.stratum(trials) for each in samples.values() if each.keys])
    return KindRow(mode, name, len(trials), estimate, key)


def _share_of(samples: Mapping[str, Sample], n_read: int) -> str:
    """The trials behind the shares, and their number where some were read out of order."""
    words = ("failed", "errored", "passed", "unscored")
    verdict_words = [word for word, sample in zip(words, samples.values(), strict=True) if sample.keys]
    n_drawn = sum(len(sample.keys) for sample in samples.values())
    draw_words = f", by the {n_drawn:,} read in the order of the draw" if 0 < n_drawn < n_read else ""
    return f"{' and '.join(verdict_words) or 'failed'} trials{draw_words}"


def _n_since_new(order: Iterable[int], reading: ReadTrials) -> int:
    """The trials read after the last that showed a kind for the first time, or a failure without a kind."""
    place = {trial: at for at, trial in enumerate(filter(reading.read.__contains__, order))}
    kinds = [[place[trial] for trial in trials if trial in place] for trials in reading.by_mode.values()]
    unnamed = (place[trial] for trial in reading.trials_without_mode if trial in place)
    return len(place) - 1 - max([*unnamed, *(min(each) for each in kinds if each)], default=-1)


def _seen_sentence(saturation: Saturation, n_left: int, n_since: int) -> str:
    """The seen modes, and an estimate of the unseen ones: few read trials rule out little."""
    if not saturation.n_modes:
        return "No kind of failure named yet"
    kinds_words, more = f"{counted(saturation.n_modes, 'kind')} of failure", round(saturation.unseen)
    if not n_left:
        return f"{kinds_words} in this run" + (f"; other runs may show about {more} more" if more else "")
    if saturation.coverage < ENOUGH_COVERAGE or saturation.expected_new > ENOUGH_COVERAGE:
        return f"{kinds_words}; most kinds are probably not seen yet"
    if more:
        return f"{kinds_words}; about {more} more probably not seen yet"
    if saturation.expected_new:
        return f"{kinds_words}; about 1 failed trial in {round(1 / saturation.expected_new):,} would show another"
    return f"{kinds_words}; up to {share_words(failure_bound(n_since))} of failed trials could show another"


def _why(saturation: Saturation, n_since: int) -> str:
    if not saturation.n_modes:
        return ""
    once = f"{counted(saturation.n_once, 'kind')} seen once and {saturation.n_twice:,} twice"
    coverage = share_words(saturation.coverage)
    words = f"Coverage {coverage}: the kinds named so far cause about that share of failures. {once}"
    words += f"; Chao's estimator gives at least {saturation.unseen:.1f} kinds not seen yet, a lower bound. "
    if saturation.expected_new:
        words += f"About {share_words(saturation.expected_new)} of failed trials would show a new kind. "
    bound_words = f"so at most {share_words(failure_bound(n_since))} of failed trials would show one (95 %)"
    since = f"None of the last {counted(n_since, 'trial')} read showed a new kind, {bound_words}."
    return words + (since if n_since else "The last trial read showed a new kind, or one without a name.")


def _curve(times: Sequence[int], saturation: Saturation) -> CurvePoints | None:
    """`times` are the failed trials read of each kind."""
    n = saturation.n_read
    if n < 2 or not saturation.n_modes:
        return None
    steps = sorted({round(1 + (n - 1) * at / (N_POINTS - 1)) for at in range(N_POINTS)})
    values = [(at, accumulation(times, n, at)) for at in steps]
    most = saturation.n_modes + saturation.unseen
    points = [f"{CURVE_WIDTH * at / n:.1f} {CURVE_HEIGHT * (1 - value / most):.1f}" for at, value in values]
    table = [(at, f"{value:.1f}") for at, value in values[:: max(1, len(values) // 6)]]
    return CurvePoints(f"M0 {CURVE_HEIGHT}L{'L'.join(points)}", [*table, (n, f"{values[-1][1]:.1f}")], most)


def _notes(store: Store, run_id: int) -> list[tuple[str, list[Finding]]]:
    """The newest findings without a mode, similar ones under one name."""
    findings = [each for each in store.failures.of_mode(None, run_id, N_NOTES) if each.note]
    groups = group_notes([each.note for each in findings])
    return [(name[:MAX_MODE_NAME], [findings[at] for at in places]) for name, places in groups]


def _proposals(
    groups: Sequence[ProposedGroup], modes: Mapping[int, Mode], is_wanted: Callable[[int], bool]
) -> list[Proposal]:
    """The proposals for the wanted trials, the most frequent first."""
    filtered_groups = (
        replace(each, findings=[pair for pair in each.findings if is_wanted(pair[1])]) for each in groups
    )
    ordered = sorted(
        (each for each in filtered_groups if each.findings),
        key=lambda each: (-len(each.findings), each.signature, each.note),
    )
    active = {mode.id: mode for mode in modes.values() if mode.is_active}
    return [Proposal(each, active.get(each.mode_id or 0)) for each in ordered]


def _with_quotes(store: Store, proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals of a page; a model's proposals with their quotes."""
    ids = {
        at: [finding for finding, _ in each.group.findings[:N_QUOTES]]
        for at, each in enumerate(proposals)
        if each.is_of_model
    }
    quotes = store.proposals.quotes([finding for each in ids.values() for finding in each]) if ids else {}
    return [
        replace(each, quotes={finding: quotes.get(finding, "") for finding in ids.get(at, ())})
        for at, each in enumerate(proposals)
    ]


def numbered_trial_href(run_id: int, number: int) -> str:
    """The page of a trial by its number in a run."""
    return trial_href(run_id, divmod(number, TRIALS))


def _agreements(modes: Mapping[int, Mode], reading: ReadTrials) -> list[tuple[str, str]]:
    """How far readers agree on each kind that two could have named on the same trials, over the pairs of readers."""
    counts: defaultdict[int, Counter[tuple[bool, bool]]] = defaultdict(Counter)
    nothing = frozenset[int]()
    n_pairs = 0
    for a, b in combinations(sorted({*reading.clear, *reading.doubted}), 2):
        both = reading.of_reader(a) & reading.of_reader(b)
        n_pairs += len(both)
        of_a, of_b = reading.findings.get(a, {}), reading.findings.get(b, {})
        for mode_id in modes.keys() & {*of_a, *of_b}:
            in_a, in_b = of_a.get(mode_id, nothing) & both, of_b.get(mode_id, nothing) & both
            n_both = len(in_a & in_b)
            counts[mode_id][True, True] += n_both
            counts[mode_id][True, False] += len(in_a) - n_both
            counts[mode_id][False, True] += len(in_b) - n_both
    n_by_mode = {
        mode_id: 2 * each[True, True] + each[True, False] + each[False, True] for mode_id, each in counts.items()
    }
    return [
        (modes[mode_id].name, _agreement_words(counts[mode_id], n_pairs))
        for mode_id in sorted(n_by_mode, key=lambda mode_id: (-n_by_mode[mode_id], mode_id))
        if n_by_mode[mode_id]
    ]


def _agreement_words(counts: Counter[tuple[bool, bool]], n_pairs: int) -> str:
    result = agreement(counts | {(False, False): n_pairs - counts.total()})
    return f"agree on {result.n_agreed:,} of {counted(result.n, 'trial')}; {kappa_words(result)}"


def mode_gate(desk: Desk, run_id: int, name: str, most: float) -> tuple[Answer, str]:
    """The gate "at most this share of the scored trials has this mode", by the estimated share, and its words.

    Raises NotFoundError. Undecided while failed trials are there and none was drawn and read. Passed trials that nobody
    read count as without the mode.
    """
    mode = desk.failures.find_mode(name)
    run_id = played_run_id(desk.store.runs, run_id)
    draw, reading = Draw(desk.store, run_id), desk.store.failures.read_trials(run_id)
    trials = reading.with_mode(mode.id)
    strata = {letter: sample.stratum(trials) for letter, sample in draw.samples(reading.read).items()}
    n_scored = strata["f"].n_all + strata["p"].n_all
    limit_words = f"at most {share_words(most)} allowed"
    if not n_scored or (strata["f"].n_all and not strata["f"].n_read):
        why = "no trial was scored" if not n_scored else "none of the failed trials drawn first was read"
        return "undecided", f"{mode.name}: {why}; {limit_words}"
    estimate = prevalence([strata["f"], strata["p"]])
    weight = 1.0 if strata["p"].n_read or not estimate else strata["f"].n_all / n_scored
    share = estimate.share * weight if estimate else 0.0
    could = (
        Interval(estimate.interval.low * weight, estimate.interval.high * weight) if estimate else Interval(0.0, 0.0)
    )
    doubt = f"; 95 % CI {interval_words(could)}" if could.high > could.low else ""
    words = f"{mode.name}: {share_words(share)} of {counted(n_scored, 'scored trial')}{doubt}; {limit_words}"
    return "held" if share <= most else "failed", words
