"""The trend of an eval set: its pass rate over runs, the marks of changes, and each case over the last runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from evaldesk.desk.desk import Desk
from evaldesk.model.comparison import SuiteChange
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.set_trend import TrendCase, TrendRun
from evaldesk.model.set_versions import CaseDiff, set_diff
from evaldesk.pages.runs.view import first_problem
from evaldesk.pages.trend_alarm import alarm_runs, newest_verdict
from evaldesk.statistics.change_points import ChangePoint, change_points
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.exact_tests import fisher
from evaldesk.statistics.intervals import rate_interval
from evaldesk.store.runs.trends import MOST_RUNS
from evaldesk.wording.comparison import p_words
from evaldesk.wording.regressions import suite_words
from evaldesk.wording.words import cost_words, duration_words, number_words, passed_words, share_words

N_CASE_RUNS = 30
MOST_CASES = 40
"""Cases of the table; the others are named by their number."""
MOST_FOR_CHANGE = 120
"""Newest comparable runs in which a change is looked for."""
VARIANT_LETTERS = "BCD"
"""The hues of the lines of variants beside that of the newest run, and as many lines as there are."""
MOST_SMALLS = 12
WIDTH, TOP, BASE, LEFT, RIGHT = 1376.0, 10.0, 200.0, 34.0, 1364.0
FLAKY_RUNS, FLAKY_OF = 3, 5
SORTS = {"failing": "Newly failing", "passing": "Newly passing", "flaky": "Flaky", "name": "Name"}


@dataclass(frozen=True, slots=True)
class Mark:
    """A change between two runs: its place on the axis, and its words; the set or its criteria break the line."""

    x: float
    words: tuple[str, ...]
    is_break: bool
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class TrendDot:
    """A run in the picture; it `is_bad` where it passed fewer trials than the runs before it allow."""

    x: float
    y: float
    words: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class VariantLine:
    """The line of a variant: its name, its end, and the letter of its hue."""

    name: str
    paths: tuple[str, ...]
    end: tuple[float, float]
    letter: str


@dataclass(frozen=True, slots=True)
class TrendChart:
    """Paths of a picture with the box WIDTH x 230, and the labels of its axes."""

    bands: tuple[str, ...]
    lines: tuple[str, ...]
    variants: tuple[VariantLine, ...]
    dots: tuple[TrendDot, ...]
    thin: str
    means: tuple[str, ...]
    marks: tuple[Mark, ...]
    grid: tuple[tuple[float, int], ...]
    labels: tuple[tuple[float, int], ...]
    words: str


@dataclass(frozen=True, slots=True)
class CaseTrend:
    """A case of the newest run over the last runs: paths of passed and failed shares, and its change.

    `squares` are the runs with its row in each, None where the run had no such case.
    """

    case_id: str
    address: str
    passes: str
    fails: str
    gaps: str
    cut_at: float | None
    before: tuple[int, int]
    after: tuple[int, int]
    p: float | None
    is_flaky: bool
    words: str
    squares: tuple[tuple[int, TrendCase | None], ...] = ()

    @property
    def trials(self) -> str:
        """`CASE.TRIAL` of each run between spaces, `-` of a run without the case: the trials that its squares open."""
        return " ".join(f"{row.case_index}.{first_problem(row.strip)}" if row else "-" for _, row in self.squares)

    @property
    def square_links(self) -> list[tuple[str, str, str]]:
        """Of each run with the case: the address of its first failed trial, a word on it, and its verdict."""
        return [
            (
                f"/runs/{run_id}/cases/{row.case_index}/trials/{first_problem(row.strip)}",
                f"run {run_id}, {passed_words(row.n_passed, row.n_scored)}",
                "passed" if row.n_passed == row.n_scored else "failed",
            )
            for run_id, row in self.squares
            if row and row.strip
        ]

    @property
    def points(self) -> float | None:
        """By how many points of 100 it passes more often now; None where a side has no scored trial."""
        if not (self.before[1] and self.after[1]):
            return None
        return 100 * (self.after[0] / self.after[1] - self.before[0] / self.before[1])

    @property
    def way(self) -> str:
        """`worse` or `better` beyond chance among all cases; empty where it cannot be told."""
        if self.p is None or self.p > 0.05 or self.points is None:
            return ""
        return "worse" if self.points < 0 else "better"


@dataclass(frozen=True)
class SmallTrend:
    """A small picture of one quantity over the last runs with its newest value."""

    title: str
    value: str
    path: str
    end: tuple[float, float]


@dataclass(frozen=True)
class TrendPage:
    """The trend of one agent and model on a set."""

    runs: tuple[TrendRun, ...]
    choices: tuple[tuple[str, str], ...]
    choice: str
    chart: TrendChart | None
    band: Interval | None
    changes: tuple[ChangePoint, ...]
    compared: tuple[TrendRun, ...]
    headline: tuple[str, str]
    doubt: str
    n_common: int
    alarm: SuiteChange | None = None
    cases: tuple[CaseTrend, ...] = ()
    counts: Mapping[str, int] | None = None
    columns: tuple[str, str] = ("", "")
    smalls: tuple[SmallTrend, ...] = ()
    n_hidden: int = 0
    case_runs: tuple[int, ...] = ()

    @property
    def newest(self) -> TrendRun | None:
        """The newest run."""
        return self.runs[-1] if self.runs else None

    @property
    def is_worse(self) -> bool:
        """Whether the newest change is for the worse, or the newest run alone is."""
        fell = bool(self.changes) and self.changes[-1].after < self.changes[-1].before
        return fell or bool(self.alarm and self.alarm.is_worse)

    @property
    def compared_pair(self) -> tuple[int, int] | None:
        """The runs to compare: the last one before the newest change, or before the newest run, and the newest."""
        if len(self.runs) < 2:
            return None
        at = self.changes[-1].at if self.changes else len(self.compared) - 2
        before = self.compared[at] if at >= 0 else self.runs[-2]
        return before.id, self.runs[-1].id


def trend_page(
    desk: Desk,
    evalset_id: str,
    choice: str = "",
    sort: str = "failing",
    *,
    is_strip: bool = False,
    n_runs: int = MOST_RUNS,
) -> TrendPage:
    """The trend of the agent and model of `choice`, or of the newest run's agent; a strip has no cases.

    `n_runs` are the newest runs of the set that are looked at.
    """
    store = desk.store.runs
    every_run = store.trend_runs(evalset_id, n_runs)
    choices = tuple(dict.fromkeys(_choices(every_run)))
    if choice not in dict(choices):
        choice = choices[0][0] if choices else ""
    runs = tuple(run for run in every_run if choice in (run.agent_id, f"{run.agent_id} {run.model}"))
    # Variants are played in turns: each has a line of its own, and the newest run's is the one that is judged.
    own_runs = tuple(run for run in runs if run.variant == runs[-1].variant)
    compared = comparable_tail(own_runs)[-MOST_FOR_CHANGE:]
    changes = tuple(change_points([run.rate for run in compared]))
    last_runs = own_runs[-N_CASE_RUNS:]
    read_ids = alarm_runs(compared) if is_strip else [run.id for run in last_runs]
    rows = store.trend_cases(read_ids)
    alarm = newest_verdict(compared, rows)
    band = rate_interval(runs[-1].outcomes) if runs else None
    common = frozenset[str]() if is_strip else _common(last_runs, rows)
    chart = (
        _chart(runs, own_runs, compared, changes, _common_rates(last_runs, rows, common), alarm)
        if len(runs) > 1
        else None
    )
    page = TrendPage(
        runs, choices, choice, chart, band, changes, compared,
        change_words(compared, changes, alarm), _doubt(compared, changes, alarm), len(common), alarm,
    )  # fmt: skip
    if is_strip or not runs:
        return page
    cases, columns = _case_trends(last_runs, compared, changes, rows)
    counts = {
        "failing": sum(case.way == "worse" for case in cases),
        "passing": sum(case.way == "better" for case in cases),
        "flaky": sum(case.is_flaky for case in cases),
    }
    ordered = _ordered(cases, sort)
    return replace(
        page,
        cases=tuple(ordered[:MOST_CASES]),
        counts=counts,
        columns=columns,
        smalls=_smalls(last_runs, store.trend_medians(read_ids), store.trend_metrics(read_ids)),
        n_hidden=max(0, len(ordered) - MOST_CASES),
        case_runs=tuple(run.id for run in last_runs),
    )


def _choices(runs: Sequence[TrendRun]) -> list[tuple[str, str]]:
    """The agents, each alone and with each of its models, the newest first."""
    models: dict[str, dict[str, None]] = defaultdict(dict)
    for run in reversed(runs):
        models[run.agent_id][run.model] = None
    choices = []
    for agent, names in models.items():
        choices.append((agent, f"{agent}, every model" if len(names) > 1 else agent))
        if len(names) > 1:
            choices += [(f"{agent} {model}", f"{agent}, {model or 'no model'}") for model in names]
    return choices


def comparable_tail(runs: Sequence[TrendRun]) -> tuple[TrendRun, ...]:
    """The newest runs in a row with the same cases and criteria."""
    tail: list[TrendRun] = []
    for run in reversed(runs):
        if run.line != runs[-1].line:
            break
        tail.append(run)
    return tuple(reversed(tail))


def _changes_between(before: TrendRun, after: TrendRun) -> list[tuple[str, bool]]:
    """The known differences of two runs, and whether each breaks the line."""
    facts = [
        ("the set changed", before.content != after.content, True),
        ("the criteria changed", before.criteria != after.criteria, True),
        (f"the model changed to {after.model or 'none'}", before.model != after.model, False),
        ("the agent changed", before.agent_version != after.agent_version or before.agent_id != after.agent_id, False),
        ("Evaldesk changed", before.evaldesk_version != after.evaldesk_version, False),
    ]
    return [(words, is_break) for words, is_different, is_break in facts if is_different]


def change_words(
    compared: Sequence[TrendRun], changes: Sequence[ChangePoint], alarm: SuiteChange | None = None
) -> tuple[str, str]:
    """`Fell from 90 % to 60 % after run 41,` and `when the model changed to x`; the rate alone without a change."""
    if not compared:
        return "No complete run yet", ""
    if alarm and alarm.is_worse and not (changes and changes[-1].after < changes[-1].before):
        words = f"Run {compared[-1].id} passed {alarm.passed:,} of {alarm.scored:,},"
        return words, f"fewer than {alarm.usual[0]:,}, the least that its last runs allow"
    if not changes:
        newest = compared[-1]
        n = len(compared)
        rest = f"no change beyond chance in {counted(n, 'run')}" if n >= 8 else f"{counted(n, 'comparable run')}"
        return f"{share_words(newest.rate)} of trials passed in run {newest.id},", rest
    point = changes[-1]
    run, following = compared[point.at], compared[point.at + 1]
    verb = "Fell" if point.after < point.before else "Rose"
    if point.word == "drifted":
        verb = "Drifted down" if point.after < point.before else "Drifted up"
    marks = [words for words, _ in _changes_between(run, following)]
    words = f"{verb} from {share_words(point.before)} to {share_words(point.after)}"
    if point.word == "drifted":
        return f"{words} over runs {compared[point.start].id} to {compared[point.end - 1].id}", ""
    return f"{words} after run {run.id}{',' if marks else ''}", f"when {' and '.join(marks)}" if marks else ""


def _doubt(compared: Sequence[TrendRun], changes: Sequence[ChangePoint], alarm: SuiteChange | None) -> str:
    words = _change_doubt(compared, changes)
    if n := len(compared[-1].uncounted) if compared else 0:
        words += f" {counted(n, 'case')} in quarantine {'is' if n == 1 else 'are'} not counted."
    return f"{words} Newest run: {suite_words(alarm)}." if alarm else words


def _change_doubt(compared: Sequence[TrendRun], changes: Sequence[ChangePoint]) -> str:
    n = len(compared)
    if n < 8:
        return f"{counted(n, 'run')} of the same cases and criteria; a change is looked for in 8 or more."
    start = f"Runs {compared[0].id} to {compared[-1].id} have the same cases and criteria."
    if not changes:
        return f"{start} No step among them is larger than random orders of these runs have it (p above 0.05)."
    point = changes[-1]
    fit = "A step fits at least as well as a slope." if point.word == "changed" else "A slope fits better than a step."
    how = "all orders" if point.end - point.start <= 8 else "4,999 random orders"
    return (
        f"{start} In {100 * point.p:.1f} % of {how} of {counted(point.end - point.start, 'run')} some step is as large "
        f"({p_words(point.p)}, after Holm). {fit} A mark is named where it lies between the two runs; it proves no "
        "cause."
    )


def _common(runs: Sequence[TrendRun], rows: Sequence[TrendCase]) -> frozenset[str]:
    """The contents of the newest run's cases that all these runs played; none where all played the same."""
    if len({run.content for run in runs}) < 2:
        return frozenset()
    newest = {row.digest for row in rows if row.run_id == runs[-1].id}
    diffs = _diffs_to_newest(runs, rows).values()
    return frozenset(newest.intersection(*({case.after for case in cases if case.is_comparable} for cases in diffs)))


