"""The decisive turn of a failed trial, from forks before its turns: profile, search, confirmation. (decision 514)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import comb, exp, fsum, lgamma, log, log2

from evaldesk.model.decisive_turn import Answer, Batch, Confirmation, Count, Drop, Method, Outcome
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.exact_tests import ALPHA, fisher_drop
from evaldesk.statistics.intervals import wilson

N_DRAWS = 400_000
SEED = 0
SURE = 0.8
"""A profile names a turn whose drop is the largest with at least this chance."""
STOP = 0.98
"""A search ends at this posterior."""
LOST = 0.3
"""A case whose pass rate is below this fails whatever happens in its turns."""
OPEN = 0.5
"""Below this rate before the first turn a search is not used; below it the last turn is not named."""
MOST_OPEN = 0.95
AFTER = 0.1
"""The rate that a search assumes after the decisive turn."""
N_CONFIRM = 8
MOST_OF_TURN = 20
FEWEST_OF_TURN = 5
_SURE_OF_RATE = 0.9
_CHUNK = 20_000
_FEWEST_UNSCORED = 6


def method_of(n_turns: int, own: Count) -> Method:
    """Search for more than 4 turns, unless the case passes too seldom for one. `own` are trials of the case."""
    return "search" if n_turns > 4 and _smoothed(own) >= OPEN else "profile"


def fewest_forks(n_turns: int, own: Count) -> int:
    """The smallest budget that compares the turns."""
    if method_of(n_turns, own) == "search":
        return 2 * N_CONFIRM + (n_turns - 1).bit_length()
    return _profile_size(n_turns, own, FEWEST_OF_TURN)


def forks_of_turn(n_turns: int, own: Count, budget: int) -> int:
    """The forks of each turn of a profile within the budget, at most 20; 0 where the budget is too small."""
    sizes = range(MOST_OF_TURN, FEWEST_OF_TURN - 1, -1)
    return next((n for n in sizes if _profile_size(n_turns, own, n) <= budget), 0)


def next_forks(n_turns: int, own: Count, budget: int, outcomes: Sequence[Outcome]) -> tuple[Batch, ...]:
    """The forks to play after these outcomes, of `budget` in all; () when the answer can be given.

    It depends on nothing else, so an inquiry that was interrupted goes on where it was.
    """
    if len(outcomes) >= budget or is_unscored(outcomes):
        return ()
    if method_of(n_turns, own) == "profile":
        return _rest_of_profile(n_turns, own, forks_of_turn(n_turns, own, budget), outcomes)
    posterior = _posterior_of(n_turns, own, outcomes)
    n_search = sum(each.stage == "search" for each in outcomes)
    is_confirming = any(each.stage == "confirmation" for each in outcomes)
    if not is_confirming and max(posterior) < STOP and n_search < budget - 2 * N_CONFIRM:
        return (Batch("search", turn_to_fork(posterior, search_rate(own)), 1),)
    turn = _likeliest(posterior)
    n_missing = {
        each: N_CONFIRM - sum(outcome.stage == "confirmation" and outcome.turn == each for outcome in outcomes)
        for each in _confirmed_turns(turn, n_turns)
    }
    return tuple(Batch("confirmation", each, n) for each, n in n_missing.items() if n > 0)


def answer_from(n_turns: int, own: Count, outcomes: Sequence[Outcome], *, n_draws: int = N_DRAWS) -> Answer:
    """The answer that these outcomes give; each that is missing counts as nothing."""
    counts = _counts(n_turns, outcomes)
    if method_of(n_turns, own) == "profile":
        return profile((counts[0].plus(own), *counts[1:]), n_draws=n_draws)
    posterior = _posterior_of(n_turns, own, outcomes)
    turn = _likeliest(posterior)
    confirmations = _counts(n_turns, [each for each in outcomes if each.stage == "confirmation"])
    confirmation = confirm(turn, confirmations[turn - 1], confirmations[turn] if turn < n_turns else None)
    if confirmation.before.n and confirmation.p <= ALPHA and _may_decide(turn, n_turns, confirmation.before):
        return Answer("located", turn, counts, (), posterior, confirmation)
    return Answer("not located", None, counts, (), posterior, confirmation)


def is_unscored(outcomes: Sequence[Outcome]) -> bool:
    """Whether so many forks ended without a verdict that more of them say nothing."""
    n_unscored = sum(each.passed is None for each in outcomes)
    return n_unscored >= _FEWEST_UNSCORED and 2 * n_unscored > len(outcomes)


def profile(counts: Sequence[Count], *, n_draws: int = N_DRAWS) -> Answer:
    """The answer over the counts before each turn, in order, of a trial that failed in the end."""
    drops = _drops(counts, n_draws)
    largest = max(drops, key=lambda each: each.p_largest)
    last = len(counts)
    is_located = largest.p_largest >= SURE and largest.holm_p <= ALPHA
    is_flat = all(each.holm_p > ALPHA for each in drops[:-1])
    if is_flat and _is_below(counts[0], LOST):
        return Answer("already lost at the start", None, tuple(counts), drops)
    if is_flat and all(each.n and wilson(each.passes, each.n).low > OPEN for each in counts):
        return Answer("bad luck", last, tuple(counts), drops)
    if is_located and _may_decide(largest.turn, last, largest.before):
        return Answer("located", largest.turn, tuple(counts), drops)
    return Answer("not located", None, tuple(counts), drops)


def chances_of_largest_drop(
    counts: Sequence[Count], *, n_draws: int = N_DRAWS
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The chance of each drop that it is the largest: among those between the counts, and with that to the failure.

    Each rate is drawn from its posterior, Beta(1+s, 1+n-s), with a seed and in chunks that bound the memory of 200
    turns. The recorded failure counts as 0 of as many as before the last turn.
    """
    import numpy as np

    ends = [*counts, Count(0, counts[-1].n)]
    chance = np.random.default_rng(SEED)
    alpha = np.array([1.0 + each.passes for each in ends])
    beta = np.array([1.0 + each.n - each.passes for each in ends])
    between, with_end = np.zeros(len(counts) - 1, dtype=np.int64), np.zeros(len(counts), dtype=np.int64)
    for start in range(0, n_draws, _CHUNK):
        rates = chance.beta(alpha, beta, size=(min(_CHUNK, n_draws - start), len(ends)))
        drops = rates[:, :-1] - rates[:, 1:]
        with_end += np.bincount(drops.argmax(axis=1), minlength=len(with_end))
        if len(between):
            between += np.bincount(drops[:, :-1].argmax(axis=1), minlength=len(between))
    return tuple(float(each) / n_draws for each in between), tuple(float(each) / n_draws for each in with_end)


