"""Whether the gates of a run are decided before its last trial, after each whole block. (reference/decisions.md 2.4)

A block is one trial of every case, so that all cases weigh the same; where a run has one trial a case, it is one case.
Where some cases have more trials than others, later blocks are of these.
What is found depends on the verdicts of whole blocks alone, not on when one looks: a run that is killed and resumed
stops where it would have stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil
from typing import TypeAlias

from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.gates.conclusion import (
    ALL_PASSED,
    EVERY_CASE,
    MOST_NAMED,
    OF_A_RATE,
    RunNumbers,
    Spent,
    curtail_gates,
    outcomes,
    regressions_answer,
)
from evaldesk.desk.runs.plan import order_of_play, shuffle_cases
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Answer, Counts, GateOutcome, RunConfig
from evaldesk.model.comparison import ROUNDING, TO_PLAY, Baseline, PlayedCase, RunChange, match_cases
from evaldesk.model.conclusion import Interval, Stop, StopRule, counted, has_too_many_errors, scored_and_passed
from evaldesk.statistics.anytime import ALPHA, DifferenceSeen, anytime_interval, difference_interval, sign_evidence
from evaldesk.statistics.case_comparison import changed_to, is_regressed
from evaldesk.store import RunStore
from evaldesk.wording.words import asides_words, counted_words, named_words, passed_of_these_sentence

LOOKED_AT_EACH = 200
DECIDED_LIKELY = ("min_pass_rate", "min_case_pass_rate", "margin")
"""The gates that `likely` decides by what is beyond doubt; it decides the others as `exact` does."""
MOST_JUDGED = 20
"""Of a run with one trial a case the looks at which the history judges, which goes over all cases."""
GROWTH = 1.02
"""Of a run with one trial a case each of the first cases is looked after, later ones 2 % apart."""


ReadStrips: TypeAlias = Callable[[Sequence[int] | None], Sequence[str]]
Kind: TypeAlias = tuple[str, int]
"""The letters of the trials of a case in whole blocks, and how many trials it has in all."""


# A look at whole blocks only, so that a resumed run stops at the same trial: decision 086.
class Decider:
    """Asks after each whole block of a run whether its gates are decided, from the letters of its trials.

    `n_each` are the trials of each case. `regressed` says of a case, by index, whether it regressed with these letters;
    None without a baseline, and where the history of the cases judges them: `judge_change` gives the change when all
    cases have these letters. `alone` are the cases that must pass by themselves, by index. Where the criteria
    `is_weaker` than those of the baseline, no comparison holds. `rates_before` are the pass rates in the baseline of
    the cases that are compared. `order` is the order of play of a run with one trial a case. `names` are the ids of the
    cases, read when one is named. `places` are the indexes in the run of the cases that gates ask for; None for all.
    """

    def __init__(
        self,
        config: RunConfig,
        n_each: Sequence[int],
        rule: StopRule,
        *,
        names: Callable[[], Sequence[str]],
        regressed: Callable[[int, str], bool] | None = None,
        judge_change: Callable[[Sequence[str]], RunChange] | None = None,
        rates_before: Mapping[int, float] | None = None,
        alone: Mapping[int, PlayedCase] | None = None,
        is_weaker: bool = False,
        order: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        self.rule = "exact" if repeats_recorded(config) else rule  # what is likely needs new evidence
        self._config = config
        self._gates = config.gates
        self._places = places
        self._n_each = n_each
        self._n_cases = n_cases = len(n_each)
        self._n_least, self._n = min(n_each), max(n_each)
        self._n_planned = sum(n_each)
        self._names = names
        self._regressed = cache(regressed) if regressed else None
        self._judge_change = judge_change
        self._rates_before = rates_before or {}
        self._alone = alone or {}
        self._is_weaker = is_weaker
        self._order = range(n_cases) if order is None else order
        self._looks = looks_of(self._n, n_cases) if places is None or places else []
        step = max(1, ceil(len(self._looks) / MOST_JUDGED)) if self._n == 1 else 1
        self._looks_of_history = frozenset(self._looks[::step])
        self._in_blocks = cache(lambda n_blocks: sum(min(n, n_blocks) for n in n_each))
        self._n_looked = 0
        self._strips = [TO_PLAY * n for n in n_each] if self._n > 1 else []
        self._behind: list[int] | None = None
        self._first: list[str] = []
        self._of_first: Counter[str] = Counter()
        self._differences: list[float] = []
        self._n_by_sign: Counter[int] = Counter()
        self._evidence = DifferenceSeen(self._gates.margin or 0.0)
        self._n_lost = dict.fromkeys("pf", 0)

    def may_look(self, n_done: int) -> bool:
        """Whether the finished trials may be enough for another look."""
        following = self._following
        return following is not None and n_done >= (self._in_blocks(following) if self._n > 1 else following)

    @property
    def _following(self) -> int | None:
        """The number of blocks of the next look; None after the last."""
        return next((look for look in self._looks if look > self._n_looked), None)

    def look(self, read_strips: ReadStrips, costs: Spent) -> Stop | None:
        """The first whole block after which the gates are decided, among the ones without a look yet.

        `read_strips` gives the letters of these cases, by index, or of all.
        """
        if self._n == 1:
            return self._look_by_case(read_strips, costs)
        while (n_blocks := self._following) is not None and self._read_block(n_blocks, read_strips):
            self._n_looked, self._behind = n_blocks, None
            letters = [(strip[:n_blocks], n) for strip, n in zip(self._strips, self._n_each, strict=True)]
            if stop := self._decide(self._take_snapshot(partial(tuple, letters), Counter(letters), n_blocks, costs)):
                return stop
        return None

    def _read_block(self, n_blocks: int, read_strips: ReadStrips) -> bool:
        """Whether so many blocks are whole; reads the cases that were behind, and no other, at each look."""
        behind = range(self._n_cases) if self._behind is None else self._behind
        behind = [case for case in behind if TO_PLAY in self._strips[case][:n_blocks]]
        if behind:
            for case, strip in zip(behind, read_strips(None if len(behind) == self._n_cases else behind), strict=True):
                self._strips[case] = strip
        self._behind = [case for case in behind if TO_PLAY in self._strips[case][:n_blocks]]
        return not self._behind

    def look_in(self, runs: RunStore, run_id: int) -> Stop | None:
        """The same of the trials that are stored."""
        summary = runs.summary(run_id)
        if not self.may_look(summary.n_done):
            return None
        return self.look(partial(self._read_strips, runs, run_id), Spent.of(summary))

    def _read_strips(self, runs: RunStore, run_id: int, cases: Sequence[int] | None) -> Sequence[str]:
        """The letters of cases by their indexes among the cases of the gates."""
        if self._places is None:
            return runs.strips(run_id, cases)
        return runs.strips(run_id, self._places if cases is None else [self._places[case] for case in cases])

    def _look_by_case(self, read_strips: ReadStrips, costs: Spent) -> Stop | None:
        """As `look`, reading only the cases behind the finished ones."""
        if not self._first and self._regressed:
            self._n_lost = {
                end_letter: sum(self._regressed(case, end_letter) for case in range(self._n_cases))
                for end_letter in "pf"
            }
        for n_blocks in (look for look in self._looks if self._n_looked < look):
            for strip in read_strips(self._order[len(self._first) : n_blocks]):
                if strip == TO_PLAY:
                    return None
                self._see(self._order[len(self._first)], strip)
            self._n_looked = n_blocks
            kinds = Counter({(strip, 1): times for strip, times in self._of_first.items()})
            kinds["", 1] = self._n_cases - n_blocks
            if stop := self._decide(self._take_snapshot(self._letters_of_first, kinds, n_blocks, costs)):
                return stop
        return None

    def _see(self, case: int, letter: str) -> None:
        """Count the next case of a run with one trial a case."""
        self._first.append(letter)
        self._of_first[letter] += 1
        if self._regressed:
            is_lost = self._regressed(case, letter)
            for end_letter in "pf":
                self._n_lost[end_letter] += is_lost - self._regressed(case, end_letter)
        is_scored, _ = scored_and_passed(letter, errors_are_failures=self._config.errors_are_failures)
        if is_scored and case in self._rates_before:
            self._differences.append((letter == "p") - self._rates_before[case])
            self._evidence.add(self._differences[-1])
            self._n_by_sign[(self._differences[-1] > ROUNDING) - (self._differences[-1] < -ROUNDING)] += 1

    def _letters_of_first(self) -> list[Kind]:
        """The letters of all cases, by index; nothing of those that come later in the order of play."""
        letters: list[Kind] = [("", 1)] * self._n_cases
        for case, strip in zip(self._order, self._first, strict=False):
            letters[case] = (strip, 1)
        return letters

    def _take_snapshot(
        self, letters: Callable[[], Sequence[Kind]], kinds: Mapping[Kind, int], n_blocks: int, costs: Spent
    ) -> _Snapshot:
        n_played = sum(len(marks) * times for (marks, _), times in kinds.items())
        return _Snapshot(self._config, letters, kinds, n_played, self._n_planned, n_blocks, self._n_least, costs)

    def _decide(self, snapshot: _Snapshot) -> Stop | None:
        answers = list(self._answers(snapshot))
        is_failed = any(each.answer == "failed" and not each.is_of_evidence for each in answers)
        is_held = not snapshot.is_short and bool(answers) and all(each.answer == "held" for each in answers)
        if is_failed or is_held:
            n_blocks, n_played = snapshot.n_blocks, snapshot.n_played
            return Stop(self.rule, n_blocks, n_played, tuple(each for each in answers if each.answer != "undecided"))
        return None

    def _answers(self, snapshot: _Snapshot) -> Iterator[GateOutcome]:
        for outcome in curtail_gates(self._gates, snapshot.planned_numbers, None):
            name, present = outcome.name, snapshot.present[outcome.name]
            if name in ("--max-regressions", "--margin"):
                comparison = self._regressions(snapshot) if name == "--max-regressions" else self._margin(snapshot)
                is_open = self._is_weaker and comparison.answer == "held"
                yield replace(comparison, answer="undecided") if is_open else comparison
            elif name == "--max-cost":
                yield present  # no more trials begin
            elif not outcome.is_of_evidence or name == "--min-scored":
                # Whether a threshold lies inside an interval can change either way.
                is_open = self._gates.undecided is not None and name.partition(" ")[0] in OF_A_RATE
                answer: Answer = "undecided" if is_open else outcome.answer
                if answer == "undecided" and self.rule == "likely" and not snapshot.is_short:
                    yield self._likely(name, snapshot)
                else:
                    yield GateOutcome(name, answer, self._sentence(name, answer, snapshot, present))
        if self._alone:
            yield self._new_cases(snapshot)

    def _new_cases(self, snapshot: _Snapshot) -> GateOutcome:
        """Failed by a case that cannot pass by itself any more, held when all of them do whatever comes."""
        letters = snapshot.letters
        answers = {
            case: replace(alone, verdicts=letters[case][0].ljust(letters[case][1], TO_PLAY)).passes_alone
            for case, alone in self._alone.items()
        }
        failed = [case for case, answer in answers.items() if answer is False]
        if failed:
            words = f"{counted_words(len(failed), len(answers), 'case')} that {self._gates.baseline or 'the baseline'}"
            words += f" does not account for cannot pass any more: {self._name_cases(failed)}; {snapshot.left_words}"
            answer: Answer = "failed" if self._gates.new_cases == "must-pass" else "undecided"
            return GateOutcome("--new-cases", answer, words, tuple(self._names()[case] for case in failed))
        if None in answers.values():
            return GateOutcome("--new-cases", "undecided", "")
        return GateOutcome(
            "--new-cases", "held", f"{counted(len(answers), 'new or edited case')} passed; {snapshot.left_words}"
        )

    def _sentence(self, name: str, answer: Answer, snapshot: _Snapshot, present: GateOutcome) -> str:
        passed = f"{counted_words(snapshot.counts.passed, snapshot.n_played, 'trial')} passed"
        if name.partition(" ")[0] in OF_A_RATE:
            subject, least = self._bar(name)
            can = "stays at least" if answer == "held" else "cannot reach"
            return f"{subject} {can} {least:g}{' any more' * (answer != 'held')}: {passed}; {snapshot.left_words}"
        if name in ("--min-case-pass-rate", EVERY_CASE):
            share = self._gates.pass_threshold if name == EVERY_CASE else self._gates.min_case_pass_rate
            return self._case_sentence(answer, snapshot, share or 0.0)
        if name == ALL_PASSED:
            n_not, aside = snapshot.n_played - snapshot.counts.passed, asides_words(snapshot.counts)
            words = f"{counted_words(n_not, snapshot.n_played, 'trial')} did not pass, and every trial must"
            return f"{words}{aside}; {snapshot.left_words}"
        return present.sentence

    def _bar(self, name: str) -> tuple[str, float]:
        """The number that a gate on a rate is about, and the least that it may be."""
        option, _, k = name.partition(" ")
        if option == "--min-pass-rate":
            return "pass rate", self._gates.min_pass_rate or 0.0
        pairs = self._gates.pass_at if option == "--pass-at" else self._gates.pass_hat
        return f"{'pass@' if option == '--pass-at' else 'pass^'}{k}", dict(pairs)[int(k)]

    def _case_sentence(self, answer: Answer, snapshot: _Snapshot, least: float) -> str:
        if answer == "held":
            return f"each of {self._n_cases:,} cases stays at least at {least:g} of its trials; {snapshot.left_words}"
        lost_cases = [case for case, kind in enumerate(snapshot.letters) if snapshot.best_rate(kind) < least - ROUNDING]
        words = f"{counted_words(len(lost_cases), self._n_cases, 'case')} cannot reach {least:g} of "
        words += f"{'its' if len(lost_cases) == 1 else 'their'} trials any more"
        return f"{words}: {self._name_cases(lost_cases)}; {snapshot.left_words}"

    def _name_cases(self, cases: Sequence[int]) -> str:
        names = self._names()
        return named_words([names[case] for case in cases], MOST_NAMED)

    def _regressions(self, snapshot: _Snapshot) -> GateOutcome:
        """Cases that regressed for any result of the other trials, and cases that still can.

        By the rule "confirm" fresh trials have the last word on the first.
        """
        name, gates = "--max-regressions", self._gates
        most, against = gates.max_regressions or 0, f"against {gates.baseline or 'the baseline'}"
        if self._judge_change and not snapshot.is_short:
            if snapshot.n_blocks not in self._looks_of_history:
                return GateOutcome(name, "undecided", "")
            return self._by_history(snapshot, most, against, self._judge_change)
        if self._regressed is None or snapshot.is_short:
            return GateOutcome(name, "undecided", "")
        n_lost, n_may = (self._count_lost_cases(snapshot, end_letter) for end_letter in "pf")
        if n_may <= most:
            cases = "1 case" if n_may == 1 else f"{n_may:,} cases" if n_may else "no case"
            return GateOutcome(name, "held", f"{cases} can regress {against}, {most:,} allowed; {snapshot.left_words}")
        if n_lost <= most or gates.regression_rule == "confirm":
            return GateOutcome(name, "undecided", "")
        lost_cases = self._lost_cases(snapshot, "p")
        words = f"{counted_words(len(lost_cases), self._n_cases, 'case')} regressed {against}, {most:,} allowed"
        names = self._names()
        words = f"{words}: {self._name_cases(lost_cases)}; {snapshot.left_words}"
        return GateOutcome(name, "failed", words, tuple(names[case] for case in lost_cases))

    def _by_history(
        self, snapshot: _Snapshot, most: int, against: str, judge_change: Callable[[Sequence[str]], RunChange]
    ) -> GateOutcome:
        """Decided where the answer is the same if all other trials pass, and if all of them fail, fresh ones, too.

        More passes make no case and no suite worse, so nothing between the two answers otherwise.
        """
        name = "--max-regressions"
        best = judge_change([snapshot.fill(kind, "p") for kind in snapshot.letters])
        if regressions_answer(best, most) == "failed":
            regressed = [case.name for case in best.regressions]
            words = f"{counted_words(len(regressed), best.n_judged, 'case')} regressed by more than chance {against}, "
            words += f"{most:,} allowed, whatever is left brings"
            names = f": {named_words(regressed, MOST_NAMED)}" if regressed else ""
            if not regressed:
                words = f"all cases together are worse {against}, whatever is left brings"
            return GateOutcome(name, "failed", f"{words}{names}; {snapshot.left_words}", tuple(regressed))
        worst = judge_change([snapshot.fill(kind, "f") for kind in snapshot.letters])
        if regressions_answer(worst, most) == "held":
            words = (
                f"no case can regress by more than chance {against}"
                if not most
                else (f"at most {counted(most, 'case')} can regress by more than chance {against}")
            )
            return GateOutcome(name, "held", f"{words}, {most:,} allowed; {snapshot.left_words}")
        return GateOutcome(name, "undecided", "")

    def _count_lost_cases(self, snapshot: _Snapshot, end_letter: str) -> int:
        """The number of cases of `_lost_cases`; with one trial a case `_see` counts them."""
        return self._n_lost[end_letter] if self._n == 1 else len(self._lost_cases(snapshot, end_letter))

    def _lost_cases(self, snapshot: _Snapshot, end_letter: str) -> Sequence[int]:
        """The cases that regressed if every other trial ends so."""
        regressed = self._regressed or (lambda *_: False)
        return [case for case, kind in enumerate(snapshot.letters) if regressed(case, snapshot.fill(kind, end_letter))]

    def _margin(self, snapshot: _Snapshot) -> GateOutcome:
        """Better, worse or the same, by what was likely at any look; exactly it is known at the end only."""
        name, most = "--margin", self._gates.margin or 0.0
        if self.rule == "exact" or snapshot.is_short:
            return GateOutcome(name, "undecided", "")
        differences = self._differences if self._n == 1 else self._differences_of(snapshot)
        if not differences:
            return GateOutcome(name, "undecided", "")
        # Looked at after each block, and each time over all cases: every look has its share of the doubt.
        alpha = ALPHA if self._n == 1 else ALPHA / len(self._looks)
        evidence = self._evidence if self._n == 1 else DifferenceSeen(most, alpha, differences)
        if (self._n > 1 or most) and not evidence.is_told:
            return GateOutcome(name, "undecided", "")
        against = f"than in {self._gates.baseline or 'the baseline'}"
        if self._n == 1 and not most:
            wins, losses = self._n_by_sign[1], self._n_by_sign[-1]
            is_told = sign_evidence(wins, losses) >= 1 / ALPHA
            words = f"{wins:,} cases are better and {losses:,} worse {against}; {snapshot.left_words}"
            answer: Answer = ("held" if wins > losses else "failed") if is_told else "undecided"
            return GateOutcome(name, answer, f"{'better' if wins > losses else 'worse'}: {words}")
        interval = difference_interval(differences, alpha)
        points = f"{100 * interval.low:+.0f} to {100 * interval.high:+.0f} points {against}; {snapshot.left_words}"
        if interval.high < -most:
            return GateOutcome(name, "failed", f"pass rate is likely worse: {points}")
        if interval.low > most:
            return GateOutcome(name, "held", f"pass rate is likely better: {points}")
        if interval.low >= -most:
            return GateOutcome(name, "held", f"pass rate is likely not worse by {100 * most:.3g} points: {points}")
        return GateOutcome(name, "undecided", "")

    def _differences_of(self, snapshot: _Snapshot) -> list[float]:
        """The differences of the cases from the baseline, in an order of chance."""
        comparable_cases = [case for case in self._chance_order if case in self._rates_before]
        rates = ((case, snapshot.rate(snapshot.letters[case])) for case in comparable_cases)
        return [rate - self._rates_before[case] for case, rate in rates if rate is not None]

    @cached_property
    def _chance_order(self) -> Sequence[int]:
        """The cases in an order of chance, which was drawn before the first trial."""
        return shuffle_cases(self._config.seed, self._n_cases)

    def _likely(self, name: str, snapshot: _Snapshot) -> GateOutcome:
        """The answer that is right in 95 of 100 runs, however often one looks."""
        least = {
            "--min-pass-rate": self._gates.min_pass_rate,
            "--min-case-pass-rate": self._gates.min_case_pass_rate,
        }.get(name)
        if least is None:
            return GateOutcome(name, "undecided", "")
        if name == "--min-case-pass-rate":
            return self._likely_cases(name, least, snapshot)
        if snapshot.n_blocks > self._n_least and self._n > 1:  # the trials of more cases than others are no fair look
            return GateOutcome(name, "undecided", "")
        counts = snapshot.counts
        interval = anytime_interval(counts.passed, counts.scored)
        words = passed_of_these_sentence(counts, interval, snapshot.n_rated)
        if interval.low >= least:
            return GateOutcome(name, "held", f"pass rate is likely at least {least:g}: {words}; {snapshot.left_words}")
        if interval.high < least:
            return GateOutcome(name, "failed", f"pass rate is likely below {least:g}: {words}; {snapshot.left_words}")
        return GateOutcome(name, "undecided", "")

    def _likely_cases(self, name: str, least: float, snapshot: _Snapshot) -> GateOutcome:
        """Held when each case surely reaches the threshold; failed when one of as many as there are surely does not."""
        low = {kind: snapshot.case_interval(kind, ALPHA).low >= least for kind in snapshot.kinds}
        if all(low.values()):
            words = (
                f"each of {self._n_cases:,} cases is likely at least at {least:g} of its trials; {snapshot.left_words}"
            )
            return GateOutcome(name, "held", words)
        share = ALPHA / self._n_cases
        is_lost = {kind: snapshot.case_interval(kind, share).high < least for kind in snapshot.kinds}
        if not any(is_lost.values()):
            return GateOutcome(name, "undecided", "")
        cases = [case for case, kind in enumerate(snapshot.letters) if is_lost[kind]]
        words = f"{counted_words(len(cases), self._n_cases, 'case')} {'is' if len(cases) == 1 else 'are'} likely below "
        return GateOutcome(name, "failed", f"{words}{least:g}: {self._name_cases(cases)}; {snapshot.left_words}")


@dataclass(frozen=True)
class _Snapshot:
    """The number of cases with equal letters over whole blocks; `by_case` gives the letters of each case on demand."""

    config: RunConfig
    by_case: Callable[[], Sequence[Kind]]
    kinds: Mapping[Kind, int]
    n_played: int
    n_planned: int
    n_blocks: int
    n_least: int
    costs: Spent

    @cached_property
    def letters(self) -> Sequence[Kind]:
        """The letters of each case, by index."""
        return self.by_case()

    @property
    def counts(self) -> Counts:
        """The trials of the blocks by how they ended."""
        return self._block_numbers.counts

    @property
    def n_rated(self) -> int:
        """The cases of the blocks with a scored trial."""
        return self._block_numbers.n_rated

    @cached_property
    def present(self) -> Mapping[str, GateOutcome]:
        """The answers of the gates as if no other trial were planned, by name."""
        return {each.name: each for each in outcomes(self.config.gates, self._block_numbers, None)}

    @property
    def is_short(self) -> bool:
        """Whether more trials errored or are unscored than are tolerated."""
        evidence_gates = (each for each in self.present.values() if each.is_of_evidence and each.name != "--min-scored")
        return any(not each.is_held for each in evidence_gates)

    @property
    def left_words(self) -> str:
        """The trials that are left, in words."""
        n = self.n_planned - self.n_played
        return f"{counted_words(n, self.n_planned, 'trial')} {'is' if n == 1 else 'are'} left"

    def fill(self, kind: Kind, end_letter: str) -> str:
        """The letters of a case whose other trials end so."""
        return kind[0] + end_letter * (kind[1] - len(kind[0]))

    def rate(self, kind: Kind) -> float | None:
        """The pass rate of a case; None when none of its trials was scored."""
        n_scored, n_passed = self._count_scored(kind[0])
        return n_passed / n_scored if n_scored else None

    def best_rate(self, kind: Kind) -> float:
        """The pass rate of a case whose other trials pass."""
        n_scored, n_passed = self._count_scored(self.fill(kind, "p"))
        if has_too_many_errors(self.present.values()) and not self.config.errors_are_failures:
            n_errored = kind[0].count("e")
            n_scored, n_passed = n_scored + n_errored, n_passed + n_errored
        return n_passed / n_scored if n_scored else 0.0

    def case_interval(self, kind: Kind, alpha: float) -> Interval:
        """The interval of the pass rate of a case, valid at any look."""
        n_scored, n_passed = self._count_scored(kind[0])
        return anytime_interval(n_passed, n_scored, alpha)

    def _count_scored(self, letters: str) -> tuple[int, int]:
        return scored_and_passed(letters, errors_are_failures=self.config.errors_are_failures)

    @cached_property
    def _block_numbers(self) -> RunNumbers:
        """The trials of the blocks."""
        return self._numbers(is_whole=False)

    @property
    def planned_numbers(self) -> RunNumbers:
        """All trials, with those outside the blocks as unplayed."""
        return self._numbers(is_whole=True)

    def _numbers(self, *, is_whole: bool) -> RunNumbers:
        kinds, equal = Counter[Counts](), Counter[Counts]()
        for (letters, n), times in self.kinds.items():
            kinds[self._counts(letters, n if is_whole else len(letters))] += times
            firsts = letters[: self.n_least]
            equal[self._counts(firsts, self.n_least if is_whole else len(firsts))] += times
        rows = [(counts.scored, counts.passed, times) for counts, times in kinds.items()]
        counts = Counts.total(each.times(times) for each, times in kinds.items())
        counts = counts.of_cases(rows) if any(n > self.n_least for _, n in self.kinds) else counts
        numbers = RunNumbers(counts, tuple(rows), kinds=tuple(kinds.items()), costs=self.costs)
        return replace(numbers, equal_kinds=tuple(equal.items()))

    def _counts(self, letters: str, n_planned: int) -> Counts:
        n_passed, n_failed, n_errors, n_unscored = map(letters.count, "pfeu")
        are_failures = self.config.errors_are_failures
        return Counts(n_planned, n_passed, n_failed, n_errors, n_unscored, errors_are_failures=are_failures)


def looks_of(n: int, n_cases: int) -> list[int]:
    """The numbers of blocks after which a run with at most `n` trials a case is looked at."""
    if n > 1:
        return list(range(1, n))
    looks = list(range(1, min(n_cases, LOOKED_AT_EACH + 1)))
    while looks and (following := ceil(looks[-1] * GROWTH)) < n_cases and looks[-1] >= LOOKED_AT_EACH:
        looks.append(following)
    return looks


def decider_of(store: RunStore, run_id: int, rule: StopRule) -> Decider:
    """The decider of a run whose trials are planned."""
    run = store.summary(run_id)
    config = run.config
    baseline = store.baseline(run_id) if config.gates.compares else None
    planned_cases = StoredRuns(store).played_cases([run]) if baseline else ()
    n_each = [len(strip) for strip in store.strips(run_id)] if run.is_uneven else [run.n_least] * run.n_cases
    order = order_of_play(config, run.n_cases, run.n_most)
    asked_places = StoredRuns(store).gate_places(run) if config.left_out else None
    if asked_places:
        new_places = {place: index for index, place in enumerate(asked_places)}
        n_each = [n_each[place] for place in asked_places]
        planned_cases = tuple(planned_cases[place] for place in asked_places) if baseline else ()
        order = None if order is None else [new_places[place] for place in order if place in new_places]
    if baseline:
        counted_cases = tuple(case for case in baseline.cases if not case.is_left_out)
        baseline = replace(baseline, cases=counted_cases)
    change = StoredRuns(store).change_since(baseline, [run], config.gates) if baseline else None
    places = {case.key.place: index for index, case in enumerate(planned_cases)}
    alone = {places[case.key.place]: case.after for case in change.unaccounted_cases if case.after} if change else {}
    return Decider(
        config,
        n_each,
        rule,
        names=lambda: [case_id for case_id in StoredRuns(store).case_ids(run_id) if case_id not in config.left_out],
        regressed=_regression_test(baseline, planned_cases) if baseline and not config.gates.is_by_history else None,
        judge_change=_change_of_letters(change, planned_cases) if change and config.gates.is_by_history else None,
        rates_before=_baseline_rates(baseline, planned_cases) if baseline else None,
        alone=alone if config.gates.new_cases != "inform" else {},
        is_weaker=bool(change and change.weaker),
        order=order,
        places=asked_places,
    )


def _baseline_rates(baseline: Baseline, planned_cases: Sequence[PlayedCase]) -> dict[int, float]:
    """The pass rates of the baseline by the index of the case, of those with the same content."""
    before = match_cases(baseline.cases, [case.key for case in planned_cases])
    pairs = ((index, before.get(case.key.place), case) for index, case in enumerate(planned_cases))
    return {
        index: before_case.scored_letters.count("p") / len(before_case.scored_letters)
        for index, before_case, case in pairs
        if before_case and before_case.scored_letters and not before_case.key.is_edited(case.key)
    }


def _regression_test(baseline: Baseline, planned_cases: Sequence[PlayedCase]) -> Callable[[int, str], bool]:
    before = match_cases(baseline.cases, [case.key for case in planned_cases])

    def is_worse(case: int, letters: str) -> bool:
        before_case = before.get(planned_cases[case].key.place)
        return before_case is not None and is_regressed(before_case, replace(planned_cases[case], verdicts=letters))

    return is_worse


def _change_of_letters(change: RunChange, planned_cases: Sequence[PlayedCase]) -> Callable[[Sequence[str]], RunChange]:
    before = [case.before for case in change.cases if case.before]

    def change_to(letters: Sequence[str]) -> RunChange:
        cases = [replace(case, verdicts=own) for case, own in zip(planned_cases, letters, strict=True)]
        return changed_to(change, before, cases)

    return change_to
