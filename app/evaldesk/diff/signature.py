"""Failure signatures: the kind of a trial's failure without its values; and clusters of similar notes.

(reference/failure_modes.md section 5)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations, pairwise, takewhile
from math import fsum, log, sqrt

from evaldesk.diff.divergence import Divergence, first_divergence
from evaldesk.diff.turn_diff import CallRow
from evaldesk.matching import json_equal
from evaldesk.model import Case, ErrorRecord, JsonValue, Score, Transcript

MAX_MESSAGE = 200
APART = 0.75
"""The maximum mean cosine distance within a cluster of notes."""
N_TERMS, MAX_SHORT = 3, 3
_VARYING = re.compile(
    r"""https?://\S+|(?<![\w.-])[\w.-]+@[\w.-]+|(?:[A-Za-z]:)?(?:/[\w.~-]+)+/?|"[^"]*"|'[^']*'|`[^`]*`|“[^“”]*”|\b0x[0-9a-f]+\b
    |(?<![0-9a-f-])\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b|\d+(?:\.\d+)?""",
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = {
    "more": "higher than expected",
    "less": "lower than expected",
    **{how: f"{how} than expected" for how in ("longer", "shorter", "later", "earlier")},
}
_OPS = {"-": "missing", "+": "not expected", "moved": "in another place", "~": "differs"}


@dataclass(frozen=True, slots=True)
class Signature:
    """`key` is equal for equal kinds of failure; `words` is its readable form.

    `tool` and `turn`, from 1, are the place of the first divergence; empty and 0 without one.
    """

    key: str
    words: str
    tool: str = ""
    turn: int = 0


# No values, so equal signatures do not depend on the data: decision 110.
def failure_signature(
    case: Case,
    transcript: Transcript,
    scores: Sequence[Score],
    title_of: Callable[[str], str],
    *,
    tells_reasons: bool = False,
) -> Signature | None:
    """The signature of a failed trial by its deciding scores; None without a divergence or a failed score."""
    return signature_of(first_divergence(case, transcript, scores), scores, title_of, tells_reasons=tells_reasons)


def signature_of(
    divergence: Divergence | None,
    scores: Sequence[Score],
    title_of: Callable[[str], str],
    *,
    tells_reasons: bool = False,
) -> Signature | None:
    """The same by the first divergence of the trial; `title_of` is the name of a metric on pages.

    `tells_reasons` is for scores of another tool. Without a divergence, or where the file of the tool lacks turns, it
    distinguishes the reasons of a failed score: those of a tool are few, those of a judge are all different.
    """
    failed_score = next((score for score in scores if score.passed is False), None)
    failed_metric = failed_score.metric if failed_score else ""
    is_of_source = tells_reasons and divergence is not None and divergence.kind in ("not_played", "score")
    if divergence is None or is_of_source:
        return _of_score(failed_score, title_of, tells_reasons=tells_reasons) if failed_score else None
    if divergence.row:
        return replace(_of_call(failed_metric, divergence.row), turn=divergence.turn)
    words = {
        "not_played": "a turn was never played",
        "score": f"{title_of(divergence.name)} failed on a turn",
        "final_state": f"the final state of {divergence.name} differs",
    }
    return Signature(
        "|".join((failed_metric, divergence.kind, divergence.name)), words[divergence.kind], turn=divergence.turn
    )


def error_signature(error: ErrorRecord) -> Signature:
    """The kind of an error and its message without numbers, quotes, paths and addresses."""
    message = _without_values(error.message)
    return Signature(f"error|{error.kind}|{message}", f"{error.kind}: {message}" if message else error.kind)


def _of_score(score: Score, title_of: Callable[[str], str], *, tells_reasons: bool) -> Signature:
    title = title_of(score.metric)
    reason = _without_values(score.reason).rstrip(".") if tells_reasons else ""
    if reason:
        return Signature(f"{score.metric}|score|{reason}", f"{title}: {reason}")
    is_name = title == score.metric  # of another tool, or of a metric that is gone
    return Signature(
        f"{score.metric}|score", f"the score “{title}” is that of a failure" if is_name else f"{title} failed"
    )


def _without_values(text: str) -> str:
    """The first line of a text, without numbers, quotes, paths and addresses."""
    lines = text.splitlines() or [""]
    return " ".join(_VARYING.sub("#", lines[0]).split())[:MAX_MESSAGE]


def _of_call(failed_metric: str, row: CallRow) -> Signature:
    call = row.actual or row.expected
    name = call.name if call else ""
    places: list[str] = []
    words = f"{name} {_OPS.get(row.op or '~', 'differs')}"
    if row.op == "~" and row.expected and row.actual:
        if row.expected.name != row.actual.name:
            places = [f"instead of {row.expected.name}"]
            words = f"{name} {places[0]}"
        elif differences := sorted(_differences(dict(row.expected.args), dict(row.actual.args))):
            places = [f"{at} {how}" for at, how in differences]
            words = f"{name}: {', '.join(f'{_place(at)} {_WORDS.get(how, how)}' for at, how in differences)}"
    return Signature("|".join((failed_metric, "calls", row.op or "", name, *places)), words, name)


def _place(pointer: str) -> str:
    """The name of an argument, or the pointer of a value inside it."""
    return pointer if "/" in pointer[1:] or "~" in pointer else pointer[1:]


def _differences(expected: JsonValue, actual: JsonValue, at: str = "") -> Iterator[tuple[str, str]]:
    """The RFC 6901 pointer and the direction of each difference; a list counts as one value."""
    if json_equal(expected, actual):
        return
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            place = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in actual:
                yield place, "missing"
            elif key not in expected:
                yield place, "not expected"
            else:
                yield from _differences(expected[key], actual[key], place)
        return
    yield at, _direction(expected, actual)


def _direction(expected: JsonValue, actual: JsonValue) -> str:
    if _is_number(expected) and _is_number(actual):
        return "more" if actual > expected else "less"  # type: ignore[operator]
    if isinstance(expected, list) and isinstance(actual, list):
        return "other items" if len(expected) == len(actual) else "longer" if len(actual) > len(expected) else "shorter"
    if isinstance(expected, str) and isinstance(actual, str):
        days = _day(expected), _day(actual)
        if days[0] and days[1] and days[0] != days[1]:
            return "later" if days[1] > days[0] else "earlier"
        return "other text"
    return "other type" if type(expected) is not type(actual) else "other value"


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def group_notes(notes: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Clusters of similar notes as indexes, largest first, named by their top terms; a single note has no name.

    TF-IDF of words and pairs, average linkage on the cosine distance: the same groups in whatever order the notes are.
    """
    texts = sorted(set(notes))
    vectors = _vectors(texts)
    groups = _cluster(vectors)
    groups_with_names = []
    for group in groups:
        places = [at for text in group for at, note in enumerate(notes) if note == texts[text]]
        groups_with_names.append(
            (_heaviest_terms([vectors[text] for text in group]) if len(places) > 1 else "", places)
        )
    return sorted(groups_with_names, key=lambda each: (-len(each[1]), each[0], notes[each[1][0]]))


