"""How the gates of a run behave before it is played: false alarms, and worse agents that they let pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaldesk.desk.runs.gates.answers import (
    Subject,
    assumed_subject,
    curve_answers,
    fails_confirmed,
    likely_answers,
    margin_answers,
    played_subject,
    rate_answers,
    regressions_of,
    stopped_run,
)
from evaldesk.desk.runs.gates.conclusion import ALL_PASSED
from evaldesk.desk.runs.gates.impossible import baseline_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, title_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import CONFIRM, Undecided
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.chances.gates import (
    ROUNDING,
    Answers,
    every_case_holds,
    more_than,
    needed_passes,
    regressed_by_chance,
    still_regressed,
)

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
        stopped = stopped_run(now, least, rule) if undecided is None and rule == "likely" else None
        return stopped.answers if stopped else rate_answers(now, least, undecided)

    def n_played(now: Subject) -> float:
        stopped = stopped_run(now, least, rule)
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


def _margin_gate(margin: float, undecided: Undecided | None, *, may_err: bool) -> _Gate:
    return _Gate(
        _named(f"--margin {margin:g}", undecided),
        lambda before, now: margin_answers(before, now, margin, undecided),
        milder=lambda now: (
            (_named(f"--margin {step / 20:g}", undecided), margin_answers(now, now, step / 20, undecided))
            for step in range(int(margin * 20 + ROUNDING) + 1, 21)
        ),
        propose=lambda now: proposed_margin(now, margin, undecided),
        may_err=may_err,
    )


def _regression_gate(gates: Gates, subject: Subject) -> _Gate:
    allowed = gates.max_regressions or 0
    if gates.regression_rule == "likely":
        words = f"--max-regressions {allowed} --regression-rule likely"
        return _Gate(words, lambda before, now: likely_answers(before, now, allowed))
    confirming = _confirming(allowed, *gates.confirm, subject)
    if gates.regression_rule == "confirm":
        return confirming
    confirmed = confirming.answers(subject, subject)
    return _Gate(
        f"--max-regressions {allowed}",
        lambda before, now: Answers.that_hold(1 - more_than(allowed, regressions_of(before, now))),
        milder=lambda now: (
            (f"--max-regressions {each}", Answers.that_hold(1 - more_than(each, regressions_of(now, now))))
            for each in range(allowed + 1, now.n_cases + 1)
        ),
        other=Repair(confirming.name, confirmed.fails, confirming.n_more) if confirmed else None,
        propose=lambda now: proposed_confirming(now, allowed),
    )


def _confirming(allowed: int, needed: int, n: int, subject: Subject) -> _Gate:
    """The gate that plays `n` trials more of each case that seems to have regressed; `needed` of them must pass."""
    words = f"--max-regressions {allowed} --regression-rule confirm"
    words += "" if (needed, n) == CONFIRM else f" --confirm {needed}/{n}"
    n_more = n * sum(chance * n_cases for chance, n_cases in regressions_of(subject, subject))
    return _Gate(
        words,
        lambda before, now: Answers.that_hold(1 - fails_confirmed(before, now, allowed, needed, n)),
        n_more=n_more,
        propose=lambda now: proposed_confirming(now, allowed),
    )


def proposed_confirming(subject: Subject, allowed: int) -> Proposal | None:
    """The fewest trials with which fresh trials of suspects find an agent that is worse by SOUGHT."""
    found: list[Proposal] = []
    for n in range(1, MOST_PROPOSED_N + 1):
        now = subject.played(n)
        worse = now.dropped(SOUGHT)
        for fresh in range(1, MOST_PROPOSED_FRESH + 1):
            n_trials = n * now.n_cases + fresh * sum(chance * times for chance, times in regressions_of(now, now))
            if not found or n_trials < found[-1].n_trials:
                found += _confirmations(now, worse, allowed, fresh, n_trials)
    return found[-1] if found else None


def _confirmations(now: Subject, worse: Subject, allowed: int, fresh: int, n_trials: float) -> list[Proposal]:
    """The strictest confirmation by so many fresh trials that has few false alarms, where it finds a worse agent."""
    for needed in range(fresh, 0, -1):
        false_alarm = fails_confirmed(now, now, allowed, needed, fresh)
        if false_alarm <= TOLERATED:
            finds = fails_confirmed(now, worse, allowed, needed, fresh)
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
        same = rate_answers(now, percent / 100, undecided)
        if same.fails > TOLERATED:
            continue
        found = rate_answers(worse, percent / 100, undecided)
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
        same, worse = (margin_answers(now, each, margin, undecided) for each in (now, now.dropped(SOUGHT)))
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


def _curve(option: str, k: int, least: float, undecided: Undecided | None, *, is_hat: bool) -> _Gate:
    return _Gate(
        _named(f"{option} {k}={least:g}", undecided),
        lambda _, now: curve_answers(now, k, least, undecided, is_hat=is_hat),
        milder=lambda now: (
            (_named(f"{option} {k}={each:g}", undecided), curve_answers(now, k, each, undecided, is_hat=is_hat))
            for each in _lower(least)
        ),
    )


def _milder_rates(subject: Subject, below: float, undecided: Undecided | None) -> Iterator[tuple[str, Answers]]:
    for least in _lower(below):
        yield _named(f"--min-pass-rate {least:g}", undecided), rate_answers(subject, least, undecided)


def _lower(least: float) -> Iterator[float]:
    """Bars below `least` in steps of 0.05, the highest first."""
    for step in range(int(least * 20 - ROUNDING), 0, -1):
        yield step / 20


def _all_needed(n: int, share: float, what: str, so: str) -> str:
    """Say where one below 1 needs every trial: `4 of 5 trials are 80 %, less than 90 %: every trial must pass`."""
    if n < 2 or share >= 1 or needed_passes(n, share) < n:
        return ""
    return f"{n - 1} of {n} {what} are {100 * (n - 1) / n:.3g} %, less than {100 * share:.3g} %: {so}"
