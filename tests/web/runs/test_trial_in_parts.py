"""A long trial comes in parts as one scrolls, and whole to whom has no script."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from tests.long_trials import LONG, N_CALLS, store_trial

from evaldesk.model import Case, Event, ToolCall, Transcript, Turn, TurnRecord

ADDRESSES: dict[str, str] = {}
HTMX = {"HX-Request": "true"}
REST = re.compile(r'data-rest hx-sync="this:drop" hx-nonce="[^"]+" hx-get="([^"]+)" hx-target="#([^"]+)"')


@pytest.fixture
def pages(shared_pages: Any) -> Any:
    return shared_pages


def stored(pages: Any, name: str) -> str:
    """The address of a trial, which is stored once."""
    if name not in ADDRESSES:
        ADDRESSES[name] = store_trial(pages.desk.store.runs, *LONG[name]())
    return ADDRESSES[name]


def parts(pages: Any, address: str) -> list[str]:
    """The page, and each part that it asks for, that of events aside."""
    found, waiting = [], [address]
    while waiting:
        found.append(pages.get(waiting.pop(0), **HTMX).text)
        waiting += [address for address, place in REST.findall(found[-1]) if not place.endswith("-events")]
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == "many turns" else ()) for name in LONG]
)
def test_the_page_of_300_calls_is_small_and_its_parts_hold_each_of_them_once(pages: Any, name: str) -> None:
    page, *others = parts(pages, stored(pages, name))

    assert len(page) < 150_000
    assert all(len(part) < 150_000 for part in others)
    ids = re.findall(r'<div class="(?:toolcall|call)" id="(turn-\d+-event-\d+)"', "".join([page, *others]))
    assert len(ids) == len(set(ids)) == N_CALLS


@pytest.mark.parametrize("name", LONG)
def test_without_a_script_the_trial_is_one_page(pages: Any, name: str) -> None:
    address = stored(pages, name)

    part = pages.get(f"{address}/turns/0/pieces?from=2")
    whole = pages.get(f"{address}?all=1").text

    assert (part.status_code, part.headers["location"]) == (303, f"{address}?all=1#turn-1")
    assert 'href="?all=1#turn-' in pages.get(address).text
    assert "data-rest" not in whole
    assert len(re.findall(r'id="turn-\d+-event-\d+"', whole)) >= N_CALLS


def test_every_turn_has_its_id_also_where_it_is_still_to_come(pages: Any) -> None:
    page = pages.get(stored(pages, "many turns")).text

    assert re.findall(r'<article class="turn" id="turn-(\d+)"', page) == [str(n + 1) for n in range(N_CALLS // 2)]
    assert re.search(r'id="turn-90"[^>]*><h2>Turn 90</h2><blockquote>Find flight 89.</blockquote><a ', page)


def test_a_turn_that_comes_later_is_as_it_would_be_on_the_page(pages: Any) -> None:
    address = stored(pages, "many turns")

    turn = pages.get(f"{address}/turns/89", **HTMX).text
    whole = pages.get(f"{address}?all=1").text

    assert '<a class="address" href="#turn-90" aria-label="Address of this turn">#</a>' in turn
    assert "I found <strong>89</strong>." in turn
    assert 'id="turn-90-title"' in whole


def test_what_comes_after_the_calls_is_there_with_the_last_of_them(pages: Any) -> None:
    first, *_, last = parts(pages, stored(pages, "expected calls"))

    assert "The end" not in first
    assert re.search(r"<del>The end</del>.*<ins>I found:", last, re.DOTALL)


def test_events_that_are_too_many_come_when_they_are_unfolded(pages: Any) -> None:
    address = stored(pages, "one turn")
    page = pages.get(address).text

    assert "<summary>901 events</summary>" in page
    (href,) = {href for href, place in REST.findall(page) if place == "turn-1-events"}
    rows, seen = [], 0
    while href:
        text = pages.get(href, **HTMX).text
        rows += re.findall(r"<tr><td data-num data-fit>", text)
        href, seen = next((found for found, _ in REST.findall(text)), ""), seen + 1
    assert len(rows) + page.count("<td data-num data-fit>") == 901
    assert seen < 10


@pytest.mark.parametrize("place", ["turns/1", "turns/7/pieces", "turns/x", "turns/0/others"])
def test_a_turn_that_is_not_there_is_not_found(pages: Any, place: str) -> None:
    assert pages.get(f"{stored(pages, 'one turn')}/{place}", **HTMX).status_code == 404


@pytest.mark.parametrize("start", ["-1", "x", "9" * 30, "99999"])
def test_a_part_from_nowhere_is_a_part_all_the_same(pages: Any, start: str) -> None:
    assert pages.get(f"{stored(pages, 'one turn')}/turns/0/pieces?from={start}", **HTMX).status_code == 200


def test_one_message_that_is_long_by_itself_is_always_drawn(pages: Any) -> None:
    message = Event("agent_message", text="word " * 8_000)
    transcript = Transcript((TurnRecord("Speak.", (message, message)),))

    page = pages.get(store_trial(pages.desk.store.runs, Case("long", (Turn("Speak."),)), transcript)).text

    assert page.count('<article class="message"') == 1
    assert "More messages and calls (1)</a>" in page


def large_trial(pages: Any) -> str:
    """The address of a trial of one turn with 10,000 calls, which is stored once."""
    if "large" not in ADDRESSES:
        calls = [ToolCall("search", {"origin": "JFK", "destination": "SEA"}, str(at)) for at in range(10_000)]
        events = [Event(kind, call=call) for call in calls for kind in ("tool_call", "tool_result")]
        record = TurnRecord("Find all flights.", (*events, Event("agent_message", text="All found.")))
        trial = Case("large", (Turn(record.query),)), Transcript((record,))
        ADDRESSES["large"] = store_trial(pages.desk.store.runs, *trial)
    return ADDRESSES["large"]


@pytest.mark.parametrize("query", ["", "?all=1", "?turn=1&pieces=9000", "?turn=1&events=15000"])
def test_a_turn_of_ten_thousand_calls_is_never_a_large_page(pages: Any, query: str) -> None:
    page = pages.get(f"{large_trial(pages)}{query}").text

    assert len(page) < 200_000
    assert "All found." not in page


def test_a_reader_without_a_script_reads_a_large_turn_up_to_its_end(pages: Any) -> None:
    address = large_trial(pages)
    page, n_pages = pages.get(f"{address}?turn=1&pieces=9950").text, 1
    while rest := re.search(r'href="\?(turn=1&amp;pieces=\d+)#turn-1"', page):
        page, n_pages = pages.get(f"{address}?{unescape(rest[1])}").text, n_pages + 1

    assert "All found." in page
    assert n_pages < 10
    assert pages.get(f"{address}/turns/0/pieces?from=60").headers["location"] == f"{address}?turn=1&pieces=60#turn-1"
