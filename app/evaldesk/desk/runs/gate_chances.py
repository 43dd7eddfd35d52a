"""How the gates of a run behave before it is played: false alarms, and worse agents that they let pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evaldesk.desk.runs.gates import ALL_PASSED, OF_A_RATE
from evaldesk.desk.runs.impossible_gates import baseline_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, title_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import CONFIRM, Undecided
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.gate_chances import (
    ROUNDING,
    Kinds,
    chance_of_at_least,
    curve_holds,
    every_case_holds,
    likely_drops,
    more_than,
    needed_passes,
    regressed_by_chance,
    regressed_in_draws,
    still_regressed,
    trials_to_tell,
)
from evaldesk.statistics.mean_chances import MeanDifference, mean_difference, rate_holds

TOLERATED = 0.05
"""Above this share of false alarms a build loses its readers' trust."""
DROPS = (0.05, 0.15, 0.3)
"""By how much a worse agent is worse: in each case, as a difference of pass rates."""
SOUGHT = 0.15
"""A proposed gate finds an agent whose pass rate is lower by this much in each case, in the share FOUND of builds."""
FOUND = 0.8
MOST_PROPOSED_N = 20
MOST_PROPOSED_FRESH = 20
ASSUMED_RATES = (0.99, 0.95, 0.9, 0.8)
USUAL_RATE = 0.9
MOST_PREVIEWED = 1_000
EXPLAINED = (
    "min_pass_rate",
    "min_case_pass_rate",
    "pass_at",
    "pass_hat",
    "max_regressions",
    "margin",
    "regression_rule",
    "confirm",
)
"""The gates about verdicts, whose chances can be computed before a run."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The cases that a gate judges: by the chance of a trial to pass and the trials of each, and the share of them that
    a case must pass.

    `drawn` are the scored and passed trials of each kind of case in a stored run, from which two runs of an unchanged
    agent are drawn.
    """

    kinds: Kinds
    pass_threshold: float = 1.0
    drawn: tuple[tuple[int, int], ...] = ()

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return sum(n_cases for *_, n_cases in self.kinds)

    @property
    def n(self) -> int:
        """The trials that each case has."""
        return min(n for _, n, _ in self.kinds)

    @property
    def n_most(self) -> int:
        """The most trials of a case."""
        return max(n for _, n, _ in self.kinds)

    @property
    def n_trials(self) -> int:
        """The trials of all cases."""
        return sum(n * n_cases for _, n, n_cases in self.kinds)

    @property
    def trials_to_tell(self) -> int:
        """The fewest trials of each case with which one case can show a likely drop."""
        return trials_to_tell(self.n_cases)

    def dropped(self, drop: float) -> Subject:
        """The same cases played by an agent whose pass rate is lower by `drop` in each of them."""
        return replace(self, kinds=[(max(0.0, p - drop), n, n_cases) for p, n, n_cases in self.kinds], drawn=())

    def played(self, n: int) -> Subject:
        """The same cases with `n` trials each."""
        n_of = Counter[float]()
        for p, _, n_cases in self.kinds:
            n_of[p] += n_cases
        return replace(self, kinds=[(p, n, n_cases) for p, n_cases in n_of.items()], drawn=())


@dataclass(frozen=True, slots=True)
class Repair:
    """Another setting, its chance of a false alarm, and the mean number of trials it plays beyond those of the run."""

    name: str
    false_alarm: float
    n_more: float = 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """The options of a gate that rarely fails by chance and finds an agent that is worse by SOUGHT.

    `false_alarm` and `finds` are its chances to fail, `n_trials` the mean number of trials of a build.
    """

    options: str
    false_alarm: float
    finds: float
    n_trials: float


@dataclass(frozen=True, slots=True)
class GateChance:
    """How one gate behaves. `holds` is its chance to hold for an unchanged agent, None where it is not known.

    `slips` are (drop of the pass rate, chance to hold all the same). `hint` names a gate that is stricter than it
    looks; `repairs` are other settings with few false alarms. `n_more` is the mean number of trials that it plays
    beyond those of the run. `error` is how far a chance can be off, which is 0 unless there are too many values to add
    up. `proposal` is None where no setting of the kind finds a worse agent; it may be the gate
    itself, which `options` tells. With `counts_as` the chances are those of its number alone, and a number too close to
    the bar counts as this says.
    """

    name: str
    options: str
    holds: float | None
    slips: tuple[tuple[float, float], ...] = ()
    hint: str = ""
    repairs: tuple[Repair, ...] = ()
    n_more: float = 0.0
    proposal: Proposal | None = None
    error: float = 0.0
    counts_as: Undecided | None = None

    @property
    def false_alarm(self) -> float | None:
        """The chance to fail although nothing changed."""
        return None if self.holds is None else max(0.0, 1.0 - self.holds)

    @property
    def is_proposed(self) -> bool:
        """Whether the gate is the one that would be proposed."""
        return self.proposal is not None and self.proposal.options == self.options

    @property
    def better(self) -> Proposal | None:
        """The proposal where it is another gate."""
        return None if self.is_proposed else self.proposal


