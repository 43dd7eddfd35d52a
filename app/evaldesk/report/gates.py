"""Gates: what a build asks of a run, each answered with its number, its words of doubt, and whether it held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evaldesk.report.comparison import compare_verdicts
from evaldesk.report.comparison_words import flips_sentence, pairing_note
from evaldesk.report.intervals import Interval, rate_interval
from evaldesk.report.pass_k import CaseCounts, curve_point
from evaldesk.report.words import beside_words, cost_words, counted_words, passed_sentence, share_words

MOST_NAMED = 10
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class CaseNumbers:
    """A case of a run: its trials by what became of them. With `errors_are_failures` errored trials are scored."""

    id: str
    n_passed: int
    n_failed: int
    n_errored: int
    n_unscored: int
    n_planned: int
    pass_threshold: float = 1.0
    errors_are_failures: bool = False

    @property
    def n_scored(self) -> int:
        """The denominator of `pass_rate`."""
        return self.n_passed + self.n_failed + (self.n_errored if self.errors_are_failures else 0)

    @property
    def pass_rate(self) -> float | None:
        """The share of scored trials that passed; None when none was scored."""
        return self.n_passed / self.n_scored if self.n_scored else None

    @property
    def is_passed(self) -> bool | None:
        """Whether enough of its scored trials passed; None when none was scored."""
        return None if self.pass_rate is None else self.pass_rate >= self.pass_threshold - ROUNDING


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """What gates are judged by. `cost` is US dollars of the trials with known prices, `n_unpriced` are the others."""

    cases: tuple[CaseNumbers, ...]
    cost: float = 0.0
    n_unpriced: int = 0

    @property
    def counts(self) -> list[CaseCounts]:
        """What intervals and pass@k are made of."""
        return [(case.n_scored, case.n_passed, 1) for case in self.cases]

    @property
    def n_passed(self) -> int:
        """Trials that passed."""
        return sum(case.n_passed for case in self.cases)

    @property
    def n_scored(self) -> int:
        """The denominator of the pass rate."""
        return sum(case.n_scored for case in self.cases)

    @property
    def n_errored(self) -> int:
        """Trials that broke off."""
        return sum(case.n_errored for case in self.cases)

    @property
    def n_unscored(self) -> int:
        """Trials that some criterion had nothing to say about."""
        return sum(case.n_unscored for case in self.cases)

    @property
    def n_planned(self) -> int:
        """Trials that there were to play."""
        return sum(case.n_planned for case in self.cases)

    @property
    def n_done(self) -> int:
        """Trials with a verdict."""
        return sum(case.n_passed + case.n_failed + case.n_errored + case.n_unscored for case in self.cases)

    @property
    def interval(self) -> Interval | None:
        """Where the pass rate probably lies, clustered by case."""
        return rate_interval(self.counts)

    @property
    def verdicts(self) -> dict[str, bool]:
        """Whether each case that was scored passed."""
        return {case.id: case.is_passed for case in self.cases if case.is_passed is not None}


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run: whether each of its cases passed. `name` says which run it is."""

    name: str
    verdicts: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class Gates:
    """What is asked; None asks nothing. `pass_at` and `pass_hat` are pairs of k and the least mean.

    Errors are always tolerated up to `max_error_rate` only. Where nothing else is asked every trial must pass, unless
    `all_must_pass` is off.
    """

    min_pass_rate: float | None = None
    min_case_pass_rate: float | None = None
    pass_at: tuple[tuple[int, float], ...] = ()
    pass_hat: tuple[tuple[int, float], ...] = ()
    max_error_rate: float = 0.0
    max_cost: float | None = None
    max_regressions: int | None = None
    all_must_pass: bool = True

    @property
    def asks_nothing(self) -> bool:
        """Whether only the default gate is left."""
        numbers = (self.min_pass_rate, self.min_case_pass_rate, self.max_cost, self.max_regressions)
        return all(number is None for number in numbers) and not (self.pass_at or self.pass_hat)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """One gate: the option that asked for it, whether it held, and a sentence with its number."""

    name: str
    is_held: bool
    sentence: str
    names: tuple[str, ...] = field(default=())

    @property
    def is_of_errors(self) -> bool:
        """Whether it is the tolerance for errors, which has an exit code of its own."""
        return self.name == "--max-error-rate"


def judge_gates(gates: Gates, run: RunNumbers, baseline: Baseline | None = None) -> tuple[GateOutcome, ...]:
    """The outcome of every gate that was asked for, and of the tolerance for errors where there are some."""
    return tuple(_outcomes(gates, run, baseline))


def _outcomes(gates: Gates, run: RunNumbers, baseline: Baseline | None) -> Iterator[GateOutcome]:
    if gates.asks_nothing and gates.all_must_pass:
        yield _all_passed(run)
    if gates.min_pass_rate is not None:
        yield _pass_rate(run, gates.min_pass_rate)
    if gates.min_case_pass_rate is not None:
        yield _case_pass_rate(run, gates.min_case_pass_rate)
    for k, least in gates.pass_at:
        yield _curve(run, "--pass-at", "pass@", k, least)
    for k, least in gates.pass_hat:
        yield _curve(run, "--pass-hat", "pass^", k, least)
    if gates.max_cost is not None:
        yield _cost(run, gates.max_cost)
    if gates.max_regressions is not None and baseline is not None:
        yield _regressions(run, baseline, gates.max_regressions)
    if run.n_errored or gates.max_error_rate:
        yield _errors(run, gates.max_error_rate)