def _diffs_to_newest(runs: Sequence[TrendRun], rows: Sequence[TrendCase]) -> dict[int, tuple[CaseDiff, ...]]:
    """The cases of each run beside those of the newest one; runs with the same cases share one answer."""
    keys: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        keys[row.run_id].append((row.case_id, row.digest))
    newest = keys[runs[-1].id]
    answers: dict[tuple[tuple[str, str], ...], tuple[CaseDiff, ...]] = {}
    diffs = {}
    for run in runs:
        own = tuple(keys[run.id])
        if own not in answers:
            answers[own] = set_diff(own, newest).cases
        diffs[run.id] = answers[own]
    return diffs


def _common_rates(runs: Sequence[TrendRun], rows: Sequence[TrendCase], common: frozenset[str]) -> dict[int, float]:
    """The pass rate of each run over the common cases."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        if row.digest in common:
            sums[row.run_id][0] += row.n_passed
            sums[row.run_id][1] += row.n_scored
    return {run.id: sums[run.id][0] / sums[run.id][1] for run in runs if sums[run.id][1]}


def _chart(
    runs: Sequence[TrendRun],
    own_runs: Sequence[TrendRun],
    compared: Sequence[TrendRun],
    changes: Sequence[ChangePoint],
    common_rates: Mapping[int, float],
    alarm: SuiteChange | None,
) -> TrendChart:
    step = (RIGHT - LEFT) / max(1, len(runs) - 1)
    x_of = {run.id: LEFT + at * step for at, run in enumerate(runs)}
    intervals = {run.id: rate_interval(run.outcomes) or Interval(run.rate, run.rate) for run in runs}
    lowest = min(min(intervals[run.id].low, run.rate) for run in runs)
    floor = min(0.8, int(lowest * 5) / 5)

    def y(rate: float) -> float:
        return BASE - (max(rate, floor) - floor) / (1 - floor) * (BASE - TOP)

    def paths(of_runs: Sequence[TrendRun]) -> tuple[str, ...]:
        parts = [list(group) for _, group in groupby(of_runs, key=lambda run: run.line)]
        return tuple(
            f"M{'L'.join(f'{x_of[run.id]:.1f} {y(run.rate):.1f}' for run in part)}" for part in parts if len(part) > 1
        )

    bands = []
    for _, group in groupby(own_runs, key=lambda run: run.line):
        part = list(group)
        if len(part) > 1:
            lows = [f"{x_of[run.id]:.1f} {y(intervals[run.id].low):.1f}" for run in part]
            highs = [f"{x_of[run.id]:.1f} {y(intervals[run.id].high):.1f}" for run in reversed(part)]
            bands.append(f"M{'L'.join([*lows, *highs])}Z")
    by_variant: dict[str, list[TrendRun]] = defaultdict(list)
    for run in reversed(runs):
        if run.variant != own_runs[-1].variant:
            by_variant[run.variant].insert(0, run)
    variants = tuple(
        VariantLine(name or "no variant", paths(part), (x_of[part[-1].id], y(part[-1].rate)), letter)
        for letter, (name, part) in zip(VARIANT_LETTERS, by_variant.items(), strict=False)
    )
    marks = [
        Mark((x_of[a.id] + x_of[b.id]) / 2, tuple(words for words, _ in facts), any(each for _, each in facts))
        for a, b in pairwise(own_runs)
        if (facts := _changes_between(a, b))
    ]
    means = []
    for point in changes:
        ids = [run.id for run in compared[point.start : point.end]]
        middle = (x_of[compared[point.at].id] + x_of[compared[point.at + 1].id]) / 2
        means.append(f"M{x_of[ids[0]]:.1f} {y(point.before):.1f}H{middle:.1f}V{y(point.after):.1f}H{x_of[ids[-1]]:.1f}")
    thin = [f"{x_of[run_id]:.1f} {y(rate):.1f}" for run_id, rate in common_rates.items()]
    dots = [
        TrendDot(x_of[run.id], y(run.rate), f"run {run.id}: {run.n_passed:,} of {run.n_scored:,}")
        for run in (own_runs if len(own_runs) <= 60 else own_runs[-1:])
    ]
    if alarm and alarm.is_worse:
        dots[-1] = replace(dots[-1], words=f"{dots[-1].words}, fewer than its last runs allow", is_bad=True)
    every = max(1, len(runs) // 6)
    labels = [(x_of[run.id], run.id) for at, run in enumerate(runs[:-1]) if at % every == 0 and at < len(runs) - every]
    grid = [(y(floor + at * 0.2), round(100 * (floor + at * 0.2))) for at in range(round((1 - floor) / 0.2) + 1)]
    newest = runs[-1]
    words = f"Pass rate over {counted(len(runs), 'run')}; {newest.n_passed:,} of {newest.n_scored:,} in run {newest.id}"
    return TrendChart(
        tuple(bands),
        paths(own_runs),
        variants,
        tuple(dots),
        f"M{'L'.join(thin)}" if len(thin) > 1 else "",
        tuple(means),
        tuple(marks[-40:]),
        tuple(grid),
        (*labels, (x_of[newest.id], newest.id)),
        words,
    )


def _case_trends(
    runs: Sequence[TrendRun], compared: Sequence[TrendRun], changes: Sequence[ChangePoint], rows: Sequence[TrendCase]
) -> tuple[list[CaseTrend], tuple[str, str]]:
    """The cases of the newest run, with the comparable runs before and after the newest change, or the newest run."""
    newest = runs[-1]
    by_key: dict[int, dict[tuple[str, str], TrendCase]] = defaultdict(dict)
    for row in rows:
        by_key[row.run_id][row.case_id, row.digest] = row
    by_case: dict[tuple[str, str], dict[int, TrendCase]] = {key: {} for key in by_key[newest.id]}
    # A renamed case keeps its row; one that was edited does, too, and a cut marks where its text changed.
    for run_id, cases in _diffs_to_newest(runs, rows).items():
        for case in cases:
            if (case.after_id, case.after) in by_case and case.before:
                by_case[case.after_id, case.after][run_id] = by_key[run_id][case.before_id, case.before]
    last_compared = [run for run in runs if run.line == newest.line and run in compared]
    at = changes[-1].at + 1 if changes else len(compared) - 1
    later = {run.id for run in compared[at:]} & {run.id for run in last_compared}
    earlier = {run.id for run in compared[:at]} & {run.id for run in last_compared}
    trends = []
    for (case_id, digest), own_rows in by_case.items():
        own = {run_id: row for run_id, row in own_rows.items() if row.digest == digest}
        before, after = (_sums(own, ids) for ids in (earlier, later))
        p = fisher(*before, *after) if before[1] and after[1] else None
        last_own = [own[run.id] for run in runs[-FLAKY_OF:] if run.id in own]
        mixed = sum(0 < row.n_passed < row.n_scored for row in last_own)
        trends.append((case_id, own_rows, digest, before, after, p, mixed >= FLAKY_RUNS))
    tested = [at for at, trend in enumerate(trends) if trend[5] is not None]
    adjusted = dict(zip(tested, holm([trends[at][5] or 0.0 for at in tested]), strict=True))
    case_trends = [
        _case_trend(runs, case_id, own_rows, digest, before, after, adjusted.get(at), is_flaky)
        for at, (case_id, own_rows, digest, before, after, _, is_flaky) in enumerate(trends)
    ]
    return case_trends, (_ids_words(earlier), _ids_words(later))


def _sums(rows: Mapping[int, TrendCase], ids: set[int]) -> tuple[int, int]:
    own = [row for run_id, row in rows.items() if run_id in ids]
    return sum(row.n_passed for row in own), sum(row.n_scored for row in own)


def _ids_words(ids: set[int]) -> str:
    if not ids:
        return "none"
    return f"run {min(ids)}" if len(ids) == 1 else f"{min(ids)} to {max(ids)}"


def _case_trend(
    runs: Sequence[TrendRun],
    case_id: str,
    rows: Mapping[int, TrendCase],
    digest: str,
    before: tuple[int, int],
    after: tuple[int, int],
    p: float | None,
    is_flaky: bool,
) -> CaseTrend:
    passes, fails, gaps, cut_at = [], [], [], None
    for at, run in enumerate(runs):
        x, row = at * 10, rows.get(run.id)
        if row is None or not row.n_scored:
            gaps.append(f"M{x + 2} 8h4")
            continue
        height = round(16 * row.n_passed / row.n_scored, 1)
        if height:
            passes.append(f"M{x} 0h8v{height:g}h-8z")
        if height < 16:
            fails.append(f"M{x} {height:g}h8v{16 - height:g}h-8z")
        if row.digest != digest:
            cut_at = x + 9.0
    newest = rows.get(runs[-1].id)
    words = f"{case_id}: {counted(len(runs), 'run')}, "
    words += f"{newest.n_passed} of {newest.n_scored} in run {runs[-1].id}" if newest else "not in the newest run"
    address = f"/runs/{runs[-1].id}/cases/{newest.case_index}/trials/{first_problem(newest.strip)}" if newest else ""
    squares = tuple((run.id, rows.get(run.id)) for run in runs)
    return CaseTrend(
        case_id, address, "".join(passes), "".join(fails), "".join(gaps), cut_at, before, after, p, is_flaky, words,
        squares,
    )  # fmt: skip


def _ordered(cases: Sequence[CaseTrend], sort: str) -> list[CaseTrend]:
    points = {case.case_id: case.points or 0.0 for case in cases}
    if sort == "name":
        return sorted(cases, key=lambda case: case.case_id)
    if sort == "passing":
        return sorted(cases, key=lambda case: (case.way != "better", -points[case.case_id]))
    if sort == "flaky":
        return sorted(cases, key=lambda case: (not case.is_flaky, points[case.case_id]))
    return sorted(cases, key=lambda case: (case.way != "worse", points[case.case_id]))


def _smalls(
    runs: Sequence[TrendRun], medians: Mapping[int, float], metrics: Mapping[str, Mapping[int, float]]
) -> tuple[SmallTrend, ...]:
    """Cost and time of a trial and each metric over the last runs, where at least two of these know it.

    The time is the median; of runs with too many trials to read, the mean of their totals.
    """
    costs = {run.id: run.cost / run.n_scored for run in runs if run.cost}
    means = {run.id: run.duration_ms / run.n_timed for run in runs if run.n_timed}
    is_median = len(medians) > 1 or len(means) < 2
    times = ("p50 of a trial", medians) if is_median else ("Mean time of a trial", means)
    rows: list[tuple[str, Mapping[int, float], Callable[[float], str]]] = [
        ("Cost of a trial", costs, cost_words),
        (*times, duration_words),
        *((metric, values, number_words) for metric, values in metrics.items()),
    ]
    step = 252 / max(1, len(runs) - 1)
    smalls = []
    for title, values, words in rows[:MOST_SMALLS]:
        known_runs = [(at, run) for at, run in enumerate(runs) if run.id in values]
        if len(known_runs) < 2:
            continue
        low, high = min(values.values()), max(values.values())
        spread = (high - low) or 1.0
        paths = []
        for _, group in groupby(known_runs, key=lambda place: place[1].line):
            places = [(4 + at * step, 38 - 32 * (values[run.id] - low) / spread) for at, run in group]
            paths.append(f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in places)}")
        newest = values[known_runs[-1][1].id]
        smalls.append(SmallTrend(title, words(newest), "".join(paths), places[-1]))
    return tuple(smalls)
