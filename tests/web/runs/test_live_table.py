"""The table of runs that play: its cells follow the trials, in the rows that the tab shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn, Verdict
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.model.run import ExperimentPart
from evaldesk.web import live_table

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

N_CASES, N = 4, 2
ADDRESSES = {"runs": "/table?runs=1,2,3", "an experiment": "/experiments/1"}


@pytest.fixture
def run_ids(pages: RunPages) -> list[int]:
    """Three variants of an experiment that play; nothing has ended yet."""
    store, names = pages.desk.store, ("a", "b", "c")
    number = store.experiments.begin(
        ExperimentPlan("trips", tuple(Variant(name, {"model": name}) for name in names), 7, 4), []
    )
    runs = []
    for index, name in enumerate(names):
        config = RunConfig(
            AgentRef("dice", "dice:root_agent"), "calc", n=N, model=name, experiment=ExperimentPart(number, index, name)
        )
        runs.append(store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(N_CASES)]))
        store.runs.set_status(runs[-1], "running")
    return runs


@pytest.fixture
def play(pages: RunPages, run_ids: list[int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Between two looks of a stream one trial ends in place of a second that passes; then all runs end."""

    def play(*keys: tuple[int, int, int]) -> None:
        left = list(keys)

        def write() -> None:
            if left:
                run_id, case, at = left.pop(0)
                verdict: Verdict = "passed" if case else "failed"
                pages.desk.store.runs.record([TrialResult(run_id, case, at, "finished", verdict)])
                return
            for run_id in run_ids:
                pages.desk.store.runs.set_status(run_id, "stopped")

        async def pause() -> None:
            await asyncio.to_thread(write)

        monkeypatch.setattr(live_table, "pause", pause)

    return play


def events_of(page: str) -> str:
    address = re.search(r'hx-sse:connect="([^"]+)"', page)
    assert address
    return address[1].replace("&amp;", "&")


def targets(text: str) -> list[set[str]]:
    """The blocks of each message."""
    messages = [each for each in text.split("\n\n") if "hx-partial" in each]
    return [set(re.findall(r'hx-target="#([^"]+)"', each)) for each in messages]


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_trial_that_ends_changes_its_cell_the_heads_and_the_answer_alone(
    pages: RunPages, play: Callable[..., None], address: str
) -> None:
    page = pages.get(address).text
    play((2, 1, 0))

    text = pages.get(events_of(page)).text

    first, second, *_ = targets(text)
    cells = {f"cell-{row}-{column}" for row in range(N_CASES) for column in (1, 2, 3)}
    assert cells | {"groups", "says"} <= first
    assert {each for each in second if each.startswith("cell")} == {"cell-1-2"}
    assert "says" in second
    for block in ("groups", "total"):  # of an experiment only whole blocks of trials count
        assert (block in second) is address.startswith("/table")
    assert text.rstrip().endswith("data: done")
    assert cells <= set(re.findall(r'id="(cell-[^"]+)"', page))


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_no_row_moves_or_goes_while_runs_play(pages: RunPages, play: Callable[..., None], address: str) -> None:
    before = pages.get(f"{address}{'&' if '?' in address else '?'}sort=-file").text
    rows = re.findall(r'<tr id="row-(\d+)"', before)
    play((1, 3, 0), (1, 3, 1), (1, 0, 0))

    text = pages.get(events_of(before)).text

    assert rows == [str(at) for at in reversed(range(N_CASES))]
    assert not any("row-" in target or target == "table" for each in targets(text) for target in each)
    assert {f"cell-{row}-1" for row in rows} <= targets(text)[0]


def test_a_look_without_a_change_sends_nothing(
    pages: RunPages, run_ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(3))

    def stop() -> None:
        for run_id in run_ids:
            pages.desk.store.runs.set_status(run_id, "stopped")

    async def pause() -> None:
        if next(looks) == 2:
            await asyncio.to_thread(stop)

    monkeypatch.setattr(live_table, "pause", pause)

    text = pages.get("/table/events?runs=1,2,3&rows=0,1").text

    assert len(targets(text)) == 2


def test_runs_at_rest_have_no_stream_and_a_search_as_one_types(pages: RunPages, run_ids: list[int]) -> None:
    while_live = pages.get("/table?runs=1,2,3").text
    for run_id in run_ids:
        pages.desk.store.runs.set_status(run_id, "stopped")

    at_rest = pages.get("/table?runs=1,2,3").text

    assert "hx-sse:connect" in while_live
    assert "input changed delay:150ms" not in while_live
    assert "hx-sse:connect" not in at_rest
    assert "input changed delay:150ms" in at_rest


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/table/events?runs=1,2&rows=0,x,99999999999,7,-1", 200),
        ("/table/events?runs=8,9", 404),
        ("/table/events?runs=1", 303),
        ("/experiments/9/events", 404),
    ],
    ids=["rows that are not there", "runs that are not there", "one run", "no experiment"],
)
def test_a_stream_that_cannot_be_is_a_page(
    pages: RunPages, play: Callable[..., None], address: str, status: int
) -> None:
    play()

    assert pages.get(address).status_code == status
