"""The search over the whole workspace: as a page without scripts, and as the options of the palette."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)

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


def test_names_come_before_texts_and_each_case_once(chat: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "evalsets", "a", *[f"roll {index}, please" for index in range(9)])
    write_set(tmp_path / "evalsets", "roll", "roll", "Hello")

    for headers in ({}, PALETTE):
        text = chat.client.get("/search", params={"q": "roll"}, headers=headers).text
        places = re.findall(r'href="(/evalsets/[^"]+)"', text)
        sets = [re.sub(r"/evalsets/(\w+)-.*?(/cases.*|$)", r"\1", place) for place in places]
        assert sets[:3] == ["roll", "roll", "roll"]  # its two cases by their ids, and the set
        assert len(sets) > 3
        assert set(sets[3:]) == {"a"}
        assert len(set(places)) == len(places)


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


def test_a_chat_is_found_by_its_title_until_it_is_deleted(chat: Any) -> None:
    sessions = chat.desk.store.sessions
    here, gone = (sessions.create("dice", title).id for title in ("A <b>storm</b> in Tromsø", "A storm elsewhere"))
    sessions.delete(gone)

    for headers in ({}, PALETTE):
        text = chat.client.get("/search", params={"q": "b>STORM"}, headers=headers).text
        assert re.search(rf'<a [^>]*href="/sessions/{here}"', text)
        assert "<b>storm" not in text
        assert gone not in chat.client.get("/search", params={"q": "storm"}, headers=headers).text


def test_the_page_shows_more_of_each_kind_than_the_palette(chat: Any, tmp_path: Path) -> None:
    write_set(tmp_path / "evalsets", "weather", *["Is there a storm?"] * 8)
    for number in range(8):
        chat.desk.store.sessions.create("dice", f"A storm, {number}")

    for headers, shown in (({}, 8), (PALETTE, 5)):
        text = chat.client.get("/search", params={"q": "storm"}, headers=headers).text
        assert text.count('href="/sessions/') - text.count('href="/sessions/new') == shown
        assert len(re.findall(r'href="/evalsets/[^"]+/cases/', text)) == shown


@pytest.mark.parametrize(("typed", "shown"), [("run & so", 0), (" run ", 1), (">", 0), ("", 0), ("no such thing", 0)])
def test_the_last_option_leads_to_all_results(chat: Any, typed: str, shown: int) -> None:
    found = chat.client.get("/search", params={"q": typed}, headers=PALETTE).text

    assert re.findall(r'role="option" id="(found-all)" href="/search\?q=run"', found) == ["found-all"] * shown
    assert found.rfind('role="option"') == found.find('role="option" id="found-all"') or not shown


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


def test_an_index_that_cannot_be_kept_is_said_once_until_it_can(
    chat: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = iter([*[OSError("full")] * 3, None, *[OSError("full again")] * 2])

    def catch_up() -> None:
        if error := next(outcomes, KeyError("over")):
            raise error

    monkeypatch.setattr("evaldesk.desk.search.LOOK_EVERY_S", 0)
    monkeypatch.setattr(chat.desk.search, "catch_up", catch_up)

    with pytest.raises(KeyError):
        asyncio.run(chat.desk.search.follow(lambda: True))

    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["full", "full again"]


def play(chat: Any, answer: str) -> int:
    """A run of one case with one trial that says `answer`, indexed."""
    store = chat.desk.store
    run_id: int = store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "calc", n=1), [Case("c1", (Turn("Go"),))])
    turn = TurnRecord("Go", (Event("tool_call", call=ToolCall("read_barometer")), Event("agent_message", text=answer)))
    store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed", transcript=Transcript((turn,)))])
    chat.desk.search.catch_up(pause_factor=0)
    return run_id


def test_a_trial_is_found_by_what_is_said_in_it_with_the_place_marked(chat: Any) -> None:
    run_id = play(chat, "It is <b>minus</b> twelve degrees in Tromsø today. " + "Dress warmly. " * 50)
    address = f'href="/runs/{run_id}/cases/0/trials/0"'

    for headers in ({}, PALETTE):
        for typed in ("twelve degrees", "degrees barometer", "barom"):
            text = chat.client.get("/search", params={"q": typed}, headers=headers).text
            assert address in text, typed
            assert "<b>minus" not in text
        assert (
            "<mark>twelve degrees</mark>"
            in chat.client.get("/search", params={"q": "twelve degrees"}, headers=headers).text
        )


@pytest.mark.parametrize("typed", ["{0}", "run {0}", "Run {0}", "#{0}", "RUN {0}, dice", "run{0}"])
def test_a_run_is_found_by_its_number_as_people_write_it(chat: Any, typed: str) -> None:
    run_id = play(chat, "Sunny.")

    text = chat.client.get("/search", params={"q": typed.format(run_id)}, headers=PALETTE).text

    assert re.search(rf'href="/runs/{run_id}"', text)


def test_a_trial_beyond_those_of_its_case_is_not_offered(chat: Any) -> None:
    cases = [Case("roll_16", (Turn("q"),)), Case("roll_6", (Turn("q"),))]
    run_id = chat.desk.store.runs.create(RunConfig(AgentRef("dice", "dice"), "s", n=3), cases, n_each=(3, 1))

    text = chat.client.get("/search", params={"q": f"{run_id}:roll:2"}, headers=PALETTE).text

    assert re.findall(rf'href="(/runs/{run_id}/cases/[^"]+)"', text) == [f"/runs/{run_id}/cases/0/trials/1"]


def test_a_note_and_a_kind_of_failure_are_found(chat: Any) -> None:
    run_id = play(chat, "Sunny.")
    chat.desk.store.labels.put(run_id, (0, 0), None, "Ada", "failed", "speaks of the wrong city")
    mode_id = chat.desk.store.failures.create_mode("Ada", name="wrong city")

    text = chat.client.get("/search", params={"q": "wrong city"}, headers=PALETTE).text

    assert f'href="/runs/{run_id}/cases/0/trials/0"' in text
    assert f'href="/failures/{mode_id}"' in text


def test_a_secret_is_neither_found_nor_shown(open_chat: Any) -> None:
    secret = "sk-Zq81mmKd02Hs7fTqLw93"
    chat = open_chat(environment={"OPENAI_API_KEY": secret})
    play(chat, f"The key is {secret}, keep it.")

    assert secret not in chat.client.get("/search", params={"q": "the key is"}).text
    assert not chat.desk.store.search.find(secret.split("-")[1]).places


def test_what_is_not_searched_yet_is_said(chat: Any) -> None:
    play(chat, "Sunny.")
    chat.desk.store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "calc", n=1), [Case("c1", (Turn("Go"),))])

    assert "The texts of 1 run are not all searched yet" in chat.client.get("/search", params={"q": "sunny"}).text


def test_any_text_is_answered(chat: Any) -> None:
    play(chat, "Sunny.")
    for typed in ('"', "NEAR(", "a:b*", "'; DROP TABLE place", "\0", "( OR", "\\"):
        assert chat.client.get("/search", params={"q": typed}).status_code == 200
