"""Add a session of `adk web` to an eval set: found in its database, shown in the form of a chat session, saved."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaldesk.desk.chat import adk_sessions

Pages = Any
SAMPLE = Path(__file__).parents[2] / "formats" / "exchange_samples" / "adk-session-db.db"


def placed(folder: Path, name: str = "dice/.adk/session.db", statements: tuple[str, ...] = ()) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SAMPLE.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def forms(pages: Pages, address: str = "/adk-sessions") -> list[str]:
    """The addresses of the forms that the list links to."""
    answer = pages.get(address)
    assert answer.status_code == 200
    return re.findall(r'href="(/adk-sessions/[^"]+)"', answer.text)


def test_the_list_shows_each_session_by_its_first_message(pages: Pages) -> None:
    placed(pages.folder)

    text = pages.get("/adk-sessions").text

    assert "dice/.adk/session.db" in text
    assert "Roll." in text
    assert "No turn yet" in text
    assert "___eval___" not in text
    assert len(forms(pages)) == 3


def test_a_session_is_proposed_and_saved_as_one_of_the_chat(pages: Pages, calc: str) -> None:
    placed(pages.folder, statements=("DELETE FROM sessions WHERE id <> 'first' OR app_name <> 'dice'",))
    (address,) = forms(pages, f"/adk-sessions?evalset={calc}")

    fields = pages.fields(address)
    answer = pages.post(address.partition("?")[0], fields)

    assert (fields["case"], fields["evalset"], fields["turn-0-calls"]) == ("roll", calc, "calls")
    assert fields["turn-0-call-0-arg-0-value"] == "6"
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"/evalsets/{calc}?added=")
    case = pages.stored()["eval_cases"][2]
    assert case["eval_id"] == "roll"
    assert case["session_input"] == {
        "app_name": "dice",
        "user_id": "user",
        "state": {"app:theme": "dark", "user:name": "Ada", "sides": 6},
    }
    assert case["final_session_state"] == {"rolls": [4]}
    (turn,) = case["conversation"]
    assert turn["intermediate_data"] == {"tool_uses": [{"name": "roll_die", "args": {"sides": 6}}]}
    assert turn["final_response"]["parts"] == [{"text": "You rolled 4."}]


def test_the_page_says_which_keys_have_no_first_value(pages: Pages) -> None:
    placed(pages.folder)

    texts = [pages.get(address).text for address in forms(pages)]

    assert any("ADK keeps no first value of keys that a turn changed: rolls." in text for text in texts)


def test_a_turn_without_an_answer_is_left_out_with_what_it_changed(pages: Pages) -> None:
    event = {
        "invocation_id": "i9",
        "author": "dice",
        "content": {"role": "model", "parts": [{"function_call": {"name": "roll_die", "args": {}}}]},
        "actions": {"state_delta": {"half": True}},
    }
    path = placed(pages.folder, statements=("DELETE FROM sessions WHERE id <> 'first' OR app_name <> 'dice'",))
    columns = "(id, app_name, user_id, session_id, invocation_id, timestamp, event_data)"
    values = ("e9", "dice", "user", "first", "i9", 9e9, json.dumps(event))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"INSERT INTO events {columns} VALUES (?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608
        connection.commit()
    (address,) = forms(pages)

    fields = pages.fields(address)

    assert ("turn-0-kept" in fields, "turn-1-kept" in fields) == (True, False)
    assert "no answer of the agent is stored for this turn" in pages.get(address).text
    assert json.loads(fields["final"]) == {"rolls": [4]}


def test_the_pages_where_sessions_are_added_lead_to_the_list_where_there_is_one(pages: Pages, calc: str) -> None:
    link = f'href="/adk-sessions?evalset={calc}"'
    before = pages.get(f"/evalsets/{calc}").text
    placed(pages.folder)
    pages.get("/adk-sessions")

    after = pages.get(f"/evalsets/{calc}").text
    chat = pages.get("/sessions/" + pages.desk.store.sessions.create("dice", "Hi", {}).id).text

    assert link not in before
    assert link in after
    assert 'href="/adk-sessions"' in chat


def test_without_a_database_the_list_says_where_adk_keeps_it(pages: Pages) -> None:
    assert "AGENT/.adk/session.db" in pages.get("/adk-sessions").text


def test_any_sqlite_file_with_the_tables_of_adk_is_found_and_no_other_file(pages: Pages) -> None:
    placed(pages.folder, "chats.sqlite3")
    (pages.folder / "text.db").write_text("not a database")
    with closing(sqlite3.connect(pages.folder / "other.db")) as connection:
        connection.execute("CREATE TABLE sessions (id)")

    text = pages.get("/adk-sessions").text

    assert "chats.sqlite3" in text
    assert "other.db" not in text
    assert "text.db" not in text


def test_a_database_that_cannot_be_read_says_why_and_the_others_are_listed(pages: Pages) -> None:
    placed(pages.folder)
    placed(pages.folder, "old/.adk/session.db", ("ALTER TABLE events RENAME event_data TO actions",))

    text = pages.get("/adk-sessions").text

    assert "adk migrate session" in text
    assert "Roll." in text


def test_older_sessions_follow_on_pages(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adk_sessions, "PAGE_SIZE", 2)
    placed(pages.folder)

    first = pages.get("/adk-sessions").text
    match = re.search(r'href="(/adk-sessions\?[^"]+)" rel="next"', first)
    assert match
    second = pages.get(match[1].replace("&amp;", "&")).text

    shown = [set(re.findall(r'class="sub mono">([^<]+)<', text)) for text in (first, second)]
    assert [len(each) for each in shown] == [2, 2]


def test_nothing_of_a_folder_is_written_and_links_are_not_followed(pages: Pages, tmp_path: Path) -> None:
    path = placed(pages.folder, statements=("PRAGMA journal_mode = WAL",))
    elsewhere = placed(tmp_path / "elsewhere.d", "outside.db")
    (pages.folder / "linked.db").symlink_to(elsewhere)
    before = path.read_bytes()

    addresses = forms(pages)
    pages.get(addresses[0])

    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["session.db"]
    assert "linked.db" not in pages.get("/adk-sessions").text


def test_what_adk_is_writing_is_read_with_its_log(pages: Pages) -> None:
    path = placed(pages.folder, statements=("PRAGMA journal_mode = WAL",))
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("UPDATE sessions SET user_id = 'newest' WHERE id = 'empty'")
        writer.commit()

        assert "newest" in pages.get("/adk-sessions").text


@pytest.mark.parametrize("session_id", ["x", "0" * 48, "é" * 48])
def test_an_id_that_names_nothing_is_not_found(pages: Pages, session_id: str) -> None:
    placed(pages.folder)

    assert pages.get(f"/adk-sessions/{session_id}/case").status_code == 404
    assert pages.post(f"/adk-sessions/{session_id}/case").status_code == 404
    assert pages.get(f"/adk-sessions?database={session_id}").status_code == 404


def test_a_session_that_was_deleted_meanwhile_is_not_found(pages: Pages) -> None:
    path = placed(pages.folder)
    address = forms(pages)[0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM sessions")
        connection.commit()

    assert pages.get(address).status_code == 404


def test_a_session_whose_events_are_broken_says_which(pages: Pages) -> None:
    placed(pages.folder, statements=("UPDATE events SET event_data = '{'",))

    answers = [pages.get(address) for address in forms(pages)]

    assert {answer.status_code for answer in answers} == {422}
    assert "event 1" in answers[0].text


def test_sessions_are_read_in_a_folder_that_nobody_trusts_and_nothing_runs(
    pages: Pages, calc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(pages.folder)
    (pages.folder / "dice" / "agent.py").write_text("raise SystemExit('this code ran')\n")
    monkeypatch.setattr(pages.desk.trust, "_is_given", False)
    monkeypatch.setattr(pages.desk.trust, "_has_foreign_parts", True)
    assert pages.desk.is_restricted
    address = forms(pages)[0]

    answer = pages.post(address, pages.fields(address) | {"evalset": calc})

    assert answer.status_code == 303
    assert len(pages.stored()["eval_cases"]) == 3


def _written_by_adk(path: Path) -> None:
    events = pytest.importorskip("google.adk.events")
    services = pytest.importorskip("google.adk.sessions")
    types = pytest.importorskip("google.genai.types")

    async def write() -> None:
        service = services.DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{path}")
        session = await service.create_session(app_name="dice", user_id="user", session_id="talk", state={"sides": 6})
        call = types.FunctionCall(id="c", name="roll_die", args={"sides": 6})
        for author, part in (
            ("user", types.Part(text="Roll a die for me.")),
            ("dice", types.Part(function_call=call)),
            ("dice", types.Part(text="It is 4.")),
        ):
            content = types.Content(role="user" if author == "user" else "model", parts=[part])
            await service.append_event(session, events.Event(invocation_id="i", author=author, content=content))
        await service.close()

    asyncio.run(write())


def test_the_database_that_adks_database_service_writes_becomes_a_case(pages: Pages, calc: str) -> None:
    _written_by_adk(pages.folder / "sessions.db")
    (address,) = forms(pages)

    answer = pages.post(address, pages.fields(address) | {"evalset": calc, "case": "talk"})

    assert answer.status_code == 303
    case = pages.stored()["eval_cases"][2]
    assert case["conversation"][0]["user_content"]["parts"] == [{"text": "Roll a die for me."}]
    assert case["conversation"][0]["final_response"]["parts"] == [{"text": "It is 4."}]
