"""The search over the whole workspace: as a page without scripts, and as the options of the palette."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PALETTE = {"HX-Target": "div#found"}


def turn(text: str) -> dict[str, Any]:
    return {"user_content": {"parts": [{"text": text}]}, "final_response": {"parts": [{"text": "Tromsø is cold."}]}}


def write_set(folder: Path, name: str, *texts: str) -> None:
    folder.mkdir(exist_ok=True)
    cases = [{"eval_id": f"{name}_{index}", "conversation": [turn(text)]} for index, text in enumerate(texts)]
    (folder / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}), "utf-8")


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("dic", "/agents#agent-dice"),
        ("WEATH", r"/evalsets/weather-\w+"),
        ("weather_1", r"/evalsets/weather-\w+/cases/[\w-]+"),
        ("is it raining", r"/evalsets/weather-\w+/cases/[\w-]+"),
        ("tromsø", r"/evalsets/weather-\w+/cases/[\w-]+"),
        ("tras", "/trash"),
        ("> new r", "/runs/new"),
    ],
)
def test_a_place_is_found_by_its_name_or_a_text_in_it(chat: Any, tmp_path: Path, typed: str, address: str) -> None:
    write_set(tmp_path / "evalsets", "weather", "Hello", "Is it raining?")

    for headers in ({}, PALETTE):
        text = chat.client.get("/search", params={"q": typed}, headers=headers).text
        assert re.search(rf'<a [^>]*href="{address}"', text)


def test_the_palette_gets_options_and_no_page(chat: Any) -> None:
    answer = chat.client.get("/search", params={"q": "run"}, headers=PALETTE)

    assert "<html" not in answer.text
    assert 'role="option"' in answer.text
    assert "<mark>run</mark>" in answer.text.casefold()


def test_an_action_is_all_that_is_found_after_a_greater_than_sign(chat: Any) -> None:
    found = chat.client.get("/search", params={"q": ">"}, headers=PALETTE).text

    assert found.count('role="group"') == 1
    assert 'href="/runs/new"' in found
    assert 'href="/labels"' not in found


def test_what_is_not_there_is_said_on_the_page(chat: Any) -> None:
    assert "Nothing fits “no such thing”." in chat.client.get("/search", params={"q": "no such thing"}).text


def test_a_text_of_a_case_and_what_was_typed_are_never_markup(chat: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "evalsets", "weather", "<img src=x onerror=alert(1)> storm")

    for headers in ({}, PALETTE):
        for typed in ("storm", "<img src=x"):
            assert "<img" not in chat.client.get("/search", params={"q": typed}, headers=headers).text


def test_a_workspace_that_waits_for_trust_shows_nothing_of_it(
    chat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path / "evalsets", "weather", "Is it raining?")
    monkeypatch.setattr(type(chat.desk), "is_restricted", property(lambda desk: True))

    for typed in ("raining", "weather", "dice"):
        assert 'role="option"' not in chat.client.get("/search", params={"q": typed}, headers=PALETTE).text
