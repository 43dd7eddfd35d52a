"""The gates of the last runs: the rate at which each held, and unreliable ones. (reference/decisions.md 3)"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from evaldesk.desk.runs.deciding import DECIDED_LIKELY
from evaldesk.desk.runs.gates.conclusion import ALL_PASSED, EVERY_CASE, OF_A_RATE, POOLED
from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED, check_explained, gate_forecasts, history_subject
from evaldesk.desk.runs.gates.measured import measured_pairs
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, asked_of, flag_of
from evaldesk.model import Answer, Conclusion, GateOutcome, Gates
from evaldesk.model.conclusion import WITHOUT, has_too_many_errors
from evaldesk.model.forecast import GateForecast
from evaldesk.model.history import SetHistory
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.gate_figures import GateFigures, gate_words
from evaldesk.pages.runs.facts import run_fingerprint
from evaldesk.store import RunStore
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.forecasts import CLOSE, measured_sentence, standing_sentence

N_RUNS = 50
N_SHOWN = 20
"""The newest answers of a gate that are drawn."""
FEWEST = 5
"""Answers from which on one may say "never"."""
GateState: TypeAlias = Answer | Literal["errored"]
GateFlag: TypeAlias = Literal[
    "flips", "below-bar", "never-held", "at-bar", "often-fails", "too-close", "never-failed", ""
]
FLAGS: dict[GateFlag, str] = {
    "flips": "Answers differently for the same agent",
    "below-bar": "The agent is below the bar",
    "never-held": "Never held",
    "at-bar": "The agent is at the bar",
    "often-fails": "Often fails although nothing changed",
    "too-close": "Mostly too close to tell",
    "never-failed": "Never failed",
    "": "",
}
ADVICE: dict[GateFlag, str] = {
    "flips": "The agent, the cases and the settings were the same, so the difference is chance: play more trials, or "
    "take a gate that fails less by chance.",
    "below-bar": "",
    "never-held": "Lower its threshold, or mend the agent.",
    "at-bar": "",
    "often-fails": "Take a better gate, or play more trials: `evaldesk gate explain --from RUN` looks for one.",
    "too-close": "Add cases, play more trials of each, or ask for less.",
    "never-failed": "It may ask for too little: see whether a worse agent passes it.",
    "": "",
}
GateKey: TypeAlias = tuple[str, str, str]
"""The options of a gate, the id of the agent and that of the eval set."""
GateRun: TypeAlias = tuple[RunSummary, Gates, GateState]
"""A run, the gate alone, and its answer."""
_BY_FLAG = {flag_of(option): option for option in GATE_OPTIONS}


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The answer of a gate in one run."""

    run_id: int
    state: GateState


@dataclass(frozen=True, slots=True)
class SameAgent:
    """Answers for one agent, eval set and settings, newest first; `fingerprint` names them."""

    fingerprint: str
    answers: tuple[GateAnswer, ...]


@dataclass(frozen=True, slots=True)
class GateRow:
    """A gate over the runs that asked for it: one agent, one eval set, one threshold. `answers` has the oldest first.

    `figures` have its forecast by the history of the newest agent, None where there is none; `measured` says how often
    it failed unchanged runs against each other.
    """

    options: str
    agent: str
    evalset: str
    answers: tuple[GateAnswer, ...]
    flag: GateFlag
    flips: tuple[SameAgent, ...] = ()
    measured_rate: str = ""
    figures: GateFigures | None = None

    @property
    def newest(self) -> tuple[GateAnswer, ...]:
        """The newest answers, the oldest of them first."""
        return self.answers[-N_SHOWN:]

    @property
    def joins(self) -> tuple[tuple[int, int], ...]:
        """Places among the newest answers of which both have the same agent, and one held and the other failed."""
        places = {answer.run_id: place for place, answer in enumerate(self.newest)}
        pairs = [
            (places[older.run_id], places[newer.run_id])
            for same in self.flips
            for newer, older in pairwise(each for each in same.answers if each.state in ("held", "failed"))
            if newer.state != older.state and older.run_id in places
        ]
        return tuple(sorted(pairs))

    @property
    def summary(self) -> str:
        """The note in a few words; the rest of it is behind them."""
        if self.words:
            return self.words
        return "Misses worse agents" if self.figures and self.figures.is_blind else "Nothing to do"

    @property
    def counts(self) -> Mapping[GateState, int]:
        """How often it gave each answer."""
        return Counter(answer.state for answer in self.answers)

    @property
    def words(self) -> str:
        """The facts about the gate."""
        return FLAGS[self.flag]

    @property
    def advice(self) -> str:
        """The next step."""
        if self.flag in ("below-bar", "at-bar") and self.figures:
            never = "It never held. " if self.has_never_held else ""
            return never + standing_sentence(self.figures.forecast)
        if not self.flag and self.figures and self.figures.is_blind:
            return "It misses many agents that are worse: play more trials, or take a better gate."
        return ADVICE[self.flag] or "Nothing to do."

    @property
    def has_never_held(self) -> bool:
        """Whether it answered and never held."""
        return not self.counts["held"] and bool(self.counts["failed"])

    @property
    def notes(self) -> Sequence[str]:
        """Further notes of its figures, and the measured rate."""
        lines = [note for note in self.figures.notes if note != CLOSE] if self.figures else []
        if self.figures and self.flag not in ("below-bar", "at-bar"):
            lines.insert(0, self.figures.alarm)
        return [*lines, self.measured_rate] if self.measured_rate else lines


