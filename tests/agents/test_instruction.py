"""Placeholders of an instruction."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.agents.own.instruction import MissingKey, fill_placeholders

STATE: dict[str, Any] = {"origin": "Bonn", "likes": ["food", "art"], "user:name": "Ada", "n": 3, "nothing": None}


@pytest.mark.parametrize(
    ("instruction", "wanted"),
    [
        ("from {origin}", "from Bonn"),
        ("likes {likes}", "likes food, art"),
        ("for {user:name}", "for Ada"),
        ("{n} days, {nothing}", "3 days, null"),
        ("in {month?}!", "in !"),
        ("{origin?}", "Bonn"),
        ('{"json": {"origin": 1}}', '{"json": {"origin": 1}}'),
        ("{{origin}}", "{{origin}}"),
        ("{ origin } {} {a.b} {a-b} {0}", "{ origin } {} {a.b} {a-b} {0}"),
    ],
)
def test_placeholders_are_filled_and_other_braces_stay(instruction: str, wanted: str) -> None:
    assert fill_placeholders(instruction, STATE) == wanted


def test_a_missing_key_is_named() -> None:
    with pytest.raises(MissingKey) as caught:
        fill_placeholders("{month}", STATE)

    assert caught.value.args == ("month",)


def test_a_value_with_braces_is_not_filled_again() -> None:
    assert fill_placeholders("{a}", {"a": "{b}", "b": "never"}) == "{b}"
