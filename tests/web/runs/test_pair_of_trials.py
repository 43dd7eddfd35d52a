"""Two trials side by side: aligned turn by turn, without a reference, and with an address to share."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Expected,
    RunConfig,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.pages.pair import MAX_ROWS, other_trial, read_pair

FIND, BOOK, PAY = ToolCall("find", {"to": "SEA"}), ToolCall("book", {"seat": 1}), ToolCall("pay", {})
CASE = Case("trip", (Turn("Find."), Turn("Book.")))


def turn(query: str, *calls: ToolCall, says: str = "Done.") -> TurnRecord:
    events = tuple(Event("tool_call", call=call) for call in calls)
    return TurnRecord(query, (*events, Event("agent_message", text=says)))


def stored(pages: Any, *trials: tuple[TurnRecord, ...], verdicts: str = "") -> int:
    """A run of one case with these trials, each passed (`p`) or failed (`f`)."""
    runs = pages.desk.store.runs
    run_id: int = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=len(trials)), [CASE])
    words = {"p": "passed", "f": "failed"}
    runs.record(
        [
            TrialResult(run_id, 0, at, "finished", words[verdict], "answered", Transcript(turns))  # type: ignore[arg-type]
            for at, (turns, verdict) in enumerate(zip(trials, verdicts or "p" * len(trials), strict=True))
        ]
    )
    return run_id


ONE = (turn("Find.", FIND), turn("Book.", BOOK, says="Booked seat one."))
TWO = (turn("Find.", FIND), turn("Book.", ToolCall("book", {"seat": 2}), PAY, says="Booked seat two."))


def test_the_sentence_says_where_they_part_and_equal_turns_fold(pages: Any) -> None:
    run_id = stored(pages, ONE, TWO)

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0/pair").text

    assert "First difference in turn 2: different calls, first at book." in page
    first, second = re.split(r'<article class="turn"', page)[1:]
    assert "the same, 1 call" in first
    assert "<table" not in first
    assert "<dd><del>1</del></dd>" in second
    assert "<dd><ins>2</ins></dd>" in second
    assert "only in B</th>" in second
    assert "Booked seat <del>one</del>" in second


def test_everything_is_one_key_away_and_so_is_the_swapped_pair(pages: Any) -> None:
    run_id = stored(pages, ONE, TWO)
    address = f"/runs/{run_id}/cases/0/trials/0/pair?with={run_id}.0.1"

    page = pages.get(address).text
    (every,) = re.findall(r'href="([^"]+)" data-key="d"', page)
    (swapped,) = re.findall(r'href="([^"]+)" data-key="w"', page)

    assert pages.get(every.replace("&amp;", "&")).text.count('<table class="diff"') == 2
    assert f"/runs/{run_id}/cases/0/trials/1/pair?with={run_id}.0.0" == swapped
    assert "only in A</th>" in pages.get(swapped).text


def test_equal_trials_say_so(pages: Any) -> None:
    run_id = stored(pages, ONE, ONE)

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0/pair").text

    assert "Both trials made the same calls and gave the same answers." in page
    assert " data-difference" not in page


def test_a_turn_of_one_side_alone_is_told(pages: Any) -> None:
    run_id = stored(pages, ONE[:1], ONE)

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0/pair").text

    assert "Only B has turn 2." in page
    assert '<span class="tag">only in B</span>' in page


def test_trials_of_two_runs_stand_beside_each_other(pages: Any) -> None:
    a, b = stored(pages, ONE), stored(pages, TWO)

    page = pages.get(f"/runs/{a}/cases/0/trials/0/pair?with={b}.0.0").text
    comparison = pages.get(f"/table?runs={a},{b}&show=same").text

    assert f'<a href="/runs/{b}/cases/0/trials/0">run {b}, trial 1</a>' in page
    assert f'href="/runs/{a}/cases/0/trials/0/pair?with={b}.0.0">side by side' in comparison


def test_the_trial_beside_is_the_next_with_another_verdict(pages: Any) -> None:
    runs = pages.desk.store.runs
    run_id = stored(pages, ONE, ONE, TWO, verdicts="ppf")

    assert other_trial(runs, run_id, (0, 0)) == (run_id, (0, 2))
    assert other_trial(runs, run_id, (0, 2)) == (run_id, (0, 0))
    assert other_trial(runs, stored(pages, ONE, ONE), (0, 1)) == (run_id + 1, (0, 0))
    assert other_trial(runs, stored(pages, ONE), (0, 0)) is None


def test_a_trial_links_to_the_pair_unless_it_is_alone(pages: Any) -> None:
    run_id, alone = stored(pages, ONE, TWO), stored(pages, ONE)

    link = f'href="/runs/{run_id}/cases/0/trials/0/pair?with={run_id}.0.1" data-key="s"'
    assert link in pages.get(f"/runs/{run_id}/cases/0/trials/0").text
    assert 'data-key="s"' not in pages.get(f"/runs/{alone}/cases/0/trials/0").text
    assert pages.get(f"/runs/{alone}/cases/0/trials/0/pair").status_code == 404


@pytest.mark.parametrize("other", ["1.0.9", "9.0.0", "1.9.0"])
def test_a_trial_that_is_not_there_is_not_found(pages: Any, other: str) -> None:
    stored(pages, ONE, TWO)

    assert pages.get(f"/runs/1/cases/0/trials/0/pair?with={other}").status_code == 404
    assert pages.get("/runs/1/cases/0/trials/9/pair").status_code == 404


def test_thousands_of_calls_are_cut_and_counted(pages: Any) -> None:
    many = (turn("Find.", *(ToolCall("find", {"n": n}) for n in range(MAX_ROWS + 5))),)
    run_id = stored(pages, many, (turn("Find."),))

    pair = read_pair(pages.desk.store.runs, run_id, (0, 0), "", is_all=False)

    assert (len(pair.turns[0].calls), pair.n_left_out) == (MAX_ROWS, 5)
    assert len(pages.get(f"/runs/{run_id}/cases/0/trials/0/pair").content) < 250_000


def test_a_turn_that_went_as_expected_is_marked_for_differences_only(pages: Any) -> None:
    runs = pages.desk.store.runs
    case = Case("trip", (Turn("Find.", Expected((FIND,))), Turn("Book.", Expected((PAY,)))))
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=1), [case])
    runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", Transcript(ONE))])

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0").text

    assert re.findall(r'<article class="turn" id="turn-(\d)"[^>]*data-same>', page) == ["1"]
    assert 'data-differences-switch data-key="d"' in page
    alone = pages.get(f"/runs/{stored(pages, ONE)}/cases/0/trials/0").text
    assert "data-differences-switch" not in alone


def test_the_keys_of_a_side_pass_over_the_trial_of_the_other(pages: Any) -> None:
    run_id = stored(pages, ONE, TWO, ONE)

    page = pages.get(f"/runs/{run_id}/cases/0/trials/1/pair?with={run_id}.0.0").text

    links = {key: address for address, key in re.findall(r'<a class="hidden" href="([^"]+)" data-key="(\w)"', page)}
    assert links == {
        "l": f"/runs/{run_id}/cases/0/trials/2/pair?with={run_id}.0.0",
        "L": f"/runs/{run_id}/cases/0/trials/1/pair?with={run_id}.0.2",
    }
