"""How the gates of a run behave before it is played: false alarms, and worse agents that they let pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from evaldesk.desk.runs.deciding import looks_of
from evaldesk.desk.runs.gates import ALL_PASSED
from evaldesk.desk.runs.impossible_gates import baseline_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, title_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import CONFIRM, StopRule, Undecided
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.gate_chances import (
    ROUNDING,
    Answers,
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
from evaldesk.statistics.mean_chances import MeanChances, mean_curve, mean_difference, mean_rate, rate_holds
from evaldesk.statistics.stop_chances import Stopped, stopped_rate

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
    "undecided",
    "stop_when_decided",
)
"""The gates about verdicts, whose chances can be computed before a run, and what changes their answers."""


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
    def is_even(self) -> bool:
        """Whether all cases have as many trials."""
        return self.n == self.n_most

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
    """The options of a gate that rarely fails by chance, mostly holds then, and finds an agent that is worse by SOUGHT.

    `false_alarm` and `finds` are its chances to fail, `n_trials` the mean number of trials of a build.
    """

    options: str
    false_alarm: float
    finds: float
    n_trials: float


@dataclass(frozen=True, slots=True)
class GateChance:
    """How one gate behaves. `answers` are those for an unchanged agent, None where they are not known.

    `worse` are (drop of the pass rate, answers). `hint` names a gate that is stricter than it looks; `repairs` are
    other settings with few false alarms. `n_more` is the mean number of trials that it plays beyond those of the run.
    `proposal` is None where no setting of the kind finds a worse agent; it may be the gate itself, which `options`
    tells. `n_played` are the mean trials of a run that stops when it is decided, with an unchanged agent and with one
    that is worse by SOUGHT. With `may_err` a likely stop can change the answers, in one of 20 stops at most.
    """

    name: str
    options: str
    answers: Answers | None
    worse: tuple[tuple[float, Answers], ...] = ()
    hint: str = ""
    repairs: tuple[Repair, ...] = ()
    n_more: float = 0.0
    proposal: Proposal | None = None
    n_played: tuple[float, float] | None = None
    may_err: bool = False

    @property
    def holds(self) -> float | None:
        """The chance to hold for an unchanged agent."""
        return self.answers.holds if self.answers else None

    @property
    def false_alarm(self) -> float | None:
        """The chance to fail although nothing changed."""
        return self.answers.fails if self.answers else None

    @property
    def neutral(self) -> float:
        """The chance to be too close to tell although nothing changed."""
        return self.answers.neutral if self.answers else 0.0

    @property
    def error(self) -> float:
        """How far a chance can be off."""
        return max((each.error for each in (self.answers, *(found for _, found in self.worse)) if each), default=0.0)

    @property
    def sought(self) -> Answers | None:
        """The answers for an agent that is worse by SOUGHT."""
        return dict(self.worse).get(SOUGHT)

    @property
    def is_blind(self) -> bool:
        """Whether it fails for an agent that is worse by SOUGHT less often than one that is sought should."""
        return self.sought is not None and self.sought.fails < FOUND

    @property
    def is_vague(self) -> bool:
        """Whether it is more often too close to tell than not, although nothing changed."""
        return self.neutral > 0.5

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
    has, for each rate of ASSUMED_RATES in every case, the answers of each gate.
    """

    chances: tuple[GateChance, ...]
    assumed: tuple[tuple[float, tuple[Answers | None, ...]], ...]
    run_id: int | None


Answering: TypeAlias = Callable[[Subject, Subject], Answers | None]
"""The answers of a gate for these cases now, against those before."""


@dataclass(frozen=True, slots=True)
class _Gate:
    """A gate and its answers. The first of `milder` with few false alarms is a repair, and so is `other`."""

    name: str
    answers: Answering
    hint: str = ""
    milder: Callable[[Subject], Iterator[tuple[str, Answers | None]]] | None = None
    other: Repair | None = None
    n_more: float = 0.0
    propose: Callable[[Subject], Proposal | None] = lambda _: None
    n_played: Callable[[Subject], float] | None = None
    may_err: bool = False


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
    rows = Counter[tuple[int, int, int]]()
    for scored, passed, n, times in cases:
        if scored:
            rows[scored, passed, n] += times
    kinds = [(passed / scored, n, times) for (scored, passed, n), times in rows.items()]
    return Subject(kinds, pass_threshold, tuple((scored, passed) for scored, passed, _ in rows))


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
    return tuple(_chance(gate, subject) for gate in _gates(gates, subject))


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
        (rate, tuple(gate.answers(now, now) for gate in _gates(gates, now)))
        for rate in ASSUMED_RATES
        for now in [assumed_subject(rate, n_each, pass_threshold)]
    ]
    return GatePreview(gate_chances(gates, subject), tuple(assumed), run_id)


