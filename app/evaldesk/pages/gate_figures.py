"""How the gates of a new run behave, in the words of its form: false alarms, worse agents that pass, better gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.runs.gates.chances import SOUGHT, TOLERATED, GateChance, GatePreview
from evaldesk.desk.runs.gates.conclusion import ALL_PASSED
from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.run_options import BY_NAME
from evaldesk.statistics.chances.gates import Answers
from evaldesk.wording.words import chance_words, off_words, trials_words

BEST = "Of the settings that rarely fail by chance and find a worse agent, this one plays the fewest trials: keep it."
"""Beside a gate that would be proposed."""
MORE = "To find such an agent more often, add cases or play more trials of each."
"""Beside a gate that misses a worse agent, and has no better setting."""
CLOSE = "It is too close to tell in most builds: add cases, play more trials of each, or ask for less."
"""Beside a gate that is more often neutral than not though nothing changed."""
MAY_ERR = "These figures are for a run that plays every trial. At most one likely stop in 20 is wrong."
"""Beside a gate that a likely stop can answer, and whose chances with such a stop are not computed."""
_TITLES = {option.flags[0]: option.title for option in (BY_NAME["n"], *GATE_OPTIONS)}


@dataclass(frozen=True, slots=True)
class BetterGate:
    """Another setting with few false alarms. `options` are its flags, which the form takes in by a button."""

    words: str
    note: str
    options: str


@dataclass(frozen=True, slots=True)
class GateFigures:
    """One gate: `alarm` says how often it fails by chance, `is_frequent` whether that is too often to be believed.

    `rows` are a pass rate of every case, the chance to hold, and that of being too close to tell, empty where it never
    is. `is_blind`: it fails less often than it should for an agent that is worse by SOUGHT. `is_vague`: it is more
    often too close to tell than not, although nothing changed. `is_exact`: no value was rounded.
    """

    title: str
    alarm: str
    is_frequent: bool
    notes: tuple[str, ...]
    better: tuple[BetterGate, ...]
    rows: tuple[tuple[str, str, str], ...]
    is_blind: bool = False
    is_vague: bool = False
    is_exact: bool = True


def gate_figures(preview: GatePreview) -> tuple[GateFigures, ...]:
    """The figures of each gate."""
    return tuple(figures_of(chance, _rows(preview, at)) for at, chance in enumerate(preview.chances))


def gate_words(options: str) -> str:
    """The flags of a gate in the words of the form: `Most regressed cases 0, rule confirm`."""
    words = [_option_words(*each.partition(" ")[::2]) for each in options.split(" --")] if options != ALL_PASSED else []
    text = ", ".join(words) or "every trial must pass"
    return text[:1].upper() + text[1:]


def _option_words(name: str, value: str) -> str:
    flag = f"--{name.removeprefix('--')}"
    title = "rule" if flag == "--regression-rule" else _TITLES.get(flag, name).lower()
    return f"{title}: {value}" if flag == "--undecided" else f"{title} {value}"


def _rows(preview: GatePreview, at: int) -> tuple[tuple[str, str, str], ...]:
    found = [(f"{100 * rate:.0f} %", answers[at]) for rate, answers in preview.assumed]
    return tuple((rate, chance_words(each.holds), _close_words(each)) for rate, each in found if each is not None)


def _close_words(answers: Answers) -> str:
    """How often it is too close to tell; empty where it never is."""
    return chance_words(answers.neutral) if answers.neutral else ""


def figures_of(chance: GateChance, rows: tuple[tuple[str, str, str], ...] = ()) -> GateFigures:
    """The figures of one gate; `rows` as in GateFigures."""
    alarm = chance.false_alarm
    if alarm is None:
        return GateFigures(gate_words(chance.name), "Not computed: too many possible values.", False, (), (), rows)
    return GateFigures(
        title=gate_words(chance.name),
        alarm=_alarm(chance, alarm),
        is_frequent=alarm > TOLERATED,
        notes=tuple(_notes(chance)),
        better=tuple(_better(chance)),
        rows=rows,
        is_blind=chance.is_blind,
        is_vague=chance.is_vague,
        is_exact=not off_words(chance.error),
    )


def _alarm(chance: GateChance, alarm: float) -> str:
    close = f" and is too close to tell in {chance_words(chance.neutral)}" if chance.neutral else ""
    return f"If nothing changes, it fails {chance_words(alarm)} of builds{close}."


def _notes(chance: GateChance) -> Sequence[str]:
    notes = []
    if chance.sought:
        notes.append(f"An agent that is {100 * SOUGHT:.0f} points worse passes in {passes_words(chance.sought)}.")
    if chance.n_played:
        notes.append(played_words(*chance.n_played))
    if chance.may_err:
        notes.append(MAY_ERR)
    if off := off_words(chance.error):
        notes.append(off)
    if chance.hint:
        notes.append(f"{chance.hint[:1].upper()}{chance.hint[1:]}.")
    if chance.n_more:
        notes.append(f"If nothing changes, it plays about {trials_words(chance.n_more)} more.")
    if chance.is_proposed:
        notes.append(BEST)
    elif not chance.better and (chance.is_vague or chance.is_blind):
        notes.append(CLOSE if chance.is_vague else MORE)
    return notes


def passes_words(answers: Answers) -> str:
    """`21 % of builds, and is too close to tell in 40 %`."""
    close = _close_words(answers)
    return f"{chance_words(answers.holds)} of builds" + (f", and is too close to tell in {close}" if close else "")


def played_words(unchanged: float, worse: float) -> str:
    """The trials of a run that stops when it is decided."""
    return (
        f"It stops after about {trials_words(unchanged)} if nothing changes, and after about {trials_words(worse)} "
        f"with an agent that is {100 * SOUGHT:.0f} points worse."
    )


def _better(chance: GateChance) -> Sequence[BetterGate]:
    found = []
    proposal = chance.better
    if proposal:
        note = (
            f"fails {chance_words(proposal.false_alarm)} by chance, finds an agent that is {100 * SOUGHT:.0f} points "
            f"worse in {chance_words(proposal.finds)}; about {trials_words(proposal.n_trials)}"
        )
        found.append(BetterGate(gate_words(proposal.options), note, proposal.options))
    for repair in chance.repairs:
        more = f"; about {trials_words(repair.n_more)} more" if repair.n_more else ""
        note = f"fails {chance_words(repair.false_alarm)} by chance{more}"
        found.append(BetterGate(gate_words(repair.name), note, repair.name))
    return found