@dataclass(frozen=True, slots=True)
class GatePreview:
    """How the gates of a run that is not begun behave.

    `run_id` is the run whose pass rates `chances` are computed from; None is USUAL_RATE in each case. `assumed`
    has, for each rate of ASSUMED_RATES in every case, the chance of each gate to hold.
    """

    chances: tuple[GateChance, ...]
    assumed: tuple[tuple[float, tuple[float | None, ...]], ...]
    run_id: int | None


@dataclass(frozen=True, slots=True)
class _Gate:
    """A gate and its chance to hold. The first of `milder` with few false alarms is a repair, and so is `other`."""

    name: str
    holds: Callable[[Subject, Subject], float | None]
    hint: str = ""
    milder: Callable[[Subject], Iterator[tuple[str, float | None]]] | None = None
    other: Repair | None = None
    n_more: float = 0.0
    propose: Callable[[Subject], Proposal | None] = lambda _: None
    error: Callable[[Subject, Subject], float] = lambda *_: 0.0


def assumed_subject(rate: float, n_each: Iterable[int], pass_threshold: float) -> Subject:
    """Cases with so many trials that all pass with the same chance."""
    return Subject([(rate, n, n_cases) for n, n_cases in sorted(Counter(n_each).items())], pass_threshold)


def played_subject(
    runs: StoredRuns, run: RunSummary, n_each: Sequence[int] | None, pass_threshold: float | None
) -> Subject:
    """The cases of a stored run with the pass rates that they had, and with its trials, or those of `n_each`.

    Raises UsageError when none was scored.
    """
    scored = "pfe" if run.config.errors_are_failures else "pf"
    strips = runs.store.strips(run.id)
    found = Counter(
        (sum(letter in scored for letter in strip), strip.count("p"), n)
        for strip, n in zip(strips, n_each or map(len, strips), strict=True)
    )
    threshold = run.config.pass_threshold if pass_threshold is None else pass_threshold
    subject = drawn_subject([(*case, times) for case, times in sorted(found.items())], threshold)
    if not subject.kinds:
        raise UsageError(f"run {run.id} has no scored trials to estimate pass rates from; name another run")
    return subject


def drawn_subject(cases: Iterable[tuple[int, int, int, int]], pass_threshold: float) -> Subject:
    """Cases by their scored and passed trials, those to play, and how many such cases; unscored ones are left out."""
    rows = [case for case in cases if case[0]]
    kinds = [(passed / scored, n, times) for scored, passed, n, times in rows]
    return Subject(kinds, pass_threshold, tuple((scored, passed) for scored, passed, *_ in rows))


def check_explained(gates: Gates, subject: Subject, called: Callable[[RunOption], str]) -> None:
    """Raise UsageError for gates whose chances are not defined over so few trials; `called` names an option."""
    n, more = subject.n, called(BY_NAME["n"])
    for name, word, pairs in (("pass_at", "pass@", gates.pass_at), ("pass_hat", "pass^", gates.pass_hat)):
        for k, _ in pairs:
            if k > n:
                option = called(GATES_BY_NAME[name])
                raise UsageError(
                    f"{option} {k}: {word}{k} with {more} {n} is never defined; say {more} {k} or more", field=name
                )
    rule = f"{called(GATES_BY_NAME['regression_rule'])} {gates.regression_rule}"
    if gates.regression_rule != "any" and gates.max_regressions is None:
        most = called(GATES_BY_NAME["max_regressions"])
        raise UsageError(f"{rule} needs {most}: how many cases may regress", field="max_regressions")
    if gates.regression_rule == "likely" and subject.n_most < (needed := subject.trials_to_tell):
        cases = "1 case" if subject.n_cases == 1 else f"{subject.n_cases:,} cases"
        raise UsageError(
            f"{rule} never finds a regression in {cases} with {more} {subject.n_most}; say {more} {needed} or more",
            field="regression_rule",
        )


