"""The sentences of forecasts: one short, true statement each, the same in every door. (reference/forecasts.md 10)"""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.model.conclusion import counted
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
NONE_HOLDS = "No gate of this kind is both quiet and sharp here"
DAYS_NEEDED = 5


def about_words(chance: float) -> str:
    """`about 3 %`, `under 1 %`, `over 99 %`: a forecast never shows 0 or 100."""
    if chance < 0.01:
        return "under 1 %"
    return "over 99 %" if chance > 0.99 else f"about {100 * chance:.0f} %"


def share_words(chance: float) -> str:
    """A chance for rates that are assumed: `85 %`, `under 1 %`."""
    return about_words(chance).removeprefix("about ")


def range_words(found: Range) -> str:
    """`0–37 %`."""
    return f"{100 * found.low:.0f}–{100 * found.high:.0f} %"


def forecast_sentence(found: GateForecast) -> str:
    """How often a gate fails if nothing changes, or how the agent stands to its bar."""
    close = f" It is too close to tell in {about_words(found.neutral)}." if found.neutral else ""
    return _sentence(found) + close


def _sentence(found: GateForecast) -> str:
    basis, alarm = found.basis, found.false_alarm or found.fails
    if basis.rate is not None:
        often = f"this gate fails {share_words(alarm.mean)} of builds"
        if found.standing == "below the bar":
            return f"An agent that passes {100 * basis.rate:g} % of each case is below this bar: {often}."
        return f"If every case passes {100 * basis.rate:g} % of the time and nothing changes, {often}."
    if found.standing == "below the bar":
        if basis.n_failing:
            verb = "fails" if basis.n_failing == 1 else "fail"
            cases = counted(basis.n_cases, "case")
            return (
                f"{basis.n_failing} of {cases} {verb} every time: this agent is below the bar. Fix "
                f"{'it' if basis.n_failing == 1 else 'them'}, or accept {'it' if basis.n_failing == 1 else 'them'} as "
                f"known failure{'' if basis.n_failing == 1 else 's'}."
            )
        fails = about_words(found.fails.mean)
        return f"{_so_far(basis)}: this agent is below the bar, so this gate fails {fails} of builds."
    if found.standing == "at the bar":
        level = f" ({found.level.low:.2f}–{found.level.high:.2f})" if found.level else ""
        return (
            f"The agent is about at the bar{level}: this gate will flip, and fails {about_words(found.fails.mean)} of "
            "builds. Move the bar or the agent."
        )
    if found.standing == "not known yet":
        so = f"{_so_far(basis)} so far: this gate fails between {_ends(alarm)} of unchanged builds."
        more = f" About {found.trials_to_know} trials a case would tell." if found.trials_to_know else ""
        wobble = " One trial a case says nothing yet about how often it wobbles." if basis.fewest <= 1 else ""
        return so + more + wobble
    return f"If nothing changes, this gate fails {about_words(alarm.mean)} of builds ({range_words(alarm)})."


def short_alarm(found: GateForecast) -> str:
    """The false alarm in a column: `about 3 % (1–5 %)`, `not known yet (0–37 %)`, `below the bar`."""
    alarm = found.false_alarm or found.fails
    if found.standing in ("below the bar", "at the bar"):
        return found.standing
    words = found.standing if found.standing == "not known yet" else about_words(alarm.mean)
    return f"{words} ({range_words(alarm)})"


def _so_far(basis: Basis) -> str:
    return f"{basis.n_passed:,} of {basis.n_scored:,} passed"


def _ends(found: Range) -> str:
    return f"{100 * found.low:.0f} and {100 * found.high:.0f} %"


def days_sentence(found: GateForecast) -> str:
    """Whether runs differ from day to day, and the effect where that is unknown; empty for assumed rates."""
    basis = found.basis
    if basis.rate is not None or found.standing in ("below the bar", "at the bar"):
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
    needed = f"{DAYS_NEEDED} runs are needed to see whether days differ"
    if found.on_other_days is None:
        return f"Computed for one day: {needed}."
    points = max(1, round(100 * 0.3 * mean * (1 - mean)))
    return (
        f"Computed for one day: {needed}; if they do by 0.3 logits ({points} {'point' if points == 1 else 'points'} at "
        f"{100 * mean:.0f} %), expect {about_words(found.on_other_days)}."
    )


