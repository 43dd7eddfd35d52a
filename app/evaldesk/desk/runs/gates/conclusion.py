"""Gates and the conclusion: the conditions of a run, the answer of each gate, and the outcome of the whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose, isinf
from typing import TypeAlias

from evaldesk.errors import VALUE_LIMIT
from evaldesk.model import Answer, Conclusion, Counts, GateOutcome, Gates, Outcome, RunStatus
from evaldesk.model.comparison import ROUNDING, CaseChange, RunChange
from evaldesk.model.conclusion import (
    EVIDENCE_GATES,
    WITHOUT,
    Interval,
    Stop,
    Undecided,
    counted,
    has_too_many_errors,
)
from evaldesk.model.evalset import CaseKey
from evaldesk.model.run import RecordedPlan, is_more
from evaldesk.model.stored import RunSummary
from evaldesk.statistics.case_comparison import filled_change, filled_changes
from evaldesk.statistics.intervals import (
    CaseCounts,
    CurvePoint,
    case_rate_interval,
    curve_ks,
    curve_rows,
    like_these,
    point_at,
    rate_interval,
    sure_curve,
)
from evaldesk.wording.comparison import change_sentence, deleted_words, flips_words, states_words
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.recorded import absent_words
from evaldesk.wording.regressions import history_sentences
from evaldesk.wording.words import (
    CI,
    any_stop_words,
    asides_words,
    beside_words,
    cost_words,
    counted_words,
    least_words,
    named_words,
    passed_of_these_sentence,
    passed_sentence,
    share_range,
    share_words,
)

MOST_NAMED = 10
MOST_WAYS = 32
"""The ways in which missing trials can end that are looked at one by one."""
NO_KEY = CaseKey("", "")
ALL_PASSED = "every trial must pass"
EVERY_CASE = "every case must pass"
"""The gates of a run of which no other asks for verdicts; the second with a `pass_threshold` below 1."""
POOLED = "every case must pass in the mean"
"""The one gate on the verdicts of a run that is judged as ADK's `AgentEvaluator`."""
OF_A_RATE = frozenset({"--min-pass-rate", "--pass-at", "--pass-hat", "--margin"})
"""The gates that `--undecided` is about: those that compare a number that has an interval with a threshold."""
OF_EACH_CASE = frozenset({"--min-case-pass-rate", EVERY_CASE, POOLED})
"""The gates whose sentence names the cases that did not reach them."""
OF_NAMED_CASES = frozenset({"--max-regressions", "--new-cases"})
"""The gates whose sentence may end with names of cases."""
OF_THE_RUN = EVIDENCE_GATES | {"--max-cost", POOLED}
"""The gates that are about the run as it is, whatever its missing trials would bring."""


