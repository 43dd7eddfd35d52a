"""How many trajectories are matched and answers compared a second, on one core, without the start of a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.row import Row, rounded
from evaldesk.matching import match_trajectory
from evaldesk.metrics import rouge1
from evaldesk.statistics.intervals import pass_curve

Calls = list[dict[str, Any]]

N_ROUNDS = 5
ROUND_S = 0.3
SENTENCES = (
    "I rolled a 20-sided die and got 11, which is not a prime number.",
    "Your flight to Paris leaves on Friday at 9:40, and the hotel is booked for three nights.",
    "The refund of $54.04 was sent to the card ending in 1234; it takes up to five working days.",
    "There is nothing in your cart yet. Would you like me to look for running shoes in your size?",
)


def matches(n_calls: int) -> str:
    """The name of a row."""
    return f"trajectory matches, {n_calls} calls"


def measure(folder: Path) -> list[Row]:
    """Matches of 3 and of 20 calls, pairs of ROUGE-1 beside those of rouge-score alone, and pass@k of many cases."""
    return [
        Row(matches(3), _matches_per_s(3), "/s", 50_000),
        Row(matches(20), _matches_per_s(20), "/s", 8_000),
        Row("trajectory matches, 20 calls, more arguments allowed", _matches_per_s(20, args="superset"), "/s"),
        Row("trajectory alignments, 20 calls", _alignments_per_s(20), "/s"),
        *_rouge_rows(),
        Row("pass@k and pass^k to k = 10 over 100,000 cases", _pass_curve_ms(100_000), "ms"),
    ]


def _matches_per_s(n: int, **options: Any) -> float:
    expected = _calls(n)
    actuals = _actuals(n)

    def match_all() -> None:
        for order in ("exact", "in_order", "any_order"):
            for actual in actuals:
                match_trajectory(expected, actual, order=order, **options)

    return _per_s(match_all, 3 * len(actuals))


def _alignments_per_s(n: int) -> float:
    expected = _calls(n)
    actuals = _actuals(n)

    def align_all() -> None:
        for actual in actuals:
            _ = match_trajectory(expected, actual).alignment

    return _per_s(align_all, len(actuals))


def _pass_curve_ms(n_cases: int) -> float:
    cases = [(10, index % 11, 1) for index in range(n_cases)]

    def reckon() -> None:
        pass_curve(cases)

    return rounded(1000 / _per_s(reckon, 1))


def _calls(n: int) -> Calls:
    return [{"name": f"tool_{at % 4}", "args": {"city": "Paris", "page": at, "is_new": True}} for at in range(n)]


def _actuals(n: int) -> list[Calls]:
    """The same calls, with the last one another, in the opposite order, with one too many, and half of them."""
    same = _calls(n)
    other: Calls = [*same[:-1], {"name": "tool_0", "args": {"city": "Rome"}}]
    return [same, other, same[::-1], [*same, same[0]], same[: n // 2]]


def _rouge_rows() -> list[Row]:
    from rouge_score.rouge_scorer import RougeScorer

    # More texts than any memory of whole texts holds; only words come again, as they do in life.
    pairs = [(_turned(one, at), _turned(other, at + 1)) for at in range(8) for one in SENTENCES for other in SENTENCES]
    plain = RougeScorer(["rouge1"], use_stemmer=True)
    return [
        Row("ROUGE-1, tokenized as ADK does: pairs", _pairs_per_s(rouge1, pairs), "/s"),
        Row("ROUGE-1, rouge-score alone: pairs", _pairs_per_s(plain.score, pairs), "/s"),
    ]


def _turned(text: str, n_words: int) -> str:
    words = text.split()
    return " ".join([*words[n_words:], *words[:n_words]])


def _pairs_per_s(compare: Callable[[str, str], object], pairs: Sequence[tuple[str, str]]) -> float:
    def compare_all() -> None:
        for reference, answer in pairs:
            compare(reference, answer)

    compare_all()
    return _per_s(compare_all, len(pairs))


def _per_s(work: Callable[[], None], n: int) -> float:
    """Units of `work`, which has `n`, done in a second of this process; the best of a few rounds."""
    best = 0.0
    for _ in range(N_ROUNDS):
        n_done, started = 0, time.process_time()
        while (spent := time.process_time() - started) < ROUND_S:
            work()
            n_done += n
        best = max(best, n_done / spent)
    return rounded(best)