def _all_passed(run: RunNumbers) -> GateOutcome:
    n_not = run.n_planned - run.n_passed - run.n_errored
    is_held = n_not == 0 and run.n_passed > 0
    return GateOutcome("all passed", is_held, f"{counted_words(run.n_passed, run.n_planned, 'trial')} passed; all must")


def _pass_rate(run: RunNumbers, least: float) -> GateOutcome:
    name = "--min-pass-rate"
    if not run.n_scored:
        return GateOutcome(name, False, f"nothing was scored, so no pass rate is at least {least:g}")
    rate, interval = run.n_passed / run.n_scored, run.interval
    is_held = rate >= least - ROUNDING
    words = f"pass rate {beside_words(rate, least)} {'is at least' if is_held else 'is below'} {least:g}: "
    words += passed_sentence(run.n_passed, run.n_scored, interval)
    if interval and interval.low < least <= interval.high:
        words += f"; whether it is {'above' if is_held else 'below'} {least:g} by more than luck is open"
    return GateOutcome(name, is_held, words)


def _case_pass_rate(run: RunNumbers, least: float) -> GateOutcome:
    below = [case for case in run.cases if case.pass_rate is None or case.pass_rate < least - ROUNDING]
    n = len(run.cases)
    if not below and n:
        each = "the one case" if n == 1 else f"each of {n:,} cases"
        return GateOutcome("--min-case-pass-rate", True, f"{each} passed at least {least:g} of its trials")
    said = [f"{case.id} {_share(case)}" for case in below[:MOST_NAMED]]
    more = f", and {len(below) - MOST_NAMED} more" if len(below) > MOST_NAMED else ""
    whose = "its" if len(below) == 1 else "their"
    words = f"{counted_words(len(below), n, 'case')} passed less than {least:g} of {whose} trials"
    words += f": {', '.join(said)}{more}" if said else ""
    return GateOutcome("--min-case-pass-rate", False, words, tuple(case.id for case in below))


def _share(case: CaseNumbers) -> str:
    return f"({case.n_passed} of {case.n_scored})" if case.n_scored else "(nothing scored)"


def _curve(run: RunNumbers, name: str, word: str, k: int, least: float) -> GateOutcome:
    point = curve_point(run.counts, k)
    value = point.pass_at_k if word == "pass@" else point.pass_hat_k
    trials = f"{k} scored {'trial' if k == 1 else 'trials'}"
    if value is None:
        return GateOutcome(f"{name} {k}", False, f"{word}{k} is undefined: no case has {trials}; raise --n")
    is_held = value >= least - ROUNDING
    words = f"{word}{k} {beside_words(value, least)} {'is at least' if is_held else 'is below'} {least:g}"
    if point.n_cases < len(run.cases):
        have = "has" if point.n_cases == 1 else "have"
        words += f"; over the {counted_words(point.n_cases, len(run.cases), 'case')} that {have} {trials}"
    return GateOutcome(f"{name} {k}", is_held, words)


def _cost(run: RunNumbers, most: float) -> GateOutcome:
    if run.n_unpriced:
        trials = "1 trial" if run.n_unpriced == 1 else f"{run.n_unpriced:,} trials"
        words = f"the price of {trials} is not known, so the cost cannot be held to ${most:g}"
        return GateOutcome("--max-cost", False, words)
    is_held = run.cost <= most + ROUNDING
    is_near = not is_held and run.cost < most + 0.005
    said = f"${beside_words(run.cost, most)}" if is_near else cost_words(run.cost)
    words = f"the run cost {said}, {'within' if is_held else 'more than'} ${most:g}"
    if not is_held and run.n_done < run.n_planned:
        words += f"; it was stopped, and {_left(run)} not played"
    return GateOutcome("--max-cost", is_held, words)


def _left(run: RunNumbers) -> str:
    n = run.n_planned - run.n_done
    return f"{counted_words(n, run.n_planned, 'trial')} {'was' if n == 1 else 'were'}"


def _regressions(run: RunNumbers, baseline: Baseline, most: int) -> GateOutcome:
    flips = compare_verdicts(baseline.verdicts, run.verdicts)
    n = len(flips.broken)
    is_held = n <= most and flips.n_cases > 0
    words = f"{counted_words(n, flips.n_cases, 'case')} regressed against {baseline.name}, {most:,} allowed"
    words += f". {flips_sentence(flips)}"
    if flips.broken:
        words += f". Regressed: {_named(flips.broken)}"
    note = pairing_note(flips)
    return GateOutcome("--max-regressions", is_held, words + (f". {note}" if note else ""), flips.broken)


def _errors(run: RunNumbers, most: float) -> GateOutcome:
    rate = run.n_errored / run.n_done if run.n_done else 0.0
    is_held = rate <= most + ROUNDING
    words = f"{counted_words(run.n_errored, run.n_done, 'trial')} errored ({share_words(rate)}), "
    words += "within " if is_held else "more than "
    return GateOutcome("--max-error-rate", is_held, words + f"the tolerated {most:.3g}")


def _named(names: Sequence[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