@dataclass(frozen=True, slots=True)
class GatesPage:
    """The page of gates. `filters` are a flag, its words, its number of gates, and whether only these are shown."""

    n_runs: int
    rows: tuple[GateRow, ...]
    filters: tuple[tuple[str, str, int, bool], ...]
    n_doubtful: int
    n_gates: int


def read_gates(runs: RunStore, show: str = "") -> GatesPage:
    """The gates of the last N_RUNS ended runs, urgent ones first; `show` is a flag, or all.

    A re-score has the trials of another run, so it is no further answer. Of an import no gate was asked here.
    """
    stored_runs = StoredRuns(runs)
    judged_runs = _judged_runs(runs)
    rows = [_row(stored_runs, key, answers) for key, answers in _by_gate(stored_runs, judged_runs).items()]
    rows.sort(key=lambda row: (list(FLAGS).index(row.flag), -len(row.answers)))
    n_of = Counter(row.flag for row in rows)
    flags = [(flag, FLAGS[flag], n_of[flag], flag == show) for flag in FLAGS if flag and n_of[flag]]
    is_known = any(is_shown for *_, is_shown in flags)
    return GatesPage(
        n_runs=len(judged_runs),
        rows=tuple(row for row in rows if not is_known or row.flag == show),
        filters=(("", "All", len(rows), not is_known), *flags),
        n_doubtful=sum(bool(row.flag) for row in rows),
        n_gates=len(rows),
    )


def read_gate_flips(runs: RunStore, new_ids: Collection[int]) -> list[GateRow]:
    """The gates that held and failed for the same agent, eval set and settings, one of the new runs among them.

    Only gates that somebody asked for: where every trial must pass by default, a flaky trial is no surprise.
    """
    judged_runs = _judged_runs(runs)
    subjects = {_subject(run) for run in judged_runs if run.id in new_ids}
    if not subjects:
        return []
    stored_runs = StoredRuns(runs)
    by_gate = _by_gate(stored_runs, [run for run in judged_runs if _subject(run) in subjects])
    keys = [
        key
        for key, answers in by_gate.items()
        if any(asked_of(gates) for _, gates, _ in answers)
        and any(answer.run_id in new_ids for same in _flips(answers) for answer in same.answers)
    ]
    rows = [_row(stored_runs, key, by_gate[key]) for key in keys]
    return [row for row in rows if row.flag != "below-bar"]


def _judged_runs(runs: RunStore) -> list[RunSummary]:
    return [run for run in runs.list(limit=N_RUNS) if run.status not in LIVE and _is_judged(run)]


def _subject(run: RunSummary) -> tuple[str, str]:
    return run.config.agent.id, run.config.evalset_id


def _by_gate(stored_runs: StoredRuns, judged_runs: Sequence[RunSummary]) -> Mapping[GateKey, Sequence[GateRun]]:
    """The runs of each gate with its answer, the newest first."""
    by_gate: dict[GateKey, list[GateRun]] = defaultdict(list)
    for run in judged_runs:
        conclusion = stored_runs.conclusion(run)
        if conclusion.outcome == "interrupted":
            continue
        for options, gates, state in _answers(run, conclusion):
            by_gate[options, *_subject(run)].append((run, gates, state))
    return by_gate


def _is_judged(run: RunSummary) -> bool:
    return run.config.source_run_id is None and not is_imported(run.config)


def _answers(run: RunSummary, conclusion: Conclusion) -> Iterator[tuple[str, Gates, GateState]]:
    """The options of each gate of a run, the gate alone, and its answer; tolerances only where they were asked for."""
    gates, n = run.config.gates, run.config.n
    budget = f" --budget {run.config.budget}" if run.config.budget else ""
    is_errored = run.status == "failed" or has_too_many_errors(conclusion.gates)
    for each in conclusion.gates:
        alone = _alone(gates, each)
        if alone is None:
            continue
        flags = " ".join(f"{flag_of(GATES_BY_NAME[name])} {_option_text(name, alone)}" for name in asked_of(alone))
        baseline = " --baseline RUN" if alone.compares else ""
        state: GateState = "errored" if is_errored else each.answer
        yield f"--n {n}{budget} {flags or f'({each.name})'}{baseline}", alone, state


