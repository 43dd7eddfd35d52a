"""Words for the analysis of an experiment: a variant is better, worse, or cannot be told from the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.model.conclusion import counted
from evaldesk.model.experiment import Analysis, Effect, Factor, VariantDifference, VariantRate
from evaldesk.wording.comparison import p_words, points_words
from evaldesk.wording.words import CI, interval_words, share_words

UNEQUAL_TRIALS = "The variants have different numbers of trials; each case weighs the same."


def later_sentence(later_variants: Sequence[str]) -> str:
    """`C was added later and played at another time than the others.`; empty where all were played in turn."""
    if not later_variants:
        return ""
    was = "was" if len(later_variants) == 1 else "were"
    return f"{and_words(later_variants)} {was} added later, and played at another time than the others."


def analysis_sentence(analysis: Analysis) -> str:
    """`C is better than A by 6 to 20 points; B and D cannot be told from A`."""
    if analysis.differences and not analysis.rate_of(analysis.baseline).n_cases:
        return f"{analysis.baseline}, the baseline, has no scored trial, so that no variant is compared with it"
    parts = [
        f"{each.variant} is {each.word} than {analysis.baseline}{_by(each)}"
        for each in analysis.differences
        if each.word in ("better", "worse")
    ]
    others = [each.variant for each in analysis.differences if each.word == "cannot be told"]
    few = [each.variant for each in analysis.differences if each.word == "too few shared cases"]
    if others:
        parts.append(f"{and_words(others)} cannot be told from {analysis.baseline}")
    if few:
        parts.append(f"{and_words(few)} {'has' if len(few) == 1 else 'have'} too few cases in common")
    return "; ".join(parts) or "No variant to compare"


def drafts_sentence(differences: Sequence[VariantDifference]) -> tuple[str, str]:
    """`name_the_date is better by 5 to 19 points` and `the others cannot be told`; each part may be empty."""
    certain = [f"{each.variant} is {each.word}{_by(each)}" for each in differences if each.word in ("better", "worse")]
    others = [each.variant for each in differences if each.word == "cannot be told"]
    few = [each.variant for each in differences if each.word == "too few shared cases"]
    rest = []
    if others:
        rest.append(f"{'the others' if certain and len(others) > 1 else and_words(others)} cannot be told")
    if few:
        rest.append(f"{and_words(few)} {'has' if len(few) == 1 else 'have'} too few cases")
    return "; ".join(certain), "; ".join(rest)


def shown_sentence(n_cases: int, n: int, difference: float | None) -> str:
    """`30 cases × 3 show 12 points, 4 times in 5`: the smallest difference that an experiment of two variants finds."""
    shape = f"{counted(n_cases, 'case')} × {n:,}"
    if difference is None:
        return f"{shape} show no difference 4 times in 5; add cases"
    return f"{shape} show {points_words(difference)}, 4 times in 5"


def best_sentence(analysis: Analysis) -> str:
    """`m1/p2 is the best`, or the variants that may be."""
    names = analysis.may_be_best
    if not names:
        return "No variant has a scored trial"
    if len(names) == 1:
        return f"{names[0]} is {_alone_words(analysis, names[0])}"
    return f"May be the best: {and_words(names)}"


def _alone_words(analysis: Analysis, name: str) -> str:
    """The reason why one variant alone may be the best."""
    others = analysis.ranked - {name}
    names = [each.variant for each in analysis.rates if each.rate is not None]
    if not others:
        return f"the only variant {'with a scored trial' if names == [name] else 'that was played here'}"
    if all(name in each.beaten_by for each in analysis.rates if each.variant in others):
        return (
            f"the best: it beats every other variant{'' if len(names) == len(others) + 1 else ' that was played here'}"
        )
    return "the best: each of the others is beaten by some variant"


def mean_rate_words(rate: VariantRate) -> str:
    """`77 % (63–91 %)`, the mean over cases and its interval; empty without a scored trial."""
    if rate.rate is None:
        return ""
    return share_words(rate.rate) + (f" ({interval_words(rate.interval)})" if rate.interval else "")


def variant_difference_words(difference: VariantDifference) -> str:
    """`cannot be told: +12 points, 95 % CI +5 to +18, for all at once +2 to +21; p 0.016, 0.062 by Holm`."""
    comparison = difference.comparison
    if comparison is None:
        return "no case in common"
    if difference.value is None or difference.p is None or difference.holm_p is None:
        return f"{difference.word}: {comparison.n_better} better and {comparison.n_worse} worse of {comparison.n_cases}"
    parts = [_signed(difference.value)]
    if difference.interval:
        parts.append(f"{CI} {_signed(difference.interval.low)} to {_signed(difference.interval.high)}")
    if difference.family_interval:
        low, high = difference.family_interval.low, difference.family_interval.high
        parts.append(f"for all at once {_signed(low)} to {_signed(high)}")
    unshared = f"; {difference.n_unshared_cases} cases are scored in one only" if difference.n_unshared_cases else ""
    p = f"{p_words(difference.p)}, {p_words(difference.holm_p).removeprefix('p ')} by Holm"
    return f"{difference.word}: {', '.join(parts)}; {p}{unshared}"


def variant_sentences(
    difference: VariantDifference, baseline: str, cost: float | None, baseline_cost: float | None
) -> str:
    """`Better by 6 to 20 points. Costs 4 times as much.`; costs are dollars of a trial, None where unknown."""
    if difference.word in ("better", "worse"):
        quality = f"{difference.word.capitalize()}{_by(difference)}."
    elif difference.word == "cannot be told":
        quality = f"Cannot be told from {baseline}."
    else:
        quality = f"{difference.word.capitalize()}."
    return f"{quality} {_cost_sentence(cost, baseline_cost)}".rstrip()


def _cost_sentence(cost: float | None, baseline_cost: float | None) -> str:
    """How many times the cost of the baseline; empty where one is unknown or they are the same within a tenth."""
    if not cost or not baseline_cost:
        return ""
    ratio = cost / baseline_cost
    if 0.9 < ratio < 1.1:
        return ""
    if ratio >= 1.95:
        return f"Costs {ratio:.0f} times as much."
    share = abs(ratio - 1)
    return f"Costs {100 * share:.0f} % {'more' if ratio > 1 else 'less'}."


def effect_sentences(effects: Sequence[Effect], factors: Sequence[Factor]) -> list[str]:
    """`p2 beats p1 by 16 points (11 to 20) over all 3 levels of model`, then its interactions."""
    sizes = {factor.name: len(factor.levels) for factor in factors}
    return [_effect_sentence(each, sizes) for each in effects if each.value is not None]


def luck_sentence(analysis: Analysis) -> str:
    """The share of the leader's lead that luck alone would give; empty for fewer than two variants."""
    luck = analysis.luck
    if luck is None or luck.lead <= 0:
        return ""
    return (
        f"{luck.leader} leads; the best of {luck.n_variants} equal variants with {luck.n_trials:,} trials each looks "
        f"{points_words(luck.lead)} better than it is, by luck alone. Confirm on fresh trials before you choose"
    )


