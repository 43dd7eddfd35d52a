"""Masks of personal data: what they find, what they leave, JSON in texts, and patterns that would leave nothing."""

from __future__ import annotations

import json

import pytest

from evaldesk.desk.inbox.masks import check_masks, masked_text, masked_value, read_masks
from evaldesk.errors import UsageError

ALL = read_masks(["email", "phone", "card"], "here")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Write to anna.b+x@mail.example.org.", "Write to [email]."),
        ("Call +43 660 1234567 now", "Call [phone] now"),
        ("415-555-2671", "[phone]"),
        ("4111 1111 1111 1111", "[card]"),
        ("4111111111111112", "4111111111111112"),
        ("on 2026-11-27 at 12:30:00", "on 2026-11-27 at 12:30:00"),
        ("2026-12-04 09:16", "2026-12-04 09:16"),
        ("order 12345678", "order 12345678"),
        ("192.168.100.200", "192.168.100.200"),
        ("6f1c2d3e-1234-5678-9abc-123456789012", "6f1c2d3e-1234-5678-9abc-123456789012"),
        ("a@b", "a@b"),
    ],
)
def test_personal_data_is_masked_and_other_numbers_stay(text: str, masked: str) -> None:
    assert masked_text(text, ALL) == masked


def test_json_in_a_text_stays_json() -> None:
    text = json.dumps({"to": "anna@example.org", "card": 4111111111111111, "n": 3})

    assert json.loads(masked_value(text, ALL)) == {"to": "[email]", "card": "[card]", "n": 3}


def test_keys_and_nested_values_are_masked() -> None:
    assert masked_value({"anna@example.org": ["x", {"y": "anna@example.org"}]}, ALL) == {
        "[email]": ["x", {"y": "[email]"}]
    }


def test_an_own_pattern_is_masked() -> None:
    assert masked_text("customer K-4711", read_masks([r"K-\d+"], "here")) == "customer [masked]"


@pytest.mark.parametrize("pattern", ["(", ".*", "x?", "a" * 501])
def test_a_pattern_that_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="here"):
        read_masks([pattern], "here")


def test_a_pattern_that_masks_all_stored_texts_is_refused_at_the_start() -> None:
    texts = [f"order {number}" for number in range(50)]

    with pytest.raises(UsageError, match="masks 100 % of 50 stored texts"):
        check_masks(read_masks([r"\w+"], "here"), texts, "here")
    with pytest.raises(UsageError, match="plain sentences"):
        check_masks(read_masks([r"\w+"], "here"), [], "here")
    check_masks(read_masks([r"order 7", "email"], "here"), texts, "here")


def test_a_long_text_is_masked_in_linear_time() -> None:
    text = "a" * 300_000 + "1 " * 100_000 + "a.b" * 50_000

    assert masked_text(text, ALL) == text
