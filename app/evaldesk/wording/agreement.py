"""Words for agreement: counts first, then kappa with its interval, then the labels that are missing."""

from __future__ import annotations

from evaldesk.model.conclusion import counted
from evaldesk.statistics.agreement import Agreement, JudgeSkill
from evaldesk.wording.words import CI, counted_words

ENOUGH_LABELS = 50
ENOUGH_FAILURES = 15


def skill_sentence(name: str, skill: JudgeSkill) -> str:
    """`Response match agrees with the labels 47 times of 50; on failures 8 of 12`."""
    if not skill.n:
        return f"{name} has no verdict on a labelled trial"
    times = "time" if skill.n_agreed == 1 else "times"
    sentence = f"{name} agrees with the labels {skill.n_agreed:,} {times} of {skill.n:,}"
    return f"{sentence}; on failures {skill.n_bad_failed:,} of {skill.n_bad:,}" if skill.n_bad else sentence


def found_sentence(skill: JudgeSkill) -> str:
    """`Agrees on 43 of 50 trials: finds it in 8 of 12 where people found it, in 3 of 38 where they did not`."""
    if not skill.n:
        return "No verdict on a trial that was read"
    there, elsewhere = (skill.n_bad_failed, skill.n_bad), (skill.n_good - skill.n_good_passed, skill.n_good)
    return (
        f"Agrees on {counted_words(skill.n_agreed, skill.n, 'trial')}: finds it in {there[0]:,} of {there[1]:,} "
        f"where people found it, in {elsewhere[0]:,} of {elsewhere[1]:,} where they did not"
    )


def kappa_words(agreement: Agreement) -> str:
    """`kappa 0.55, 95 % CI 0.36 to 0.74`, and when it is not measurable."""
    if not agreement.n:
        return "no labels to compare"
    if agreement.kappa is None:
        return "kappa is not measurable: one side has only one verdict"
    if agreement.interval is None:
        why = "there is no disagreement yet" if agreement.n == agreement.n_agreed else "there are too few labels"
        return f"kappa {_signed_number(agreement.kappa)}, without an interval: {why}"
    low, high = max(agreement.interval.low, -1.0), min(agreement.interval.high, 1.0)
    return f"kappa {_signed_number(agreement.kappa)}, {CI} {_signed_number(low)} to {_signed_number(high)}"


def alpha_sentence(n_labellers: int, n_units: int, alpha: float | None, noun: str = "trial") -> str:
    """`3 people labelled 12 trials in common: Krippendorff's alpha 0.74, tentative`."""
    if n_labellers < 2 or not n_units:
        return ""
    sentence = f"{n_labellers} people labelled {counted(n_units, noun)} in common"
    if alpha is None:
        return f"{sentence}, all equal: Krippendorff's alpha is not measurable"
    return f"{sentence}: Krippendorff's alpha {_signed_number(alpha)}, {_reliance(alpha)}"


def enough_sentence(skill: JudgeSkill) -> str:
    """The labels that are missing before a metric is reliable; empty with enough labels."""
    missing_words = []
    if skill.n < ENOUGH_LABELS:
        missing_words.append(counted(ENOUGH_LABELS - skill.n, "more label"))
    if skill.n_bad < ENOUGH_FAILURES:
        missing_words.append(f"{ENOUGH_FAILURES - skill.n_bad} more of failures")
    if not missing_words:
        return ""
    return f"Too few labels: add {' and '.join(missing_words)}"


def next_labels_sentence(n_missing: tuple[int, ...], half_width: float, verb: str = "label") -> str:
    """`For ± 10 points, label 42 that it passed and 18 that it failed`; empty where none is missing."""
    parts = [f"{n:,} that it {verdict}" for n, verdict in zip(n_missing, ("passed", "failed"), strict=True) if n]
    return f"For ± {100 * half_width:.0f} points, {verb} {' and '.join(parts)}" if parts else ""


def _reliance(alpha: float) -> str:
    """The customary bounds. (Krippendorff 2004: 0.800 and 0.667)"""
    if alpha >= 0.8:
        return "reliable"
    return "tentative" if alpha >= 0.667 else "too low to rely on the labels"


def _signed_number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