def _chance(gate: _Gate, subject: Subject) -> GateChance:
    answers = gate.answers(subject, subject)
    found = [(drop, gate.answers(subject, subject.dropped(drop))) for drop in DROPS]
    repairs: tuple[Repair, ...] = ()
    if answers is not None and answers.fails > TOLERATED:
        milder = gate.milder(subject) if gate.milder else ()
        good = (Repair(name, each.fails) for name, each in milder if each is not None)
        first = next((repair for repair in good if repair.false_alarm <= TOLERATED), None)
        other = gate.other if gate.other and gate.other.false_alarm <= TOLERATED else None
        repairs = tuple(repair for repair in (other, first) if repair)
    played = [gate.n_played(now) for now in (subject, subject.dropped(SOUGHT))] if gate.n_played else ()
    return GateChance(
        name=gate.name,
        options=f"--n {subject.n} {gate.name}" if subject.is_even else gate.name,
        answers=answers,
        worse=tuple((drop, each) for drop, each in found if each is not None),
        hint=gate.hint,
        repairs=repairs,
        n_more=gate.n_more,
        proposal=gate.propose(subject),
        n_played=(played[0], played[1]) if played else None,
        may_err=gate.may_err,
    )


def _gates(gates: Gates, subject: Subject) -> Iterator[_Gate]:
    n, n_trials = (subject.n, subject.n_trials) if subject.is_even else (0, 0)
    undecided, may_err = gates.undecided, gates.stop_when_decided == "likely"
    if gates.all_must_pass and not gates.asks_for_verdicts:
        yield _Gate(
            ALL_PASSED,
            lambda _, now: Answers.that_hold(every_case_holds(now.kinds, 1.0)),
            milder=lambda now: _milder_rates(now, 1.0, undecided),
        )
    if gates.min_pass_rate is not None:
        yield _rate_gate(gates, gates.min_pass_rate, n_trials)
    if gates.min_case_pass_rate is not None:
        share = gates.min_case_pass_rate
        yield _Gate(
            f"--min-case-pass-rate {share:g}",
            lambda _, now: Answers.that_hold(every_case_holds(now.kinds, share)),
            _all_needed(n, share, "trials of a case", "every trial must pass"),
            lambda now: (
                (f"--min-case-pass-rate {each:g}", Answers.that_hold(every_case_holds(now.kinds, each)))
                for each in _lower(share)
            ),
            may_err=may_err,
        )
    for k, least in gates.pass_at:
        yield _curve("--pass-at", k, least, undecided, is_hat=False)
    for k, least in gates.pass_hat:
        yield _curve("--pass-hat", k, least, undecided, is_hat=True)
    if gates.max_regressions is not None:
        yield _regression_gate(gates, subject)
    if gates.margin is not None:
        yield _margin_gate(gates.margin, undecided, may_err=may_err)


def _named(name: str, undecided: Undecided | None) -> str:
    """The gate with what it answers when its number is too close to the threshold."""
    return f"{name} --undecided {undecided}" if undecided else name


def _rate_gate(gates: Gates, least: float, n_trials: int) -> _Gate:
    undecided = gates.undecided
    rule = gates.stop_when_decided if replace(gates, min_pass_rate=None).asks_for_verdicts is False else None

    def answers(_: Subject, now: Subject) -> Answers:
        stopped = _stopped(now, least, rule) if undecided is None and rule == "likely" else None
        return stopped.answers if stopped else _rate_answers(now, least, undecided)

    def n_played(now: Subject) -> float:
        stopped = _stopped(now, least, rule)
        return stopped.n_trials if stopped else now.n_trials

    is_known = bool(n_trials) and undecided is None and rule is not None
    return _Gate(
        _named(f"--min-pass-rate {least:g}", undecided),
        answers,
        _all_needed(n_trials, least, "trials", "every trial must pass"),
        lambda now: _milder_rates(now, least, undecided),
        propose=lambda now: proposed_pass_rate(now, undecided),
        n_played=n_played if is_known else None,
        may_err=gates.stop_when_decided == "likely" and not is_known,
    )


