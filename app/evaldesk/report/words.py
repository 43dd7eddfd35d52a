"""Words for doubt, the same on pages and on the command line: count first, then what the rate could be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, isclose, log10

from evaldesk.report.histogram import Bin
from evaldesk.report.intervals import Interval, wilson
from evaldesk.report.pass_k import CaseCounts, CurvePoint

FEW_TRIALS = 5
FEW_CASES = 10
SENTENCES: Mapping[str, tuple[str, ...]] = {
    "words": (
        "passed_sentence",
        "passed_words",
        "doubt_words",
        "live_doubt_words",
        "interval_words",
        "rate_words",
        "share_words",
        "beside_words",
        "cost_words",
        "counted_words",
        "mean_sentence",
        "bin_words",
        "basis_sentence",
        "errors_sentence",
        "threshold_words",
        "score_words",
        "number_words",
        "undefined_words",
        "curve_sentence",
        "curve_note",
    ),
    "noise_words": (
        "noise_sentence",
        "flaky_words",
        "flakiness_sentence",
        "no_failure_sentence",
        "exact_words",
        "stop_sentence",
        "corrected_sentence",
        "g_pass_words",
    ),
    "comparison_words": (
        "comparison_sentence",
        "difference_words",
        "flips_sentence",
        "pairing_note",
        "changes_sentence",
        "gap_sentence",
        "points_words",
        "p_words",
    ),
    "agreement_words": ("skill_sentence", "kappa_words", "alpha_sentence", "enough_sentence"),
}
"""Every sentence with a number in it that a page or the command line shows, by module; none is written elsewhere."""


def passed_sentence(n_passed: int, n_scored: int, interval: Interval | None) -> str:
    """`41 of 50 passed; could be 66–98 %`. Below 5 trials no rate is named."""
    if not n_scored:
        return "Nothing was scored"
    doubt = doubt_words(n_scored, interval)
    return f"{passed_words(n_passed, n_scored)}; {doubt}" if doubt else passed_words(n_passed, n_scored)


def passed_words(n_passed: int, n_scored: int) -> str:
    """`41 of 50 passed`."""
    return f"{n_passed:,} of {n_scored:,} passed"


def doubt_words(n_scored: int, interval: Interval | None) -> str:
    """`could be 66–98 %`; empty without an interval, and a reason instead of a rate below 5 trials."""
    if not n_scored or interval is None:
        return ""
    return f"could be {interval_words(interval)}" if n_scored >= FEW_TRIALS else "too few to name a rate"


def live_doubt_words(n_scored: int, interval: Interval | None) -> str:
    """`could be 71–98 %, however often you look`: the doubt of an interval that is valid at every moment of a run."""
    doubt = doubt_words(n_scored, interval)
    return f"{doubt}, however often you look" if doubt.startswith("could be") else doubt


def rate_words(rate: float, interval: Interval) -> str:
    """`80 %, could be 63–91 %`, for a rate that is drawn."""
    return f"{share_words(rate)}, could be {interval_words(interval)}"


def share_words(rate: float) -> str:
    """`8 %`, with more digits only where it would read as none or all: `0.2 %`, `99.6 %`."""
    for digits in range(17):
        said = f"{100 * rate:.{digits}f}"
        if float(said) not in (0, 100) or rate in (0, 1):
            break
    return f"{said} %"


def beside_words(value: float, bound: float) -> str:
    """`0.8`: three digits that count, more where the value would seem to lie elsewhere of `bound` than it does."""
    if isclose(value, bound, abs_tol=1e-9):
        value = bound
    for digits in range(3, 17):
        said = f"{value:.{digits}g}"
        if (float(said) < bound, float(said) > bound) == (value < bound, value > bound):
            break
    return said


def cost_words(cost: float) -> str:
    """`$0.0123`, `$0.50`, `$1,204.50`, `$0`; a sum too small for four places has as many as it needs."""
    if not cost:
        return "$0"
    is_in_cents = cost >= 1 or (cost >= 0.01 and round(cost, 4) == round(cost, 2))
    return f"${cost:,.{2 if is_in_cents else max(4, 1 - floor(log10(cost)))}f}"


def counted_words(n: int, n_all: int, noun: str) -> str:
    """`1 of 3 cases`, `1 of 1 case`."""
    return f"{n:,} of {n_all:,} {noun}{'' if n_all == 1 else 's'}"


def interval_words(interval: Interval) -> str:
    """`66–98 %`, with more digits only where both ends would read the same."""
    for digits in (0, 1, 2):
        low, high = f"{100 * interval.low:.{digits}f}", f"{100 * interval.high:.{digits}f}"
        if low != high:
            return f"{low}–{high} %"
    return f"{low} %"


def mean_sentence(mean: float, interval: Interval | None, n: int, n_keeping: int | None, needs: str) -> str:
    """`Mean 0.94 of 57; could be 0.89–0.99. 54 of 57 are at least 0.50.`; `n_keeping` None where it only informs."""
    could = f"; could be {number_words(interval.low)}–{number_words(interval.high)}" if interval else ""
    kept = "" if n_keeping is None else f" {n_keeping:,} of {n:,} {'is' if n_keeping == 1 else 'are'} {needs}."
    return f"Mean {number_words(mean)} of {n:,}{could}.{kept}"


def bin_words(found: Bin, *, is_last: bool) -> str:
    """`0.80 to below 0.90`, `0.90 to 1.00` for the last bin, `3` for a single whole number."""
    if found.low == found.high:
        return f"{found.low:g}"
    return f"{number_words(found.low)} to {'' if is_last else 'below '}{number_words(found.high)}"


def basis_sentence(counts: Sequence[CaseCounts], interval: Interval | None) -> str:
    """What the interval is over, and why it is wider than the number of trials would suggest."""
    rows = [row for row in counts if row[0] > 0 and row[2] > 0]
    n_cases, n = sum(row[2] for row in rows), sum(row[0] * row[2] for row in rows)
    n_passed = sum(row[1] * row[2] for row in rows)
    if not n or interval is None:
        return ""
    if n < FEW_TRIALS:
        return f"A rate is named from {FEW_TRIALS} scored trials on."
    if n_cases == 1:
        return f"Interval over {n:,} trials of one case; other cases may fare otherwise."
    rough = " With so few cases it is rough." if n_cases < FEW_CASES else ""
    if n == n_cases:
        return f"Interval over {n_cases:,} cases, one trial each.{rough}"
    said = f"Interval over {n_cases:,} cases, clustered by case.{rough}"
    unrelated = wilson(n_passed, n)
    if unrelated.high - unrelated.low >= interval.high - interval.low:
        return said
    return (
        f"{said} {n:,} unrelated trials would give {interval_words(unrelated)}: "
        "repeats of one case say less than new cases do."
    )


def errors_sentence(n_passed: int, n_scored: int, n_errored: int, errors_are_failures: bool) -> str:
    """How errors enter the number, and what it would be the other way round; empty without errors.

    `n_scored` is the denominator of the number shown.
    """
    if not n_errored:
        return ""
    if errors_are_failures:
        return f"Errors are counted as failures. Without them: {n_passed:,} of {n_scored - n_errored:,}."
    return f"Errors are not counted as failures. Count them: {n_passed:,} of {n_scored + n_errored:,}."


def threshold_words(threshold: float | None, *, is_higher_better: bool = True) -> str:
    """`at least 0.80`, or `at most 3.00` where less is better; `informs` without a threshold."""
    if threshold is None:
        return "informs"
    return f"{'at least' if is_higher_better else 'at most'} {number_words(threshold)}"


def score_words(value: float, threshold: float | None, *, is_higher_better: bool = True) -> str:
    """The value with two digits; one that misses its threshold never reads as if it kept to it: `<0.80`, `>3.00`."""
    said = number_words(value)
    if threshold is None or said != number_words(threshold):
        return said
    if is_higher_better:
        return f"<{said}" if value < threshold else said
    return f">{said}" if value > threshold else said


def number_words(value: float) -> str:
    """Two digits after the point, none from 100 on: `0.80`, `3.00`, `1,204`."""
    return f"{value:,.0f}" if abs(value) >= 99.995 else f"{value:.2f}"


def undefined_words(k: int, n: int) -> str:
    """Why pass@k and pass^k are undefined for a case with n scored trials."""
    if n == 0:
        return "No trial of this case was scored."
    return f"pass@{k} needs {k} scored trials; this case has {n}."


def curve_sentence(points: Sequence[CurvePoint]) -> str:
    """`pass@k goes from 0.80 to 1.00, pass^k from 0.80 to 0.43 at k 5`; empty with fewer than two points."""
    if len(points) < 2 or points[0].pass_at_k is None or points[0].pass_hat_k is None:
        return ""
    first, last = points[0], points[-1]
    at_k = f"pass@k goes from {first.pass_at_k:.2f} to {last.pass_at_k or 0:.2f}"
    return f"{at_k}, pass^k from {first.pass_hat_k:.2f} to {last.pass_hat_k or 0:.2f} at k {last.k}"


def curve_note(n_cases: int, n_all_cases: int, k: int, *, is_live: bool = False) -> str:
    """Said under points of the curves that rest on fewer cases than the run has; else empty."""
    if n_cases >= n_all_cases:
        return ""
    ending = "these rows still move." if is_live else "the others are left out of these rows."
    said = f"{counted_words(n_cases, n_all_cases, 'case')} {'has' if n_cases == 1 else 'have'}"
    return f"{said} {k} scored {'trial' if k == 1 else 'trials'}; {ending}"
