"""Trials of thousands of turns come in pieces: the first, the first divergence, the address, the rest on scroll."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.long_trials import store_trial

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Case, Event, Expected, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.pages.trial_turns import MANY_TURNS, PIECE, Gap, pieces_of, turn_panels, turn_pieces
from evaldesk.web.report import run_report

HTMX = {"HX-Request": "true"}
N = 1_000
BROKEN = 434
GAP = re.compile(r'data-gap="(\d+) (\d+)"')
TURNS = re.compile(r'<article class="turn" id="turn-(\d+)"')


def long_trial() -> tuple[Case, Transcript]:
    """A call in each turn, of which one is another than expected."""
    calls = [ToolCall("search", {"flight": number}, str(number)) for number in range(N)]
    turns = [Turn(f"Find flight {number}.", Expected((call,))) for number, call in enumerate(calls)]
    calls[BROKEN - 1] = ToolCall("cancel", {"flight": BROKEN - 1}, "x")
    said = [(Event("tool_call", call=call), Event("agent_message", text=f"Flight {call.id}")) for call in calls]
    played = [TurnRecord(turn.query, events) for turn, events in zip(turns, said, strict=True)]
    return Case("long", tuple(turns)), Transcript(tuple(played))


@pytest.fixture
def address(pages: Any) -> str:
    return store_trial(pages.desk.store.runs, *long_trial())


def test_the_page_has_the_first_turns_and_that_of_the_first_divergence(pages: Any, address: str) -> None:
    page = pages.get(address).text

    assert len(page.encode()) < 400_000
    assert [*map(int, TURNS.findall(page))] == [*range(1, PIECE + 1), BROKEN]
    assert GAP.findall(page) == [("51", "433"), ("435", "1000")]
    assert 'href="#turn-434">Go to turn 434' in page


@pytest.mark.parametrize("turn", [51, 434, 700, 999, 1_000])
def test_the_turn_of_the_address_is_on_its_page_with_the_turns_after_it(pages: Any, address: str, turn: int) -> None:
    page = pages.get(f"{address}?turn={turn}").text

    drawn = {*map(int, TURNS.findall(page))}
    assert {*range(1, PIECE + 1), BROKEN, *range(turn, min(turn + PIECE, N + 1))} == drawn
    assert len(page.encode()) < 400_000


def test_the_rest_comes_piece_by_piece_each_turn_once(pages: Any, address: str) -> None:
    page = pages.get(address).text
    found, links = [*map(int, TURNS.findall(page))], re.findall(r'hx-get="([^"]+/turns\?[^"]+)"', page)

    while links:
        piece = pages.get(links.pop().replace("&amp;", "&"), **HTMX).text
        assert len(piece.encode()) < 400_000
        found += map(int, TURNS.findall(piece))
        links += re.findall(r'hx-get="([^"]+/turns\?[^"]+)"', piece)

    assert sorted(found) == [*range(1, N + 1)]


def test_without_a_script_the_link_of_a_gap_is_the_page_of_its_first_turn(pages: Any, address: str) -> None:
    page = pages.get(address).text

    (first, *_) = re.findall(r'<a href="([^"]+)" hx-sync="this:drop"[^>]+>Turns 51 to 433<', page)
    assert first == f"{address}?turn=51#turn-51"
    assert 'id="turn-51"' in pages.get(first.partition("#")[0]).text
    moved = pages.get(f"{address}/turns?from=51&to=433")
    assert (moved.status_code, moved.headers["location"]) == (303, f"{address}?turn=51#turn-51")


@pytest.mark.parametrize("query", ["from=0&to=9", "from=9&to=8", "from=1001&to=1002", "from=x"])
def test_a_piece_that_is_not_there_is_not_found(pages: Any, address: str, query: str) -> None:
    assert pages.get(f"{address}/turns?{query}", **HTMX).status_code == 404


@pytest.mark.parametrize("turn", ["0", "-1", "1001", "x", "99999999999999999999"])
def test_an_address_of_no_turn_is_the_first_page(pages: Any, address: str, turn: str) -> None:
    assert len(TURNS.findall(pages.get(f"{address}?turn={turn}").text)) == PIECE + 1


def test_a_turn_of_a_piece_is_as_it_is_among_all() -> None:
    case, transcript = long_trial()
    from evaldesk.model import TrialResult

    result = TrialResult(1, 0, 0, "finished", "failed", "answered", transcript)

    (panel,) = turn_pieces(case, result, [range(BROKEN - 1, BROKEN)])

    assert panel == turn_panels(case, result)[BROKEN - 1]


def test_a_report_says_which_turns_are_in_the_desk_only(pages: Any, address: str) -> None:
    page = run_report(StoredRuns(pages.desk.store.runs), int(address.split("/")[2])).data.decode()

    assert "Turns 51 to 433 are not in this file; the desk shows them." in page
    assert f"turn-{BROKEN}-title" in page
    assert len(page.encode()) < 1_000_000


def test_pieces_cover_every_turn_once() -> None:
    assert pieces_of(MANY_TURNS) == [range(MANY_TURNS)]
    for wanted in ([0], [49], [50], [51], [300, 2], [999], [1_000], [-1], [0, 500], [500, 10, 980]):
        pieces = pieces_of(1_000, wanted)
        covered = [
            number
            for each in pieces
            for number in (range(each.first, each.last + 1) if isinstance(each, Gap) else (at + 1 for at in each))
        ]
        assert covered == [*range(1, 1_001)]
