"""Add a session whose values change each time: what the form leaves out, and what its replays show."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.desk_client import DeskClient
from tests.web.conftest import ScriptedHost
from tests.web.evalsets.conftest import CALC, PORT, TOKEN, Pages

from evaldesk.desk.desk import Desk
from evaldesk.engine import ChatPlayers
from evaldesk.model import (
    AgentRef,
    Case,
    Decision,
    Event,
    RunConfig,
    ToolCall,
    Turn,
    TurnRecord,
    TurnSpec,
    Usage,
    Waiting,
)
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

BOOK = ToolCall("book", {"guests": 2, "nonce": 17})


@dataclass
class CountingHost(ScriptedHost):
    """Plays a turn whose state counts, once it may go on."""

    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    n: int = 5
    error: str = ""
    under_way: set[str] = field(default_factory=set)
    together: list[int] = field(default_factory=list)

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        self.specs.append(spec)
        self.under_way.add(spec.session_id)
        self.together.append(len(self.under_way))
        await self.may_go_on.wait()
        self.under_way.discard(spec.session_id)
        if self.error:
            raise RuntimeError(self.error)
        self.n += 1
        yield turn(spec.message, self.n, 17 + self.n)


def turn(query: str, n: int, nonce: int, cost: float | None = 0.001) -> TurnRecord:
    events = (
        Event("tool_call", call=ToolCall("book", {**BOOK.args, "nonce": nonce})),
        Event("usage", usage=Usage("m", cost=cost)),
        Event("agent_message", text="Booked."),
    )
    return TurnRecord(query, events, {}, {"timer_start": time.time(), "served": n, "party": 2}, 100.0)


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


@pytest.fixture
def pages(tmp_path: Path, host: CountingHost) -> Iterator[Pages]:
    """A started desk with an agent and an eval set."""
    for name in ("dice", "evalsets"):
        (tmp_path / name).mkdir()
    (tmp_path / "dice" / "agent.py").write_text("root_agent = None\n")
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    settings.state_folder.mkdir()
    desk = Desk(settings, Store.open(settings.database), cast("ChatPlayers", host))
    client = DeskClient(
        create_app(desk, guard_settings(TOKEN, PORT)),
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
        follow_redirects=False,
    )
    with client:
        found = Pages(client, desk, tmp_path / "evalsets")
        found.write("calc.evalset.json", CALC)
        yield found


@pytest.fixture
def session(pages: Pages) -> str:
    """The address of the form of a session with one turn."""
    return add_session(pages, turn("Book", 5, 17))


def add_session(pages: Pages, *turns: TurnRecord) -> str:
    made = pages.desk.store.sessions.create("dice", "Book", {})
    for each in turns:
        pages.desk.store.sessions.append_turn(made.id, each)
    return f"/sessions/{made.id}/case"


def replay(pages: Pages, host: CountingHost, address: str, fields: dict[str, str]) -> Any:
    pages.post(address, {**fields, "op": "play"})
    pages.client.within(release, host)
    return pages.post(address, {**fields, "op": "look"})


async def release(host: CountingHost) -> None:
    host.may_go_on.set()
    for _ in range(50):
        await asyncio.sleep(0)


def added(pages: Pages) -> dict[str, Any]:
    return dict(pages.stored()["eval_cases"][-1])


def test_a_time_of_the_session_is_not_asserted_as_recorded(pages: Pages, session: str) -> None:
    fields = pages.fields(session)

    answer = pages.post(session, fields)

    assert (fields["repeat-0-key"], fields["repeat-0-way"]) == ("state.timer_start", "later")
    assert "repeat-0-kept" not in fields
    assert "looks like a time" in pages.get(session).text
    assert answer.status_code == 303
    assert added(pages)["also_accepted"] == [{"state": "timer_start", "later": True}]


@pytest.mark.parametrize(
    ("choice", "entries", "keys"),
    [
        ({"repeat-0-kept": "1"}, None, ["party", "served", "timer_start"]),
        ({"repeat-0-way": "nothing"}, None, ["party", "served"]),
        ({"repeat-0-way": "type"}, [{"state": "timer_start", "type": "number"}], ["party", "served", "timer_start"]),
    ],
    ids=["as recorded", "not asserted", "type"],
)
def test_a_person_chooses_how_a_value_is_asserted(
    pages: Pages, session: str, choice: dict[str, str], entries: Any, keys: list[str]
) -> None:
    pages.post(session, pages.fields(session) | choice)

    assert added(pages).get("also_accepted") == entries
    assert sorted(added(pages)["final_session_state"]) == keys


def test_what_differed_in_an_earlier_session_is_left_out(pages: Pages, session: str) -> None:
    add_session(pages, turn("Book", 9, 23))
    add_session(pages, turn("Cancel", 11, 24))

    page = pages.get(session).text
    fields = pages.fields(session)

    assert [fields[f"repeat-{at}-key"] for at in range(3)] == ["1.1.nonce", "state.timer_start", "state.served"]
    assert "Compared with 1 earlier play: the other values repeat." in page
    assert "looks like a counter" in page


def test_replays_show_what_changes_and_typed_text_stays(pages: Pages, host: CountingHost, session: str) -> None:
    fields = pages.fields(session) | {"case": "my_name", "turn-0-reference": "Done."}

    running = pages.post(session, {**fields, "op": "play"}).text
    pages.client.within(release, host)
    page = pages.post(session, {**fields, "op": "look"}).text

    assert "replay 1 of 2" in running
    assert "You can add the case now." in running
    assert [spec.message for spec in host.specs] == ["Book", "Book"]
    assert host.together == [1, 1], "two at once share the objects of one event loop"
    assert 'value="my_name"' in page
    assert "Done.</textarea>" in page
    assert "Compared with 2 replays: the other values repeat. The replays cost $0.002" in page
    assert re.findall(r'name="repeat-\d+-key" value="([^"]+)"', page) == [
        "1.1.nonce",
        "state.timer_start",
        "state.served",
    ]


def test_a_case_added_while_replays_run_shows_their_findings_later(
    pages: Pages, host: CountingHost, session: str
) -> None:
    fields = pages.fields(session)
    pages.post(session, {**fields, "op": "play"})

    place = pages.post(session, fields).headers["location"]
    waiting = pages.get(place).text
    pages.client.within(release, host)
    told = pages.get(place).text
    address = re.search(r'action="(/evalsets/[^"]+/repeats)"', told)
    assert address
    taken = pages.post(address[1])

    assert "replay 1 of 2" in waiting
    assert "2 values of this case changed in its replays" in told
    assert "Final state, served</b> changes each time: looks like a counter; instead: any integer" in told
    assert taken.status_code == 303
    assert added(pages)["also_accepted"] == [
        {"state": "timer_start", "later": True},
        {"turn": 1, "tool": "book", "argument": "nonce", "type": "integer"},
        {"state": "served", "type": "integer"},
    ]
    assert "changed in its replays" not in pages.get(place).text


def test_findings_that_come_after_add_and_run_are_on_the_page_of_the_run(
    pages: Pages, host: CountingHost, session: str
) -> None:
    fields = pages.fields(session)
    pages.post(session, {**fields, "op": "play"})
    place = pages.post(session, fields).headers["location"]
    address = re.search(r'action="(/evalsets/[^"]+/repeats)"', pages.get(place).text)
    run_id, other_id = (stored_run(pages, case_id) for case_id in (added(pages)["eval_id"], "another"))

    waiting = pages.get(f"/runs/{run_id}").text
    pages.client.within(release, host)
    told, other = (pages.get(f"/runs/{each}").text for each in (run_id, other_id))
    assert address
    pages.post(address[1])

    assert "replay 1 of 2" in waiting
    assert f'action="{address[1]}"' in told
    assert "2 values of this case changed in its replays" in told
    assert "changed in its replays" not in other
    assert "changed in its replays" not in pages.get(f"/runs/{run_id}").text


def stored_run(pages: Pages, case_id: str) -> int:
    """A run of the set that has a case of this name."""
    (file,) = pages.desk.evalsets.list()
    config = RunConfig(AgentRef("dice", "dice:agent"), file.id, n=1, evalset_path=str(file.path))
    return pages.desk.store.runs.create(config, [Case(case_id, (Turn("Book"),))])


def test_an_unticked_turn_moves_the_matchers_with_it(pages: Pages, session: str) -> None:
    first = turn("Hello", 1, 3)
    second = turn("Book", 2, 17)
    add_session(pages, first, turn("Book", 2, 99))
    address = add_session(pages, first, second)
    fields = pages.fields(address)
    del fields["turn-0-kept"]

    pages.post(address, fields)

    entry = next(each for each in added(pages)["also_accepted"] if "turn" in each)
    assert (entry["turn"], entry["argument"]) == (1, "nonce")


@pytest.mark.parametrize(
    ("cost", "starts"), [(0.001, True), (0.5, False), (None, False)], ids=["cheap", "dear", "unknown"]
)
def test_only_a_cheap_session_is_played_again_by_the_page_itself(
    pages: Pages, session: str, cost: float | None, starts: bool
) -> None:
    page = pages.get(add_session(pages, turn("Book again", 1, 2, cost))).text

    assert ("/repeats?start=play" in page) is starts
    assert "Play it twice more" in page


def test_a_script_gets_the_panel_and_the_summary(pages: Pages, host: CountingHost, session: str) -> None:
    fields = pages.fields(session)

    part = pages.post(f"{session}/repeats?start=play", fields, **{"HX-Target": "section#repeats"}).text

    assert len(host.specs) <= 2
    assert part.count("<html") == 0
    assert 'hx-trigger="every 1s"' in part
    assert 'hx-swap-oob="innerHTML:#saved"' in part


def test_a_replay_that_breaks_off_says_why(pages: Pages, host: CountingHost, session: str) -> None:
    host.error = "no key for the model"

    page = replay(pages, host, session, pages.fields(session)).text

    assert "no key for the model" in page
    assert "Play it again" in page


def test_a_session_with_decisions_of_a_person_is_not_played_again(pages: Pages, session: str) -> None:
    waiting = Waiting("c1", "refund", {})
    decided = Event("decision", waiting=waiting, decision=Decision("approve", "refund"))
    events = (Event("waiting", waiting=waiting), decided, Event("agent_message", text="Done."))

    page = pages.get(add_session(pages, TurnRecord("Refund", events, {}, {}, 1.0))).text

    assert "A person decided in this conversation" in page
    assert 'value="play"' not in page


def test_the_routes_of_replays_answer_their_method_and_their_session_only(pages: Pages, session: str) -> None:
    case = pages.case_address(pages.desk.evalsets.list()[0].id, "quiet")

    assert pages.get(f"{session}/repeats").status_code == 405
    assert pages.post("/sessions/gone/case/repeats").status_code == 404
    assert pages.get(f"{case}/repeats").status_code == 405
    assert pages.post(f"{case}/repeats").status_code == 303
    assert pages.post(pages.case_address("gone", "quiet") + "/repeats").status_code == 404
    assert pages.post(f"{session}/repeats", Origin="https://elsewhere.example").status_code == 403
