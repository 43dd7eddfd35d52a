"""Two runs, compared case by case: the changes, whether they could be chance, and the differences of the settings."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.stored_runs import StoredRuns, run_title
from evaldesk.diff.text_diff import TextDiff, diff_names, diff_text
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.metrics import is_higher_better, is_share
from evaldesk.model import Case
from evaldesk.model.comparison import KINDS, CaseChange, Comparison, Kind, PlayedCase, RunChange, Sample
from evaldesk.model.evalset import CasePosition, assertions, numbered_keys
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.pages.pair import pair_href
from evaldesk.pages.run_changes import RunChanges, changes_between
from evaldesk.pages.runs.facts import all_facts, run_facts
from evaldesk.pages.runs.view import (
    Bar,
    Cost,
    Filter,
    columns_k,
    first_problem,
    known_cost,
    reliability,
    trial_href,
)
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.comparison import cases_to_show, compare_means
from evaldesk.store import RunStore
from evaldesk.wording.comparison import (
    DOLLARS,
    FEWER_IS_BETTER,
    MILLISECONDS,
    SCORES,
    Unit,
    change_sentence,
    change_why,
    difference_why,
    difference_words,
    flips_words,
    left_out_words,
    next_words,
    stand_out_sentence,
)
from evaldesk.wording.words import CI, passed_cell, passed_words, share_range, short_title, trials_each_words

PAGE_SIZE = 100
MOST_MORE = 2_000
"""More cases than these are not asked for."""
BADGES: Mapping[str, str] = {"broken": "failed", "lost its verdict": "failed", "fixed": "passed"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs, as a line."""

    letter: str
    summary: RunSummary
    title: str
    passed: str
    bar: Bar | None
    doubt: str
    pass_hat_k: float | None
    pass_hat_k_range: str
    cost: Cost
    mean_ms: float | None

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
    why: str
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
    why: str
    flips: str
    notes: Sequence[str]
    warnings: Sequence[str]
    differences: Sequence[Difference]
    config: ConfigDifference
    filters: Sequence[Filter]
    changes: Sequence[ComparedCase]
    n_fitting: int
    more_href: str
    swap_href: str
    is_live: bool
    edits: Sequence[RunChanges] = ()
    """The changes of eval set, criteria and gates between the runs."""

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both runs, the earlier choice first."""
        return self.a, self.b


def read_comparison(desk: Desk, a_id: int, b_id: int, show: str = "", start: int = 0) -> ComparisonPage:
    """Run `b_id` against run `a_id`. Raises NotFoundError; UsageError for a run and itself."""
    kinds = (show,) if show in KINDS else CHANGED
    comparison = compared_runs(desk.store.runs, a_id, b_id, kinds, show, start)
    return replace(comparison, edits=changes_between(desk.store, comparison.a.summary, comparison.b.summary))


def compared_runs(
    runs: RunStore,
    a_id: int,
    b_id: int,
    kinds: Sequence[str],
    show: str = "",
    start: int = 0,
    most: int | None = None,
) -> ComparisonPage:
    """The comparison with `most` of its cases of the kinds `kinds`, or a page. Raises as `read_comparison`."""
    if a_id == b_id:
        raise UsageError(f"run {a_id} is the same as itself; choose two different runs", field="b")
    a, b, most = runs.summary(a_id), runs.summary(b_id), PAGE_SIZE if most is None else most
    olds, news = runs.case_outcomes(a_id), runs.case_outcomes(b_id)
    before, after = by_place(olds), by_place(news)
    change = change_of(runs, (a, olds), (b, news))
    fitting = [each for each in change.cases if each.kind in kinds]
    same = {each.key.place for each in change.cases if each.is_same_case}
    k = min(columns_k(a.n_least), columns_k(b.n_least))
    verdict, _, doubt = change_sentence(change).partition("; ")
    alone = (len(change.names_of(kind)) for kind in ("only in A", "only in B"))
    left_out = left_out_words(*zip(alone, (f"run {a_id}", f"run {b_id}"), strict=True))
    return ComparisonPage(
        a=_side(runs, "A", a, k),
        b=_side(runs, "B", b, k),
        k=k,
        verdict=verdict,
        doubt=doubt,
        why=change_why(change),
        flips=flips_words(change),
        notes=[note for note in (left_out, stand_out_sentence(change), _next(change)) if note],
        warnings=warnings(a, b, change),
        differences=_differences(runs, a, b, _only(before, same), _only(after, same)),
        config=config_difference(a, b),
        filters=_filters(a_id, b_id, change, show),
        changes=[case_line(a, b, each, before, after) for each in fitting[start : start + most]],
        n_fitting=len(fitting),
        more_href=_href(a_id, b_id, show, start + most) if len(fitting) > start + most else "",
        swap_href=_href(b_id, a_id),
        is_live=bool({a.status, b.status} & LIVE),
    )


def _next(change: RunChange) -> str:
    """The number of further cases that would decide, about; empty where that is too many to write.

    Where single cases decided, the answer of the comparison, and no further case is needed for it.
    """
    if change.way:
        return ""
    n_more = cases_to_show(change.rates) if change.rates else None
    return next_words(n_more) if n_more is None or n_more <= MOST_MORE else ""


def _side(runs: RunStore, letter: str, summary: RunSummary, k: int) -> Side:
    equal = StoredRuns(runs).equal_counts(summary)
    result, point = reliability(runs.outcome_counts(summary.id), summary, k, equal=equal)
    return Side(
        letter=letter,
        summary=summary,
        title=run_title(summary),
        passed=passed_cell(summary.counts),
        bar=result.bar,
        doubt=result.doubt.removeprefix(f"{CI} "),
        pass_hat_k=point.pass_hat_k,
        pass_hat_k_range=share_range(point.hat_interval),
        cost=known_cost(summary, summary),
        mean_ms=summary.mean_ms,
    )


def _differences(runs: RunStore, a: RunSummary, b: RunSummary, before: Outcomes, after: Outcomes) -> list[Difference]:
    """Each metric that both runs have, then time and cost of a trial, over these cases."""

    def compare(samples_a: Mapping[int, Sample], samples_b: Mapping[int, Sample]) -> Comparison | None:
        return compare_means(_placed(before, samples_a), _placed(after, samples_b))

    (olds, times, costs), (news, times_now, costs_now) = (
        (runs.metric_samples(run.id), *runs.trial_samples(run.id)) for run in (a, b)
    )
    names = dict.fromkeys([*(criterion.metric for run in (a, b) for criterion in run.config.criteria), *olds, *news])
    differences = [
        _difference(short_title(name), "score", compare(olds.get(name, {}), news.get(name, {})), _unit(name))
        for name in names
    ]
    differences.append(_difference("Time of a trial", "duration", compare(times, times_now), MILLISECONDS))
    if not a.is_cost_unknown and not b.is_cost_unknown and (a.cost or b.cost):
        differences.append(_difference("Cost of a trial", "dollars", compare(costs, costs_now), DOLLARS))
    return [each for each in differences if each]


def _placed(cases: Outcomes, samples: Mapping[int, Sample]) -> dict[CasePosition, Sample]:
    return {place: samples[row.case_index] for place, row in cases.items() if row.case_index in samples}


def _difference(title: str, kind: str, comparison: Comparison | None, unit: Unit | None) -> Difference | None:
    if comparison is None:
        return None
    return Difference(
        title=title,
        kind=kind,
        before=comparison.before,
        after=comparison.after,
        words=difference_words(comparison, unit),
        why=difference_why(comparison),
        way=_way(comparison, unit),
        n_cases=comparison.n_cases,
    )


def _way(comparison: Comparison, unit: Unit | None) -> str:
    """Whether B is `better` or `worse`; empty where that could be chance."""
    if not comparison.is_distinguishable:
        return ""
    is_up_good = unit is None or unit.more == "better"
    return "better" if (comparison.difference > 0) == is_up_good else "worse"


def _unit(metric: str) -> Unit | None:
    """Points for scores of 0 to 1; plain numbers for counts and measures."""
    if not is_higher_better(metric):
        return FEWER_IS_BETTER
    return None if is_share(metric) else SCORES


def _only(cases: Outcomes, places: Container[CasePosition]) -> Outcomes:
    """These cases alone: edited cases are compared in no table."""
    return {place: case for place, case in cases.items() if place in places}


def _filters(a_id: int, b_id: int, change: RunChange, show: str) -> list[Filter]:
    counts = {kind: len(change.names_of(kind)) for kind in KINDS}
    n_changed = sum(counts[kind] for kind in CHANGED)
    filters = [Filter("Changed", n_changed, "", _href(a_id, b_id), show not in KINDS)]
    return filters + [
        Filter(kind, n, BADGES.get(kind, ""), _href(a_id, b_id, kind), show == kind)
        for kind, n in counts.items()
        if n or show == kind
    ]


def _href(a_id: int, b_id: int, show: str = "", start: int = 0) -> str:
    parts = {"a": a_id, "b": b_id, "show": show, "from": start}
    return f"/compare?{urlencode({name: value for name, value in parts.items() if value})}"


CHANGED: tuple[Kind, ...] = ("broken", "lost its verdict", "less stable", "fixed", "more stable")
Outcomes: TypeAlias = Mapping[CasePosition, CaseRow]


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """One case in both runs, or in one of them; `before` and `after` are its counts in words.

    `beside` is the address of a trial of each side by side, empty where one run does not have the case.
    """

    change: CaseChange
    before: str
    after: str
    before_href: str
    after_href: str
    pair_href: str = ""


def by_place(cases: Sequence[CaseRow]) -> dict[CasePosition, CaseRow]:
    """The cases of a run by id and ordinal. The eval set is left out: both runs were chosen by hand."""
    keys = numbered_keys(("", case.case_id, case.digest) for case in cases)
    return {key.place: case for key, case in zip(keys, cases, strict=True)}


def change_of(
    runs: RunStore, a: tuple[RunSummary, Sequence[CaseRow]], b: tuple[RunSummary, Sequence[CaseRow]]
) -> RunChange:
    """The second run against the first, case by case."""
    return compare_cases(f"run {a[0].id}", *_played_sides(runs, a, b))


def _played_sides(runs: RunStore, *sides: tuple[RunSummary, Sequence[CaseRow]]) -> list[list[PlayedCase]]:
    """The cases of both runs; their assertions are read only where the content of some case differs."""
    digests = [{case.digest for case in cases} for _, cases in sides]
    is_edited = digests[0] != digests[1]
    return [played_cases(run, cases, runs.cases(run.id) if is_edited else ()) for run, cases in sides]


def played_cases(run: RunSummary, cases: Sequence[CaseRow], snapshots: Sequence[Case] = ()) -> list[PlayedCase]:
    """The cases of a run as they are compared; `snapshots` are the cases as they were run, or none."""
    config = run.config
    keys = numbered_keys(("", case.case_id, case.digest) for case in cases)
    asserted: Sequence[Mapping[str, int] | None] = [assertions(case) for case in snapshots] or [None] * len(cases)
    return [
        PlayedCase(key, case.verdicts, config.pass_threshold, config.errors_are_failures, kinds)
        for key, case, kinds in zip(keys, cases, asserted, strict=True)
    ]


def case_line(a: RunSummary, b: RunSummary, change: CaseChange, before: Outcomes, after: Outcomes) -> ComparedCase:
    """A line of the table; a link leads to the first trial that did not pass."""
    place_a = before[change.before.key.place] if change.before else None
    place_b = after[change.after.key.place] if change.after else None
    return ComparedCase(
        change,
        before=_passed(change.before),
        after=_passed(change.after),
        before_href=_case_href(a, place_a),
        after_href=_case_href(b, place_b),
        pair_href=_pair_href(a, place_a, b, place_b),
    )


def _pair_href(a: RunSummary, before: CaseRow | None, b: RunSummary, after: CaseRow | None) -> str:
    if before is None or after is None:
        return ""
    key_a, key_b = ((case.case_index, first_problem(case.verdicts)) for case in (before, after))
    return pair_href((a.id, key_a), (b.id, key_b))


def _passed(case: PlayedCase | None) -> str:
    if case is None:
        return "–"
    letters = case.scored_letters
    return f"{letters.count('p')} of {len(letters)}" if letters else f"none of {len(case.verdicts)} scored"


def _case_href(run: RunSummary, case: CaseRow | None) -> str:
    """The trial of a case that tells most; empty where the run does not have the case."""
    return trial_href(run.id, (case.case_index, first_problem(case.verdicts))) if case else ""


MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """One fact that differs, compared word by word; a name, such as that of a model, as a whole."""

    name: str
    diff: TextDiff


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """The differing facts, and the names of the equal ones."""

    lines: Sequence[ConfigLine]
    same: Sequence[str]


def config_difference(a: RunSummary, b: RunSummary) -> ConfigDifference:
    """The frozen configuration of run B against that of run A, option by option; their notes are not part of it.

    An option with its default in both is neither among the lines nor among the same.
    """
    before, after = facts_of(a), facts_of(b)
    names = list({**before, **after})
    differing = [name for name in names if before.get(name) != after.get(name)]
    fact_names = {fact.name for run in (a, b) for fact in run_facts(run)}
    code_names = {fact.name for run in (a, b) for fact in all_facts(run) if fact.is_name}
    lines = [
        ConfigLine(name, (diff_names if name in code_names else diff_text)(before.get(name, ""), after.get(name, "")))
        for name in differing
    ]
    return ConfigDifference(lines, [name for name in names if name not in differing and name in fact_names])


def warnings(a: RunSummary, b: RunSummary, change: RunChange) -> list[str]:
    """Why a difference between the runs may not be one between the agents; most important first."""
    notes = [f"Run {run.id} is still running; its numbers may change." for run in (a, b) if run.status in LIVE]
    if _played_run_id(a) == _played_run_id(b):
        notes.append("Both runs score the same stored trials; every difference comes from the criteria.")
    notes += [
        f"Run {run.id} replays recorded answers. If they come from run {other.id}, the two runs are not independent "
        "and the interval does not hold."
        for run, other in ((a, b), (b, a))
        if repeats_recorded(run.config)
    ]
    if a.config.evalset_id != b.config.evalset_id:
        notes.append("The runs are of different eval sets; only cases with the same id are compared.")
    notes += _cases_note(change.in_state("edited since"), "was edited between the runs", "were edited between the runs")
    n_lost, both = (change.without_reference(is_regression=each) for each in (False, True))
    notes += _cases_note(n_lost, "lost a reference", "lost a reference")
    so = "it counts as a regression", "they count as regressions"
    notes += _cases_note(both, "lost a reference and its verdict", "lost a reference and their verdict", so)
    if _rules(a) != _rules(b) and _played_run_id(a) != _played_run_id(b):
        notes.append("The runs have different criteria; their verdicts are not directly comparable.")
    if (a.n_least, a.n_most) != (b.n_least, b.n_most):
        notes.append(f"Run {a.id} has {_trials(a)} of each case, run {b.id} {_trials(b)}.")
    if a.config.concurrency != b.config.concurrency and _played_run_id(a) != _played_run_id(b):
        at_once = f"{a.config.concurrency} trials at once, run {b.id} {b.config.concurrency}"
        notes.append(f"Run {a.id} played {at_once}: times are not directly comparable.")
    return notes


def warnings_of(runs: Sequence[RunSummary], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """The same of several runs: each reason once, and each option of `facts` once with the words of each run."""
    notes = [f"Run {run.id} is still running; its numbers may change." for run in runs if run.status in LIVE]
    replayed = [str(run.id) for run in runs if repeats_recorded(run.config)]
    if replayed:
        verb = "replays" if len(replayed) == 1 else "replay"
        of = "Run" if len(replayed) == 1 else "Runs"
        notes.append(f"{of} {', '.join(replayed)} {verb} recorded answers, so they are not new evidence.")
    if len({_played_run_id(run) for run in runs}) < len(runs):
        notes.append("Some of these runs score the same stored trials; their differences come from the criteria.")
    if len({run.config.evalset_id for run in runs}) > 1:
        notes.append("The runs are of different eval sets; only cases with the same id are compared.")
    for name, texts in facts.items():
        runs_by_text: dict[str, list[str]] = {}
        for run, text in zip(runs, texts, strict=True):
            runs_by_text.setdefault(shortened(text or "not set"), []).append(str(run.id))
        if len(runs_by_text) > 1:
            parts = [f"{text} (run{'s' * (len(ids) > 1)} {', '.join(ids)})" for text, ids in runs_by_text.items()]
            notes.append(f"{name} differs: {'; '.join(parts)}.")
    return notes


MAX_FACT = 60


def shortened(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= MAX_FACT else f"{text[:MAX_FACT].rstrip()}…"


def _cases_note(
    names: Sequence[str], was: str, were: str, so: tuple[str, str] = ("it is not compared", "they are not compared")
) -> list[str]:
    """That this happened to these cases, and the consequence, in words for one and for many; empty without any."""
    if not names:
        return []
    case_names = ", ".join(names[:MAX_NAMED]) + (" and more" if len(names) > MAX_NAMED else "")
    count, became, follows = ("1 case", was, so[0]) if len(names) == 1 else (f"{len(names):,} cases", were, so[1])
    return [f"{count} {became}: {case_names}; {follows}."]


def facts_of(run: RunSummary) -> dict[str, str]:
    """Name -> all that is said under it; a fact without a name goes on with the one before."""
    texts: dict[str, str] = {}
    name = ""
    for fact in all_facts(run):
        if not fact.is_compared:
            continue
        name = fact.name or name
        text = " ".join(filter(None, (fact.text, fact.code)))
        if not text:
            continue
        texts[name] = f"{texts[name]}; {text}" if name in texts else text
    return texts


def _played_run_id(run: RunSummary) -> int:
    """The run that played the trials."""
    return run.id if run.config.source_run_id is None else run.config.source_run_id


def _rules(run: RunSummary) -> tuple[object, ...]:
    config = run.config
    return config.criteria, config.pass_threshold, config.errors_are_failures, config.strict, config.compat


def _trials(run: RunSummary) -> str:
    return trials_each_words(run.n_least, run.n_most)


N_OFFERED = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """A run to choose: its title, agent and count."""

    id: int
    words: str


@dataclass(frozen=True, slots=True)
class ComparisonChoice:
    """The form: the run that is chosen already, if one is, and the other; 0 is nothing yet.

    Where not all runs are offered, `has_more`, an older one is named by its number.
    """

    offers: Sequence[Offer]
    a: int
    b: int
    problem: str = ""
    has_more: bool = False


def read_choice(desk: Desk, run_ids: Sequence[int], problem: str = "") -> ComparisonChoice:
    """The candidates for the comparison with the chosen run: the run of the same eval set before it is proposed."""
    runs = desk.store.runs.list(limit=N_OFFERED + 1)
    newest = runs[:N_OFFERED]
    for run_id in {*run_ids} - {run.id for run in newest}:
        with suppress(NotFoundError):
            newest.append(desk.store.runs.summary(run_id))
    b = next((run for run in newest if run.id in run_ids), newest[0] if newest else None)
    if b is None:
        return ComparisonChoice((), 0, 0, problem)
    others = [run for run in newest if run.id != b.id]
    kin = [run for run in others if run.config.evalset_id == b.config.evalset_id]
    strangers = [run for run in others if run.config.evalset_id != b.config.evalset_id]
    a = next((run.id for run in others if run.id in run_ids), None)
    a = a or next((run.id for run in kin if run.id < b.id), next((run.id for run in (*kin, *strangers)), 0))
    return ComparisonChoice([_offer(run) for run in (b, *kin, *strangers)], a, b.id, problem, len(runs) > N_OFFERED)


def _offer(run: RunSummary) -> Offer:
    passed = passed_words(run.counts.passed, run.counts.scored) if run.counts.scored else "no scored trials"
    again = f", re-score of run {run.config.source_run_id}" if run.config.source_run_id is not None else ""
    return Offer(run.id, f"{run_title(run)}: {run.config.agent.id}, {passed}{again}")
