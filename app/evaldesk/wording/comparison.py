"""Words for two runs compared: the verdict first, then points (1 % of a rate or of a 0-to-1 score), p last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evaldesk.model.comparison import Comparison, RunChange
from evaldesk.model.conclusion import counted
from evaldesk.wording.regressions import not_worse_word, untold_words
from evaldesk.wording.words import CI, FEW_CASES, cost_words, counted_words, duration_words, named_words, number_words


@dataclass(frozen=True, slots=True)
class Unit:
    """The words of one quantity's difference: the word for more of it, for less, and amounts.

    `say` gives amounts without their sign, told apart from one another where they differ; `nouns` follow the number.
    """

    more: str
    less: str
    say: Callable[..., list[str]]
    nouns: tuple[str, str] = ("", "")

    def amount(self, value: float) -> str:
        """`17 points`."""
        amount = self.say(value)[0]
        return f"{amount} {self.nouns[0] if amount == '1' else self.nouns[1]}".rstrip()

    def way(self, value: float) -> str:
        """The word for a difference of that sign."""
        return self.more if value > 0 else self.less


def comparison_sentence(comparison: Comparison | None, unit: Unit | None = None) -> str:
    """`Better by 17 points; 95 % CI 5–29. 12 cases, p 0.027`, or `3 points better, could be chance; …`.

    In points, 1 % of a rate or of a 0-to-1 score, unless the difference has another unit.
    """
    if comparison is None:
        return "No case has a score in both runs"
    return f"{difference_words(comparison, unit)}. {basis_words(comparison)}"


def basis_words(comparison: Comparison) -> str:
    """`12 cases, p 0.027`; without p where the test alone says more than test and interval together."""
    cases = counted(comparison.n_cases, "case")
    is_alone = comparison.p < 0.05 and not comparison.is_distinguishable
    return cases if is_alone else f"{cases}, {p_words(comparison.p)}"


def difference_words(comparison: Comparison, unit: Unit | None = None) -> str:
    """The first half of the sentence: `Better by 17 points; 95 % CI 5–29`."""
    unit = unit or POINTS
    difference, interval = comparison.difference, comparison.interval
    if comparison.is_distinguishable:
        by = f"{unit.way(difference).capitalize()} by {unit.amount(difference)}"
        if interval is None:
            return f"{by} in every case"
        near, far = unit.say(*sorted((abs(interval.low), abs(interval.high))))
        return f"{by}; {CI} {near}–{far}"
    is_moved = abs(difference) > 1e-9
    apart = f"{unit.amount(difference)} {unit.way(difference)}, could be chance"
    apart = apart if is_moved else "No difference in the mean"
    if interval is None:
        return apart
    if interval.low > 0 or interval.high < 0:
        return f"{apart}: too few cases changed"
    return f"{apart}; {CI} {_end(interval.low, unit)} to {_end(interval.high, unit)}"


def change_sentence(change: RunChange) -> str:
    """The one answer of a comparison: `Worse by 17 points; 95 % CI 5–29. 12 cases, p 0.027`.

    Where the mean over cases could be chance and single cases could not, these are the answer: `Worse in 2 of 2
    cases; 41 points worse in the mean, other cases may differ`.
    """
    rates = change.rates
    if rates is None or not change.way or (rates.is_distinguishable and change.way != "mixed"):
        return comparison_sentence(rates)
    is_moved = abs(rates.difference) > 1e-9
    mean = (
        f"{POINTS.amount(rates.difference)} {POINTS.way(rates.difference)} in the mean" if is_moved else "the same mean"
    )
    if change.way == "mixed":
        parts = [f"{word} in {n:,}" for word, n in (("better", change.n_up), ("worse", change.n_down)) if n]
        return f"Mixed: {', '.join(parts)} of {counted(rates.n_cases, 'case')}; {mean}"
    n = change.n_up or change.n_down
    sentence = f"{change.way.capitalize()} in {counted_words(n, rates.n_cases, 'case')}"
    return f"{sentence}; {mean}, other cases may differ"


def change_why(change: RunChange) -> str:
    """How the answer of a comparison is found; empty where no case has a score in both runs."""
    rates = change.rates
    if rates is None:
        return ""
    if not any(case.p is not None for case in change.cases):
        return _method_words(rates)
    single = "Single cases are tested by Fisher's exact test, corrected for their number (Benjamini-Hochberg)."
    return f"{_method_words(rates)} {single}"


def next_words(n_more: int | None) -> str:
    """The number of further cases that would decide a difference within chance."""
    if n_more is None:
        return ""
    more = counted(n_more, "more case")
    return f"If the difference is real, about {more} like these would show it, 4 times in 5."


def difference_why(comparison: Comparison) -> str:
    """The basis of the difference of one quantity: `12 cases, p 0.027.` and the method."""
    return f"{basis_words(comparison)}. {_method_words(comparison)}"


def _method_words(comparison: Comparison) -> str:
    cases = counted(comparison.n_cases, "case")
    parts = [f"Each of {cases} is compared with itself, and the answer is the mean of the differences."]
    if comparison.interval is not None:
        parts.append("The interval is Student's t over the cases.")
    by = {"sign flip": "an exact test that flips the signs of the differences", "t": "Student's t test"}
    parts.append(f"p is the chance of so large a mean if nothing changed, by {by[comparison.test]}.")
    parts.append("It could be chance unless p is below 0.05 and the interval leaves out 0.")
    return " ".join(parts)


def flips_words(change: RunChange) -> str:
    """`8 fixed, 1 broken, 1 lost its verdict`, or `No case fixed or broken, 1 less stable`, or that no verdict changed.

    By a rule beyond chance only the cases that regressed are broken, and the others `flipped`.
    """
    if not change.n_judged:
        return "No case has a verdict in both runs"
    counts = [(len(change.names_of(kind)), kind) for kind in ("fixed", "broken")]
    n_lost = len(change.names_of("lost its verdict"))
    if not n_lost and not any(n for n, _ in counts):
        moves = [(len(change.names_of(kind)), kind) for kind in ("more stable", "less stable")]
        parts = [f"{n:,} {kind}" for n, kind in moves if n]
        return ", ".join(["No case fixed or broken", *parts]) if parts else "No verdict changed"
    regressed = {case.key.place for case in change.regressions}
    n_flipped = sum(case.kind == "broken" and case.key.place not in regressed for case in change.cases)
    if change.rule != "any" and n_flipped:
        counts = [counts[0], (counts[1][0] - n_flipped, "broken"), (n_flipped, "flipped")]
    parts = [f"{n:,} {kind}" for n, kind in counts]
    return ", ".join(parts + ([f"{n_lost:,} lost {'its' if n_lost == 1 else 'their'} verdict"] if n_lost else []))


def deleted_words(change: RunChange) -> str:
    """`; 2 cases of it are gone`: those of the earlier run alone, beside the headline; empty without any."""
    n = len(change.in_state("gone"))
    if change.is_of_part:
        return f"; {counted(n, 'case')} of it {'was' if n == 1 else 'were'} not played" if n else ""
    return f"; {counted(n, 'case')} of it {'is' if n == 1 else 'are'} gone" if n else ""


def states_words(change: RunChange, most: int = 10) -> list[str]:
    """A sentence for each eval set of another name and each state in which cases are not compared, with their names."""
    parts = [
        f"The cases of eval set {past_name} were found in {current_name}, by their content"
        for past_name, current_name in change.evalset_renames.items()
    ]
    without_verdict = tuple(
        name for name in change.in_state("lost its verdict") if name not in change.names_of("lost its verdict")
    )
    for words, names in (
        ("edited since, not compared", change.in_state("edited since")),
        ("lost a reference, not compared", change.without_reference(is_regression=False)),
        ("lost a reference and its verdict", change.without_reference(is_regression=True)),
        ("failed before and without a verdict now", without_verdict),
        (f"of {change.name} not played" if change.is_of_part else f"gone since {change.name}", change.in_state("gone")),
        (f"new since {change.name}", change.in_state("new")),
    ):
        if names:
            parts.append(f"{len(names):,} {words}: {named_words(names, most)}")
    return parts


def stand_out_sentence(change: RunChange) -> str:
    """`1 of 6 cases changed significantly` and the next step; empty where no case did."""
    n, n_tested = change.n_up + change.n_down, sum(case.p is not None for case in change.cases)
    if not n:
        return ""
    sentence = f"{counted_words(n, n_tested, 'case')} changed significantly (Benjamini-Hochberg)."
    return f"{sentence} Read {'it' if n == 1 else 'them'} side by side."


def left_out_words(*alone: tuple[int, str]) -> str:
    """`Left out: 3 cases only in run 4.`: number and run of the unpaired cases; empty without any."""
    parts = [f"{counted(n, 'case')} only in {which}" for n, which in alone if n]
    return f"Left out: {', '.join(parts)}." if parts else ""


def gap_sentence(n_cases: int, n_trials: int, gap: float | None) -> str:
    """`Smallest detectable difference: about 26 points, with 20 cases × 5 trials`; `gap` as `smallest_gap`."""
    if gap is None:
        return "Smallest detectable difference: none without cases and trials"
    cases = counted(n_cases, "case")
    trials = counted(n_trials, "trial")
    if gap > 1:
        return f"Smallest detectable difference: none with {cases} × {trials}; add cases"
    about = "at best" if n_cases < FEW_CASES else "about"
    return f"Smallest detectable difference: {about} {points_words(gap)}, with {cases} × {trials}"


def drop_sentence(n_cases: int, n_trials: int, drop: float | None) -> str:
    """`With your pass rates and 20 cases × 5 trials you would notice a drop of 16 points, 4 times in 5`."""
    shape = f"{counted(n_cases, 'case')} × {counted(n_trials, 'trial')}"
    if drop is None:
        return f"With your pass rates and {shape} no drop is noticed 4 times in 5; add cases"
    return f"With your pass rates and {shape} you would notice a drop of {points_words(drop)}, 4 times in 5"


def points_words(difference: float) -> str:
    """`17 points` for 0.17 or -0.17, with more digits only below one point."""
    return POINTS.amount(difference)


def p_words(p: float) -> str:
    """`p 0.027`, two digits that count; `p < 0.001` below that."""
    if p < 0.001:
        return "p < 0.001"
    return f"p {p:.2f}" if p >= 0.1 else f"p {p:.3f}"


def _end(value: float, unit: Unit) -> str:
    return f"{unit.say(value)[0]} {unit.way(value)}"


def _points(*rates: float) -> list[str]:
    """Rates as points without sign, with just as many digits that none but 0 reads 0 and no two read the same.

    No rate differs by more than 100 points, though the end of an interval may lie beyond.
    """
    rates = tuple(min(abs(rate), 1.0) for rate in rates)
    for digits in (0, 1, 2):
        texts = [f"{100 * rate:.{digits}f}" for rate in rates]
        if len(set(texts)) == len(texts) and all(float(one) for one, rate in zip(texts, rates, strict=True) if rate):
            break
    return texts


def _numbers(*values: float) -> list[str]:
    return [number_words(abs(value)) for value in values]


def _durations(*ms: float) -> list[str]:
    return [duration_words(abs(each)) for each in ms]


def _dollars(*costs: float) -> list[str]:
    return [cost_words(abs(cost)) for cost in costs]


POINTS = Unit("better", "worse", _points, ("point", "points"))
SCORES = Unit("better", "worse", _numbers)
FEWER_IS_BETTER = Unit("worse", "better", _numbers)
MILLISECONDS = Unit("slower", "faster", _durations)
DOLLARS = Unit("more expensive", "cheaper", _dollars)


def again_notes(change: RunChange | None) -> dict[str, str]:
    """The outcome of the fresh trials of each flipped case, by name: `flipped, passed 4 of 5 when played again`."""
    notes = {}
    for case in change.played_again if change else ():
        if case.kind != "broken" or change is None:
            continue
        letters = case.after.confirming if case.after else ""
        again = f"passed {letters.count('p')} of {len(letters)} when played again" if letters else "not played again"
        passing = f", {untold_words(case)}" if "p" not in letters else f" ({not_worse_word(change)})"
        verdict = {True: passing, False: " (worse)", None: ""}[change.passes_again(case)]
        notes[case.name] = f"flipped, {again}{verdict if change.is_by_history else ''}"
    return notes