def _vectors(texts: Sequence[str]) -> list[dict[str, float]]:
    """TF-IDF vectors of length 1 over words and pairs, without the common beginning of all texts."""
    words = [re.findall(r"\w\w+", text.casefold()) for text in texts]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False))
    n_common = sum(1 for _ in same) if len(words) > 2 else 0
    counts = [Counter([*each[n_common:], *map(" ".join, pairwise(each[n_common:]))]) for each in words]
    n_texts = Counter(term for each in counts for term in each)
    vectors = []
    for each in counts:
        weights = {term: (1 + log(n)) * (1 + log((1 + len(texts)) / (1 + n_texts[term]))) for term, n in each.items()}
        length = sqrt(fsum(weight**2 for weight in weights.values())) or 1.0
        vectors.append({term: weight / length for term, weight in weights.items()})
    return vectors


def _cluster(vectors: Sequence[dict[str, float]]) -> list[list[int]]:
    """Clusters by average linkage: merges the nearest two until their mean distance exceeds APART."""
    groups = {at: [at] for at in range(len(vectors))}
    apart = {
        (a, b): 1 - fsum(weight * vectors[b].get(term, 0.0) for term, weight in vectors[a].items())
        for a, b in combinations(groups, 2)
    }
    while apart:
        distance, (a, b) = min((distance, pair) for pair, distance in apart.items())
        if distance > APART:
            break
        del apart[a, b]
        n_a, n_b = len(groups[a]), len(groups[b])
        for other in groups.keys() - {a, b}:
            of_a, of_b = (min(a, other), max(a, other)), (min(b, other), max(b, other))
            apart[of_a] = (n_a * apart[of_a] + n_b * apart.pop(of_b)) / (n_a + n_b)
        groups[a] += groups.pop(b)
    return [*groups.values()]


def _heaviest_terms(vectors: Sequence[dict[str, float]]) -> str:
    """The top terms of a cluster, without terms that share a word."""
    weights = {term: fsum(each.get(term, 0.0) for each in vectors) for vector in vectors for term in vector}
    terms: list[str] = []
    telling = [term for term in weights if all(len(word) > MAX_SHORT for word in term.split())] or [*weights]
    for term in sorted(telling, key=lambda term: (-weights[term], -len(term.split()), term)):
        if len(terms) < N_TERMS and not any(set(term.split()) & set(other.split()) for other in terms):
            terms.append(term)
    return ", ".join(terms)