def false_alarms(gates: Gates, plans: Sequence[RunPlan]) -> tuple[float, float] | None:
    """How often a flip of chance alone fails the gate on regressions, and how often where fresh trials confirm it.

    From the pass rates of the baseline; None without the gate, with another rule and within the tolerance.
    """
    if gates.max_regressions is None or gates.regression_rule != "any":
        return None
    flips: list[tuple[float, int]] = []
    confirmed: list[tuple[float, int]] = []
    for plan in plans:
        n_of = {case.id: n for case, n in zip(plan.cases, plan.n_each, strict=True)}
        threshold = plan.config.pass_threshold
        for case in baseline_of(plan):
            n = n_of[case.key.case_id]
            p = case.scored.count("p") / len(case.scored)
            chance = regressed_by_chance(p, n, threshold)
            flips.append((chance, 1))
            confirmed.append((still_regressed(chance, p, *gates.confirm), 1))
    alarm = more_than(gates.max_regressions, flips)
    return (alarm, more_than(gates.max_regressions, confirmed)) if alarm > TOLERATED else None


def gate_chances(gates: Gates, subject: Subject) -> tuple[GateChance, ...]:
    """How each gate about verdicts behaves, in the order of a conclusion."""
    found = (_chance(gate, subject) for gate in _gates(gates, subject))
    return tuple(
        replace(each, counts_as=gates.undecided) if each.name.partition(" ")[0] in OF_A_RATE else each for each in found
    )


def preview_gates(
    gates: Gates, runs: StoredRuns, last: RunSummary | None, *, n_each: Sequence[int], pass_threshold: float
) -> GatePreview | None:
    """How the gates of a run with so many trials of each case would behave.

    None without cases, and for more than MOST_PREVIEWED.

    The pass rates are those of the run `last` where it has as many cases, else USUAL_RATE in each case. Raises
    UsageError where the chances are not defined.
    """
    if not 0 < len(n_each) <= MOST_PREVIEWED:
        return None
    subject, run_id = assumed_subject(USUAL_RATE, n_each, pass_threshold), None
    check_explained(gates, subject, title_of)
    if last is not None and last.n_cases == len(n_each) and last.n_scored:
        subject, run_id = played_subject(runs, last, n_each, pass_threshold), last.id
    assumed = [
        (rate, tuple(gate.holds(now, now) for gate in _gates(gates, now)))
        for rate in ASSUMED_RATES
        for now in [assumed_subject(rate, n_each, pass_threshold)]
    ]
    return GatePreview(gate_chances(gates, subject), tuple(assumed), run_id)


def _chance(gate: _Gate, subject: Subject) -> GateChance:
    holds = gate.holds(subject, subject)
    worse = [(drop, subject.dropped(drop)) for drop in DROPS]
    slips = [(drop, gate.holds(subject, now)) for drop, now in worse]
    error = max(gate.error(subject, now) for now in (subject, *(now for _, now in worse)))
    known = tuple((drop, chance) for drop, chance in slips if chance is not None)
    repairs: tuple[Repair, ...] = ()
    if holds is not None and 1 - holds > TOLERATED:
        milder = gate.milder(subject) if gate.milder else ()
        good = (Repair(name, max(0.0, 1 - chance)) for name, chance in milder if chance is not None)
        first = next((repair for repair in good if repair.false_alarm <= TOLERATED), None)
        other = gate.other if gate.other and gate.other.false_alarm <= TOLERATED else None
        repairs = tuple(repair for repair in (other, first) if repair)
    is_even = subject.n == subject.n_most
    proposal, options = gate.propose(subject), f"--n {subject.n} {gate.name}" if is_even else gate.name
    return GateChance(gate.name, options, holds, known, gate.hint, repairs, gate.n_more, proposal, error)


