"""How the gates of a run behave for an unchanged agent and for a worse one, before anything is played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from evaldesk.desk.runs.deciding import looks_of
from evaldesk.desk.runs.gates.conclusion import ALL_PASSED, EVERY_CASE
from evaldesk.desk.runs.histories import ComparedHistory
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, title_of
from evaldesk.model import Gates
from evaldesk.model.conclusion import CONFIRM, Undecided
from evaldesk.model.forecast import OFTEN, OFTEN_BY_HISTORY, SOUGHT, Basis, GateForecast, Proposal, Range, Standing
from evaldesk.model.history import SetHistory
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.history import gates as chances
from evaldesk.statistics.history import proposals
from evaldesk.statistics.history.days import ONE_SIGMA, SAME_DAY, DayShifts, day_shifts
from evaldesk.statistics.history.draws import Draws, assumed_rates, drawn_rates, missing_history
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.stops import stopped_rate

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats

DROPS = (0.05, SOUGHT, 0.3)
"""By how much a worse agent is worse: in each case, as a difference of pass rates."""
ASSUMED_RATES = (0.99, 0.95, 0.9, 0.8)
USUAL_RATE = 0.9
MOST_PREVIEWED = 2_000
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
FIXED_BAR = "a fixed number of fresh trials ignores what each case did before; --confirm R takes its bar from that"
"""Beside a gate that is quiet only where all cases are alike."""
_DRAWS_OF_WORSE = 32
"""Draws that are enough for a mean chance."""
_BELOW, _AT_THE_BAR = 0.9, 0.1
"""Shares of the draws that lie below the level of a gate."""


@dataclass(frozen=True, eq=False)
class Subject:
    """The cases that gates judge: draws of their rates, and the trials that each is to have.

    `passed_before` are the verdicts of the cases in a stored baseline; None where it is still to be played. All are in
    the order of the draws.
    """

    draws: Draws
    n_each: tuple[int, ...]
    pass_threshold: float
    basis: Basis
    passed_before: tuple[bool, ...] | None = None

    @property
    def n_cases(self) -> int:
        """The number of cases."""
        return len(self.n_each)

    @property
    def n(self) -> int:
        """The trials that each case has."""
        return min(self.n_each)

    @property
    def n_most(self) -> int:
        """The most trials of a case."""
        return max(self.n_each)

    @property
    def is_even(self) -> bool:
        """Whether all cases have as many trials."""
        return self.n == self.n_most

    @property
    def n_trials(self) -> int:
        """The trials of all cases."""
        return sum(self.n_each)

    @property
    def key(self) -> tuple[object, ...]:
        """The inputs of its proposals, under which they are cached."""
        cases = self.draws.cases
        kinds = cases.kinds if cases else tuple(self.draws.case_means.tolist())
        return kinds, self.draws.days.weights, self.pass_threshold, self.passed_before


@dataclass(frozen=True, slots=True)
class GatePreview:
    """How the gates of a run that is not begun behave.

    `forecasts` rest on the history of the cases; on USUAL_RATE in each where there is none. `assumed` has, for each
    rate of ASSUMED_RATES in every case, the chances of each gate to hold and to be neutral.
    """

    forecasts: tuple[GateForecast, ...]
    assumed: tuple[tuple[float, tuple[tuple[float, float], ...]], ...]
    is_of_history: bool


@dataclass(frozen=True)
class _Gate:
    """`answers` are the chances to hold and to fail in each draw, for cases worse by a drop.

    `level` gives the number that is compared with `bar` from the rate of a case; None for a gate on change. `propose`
    gives a better gate; without a search one that was found before.
    """

    name: str
    answers: Callable[[Draws, float], tuple[Floats, Floats]]
    level: Callable[[Floats], Floats] | None = None
    bar: float = 0.0
    is_every: bool = False
    hint: str = ""
    counts_flips: bool = False
    n_more: float = 0.0
    propose: Callable[[bool], Proposal | None] | None = None
    n_played: Callable[[Draws], float] | None = None
    may_err: bool = False
    n_build: int = 0

    @property
    def is_by_history(self) -> bool:
        """Whether its bar is the history of the cases, against which a build of `n_build` trials a case is judged."""
        return self.n_build > 0

    @property
    def most_false(self) -> float:
        """The limit of the upper end of its false alarms."""
        return OFTEN_BY_HISTORY if self.is_by_history else OFTEN

    @property
    def extra(self) -> float:
        """The share that the tests of single cases add at most."""
        return proposals.CASES_SHARE if self.is_by_history else 0.0


def assumed_subject(rate: float, n_each: Sequence[int], pass_threshold: float) -> Subject:
    """Cases that all pass with the same chance."""
    return Subject(assumed_rates([rate] * len(n_each)), tuple(n_each), pass_threshold, Basis(len(n_each), rate=rate))


def history_subject(
    history: SetHistory, n_each: Sequence[int], pass_threshold: float, passed_before: Sequence[bool] | None = None
) -> Subject | None:
    """Cases with the rates that their history allows; None where no trial of them was scored."""
    if not history.n_scored:
        return None
    trials = history.trials
    order = sorted(range(len(trials)), key=lambda place: (trials[place], n_each[place]))
    days = DayShifts(history.days.weights) if history.days else _days(history.runs)
    draws = drawn_rates(posterior_of(trials), days)
    basis = Basis(
        n_cases=len(trials),
        n_scored=history.n_scored,
        n_passed=history.n_passed,
        n_failing=sum(n_scored >= proposals.FEWEST_EACH and not n_passed for n_scored, n_passed in trials),
        n_runs=history.n_runs,
        fewest=min(n_scored for n_scored, _ in trials),
        sigma=days.sigma if days.is_known else None,
    )
    before = None if passed_before is None else tuple(bool(passed_before[place]) for place in order)
    return Subject(draws, tuple(n_each[place] for place in order), pass_threshold, basis, before)


@lru_cache(maxsize=64)
def _days(runs: tuple[tuple[tuple[int, int], ...], ...]) -> DayShifts:
    return day_shifts(runs) if runs else SAME_DAY


def check_explained(gates: Gates, subject: Subject, name_of: Callable[[RunOption], str]) -> None:
    """Raise UsageError for gates whose chances are not defined over so few trials; `name_of` names an option."""
    n, more = subject.n, name_of(BY_NAME["n"])
    for name, word, pairs in (("pass_at", "pass@", gates.pass_at), ("pass_hat", "pass^", gates.pass_hat)):
        for k, _ in pairs:
            if k > n:
                option = name_of(GATES_BY_NAME[name])
                raise UsageError(
                    f"{option} {k}: {word}{k} with {more} {n} is never defined; say {more} {k} or more", field=name
                )
    if gates.regression_rule != "any" and gates.max_regressions is None:
        rule, most = name_of(GATES_BY_NAME["regression_rule"]), name_of(GATES_BY_NAME["max_regressions"])
        raise UsageError(
            f"{rule} {gates.regression_rule} needs {most}: how many cases may regress", field="max_regressions"
        )


def preview_gates(
    gates: Gates,
    history: SetHistory | None,
    *,
    n_each: Sequence[int],
    pass_threshold: float,
    baseline: ComparedHistory | None = None,
    is_searched: bool = False,
) -> GatePreview | None:
    """How the gates of a run with so many trials of each case would behave.

    None without cases, and for more than MOST_PREVIEWED. Gates on change rest on the history of the cases of the
    `baseline`, where one is chosen. Better gates are looked for where `is_searched`. Raises UsageError where the
    chances are not defined.
    """
    if not 0 < len(n_each) <= MOST_PREVIEWED:
        return None
    assumed_usual = assumed_subject(USUAL_RATE, n_each, pass_threshold)
    subject = history_subject(history, n_each, pass_threshold) if history else None
    comparison_subject = None
    if baseline and baseline.places:
        of_compared = [n_each[place] for place in baseline.places]
        comparison_subject = history_subject(baseline.history, of_compared, pass_threshold, baseline.passed)
    check_explained(gates, assumed_usual, title_of)
    assumed = [
        (rate, tuple(_mean_answers(gate, now.draws) for gate in _gates(gates, now)))
        for rate in ASSUMED_RATES
        for now in [assumed_subject(rate, n_each, pass_threshold)]
    ]
    of_level = subject or assumed_usual
    pairs = zip(_gates(gates, of_level), _gates(gates, comparison_subject or of_level), strict=True)
    forecasts = tuple(
        _forecast(gate, of_level, is_searched=is_searched)
        if gate.level
        else _forecast(of_change, comparison_subject or of_level, is_searched=is_searched)
        for gate, of_change in pairs
    )
    return GatePreview(forecasts, tuple(assumed), bool(subject))


def gate_forecasts(gates: Gates, subject: Subject, *, is_searched: bool = True) -> tuple[GateForecast, ...]:
    """How each gate about verdicts behaves, in the order of a conclusion."""
    return tuple(_forecast(gate, subject, is_searched=is_searched) for gate in _gates(gates, subject))


def _mean_answers(gate: _Gate, draws: Draws, drop: float = 0.0) -> tuple[float, float]:
    holds, fails = (float(each.mean()) for each in gate.answers(draws, drop))
    return holds, max(0.0, 1 - holds - fails) if holds + fails < 1 - chances.ROUNDING else 0.0


def _forecast(gate: _Gate, subject: Subject, *, is_searched: bool) -> GateForecast:
    draws, basis = subject.draws, subject.basis
    holds, fails = gate.answers(draws, 0.0)
    failure_range = Range.of(fails).plus(gate.extra)
    false_alarm: Range | None = failure_range
    standing: Standing = failure_range.standing(gate.most_false)
    level = None
    if gate.level:
        values = gate.level(draws.rates)[draws.places]
        level = Range.of(values.min(axis=1) if gate.is_every else values.mean(axis=1))
        meets = chances.meets_level(draws, gate.level, gate.bar, is_every=gate.is_every)
        below = 1 - float(meets.mean())
        false_alarm = Range.of(fails[meets]) if below <= _BELOW - chances.ROUNDING and meets.any() else None
        standing = false_alarm.standing() if false_alarm else "below the bar"
        if false_alarm and below > _AT_THE_BAR:
            standing = "at the bar"
    if _missing_trials(gate, draws) and standing != "below the bar":
        # Few trials leave the level on both sides of the bar, which is no knowledge that the agent stands at it.
        false_alarm = None if standing == "at the bar" else false_alarm
        standing = "not known yet"
    mean_holds, neutral = float(holds.mean()), 0.0
    if mean_holds + failure_range.mean < 1 - chances.ROUNDING and not gate.extra:
        neutral = 1 - mean_holds - failure_range.mean
    some = draws.thin(_DRAWS_OF_WORSE)
    # Assumed rates are one draw, whose search is cheap.
    is_worth = standing != "below the bar" and gate.propose is not None and (is_searched or draws.cases is None)
    proposal = gate.propose(is_worth) if gate.propose and standing != "below the bar" else None
    n_played = [gate.n_played(each) for each in (draws, draws.worse(SOUGHT))] if gate.n_played else ()
    return GateForecast(
        name=gate.name,
        options=f"--n {subject.n} {gate.name}" if subject.is_even else gate.name,
        standing=standing,
        fails=failure_range,
        false_alarm=false_alarm,
        basis=basis,
        holds=mean_holds,
        neutral=neutral,
        level=level,
        worse=tuple((drop, *_mean_answers(gate, some, drop)) for drop in DROPS),
        trials_to_know=_trials_to_know(gate, failure_range, draws) if standing == "not known yet" else None,
        hint=gate.hint,
        n_more=gate.n_more,
        n_played=(n_played[0], n_played[1]) if n_played else None,
        may_err=gate.may_err,
        is_by_history=gate.is_by_history,
        proposal=proposal,
        is_searched=is_worth,
        history_needed=_missing_history(draws) if is_worth and proposal is None else None,
        on_other_days=_on_other_days(gate, draws) if is_worth and not gate.level else None,
        against=_baseline_words(subject) if gate.counts_flips else "",
    )


def _baseline_words(subject: Subject) -> str:
    """Which verdicts flip: those of a stored run, or of one to come; empty for assumed rates."""
    if subject.basis.rate is not None:
        return ""
    return "for two runs to come" if subject.passed_before is None else "against the stored baseline"


def _trials_to_know(gate: _Gate, fails: Range, draws: Draws) -> int | None:
    """The number of trials a case, about, that tell whether the gate fails rarely; None for assumed rates."""
    cases = draws.cases
    if cases is None:
        return None
    h = cases.n_trials / cases.n_cases
    n = proposals.trials_to_know_history(h, gate.n_build) if gate.is_by_history else fails.trials_to_know(max(1.0, h))
    return max(n, cases.fewest_trials + _missing_trials(gate, draws))


def _missing_trials(gate: _Gate, draws: Draws) -> int:
    """The trials of each case without which nothing is known of the gate, and no other of its kind is proposed."""
    if draws.cases is None:
        return 0
    return max(missing_history(draws.cases), proposals.trials_without_failure(draws.cases) if gate.is_by_history else 0)


def _missing_history(draws: Draws) -> int | None:
    """The trials of each case that are missing before any number of trials finds a worse agent."""
    cases = draws.cases
    if cases is None:
        return None
    n_missing = proposals.fewest_history_trials(cases.n_cases, cases.trial_variance()) - cases.n_trials // cases.n_cases
    return max(0, n_missing, proposals.trials_without_failure(cases)) or None


def _on_other_days(gate: _Gate, draws: Draws) -> float | None:
    """The chance to fail if days differ by 0.3 logits, which the bars do not know; None where it is known."""
    if draws.cases is None or draws.days.is_known:
        return None
    return float(gate.answers(replace(draws, days=ONE_SIGMA), 0.0)[1].mean()) + gate.extra


def _gates(gates: Gates, subject: Subject) -> Iterator[_Gate]:
    n, n_trials = (subject.n, subject.n_trials) if subject.is_even else (0, 0)
    n_each, undecided, may_err = subject.n_each, gates.undecided, gates.stop_when_decided == "likely"
    if gates.all_must_pass and not (gates.asks_for_verdicts or gates.is_pooled):
        least = 1.0 if gates.unscored_are_failures else subject.pass_threshold
        yield _Gate(
            EVERY_CASE if least < 1 else ALL_PASSED,
            _answers(lambda each: chances.case_fails(each, n_each, least)),
            level=_rate,
            bar=least,
            is_every=True,
            propose=lambda now: _proposed_rate(now, subject, None),
        )
    if gates.min_pass_rate is not None:
        yield _rate_gate(gates, gates.min_pass_rate, n_trials, subject)
    if gates.min_case_pass_rate is not None:
        share = gates.min_case_pass_rate
        yield _Gate(
            f"--min-case-pass-rate {share:g}",
            _answers(lambda each: chances.case_fails(each, n_each, share)),
            level=_rate,
            bar=share,
            is_every=True,
            hint=_all_needed(n, share, "trials of a case", "every trial must pass"),
            may_err=may_err,
        )
    for k, least in gates.pass_at:
        yield _curve("--pass-at", k, least, undecided, subject, is_hat=False)
    for k, least in gates.pass_hat:
        yield _curve("--pass-hat", k, least, undecided, subject, is_hat=True)
    if gates.max_regressions is not None:
        yield _regression_gate(gates, gates.max_regressions, subject)
    if gates.margin is not None:
        yield _margin_gate(gates.margin, undecided, subject, may_err=may_err)


def _rate(rates: Floats) -> Floats:
    return rates


def _answers(fails: Callable[[Draws], Floats]) -> Callable[[Draws, float], tuple[Floats, Floats]]:
    """The answers of a gate that is never neutral."""

    def answers(draws: Draws, drop: float) -> tuple[Floats, Floats]:
        failing = chances.over_days(fails, draws.worse(drop))
        return 1 - failing, failing

    return answers


def _answers_of_number(
    both: Callable[[Draws], tuple[Floats, Floats]], undecided: Undecided
) -> Callable[[Draws, float], tuple[Floats, Floats]]:
    """The answers of a number, where one too close to its bar counts as this."""

    def answers(draws: Draws, drop: float) -> tuple[Floats, Floats]:
        holds, fails = chances.both_over_days(both, draws.worse(drop))
        if undecided == "neutral":
            return holds, fails
        return (holds, 1 - holds) if undecided == "fail" else (1 - fails, fails)

    return answers


def _gate_words(name: str, undecided: Undecided | None) -> str:
    """The option of the gate, with its answer for a number too close to the threshold."""
    return f"{name} --undecided {undecided}" if undecided else name


def _rate_gate(gates: Gates, least: float, n_trials: int, subject: Subject) -> _Gate:
    undecided, n_each = gates.undecided, subject.n_each
    rule = gates.stop_when_decided if replace(gates, min_pass_rate=None).asks_for_verdicts is False else None
    answers = _answers(lambda each: chances.rate_fails(each, n_each, least))
    if undecided and 0 < least < 1:
        answers = _answers_of_number(lambda each: chances.rate_answers(each, n_each, least), undecided)

    def n_played(draws: Draws) -> float:
        kinds = tuple(sorted(Counter(round(float(rate), 3) for rate in draws.case_means).items()))
        looks = tuple(looks_of(subject.n, subject.n_cases))
        return stopped_rate(kinds, subject.n, least, looks, is_likely=rule == "likely")

    is_known = bool(n_trials) and undecided is None and rule is not None
    return _Gate(
        _gate_words(f"--min-pass-rate {least:g}", undecided),
        answers,
        level=_rate,
        bar=least,
        hint=_all_needed(n_trials, least, "trials", "every trial must pass"),
        propose=lambda now: _proposed_rate(now, subject, undecided),
        n_played=n_played if is_known else None,
        may_err=gates.stop_when_decided == "likely",
    )


def _curve(option: str, k: int, least: float, undecided: Undecided | None, subject: Subject, *, is_hat: bool) -> _Gate:
    n = subject.n
    answers = _answers(lambda each: chances.curve_fails(each, n, k, least, is_hat=is_hat))
    if undecided and 0 < least < 1:
        answers = _answers_of_number(lambda each: chances.curve_answers(each, n, k, least, is_hat=is_hat), undecided)
    return _Gate(
        _gate_words(f"{option} {k}={least:g}", undecided),
        answers,
        level=(lambda rates: rates**k) if is_hat else (lambda rates: 1 - (1 - rates) ** k),
        bar=least,
    )


def _margin_gate(margin: float, undecided: Undecided | None, subject: Subject, *, may_err: bool) -> _Gate:
    def answers(draws: Draws, drop: float) -> tuple[Floats, Floats]:
        above, below = chances.drop_answers(draws, subject.n_each, margin, worse=drop)
        if undecided in (None, "pass"):
            return 1 - below, below
        return (above, 1 - above) if undecided == "fail" else (above, below)

    return _Gate(
        _gate_words(f"--margin {margin:g}", undecided),
        answers,
        propose=lambda now: _proposed_margin(now, subject, margin, undecided),
        may_err=may_err,
    )


def _regression_gate(gates: Gates, max_regressions: int, subject: Subject) -> _Gate:
    draws, n_each = subject.draws, subject.n_each
    words = f"--max-regressions {max_regressions}"
    if gates.regression_rule == "any":
        return _Gate(
            words,
            _regressions(subject, max_regressions, None),
            propose=lambda now: _proposed_confirm(now, subject, max_regressions),
            counts_flips=True,
        )
    words += f" --regression-rule {gates.regression_rule}"
    if gates.regression_rule == "likely":

        def of_suite(each: Draws, drop: float) -> tuple[Floats, Floats]:
            fails = proposals.likely_fails(draws, n_each, each.worse(drop))
            return (1 - fails, fails) if not max_regressions else (0 * fails + 1, 0 * fails)

        return _Gate(words, of_suite, propose=lambda now: _proposed_likely(now, subject), n_build=subject.n_most)
    n_needed, fresh = gates.confirm
    if n_needed:
        flips = chances.regression_chances(draws, n_each, subject.pass_threshold, passed_before=subject.passed_before)
        return _Gate(
            f"{words} --confirm {n_needed}/{fresh}",
            _regressions(subject, max_regressions, gates.confirm),
            n_more=fresh * float(flips.sum(axis=1).mean()),
            hint=FIXED_BAR,
            propose=lambda now: _proposed_confirm(now, subject, max_regressions),
            counts_flips=True,
        )

    def answers_with_fresh(each: Draws, drop: float) -> tuple[Floats, Floats]:
        fails = proposals.confirm_fails(draws, n_each, each.worse(drop), fresh)
        return (1 - fails, fails) if not max_regressions else (0 * fails + 1, 0 * fails)

    return _Gate(
        words if gates.confirm == CONFIRM else f"{words} --confirm {fresh}",
        answers_with_fresh,
        n_more=_fresh_trials(subject, fresh, max_regressions),
        propose=lambda now: _proposed_confirm(now, subject, max_regressions),
        n_build=subject.n_most + fresh,
    )


def _fresh_trials(subject: Subject, fresh: int, max_regressions: int) -> float:
    """The mean number of fresh trials of the rule `confirm` if nothing changes: of suspects, or of every case.

    With `max_regressions` above 0 the cases together are not judged, and only suspects are played again.
    """
    low = 0.0 if max_regressions else proposals.share_that_looks_low(subject.draws, subject.n_each)
    flips = chances.regression_chances(
        subject.draws, subject.n_each, subject.pass_threshold, passed_before=subject.passed_before
    )
    suspects = float(flips.sum(axis=1).mean())
    return fresh * (low * subject.n_cases + (1 - low) * suspects)


def _regressions(
    subject: Subject, max_regressions: int, confirm: tuple[int, int] | None
) -> Callable[[Draws, float], tuple[Floats, Floats]]:
    def answers(draws: Draws, drop: float) -> tuple[Floats, Floats]:
        fails = chances.regressions_fail(
            draws,
            subject.n_each,
            subject.pass_threshold,
            max_regressions,
            passed_before=subject.passed_before,
            confirm=confirm,
            worse=drop,
        )
        return 1 - fails, fails

    return answers


def _proposed_rate(is_searched: bool, subject: Subject, undecided: Undecided | None) -> Proposal | None:
    if undecided:
        return None  # a number too close to its bar needs another search
    setting = _search_setting(is_searched, "rate", subject)
    return (
        None
        if setting is None
        else _proposal(subject, setting, f"--n {setting.n} --min-pass-rate {setting.bar / 100:g}")
    )


def _proposed_margin(
    is_searched: bool, subject: Subject, margin: float, undecided: Undecided | None
) -> Proposal | None:
    setting = _search_setting(is_searched, "margin", subject, margin)
    return (
        None
        if setting is None
        else _proposal(subject, setting, _gate_words(f"--n {setting.n} --margin {margin:g}", undecided))
    )


def _proposed_likely(is_searched: bool, subject: Subject) -> Proposal | None:
    setting = _search_setting(is_searched, "likely", subject)
    extra = proposals.CASES_SHARE
    return (
        None
        if setting is None
        else _proposal(subject, setting, f"--n {setting.n} --max-regressions 0 --regression-rule likely", extra)
    )


def _proposed_confirm(is_searched: bool, subject: Subject, max_regressions: int) -> Proposal | None:
    """The rule whose bar is the history; where cases may regress, a fixed number of fresh trials."""
    rule = f"--max-regressions {max_regressions} --regression-rule confirm"
    if not max_regressions:
        setting = _search_setting(is_searched, "confirm", subject)
        return (
            None if setting is None else _proposal(subject, setting, f"--n {setting.n} {rule}", proposals.CASES_SHARE)
        )
    setting = _search_setting(is_searched, "fixed", subject, float(max_regressions))
    if setting is None or setting.confirm is None:
        return None
    n_needed, fresh = setting.confirm
    return _proposal(subject, setting, f"--n {setting.n} {rule} --confirm {n_needed}/{fresh}")


def _proposal(subject: Subject, setting: proposals.Setting, options: str, extra: float = 0.0) -> Proposal:
    n_trials = setting.n * subject.n_cases + setting.n_more
    return Proposal(options, setting.fails.plus(extra), setting.finds.mean, n_trials)


_FOUND: dict[tuple[object, ...], proposals.Setting | None] = {}
_MOST_KEPT = 256


def _search_setting(is_searched: bool, kind: str, subject: Subject, of: float = 0.0) -> proposals.Setting | None:
    """The setting of a kind of gate that is proposed, kept by the history: a search takes up to 2 CPU-s."""
    key = (kind, of, *subject.key)
    if key not in _FOUND and not is_searched:
        return None
    if key not in _FOUND:
        if len(_FOUND) >= _MOST_KEPT:
            _FOUND.clear()
        _FOUND[key] = _search(kind, subject, of)
    return _FOUND[key]


def _search(kind: str, subject: Subject, of: float) -> proposals.Setting | None:
    draws = subject.draws
    if kind in ("likely", "confirm") and draws.cases and proposals.trials_without_failure(draws.cases):
        return None
    if kind == "rate":
        return proposals.proposed_rate(draws)
    if kind == "margin":
        return proposals.proposed_margin(draws, of)
    if kind == "likely":
        return proposals.proposed_likely(draws)
    if kind == "confirm":
        return proposals.proposed_confirm(draws)
    return proposals.proposed_fixed_confirm(draws, subject.pass_threshold, int(of), passed_before=subject.passed_before)


def _all_needed(n: int, share: float, what: str, so: str) -> str:
    """Say where one below 1 needs every trial: `4 of 5 trials are 80 %, less than 90 %: every trial must pass`."""
    if n < 2 or share >= 1 or chances.needed_passes(n, share) < n:
        return ""
    return f"{n - 1} of {n} {what} are {100 * (n - 1) / n:.3g} %, less than {100 * share:.3g} %: {so}"
