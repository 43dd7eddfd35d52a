"""Long texts are shortened to parts that show where they differ."""

from __future__ import annotations

import random

import pytest

from evaldesk.wording.shortened import first_difference, shortened, shortened_pair

LONGEST = 200


@pytest.mark.parametrize("seed", range(200))
def test_two_texts_that_are_shortened_show_their_first_difference(seed: int) -> None:
    chance = random.Random(seed)
    before, after = ("".join(chance.choices("ab ", k=chance.choice((0, 40, 130, 190, 5_000)))) for _ in range(2))
    marks = chance.choice((("LEFT", "RIGHT"), ("LEFT", ""), ("", "RIGHT")))
    texts = [f"{before}{mark}{after}" for mark in marks]

    shown = shortened_pair(texts[0], texts[1], LONGEST, "elsewhere")

    for text, mark, short_text in zip(texts, marks, shown, strict=True):
        assert mark in short_text
        assert short_text.startswith(text[: LONGEST // 4])
        assert short_text.endswith(text[-LONGEST // 4 :])
        assert len(short_text) <= LONGEST + 100
        assert (short_text == text) is (len(text) <= LONGEST)
        assert ("elsewhere" in short_text) is (len(text) > LONGEST)


def test_equal_texts_are_shortened_as_one() -> None:
    text = "word " * 100

    assert shortened_pair(text, text, LONGEST) == (shortened(text, LONGEST),) * 2


@pytest.mark.parametrize(
    ("first", "second", "at"), [("", "", 0), ("a", "", 0), ("ab", "ab", 2), ("ab", "ac", 1), ("b" * 9, "b" * 8, 8)]
)
def test_the_first_difference_is_the_number_of_equal_characters_before_it(first: str, second: str, at: int) -> None:
    assert first_difference(first, second) == first_difference(second, first) == at
