"""Forks of trials: what is pinned is not played, and the parent stays as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from tests.desk.forks.conftest import SHOP, Forks, talk

from evaldesk.agents import adapt_object
from evaldesk.agents.python import NEW_OBJECT
from evaldesk.desk.forks.forks import ForkDesk, play_fork
from evaldesk.engine.worker import player
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Criterion
from evaldesk.model.fork import MOST_DEPTH, MOST_EDITS, Edit, Fork, ForkPoint
from evaldesk.model.stored import RunSummary
from evaldesk.store.runs.histories import history_class
from evaldesk.store.tables.forks import PINNED_TURN, RUN_PINNED_TURN

pytestmark = pytest.mark.anyio


async def forked(forks: Forks, point: ForkPoint, *edits: Edit, n: int = 1, **values: Any) -> RunSummary:
    return await forks.over(await play_fork(forks.store, forks.desk, Fork(point, edits, n=n, **values)))


async def test_turns_before_the_point_are_not_played_again(forks: Forks) -> None:
    parent = await forks.play(talk(5))
    forks.shop.messages.clear()
    forks.shop.histories.clear()

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 4), n=2)

    assert sorted(forks.shop.messages) == ["step 4"] * 2 + ["step 5"] * 2
    assert ["step 1", "step 2", "step 3"] in forks.shop.histories
    assert (fork.n_passed, fork.n_trials, fork.status) == (2, 2, "finished")


async def test_a_fork_is_judged_by_the_whole_case_on_pinned_and_played_turns(forks: Forks) -> None:
    forks.shop.breaks_at = 3
    parent = await forks.play(talk(5))
    forks.shop.breaks_at = 0

    before = await forked(forks, ForkPoint(parent.id, 0, 0, 3))
    after = await forked(forks, ForkPoint(parent.id, 0, 0, 4))

    assert parent.n_failed == 1
    assert (before.n_passed, after.n_failed) == (1, 1)
    trial = forks.store.runs.trial(after.id, 0, 0)
    own = forks.store.runs.trial(parent.id, 0, 0)
    assert trial.n_prefix_turns == 3
    assert trial.transcript.turns[:3] == own.transcript.turns[:3]
    assert [turn.query for turn in trial.transcript.turns] == [f"step {number}" for number in range(1, 6)]
    assert {score.turn for score in trial.scores} == {score.turn for score in own.scores}


async def test_the_first_and_the_last_turn_can_be_forked(forks: Forks) -> None:
    parent = await forks.play(talk(3))
    forks.shop.messages.clear()

    first = await forked(forks, ForkPoint(parent.id, 0, 0, 1))
    last = await forked(forks, ForkPoint(parent.id, 0, 0, 3))

    assert forks.shop.messages == ["step 1", "step 2", "step 3", "step 3"]
    assert [forks.store.runs.trial(run.id, 0, 0).n_prefix_turns for run in (first, last)] == [0, 2]


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (0, "trial 1 of run 1 has 3 turns; the nearest point that can be forked is before turn 1"),
        (4, "trial 1 of run 1 has 3 turns; the nearest point that can be forked is before turn 3"),
        (10**9, "the nearest point that can be forked is before turn 3"),
    ],
)
async def test_a_turn_that_is_not_there_is_refused_with_the_nearest(forks: Forks, turn: int, words: str) -> None:
    parent = await forks.play(talk(3))

    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        await forked(forks, ForkPoint(parent.id, 0, 0, turn))


async def test_a_trial_that_is_not_there_is_not_found(forks: Forks) -> None:
    parent = await forks.play(talk(2))

    for point in (ForkPoint(parent.id, 0, 7, 1), ForkPoint(parent.id, 3, 0, 1), ForkPoint(99, 0, 0, 1)):
        with pytest.raises(NotFoundError):
            await forked(forks, point)


@pytest.mark.parametrize("n", [0, -1])
async def test_a_fork_is_played_at_least_once(forks: Forks, n: int) -> None:
    parent = await forks.play(talk(2))

    with pytest.raises(UsageError, match="at least once"):
        await forked(forks, ForkPoint(parent.id, 0, 0, 1), n=n)


async def test_edits_change_message_script_and_state(forks: Forks) -> None:
    parent = await forks.play(talk(3))
    point = ForkPoint(parent.id, 0, 0, 2)
    cases = {
        "message": ((Edit("message", text="another"),), ["another", "step 3"]),
        "dropped": ((Edit("drop_turn"),), ["step 3"]),
        "inserted": ((Edit("insert_turn", text="wait"),), ["wait", "step 2", "step 3"]),
    }

    for edits, messages in cases.values():
        forks.shop.messages.clear()
        await forked(forks, point, *edits)
        assert forks.shop.messages == messages

    forks.shop.states.clear()
    patched = await forked(forks, point, Edit("state", value={"old": None, "n": 7, "deep": {"a": 1}}))
    assert forks.shop.states[0] == {"start": 1, "n": 7, "deep": {"a": 1}}
    assert forks.store.runs.trial(patched.id, 0, 0).transcript.turns[0].state_after == forks.shop.states[0]


async def test_a_state_before_the_first_turn_is_patched(forks: Forks) -> None:
    parent = await forks.play(talk(2))
    forks.shop.states.clear()

    await forked(forks, ForkPoint(parent.id, 0, 0, 1), Edit("state", value={"start": None, "lost": True}))

    assert forks.shop.states[0] == {"old": "x", "lost": True}


async def test_one_free_message_ends_the_fork(forks: Forks) -> None:
    parent = await forks.play(talk(4))
    forks.shop.messages.clear()

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 3), then="message", message="Why?")

    assert forks.shop.messages == ["Why?"]
    assert [turn.query for turn in forks.store.runs.case(fork.id, 0).turns] == ["step 1", "step 2", "Why?"]


async def test_the_answer_of_the_turn_before_is_replaced(forks: Forks) -> None:
    parent = await forks.play(talk(3))

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 3), Edit("assistant", text="I said so"))

    turns = forks.store.runs.trial(fork.id, 0, 0).transcript.turns
    assert [turn.answer for turn in turns] == ["yes", "I said so", "yes"]


@pytest.mark.parametrize(
    "edit",
    [
        Edit("message"),
        Edit("insert_turn", text=" "),
        Edit("state", value=[1]),
        Edit("tool_result", value=1),
        Edit("tool_result", call=1, value=1),
        Edit("assistant"),
        Edit("assistant", value=[{"args": {}}]),
        Edit("instruction"),
        Edit("model"),
        Edit("model", name="a", value={"api_key": "x"}),
        Edit("double", value=[]),
        Edit("double", name="x", value={}),
        Edit("agent"),
        Edit("agent", name="nobody"),
        Edit("other"),  # type: ignore[arg-type]
        Edit("message", text="x" * 200_000),
        Edit("message", text="\ud800"),
        Edit("state", value={"k": float("nan")}),
        Edit("state", value={"\ud800": [1]}),
        Edit("tool_result", call=1, error="\ud800"),
    ],
    ids=lambda edit: f"{edit.kind}-{edit.name}{edit.call or ''}",
)
async def test_an_edit_that_cannot_be_is_refused(forks: Forks, edit: Edit) -> None:
    parent = await forks.play(talk(2))

    with pytest.raises(UsageError):
        await forked(forks, ForkPoint(parent.id, 0, 0, 2), edit)


async def test_a_free_message_that_cannot_be_stored_is_refused(forks: Forks) -> None:
    parent = await forks.play(talk(2))
    fork = Fork(ForkPoint(parent.id, 0, 0, 2), then="message", message="\ud800")

    with pytest.raises(UsageError, match="half a surrogate pair"):
        await play_fork(forks.store, forks.desk, fork)


async def test_a_fork_has_at_most_twenty_edits(forks: Forks) -> None:
    parent = await forks.play(talk(2))
    edits = [Edit("state", value={"k": at}) for at in range(MOST_EDITS + 1)]

    await forked(forks, ForkPoint(parent.id, 0, 0, 2), *edits[:MOST_EDITS])
    with pytest.raises(UsageError, match="at most 20"):
        await forked(forks, ForkPoint(parent.id, 0, 0, 2), *edits)


async def test_a_fork_of_a_fork_goes_ten_deep(forks: Forks) -> None:
    run = await forks.play(talk(3))
    for depth in range(1, MOST_DEPTH + 1):
        run = await forked(forks, ForkPoint(run.id, 0, 0, 3), Edit("state", value={f"d{depth}": depth}))
        part = run.config.fork
        assert part is not None
        assert part.depth == depth

    trial = forks.store.runs.trial(run.id, 0, 0)
    assert trial.n_prefix_turns == 2
    assert trial.transcript.turns[2].state_before == {
        "start": 1,
        "old": "x",
        "n": 2,
        **{f"d{depth}": depth for depth in range(1, MOST_DEPTH + 1)},
    }
    with pytest.raises(UsageError, match="11 deep"):
        await forked(forks, ForkPoint(run.id, 0, 0, 3))


async def test_seeds_come_from_the_parents_seed_the_point_and_the_number(forks: Forks) -> None:
    parent = await forks.play(talk(3))

    def new_seeds() -> list[int | None]:
        seeds = list(dict.fromkeys(forks.shop.seeds))
        forks.shop.seeds.clear()
        return seeds

    (own,) = new_seeds()
    await forked(forks, ForkPoint(parent.id, 0, 0, 2), n=3)
    three = new_seeds()
    await forked(forks, ForkPoint(parent.id, 0, 0, 2), n=3)
    again = new_seeds()
    await forked(forks, ForkPoint(parent.id, 0, 0, 3), n=3)
    elsewhere = new_seeds()
    await forked(forks, ForkPoint(parent.id, 0, 0, 2), n=1, first=2)
    third = new_seeds()

    assert len({own, *three, *elsewhere}) == 7
    assert sorted(map(str, again)) == sorted(map(str, three))
    assert set(third) < set(three)


async def test_the_same_fork_again_offers_the_earlier_results(forks: Forks) -> None:
    parent = await forks.play(talk(3))
    desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)
    fork = Fork(ForkPoint(parent.id, 0, 0, 2), n=2)
    first = await forks.over(await desk.start(fork))

    again = await desk.plan(replace(fork, n=5))
    edited = await desk.plan(replace(fork, edits=(Edit("message", text="x"),)))
    later = await desk.plan(replace(fork, point=replace(fork.point, turn=3)))

    assert [run.id for run in again.earlier] == [first.id]
    assert (edited.earlier, later.earlier) == ((), ())
    assert len({again.part.fingerprint, edited.part.fingerprint, later.part.fingerprint}) == 3


async def test_the_parent_does_not_move_by_a_byte(forks: Forks) -> None:
    parent = await forks.play(talk(3), n=2)
    before = aggregates(forks, parent.id)

    for at in range(10):
        await forked(forks, ForkPoint(parent.id, 0, at % 2, 1 + at % 3), n=10)

    assert aggregates(forks, parent.id) == before
    assert len(forks.store.forks.of_run(parent.id)) == 10
    assert [len(forks.store.forks.of_trial(parent.id, 0, trial)) for trial in (0, 1)] == [5, 5]


def aggregates(forks: Forks, run_id: int) -> str:
    runs = forks.store.runs
    values: list[object] = [
        runs.summary(run_id),
        runs.case_rows(run_id),
        runs.case_totals(run_id),
        runs.metric_rows(run_id),
        runs.case_histories(history_class(runs.summary(run_id).config), runs.case_keys(run_id)),
        runs.last_verdicts("set"),
        runs.last_run("set"),
        runs.trend_runs("set"),
        runs.trend_cases([run_id]),
        runs.set_runs("set", "shop"),
        runs.newest_of_evalsets(),
        runs.list(),
        runs.counts_by_status(),
        runs.trial(run_id, 0, 0),
        forks.store.set_versions.runs_of("set", 100),
    ]
    return repr(values)


async def test_usage_counts_only_the_played_turns(forks: Forks) -> None:
    parent = await forks.play(talk(4))

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 4))

    trial = forks.store.runs.trial(fork.id, 0, 0)
    assert (parent.tokens, parent.cost) == (44, 1.0)
    assert (fork.tokens, fork.cost, len(trial.usages)) == (11, 0.25, 1)
    assert [len(turn.usages) for turn in trial.transcript.turns] == [1] * 4


async def test_the_plan_states_turns_left_and_cost_by_earlier_trials(forks: Forks) -> None:
    parent = await forks.play(talk(5), n=3)
    desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)

    plan = await desk.plan(Fork(ForkPoint(parent.id, 0, 0, 3), n=4))

    assert (plan.n_turns_left, plan.cost_each, plan.n_earlier, plan.cost) == (3, 0.75, 3, 3.0)
    assert plan.restored == "pinned turns"


async def test_pinned_turns_are_stored_once_and_stay_when_the_parent_goes(forks: Forks) -> None:
    parent = await forks.play(talk(4))
    own = forks.store.runs.trial(parent.id, 0, 0)
    first = await forked(forks, ForkPoint(parent.id, 0, 0, 4), n=3)
    second = await forked(forks, ForkPoint(parent.id, 0, 0, 3), n=3)

    assert counts(forks) == (3, 5)
    await forks.desk.runs.delete(parent.id)
    forks.store.runs.remove_deleted(timedelta(0))
    remaining = [forks.store.runs.trial(run.id, 0, 0) for run in (first, second)]

    assert remaining[0].transcript.turns[:3] == own.transcript.turns[:3]
    assert remaining[1].transcript.turns[:2] == own.transcript.turns[:2]

    await forks.desk.runs.delete(first.id, second.id)
    forks.store.runs.remove_deleted(timedelta(0))
    assert counts(forks) == (0, 0)


def counts(forks: Forks) -> tuple[int, int]:
    """The stored contents of pinned turns, and the places that have one."""
    with forks.store._database.reading() as connection:
        n_contents = connection.scalar(select(func.count()).select_from(PINNED_TURN))
        n_places = connection.scalar(select(func.count()).select_from(RUN_PINNED_TURN))
    return n_contents or 0, n_places or 0


async def test_a_case_that_is_judged_later_keeps_its_pinned_turns(forks: Forks) -> None:
    forks.shop.breaks_at = 2
    parent = await forks.play(talk(3))
    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 3))

    again = await forks.over(await forks.desk.runs.rescore(fork.id, fork.config.criteria))

    assert again.n_failed == fork.n_failed == 1
    assert forks.store.runs.trial(again.id, 0, 0).transcript == forks.store.runs.trial(fork.id, 0, 0).transcript
    assert forks.store.forks.of_trial(parent.id, 0, 0)[0].id == fork.id


async def test_a_trial_that_broke_off_in_a_turn_can_be_forked_before_it(forks: Forks) -> None:
    forks.shop.raises_at = 2
    parent = await forks.play(talk(3))
    forks.shop.raises_at = 0

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 2))

    assert (parent.n_errored, fork.n_passed) == (1, 1)
    with pytest.raises(UsageError, match="has 2 turns; the nearest point that can be forked is before turn 2"):
        await forked(forks, ForkPoint(parent.id, 0, 0, 3))


class Counting:
    """An agent with a memory of its own beside the session."""

    def __init__(self) -> None:
        self.n = 0

    def reply(self, message: str, state: dict[str, Any]) -> str:
        self.n += 1
        return f"yes {self.n}"


def make_counting() -> Counting:
    return Counting()


def answer_message(message: str) -> str:
    return "yes"


def answer_session(message: str, session: Any) -> str:
    return f"yes {len(session.turns) + 1}"


@pytest.mark.parametrize(
    ("agent", "is_noted"),
    [(Counting, True), (make_counting, True), (answer_message, True), (answer_session, False)],
    ids=lambda each: str(each)[:20],
)
async def test_a_memory_that_begins_empty_is_named_in_the_plan(
    forks: Forks, agent: Any, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(player._agents, SHOP, adapt_object(agent, replace(SHOP, kind="")))
    parent = await forks.play(talk(3), criteria=(Criterion("response_contains", 1.0),))
    desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)

    plans = [await desk.plan(Fork(ForkPoint(parent.id, 0, 0, turn))) for turn in (1, 3)]

    assert [any("memory of its own begins empty" in note for note in plan.notes) for plan in plans] == [False, is_noted]


@pytest.mark.parametrize("agent", [Counting, make_counting])
async def test_a_new_object_after_pinned_turns_is_told_in_the_transcript(
    forks: Forks, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(player._agents, SHOP, adapt_object(agent, replace(SHOP, kind="")))
    parent = await forks.play(talk(4), criteria=(Criterion("response_contains", 1.0),))

    fork = await forked(forks, ForkPoint(parent.id, 0, 0, 3))

    own, turns = (forks.store.runs.trial(run.id, 0, 0).transcript.turns for run in (parent, fork))
    assert [turn.answer for turn in turns] == ["yes 1", "yes 2", "yes 1", "yes 2"]
    assert [[event.text for event in turn.events if event.kind == "log"] for turn in turns] == [
        [],
        [],
        [NEW_OBJECT],
        [],
    ]
    assert all(event.kind != "log" for turn in own for event in turn.events)