def _gates(gates: Gates, subject: Subject) -> Iterator[_Gate]:
    n, n_trials = (subject.n, subject.n_trials) if subject.n == subject.n_most else (0, 0)
    if not gates.asks_for_verdicts:
        yield _Gate(ALL_PASSED, lambda _, now: every_case_holds(now.kinds, 1.0), milder=_milder_rates)
    if gates.min_pass_rate is not None:
        least = gates.min_pass_rate
        yield _Gate(
            f"--min-pass-rate {least:g}",
            lambda _, now: _rate_holds(now, least),
            _all_needed(n_trials, least, "trials", "every trial must pass"),
            _milder_rates,
            propose=proposed_pass_rate,
            error=lambda _, now: _rate_error(now, least),
        )
    if gates.min_case_pass_rate is not None:
        share = gates.min_case_pass_rate
        yield _Gate(
            f"--min-case-pass-rate {share:g}",
            lambda _, now: every_case_holds(now.kinds, share),
            _all_needed(n, share, "trials of a case", "every trial must pass"),
            lambda now: (
                (f"--min-case-pass-rate {each:g}", every_case_holds(now.kinds, each)) for each in _lower(share)
            ),
        )
    for k, least in gates.pass_at:
        yield _curve("--pass-at", k, least, is_hat=False)
    for k, least in gates.pass_hat:
        yield _curve("--pass-hat", k, least, is_hat=True)
    if gates.max_regressions is not None:
        yield _regression_gate(gates, subject)
    if gates.margin is not None:
        yield _margin_gate(gates.margin)


def _rate_holds(subject: Subject, least: float) -> float:
    low, high = rate_holds(subject.kinds, least)
    return (low + high) / 2


def _rate_error(subject: Subject, least: float) -> float:
    low, high = rate_holds(subject.kinds, least)
    return (high - low) / 2


def _margin_gate(margin: float) -> _Gate:
    return _Gate(
        f"--margin {margin:g}",
        lambda before, now: 1 - _difference(before, now).fails(margin),
        milder=lambda now: (
            (f"--margin {step / 20:g}", 1 - _difference(now, now).fails(step / 20))
            for step in range(int(margin * 20 + ROUNDING) + 1, 21)
        ),
        propose=lambda now: proposed_margin(now, margin),
        error=lambda before, now: _difference(before, now).error,
    )