def chance_of_higher_rate(count: Count, other: Count) -> float:
    """The chance that the first rate is the higher one, each by its posterior Beta(1+s, 1+n-s), in closed form."""
    a, b = 1 + count.passes, 1 + count.n - count.passes
    c, d = 1 + other.passes, 1 + other.n - other.passes
    logs = (_log_beta(c + i, b + d) - log(b + i) - _log_beta(1 + i, b) - _log_beta(c, d) for i in range(a))
    return min(1.0, fsum(exp(each) for each in logs))


def search_rate(own: Count) -> float:
    """The rate before the decisive turn that a search assumes: of the case's own trials, within 0.5 to 0.95."""
    return min(MOST_OPEN, max(OPEN, _smoothed(own)))


def turn_to_fork(posterior: Sequence[float], a: float, b: float = AFTER) -> int:
    """The best turn for the next fork: one before it passes with a up to the decisive turn, and with b after it."""
    entropy_a, entropy_b = _entropy(a), _entropy(b)
    best, most = 1, 0.0
    for turn, below in enumerate(accumulate(posterior, initial=0.0), 1):
        if turn > len(posterior):
            break
        # The decisive turn is this one or a later one with chance 1 - below.
        passes = a * (1 - below) + b * below
        gain = _entropy(passes) - entropy_a * (1 - below) - entropy_b * below
        if gain > most + 1e-12:
            best, most = turn, gain
    return best


