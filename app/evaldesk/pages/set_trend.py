"""The trend of an eval set: its pass rate over runs, the marks of changes, and each case over the last runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from evaldesk.desk.desk import Desk
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.set_trend import TrendCase, TrendRun
from evaldesk.statistics.change_points import ChangePoint, change_points
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.exact_tests import fisher
from evaldesk.statistics.intervals import rate_interval
from evaldesk.wording.comparison import p_words
from evaldesk.wording.words import duration_words, share_words

N_CASE_RUNS = 30
MOST_CASES = 40
"""Cases of the table; the others are named by their number."""
MOST_FOR_CHANGE = 120
"""Newest comparable runs in which a change is looked for."""
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
class TrendChart:
    """Paths of a picture with the box WIDTH x 230, and the labels of its axes."""

    bands: tuple[str, ...]
    lines: tuple[str, ...]
    dots: tuple[tuple[float, float, int, str], ...]
    thin: str
    means: tuple[str, ...]
    marks: tuple[Mark, ...]
    grid: tuple[tuple[float, int], ...]
    labels: tuple[tuple[float, int], ...]
    words: str


@dataclass(frozen=True, slots=True)
class CaseTrend:
    """A case of the newest run over the last runs: paths of passed and failed shares, and its change."""

    case_id: str
    passes: str
    fails: str
    gaps: str
    cut_at: float | None
    before: tuple[int, int]
    after: tuple[int, int]
    p: float | None
    is_flaky: bool
    words: str

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
    cases: tuple[CaseTrend, ...] = ()
    counts: Mapping[str, int] | None = None
    columns: tuple[str, str] = ("", "")
    smalls: tuple[SmallTrend, ...] = ()
    n_hidden: int = 0

    @property
    def newest(self) -> TrendRun | None:
        """The newest run."""
        return self.runs[-1] if self.runs else None


def trend_page(
    desk: Desk, evalset_id: str, choice: str = "", sort: str = "failing", *, is_strip: bool = False
) -> TrendPage:
    """The trend of the agent and model of `choice`, or of the newest run's agent; a strip has no cases."""
    every_run = desk.store.runs.trend_runs(evalset_id)
    choices = tuple(dict.fromkeys(_choices(every_run)))
    if choice not in dict(choices):
        choice = choices[0][0] if choices else ""
    runs = tuple(run for run in every_run if choice in (run.agent_id, f"{run.agent_id} {run.model}"))
    compared = _comparable_tail(runs)[-MOST_FOR_CHANGE:]
    changes = tuple(change_points([run.rate for run in compared]))
    band = rate_interval(runs[-1].outcomes) if runs else None
    last_runs = runs[-N_CASE_RUNS:]
    rows = [] if is_strip else desk.store.runs.trend_cases([run.id for run in last_runs])
    common = _common(last_runs, rows)
    headline = _headline(compared, changes)
    chart = _chart(runs, compared, changes, _common_rates(last_runs, rows, common)) if len(runs) > 1 else None
    page = TrendPage(
        runs, choices, choice, chart, band, changes, compared, headline, _doubt(compared, changes), len(common)
    )
    if is_strip or not runs:
        return page
    cases, columns = _case_trends(last_runs, compared, changes, rows)
    counts = {
        "failing": sum(case.way == "worse" for case in cases),
        "passing": sum(case.way == "better" for case in cases),
        "flaky": sum(case.is_flaky for case in cases),
    }
    ordered = _ordered(cases, sort)
    return TrendPage(
        runs, choices, choice, chart, band, changes, compared, headline, page.doubt, len(common),
        tuple(ordered[:MOST_CASES]), counts, columns, _smalls(last_runs), max(0, len(ordered) - MOST_CASES),
    )  # fmt: skip


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


def _comparable_tail(runs: Sequence[TrendRun]) -> tuple[TrendRun, ...]:
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


def _headline(compared: Sequence[TrendRun], changes: Sequence[ChangePoint]) -> tuple[str, str]:
    """`Fell from 90 % to 60 % after run 41,` and `when the model changed to x`; the rate alone without a change."""
    if not compared:
        return "No complete run yet", ""
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


