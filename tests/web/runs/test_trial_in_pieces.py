"""Trials of thousands of turns come in pieces: the first, the first divergence, the address, the rest on scroll."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from sqlalchemy import update
from tests.long_trials import store_trial

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.metrics import score_trial
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.trial_turns import MANY_TURNS, turns_in_memory
from evaldesk.pages.trial_turns import PIECE, Gap, TurnPanel, pieces_of, turn_pieces
from evaldesk.store.runs.long_trials import OF_BLOCK
from evaldesk.store.tables import blocks
from evaldesk.store.tables.columns import pack_json
from evaldesk.store.tables.runs import CASE_SNAPSHOT, TRANSCRIPT
from evaldesk.web.report import run_report
from evaldesk.wire import from_json, to_json

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
def pages(shared_pages: Any) -> Any:
    return shared_pages


@pytest.fixture(scope="module")
def address(desk_of_module: Any) -> str:
    """The address of the trial, which the tests look at."""
    return store_trial(desk_of_module.desk.store.runs, *long_trial())


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
    result = TrialResult(1, 0, 0, "finished", "failed", "answered", transcript)

    (panel,) = turn_pieces(turns_in_memory(case, result), [range(BROKEN - 1, BROKEN)])

    assert panel == turn_pieces(turns_in_memory(case, result), [range(N)])[BROKEN - 1]


def test_a_call_of_another_turn_stands_in_both_pieces_where_a_metric_took_all_turns_as_one() -> None:
    case, transcript = long_trial()
    turns = list(transcript.turns)
    late = turns[PIECE - 1].events[0]
    turns[PIECE - 1] = replace(turns[PIECE - 1], events=turns[PIECE - 1].events[1:])
    turns[PIECE] = replace(turns[PIECE], events=(late, *turns[PIECE].events))
    scores = score_trial(Transcript(tuple(turns)), case, [Criterion("tool_exact", 1.0, {"scope": "conversation"})])
    result = TrialResult(1, 0, 0, "finished", "failed", "answered", Transcript(tuple(turns)), tuple(scores))
    played = turns_in_memory(case, result)

    pieces = [panel for at in range(0, N, PIECE) for panel in turn_pieces(played, [range(at, at + PIECE)])]

    assert tuple(pieces) == turn_pieces(played, [range(N)])
    moved = pieces[PIECE - 1]
    assert isinstance(moved, TurnPanel)
    assert [row.actual_turn for row in moved.calls] == [PIECE + 1]


def test_a_trial_of_an_earlier_version_has_the_same_pages(pages: Any, address: str) -> None:
    runs = pages.desk.store.runs
    run_id = int(address.split("/")[2])
    paths = [address, f"{address}?turn=700", f"{address}/turns?from=951&to=1000", f"{address}/turns/433"]
    in_blocks = [without_nonces(pages.get(path, **HTMX).text) for path in paths]
    for table, value in ((CASE_SNAPSHOT, runs.case(run_id, 0)), (TRANSCRIPT, runs.trial(run_id, 0, 0))):
        codec, data = pack_json(to_json(value))
        with runs._database.writing() as connection:
            connection.execute(update(table).where(table.c.run_id == run_id).values(codec=codec, data=data))

    assert [without_nonces(pages.get(path, **HTMX).text) for path in paths] == in_blocks


def without_nonces(page: str) -> str:
    return re.sub(r'nonce="[^"]*"|hx-nonce="[^"]*"', "", page)


def test_no_page_has_all_turns_of_a_long_trial(pages: Any, address: str) -> None:
    page = pages.get(f"{address}?all=1").text

    assert len(TURNS.findall(page)) == PIECE + 1


def test_the_turn_of_the_address_is_drawn_before_the_others_take_the_room(pages: Any, address: str) -> None:
    page = pages.get(f"{address}?turn=990").text

    assert 'id="turn-990-title"' in page
    assert pages.get(f"{address}/turns/989").headers["location"] == f"{address}?turn=990#turn-990"


def test_what_takes_all_turns_comes_when_it_is_asked_for(pages: Any) -> None:
    runs, (case, transcript) = pages.desk.store.runs, long_trial()
    config = RunConfig(
        AgentRef("agent", "agent"), "trips", n=1, criteria=(Criterion("tool_trajectory_avg_score", 1.0),)
    )
    run_id = runs.create(config, [case])
    scores = score_trial(transcript, case, config.criteria)
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", transcript, tuple(scores))])
    runs.set_status(run_id, "finished")
    address = f"/runs/{run_id}/cases/0/trials/0"

    page = pages.get(address).text
    compared = pages.get(f"{address}?steps=tools").text

    assert f'href="{address}?steps=tools">Compare with the verdict of adk eval' in page
    assert "failed by adk eval" not in page
    assert "passed here, failed by adk eval" in compared.lower()


def test_a_blind_reader_gets_the_rest_of_a_trial_without_what_is_expected(pages: Any, address: str) -> None:
    run_id = address.split("/")[2]
    sent = pages.post("/queues", run=run_id, of="failed", n="1", reader="ann", blind="on")
    queue = sent.headers["location"].partition("?")[0]

    page = pages.get(queue).text
    (link,) = re.findall(r'hx-get="([^"]+/turns\?[^"]+)"', page)
    rest = link.partition("?")[0]
    piece = pages.get(f"{rest}?from=430&to=440", **HTMX).text

    assert [*map(int, TURNS.findall(page))] == [*range(1, PIECE + 1)]
    assert len(page.encode()) < 400_000
    assert [*map(int, TURNS.findall(piece))] == [*range(430, 441)]
    assert "Expected" not in piece
    first = pages.get(f"{rest}?from=430&to=440")
    assert first.headers["location"].endswith("&turn=430#turn-430")
    assert {430, *range(1, PIECE + 1)} <= {*map(int, TURNS.findall(pages.get(f"{queue}?turn=430").text))}


def test_two_long_trials_side_by_side_show_the_turns_that_differ(pages: Any) -> None:
    runs, (case, transcript) = pages.desk.store.runs, long_trial()
    run_id = runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=2), [case])
    other = replace(transcript.turns[700], events=())
    both = (transcript, Transcript((*transcript.turns[:700], other, *transcript.turns[701:])))
    runs.record([TrialResult(run_id, 0, at, "finished", "failed", "answered", each) for at, each in enumerate(both)])
    address = f"/runs/{run_id}/cases/0/trials/0/pair"

    page, whole = pages.get(address).text, pages.get(f"{address}?show=all").text

    assert TURNS.findall(page) == ["701"]
    assert "First difference in turn 701" in page
    assert "999 turns not shown here." in page
    assert len(TURNS.findall(whole)) == MANY_TURNS


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


def timed_trial() -> tuple[Case, Transcript]:
    """A call of a model and of a tool in each turn, with their times."""
    call = ToolCall("search", {}, "c")
    asked = Event("usage", 3, usage=Usage("demo/trips", tokens_in=9, tokens_out=2, cost=0.5, duration_ms=3))
    events = (asked, Event("tool_call", 4, call=call), Event("tool_result", 9, call=call, duration_ms=5))
    turns = [TurnRecord(f"Find {at}.", events, duration_ms=10.0 + at % 7) for at in range(N)]
    return Case("timed", tuple(Turn(turn.query) for turn in turns)), Transcript(tuple(turns))


@pytest.mark.parametrize("query", ["", "?span=1", "?span=434.1", "?span=1000", "?span=201.2", "?span=700.0"])
def test_the_time_line_of_a_long_trial_reads_only_the_turns_beside_the_chosen_one(
    pages: Any, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, transcript = timed_trial()
    usages = tuple(usage for turn in transcript.turns for usage in turn.usages)
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=1), [case])
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", transcript, (), usages, start_ms=500.0)])
    runs.set_status(run_id, "finished")
    path = f"/runs/{run_id}/cases/0/trials/0/timeline{query}"
    whole_reads: list[tuple[int, ...]] = []
    read = type(runs).trial

    def counted(self: Any, *place: int) -> TrialResult:
        whole_reads.append(place)
        result: TrialResult = read(self, *place)
        return result

    monkeypatch.setattr(type(runs), "trial", counted)

    in_part = without_nonces(pages.get(path).text)
    n_whole = len(whole_reads)
    codec, data = pack_json(to_json(runs.trial(run_id, 0, 0)))
    with runs._database.writing() as connection:
        connection.execute(update(TRANSCRIPT).where(TRANSCRIPT.c.run_id == run_id).values(codec=codec, data=data))

    assert n_whole == 0
    assert without_nonces(pages.get(path).text) == in_part
    assert len(in_part) < 400_000


@pytest.mark.parametrize("span", ["0", "1001", "1001.1", "-1", "99999999999999999999", "434.99", "judges"])
def test_an_address_of_no_span_of_a_long_trial_is_not_found(pages: Any, address: str, span: str) -> None:
    assert pages.get(f"{address}/timeline?span={span}").status_code == 404


def other_answers(transcript: Transcript, *indexes: int) -> Transcript:
    """The transcript with other answers in these turns."""
    turns = list(transcript.turns)
    for at in indexes:
        turns[at] = replace(turns[at], events=(*turns[at].events[:-1], Event("agent_message", text="None.")))
    return Transcript(tuple(turns))


def pair_of(pages: Any, case: Case, *transcripts: Transcript) -> str:
    """The address of two trials of one case side by side."""
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=2), [case])
    runs.record(
        [TrialResult(run_id, 0, at, "finished", "failed", "answered", each) for at, each in enumerate(transcripts)]
    )
    return f"/runs/{run_id}/cases/0/trials/0/pair"


def test_two_long_trials_that_differ_everywhere_are_compared_page_by_page_each_difference_once(pages: Any) -> None:
    case, transcript = long_trial()
    different_turns = [*range(150), *range(210, 420, 3), 600, 799, 999]
    address = pair_of(pages, case, transcript, other_answers(transcript, *different_turns))
    numbers, path, n_pages = list[int](), address, 0

    while path:
        page = pages.get(path).text
        numbers += map(int, TURNS.findall(page))
        path, n_pages = unescape(next(iter(re.findall(r'<a href="([^"]+)">Compare from turn', page)), "")), n_pages + 1
        assert n_pages < 9

    assert numbers == [at + 1 for at in different_turns]
    assert n_pages > 1


def test_equal_pieces_of_two_long_trials_are_not_read(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case, transcript = long_trial()
    address = pair_of(pages, case, transcript, other_answers(transcript, 999))
    decoded: list[int] = []

    def counted(data: bytes, kind: Any) -> Any:
        value = from_json(data, kind)
        decoded.append(len(value) if kind == tuple[TurnRecord, ...] else 0)
        return value

    monkeypatch.setattr(blocks, "from_json", counted)
    page = pages.get(address).text

    assert [*map(int, TURNS.findall(page))] == [1_000]
    assert "First difference in turn 1000: different answers." in page
    assert sum(decoded) == 2 * OF_BLOCK
