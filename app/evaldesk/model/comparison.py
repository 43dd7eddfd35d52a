"""The comparison of two runs: the played cases, the change of each, and the overall answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from math import inf
from typing import Literal, TypeAlias, get_args

from evaldesk.model.conclusion import CONFIRM, Interval, RegressionRule, is_by_history
from evaldesk.model.evalset import CaseKey, CasePosition
from evaldesk.model.history import ONE_DAY, CaseHistory, RunDays

CaseState: TypeAlias = Literal["same", "edited since", "lost its reference", "lost its verdict", "gone", "new"]
Kind: TypeAlias = Literal[
    "broken",
    "lost its verdict",
    "less stable",
    "fixed",
    "more stable",
    "lost its reference",
    "edited",
    "same",
    "not scored",
    "only in A",
    "only in B",
]
Way: TypeAlias = Literal["better", "worse", "mixed", ""]
KINDS: tuple[Kind, ...] = get_args(Kind)
REGRESSED: frozenset[Kind] = frozenset({"broken", "lost its verdict"})
TO_PLAY = "."
Test: TypeAlias = Literal["sign flip", "t"]
LONG_HISTORY = 10
"""A history of fewer trials is too short to tell a case that fails seldom from one that fails often."""
ROUNDING = 1e-9
"""Numbers that differ by less are the same."""
FEWEST_ALIKE = 6
"""Fewer cases that all move by the same could do so by chance: 2 of 2^5 patterns of signs are more than 5 %."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The trials of a case in one quantity: their number, their mean, and the sum of squared deviations from it."""

    n: int
    mean: float
    squares: float

    @classmethod
    def of_sums(cls, n: int, total: float, total_squares: float) -> Sample:
        """That of `n` trials, at least one, by the sums of their values and of the squares of these."""
        return cls(n, total / n, max(0.0, total_squares - total * total / n))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The scores of the cases that both runs have; `difference` is after - before, in the unit of the score.

    `interval` is None below two cases and where all differences are the same.
    """

    n_cases: int
    n_only_before: int
    n_only_after: int
    n_better: int
    n_worse: int
    before: float
    after: float
    difference: float
    error: float | None
    interval: Interval | None
    p: float
    test: Test

    @property
    def bounds(self) -> Interval:
        """The interval; without one the difference itself, or anything where fewer than `FEWEST_ALIKE` cases moved."""
        if self.interval is not None:
            return self.interval
        least, most = (-inf, inf) if self.n_cases < FEWEST_ALIKE else (self.difference, self.difference)
        return Interval(least, most)

    @property
    def is_distinguishable(self) -> bool:
        """Whether the test and the interval both rule out that nothing changed."""
        if self.p >= 0.05:
            return False
        return self.interval is None or self.interval.low > 0 or self.interval.high < 0


@dataclass(frozen=True, slots=True)
class PlayedCase:
    """A case of a run and its trials.

    `verdicts` has one letter a trial, by trial index: `p`, `f`, `e`, `u`, and `.` for a trial to play. A file may hold
    only the counts: then they are not `is_ordered`. `asserted` is the result of `assertions`, None where it is not
    known. `confirming` has the letters of fresh trials that confirm a regression, and is empty without any. `history`
    are the trials by the same agent that a later run is judged by; None where these are its own. No gate asks for a
    case that `is_left_out`.
    """

    key: CaseKey
    verdicts: str
    pass_threshold: float = 1.0
    errors_are_failures: bool = False
    asserted: Mapping[str, int] | None = None
    is_ordered: bool = True
    confirming: str = ""
    history: CaseHistory | None = None
    is_left_out: bool = False

    @property
    def scored_letters(self) -> str:
        """The letters of the scored trials, by trial index."""
        return self._drop_unscored(self.verdicts)

    @property
    def scored_again(self) -> str:
        """The letters of the scored fresh trials."""
        return self._drop_unscored(self.confirming)

    def _drop_unscored(self, letters: str) -> str:
        decided_letters = letters.replace("e", "f" if self.errors_are_failures else "")
        return decided_letters.replace("u", "").replace(TO_PLAY, "")

    @property
    def past(self) -> tuple[int, int]:
        """The scored and passed trials by which a later run is judged."""
        if self.history is not None and self.history.scored:
            return self.history.trials
        return len(self.scored_letters), self.scored_letters.count("p")

    @property
    def is_without_verdict(self) -> bool:
        """Whether every trial was played and none was scored."""
        return not self.scored_letters and TO_PLAY not in self.verdicts

    def n_missing(self, with_errors: bool) -> int:
        """The trials to play; `with_errors` the errored ones that are no failures, too."""
        return self.verdicts.count(TO_PLAY) + self.verdicts.count("e") * (with_errors and not self.errors_are_failures)

    def fill(self, n_passed: int, *, with_errors: bool) -> PlayedCase:
        """The case if the first `n_passed` of its missing trials passed, and the others failed."""
        missing_letters = TO_PLAY + "e" * (with_errors and not self.errors_are_failures)
        ends = iter("p" * n_passed + "f" * (self.n_missing(with_errors) - n_passed))
        return replace(
            self, verdicts="".join(next(ends) if each in missing_letters else each for each in self.verdicts)
        )

    def is_passed(self, letters: str) -> bool:
        """Whether enough of these scored trials passed; there is at least one."""
        return letters.count("p") >= (self.pass_threshold - ROUNDING) * len(letters)

    def has_passed_again(self, n_needed: int) -> bool | None:
        """Whether `n_needed` of the fresh trials passed; None while trials without a verdict could still decide it."""
        if self.confirming.count("p") >= n_needed:
            return True
        failed = self.confirming.count("f") + (self.confirming.count("e") if self.errors_are_failures else 0)
        return False if self.confirming and len(self.confirming) - failed < n_needed else None

    @property
    def passes_alone(self) -> bool | None:
        """Whether it passes by itself, for any result of the others; None where they decide, or none is scored."""
        letters, n_open = self.scored_letters, self.verdicts.count(TO_PLAY)
        if not letters and not n_open:
            return None
        at_best, at_worst = self.is_passed(letters + "p" * n_open), self.is_passed(letters + "f" * n_open)
        return at_best if at_best == at_worst else None

    def first(self, m: int) -> str | None:
        """The first `m` scored trials; None where it is not known how they ended."""
        letters = self.scored_letters
        is_known = self.is_ordered or m >= len(letters) or len(set(letters)) == 1
        return letters[:m] if is_known else None


def match_cases(before: Iterable[PlayedCase], keys: Iterable[CaseKey]) -> dict[CasePosition, PlayedCase]:
    """Earlier cases by the places of the later cases that they are; the one rule of which cases are comparable.

    Those with the same id and content come first, those of the same id in order then, and last a case that got another
    id, told by its content where one only has it. Two files of one name may hold the same case id, and come in another
    order or alone. An eval set that the later cases do not name is the new one with which it has most cases in common,
    if there is one. Whether a case found so is the same or an edited one, `is_edited` says. (decision 455)
    """
    before, keys = list(before), list(keys)
    names = _renames_by_content([case.key for case in before], keys)
    alike = {(key.evalset, key.case_id, key.digest): key.place for key in keys if key.digest}
    places = [(names.get(case.key.evalset, case.key.evalset), case.key.case_id) for case in before]
    exact = [alike.pop((*place, case.key.digest), None) for case, place in zip(before, places, strict=True)]
    matches = {place: case for case, place in zip(before, exact, strict=True) if place}
    for case, place, exact_place in zip(before, places, exact, strict=True):
        if exact_place is None:
            matches[next(free for n in count() if (free := (*place, n)) not in matches)] = case
    unmatched_keys = [key for key in keys if key.place not in matches]
    orphans = (
        [(place, case) for place, case in matches.items() if place not in {key.place for key in keys}]
        if unmatched_keys
        else []
    )
    for key, lost_place in _with_other_ids(unmatched_keys, orphans):
        matches[key.place] = matches.pop(lost_place)
    return matches


def _with_other_ids(
    new_keys: Sequence[CaseKey], orphans: Sequence[tuple[CasePosition, PlayedCase]]
) -> list[tuple[CaseKey, CasePosition]]:
    """The new keys with the places of the lost cases of their set that alone have the same content."""
    keys_by_content: dict[tuple[str, str], list[CaseKey]] = {}
    places_by_content: dict[tuple[str, str], list[CasePosition]] = {}
    for key in new_keys:
        keys_by_content.setdefault((key.evalset, key.digest), []).append(key)
    for place, case in orphans:
        places_by_content.setdefault((place[0], case.key.digest), []).append(place)
    both = [
        (keys_by_content[content], places_by_content[content])
        for content in places_by_content
        if content[1] and content in keys_by_content
    ]
    return [(keys[0], places[0]) for keys, places in both if len(keys) == len(places) == 1]


def _renames_by_content(before: Sequence[CaseKey], keys: Sequence[CaseKey]) -> dict[str, str]:
    """The names of now of the eval sets that have another name in `keys`, told by the content of their cases."""
    old_names, new_names = ({key.evalset for key in side} for side in (before, keys))
    set_names_by_content: dict[tuple[str, str], list[str]] = {}
    for key in keys:
        if key.digest and key.evalset not in old_names:
            set_names_by_content.setdefault((key.case_id, key.digest), []).append(key.evalset)
    removed_keys = [key for key in before if key.evalset not in new_names]
    n_shared = Counter(
        (key.evalset, name) for key in removed_keys for name in set_names_by_content.get((key.case_id, key.digest), ())
    )
    renames: dict[str, str] = {}
    for (old_name, new_name), _ in n_shared.most_common():
        if old_name not in renames and new_name not in renames.values():
            renames[old_name] = new_name
    return renames


@dataclass(frozen=True, slots=True)
class CaseChange:
    """A case in both runs, or in one of them.

    `points` is how much more often it passes now, in points of 100; `p` Fisher's of its two rates, None with one trial
    on a side. `stands_out` says whether that is more than chance among so many cases. `chance` is that of an unchanged
    agent to pass so few of its trials, fresh ones among them, by the history of the case; None where that does not
    judge. It `is_worse` where this is hardly chance in any of so many cases, for any result of fresh trials without a
    verdict, and `may_be_worse` where they could make it so. `is_again` says whether it is played again: it flipped, or
    its suite looks low.
    """

    key: CaseKey
    name: str
    state: CaseState
    kind: Kind
    before: PlayedCase | None
    after: PlayedCase | None
    points: float | None = None
    p: float | None = None
    stands_out: bool = False
    chance: float | None = None
    is_worse: bool = False
    may_be_worse: bool = False
    is_again: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether it passed before, and now fails or has no verdict."""
        return self.kind in REGRESSED

    @property
    def is_same_case(self) -> bool:
        """Whether it is in both runs with the same content."""
        return self.before is not None and self.after is not None and not self.before.key.is_edited(self.after.key)

    @property
    def is_compared(self) -> bool:
        """Whether it is the same case with scored trials in both runs."""
        return self.points is not None

    @property
    def has_short_history(self) -> bool:
        """Whether the trials before are too few to tell how often it fails."""
        return self.before is not None and self.before.past[0] < LONG_HISTORY

    @property
    def is_unaccounted(self) -> bool:
        """Whether the baseline does not account for the case: new, edited, or without a verdict there."""
        if self.after is None or self.is_compared or self.is_regression:
            return False
        return not self.is_same_case or self.before is None or not self.before.scored_letters


