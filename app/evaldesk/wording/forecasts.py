"""The sentences of forecasts: one short, true statement each, the same in every door. (reference/forecasts.md 10)"""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.model.conclusion import Gates, counted
from evaldesk.model.forecast import SOUGHT, Basis, GateForecast, Proposal, Range, UnchangedPairs
from evaldesk.statistics.history.unchanged_pairs import FEWEST_COMPARED, FEWEST_RUNS
from evaldesk.wording.words import trials_words

BEST = "Of the settings that rarely fail by chance and find a worse agent, this one plays the fewest trials: keep it."
"""Beside a gate that would be proposed."""
CLOSE = "It is too close to tell in most builds: add cases, play more trials of each, or ask for less."
"""Beside a gate that is more often neutral than not though nothing changed."""
MORE = "To find such an agent more often, add cases or play more trials of each."
"""Beside a gate that misses a worse agent, and for which no better setting is looked for."""
MAY_ERR = "These figures are for a run that plays every trial. At most one likely stop in 20 is wrong."
"""Beside a gate that a likely stop can answer."""
ROUGH = (
    "This range is rough: too high where some cases always pass and others often fail, too low after few trials that "
    "all passed."
)
"""Beside a gate that counts flips, whose range contains the truth least often. (docs/ci.md)"""
NONE_HOLDS = "No gate of this kind is both quiet and sharp here"
NOT_MEASURED = "Not measured: stored runs contain no fresh trials of this rule."
DAYS_NEEDED = 5


def about_words(chance: float) -> str:
    """`about 3 %`, `under 1 %`, `over 99 %`: a forecast never shows 0 or 100."""
    if chance < 0.01:
        return "under 1 %"
    return "over 99 %" if chance > 0.99 else f"about {100 * chance:.0f} %"


def share_words(chance: float) -> str:
    """A chance for rates that are assumed: `85 %`, `under 1 %`."""
    return about_words(chance).removeprefix("about ")


def range_words(interval: Range) -> str:
    """`2–37 %`, `under 1–37 %`, `under 1 %`, `over 99 %`: an end below half a percent is not 0."""
    low, high = ("under 1" if end < 0.005 else f"{100 * end:.0f}" for end in (interval.low, interval.high))
    if low == "100":
        return "over 99 %"
    return f"{low} %" if high == low else f"{low}–{high} %"


def forecast_sentence(forecast: GateForecast) -> str:
    """How often a gate fails if nothing changes, or how the agent stands to its bar."""
    return _sentence(forecast) + _close(forecast)


def _close(forecast: GateForecast) -> str:
    return f" It is too close to tell in {about_words(forecast.neutral)}." if forecast.neutral else ""


def _sentence(forecast: GateForecast) -> str:
    basis, alarm = forecast.basis, forecast.false_alarm or forecast.fails
    if basis.rate is not None:
        often = f"this gate fails {share_words(alarm.mean)} of builds"
        if forecast.standing == "below the bar":
            return f"An agent that passes {100 * basis.rate:g} % of each case is below this bar: {often}."
        return f"If every case passes {100 * basis.rate:g} % of the time and nothing changes, {often}."
    if forecast.standing == "below the bar":
        reason, step = _below_bar(forecast)
        if basis.n_failing:
            return f"{reason}: this agent is below the bar. {step}"
        return f"{reason}: this agent is below the bar, so {step[:1].lower()}{step[1:]}"
    if forecast.standing == "at the bar":
        level = f" ({_level(forecast)})" if forecast.level else ""
        return f"The agent is about at the bar{level}: {_at_bar(forecast)}"
    if forecast.standing == "not known yet":
        ends = "under 1 %" if alarm.high < 0.005 else _ends(alarm)
        mean = f", {about_words(alarm.mean)} on average" if forecast.is_by_history else ""
        so = f"{_so_far(basis)} so far: this gate fails {ends} of unchanged builds{mean}."
        more = f" About {forecast.trials_to_know} trials a case would tell." if forecast.trials_to_know else ""
        wobble = " One trial a case says nothing yet about how often it wobbles." if basis.fewest <= 1 else ""
        return so + more + wobble
    return f"If nothing changes, this gate fails {_fails_words(alarm)}."


