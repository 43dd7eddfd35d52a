"""How the gates of a new run behave, in the words of its form: false alarms, worse agents that pass, better gates."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

from evaldesk.desk.runs.gates.conclusion import ALL_PASSED, EVERY_CASE, POOLED
from evaldesk.desk.runs.gates.forecasts import GatePreview
from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.model.forecast import GateForecast
from evaldesk.run_options import BY_NAME
from evaldesk.wording.forecasts import (
    about_words,
    forecast_sentence,
    notes_of,
    passes_words,
    proposal_sentence,
    proposal_words,
    range_words,
    share_words,
    short_alarm,
)

DIAL_CENTRE, DIAL_RADIUS = (30.0, 30.0), 25.0
NARROWEST = 0.02
"""The least width of a range on the dial, so that it can be seen."""
_TITLES = {option.flags[0]: option.title for option in (BY_NAME["n"], *GATE_OPTIONS)}


@dataclass(frozen=True, slots=True)
class BetterGate:
    """Another setting with few false alarms. `options` are its flags, which the form takes in by a button."""

    words: str
    note: str
    options: str


@dataclass(frozen=True, slots=True)
class GateDial:
    """The share of unchanged builds that a gate fails, on a half circle from 0 % at the left to 100 % at the right.

    `band` is the path of its range, `needle` that of its mean.
    """

    band: str
    needle: str
    words: str


@dataclass(frozen=True, slots=True)
class GateFigures:
    """One gate in words; `forecast` has its numbers.

    `rows` are a pass rate of every case, the chance to hold, and that of being too close to tell, empty where it never
    is.
    """

    title: str
    forecast: GateForecast
    rows: tuple[tuple[str, str, str], ...] = ()

    @property
    def alarm(self) -> str:
        """How often it fails by chance, or how the agent stands to its bar."""
        return forecast_sentence(self.forecast)

    @property
    def short_alarm(self) -> str:
        """The same for a column."""
        return short_alarm(self.forecast)

    @property
    def dial(self) -> GateDial:
        """The same as a dial."""
        share = self.forecast.false_alarm or self.forecast.fails
        low = max(0.0, min(share.low, 1 - NARROWEST))
        start, end, mean = (_on_dial(at) for at in (low, max(share.high, low + NARROWEST), share.mean))
        return GateDial(
            f"M{start}A{DIAL_RADIUS:g} {DIAL_RADIUS:g} 0 0 1 {end}",
            f"M{DIAL_CENTRE[0]:g} {DIAL_CENTRE[1]:g}L{mean}",
            f"Fails {about_words(share.mean)} of unchanged builds, {range_words(share)}",
        )

    @property
    def is_frequent(self) -> bool:
        """Whether it fails too often to be believed, although nothing changed."""
        return self.forecast.is_frequent

    @property
    def is_vague(self) -> bool:
        """Whether it is more often too close to tell than not, although nothing changed."""
        return self.forecast.is_vague

    @property
    def is_blind(self) -> bool:
        """Whether it misses many agents that are worse."""
        return self.forecast.is_blind

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes beside the figures."""
        forecast = self.forecast
        worse = (
            f"An agent that is 15 points worse passes in {passes_words(*forecast.sought)}." if forecast.sought else ""
        )
        better = "" if forecast.better else proposal_sentence(forecast)
        return tuple(filter(None, (worse, *notes_of(forecast), better)))

    @property
    def better(self) -> tuple[BetterGate, ...]:
        """The setting to take instead."""
        proposal = self.forecast.better
        return (
            (BetterGate(gate_words(proposal.options), proposal_words(proposal), proposal.options),) if proposal else ()
        )

    @property
    def may_be_searched(self) -> bool:
        """Whether a better gate can be looked for."""
        forecast = self.forecast
        return (
            not forecast.is_searched
            and forecast.proposal is None
            and forecast.standing not in ("below the bar", "rarely")
        )


def _on_dial(share: float) -> str:
    angle = pi * (1 - share)
    x, y = DIAL_CENTRE[0] + DIAL_RADIUS * cos(angle), DIAL_CENTRE[1] - DIAL_RADIUS * sin(angle)
    return f"{x:.1f} {y:.1f}"


def gate_figures(preview: GatePreview) -> tuple[GateFigures, ...]:
    """The figures of each gate."""
    return tuple(
        GateFigures(gate_words(each.name), each, _rows(preview, at)) for at, each in enumerate(preview.forecasts)
    )


def gate_words(options: str) -> str:
    """The flags of a gate in the words of the form: `Most regressed cases 0, rule confirm`."""
    if options in (ALL_PASSED, EVERY_CASE, POOLED):
        return options.capitalize()
    text = ", ".join(_option_words(*each.partition(" ")[::2]) for each in options.split(" --"))
    return text[:1].upper() + text[1:]


def _option_words(name: str, value: str) -> str:
    flag = f"--{name.removeprefix('--')}"
    title = "rule" if flag == "--regression-rule" else _TITLES.get(flag, name).lower()
    return f"{title}: {value}" if flag == "--undecided" else f"{title} {value}"


def _rows(preview: GatePreview, at: int) -> tuple[tuple[str, str, str], ...]:
    shares = [(f"{100 * rate:.0f} %", answers[at]) for rate, answers in preview.assumed]
    return tuple(
        (rate, share_words(holds), share_words(neutral) if neutral else "") for rate, (holds, neutral) in shares
    )