def _doubt(compared: Sequence[TrendRun], changes: Sequence[ChangePoint]) -> str:
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
    """The contents of the cases that all these runs played; none where all played the same."""
    if len({run.content for run in runs}) < 2:
        return frozenset()
    digests: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        digests[row.run_id].add(row.digest)
    sets = [digests[run.id] for run in runs]
    return frozenset(set.intersection(*sets)) if sets else frozenset()


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
    compared: Sequence[TrendRun],
    changes: Sequence[ChangePoint],
    common_rates: Mapping[int, float],
) -> TrendChart:
    step = (RIGHT - LEFT) / max(1, len(runs) - 1)
    x_of = {run.id: LEFT + at * step for at, run in enumerate(runs)}
    intervals = {run.id: rate_interval(run.outcomes) or Interval(run.rate, run.rate) for run in runs}
    lowest = min(min(intervals[run.id].low, run.rate) for run in runs)
    floor = min(0.8, int(lowest * 5) / 5)

    def y(rate: float) -> float:
        return BASE - (max(rate, floor) - floor) / (1 - floor) * (BASE - TOP)

    bands, lines = [], []
    for _, group in groupby(runs, key=lambda run: run.line):
        part = list(group)
        places = [(x_of[run.id], run) for run in part]
        if len(part) > 1:
            lows = [f"{x:.1f} {y(intervals[run.id].low):.1f}" for x, run in places]
            highs = [f"{x:.1f} {y(intervals[run.id].high):.1f}" for x, run in reversed(places)]
            bands.append(f"M{'L'.join([*lows, *highs])}Z")
            lines.append(f"M{'L'.join(f'{x:.1f} {y(run.rate):.1f}' for x, run in places)}")
    marks = [
        Mark((x_of[a.id] + x_of[b.id]) / 2, tuple(words for words, _ in facts), any(each for _, each in facts))
        for a, b in pairwise(runs)
        if (facts := _changes_between(a, b))
    ]
    means = []
    for point in changes:
        ids = [run.id for run in compared[point.start : point.end]]
        middle = (x_of[compared[point.at].id] + x_of[compared[point.at + 1].id]) / 2
        means.append(f"M{x_of[ids[0]]:.1f} {y(point.before):.1f}H{middle:.1f}V{y(point.after):.1f}H{x_of[ids[-1]]:.1f}")
    thin = [f"{x_of[run_id]:.1f} {y(rate):.1f}" for run_id, rate in common_rates.items()]
    dots = [
        (x_of[run.id], y(run.rate), run.id, f"run {run.id}: {run.n_passed:,} of {run.n_scored:,}")
        for run in (runs if len(runs) <= 60 else runs[-1:])
    ]
    every = max(1, len(runs) // 6)
    labels = [(x_of[run.id], run.id) for at, run in enumerate(runs[:-1]) if at % every == 0 and at < len(runs) - every]
    grid = [(y(floor + at * 0.2), round(100 * (floor + at * 0.2))) for at in range(round((1 - floor) / 0.2) + 1)]
    newest = runs[-1]
    words = f"Pass rate over {counted(len(runs), 'run')}; {newest.n_passed:,} of {newest.n_scored:,} in run {newest.id}"
    return TrendChart(
        tuple(bands),
        tuple(lines),
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
    """The cases of the newest run: earlier comparable runs against those since the last change, or the newest run."""
    by_case: dict[str, dict[int, TrendCase]] = defaultdict(dict)
    newest_ids: dict[str, str] = {}
    names: dict[str, str] = {}
    newest = runs[-1]
    for row in rows:
        if row.run_id == newest.id:
            newest_ids[row.digest], names[row.case_id] = row.case_id, row.digest
    for row in rows:
        # The content tells a renamed case; one that was edited keeps its row, and a cut marks where its text changed.
        case_id = newest_ids.get(row.digest) or (row.case_id if row.case_id in names else "")
        if case_id:
            by_case[case_id][row.run_id] = row
    last_compared = [run for run in runs if run.line == newest.line and run in compared]
    at = changes[-1].at + 1 if changes else len(compared) - 1
    later = {run.id for run in compared[at:]} & {run.id for run in last_compared}
    earlier = {run.id for run in compared[:at]} & {run.id for run in last_compared}
    trends = []
    for case_id, own_rows in by_case.items():
        digest = names[case_id]
        own = {run_id: row for run_id, row in own_rows.items() if row.digest == digest}
        before, after = (_sums(own, ids) for ids in (earlier, later))
        p = fisher(*before, *after) if before[1] and after[1] else None
        last_own = [own[run.id] for run in runs[-FLAKY_OF:] if run.id in own]
        mixed = sum(0 < row.n_passed < row.n_scored for row in last_own)
        trends.append((case_id, own_rows, digest, before, after, p, mixed >= FLAKY_RUNS))
    tested = [at for at, trend in enumerate(trends) if trend[5] is not None]
    adjusted = dict(zip(tested, holm([trends[at][5] or 0.0 for at in tested]), strict=True))
    cases = [
        _case_trend(runs, case_id, own_rows, digest, before, after, adjusted.get(at), is_flaky)
        for at, (case_id, own_rows, digest, before, after, _, is_flaky) in enumerate(trends)
    ]
    return cases, (_ids_words(earlier), _ids_words(later))


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
    return CaseTrend(case_id, "".join(passes), "".join(fails), "".join(gaps), cut_at, before, after, p, is_flaky, words)


def _ordered(cases: Sequence[CaseTrend], sort: str) -> list[CaseTrend]:
    points = {case.case_id: case.points or 0.0 for case in cases}
    if sort == "name":
        return sorted(cases, key=lambda case: case.case_id)
    if sort == "passing":
        return sorted(cases, key=lambda case: (case.way != "better", -points[case.case_id]))
    if sort == "flaky":
        return sorted(cases, key=lambda case: (not case.is_flaky, points[case.case_id]))
    return sorted(cases, key=lambda case: (case.way != "worse", points[case.case_id]))


def _smalls(runs: Sequence[TrendRun]) -> tuple[SmallTrend, ...]:
    """Cost and time of a trial over the last runs, where they are known."""
    n_trials = [run.n_scored for run in runs]
    costs = [run.cost / n if run.cost else None for run, n in zip(runs, n_trials, strict=True)]
    times = [run.duration_ms / run.n_timed if run.n_timed else None for run in runs]
    smalls = []
    for title, values, words in (
        ("Cost of a trial", costs, lambda usd: f"${usd:.2g}"),
        ("Mean time of a trial", times, duration_words),
    ):
        points = [(at, value) for at, value in enumerate(values) if value is not None]
        if len(points) > 1:
            low, high = min(value for _, value in points), max(value for _, value in points)
            spread = (high - low) or 1.0
            step = 252 / max(1, len(runs) - 1)
            places = [(4 + at * step, 38 - 32 * (value - low) / spread) for at, value in points]
            path = f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in places)}"
            smalls.append(SmallTrend(title, words(points[-1][1]), path, places[-1]))
    return tuple(smalls)