def _fails_words(fails: Range) -> str:
    """`about 24 % of builds (under 1–97 %)`."""
    return f"{about_words(fails.mean)} of builds ({range_words(fails)})"


def standing_sentence(forecast: GateForecast) -> str:
    """The reason and the next step of an agent whose standing to the bar is named beside it."""
    if forecast.standing == "below the bar":
        return ". ".join(_below_bar(forecast)) + _close(forecast)
    step = _at_bar(forecast) + _close(forecast)
    return f"Its level is {_level(forecast)}: {step}" if forecast.level else step[:1].upper() + step[1:]


def _below_bar(forecast: GateForecast) -> tuple[str, str]:
    """Why an agent is below the bar, and the next step or the effect."""
    basis = forecast.basis
    if not basis.n_failing:
        return _so_far(basis), f"This gate fails {_fails_words(forecast.fails)}."
    verb, them = ("fails", "it") if basis.n_failing == 1 else ("fail", "them")
    known_failures = "known failure" if basis.n_failing == 1 else "known failures"
    reason = f"{basis.n_failing} of {counted(basis.n_cases, 'case')} {verb} every time"
    return reason, f"Fix {them}, or accept {them} as {known_failures}."


def _at_bar(forecast: GateForecast) -> str:
    return f"this gate will flip, and fails {_fails_words(forecast.fails)}. Move the bar or the agent."


def _level(forecast: GateForecast) -> str:
    return f"{forecast.level.low:.2f}–{forecast.level.high:.2f}" if forecast.level else ""


def short_alarm(forecast: GateForecast) -> str:
    """The false alarm in a column: `about 3 % (1–5 %)`, `not known yet (0–37 %)`, `below the bar`."""
    alarm = forecast.false_alarm or forecast.fails
    if forecast.standing in ("below the bar", "at the bar"):
        return forecast.standing
    words = forecast.standing if forecast.standing == "not known yet" else about_words(alarm.mean)
    return f"{words} ({range_words(alarm)})"


def _so_far(basis: Basis) -> str:
    return f"{basis.n_passed:,} of {basis.n_scored:,} passed"


def _ends(interval: Range) -> str:
    """Both ends, the lower one only where it is not 0."""
    high = f"{100 * interval.high:.0f} %"
    return f"up to {high}" if interval.low < 0.005 else f"between {100 * interval.low:.0f} and {high}"


def days_sentence(forecast: GateForecast) -> str:
    """Whether runs differ from day to day, and the effect where that is unknown; empty for assumed rates."""
    basis = forecast.basis
    if basis.rate is not None or forecast.standing in ("below the bar", "at the bar"):
        return ""
    mean = basis.n_passed / basis.n_scored
    if basis.sigma is not None:
        points = 100 * basis.sigma * mean * (1 - mean)
        apart = (
            "by less than 1 point"
            if points < 1
            else f"by about {points:.0f} {'point' if round(points) == 1 else 'points'}"
        )
        return f"Your {basis.n_runs} runs differ from day to day {apart}; that is in this number."
    needs = f"{DAYS_NEEDED} runs are needed to see whether days differ"
    if basis.n_runs >= DAYS_NEEDED:
        needs = f"your {basis.n_runs} runs failed too seldom to tell whether days differ"
    if forecast.on_other_days is None:
        return f"Computed for one day: {needs}."
    points = max(1, round(100 * 0.3 * mean * (1 - mean)))
    return (
        f"Computed for one day: {needs}; if they do by 0.3 logits ({points} {'point' if points == 1 else 'points'} at "
        f"{100 * mean:.0f} %), expect {about_words(forecast.on_other_days)}."
    )


def worse_sentence(forecast: GateForecast) -> str:
    """How often a worse agent passes: `A worse agent passes it: 5 points worse 39 % of builds; ...`."""
    worse = [f"{100 * drop:.0f} points worse {passes_words(holds, neutral)}" for drop, holds, neutral in forecast.worse]
    return f"A worse agent passes it: {'; '.join(worse)}." if worse else ""