def _difference(before: Subject, now: Subject) -> MeanDifference:
    pairs = zip(before.kinds, now.kinds, strict=True)
    return mean_difference(tuple((p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs))


def _regression_gate(gates: Gates, subject: Subject) -> _Gate:
    allowed = gates.max_regressions or 0
    if gates.regression_rule == "likely":
        return _likely(allowed)
    confirming = _confirming(allowed, *gates.confirm, subject)
    if gates.regression_rule == "confirm":
        return confirming
    alarm = 1 - (confirming.holds(subject, subject) or 0.0)
    return _Gate(
        f"--max-regressions {allowed}",
        lambda before, now: 1 - more_than(allowed, _regressions(before, now)),
        milder=lambda now: (
            (f"--max-regressions {each}", 1 - more_than(each, _regressions(now, now)))
            for each in range(allowed + 1, now.n_cases + 1)
        ),
        other=Repair(confirming.name, alarm, confirming.n_more),
        propose=lambda now: proposed_confirming(now, allowed),
    )


def _confirming(allowed: int, needed: int, n: int, subject: Subject) -> _Gate:
    """The gate that plays `n` trials more of each case that seems to have regressed; `needed` of them must pass."""

    def holds(before: Subject, now: Subject) -> float:
        seeming = zip(_regressions(before, now), now.kinds, strict=True)
        return 1 - more_than(
            allowed, [(still_regressed(chance, p, needed, n), n_cases) for (chance, n_cases), (p, *_) in seeming]
        )

    words = f"--max-regressions {allowed} --regression-rule confirm"
    words += "" if (needed, n) == CONFIRM else f" --confirm {needed}/{n}"
    n_more = n * sum(chance * n_cases for chance, n_cases in _regressions(subject, subject))
    return _Gate(words, holds, n_more=n_more, propose=lambda now: proposed_confirming(now, allowed))


def proposed_confirming(subject: Subject, allowed: int) -> Proposal | None:
    """The fewest trials with which fresh trials of suspects find an agent that is worse by SOUGHT."""
    found: list[Proposal] = []
    for n in range(1, MOST_PROPOSED_N + 1):
        now = subject.played(n)
        worse = now.dropped(SOUGHT)
        for fresh in range(1, MOST_PROPOSED_FRESH + 1):
            n_trials = n * now.n_cases + fresh * sum(chance * times for chance, times in _regressions(now, now))
            if not found or n_trials < found[-1].n_trials:
                found += _confirmations(now, worse, allowed, fresh, n_trials)
    return found[-1] if found else None


def _confirmations(now: Subject, worse: Subject, allowed: int, fresh: int, n_trials: float) -> list[Proposal]:
    """The strictest confirmation by so many fresh trials that has few false alarms, where it finds a worse agent."""
    for needed in range(fresh, 0, -1):
        gate = _confirming(allowed, needed, fresh, now)
        false_alarm = 1 - (gate.holds(now, now) or 0.0)
        if false_alarm <= TOLERATED:
            finds = 1 - (gate.holds(now, worse) or 0.0)
            options = f"--n {now.n} --max-regressions {allowed} --regression-rule confirm --confirm {needed}/{fresh}"
            return [Proposal(options, false_alarm, finds, n_trials)] if finds >= FOUND else []
    return []


def proposed_pass_rate(subject: Subject) -> Proposal | None:
    """The fewest trials with which a bar on the pass rate finds an agent that is worse by SOUGHT."""
    for n in range(1, MOST_PROPOSED_N + 1):
        now, n_trials = subject.played(n), n * subject.n_cases
        worse = now.dropped(SOUGHT)
        for percent in range(99, 0, -1):
            false_alarm = 1 - _rate_holds(now, percent / 100)
            if false_alarm <= TOLERATED:
                finds = 1 - _rate_holds(worse, percent / 100)
                if finds >= FOUND:
                    return Proposal(f"--n {n} --min-pass-rate {percent / 100:g}", false_alarm, finds, n_trials)
                break
    return None


def proposed_margin(subject: Subject, margin: float) -> Proposal | None:
    """The fewest trials with which the interval of the difference tells a worse agent."""

    def finds(n: int) -> float:
        now = subject.played(n)
        return _difference(now, now.dropped(SOUGHT)).fails(margin)

    low, high = 1, MOST_PROPOSED_N
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if finds(middle) >= FOUND else (middle + 1, high)
    now = subject.played(low)
    false_alarm, found = _difference(now, now).fails(margin), finds(low)
    if false_alarm > TOLERATED or found < FOUND:
        return None
    return Proposal(f"--n {low} --margin {margin:g}", false_alarm, found, low * subject.n_cases)


def _likely(allowed: int) -> _Gate:
    def holds(before: Subject, now: Subject) -> float | None:
        pairs = zip(before.kinds, now.kinds, strict=True)
        drops = likely_drops([(p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs], allowed)
        return None if drops is None else 1 - drops

    return _Gate(f"--max-regressions {allowed} --regression-rule likely", holds)


def _curve(option: str, k: int, least: float, *, is_hat: bool) -> _Gate:
    return _Gate(
        f"{option} {k}={least:g}",
        lambda _, now: curve_holds(now.kinds, k, least, is_hat=is_hat),
        milder=lambda now: (
            (f"{option} {k}={each:g}", curve_holds(now.kinds, k, each, is_hat=is_hat)) for each in _lower(least)
        ),
    )


def _milder_rates(subject: Subject) -> Iterator[tuple[str, float]]:
    for least in _lower(1.0):
        yield f"--min-pass-rate {least:g}", _rate_holds(subject, least)


def _lower(least: float) -> Iterator[float]:
    """Bars below `least` in steps of 0.05, the highest first."""
    for step in range(int(least * 20 - ROUNDING), 0, -1):
        yield step / 20


def _all_needed(n: int, share: float, what: str, so: str) -> str:
    """Say where a bar below 1 needs every trial: `4 of 5 trials are 80 %, less than 90 %: every trial must pass`."""
    if n < 2 or share >= 1 or needed_passes(n, share) < n:
        return ""
    return f"{n - 1} of {n} {what} are {100 * (n - 1) / n:.3g} %, less than {100 * share:.3g} %: {so}"


def _regressions(before: Subject, now: Subject) -> list[tuple[float, int]]:
    """The chance of each case to pass in the baseline and not to pass now: (chance, how many such cases)."""
    if now is before and before.drawn:
        drawn = [
            (regressed_in_draws(*counts, n, before.pass_threshold), p, n, n_cases)
            for counts, (p, n, n_cases) in zip(before.drawn, before.kinds, strict=True)
        ]
        return [
            (regressed_by_chance(p, n, before.pass_threshold) if chance is None else chance, n_cases)
            for chance, p, n, n_cases in drawn
        ]
    return [
        (chance_of_at_least(needed, n, p) * (1 - chance_of_at_least(needed, n, worse)), n_cases)
        for (p, n, n_cases), (worse, *_) in zip(before.kinds, now.kinds, strict=True)
        for needed in [needed_passes(n, now.pass_threshold)]
    ]
