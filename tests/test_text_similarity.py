"""Near-duplicate texts: known similarities and groups, scripts without spaces, and large sets."""

from __future__ import annotations

from random import Random

import pytest
from tests.golden_values import golden

from evaldesk.matching.text_similarity import EXACT_TEXTS, MOST_COMPARED, alike_groups, similarity, words_of

GOLDEN = golden("sets")


@pytest.mark.parametrize("pair", GOLDEN["similarity"], ids=lambda pair: f"{pair['a'][:12]} / {pair['b'][:12]}")
def test_similarities_are_the_known_ones(pair: dict[str, str]) -> None:
    assert similarity(pair["a"], pair["b"]) == pytest.approx(pair["jaccard"], abs=1e-12)


def test_groups_are_joined_by_union() -> None:
    known = GOLDEN["groups_at_0.7"]

    assert alike_groups(known["texts"], 0.7).groups == known["groups"]


@pytest.mark.parametrize(
    ("text", "other", "share"),
    [
        ("取消我的订单", "取消我的订单吧", 0.8),
        ("取消我的订单", "查询我的订单", 1 / 3),
        ("\N{PARTY POPPER}\N{PARTY POPPER}", "\N{PARTY POPPER}\N{PARTY POPPER}", 1),
        ("\N{PARTY POPPER}", "\N{CRYING FACE}", 0),
        ("?", "\N{CRYING FACE}", 0),
        ("ยกเลิก", "ยกเลิกที", 2 / 3),
        ("e\u0301tude", "\u00e9tude", 1),
        ("", "", 1),
    ],
)
def test_texts_without_spaces_or_words_are_compared_by_characters(text: str, other: str, share: float) -> None:
    assert similarity(text, other) == pytest.approx(share, abs=0.2 if 0 < share < 1 else 1e-12)
    assert (similarity(text, other) >= 0.8) == (share >= 0.8)


def test_texts_are_folded_alone_as_together() -> None:
    texts = ["Roll a 6-sided die!", "", "\x00 roll\x00a die", "a\nb  c", "Straße 17", "ÉTÉ", "snake_case 12x"]

    for text in texts:
        assert similarity(text, text) == 1
        assert words_of(text) == [word for word in words_of(text) if word]
    for other in ("plain", "naïve"):
        assert alike_groups([*texts, other, other]).groups == [[len(texts), len(texts) + 1]]


def test_minhash_finds_the_pairs_that_the_exact_way_finds() -> None:
    chance = Random(3)
    words = [
        f"w{number:03}x".replace("0", "o").translate(str.maketrans("123456789", "abcdefghi")) for number in range(500)
    ]
    texts = []
    for _ in range(EXACT_TEXTS):
        own = [chance.choice(words) for _ in range(14)]
        texts += [" ".join(own), " ".join([*own, "please"])]
    chance.shuffle(texts)

    found = alike_groups(texts)

    assert found.is_whole
    assert len(found.groups) == EXACT_TEXTS
    assert all(similarity(texts[one], texts[two]) >= 0.8 for one, two in found.groups)


def test_a_set_in_which_all_texts_look_alike_ends_and_says_so() -> None:
    texts = [
        f"{'a b c d e f g h i j k l ' * 2}{chr(97 + n % 26)}{chr(97 + n // 26 % 26)} {chr(97 + n // 676)}x"
        for n in range(3_000)
    ]

    found = alike_groups(texts, 1.0)

    assert sum(map(len, found.groups)) <= len(texts)
    assert found.is_whole or len(texts) * 8 > MOST_COMPARED // 10