def passes_words(holds: float, neutral: float) -> str:
    """`21 % of builds, and is too close to tell in 40 %`."""
    close = f", and is too close to tell in {share_words(neutral)}" if neutral else ""
    return f"{share_words(holds)} of builds{close}"


def proposal_sentence(forecast: GateForecast) -> str:
    """A better gate, or the reason why none exists; empty where the gate is good or no search was made."""
    if forecast.better:
        return f"Better: {forecast.better.options}: {proposal_words(forecast.better)}."
    if forecast.is_proposed:
        return BEST
    if forecast.is_vague:
        return CLOSE
    if not forecast.is_searched:
        return MORE if forecast.is_blind else ""
    basis = forecast.basis
    if basis.rate is None and (basis.fewest < 3 or basis.n_scored < 50):
        return f"Too little history to propose a gate: play {_history_words(basis)}."
    return (
        f"{NONE_HOLDS}: play {forecast.history_needed} more trials a case, or add cases."
        if forecast.history_needed
        else (f"{NONE_HOLDS}: add cases, or look for a larger drop.")
    )


def _history_words(basis: Basis) -> str:
    n_trials = max(3 - basis.fewest, -(-(50 - basis.n_scored) // basis.n_cases), 1)
    return f"{n_trials} more {'trial' if n_trials == 1 else 'trials'} a case"


def proposal_words(proposal: Proposal) -> str:
    """`fails about 2 % of unchanged builds (0–8 %), finds 15 points in 87 %; about 60 trials`."""
    ends = "" if proposal.fails.is_certain else f" ({range_words(proposal.fails)})"
    return (
        f"fails {about_words(proposal.fails.mean)} of unchanged builds{ends}, finds {100 * SOUGHT:.0f} points in "
        f"{share_words(proposal.finds)}; about {trials_words(proposal.n_trials)}"
    )


def played_sentence(unchanged: float, worse: float) -> str:
    """The trials of a run that stops when it is decided."""
    return (
        f"It stops after about {trials_words(unchanged)} if nothing changes, and after about {trials_words(worse)} "
        f"with an agent that is {100 * SOUGHT:.0f} points worse."
    )


def notes_of(forecast: GateForecast) -> Iterator[str]:
    """The notes beside the forecast of a gate, one sentence each."""
    if forecast.against:
        yield f"These figures are {forecast.against}."
        if forecast.basis.rate is None:
            yield ROUGH
    if days := days_sentence(forecast):
        yield days
    if forecast.n_played:
        yield played_sentence(*forecast.n_played)
    if forecast.may_err:
        yield MAY_ERR
    if forecast.hint:
        yield f"{forecast.hint[:1].upper()}{forecast.hint[1:]}."
    if forecast.n_more:
        yield f"If nothing changes, it plays about {trials_words(forecast.n_more)} more a build."


POOLED_FORECAST = (
    "No forecast: the cases of this run pass by the means of their scores, and a forecast counts passed trials. "
    "--min-pass-rate 0.9 shows how a gate on trials would behave."
)


def measured_sentence(pairs: UnchangedPairs | None, gates: Gates, forecast: GateForecast | None = None) -> str:
    """The rate at which stored runs of an unchanged agent failed against each other, or the reason why there is none.

    Empty for a gate on a level, which is not about a change.
    """
    if pairs is None:
        return NOT_MEASURED if gates.max_regressions is not None and gates.regression_rule == "confirm" else ""
    if pairs.interval is None:
        few = "1 unchanged run" if pairs.n_runs == 1 else f"{pairs.n_runs} unchanged runs"
        return f"{few}: too few to measure ({FEWEST_RUNS} are needed)." if pairs.n_runs else ""
    low, high = pairs.interval.low, pairs.interval.high
    words = (
        f"Measured: of {pairs.n_runs} unchanged runs against each other, {100 * pairs.share:.0f} % of pairs failed "
        f"({pairs.n_failed} of {pairs.n_pairs}; {100 * low:.0f}–{100 * high:.0f} %)"
    )
    alarm = forecast.false_alarm if forecast else None
    if alarm and pairs.n_runs >= FEWEST_COMPARED:
        words += f"; computed {share_words(alarm.mean)}"
    return f"{words}."
