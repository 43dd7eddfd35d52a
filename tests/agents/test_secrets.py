"""Secrets in text."""

from __future__ import annotations

import pytest

from evaldesk.secrets import scrub
from evaldesk.wire import from_json, json_scrubber, to_json

ENVIRONMENT = {
    "OPENAI_API_KEY": "correct-horse-battery",
    "LONGER_API_KEY": "correct-horse-battery-staple",
    "SHOP_TOKEN": "short",
    "DB_PASSWORD": "postgres",
    "ODD_SECRET": 'with "quotes"\n\\ and é',
    "HOME": "/somewhere/else",
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    TEXTS := [
        ("key correct-horse-battery!", "key [OPENAI_API_KEY]!"),
        ("correct-horse-battery-staple", "[LONGER_API_KEY]"),
        ("a short word in /somewhere/else", "a short word in /somewhere/else"),
        ("sk-proj-abcDEF1234567890abcdef", "[secret]"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[secret]"),
        ("Authorization: Bearer abcdef.123456", "Authorization: Bearer [secret]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[secret]"),
        ("AKIAABCDEFGHIJKLMNOP", "[secret]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4", "[secret]"),
        ("a risk-averse-and-rather-long-word, task-2", "a risk-averse-and-rather-long-word, task-2"),
        ("sk-looks-like-a-key-but-has-no-digit", "sk-looks-like-a-key-but-has-no-digit"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0 only", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0 only"),
        ("the postgres database", "the postgres database"),
        ('it is with "quotes"\n\\ and é.', "it is [ODD_SECRET]."),
        ("a line\nsk-proj-abcDEF1234567890abcdef", "a line\n[secret]"),
        ("", ""),
    ],
)
def test_secrets_are_replaced_and_words_are_not(text: str, wanted: str) -> None:
    assert scrub(text, ENVIRONMENT) == wanted


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_secrets_are_replaced_wherever_they_stand_in_a_value(text: str, wanted: str) -> None:
    value = {"events": [{"text": text, text: [1, None, 2**70]}]}

    clean = json_scrubber(ENVIRONMENT)(to_json(value))

    assert from_json(clean, object) == {"events": [{"text": wanted, wanted: [1, None, 2**70]}]}


def test_a_value_without_secrets_is_given_back_as_it_is() -> None:
    data = to_json({"text": "a risk-averse word"})

    assert json_scrubber(ENVIRONMENT)(data) is data


def test_an_empty_environment_has_no_secrets() -> None:
    assert scrub("plain text", {}) == "plain text"


@pytest.mark.parametrize("beginning", ["sk-", "eyJ-", "sk-eyJ-"])
def test_a_long_text_of_beginnings_of_keys_is_read_once(beginning: str) -> None:
    """Read to its end from each of them, it would take minutes."""
    text = beginning * 50_000

    assert scrub(text, ENVIRONMENT) == text
