"""Trials and cases of many turns are stored in blocks, of which a page reads few; joined they are the whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, update

from evaldesk.errors import DamagedDatabaseError, NotFoundError
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
)
from evaldesk.model.trial_turns import MANY_TURNS, PlayedTurn, turns_in_memory
from evaldesk.store import Store
from evaldesk.store.runs.long_trials import OF_BLOCK, divergence_of
from evaldesk.store.tables import blocks
from evaldesk.store.tables.blocks import BLOCKS, Blocks, Piece, pack_blocks, whole_json
from evaldesk.store.tables.columns import _compressor, pack_json, unpack
from evaldesk.store.tables.runs import CASE_SNAPSHOT, TRANSCRIPT
from evaldesk.wire import from_json, to_json

Order = Callable[[list[Score]], list[Score]]
SIZES = [MANY_TURNS + 1, 2 * OF_BLOCK - 1, 2 * OF_BLOCK, 2 * OF_BLOCK + 1, 1_003]
CRITERIA = (Criterion("tool_exact", 1.0), Criterion("response_match_score", 0.5))


def by_metric(scores: list[Score]) -> list[Score]:
    return sorted(scores, key=lambda score: score.metric)


def in_any_order(scores: list[Score]) -> list[Score]:
    return random.Random(7).sample(scores, len(scores))


ORDERS: dict[str, Order] = {"by turn": list, "by metric": by_metric, "in any order": in_any_order}


def long_trial(
    n: int, *, broken: int | None = None, n_expected: int | None = None, order: Order = list
) -> tuple[Case, TrialResult]:
    """A trial of `n` turns with a call each, of which one is another than expected, and scores of two metrics."""
    calls = [ToolCall("find", {"flight": at, "text": '"turns":[ "scores":['}, str(at)) for at in range(n)]
    turns = tuple(Turn(f"Find {at}, ü.", Expected((call,), reference=f"{at}")) for at, call in enumerate(calls))
    made = [ToolCall("cancel", {}, call.id) if at == broken else call for at, call in enumerate(calls)]
    records = tuple(
        TurnRecord(
            turn.query,
            (
                Event("usage", usage=Usage("m", tokens_in=at, tokens_out=1, cost=0.25)),
                Event("tool_call", call=call),
                Event("tool_result", call=call, result={"fare": at}),
                Event("agent_message", text=f"{at} {'long ' * (at % 40)}"),
            ),
            {"n": at},
            {"n": at + 1},
            float(at % 9),
            captures=("adapter",),
        )
        for at, (turn, call) in enumerate(zip(turns, made, strict=True))
    )
    scores = [
        score
        for at in range(n)
        for score in (
            Score("tool_exact", float(at != broken), at, 1.0, at != broken, details={"n_expected": 1}),
            Score("response_match_score", 0.75, at, 0.5, True),
        )
    ]
    scores += [
        Score("tool_exact", 0.9, None, 1.0, broken is None),
        Score("response_match_score", 0.75, None, 0.5, True),
    ]
    usages = tuple(usage for turn in records for usage in turn.usages)
    verdict: Verdict = "passed" if broken is None else "failed"
    result = TrialResult(
        1, 0, 0, "finished", verdict, "answered", Transcript(records), tuple(order(scores)), usages, logs="printed"
    )
    case = Case("long", turns[:n_expected], final_state={"n": n}, tags=("a",), extra={"turns": [], "more": '"turns":['})
    return case, result


def stored(store: Store, case: Case, result: TrialResult, criteria: Sequence[Criterion] = CRITERIA) -> int:
    config = RunConfig(AgentRef("agent", "agent"), "trips", n=1, criteria=tuple(criteria))
    run_id = store.runs.create(config, [case])
    store.runs.record([result_of(result, run_id)])
    return run_id


def result_of(result: TrialResult, run_id: int) -> TrialResult:
    return replace(result, run_id=run_id)


def as_it_was_stored_before(store: Store, run_id: int, case: Case, result: TrialResult) -> None:
    """Write the rows in the form of a version without blocks."""
    for table, value in ((CASE_SNAPSHOT, case), (TRANSCRIPT, result_of(result, run_id))):
        codec, data = pack_json(to_json(value))
        with store._database.writing() as connection:
            connection.execute(update(table).where(table.c.run_id == run_id).values(codec=codec, data=data))


def read(store: Store, run_id: int, *ranges: tuple[int, int]) -> list[list[PlayedTurn]]:
    turns, _ = store.runs.turns(run_id, 0, 0)
    return [
        [PlayedTurn(each.turn, each.record, list(each.scores)) for each in turns.read_turns(first, end)]
        for first, end in ranges
    ]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("n", SIZES)
def test_the_blocks_of_a_long_trial_are_the_whole_byte_for_byte(store: Store, n: int, order: Order) -> None:
    case, result = long_trial(n, order=order)

    run_id = stored(store, case, result)

    assert store.runs.trial(run_id, 0, 0) == result_of(result, run_id)
    assert store.runs.case(run_id, 0) == case
    for table, value in ((TRANSCRIPT, result_of(result, run_id)), (CASE_SNAPSHOT, case)):
        with store._database.reading() as connection:
            row = connection.execute(select(table.c.codec, table.c.data).where(table.c.run_id == run_id)).one()
        assert row.codec == BLOCKS
        assert whole_json(row.data) == to_json(value)


@pytest.mark.parametrize("is_old", [False, True], ids=["in blocks", "of an earlier version"])
@pytest.mark.parametrize("n_expected", [None, 230, 0], ids=["all expected", "some expected", "none expected"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_any_turns_are_read_as_they_are_in_the_whole(
    store: Store, order: Order, n_expected: int | None, is_old: bool
) -> None:
    n = 2 * OF_BLOCK + 37
    case, result = long_trial(n, broken=301, n_expected=n_expected, order=order)
    run_id = stored(store, case, result)
    if is_old:
        as_it_was_stored_before(store, run_id, case, result)
    chance = random.Random(11)
    ends = [sorted(chance.sample(range(n + 1), 2)) for _ in range(8)]
    ranges = [(first, end) for first, end in ends] + [(0, n), (n - 1, n), (OF_BLOCK - 1, OF_BLOCK + 1), (5, 5)]
    whole = turns_in_memory(case, result_of(result, run_id))

    turns, divergence = store.runs.turns(run_id, 0, 0)

    wanted = [
        [PlayedTurn(each.turn, each.record, list(each.scores)) for each in whole.read_turns(*some)] for some in ranges
    ]
    assert read(store, run_id, *ranges) == wanted
    assert (turns.case, turns.result, turns.summary) == (whole.case, whole.result, whole.summary)
    assert turns.read_trial() == whole.read_trial()
    assert divergence == divergence_of(case, result, store.runs.summary(run_id).config)


def test_what_a_page_says_of_all_turns_is_what_the_whole_says(store: Store) -> None:
    case, result = long_trial(300)
    run_id = stored(store, case, result)

    turns, _ = store.runs.turns(run_id, 0, 0)

    assert turns.result is not None
    assert (turns.result.tokens, turns.result.cost) == (result.tokens, result.cost)
    assert turns.summary.is_least is result.is_least
    assert (turns.summary.n_turns, turns.summary.n_calls, turns.n_turns) == (300, 300, 300)


@pytest.mark.parametrize("broken", [None, 950])
def test_a_page_of_few_turns_unpacks_few(store: Store, monkeypatch: pytest.MonkeyPatch, broken: int | None) -> None:
    case, result = long_trial(1_000, broken=broken)
    run_id = stored(store, case, result)
    decoded: list[int] = []

    def counted(data: bytes, kind: Any) -> Any:
        found = from_json(data, kind)
        decoded.append(len(found) if kind in (tuple[TurnRecord, ...], tuple[Turn, ...]) else 0)
        return found

    monkeypatch.setattr(blocks, "from_json", counted)

    turns, divergence = store.runs.turns(run_id, 0, 0)
    turns.read_turns(0, 50)

    assert sum(decoded) == 2 * OF_BLOCK
    assert (divergence and divergence.turn) == (None if broken is None else broken + 1)


def test_a_short_trial_is_stored_as_ever(store: Store) -> None:
    run_id = stored(store, *long_trial(MANY_TURNS))

    with store._database.reading() as connection:
        codecs = [connection.scalar(select(table.c.codec)) for table in (TRANSCRIPT, CASE_SNAPSHOT)]
    assert BLOCKS not in codecs
    assert store.runs.turns(run_id, 0, 0)[0].n_turns == MANY_TURNS


def test_a_long_case_that_was_not_played_has_its_turns(store: Store) -> None:
    case, _ = long_trial(500)
    run_id = store.runs.create(RunConfig(AgentRef("agent", "agent"), "trips", n=1), [case])

    turns, divergence = store.runs.turns(run_id, 0, 0)

    assert (turns.result, divergence, turns.n_turns) == (None, None, 500)
    assert [each.turn for each in turns.read_turns(490, 500)] == [*case.turns[490:]]


def test_a_trial_that_goes_while_its_turns_are_read_is_not_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.store.runs.long_trials.BEGINNING", 16)
    monkeypatch.setattr(blocks, "BEGINNING", 16)
    run_id = stored(store, *long_trial(500))
    turns, _ = store.runs.turns(run_id, 0, 0)
    with store._database.writing() as connection:
        connection.execute(TRANSCRIPT.delete().where(TRANSCRIPT.c.run_id == run_id))

    with pytest.raises(NotFoundError, match="removed"):
        turns.read_turns(100, 150)


def test_blocks_are_read_where_they_are_and_not_the_rest() -> None:
    pieces = [Piece(b"["), *(Piece(b"," * bool(at) + b"%d" % at, "turns", at, at + 1) for at in range(50)), Piece(b"]")]
    data = pack_blocks(pieces, to_json({"n": 50}), _compressor())
    asked: list[tuple[int, int]] = []

    def part(start: int, n: int) -> bytes:
        asked.append((start, n))
        return data[start : start + n]

    blocks.BEGINNING, whole = 64, blocks.BEGINNING
    try:
        found = Blocks(part)
        items = found.items("turns", list[int], 20, 23)
    finally:
        blocks.BEGINNING = whole

    assert [some for _, some in items] == [[20], [21], [22]]
    assert found.head(dict[str, int]) == {"n": 50}
    assert unpack(BLOCKS, data, list[int]) == [*range(50)]
    assert len(asked) == 4
    assert sum(n for _, n in asked) < len(data)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\0" * 8, b"\0\0\0\x05\0\0\0\x05" + b"x" * 90, b"\xff" * 40], ids=repr
)
def test_bytes_that_are_no_blocks_are_named_as_damage(data: bytes) -> None:
    with pytest.raises(DamagedDatabaseError, match="in blocks"):
        unpack(BLOCKS, data, TrialResult)
