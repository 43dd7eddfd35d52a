"""What the history of the cases says of a run, a sentence each, the same in every door. (reference/forecasts.md 10)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from evaldesk.model.comparison import CaseChange, MissingTrials, RunChange, SuiteChange
from evaldesk.model.conclusion import counted
from evaldesk.model.forecast import SOUGHT
from evaldesk.wording.words import named_words

LEAST_ODDS = 1e-6


def history_sentences(change: RunChange, most: int = 10) -> Iterator[str]:
    """The verdict of the suite and of its cases, and what is missing to see a worse agent; without full stops."""
    if change.rule == "confirm" and (flipped := [case for case in change.played_again if case.kind == "broken"]):
        case_list = _group_names([(case.name, again_words(change, case)) for case in flipped], most)
        yield f"{counted(len(flipped), 'case')} flipped; played again: {case_list}"
    for suite in change.suites:
        name = f"{suite.evalset}: " if len(change.suites) > 1 else ""
        yield name + suite_words(suite)
    if change.max_regressions:
        yield "All cases together are judged with --max-regressions 0 only"
    worse = [case for case in change.regressions if case.chance is not None]
    if change.rule == "likely":
        if worse:
            yield named_words([case_words(case) for case in worse], most)
        if flipped := [case for case in change.cases if case.kind == "broken" and case not in worse]:
            case_list = _group_names([(case.name, flip_words(change, case)) for case in flipped], most)
            yield f"Flipped, not worse by itself: {case_list}"
    if change.missing_trials and not change.max_regressions and not any(suite.is_worse for suite in change.suites):
        yield missing_words(change.missing_trials)


def _group_names(ends: Sequence[tuple[str, str]], most: int) -> str:
    """`a, b passed 5 of 5; c failed 4 of 5`: the names of cases that ended alike stand together."""
    by_end: dict[str, list[str]] = {}
    for name, end in ends:
        by_end.setdefault(end, []).append(name)
    return "; ".join(f"{named_words(names, most)} {end}" for end, names in list(by_end.items())[:most])


def flip_words(change: RunChange, case: CaseChange) -> str:
    """`passed 1 of 3`, `failed 5 of 5, too little history to tell`."""
    letters = case.after.scored_letters if case.after else ""
    if case in change.untold:
        return f"failed {len(letters)} of {len(letters)}, {untold_words(case)}"
    return f"passed {letters.count('p')} of {len(letters)}"


def untold_words(case: CaseChange) -> str:
    """Why the history of a case does not tell its failures from chance."""
    if case.has_short_history:
        return "too little history to tell"
    n_scored, passed = case.before.past if case.before else (0, 0)
    if passed == n_scored:
        return f"too few trials to tell, {passed:,} of {n_scored:,} passed before"
    return f"but it failed before, too: {passed:,} of {n_scored:,} passed"


def suite_words(suite: SuiteChange) -> str:
    """`51 of 60 passed; with this history an unchanged agent gets so few in 1 of 100 builds`."""
    n_scored, passed = suite.evidence
    few = f"with this history an unchanged agent gets so few in {odds_words(suite.chance)} builds"
    if not suite.looks_low:
        if suite.is_worse:
            return f"{passed:,} of {n_scored:,} passed; {few}"
        if suite.is_replayed:
            return f"{passed:,} of {n_scored:,} passed: not low; replayed trials are not new evidence"
        low, high = suite.usual
        if passed > high:
            return f"{passed:,} of {n_scored:,} passed: more than before ({low:,}–{high:,})"
        return f"{passed:,} of {n_scored:,} passed: within what this agent did before ({low:,}–{high:,})"
    if suite.may_be_worse != suite.is_worse:
        return f"{suite.passed:,} of {suite.scored:,} passed, which looks low; fresh trials of every case decide"
    words = f"Looked low, so every case was played again: {passed:,} of {n_scored:,}"
    return f"{words}; {few}" if suite.is_worse else f"{words}, as before"


def again_words(change: RunChange, case: CaseChange) -> str:
    """`failed 4 of 5 (worse)`, `passed 5 of 5 (chance)`; a case that needs more verdicts says so."""
    letters = case.after.confirming if case.after else ""
    if not letters:
        return "not played again"
    passes, passed, n = change.passes_again(case), letters.count("p"), len(letters)
    if passes is None:
        n_left = n - passed - letters.count("f")
        missing_words = f"{n_left} without a verdict; resume the run, or retry its errors"
        return f"passed {passed} of {n}, {missing_words}"
    if passes and not passed:
        return f"failed {n} of {n}, {untold_words(case)}"
    if passes:
        return f"passed {passed} of {n} ({not_worse_word(change)})"
    return f"failed {n - passed} of {n} (worse, {_before_words(case)})"


def not_worse_word(change: RunChange) -> str:
    """Word for a flip that fresh trials did not confirm; where all cases together are worse it is not called chance."""
    return "not worse by itself" if any(suite.is_worse for suite in change.suites) else "chance"


def case_words(case: CaseChange) -> str:
    """`refund: 1 of 3 passed, 38 of 40 before, by chance in 1 of 2,000 builds`."""
    letters = case.after.scored_letters if case.after else ""
    return f"{case.name}: {letters.count('p')} of {len(letters)} passed, {_before_words(case)}"


def _before_words(case: CaseChange) -> str:
    n_scored, passed = case.before.past if case.before else (0, 0)
    odds = "" if case.chance is None else f", by chance in {odds_words(case.chance)} builds"
    return f"{passed:,} of {n_scored:,} before{odds}"


def missing_words(gaps: MissingTrials) -> str:
    """`Too few trials to see 15 points 4 times in 5: 4 more trials a case would do`."""
    points = f"{100 * SOUGHT:.0f} points"
    if gaps.now:
        return f"Too few trials to see {points} 4 times in 5: {_more_words(gaps.now)} a case would do"
    if gaps.before:
        condition = f"at least {_more_words(gaps.before)} a case {'is' if gaps.before == 1 else 'are'} needed before"
        return f"Too little history to see {points} 4 times in 5: {condition}"
    return f"Too few cases to see {points} 4 times in 5: add cases"


def _more_words(n: int) -> str:
    return f"{n:,} more {'trial' if n == 1 else 'trials'}"


def odds_words(chance: float) -> str:
    """`1 of 100`, `4 of 1,000`, `1 of 20,000`."""
    if chance < LEAST_ODDS:
        return f"fewer than 1 of {1 / LEAST_ODDS:,.0f}"
    if chance >= 0.01:
        return f"{100 * chance:.0f} of 100"
    if chance >= 0.001:
        return f"{1000 * chance:.0f} of 1,000"
    digits = 10 ** floor(log10(1 / chance))
    return f"1 of {round(1 / chance / digits) * digits:,}"