def and_words(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _by(difference: VariantDifference) -> str:
    if difference.interval is None:
        return f" by {points_words(difference.value or 0.0)}"
    near, far = sorted((abs(difference.interval.low), abs(difference.interval.high)))
    if difference.interval.low <= 0 <= difference.interval.high:
        return f" by {points_words(difference.value or 0.0)}"
    return f" by {points_words(near).split(' ')[0]} to {points_words(far)}"


def _effect_sentence(effect: Effect, sizes: dict[str, int]) -> str:
    value, is_sure = effect.value or 0.0, effect.word in ("better", "worse")
    chance = "" if is_sure else f", which could be chance ({p_words(1.0 if effect.holm_p is None else effect.holm_p)})"
    if effect.is_interaction:
        way = "more" if value > 0 else "less"
        return (
            f"With {effect.other_level} the step from {effect.reference} to {effect.level} brings "
            f"{points_words(value)} {way} than with {effect.other_reference}{chance}"
        )
    others = [f"{n} levels of {name}" for name, n in sizes.items() if name != effect.factor]
    winner, loser = (effect.level, effect.reference) if value >= 0 else (effect.reference, effect.level)
    ends = ""
    if effect.interval:
        low, high = sorted(
            (effect.interval.low * (1 if value >= 0 else -1), effect.interval.high * (1 if value >= 0 else -1))
        )
        ends = f" ({100 * low:.0f} to {100 * high:.0f})"
    verb = "beats" if is_sure else "is above"
    return f"{winner} {verb} {loser} by {points_words(value)}{ends} over all {and_words(others)}{chance}"


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{points_words(value)}"