@dataclass(frozen=True, slots=True)
class CaseNumbers:
    """A case of a run: how its trials ended, and the share of the scored ones that must pass.

    `id` is the name it is shown by, unambiguous among the cases that are judged together. `pooled_failure` says why its
    trials together fail, for a run of pooled verdicts; it is empty where they pass, and None before they are judged.
    `tag_author` set the tag by which it is in no gate; empty where another program did, None where that is not known.
    """

    id: str
    counts: Counts
    pass_threshold: float = 1.0
    key: CaseKey = NO_KEY
    pooled_failure: str | None = None
    tag_author: str | None = None

    @property
    def is_passed(self) -> bool | None:
        """Whether enough of its scored trials passed; None when none was scored."""
        rate = self.counts.rate
        return None if rate is None else rate >= self.pass_threshold - ROUNDING


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended; `reason` is empty where a person stopped it, `stop` is set where its gates were decided.

    `recorded_plan` is the plan of an imported run, `shard` the part of the cases that a run played, such as "2/5".
    """

    status: RunStatus
    reason: str = ""
    stop: Stop | None = None
    recorded_plan: RecordedPlan | None = None
    shard: str | None = None

    @classmethod
    def of(cls, run: RunSummary) -> Ending:
        """How a stored run ended."""
        return cls(run.status, run.reason, run.stop, run.config.recorded, run.config.shard)


@dataclass(frozen=True, slots=True)
class Spent:
    """US dollars, as far as they are known.

    `n_unpriced` trials called a model of unknown price, `n_uncounted` do not tell every call; a trial may do both.
    """

    cost: float = 0.0
    n_unpriced: int = 0
    n_uncounted: int = 0

    @classmethod
    def of(cls, run: RunSummary) -> Spent:
        """The costs of a stored run."""
        return cls(run.cost, run.n_unpriced, run.n_uncounted)

    def __add__(self, other: Spent) -> Spent:
        n_unpriced, n_uncounted = self.n_unpriced + other.n_unpriced, self.n_uncounted + other.n_uncounted
        return Spent(self.cost + other.cost, n_unpriced, n_uncounted)

    @property
    def words(self) -> str:
        """`at least $0.50`."""
        return least_words(cost_words(self.cost), bool(self.unknown))

    @property
    def unknown(self) -> str:
        """`the cost of at least 3 trials is not known`; empty where all costs are."""
        fewer, more = sorted((self.n_unpriced, self.n_uncounted))
        return f"the cost of {least_words(counted(more, 'trial'), fewer > 0)} is not known" if more else ""


Kinds: TypeAlias = tuple[tuple[Counts, int], ...]
"""How many cases ended alike."""


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """The input of a conclusion.

    `case_counts` are the cases by their scored and passed trials, which is all that most gates need; `cases` names
    them, and is empty where the names are not needed. `endings` is one for each run. `kinds` says how many cases ended
    alike, and is empty where no trial lacks a verdict; `equal_kinds` the same of the trials that each of them has, for
    a run that stopped when it was decided, and where their numbers differ.
    """

    counts: Counts
    case_counts: tuple[CaseCounts, ...]
    cases: tuple[CaseNumbers, ...] = ()
    costs: Spent = Spent()
    endings: tuple[Ending, ...] = ()
    kinds: Kinds = ()
    equal_kinds: Kinds | None = None
    left_out: tuple[CaseNumbers, ...] = ()
    """The cases that no gate asks for; they are in no other number."""

    @classmethod
    def of_cases(
        cls, cases: Iterable[CaseNumbers], *, costs: Spent = Spent(), endings: Sequence[Ending] = ()
    ) -> RunNumbers:
        """The numbers over `cases`."""
        all_cases = tuple(cases)
        rows = tuple((case.counts.scored, case.counts.passed, 1) for case in all_cases)
        total = Counts.total_of_cases([case.counts for case in all_cases])
        kinds = tuple(Counter(case.counts for case in all_cases).items()) if total.scored < total.planned else ()
        return cls(total, rows, all_cases, costs, tuple(endings), kinds=kinds)

    def fill(self, *, passes: bool, with_errors: bool) -> RunNumbers:
        """The run if every trial without a verdict passed, or failed; `with_errors` the errored ones, too."""
        rows = _fill_kinds(self.kinds, passes=passes, with_errors=with_errors)
        equal = (
            None if self.equal_kinds is None else _fill_kinds(self.equal_kinds, passes=passes, with_errors=with_errors)
        )
        total = Counts.total(counts.times(times) for counts, times in rows)
        if self.counts.case_rate is not None:
            total = total.of_cases(case_counts(rows))
        return replace(self, counts=total, case_counts=case_counts(rows), cases=(), kinds=rows, equal_kinds=equal)

    @property
    def n_cases(self) -> int:
        """Cases of all runs."""
        return sum(times for _, _, times in self.case_counts)

    @property
    def stop(self) -> Stop | None:
        """Why it ended before its last trial, where its gates were decided by then."""
        return next((ending.stop for ending in self.endings if ending.stop), None)

    @property
    def interval(self) -> Interval | None:
        """Where the pass rate of cases like these probably lies; the one interval of the rate at every door."""
        return sure_interval(self.counts, self._rate_counts, self.stop)

    @property
    def gate_interval(self) -> Interval | None:
        """Where the pass rate of exactly these cases probably lies, by which gates and stops are decided."""
        return these_interval(self.counts, self._rate_counts, self.stop)

    @property
    def any_stop(self) -> str:
        """Both intervals of a run that was stopped, in words; empty for a whole run."""
        if not self.is_any_stop:
            return ""
        return any_stop_words(self.counts.scored, self.n_rated, self.gate_interval, self.interval)

    @property
    def n_rated(self) -> int:
        """The cases with a scored trial that the rate and its intervals are of."""
        return sum(times for n_scored, _, times in self._rate_counts if n_scored)

    @property
    def is_any_stop(self) -> bool:
        """Whether its intervals must hold at any stop: it was stopped, or may be when the answer pleases."""
        return self.stop is not None or may_be_stopped(self.counts, self._rate_counts)

    @property
    def _rate_counts(self) -> tuple[CaseCounts, ...]:
        is_cut = self.stop is not None and self.counts.case_rate is not None
        return self.curve_counts if is_cut else self.case_counts

    @property
    def curve_counts(self) -> tuple[CaseCounts, ...]:
        """The cases by the trials that pass@k and pass^k are over: as many of each."""
        return self.case_counts if self.equal_kinds is None else case_counts(self.equal_kinds)

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """pass@k and pass^k over the cases that have k scored trials at every k shown."""
        return tuple(self._shown_point(point) for point in sure_curve(self.curve_counts))

    def point_at(self, k: int) -> CurvePoint:
        """The point of the curve at `k`, also beyond its end."""
        return self._shown_point(point_at(self.curve_counts, k))

    def _shown_point(self, point: CurvePoint) -> CurvePoint:
        return any_stop_point(point, self.counts, self.interval) if self.is_any_stop else point

    def points_to(self, last: int, ks: Iterable[int]) -> list[CurvePoint]:
        """The points of the curve, and beyond it those up to `last` and at each of `ks`; some may be undefined."""
        points = {point.k: point for point in self.curve}
        return [points.get(k) or self.point_at(k) for k in sorted({*points, *curve_ks(last), *ks})]

    def basis_of(self, point: CurvePoint) -> str:
        """The cases that a point of pass@k and pass^k is over, or too few; empty where these are all."""
        n, of = point.n_cases, counted_words(point.n_cases, self.n_cases, "case")
        have = "has" if n == 1 else "have"
        if point.pass_at_k is None:
            return f"undefined: {f'only {of} {have}' if n else 'no case has'} {counted(point.k, 'scored trial')}"
        if n == self.n_cases:
            return ""
        _, last = curve_rows(self.curve_counts)
        return f"over the {of} that {have} {counted(max(point.k, last), 'scored trial')}"


def _fill_kinds(kinds: Kinds, *, passes: bool, with_errors: bool) -> Kinds:
    rows = []
    for counts, times in kinds:
        n_errored = counts.errored if with_errors and not counts.errors_are_failures else 0
        n = counts.unplayed + n_errored
        passed, failed = counts.passed + n * passes, counts.failed + n * (not passes)
        filled_counts = replace(counts, passed=passed, failed=failed, errored=counts.errored - n_errored)
        rows.append((filled_counts, times))
    return tuple(rows)


def case_counts(kinds: Kinds) -> tuple[CaseCounts, ...]:
    """The cases with a scored trial by their scored and passed trials."""
    return tuple((counts.scored, counts.passed, times) for counts, times in kinds if counts.scored)


def sure_interval(counts: Counts, case_counts: Iterable[CaseCounts], stop: Stop | None) -> Interval | None:
    """The 95 % interval of the pass rate of cases like these, clustered by case.

    After a stop it is valid at any stop: no narrower than that of the whole run, and None below 10 cases, which cannot
    speak for others. So it is while trials are left of a run with one trial a case, which somebody may stop when the
    answer pleases. Where cases have different numbers of trials, `case_counts` of a stopped run are of those that all
    cases have. (reference/forecasts.md 7)
    """
    rows = list(case_counts)
    whole_run = rate_interval(rows) if counts.case_rate is None else case_rate_interval(rows)
    if stop is None and not may_be_stopped(counts, rows):
        return whole_run
    these = these_interval(counts, rows, stop)
    n_cases = sum(times for n_trials, _, times in rows if n_trials)
    if these is None or whole_run is None or n_cases < FEWEST_LIKE_THESE:
        return None
    n_passed, n_scored = _sums(counts, rows)
    return like_these(n_passed / n_scored, these, whole_run)


def any_stop_point(point: CurvePoint, counts: Counts, interval: Interval | None) -> CurvePoint:
    """A point of pass@k and pass^k after a stop: with the interval of the pass rate where it is that, else with none.

    Their own intervals are drawn from the cases as they were at the stop, and looks at a run make them too narrow.
    """
    rate, at_one = counts.rate, point.pass_at_k if point.k == 1 else None
    is_rate = rate is not None and at_one is not None and isclose(rate, at_one)
    ends = interval if is_rate else None
    return replace(point, at_interval=ends, hat_interval=ends)


FEWEST_LIKE_THESE = 10
"""Fewer cases cannot speak for others at any stop."""


def these_interval(counts: Counts, case_counts: Iterable[CaseCounts], stop: Stop | None) -> Interval | None:
    """The 95 % interval of the pass rate of exactly these cases, valid at any stop; that of the rate without a stop."""
    rows = list(case_counts)
    if stop is None and not may_be_stopped(counts, rows):
        return sure_interval(counts, rows, stop)
    from evaldesk.statistics.anytime import anytime_interval  # most answers are of whole runs

    n_passed, n_scored = _sums(counts, rows)
    return anytime_interval(n_passed, n_scored) if n_scored else None


def _sums(counts: Counts, rows: Iterable[CaseCounts]) -> tuple[int, int]:
    """The passed and the scored trials that the rate of a stopped run is over."""
    if counts.case_rate is None:
        return counts.passed, counts.scored
    counts_of_cases = list(rows)
    return sum(n_passed * times for _, n_passed, times in counts_of_cases), sum(
        n_scored * times for n_scored, _, times in counts_of_cases
    )


def may_be_stopped(counts: Counts, case_counts: Sequence[CaseCounts]) -> bool:
    """Whether trials are left of a run with one trial a case, so that each is a look at the answer."""
    return counts.unplayed > 0 and counts.planned == sum(times for _, _, times in case_counts)


# The one place that decides whether a run passed: decision 022.
def conclude(gates: Gates, run: RunNumbers, change: RunChange | None = None) -> Conclusion:
    """The conclusion of a run, from all its planned trials. The only place where this is decided.

    Interrupted when a person stopped it; failed when a gate failed, whatever the trials without a verdict would bring;
    undecided when it broke off, has more errors than tolerated, a gate could not be answered, too few trials were
    scored or some were not played; neutral when a gate is too close to tell and counts as neutral. `change` is the
    change against the baseline. The planned trials of an imported run that are not in its file count as not played.
    A shard answers no gate: it is undecided until it is merged.
    """
    run = _with_planned_trials(run)
    if shards := [each.shard for each in run.endings if each.shard]:
        outcome = _outcome(gates, run, ())
        outcome = outcome if outcome == "interrupted" else "undecided"
        reasons = (*_reasons(outcome, run, ()), _shard_words(shards[0]))
        return Conclusion(outcome, run.counts, tuple(_left_out(run)), reasons)
    answers = tuple(_answer_at_stop(each, run.stop) for each in curtail_gates(gates, _without_unplayed(run), change))
    outcome = _outcome(gates, run, answers)
    reasons = tuple(_reasons(outcome, run, answers))
    return Conclusion(outcome, run.counts, (*answers, *_left_out(run)), reasons)


def _left_out(run: RunNumbers) -> Iterator[GateOutcome]:
    """The cases that no gate asks for, in words beside the gates of every conclusion; it always holds."""
    if run.left_out:
        n = len(run.left_out)
        named_cases = [f"{case.id} {_share(case.counts, _tag_words(case.tag_author))}" for case in run.left_out]
        words = f"{counted(n, 'case')} in quarantine {'is' if n == 1 else 'are'} in no gate"
        names = tuple(case.id for case in run.left_out)
        yield GateOutcome(WITHOUT, "held", f"{words}: {named_words(named_cases, MOST_NAMED)}", names)


def _shard_words(shard: str) -> str:
    """`shard 2/5 answers no gate; ...`."""
    n = shard.partition("/")[2]
    return f"shard {shard} answers no gate; merge the result files of all {n} with `evaldesk run merge`"


def _with_planned_trials(run: RunNumbers) -> RunNumbers:
    """The run with the planned trials whose case is not in its file either."""
    n_planned = sum(each.recorded_plan.n_planned or 0 for each in run.endings if each.recorded_plan)
    if n_planned <= run.counts.planned:
        return run
    kinds = run.kinds or tuple((Counts(n, passed, n - passed), times) for n, passed, times in run.case_counts)
    kinds = (*kinds, (Counts(n_planned - run.counts.planned), 1))
    return replace(run, counts=replace(run.counts, planned=n_planned), kinds=kinds)


def _without_unplayed(run: RunNumbers) -> RunNumbers:
    """The run without its unplayed trials, where it scores one again that stopped when it was decided.

    No answer of these scores was decided then, and the other run does not play the rest.
    """
    if run.stop is None or run.stop.answers:
        return run
    return replace(run, counts=replace(run.counts, planned=run.counts.done))


def _answer_at_stop(outcome: GateOutcome, stop: Stop | None) -> GateOutcome:
    """The answer of a gate at the stop of a run, where it was decided by then."""
    answers = stop.answers if stop else ()
    return next((each for each in answers if each.name == outcome.name), outcome)


def _outcome(gates: Gates, run: RunNumbers, answers: Sequence[GateOutcome]) -> Outcome:
    if any(_is_interruption(ending, gates, run) for ending in run.endings):
        return "interrupted"
    if any(each.is_failed and not each.is_of_evidence for each in answers):
        return "failed"
    if any(ending.status == "failed" for ending in run.endings) or has_too_many_errors(answers):
        return "undecided"
    is_whole = run.counts.scored > 0 and (run.counts.unplayed == 0 or run.stop is not None)
    is_whole = is_whole and not any(ending.recorded_plan and ending.recorded_plan.is_cut for ending in run.endings)
    if not is_whole or not all(each.is_held or each.is_neutral for each in answers):
        return "undecided"
    return "neutral" if any(each.is_neutral for each in answers) else "passed"


def _is_interruption(ending: Ending, gates: Gates, run: RunNumbers) -> bool:
    """Whether a person stopped the run, not its limit of cost, which gives a reason."""
    is_by_cost = gates.max_cost is not None and (is_more(run.costs.cost, gates.max_cost) or bool(run.costs.unknown))
    return ending.status == "stopped" and not (is_by_cost and ending.reason)


def _reasons(outcome: Outcome, run: RunNumbers, answers: Sequence[GateOutcome]) -> Iterator[str]:
    if outcome == "passed":
        return
    counts = run.counts
    recorded_plans = [ending.recorded_plan for ending in run.endings if ending.recorded_plan]
    if recorded_plans and counts.unplayed:
        yield absent_words(counts)
    yield from (each.ending for each in recorded_plans if each.is_cut)
    for ending in run.endings:
        if ending.recorded_plan:
            continue
        is_told = ending.stop is not None and bool(ending.stop.answers)  # by the gate that was decided
        # Of a run that was played to its end, how it got there decides nothing.
        is_whole = ending.status == "finished" and not (ending.stop or counts.unplayed)
        if ending.reason and not is_told and not is_whole:
            yield ending.reason
    if counts.unplayed and outcome != "failed" and not (run.stop or recorded_plans):
        yield _unplayed_words(counts)
    not_held = [each for each in answers if not each.is_held]
    is_decided = outcome == "failed"
    for each in sorted(not_held, key=lambda each: _rank(each, is_decided=is_decided)):
        yield f"{each.name}: {each.sentence}"
    if not counts.planned:
        yield "every case is in quarantine" if run.left_out else "no trial was planned"
    elif not not_held and not counts.scored and not counts.unplayed:
        yield "no trial was scored"


def _rank(outcome: GateOutcome, *, is_decided: bool) -> tuple[bool, bool]:
    """The sort key of a reason: the deciding gate first, or errors where they left the run open."""
    if is_decided:
        return (not outcome.is_failed or outcome.is_of_evidence, outcome.name != "--max-error-rate")
    return (outcome.name != "--max-error-rate", not outcome.is_failed)


def curtail_gates(gates: Gates, run: RunNumbers, change: RunChange | None) -> Iterator[GateOutcome]:
    """The answer of each gate that no verdict of the missing trials can change; undecided where one can.

    Missing are the trials that were not played and, with more errors than tolerated, the errored ones. Whether a
    threshold lies inside an interval can change either way: a gate that asks for it is decided only where that counts
    as failed, and fails at its best.
    """
    answers = tuple(outcomes(gates, run, change))
    is_errored = has_too_many_errors(answers) and not run.counts.errors_are_failures
    if not run.kinds or not (run.counts.unplayed or is_errored):
        yield from answers
        return
    best, worst = (
        {each.name: each for each in outcomes(gates, run.fill(passes=passes, with_errors=is_errored), change_at_end)}
        for passes in (True, False)
        for change_at_end in [change and filled_change(change, passes=passes, with_errors=is_errored)]
    )
    for each in answers:
        if each.name in OF_THE_RUN:
            yield each
        elif each.name == "--margin":
            yield _decide_early(each, _margins(gates, run, change, with_errors=is_errored), run.counts)
        elif gates.undecided in ("pass", "neutral") and each.name.partition(" ")[0] in OF_A_RATE:
            yield _decide_early(each, (), run.counts)
        else:
            ends = [by_name[each.name] for by_name in (best, worst) if each.name in by_name]
            yield _decide_early(each, ends, run.counts)


def _margins(gates: Gates, run: RunNumbers, change: RunChange | None, *, with_errors: bool) -> tuple[GateOutcome, ...]:
    """The answers of the gate on the drop of the pass rate for all ways in which the missing trials can end.

    None where these are too many: an interval is not widest at the best or the worst of them.
    """
    if change is None or gates.margin is None:
        return ()
    ways = filled_changes(change, with_errors=with_errors, most=MOST_WAYS)
    return tuple(_margin(run, each, gates, gates.margin) for each in ways)


def _decide_early(outcome: GateOutcome, ends: Sequence[GateOutcome], counts: Counts) -> GateOutcome:
    answer: Answer = "undecided"
    if ends and all(each.is_failed for each in ends):
        answer = "failed"
    elif ends and all(each.answer == "held" for each in ends):
        answer = "held"
    aside = asides_words(counts)
    words = outcome.sentence
    if outcome.name in OF_NAMED_CASES and counts.asides:  # in brackets they would belong to the last case that is named
        words += f"; and {aside.strip(' ()')} in the run"
    elif aside.strip() not in words:
        words += aside
    if answer == "undecided" and counts.errored:
        words += f"; {counted(counts.errored, 'errored trial')} can change that, retry {_them(counts.errored)}"
    return replace(outcome, answer=answer, sentence=words, counts_as=None)


def _them(n: int) -> str:
    return "it" if n == 1 else "them"


def outcomes(gates: Gates, run: RunNumbers, change: RunChange | None) -> Iterator[GateOutcome]:
    """The answer of each gate over the planned trials of a run."""
    if gates.is_pooled:
        yield _pooled(run)
        if gates.max_cost is not None:
            yield _cost(run, gates.max_cost)
        return
    if gates.all_must_pass and not gates.asks_for_verdicts:
        is_by_case = gates.pass_threshold < 1 and not gates.unscored_are_failures
        yield _case_pass_rate(run, gates.pass_threshold, EVERY_CASE) if is_by_case else _all_passed(run, gates)
    if gates.min_pass_rate is not None:
        yield _pass_rate(run, gates.min_pass_rate, gates.undecided)
    if gates.min_case_pass_rate is not None:
        yield _case_pass_rate(run, gates.min_case_pass_rate)
    for k, least in gates.pass_at:
        yield _curve(run, "--pass-at", "pass@", k, least, gates.undecided)
    for k, least in gates.pass_hat:
        yield _curve(run, "--pass-hat", "pass^", k, least, gates.undecided)
    if gates.max_cost is not None:
        yield _cost(run, gates.max_cost)
    yield from _comparison_gates(run, change, gates)
    if gates.min_scored is not None:
        yield _min_scored(run.counts, gates.min_scored)
    if run.counts.errored or gates.max_error_rate:
        yield _tolerance("--max-error-rate", "errored", run.counts.errored, run.counts, gates.max_error_rate)
    if run.counts.unscored or gates.max_unscored_rate:
        yield _tolerance("--max-unscored-rate", "unscored", run.counts.unscored, run.counts, gates.max_unscored_rate)


def _pooled(run: RunNumbers) -> GateOutcome:
    """Whether each case reaches its thresholds in the means over its trials; open while some are not played."""
    answers = {case.id: None if case.counts.unplayed else case.pooled_failure for case in run.cases}
    failed = [case_id for case_id, failure in answers.items() if failure]
    n_open = sum(failure is None for failure in answers.values())
    n_passed = len(answers) - len(failed) - n_open
    words = f"{counted_words(n_passed, len(answers), 'case')} reached the thresholds in the mean over all trials"
    if failed:
        words += f"; failed: {named_words([f'{name} ({answers[name]})' for name in failed], MOST_NAMED)}"
    if n_open:
        words += f"; {counted(n_open, 'case')} not played to the end"
    answer: Answer = "failed" if failed else "undecided" if n_open or not answers else "held"
    return GateOutcome(POOLED, answer, words, tuple(failed))


def _all_passed(run: RunNumbers, gates: Gates) -> GateOutcome:
    counts = run.counts
    answer: Answer = "held" if counts.passed else "undecided"
    if counts.scored > counts.passed or (gates.unscored_are_failures and counts.unscored):
        answer = "failed"
    names = tuple(case.id for case in run.cases if case.counts.scored > case.counts.passed)
    words = f"{counted_words(counts.passed, counts.planned, 'trial')} passed{asides_words(counts)}"
    return GateOutcome(ALL_PASSED, answer, words, names)


def _pass_rate(run: RunNumbers, least: float, undecided: Undecided | None) -> GateOutcome:
    name, counts = "--min-pass-rate", run.counts
    rate, interval = counts.rate, run.gate_interval
    if rate is None:
        words = f"no trial was scored{asides_words(counts)}, so no pass rate is at least {least:g}"
        return GateOutcome(name, "undecided", words)
    words = f"pass rate {beside_words(rate, least)} {'is at least' if rate >= least - ROUNDING else 'is below'}"
    is_of_these = run.is_any_stop
    sentence = (
        passed_of_these_sentence(counts, interval, run.n_rated) if is_of_these else passed_sentence(counts, interval)
    )
    words += f" {least:g}: {sentence}{asides_words(counts)}"
    is_near = interval is not None and interval.low < least <= interval.high
    if is_near:
        words += _near_words(least)
    if counts_as := _counts_as(counts, interval, least, undecided):
        return GateOutcome(name, "undecided", words if is_near else words + _near_words(least), (), counts_as)
    return GateOutcome(name, "held" if rate >= least - ROUNDING else "failed", words)


def _near_words(least: float) -> str:
    return f"; too close to {least:g} to be sure, add cases"


def _counts_as(
    counts: Counts, interval: Interval | None, least: float, undecided: Undecided | None
) -> Undecided | None:
    """The answer of a gate while its threshold lies inside the interval; None where the number alone decides.

    To be sure of 0 or of 1 is not asked. A run in which nothing passed never counts as passed.
    """
    is_close = 0 < least < 1 and (interval is None or interval.low < least <= interval.high)
    if not is_close or (undecided == "pass" and not counts.passed):
        return None
    return undecided


def _case_pass_rate(run: RunNumbers, least: float, name: str = "--min-case-pass-rate") -> GateOutcome:
    n = run.n_cases
    n_below = sum(
        times for n_scored, n_passed, times in run.case_counts if n_scored and n_passed / n_scored < least - ROUNDING
    )
    n_unknown = sum(times for n_scored, _, times in run.case_counts if not n_scored)
    if n and not n_below and not n_unknown:
        each = "the one case" if n == 1 else f"each of {n:,} cases"
        words = f"{each} passed at least {least:g} of its trials{asides_words(run.counts)}"
        return GateOutcome(name, "held", words)
    below = [case for case in run.cases if case.counts.rate is None or case.counts.rate < least - ROUNDING]
    names = named_words([f"{case.id} {_share(case.counts)}" for case in below], MOST_NAMED)
    whose = "its" if n_below + n_unknown == 1 else "their"
    words = f"{counted_words(n_below + n_unknown, n, 'case')} passed less than {least:g} of {whose} trials"
    words += (f": {names}" if names else "") + asides_words(run.counts)
    return GateOutcome(name, "failed" if n_below else "undecided", words, tuple(case.id for case in below))


def _share(counts: Counts, more: str = "") -> str:
    return f"({counts.passed} of {counts.scored}{more})" if counts.scored else f"(no scored trials{more})"


def _tag_words(author: str | None) -> str:
    if author is None:
        return ""
    return f", tagged by {in_one_line(author)[:VALUE_LIMIT]}" if author else ", tagged outside"


def _curve(run: RunNumbers, name: str, word: str, k: int, least: float, undecided: Undecided | None) -> GateOutcome:
    point = point_at(run.curve_counts, k)
    value = point.pass_at_k if word == "pass@" else point.pass_hat_k
    if value is None:
        words = f"{word}{k} is {run.basis_of(point)}{asides_words(run.counts)}"
        words += "; retry the errored trials" if run.counts.errored else ""
        return GateOutcome(f"{name} {k}", "undecided", words)
    is_reached = value >= least - ROUNDING
    words = f"{word}{k} {beside_words(value, least)} {'is at least' if is_reached else 'is below'} {least:g}"
    interval = point.at_interval if word == "pass@" else point.hat_interval
    words += f"; {CI} {share_range(interval)}" if interval and not run.is_any_stop else ""
    words += f"; {basis}" if (basis := run.basis_of(point)) else ""
    if counts_as := _counts_as(run.counts, interval, least, undecided):
        words += _near_words(least) + asides_words(run.counts)
        return GateOutcome(f"{name} {k}", "undecided", words, (), counts_as)
    answer: Answer = "held" if is_reached else "failed"
    return GateOutcome(f"{name} {k}", answer, words + asides_words(run.counts))


def _cost(run: RunNumbers, most: float) -> GateOutcome:
    counts, costs = run.counts, run.costs
    is_within = not is_more(costs.cost, most)
    if costs.unknown and is_within:
        return GateOutcome("--max-cost", "undecided", f"{costs.unknown}, so the run cannot be held to ${most:g}")
    is_near = not is_within and costs.cost < most + 0.005
    amount = least_words(f"${beside_words(costs.cost, most)}", bool(costs.unknown)) if is_near else costs.words
    words = f"the run cost {amount}, {'within' if is_within else 'more than'} ${most:g}"
    if not counts.unplayed or run.stop:
        return GateOutcome("--max-cost", "held" if is_within else "failed", words)
    if is_within:
        return GateOutcome("--max-cost", "undecided", f"{words}; {_unplayed_words(counts)}")
    return GateOutcome("--max-cost", "failed", f"{words}; it was stopped, and {_unplayed_words(counts)}")


def _unplayed_words(counts: Counts) -> str:
    were = "was" if counts.unplayed == 1 else "were"
    return f"{counted_words(counts.unplayed, counts.planned, 'trial')} {were} not played"


def _min_scored(counts: Counts, least: int) -> GateOutcome:
    answer: Answer = "held" if counts.scored >= least else "failed"
    if answer == "failed" and counts.scored + counts.unplayed >= least:
        answer = "undecided"
    words = f"{counted_words(counts.scored, counts.planned, 'trial')} scored, {least:,} must be{asides_words(counts)}"
    return GateOutcome("--min-scored", answer, words)


def _comparison_gates(run: RunNumbers, change: RunChange | None, gates: Gates) -> Iterator[GateOutcome]:
    """The answers of the gates that ask for a baseline, and of the cases that it does not account for."""
    if gates.max_regressions is not None:
        yield _regressions(run, change, gates)
    if gates.margin is not None:
        yield _margin(run, change, gates, gates.margin)
    if gates.compares and change is not None and change.unaccounted_cases:
        yield _new_cases(change, gates)


def _regressions(run: RunNumbers, change: RunChange | None, gates: Gates) -> GateOutcome:
    most = gates.max_regressions or 0
    if change is None:
        return GateOutcome("--max-regressions", "undecided", _compared_words(gates))
    is_refused = bool(change.refusal) and (change.rule == "likely" or bool(change.unconfirmed_cases))
    names = tuple(case.name for case in change.regressions)
    without_verdict = set(change.names_of("lost its verdict"))
    is_suite_worse = not most and any(suite.is_worse for suite in change.suites)
    if change.is_by_history:
        n_worse = len(names) - len(without_verdict)
        words = f"{counted_words(n_worse, change.n_judged, 'case')} regressed by more than chance"
        if is_suite_worse and not n_worse:
            together = "All cases together" if len(change.suites) == 1 else "The cases of an eval set together"
            headline = f"{together} are worse than in {change.name}; no single case is"
        else:
            headline = f"{words} against {change.name}, {most:,} allowed"
            headline += "; the cases together are worse, too" if is_suite_worse else ""
        if without_verdict:
            verb = "has" if len(without_verdict) == 1 else "have"
            headline += f"; {counted(len(without_verdict), 'case')} {verb} no verdict now"
        parts = [headline + deleted_words(change), flips_words(change)]
    else:
        headline = f"{counted_words(len(names), change.n_judged, 'case')} regressed against {change.name}"
        headline += f", {most:,} allowed{deleted_words(change)}"
        parts = [headline, flips_words(change), f"Pass rate: {change_sentence(change)}"]
    if change.weaker:
        parts.insert(1, _weaker_words(change))
    if is_refused:
        parts.insert(1, f"Not judged: {change.refusal}")
    elif change.is_by_history:
        parts[1:1] = history_sentences(change, MOST_NAMED)
    elif change.played_again:
        parts.insert(1, _again_words(change))
    if names:
        named_regressions = [f"{name} (no verdict now)" if name in without_verdict else name for name in names]
        parts.append(f"Regressed: {named_words(named_regressions, MOST_NAMED)}")
    answer = regressions_answer(change, most)
    return GateOutcome("--max-regressions", answer, ". ".join([*parts, *states_words(change, MOST_NAMED)]), names)


def regressions_answer(change: RunChange, most: int) -> Answer:
    """Undecided where fresh trials can change it, and where a case fell that no outcome could have told from chance."""
    fails = change.fails(most)
    if change.rule == "likely" and change.refusal:
        return "undecided"
    if fails:
        return "failed"
    is_blind = change.has_fallen and (not change.can_fail(most) or len(change.regressions) + len(change.untold) > most)
    if fails is None or is_blind or change.weaker or not change.n_judged:
        return "undecided"
    return "held"


def _margin(run: RunNumbers, change: RunChange | None, gates: Gates, most: float) -> GateOutcome:
    """Failed when the whole interval of the difference lies beyond the margin, not when it might.

    Where too few cases have an interval, a drop within the margin holds, and a larger one is undecided.
    """
    name = "--margin"
    if change is None:
        return GateOutcome(name, "undecided", _compared_words(gates))
    rates = change.rates
    if rates is None:
        return GateOutcome(name, "undecided", f"no case is compared with {change.name}")
    words = f"pass rate: {change_sentence(change)}; a drop of {100 * most:.3g} points is allowed"
    words += deleted_words(change)
    if rates.bounds.high < -most - ROUNDING:
        return GateOutcome(name, "failed", words)
    if change.weaker:
        return GateOutcome(name, "undecided", f"{words}. {_weaker_words(change)}")
    is_open = isinf(rates.bounds.low)
    is_unsure = gates.undecided is not None or (is_open and rates.difference < -most - ROUNDING)
    if rates.bounds.low < -most - ROUNDING and is_unsure:
        why = "too few cases" if is_open else "too close"
        return GateOutcome(name, "undecided", f"{words}; {why} to be sure, add cases", (), gates.undecided)
    return GateOutcome(name, "held", words)


def _weaker_words(change: RunChange) -> str:
    again = f"score {change.name} again by the criteria of now, and compare with that run"
    return f"What must be reached is less than in {change.name} ({'; '.join(change.weaker)}): {again}"


# A case that no baseline accounts for is judged by itself: decision 456.
def _new_cases(change: RunChange, gates: Gates) -> GateOutcome:
    """The answer of the gate on cases that the baseline does not account for: each must pass by itself."""
    unaccounted = change.unaccounted_cases
    answers = {case.name: case.after.passes_alone if case.after else None for case in unaccounted}
    failed = [case for case in unaccounted if answers[case.name] is False]
    unsure = [case for case in unaccounted if answers[case.name] is None]
    which = counted(len(unaccounted), "case")
    not_passed = failed + unsure
    if not not_passed:
        named_cases = named_words([_alone_words(case) for case in unaccounted], MOST_NAMED)
        pronoun = "itself" if len(unaccounted) == 1 else "themselves"
        words = f"{which} that {change.name} does not account for passed by {pronoun}"
        return GateOutcome("--new-cases", "held", f"{words}: {named_cases}")
    named_cases = named_words([_alone_words(case) for case in not_passed], MOST_NAMED)
    words = f"{len(not_passed):,} of {which} that {change.name} does not account for did not pass: {named_cases}"
    names = tuple(case.name for case in not_passed)
    if gates.new_cases == "inform":
        return GateOutcome("--new-cases", "held", f"{words}; they inform only", names)
    answer: Answer = "failed" if failed and gates.new_cases == "must-pass" else "undecided"
    return GateOutcome("--new-cases", answer, words, names)


def _alone_words(case: CaseChange) -> str:
    """`greeting (new, passed 0 of 1)`."""
    state = {"edited since": "edited", "same": "no verdict before"}.get(case.state, case.state)
    letters = case.after.scored_letters if case.after else ""
    passed = f"passed {letters.count('p')} of {len(letters)}" if letters else "no scored trial"
    return f"{case.name} ({state}, {passed})"


def _compared_words(gates: Gates) -> str:
    return f"the cases are compared with {gates.baseline or 'the baseline'} by the command that played them"


def _again_words(change: RunChange) -> str:
    """`Played again, 3 of 5 must pass: case_2 passed 1 of 5`; a case that needs more verdicts says so."""
    n_needed, n = change.confirm
    words = []
    for case in change.played_again:
        letters = case.after.confirming if case.after else ""
        result = f"passed {letters.count('p')} of {len(letters)}" if letters else "was not played again"
        is_open = bool(letters) and change.passes_again(case) is None
        words.append(f"{case.name} {result}" + (f", {_missing_words(letters)}" if is_open else ""))
    return f"Played again, {n_needed} of {n} must pass: {named_words(words, MOST_NAMED)}"


def _missing_words(letters: str) -> str:
    n = len(letters) - letters.count("p") - letters.count("f")
    return f"{n} without a verdict; resume the run, or retry its errors"


def _tolerance(name: str, word: str, n: int, counts: Counts, most: float) -> GateOutcome:
    rate = n / counts.done if counts.done else 0.0
    is_held = rate <= most + ROUNDING
    words = f"{counted_words(n, counts.done, 'trial')} {word} ({share_words(rate)}), "
    words += "within " if is_held else "more than "
    return GateOutcome(name, "held" if is_held else "failed", words + f"the tolerated {most:.3g}")