def _alone(gates: Gates, outcome: GateOutcome) -> Gates | None:
    """The one gate, with the options that change its answer; None for a tolerance that nobody asked for."""
    if outcome.name in (ALL_PASSED, EVERY_CASE):
        return Gates(pass_threshold=gates.pass_threshold)
    if outcome.name == POOLED:
        return None
    flag, _, k = outcome.name.partition(" ")
    if flag == WITHOUT:  # it tells of cases that no gate asks for
        return None
    option = _BY_FLAG[flag]
    value = getattr(gates, option.name)
    options: dict[str, Any] = {option.name: tuple(pair for pair in value if pair[0] == int(k)) if k else value}
    if flag in OF_A_RATE:
        options["undecided"] = gates.undecided
    if option.name == "max_regressions":
        options |= {"regression_rule": gates.regression_rule, "confirm": gates.confirm}
    is_only = not replace(gates, **{option.name: option.default}).asks_for_verdicts
    if gates.stop_when_decided == "likely" and is_only and option.name in DECIDED_LIKELY:
        options["stop_when_decided"] = gates.stop_when_decided
    alone = Gates(**options)
    return alone if asked_of(alone) else None


def _option_text(name: str, gates: Gates) -> str:
    return GATES_BY_NAME[name].value_words(getattr(gates, name)).removeprefix("$")


def _flips(run_states: Sequence[GateRun]) -> list[SameAgent]:
    """The answers that differ although agent, eval set and settings were the same."""
    same: dict[tuple[str, str], list[GateAnswer]] = defaultdict(list)
    for run, gates, state in run_states:
        against = run.config.gates.baseline if gates.compares else ""
        same[run_fingerprint(run.config), against].append(GateAnswer(run.id, state))
    return [
        SameAgent(fingerprint, tuple(answers))
        for (fingerprint, _), answers in same.items()
        if {"held", "failed"} <= {answer.state for answer in answers}
    ]


def _row(stored_runs: StoredRuns, key: GateKey, run_states: Sequence[GateRun]) -> GateRow:
    """`run_states` has the newest run first."""
    options, agent, _ = key
    flips = _flips(run_states)
    row = GateRow(
        options=options,
        agent=agent,
        evalset=run_states[0][0].config.evalset_name,
        answers=tuple(GateAnswer(run.id, state) for run, _, state in reversed(run_states)),
        flag=_flag(Counter(state for *_, state in run_states), bool(flips)),
        flips=tuple(flips),
    )
    (newest, alone, _) = run_states[0]
    forecast = _forecast(alone, *stored_runs.gate_history(newest), newest.config.pass_threshold)
    if forecast is None:
        return row
    pairs = measured_pairs(stored_runs, newest, alone)
    rate_sentence = measured_sentence(pairs, alone, forecast)
    flag = _standing(forecast, row.flag)
    return replace(
        row, figures=GateFigures(gate_words(forecast.name), forecast), flag=flag, measured_rate=rate_sentence
    )


def _standing(forecast: GateForecast, flag: GateFlag) -> GateFlag:
    """The standing of a gate by its forecast, before its answers."""
    if forecast.standing == "below the bar":
        return "below-bar"
    if flag == "never-held":
        return flag
    if forecast.standing == "at the bar":
        return "at-bar"
    if flag == "flips":
        return flag
    if forecast.is_vague:
        return "too-close"
    return flag or ("often-fails" if forecast.is_frequent else "")


def _flag(counts: Mapping[GateState, int], is_flipping: bool) -> GateFlag:
    n = counts["held"] + counts["failed"] + counts["undecided"]
    if is_flipping:
        return "flips"
    if n >= FEWEST and not counts["held"]:
        return "never-held"
    return "never-failed" if n >= FEWEST and not counts["failed"] else ""


@lru_cache(maxsize=512)
def _forecast(gates: Gates, history: SetHistory, n_each: tuple[int, ...], pass_threshold: float) -> GateForecast | None:
    """How the gate behaves by this history; None where that is not defined."""
    if not 0 < len(n_each) <= MOST_PREVIEWED or not (
        gates.asks_for_verdicts or replace(gates, pass_threshold=1.0) == Gates()
    ):
        return None
    subject = history_subject(history, n_each, pass_threshold)
    if subject is None:
        return None
    try:
        check_explained(gates, subject, flag_of)
    except UsageError:
        return None
    forecasts = gate_forecasts(gates, subject, is_searched=False)
    return forecasts[0] if forecasts else None