@dataclass(frozen=True, slots=True)
class SuiteChange:
    """The compared cases of an eval set together, against what their history allows.

    `passed` of `scored` trials passed, those of the first look; of every case played again, `passed_again` of
    `scored_again`. An unchanged agent passes between `usual` of these, and so few of all with this
    `chance`. Where the suite `looks_low`, the rule "confirm" plays every case again. It `is_worse` for any
    result of fresh trials without a verdict, `may_be_worse` where they could make it so, and `can_be_worse` if
    every trial failed. With `is_replayed` those of the first look may come from a recording, and are no evidence.
    """

    evalset: str
    scored: int
    passed: int
    usual: tuple[int, int]
    chance: float
    scored_again: int = 0
    passed_again: int = 0
    looks_low: bool = False
    is_worse: bool = False
    may_be_worse: bool = False
    can_be_worse: bool = True
    is_replayed: bool = False

    @property
    def evidence(self) -> tuple[int, int]:
        """The scored and the passed trials that decide."""
        if self.is_replayed and self.looks_low:
            return self.scored_again, self.passed_again
        return self.scored + self.scored_again, self.passed + self.passed_again


@dataclass(frozen=True, slots=True)
class MissingTrials:
    """The trials of each case that are missing to see a drop of SOUGHT in 4 of 5 builds: of a build, or before it.

    Both are 0 where no number of either is enough, and cases are missing.
    """

    now: int = 0
    before: int = 0


