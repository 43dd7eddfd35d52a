"""Near-duplicate texts: the Jaccard similarity of their 3-grams, and groups of texts that are alike.

(reference/sets.md 4)
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

Shingles: TypeAlias = frozenset[tuple[str, ...]]

TWINS = 0.8
"""Texts that are at least so similar say the same."""
N_HASHES, ROWS_OF_BAND = 64, 4
"""Two texts of a similarity of 0.8 share a band of 16 with a chance of 0.9998."""
EXACT_TEXTS = 2_000
"""Up to so many different texts all pairs with a common 3-gram are compared."""
MOST_OF_BAND = 8
"""Texts of one band that each further text of it is compared with; more share a band only by design."""
MOST_COMPARED = 200_000
"""Pairs that are compared exactly."""
MOST_CHARACTERS = 20_000
"""Characters of a text that are read."""
_PRIME, _GOLDEN = (1 << 31) - 1, 0x9E3779B97F4A7C15
TEXTS_AT_ONCE = 10_000
_DIGITS, _WORD, _BETWEEN = re.compile(r"\d+"), re.compile(r"\w+"), re.compile(r"[^\w\0]+")
# Scripts that put no space between words: Thai to Burmese, Khmer, kana and the ideographs of Chinese and Japanese.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])"
)


def words_of(text: str) -> list[str]:
    """The words in one spelling: NFKC, casefolded, each number 0. Characters where no spaces divide words.

    A text without a word gives its symbols, such as emoji; only punctuation gives none.
    """
    text = text[:MOST_CHARACTERS]
    if text.isascii():
        return _WORD.findall(_DIGITS.sub("0", text.lower()))
    folded = _DIGITS.sub("0", unicodedata.normalize("NFKC", text).casefold())
    words = _WORD.findall(folded)
    if not words:
        return [each for each in folded if unicodedata.category(each).startswith("S")]
    if not _UNSPACED.search(folded):
        return words
    return [part for word in words for part in _UNSPACED.split(word) if part]


def shingles(text: str) -> Shingles:
    """The 3-grams of words; of fewer than three words these words together."""
    return _shingles(words_of(text))


def _shingles(words: Sequence[str]) -> Shingles:
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])


def similarity(text: str, other: str) -> float:
    """The Jaccard similarity of the 3-grams of two texts, 0 to 1."""
    return _jaccard(shingles(text), shingles(other))


def _jaccard(some: Shingles, others: Shingles) -> float:
    n_common = len(some & others)
    return n_common / (len(some) + len(others) - n_common)


class AlikeGroups(NamedTuple):
    """The indexes of texts that are alike in groups of at least two, in order.

    `is_whole` is False where too many pairs looked alike to compare all.
    """

    groups: list[list[int]]
    is_whole: bool


def alike_groups(texts: Sequence[str], threshold: float = TWINS) -> AlikeGroups:
    """The texts that are alike, joined by union; every pair that joins two was compared exactly."""
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    lines = chain.from_iterable(_lines_of(texts[start : start + TEXTS_AT_ONCE]) for start in starts)
    return alike_lines([*lines], threshold)


def alike_lines(all_lines: Sequence[str], threshold: float = TWINS) -> AlikeGroups:
    """The groups of texts whose `words_of` are given with a space between.

    Of more than EXACT_TEXTS different texts the pairs are found by MinHash.
    """
    indexes_by_line: dict[str, list[int]] = {}
    for index, line in enumerate(all_lines):
        indexes_by_line.setdefault(line, []).append(index)
    lines = list(indexes_by_line)
    shingles_of = lru_cache(maxsize=100_000)(lambda place: _shingles(lines[place].split(" ") if lines[place] else ()))
    pairs = _pairs_by_minhash(lines) if len(lines) > EXACT_TEXTS else _pairs_by_shingle(lines)
    parents: dict[int, int] = {}
    n_compared = 0
    for one, other in pairs:
        root, other_root = _root(parents, one), _root(parents, other)
        if root == other_root:
            continue
        if n_compared == MOST_COMPARED:
            break
        n_compared += 1
        if _jaccard(shingles_of(one), shingles_of(other)) >= threshold:
            parents[other_root] = root
    groups: dict[int, list[int]] = defaultdict(list)
    for place, indexes in enumerate(indexes_by_line.values()):
        if len(indexes) > 1 or place in parents:
            groups[_root(parents, place)] += indexes
    for root in groups:
        if root not in parents and len(indexes_by_line[lines[root]]) == 1:
            groups[root] += indexes_by_line[lines[root]]
    return AlikeGroups(sorted(sorted(group) for group in groups.values()), n_compared < MOST_COMPARED)


def _lines_of(texts: Sequence[str]) -> Sequence[str]:
    """The words of each text with a space between; ASCII texts are folded together, which takes a third of the time."""
    joined = "\0".join(text[:MOST_CHARACTERS] for text in texts)
    if not joined.isascii() or joined.count("\0") != len(texts) - 1:
        return [" ".join(words_of(text)) for text in texts]
    folded = _BETWEEN.sub(" ", _DIGITS.sub("0", joined.lower()))
    return [line.strip() for line in folded.split("\0")]


def _root(parents: dict[int, int], place: int) -> int:
    while (parent := parents.get(place)) is not None:
        if (above := parents.get(parent)) is not None:
            parents[place] = above
        place = parent
    return place


def _pairs_by_shingle(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs with a common 3-gram."""
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, line in enumerate(lines):
        some = _shingles(line.split(" ") if line else ())
        earlier_places = {each for shingle in some for each in places[shingle]}
        yield from ((each, place) for each in sorted(earlier_places))
        for shingle in some:
            places[shingle].append(place)


