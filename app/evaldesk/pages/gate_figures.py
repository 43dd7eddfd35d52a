"""How the gates of a new run behave, in the words of its form: false alarms, worse agents that pass, better gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.runs.gate_chances import FOUND, TOLERATED, GateChance, GatePreview
from evaldesk.desk.runs.gates import ALL_PASSED
from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.run_options import BY_NAME
from evaldesk.wording.words import chance_words, off_words, trials_words

WORSE = 0.15
"""The drop of the pass rate that a gate should find."""
BEST = "Of the settings that rarely fail by chance and find a worse agent, this one plays the fewest trials: keep it."
"""Beside a gate that would be proposed."""
MORE = "To find such an agent more often, add cases or play more trials of each."
"""Beside a gate that misses a worse agent, and has no better setting."""
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

    `rows` are a pass rate of every case, the chance to hold in percent, and that chance in words. `is_blind`: an agent
    that is worse by WORSE passes it more often than one that is sought should. `is_exact`: no value was rounded.
    """

    title: str
    alarm: str
    is_frequent: bool
    notes: tuple[str, ...]
    better: tuple[BetterGate, ...]
    rows: tuple[tuple[str, float, str], ...]
    is_blind: bool = False
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
    return f"{title} {value}"


def _rows(preview: GatePreview, at: int) -> tuple[tuple[str, float, str], ...]:
    return tuple(
        (f"{100 * rate:.0f} %", 100 * holds[at], chance_words(holds[at]))  # type: ignore[operator, arg-type]
        for rate, holds in preview.assumed
        if holds[at] is not None
    )


def figures_of(chance: GateChance, rows: tuple[tuple[str, float, str], ...] = ()) -> GateFigures:
    """The figures of one gate; `rows` as in GateFigures."""
    alarm = chance.false_alarm
    if alarm is None:
        return GateFigures(gate_words(chance.name), "Not computed: too many possible values.", False, (), (), rows)
    return GateFigures(
        title=gate_words(chance.name),
        alarm=_alarm(chance, alarm),
        is_frequent=alarm > TOLERATED and chance.counts_as in (None, "fail"),
        notes=tuple(_notes(chance)),
        better=tuple(_better(chance)),
        rows=rows,
        is_blind=dict(chance.slips).get(WORSE, 0.0) > 1 - FOUND,
        is_exact=not off_words(chance.error),
    )


def _alarm(chance: GateChance, alarm: float) -> str:
    share = chance_words(alarm)
    if chance.counts_as is None:
        return f"If nothing changes, it fails {share} of builds."
    return (
        f"If nothing changes, its number alone fails {share} of builds; a number too close to the bar counts as "
        f"{chance.counts_as}."
    )


def _notes(chance: GateChance) -> Sequence[str]:
    notes = []
    slips = dict(chance.slips)
    if WORSE in slips:
        notes.append(
            f"An agent that is {100 * WORSE:.0f} points worse passes in {chance_words(slips[WORSE])} of builds."
        )
    if off := off_words(chance.error):
        notes.append(off)
    if chance.hint:
        notes.append(f"{chance.hint[:1].upper()}{chance.hint[1:]}.")
    if chance.n_more:
        notes.append(f"If nothing changes, it plays about {trials_words(chance.n_more)} more.")
    if chance.is_proposed:
        notes.append(BEST)
    elif slips.get(WORSE, 0.0) > 1 - FOUND and not chance.better:
        notes.append(MORE)
    return notes


def _better(chance: GateChance) -> Sequence[BetterGate]:
    found = []
    proposal = chance.better
    if proposal:
        note = (
            f"fails {chance_words(proposal.false_alarm)} by chance, finds an agent that is {100 * WORSE:.0f} points "
            f"worse in {chance_words(proposal.finds)}; about {trials_words(proposal.n_trials)}"
        )
        found.append(BetterGate(gate_words(proposal.options), note, proposal.options))
    for repair in chance.repairs:
        more = f"; about {trials_words(repair.n_more)} more" if repair.n_more else ""
        note = f"fails {chance_words(repair.false_alarm)} by chance{more}"
        found.append(BetterGate(gate_words(repair.name), note, repair.name))
    return found