def posterior_after(posterior: Sequence[float], turn: int, passed: bool, a: float, b: float = AFTER) -> list[float]:
    """The chances of each turn to be the decisive one, after a fork before `turn`."""
    likelihoods = [(rate if passed else 1 - rate) for rate in (a, b)]
    weights = [each * likelihoods[0 if turn <= at else 1] for at, each in enumerate(posterior, 1)]
    total = sum(weights)
    return [each / total for each in weights]


def confirm(turn: int, before: Count, after: Count | None) -> Confirmation:
    """Fisher's test of fresh forks; after the last turn stands the recorded failure, counted as often as before it."""
    after = after or Count(0, before.n)
    return Confirmation(turn, before, after, fisher_drop(before.passes, before.n, after.passes, after.n))


def _drops(counts: Sequence[Count], n_draws: int) -> tuple[Drop, ...]:
    """Those between turns, then that of the last turn to the recorded failure, which is in the family of Holm too."""
    pairs = list(pairwise([*counts, Count(0, counts[-1].n)]))
    ps = [fisher_drop(before.passes, before.n, after.passes, after.n) for before, after in pairs]
    between, with_end = chances_of_largest_drop(counts, n_draws=n_draws)
    rows = enumerate(zip(pairs, (*between, None), with_end, ps, holm(ps), strict=True), 1)
    return tuple(
        Drop(turn, before, after, p_between, p_largest, p, holm_p)
        for turn, ((before, after), p_between, p_largest, p, holm_p) in rows
    )


def _may_decide(turn: int, n_turns: int, before: Count) -> bool:
    """Whether a fall is one of a turn: that of the last turn to the recorded end counts where most forks passed."""
    return turn < n_turns or before.rate > OPEN


def _is_below(count: Count, rate: float) -> bool:
    """Whether the rate is below this one with a chance of 90 %, by its posterior."""
    n = count.n + 1
    return fsum(comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(count.passes + 1, n + 1)) >= _SURE_OF_RATE


def _profile_size(n_turns: int, own: Count, n: int) -> int:
    """The forks of a profile of `n` a turn; the case's own trials stand before the first turn."""
    return max(0, n - own.n) + (n_turns - 1) * n


def _rest_of_profile(n_turns: int, own: Count, n: int, outcomes: Sequence[Outcome]) -> tuple[Batch, ...]:
    n_played = Counter(each.turn for each in outcomes)
    n_wanted = [max(0, n - own.n), *[n] * (n_turns - 1)]
    n_missing = [(turn, each - n_played[turn]) for turn, each in enumerate(n_wanted, 1)]
    return tuple(Batch("profile", turn, each) for turn, each in n_missing if each > 0)


def _posterior_of(n_turns: int, own: Count, outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """The chances after the forks of the search, uniform before them; those of the confirmation stay fresh."""
    posterior = [1 / n_turns] * n_turns
    for each in outcomes:
        if each.stage == "search" and each.passed is not None:
            posterior = posterior_after(posterior, each.turn, each.passed, search_rate(own))
    return tuple(posterior)


def _confirmed_turns(turn: int, n_turns: int) -> tuple[int, ...]:
    return (turn,) if turn == n_turns else (turn, turn + 1)


def _likeliest(posterior: Sequence[float]) -> int:
    return max(range(len(posterior)), key=posterior.__getitem__) + 1


def _counts(n_turns: int, outcomes: Sequence[Outcome]) -> tuple[Count, ...]:
    verdicts = [(each.turn, each.passed) for each in outcomes if each.passed is not None]
    n, passes = Counter(turn for turn, _ in verdicts), Counter(turn for turn, passed in verdicts if passed)
    return tuple(Count(passes[turn], n[turn]) for turn in range(1, n_turns + 1))


def _smoothed(own: Count) -> float:
    return (own.passes + 1) / (own.n + 2)


def _entropy(p: float) -> float:
    """Of a yes or no, in bits."""
    return 0.0 if p <= 0 or p >= 1 else -p * log2(p) - (1 - p) * log2(1 - p)


def _log_beta(a: int, b: int) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