def worse_sentence(found: GateForecast) -> str:
    """How often a worse agent passes: `A worse agent passes it: 5 points worse 39 % of builds; ...`."""
    worse = [f"{100 * drop:.0f} points worse {passes_words(holds, neutral)}" for drop, holds, neutral in found.worse]
    return f"A worse agent passes it: {'; '.join(worse)}." if worse else ""


def passes_words(holds: float, neutral: float) -> str:
    """`21 % of builds, and is too close to tell in 40 %`."""
    close = f", and is too close to tell in {share_words(neutral)}" if neutral else ""
    return f"{share_words(holds)} of builds{close}"


def proposal_sentence(found: GateForecast) -> str:
    """A better gate, or the reason why none exists; empty where the gate is good or no search was made."""
    if found.better:
        return f"Better: {found.better.options}: {proposal_words(found.better)}."
    if found.is_proposed:
        return BEST
    if found.is_vague:
        return CLOSE
    if not found.is_searched:
        return MORE if found.is_blind else ""
    basis = found.basis
    if basis.rate is None and (basis.fewest < 3 or basis.n_scored < 50):
        return f"Too little history to propose a gate: play {_history_words(basis)}."
    return (
        f"{NONE_HOLDS}: play {found.history_needed} more trials a case, or add cases."
        if found.history_needed
        else (f"{NONE_HOLDS}: add cases, or look for a larger drop.")
    )


def _history_words(basis: Basis) -> str:
    needed = max(3 - basis.fewest, -(-(50 - basis.n_scored) // basis.n_cases), 1)
    return f"{needed} more {'trial' if needed == 1 else 'trials'} a case"


def proposal_words(found: Proposal) -> str:
    """`fails about 2 % of unchanged builds (0–8 %), finds 15 points in 87 %; about 60 trials`."""
    ends = "" if found.fails.is_certain else f" ({range_words(found.fails)})"
    return (
        f"fails {about_words(found.fails.mean)} of unchanged builds{ends}, finds {100 * SOUGHT:.0f} points in "
        f"{share_words(found.finds)}; about {trials_words(found.n_trials)}"
    )


def played_sentence(unchanged: float, worse: float) -> str:
    """The trials of a run that stops when it is decided."""
    return (
        f"It stops after about {trials_words(unchanged)} if nothing changes, and after about {trials_words(worse)} "
        f"with an agent that is {100 * SOUGHT:.0f} points worse."
    )


def notes_of(found: GateForecast) -> Iterator[str]:
    """The notes beside the forecast of a gate, one sentence each."""
    if days := days_sentence(found):
        yield days
    if found.n_played:
        yield played_sentence(*found.n_played)
    if found.may_err:
        yield MAY_ERR
    if found.hint:
        yield f"{found.hint[:1].upper()}{found.hint[1:]}."
    if found.n_more:
        yield f"If nothing changes, it plays about {trials_words(found.n_more)} more a build."


def measured_sentence(found: UnchangedPairs, computed: GateForecast | None = None) -> str:
    """The rate at which stored runs of an unchanged agent failed against each other, or the number of missing runs."""
    if found.interval is None:
        few = "1 unchanged run" if found.n_runs == 1 else f"{found.n_runs} unchanged runs"
        return f"{few}: too few to measure ({FEWEST_RUNS} are needed)." if found.n_runs else ""
    low, high = found.interval.low, found.interval.high
    words = (
        f"Measured: of {found.n_runs} unchanged runs against each other, {100 * found.share:.0f} % of pairs failed "
        f"({found.n_failed} of {found.n_pairs}; {100 * low:.0f}–{100 * high:.0f} %)"
    )
    alarm = computed.false_alarm if computed else None
    if alarm and found.n_runs >= FEWEST_COMPARED:
        words += f"; computed {share_words(alarm.mean)}"
    return f"{words}."