def _stopped(now: Subject, least: float, rule: StopRule | None) -> Stopped | None:
    """The run that stops when this one gate is decided; None for different numbers of trials."""
    if rule is None or not now.is_even:
        return None
    looks = tuple(looks_of(now.n, now.n_cases))
    return stopped_rate(tuple(now.kinds), least, looks, is_likely=rule == "likely")


def _rate_answers(subject: Subject, least: float, undecided: Undecided | None) -> Answers:
    if undecided and 0 < least < 1:
        return _counted(mean_rate(tuple(subject.kinds)), least, undecided)
    low, high = rate_holds(subject.kinds, least)
    return Answers.that_hold((low + high) / 2, (high - low) / 2)


def _counted(found: MeanChances, threshold: float, undecided: Undecided, none_beside: float = 1.0) -> Answers:
    """The answers of a number, where one too close to its threshold counts as this.

    Where nothing passed it never counts as passed; `none_beside` is the chance that nothing passed beside the number.
    """
    holds, fails = found.above(threshold), found.below(threshold)
    if undecided == "neutral":
        return Answers(holds, fails, found.error)
    if undecided == "fail":
        return Answers.that_hold(holds, found.error)
    return Answers.that_hold(1 - fails - found.none_around(threshold) * none_beside, found.error)


def _margin_gate(margin: float, undecided: Undecided | None, *, may_err: bool) -> _Gate:
    return _Gate(
        _named(f"--margin {margin:g}", undecided),
        lambda before, now: _margin_answers(before, now, margin, undecided),
        milder=lambda now: (
            (_named(f"--margin {step / 20:g}", undecided), _margin_answers(now, now, step / 20, undecided))
            for step in range(int(margin * 20 + ROUNDING) + 1, 21)
        ),
        propose=lambda now: proposed_margin(now, margin, undecided),
        may_err=may_err,
    )