@dataclass(frozen=True)
class RunChange:
    """The changes of a run against the earlier run `name`. `rates` compares the pass rates of the compared cases.

    `rule` says which cases regressed; by "confirm" the passes of fresh trials that `confirm` asks for decide, or the
    history of the cases. `suites` are then the cases of each eval set together, `n_worst` how many cases would be worse
    if every trial failed, and `missing_trials` the trials that are too few; `days` is how far runs differ from day to
    day. With `is_replayed` trials may come from a recording, and only the fresh ones count. `others` are the histories
    of cases that are played apart, such as those of other items of pytest: the suite is not judged then.
    `is_of_part` says whether only some cases of a file were played: those of before are then not gone for that.
    `refusal` says why the rule has no fresh trials to judge by; empty where it has.
    With `max_regressions` above 0 the suite is not judged either.
    `weaker` says how the criteria are weaker than those of the earlier run, so that a case may fail more and pass.
    """

    name: str
    cases: tuple[CaseChange, ...]
    rates: Comparison | None
    rule: RegressionRule = "any"
    confirm: tuple[int, int] = CONFIRM
    suites: tuple[SuiteChange, ...] = ()
    n_worst: int = 0
    missing_trials: MissingTrials | None = None
    days: RunDays = ONE_DAY
    is_of_part: bool = False
    is_replayed: bool = False
    others: tuple[tuple[int, int], ...] = ()
    refusal: str = ""
    weaker: tuple[str, ...] = ()
    max_regressions: int = 0

    def names_of(self, *kinds: Kind) -> tuple[str, ...]:
        """The names of the cases of these kinds."""
        return tuple(case.name for case in self.cases if case.kind in kinds)

    def in_state(self, state: CaseState) -> tuple[str, ...]:
        """The names of the cases in this state."""
        return tuple(case.name for case in self.cases if case.state == state)

    @property
    def evalset_renames(self) -> dict[str, str]:
        """The eval sets whose cases were found under another name, and that name."""
        both = [(case.before.key.evalset, case.after.key.evalset) for case in self.cases if case.before and case.after]
        return {before: after for before, after in both if before != after}

    def without_reference(self, *, is_regression: bool) -> tuple[str, ...]:
        """The names of the cases that lost a reference, of those that regressed or of the others."""
        return tuple(
            case.name
            for case in self.cases
            if case.state == "lost its reference" and case.is_regression == is_regression
        )

    @property
    def unaccounted_cases(self) -> tuple[CaseChange, ...]:
        """The cases that the earlier run does not account for, so that they are judged by themselves."""
        return tuple(case for case in self.cases if case.is_unaccounted)

    @property
    def is_by_history(self) -> bool:
        """Whether the history of the cases judges."""
        return is_by_history(self.rule, self.confirm)

    @property
    def regressions(self) -> tuple[CaseChange, ...]:
        """The cases that regressed by `rule`; one that passed and lost its verdict regressed by every rule."""
        if self.is_by_history:
            return tuple(case for case in self.cases if case.is_worse or case.kind == "lost its verdict")
        if self.rule == "any":
            return tuple(case for case in self.cases if case.is_regression)
        return tuple(case for case in self.cases if case.is_regression and self.passes_again(case) is False)

    @property
    def played_again(self) -> tuple[CaseChange, ...]:
        """The cases that fresh trials are about, by the rule "confirm": suspects, and all where the suite looks low."""
        if self.rule != "confirm":
            return ()
        return tuple(case for case in self.cases if (case.is_again if self.is_by_history else case.kind == "broken"))

    @property
    def unconfirmed_cases(self) -> tuple[CaseChange, ...]:
        """The cases to play again that have too few fresh verdicts to decide."""
        return tuple(case for case in self.played_again if self.passes_again(case) is None)

    def passes_again(self, case: CaseChange) -> bool | None:
        """Whether enough fresh trials of a case passed, None where that is open; one without a verdict never passes.

        By the history a case passes again unless it is worse, and is open until each of its fresh trials is scored.
        """
        if case.after is None:
            return False
        n_needed, n = self.confirm
        if self.is_by_history:
            return not case.is_worse if len(case.after.scored_again) >= n else None
        return case.after.has_passed_again(n_needed) if case.kind == "broken" else False

    def fails(self, most: int) -> bool | None:
        """Whether more than `most` cases regressed, or the suite where none may; None where fresh trials decide it."""
        n_worse, suites = len(self.regressions), self.suites if not most else ()
        if n_worse > most or any(suite.is_worse for suite in suites):
            return True
        if self.is_by_history:
            n_may = sum(case.may_be_worse or case.kind == "lost its verdict" for case in self.cases)
            return None if n_may > most or any(suite.may_be_worse for suite in suites) else False
        return None if n_worse + len(self.unconfirmed_cases) > most else False

    def can_fail(self, most: int) -> bool:
        """Whether the history is long enough that a run in which every trial failed would fail.

        Of cases that are played apart this is not told by one: all of them are judged together after the last.
        """
        if not self.is_by_history or self.others:
            return True
        return self.n_worst > most or (not most and any(suite.can_be_worse for suite in self.suites))

    @property
    def has_fallen(self) -> bool:
        """Whether a case passes less often than before; by "confirm" one that flipped, unless it only passes again."""
        if self.rule == "confirm":
            again = (case.after.scored_again for case in self.played_again if case.kind == "broken" and case.after)
            return any(letters.count("p") < max(len(letters), self.confirm[1]) for letters in again)
        return any((case.points or 0.0) < 0 for case in self.cases)

    @property
    def untold(self) -> tuple[CaseChange, ...]:
        """The cases that flipped and have no pass in any trial, which their history cannot tell from chance.

        By "likely", which plays none of them again, only those whose history is short: one that is long tells.
        """
        if not self.is_by_history:
            return ()
        return tuple(
            case
            for case in (self.played_again if self.rule == "confirm" else self.cases)
            if case.kind == "broken" and case.is_compared and not case.may_be_worse
            if case.after and "p" not in case.after.verdicts + case.after.confirming
            if self.rule == "confirm" or case.has_short_history
        )

    @property
    def n_judged(self) -> int:
        """Cases that could have regressed or been fixed: the compared ones, and those that lost their verdict."""
        return sum(case.is_compared or case.is_regression for case in self.cases)

    @cached_property
    def n_up(self) -> int:
        """Cases that pass more often by more than chance."""
        return sum(case.stands_out and (case.points or 0.0) > 0 for case in self.cases)

    @cached_property
    def n_down(self) -> int:
        """Cases that pass less often by more than chance."""
        return sum(case.stands_out and (case.points or 0.0) < 0 for case in self.cases)

    @property
    def way(self) -> Way:
        """The one answer: from the mean over cases and from single cases, empty where both could be chance."""
        is_moved = self.rates is not None and self.rates.is_distinguishable
        is_up = bool(self.n_up) or (is_moved and self.rates is not None and self.rates.difference > 0)
        is_down = bool(self.n_down) or (is_moved and self.rates is not None and self.rates.difference < 0)
        if is_up and is_down:
            return "mixed"
        return "better" if is_up else "worse" if is_down else ""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a metric asks of a trial: the least score, and a digest of its options."""

    metric: str
    threshold: float
    options: str = ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run, by number or by file: its cases as they were. `name` says which run it is.

    `run_id` is its number; None for a file. The cases have the history that later runs are judged by, as it was when
    the first of these began; `days` is how far the runs of it differ from day to day.
    `is_of_part` says whether the run that is compared with it plays only some cases of its file.
    `shard` is the part of the cases that it has itself, such as 2/5.
    `bars` are the least scores of a pass there, by the name of the eval set; those of old files are not known.
    """

    name: str
    cases: tuple[PlayedCase, ...]
    run_id: int | None = None
    bars: Mapping[str, tuple[Bar, ...]] = field(default_factory=dict)
    days: RunDays = ONE_DAY
    is_of_part: bool = False
    shard: str = ""