def _pairs_by_minhash(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The pairs that share a band of hashes; a line of fewer than three words is one shingle of its own."""
    import numpy as np

    all_words = [line.split(" ") for line in lines]
    for words in all_words:
        if len(words) < 3:
            words[:] = ["", " ".join(words), ""]
    sizes = np.fromiter(map(len, all_words), np.int64, len(lines))
    numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(all_words)))}
    ids = np.fromiter(map(numbers.__getitem__, chain.from_iterable(all_words)), np.uint64, int(sizes.sum()))
    chance = np.random.default_rng(0)
    first, second, third = chance.integers(1, _PRIME, 3, dtype=np.uint64)
    # Overflow is part of each hash: the upper half of a product depends on all bits of its factors.
    hashes = ((ids[:-2] * first + ids[1:-1] * second + ids[2:] * third) * np.uint64(_GOLDEN)) >> np.uint64(32)
    hashes = hashes.astype(np.uint32)
    ends = np.cumsum(sizes)
    inside = np.ones(len(ids), bool)
    inside[ends - 1] = inside[ends - 2] = False
    hashes = hashes[inside[:-2]]
    starts = np.concatenate(([0], np.cumsum(sizes - 2)[:-1]))
    for _ in range(0, N_HASHES, ROWS_OF_BAND):
        rows = []
        for _ in range(ROWS_OF_BAND):
            mask, factor = chance.integers(1, _PRIME, 2, dtype=np.uint32)
            rows.append(np.minimum.reduceat((hashes ^ mask) * (factor | np.uint32(1)), starts))
        key = rows[0].astype(np.uint64)
        for row in rows[1:]:
            key = key * np.uint64(_GOLDEN) + row
        order = np.argsort(key, kind="stable")
        is_same = key[order][1:] == key[order][:-1]
        joined = np.flatnonzero(is_same)
        yield from _pairs_of_band(order, joined.tolist())


def _pairs_of_band(order: Any, joined: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The pairs of texts with equal hashes; `joined` are the places of `order` that are equal to the next."""
    band: list[int] = []
    for before, place in pairwise([-2, *joined]):
        if place != before + 1:
            band = [int(order[place])]
        text = int(order[place + 1])
        yield from ((each, text) for each in band)
        if len(band) < MOST_OF_BAND:
            band.append(text)
