"""The accept page, on which behaviour of trials becomes the expectation of cases: lines of files and their effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.accepting import Effect, Keys, Staged, StagedCase, StagedFile
from evaldesk.diff.acceptance import AcceptableChange, Way, Ways, acceptable_changes
from evaldesk.diff.divergence import Divergence
from evaldesk.diff.text_diff import TextDiff, diff_text
from evaldesk.errors import LossError, UsageError
from evaldesk.model import Case, TrialResult
from evaldesk.model.conclusion import counted
from evaldesk.model.stored import RunSummary
from evaldesk.model.trial_turns import TrialTurns
from evaldesk.pages.case_text import Line, changed_lines
from evaldesk.pages.repeating import matcher_words
from evaldesk.pages.runs.view import trial_href

WAY_KEYS: Mapping[Way, str] = {"as_well": "o", "within": "t", "match": "m", "replace": "r", "ignore": "g"}
MAX_CASES_WRITTEN, MAX_CHARS_WRITTEN = 10_000, 4_000_000
"""In all changes of a page together: half a second of work."""


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One change with the lines of the file that each way would write; no lines of a large file."""

    name: str
    change: AcceptableChange
    way: Way | None
    lines: Mapping[Way, tuple[Line, ...]]
    effects: Mapping[Way | None, str]

    @property
    def text(self) -> TextDiff | None:
        """Both sides with their differences marked; None where one is absent, or it is of several values."""
        change = self.change
        if change.expected is None or change.actual is None or change.scope == "all":
            return None
        return diff_text(change.expected, change.actual)

    @property
    def trials(self) -> str:
        """`actual of 3 trials` where several trials give a value."""
        words = "values of" if self.change.scope == "all" else "actual of"
        return f"{words} {counted(self.change.n_trials, 'trial')}"

    @property
    def choices(self) -> Sequence[Choice]:
        """The ways it can be written, and to leave it."""
        ways = [(way, WAY_KEYS[way], _way_words(way, self.change)) for way in self.change.ways]
        ways_and_none: Sequence[tuple[Way | None, str, str]] = [*ways, (None, "x", "Leave as it is")]
        return [Choice(way, key, words, self.effects.get(way, "")) for way, key, words in ways_and_none]


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to write a change, with its key and its words; None leaves the change out.

    `effect` has the number of trials with another verdict; empty until they are judged.
    """

    way: Way | None
    key: str
    words: str
    effect: str


@dataclass(frozen=True, slots=True)
class CaseView:
    """A case with its changes, and sentences on the effect of the wanted ones."""

    key: str
    id: str
    trial: int
    trial_href: str
    changes: tuple[ChangeView, ...]
    effect: Effect | None
    n_trials: int

    @property
    def n_wanted(self) -> int:
        """The number of its wanted changes."""
        return sum(change.way is not None for change in self.changes)


@dataclass(frozen=True, slots=True)
class AcceptPage:
    """The values of the template; once it `is_judged`, with the effect of the wanted changes."""

    staged: Staged
    cases: tuple[CaseView, ...]
    problem: str = ""
    is_judged: bool = False
    sentence: str = ""

    @property
    def n_wanted(self) -> int:
        """The number of changes that would be written."""
        return sum(case.n_wanted for case in self.cases)

    @property
    def n_less(self) -> int:
        """The number of changes after which a case would expect less."""
        return sum(each.change.is_less for case in self.cases for each in case.changes)

    @property
    def n_changed(self) -> int:
        """The number of changed cases."""
        return sum(case.n_wanted > 0 for case in self.cases)


def accept_href(desk: Desk, run: RunSummary, turns: TrialTurns, divergence: Divergence | None) -> str:
    """Where the differences of a trial are accepted; empty without one, or where its eval set is not of this desk."""
    if turns.result is None or not (divergence if turns.is_large else _has_acceptable(*turns.read_trial())):
        return ""
    query = urlencode({"case": turns.case.id, "trial": str(turns.result.trial_index + 1)})
    return f"/runs/{run.id}/acceptance?{query}" if desk.evalsets.id_of_run(run.config) else ""


def _has_acceptable(case: Case, result: TrialResult | None) -> bool:
    return result is not None and bool(acceptable_changes(case, result.transcript, result.scores))


def keys_of(ways: Mapping[str, Way]) -> Keys:
    """The wanted changes by case, from their names on the page."""
    by_case: dict[str, dict[str, Way]] = {}
    for name, way in ways.items():
        case, _, change = name.partition(":")
        by_case.setdefault(case, {})[change] = way
    return by_case


def typed_ways(fields: Iterable[tuple[str, object]]) -> dict[str, Way]:
    """The wanted changes of a form by their names: `way-N` is a way and a name, `change` a name that is replaced."""
    ways: dict[str, Way] = {}
    for field, value in fields:
        text = str(value)
        word, _, name = text.partition(" ")
        way: Way | None = next((each for each in WAY_KEYS if each == word), None)
        if field == "change":
            ways[text] = "replace"
        elif field.startswith("way-") and way and name:
            ways[name] = way
    return ways


def _way_words(way: Way, change: AcceptableChange) -> str:
    if change.part == "state" and way == "ignore":
        return "Expect nothing of this key"
    if way == "match":
        return f"Accept {' and '.join(map(matcher_words, change.matchers()))}"
    if way == "replace" and change.actual is None:
        return "Remove it"
    if way == "replace":
        return {"answer": "Replace the answer", "call": "Expect the call", "calls": "Expect these calls"}.get(
            change.part, "Replace the value"
        )
    return {
        "as_well": "Accept this answer as well" if change.part == "answer" else "Accept this value as well",
        "within": "Accept within a tolerance",
        "ignore": "Ignore this argument",
    }[way]


def accept_page(desk: Desk, staged: Staged, choices: Keys, problem: str = "", *, is_judged: bool = False) -> AcceptPage:
    """The staged changes, the wanted ones marked; writes the set once for each change of a set that is not large.

    Metrics are imported when the trials are to be judged: the page asks for that once it is shown.
    """
    effects: Mapping[str, Effect] = {}
    try:
        effects = staged.effects(choices) if is_judged else {}
    except UsageError as error:  # two values for one place
        problem = problem or str(error)
    of_ways = staged.effects_of_ways(choices) if is_judged else {}
    file = _shown_file(desk, staged)
    cases = []
    for case in staged.cases:
        cases.append(
            CaseView(
                key=case.key,
                id=case.case.id,
                trial=case.trial.trial_index + 1,
                trial_href=trial_href(staged.run.id, (case.trial.case_index, case.trial.trial_index)),
                changes=tuple(_change(file, case, each, choices.get(case.key, {}), of_ways) for each in case.offered),
                effect=effects.get(case.key),
                n_trials=len(case.trials),
            )
        )
    return AcceptPage(staged, tuple(cases), problem, is_judged, _sentence(effects) if effects else "")


def _sentence(effects: Mapping[str, Effect]) -> str:
    """`12 of 15 would pass instead of 4`, over the cases that would change."""
    before, after, n_scored = (
        sum(each)
        for each in zip(*((e.before.passed, e.after.passed, e.after.scored) for e in effects.values()), strict=True)
    )
    return f"{after:,} of {n_scored:,} would pass instead of {before:,}"


def _shown_file(desk: Desk, staged: Staged) -> StagedFile | None:
    """The file, where it is small enough to be written once for each change, to show its lines."""
    n_changes = sum(len(change.ways) for case in staged.cases for change in case.offered)
    if n_changes * len(staged.evalset.cases) > MAX_CASES_WRITTEN:
        return None
    file = StagedFile(desk, staged)
    try:
        is_small = n_changes * len(file.before) <= MAX_CHARS_WRITTEN
    except LossError:  # the old form of ADK cannot hold it: saving says so
        return None
    return file if is_small else None


def _change(
    file: StagedFile | None,
    case: StagedCase,
    change: AcceptableChange,
    choices: Ways,
    of_ways: Mapping[tuple[str, str, Way | None], Effect],
) -> ChangeView:
    effects_by_way = {way: of_ways.get((case.key, change.key, way)) for way in (*change.ways, None)}
    effects = {way: _changed_words(effect) for way, effect in effects_by_way.items() if effect}
    lines: dict[Way, tuple[Line, ...]] = {}
    if file:
        with suppress(LossError):
            for way in change.ways:
                lines[way] = tuple(changed_lines(file.before, file.after({case.key: {change.key: way}})))
    return ChangeView(f"{case.key}:{change.key}", change, choices.get(change.key), lines, effects)


def _changed_words(effect: Effect) -> str:
    """`2 of 7 pass`, and the trials that would turn green, not pass or not count any more."""
    words = f"{effect.after.passed:,} of {effect.after.scored:,} pass"
    changes = ", ".join(f"{n:,} {way}" for way, n in effect.n_by_change.items())
    return f"{words}: {changes}" if changes else words
