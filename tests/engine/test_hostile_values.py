"""Values from code that is not ours, made plain: nothing in them raises, goes on for ever or breaks a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from evaldesk.wire import MAX_NODES, MAX_TEXT, from_json, plain_json, to_json


class Rude:
    def __repr__(self) -> str:
        raise ValueError("no")


class RudeText(str):
    def isascii(self) -> bool:
        raise ValueError("no")


class Endless(Sequence[int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return index

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class Broken(Mapping[str, int]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "gone"


def doubled(depth: int) -> list[Any]:
    """A list of two references to a list of two references, and so on: small in memory, endless on paper."""
    return [doubled_once := doubled(depth - 1), doubled_once] if depth else []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"a": (1, 2.5, None, True)}, {"a": [1, 2.5, None, True]}, id="plain"),
        pytest.param(float("nan"), "nan", id="nan"),
        pytest.param(float("-inf"), "-inf", id="infinity"),
        pytest.param(10**40, 10**40, id="big integer"),
        pytest.param(1 << 5_000, "… an integer of 5001 bits", id="integer beyond reading"),
        pytest.param("a\ud800b", "a?b", id="lone surrogate"),
        pytest.param({1: "one"}, {"1": "one"}, id="key"),
        pytest.param(b"\xff", "b'\\xff'", id="bytes"),
        pytest.param(Rude(), "<Rude, whose repr failed: ValueError>", id="repr raises"),
        pytest.param([{Rude(): 1}], ["<dict, whose repr failed: ValueError>"], id="key raises"),
        pytest.param([RudeText("hi")], ["'hi'"], id="text raises"),
    ],
)
def test_what_json_cannot_say_is_said_in_text(value: object, expected: object) -> None:
    assert plain_json(value) == expected


def test_a_mapping_that_raises_is_described() -> None:
    assert "Broken object" in str(plain_json(Broken()))


@pytest.mark.parametrize("value", [Endless(), doubled(60)], ids=["endless", "doubled"])
def test_what_has_no_end_is_cut(value: object) -> None:
    encoded = to_json(plain_json(value))

    assert f"more than {MAX_NODES} parts" in encoded.decode()
    assert from_json(encoded, list)


def test_what_contains_itself_is_cut() -> None:
    value: dict[str, Any] = {}
    value["self"] = [value, value]

    encoded = to_json(plain_json(value))

    assert len(encoded) < 20_000_000


def test_a_long_text_is_cut_and_says_so() -> None:
    assert str(plain_json("x" * (MAX_TEXT + 7))).endswith("… (7 more characters)")