def _margin_answers(before: Subject, now: Subject, margin: float, undecided: Undecided | None) -> Answers:
    pairs = zip(before.kinds, now.kinds, strict=True)
    found = mean_difference(tuple((p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs))
    return _counted(found, -margin - ROUNDING, undecided or "pass", none_beside=0.0)


def _regression_gate(gates: Gates, subject: Subject) -> _Gate:
    allowed = gates.max_regressions or 0
    if gates.regression_rule == "likely":
        return _likely(allowed)
    confirming = _confirming(allowed, *gates.confirm, subject)
    if gates.regression_rule == "confirm":
        return confirming
    confirmed = confirming.answers(subject, subject)
    return _Gate(
        f"--max-regressions {allowed}",
        lambda before, now: Answers.that_hold(1 - more_than(allowed, _regressions(before, now))),
        milder=lambda now: (
            (f"--max-regressions {each}", Answers.that_hold(1 - more_than(each, _regressions(now, now))))
            for each in range(allowed + 1, now.n_cases + 1)
        ),
        other=Repair(confirming.name, confirmed.fails, confirming.n_more) if confirmed else None,
        propose=lambda now: proposed_confirming(now, allowed),
    )


def _confirming(allowed: int, needed: int, n: int, subject: Subject) -> _Gate:
    """The gate that plays `n` trials more of each case that seems to have regressed; `needed` of them must pass."""
    words = f"--max-regressions {allowed} --regression-rule confirm"
    words += "" if (needed, n) == CONFIRM else f" --confirm {needed}/{n}"
    n_more = n * sum(chance * n_cases for chance, n_cases in _regressions(subject, subject))
    return _Gate(
        words,
        lambda before, now: Answers.that_hold(1 - _confirmed(before, now, allowed, needed, n)),
        n_more=n_more,
        propose=lambda now: proposed_confirming(now, allowed),
    )


def _confirmed(before: Subject, now: Subject, allowed: int, needed: int, n: int) -> float:
    """The chance that more cases than are allowed seem to have regressed, and still do so after fresh trials."""
    seeming = zip(_regressions(before, now), now.kinds, strict=True)
    return more_than(
        allowed, [(still_regressed(chance, p, needed, n), n_cases) for (chance, n_cases), (p, *_) in seeming]
    )


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
        false_alarm = _confirmed(now, now, allowed, needed, fresh)
        if false_alarm <= TOLERATED:
            finds = _confirmed(now, worse, allowed, needed, fresh)
            options = f"--n {now.n} --max-regressions {allowed} --regression-rule confirm --confirm {needed}/{fresh}"
            return [Proposal(options, false_alarm, finds, n_trials)] if finds >= FOUND else []
    return []


def proposed_pass_rate(subject: Subject, undecided: Undecided | None) -> Proposal | None:
    """The fewest trials with which a threshold on the pass rate finds an agent that is worse by SOUGHT."""
    played = (subject.played(n) for n in range(1, MOST_PROPOSED_N + 1))
    return next((found for now in played if (found := _proposed_bar(now, undecided))), None)


def _proposed_bar(now: Subject, undecided: Undecided | None) -> Proposal | None:
    """The highest threshold that tells an agent that is worse by SOUGHT."""
    worse = now.dropped(SOUGHT)
    for percent in range(99, 0, -1):
        same = _rate_answers(now, percent / 100, undecided)
        if same.fails > TOLERATED:
            continue
        found = _rate_answers(worse, percent / 100, undecided)
        if found.fails < FOUND:
            return None
        if same.holds >= FOUND:
            options = _named(f"--n {now.n} --min-pass-rate {percent / 100:g}", undecided)
            return Proposal(options, same.fails, found.fails, now.n_trials)
    return None


def proposed_margin(subject: Subject, margin: float, undecided: Undecided | None) -> Proposal | None:
    """The fewest trials with which the interval of the difference tells a worse agent."""

    def tells(n: int) -> tuple[Answers, Answers]:
        now = subject.played(n)
        same, worse = (_margin_answers(now, each, margin, undecided) for each in (now, now.dropped(SOUGHT)))
        return same, worse

    low, high = 1, MOST_PROPOSED_N
    while low < high:
        middle = (low + high) // 2
        same, worse = tells(middle)
        low, high = (low, middle) if min(same.holds, worse.fails) >= FOUND else (middle + 1, high)
    same, worse = tells(low)
    if same.fails > TOLERATED or min(same.holds, worse.fails) < FOUND:
        return None
    options = _named(f"--n {low} --margin {margin:g}", undecided)
    return Proposal(options, same.fails, worse.fails, low * subject.n_cases)


def _likely(allowed: int) -> _Gate:
    def answers(before: Subject, now: Subject) -> Answers | None:
        pairs = zip(before.kinds, now.kinds, strict=True)
        drops = likely_drops([(p, worse, n, n_cases) for (p, n, n_cases), (worse, *_) in pairs], allowed)
        return None if drops is None else Answers.that_hold(1 - drops)

    return _Gate(f"--max-regressions {allowed} --regression-rule likely", answers)


def _curve(option: str, k: int, least: float, undecided: Undecided | None, *, is_hat: bool) -> _Gate:
    return _Gate(
        _named(f"{option} {k}={least:g}", undecided),
        lambda _, now: _curve_answers(now, k, least, undecided, is_hat=is_hat),
        milder=lambda now: (
            (_named(f"{option} {k}={each:g}", undecided), _curve_answers(now, k, each, undecided, is_hat=is_hat))
            for each in _lower(least)
        ),
    )


def _curve_answers(
    subject: Subject, k: int, least: float, undecided: Undecided | None, *, is_hat: bool
) -> Answers | None:
    if undecided and 0 < least < 1:
        none_beside = prod((1 - p) ** ((n - subject.n) * n_cases) for p, n, n_cases in subject.kinds)
        return _counted(mean_curve(tuple(subject.kinds), k, is_hat=is_hat), least, undecided, none_beside)
    holds = curve_holds(subject.kinds, k, least, is_hat=is_hat)
    return None if holds is None else Answers.that_hold(holds)


def _milder_rates(subject: Subject, below: float, undecided: Undecided | None) -> Iterator[tuple[str, Answers]]:
    for least in _lower(below):
        yield _named(f"--min-pass-rate {least:g}", undecided), _rate_answers(subject, least, undecided)


def _lower(least: float) -> Iterator[float]:
    """Bars below `least` in steps of 0.05, the highest first."""
    for step in range(int(least * 20 - ROUNDING), 0, -1):
        yield step / 20


def _all_needed(n: int, share: float, what: str, so: str) -> str:
    """Say where one below 1 needs every trial: `4 of 5 trials are 80 %, less than 90 %: every trial must pass`."""
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
