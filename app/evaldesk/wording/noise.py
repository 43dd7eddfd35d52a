"""Words for noise, rare failures and judges that err: count first, then the interval, then advice."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log10

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import fewest_passes
from evaldesk.statistics.judge_rate import CorrectedRate
from evaldesk.statistics.noise import RARE_FAILURE, Flakiness, NoiseSplit, chance_to_see
from evaldesk.wording.words import CI, NOTHING_SCORED, interval_words, share_words

_AS_GOOD = 0.8
_HARDLY = 0.25


def noise_sentence(noise_split: NoiseSplit | None, share: tuple[float, float, float] | None = None) -> str:
    """The split of the noise, and whether to add trials or cases; empty where that is unknown.

    `share` is the share within cases, its mean and 90 % range: advice is given only where it holds at both ends.
    """
    if noise_split is None:
        return ""
    if noise_split.within_share is None:
        n = f"{noise_split.n_trials:.3g}"
        return f"{noise_split.n_cases:,} cases × {n} without a flip: whether cases or trials differ cannot be told yet."
    within = round(100 * noise_split.within_share)
    sentence = f"{within} % between trials of a case, {100 - within} % between cases."
    if share is None:
        return f"{sentence} {_advice(noise_split)}"
    total = noise_split.within_cases + noise_split.between_cases
    ends = {
        _advice(replace(noise_split, within_cases=end * total, between_cases=(1 - end) * total)) for end in share[1:]
    }
    advice = ends.pop() if len(ends) == 1 else "Too few trials to tell whether trials or cases narrow it more."
    return f"{sentence} {advice}"


def noise_why(noise_split: NoiseSplit | None) -> str:
    """The basis of the advice of `noise_sentence`; empty without advice."""
    if noise_split is None or noise_split.within_share is None:
        return ""
    by_trials, by_cases = _narrowing(noise_split)
    return (
        f"Twice the trials would narrow the interval by {share_words(by_trials)}, "
        f"twice the cases by about {share_words(by_cases)}."
    )


def flaky_words(n: int, c: int) -> str:
    """The flakiness of one case over n scored trials: `flaky: 3 of 5 passed`."""
    if n == 0:
        return "not scored"
    if n == 1:
        return "1 trial: flakiness unknown"
    if 0 < c < n:
        return f"flaky: {c:,} of {n:,} passed"
    if c == 0:
        return f"failed in all {n:,} trials"
    chance_unseen = 1 - chance_to_see(RARE_FAILURE, n)
    if chance_unseen < 0.1:
        return f"stable in {n:,} trials"
    return f"stable in {n:,} trials (a 10 % failure rate stays unseen in {round(100 * chance_unseen)} % of such runs)"


def flakiness_sentence(flakiness: Flakiness) -> str:
    """`3 of 12 cases are flaky; two trials of a case disagree 8 % of the time`."""
    if not flakiness.n_known or flakiness.disagreement is None:
        return "Flakiness unknown: no case has two scored trials"
    n, n_known = flakiness.n_flaky, flakiness.n_known
    sentence = f"{n:,} of {n_known:,} {'case is' if n_known == 1 else 'cases are'} flaky"
    if n:
        sentence += f"; two trials of a case disagree {share_words(flakiness.disagreement)} of the time"
    return f"{sentence}; {flakiness.n_unknown:,} unknown, with one trial" if flakiness.n_unknown else sentence


def no_failure_sentence(n: int, bound: float) -> str:
    """`0 of 30 failed; 95 % upper bound 10 %`; `bound` as `failure_bound`, rounded up so that the promise holds."""
    if not n:
        return NOTHING_SCORED
    digits = max(0, -floor(log10(100 * bound)))
    most = ceil(100 * bound * 10**digits - 1e-9) / 10**digits
    return f"0 of {n:,} failed; 95 % upper bound {most:.{digits}f} %"


def stop_sentence(interval: Interval, threshold: float) -> str:
    """Whether a run that is watched may stop, by its anytime interval and the rate that it must reach."""
    share = f"{100 * threshold:.3g} %"
    if interval.high < threshold:
        return f"Enough to stop: below {share}, {CI} {interval_words(interval)}"
    if interval.low > threshold:
        return f"Enough to stop: above {share}, {CI} {interval_words(interval)}"
    return f"Too close to {share} to stop; {CI} {interval_words(interval)}"


def corrected_sentence(rate: CorrectedRate | None, name: str = "The judge") -> str:
    """`The judge says 78 %; corrected about 84 %, 95 % CI 71–95 %`, and when no correction holds."""
    if rate is None:
        return f"Not measurable: {name[:1].lower()}{name[1:]} is no better than chance on the labelled answers"
    sentence = f"{name} says {share_words(rate.judged_rate)}; corrected about {share_words(rate.corrected)}"
    if rate.is_clipped:
        return f"{sentence}, the limit: its error rates do not fit this run"
    return f"{sentence}, {CI} {interval_words(rate.interval)}" if rate.interval else sentence


def g_pass_words(k: int, share: float) -> str:
    """The condition that G-Pass@k counts: `at least 3 of 4 trials pass`."""
    n_needed = fewest_passes(k, share)
    return f"at least {n_needed:,} of {k:,} trials {'passes' if n_needed == 1 else 'pass'}"


def _advice(noise_split: NoiseSplit) -> str:
    by_trials, by_cases = _narrowing(noise_split)
    if by_trials >= _AS_GOOD * by_cases:
        return "Add trials or cases."
    return "Add cases." if by_trials >= _HARDLY * by_cases else "Add cases, not trials."


def _narrowing(noise_split: NoiseSplit) -> tuple[float, float]:
    """The narrowing of the interval by twice the trials, and by twice the cases, which is always 29 %."""
    now = noise_split.error(noise_split.n_cases, noise_split.n_trials)
    by_trials = 1 - noise_split.error(noise_split.n_cases, 2 * noise_split.n_trials) / now
    return by_trials, 1 - noise_split.error(2 * noise_split.n_cases, noise_split.n_trials) / now
