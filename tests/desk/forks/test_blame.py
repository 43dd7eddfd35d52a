"""Blame: the decisive turn of a failed trial is found by playing on from before its turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.desk.forks.conftest import SHOP, Forks, talk
from tests.desk_client import PATIENCE_S

from evaldesk.desk.blame.blaming import _OF_BLAME, BlameDesk
from evaldesk.desk.blame.planning import MOST_BUDGET, BlameRequest, BlameSources, by_frequency
from evaldesk.desk.blame.repairing import repair_edits
from evaldesk.desk.failures import FailureDesk
from evaldesk.desk.forks.forks import ForkDesk, play_fork
from evaldesk.desk.forks.plan import ForkPlan
from evaldesk.engine.worker.player import adopt
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model import Event, ToolCall, TurnRecord, Usage
from evaldesk.model.blame import Blame, BlamePlan
from evaldesk.model.decisive_turn import Answer, Count
from evaldesk.model.fork import Edit, Fork, ForkPart, ForkPoint
from evaldesk.model.stored import RunSummary
from evaldesk.pages.failures.decisive import read_decisive_turns
from evaldesk.store.forks import MOST_LISTED
from evaldesk.wording.blame import repair_words

pytestmark = pytest.mark.anyio


@dataclass
class Agent:
    """An agent that is wrong in some turns of its first conversation, and right ever after.

    Its answer is "no" where `fails` says so of the wrong turns of the conversation. `lapse` is asked in later
    conversations whether it is wrong again.
    """

    wrong_turns: tuple[int, ...] = ()
    fails: Callable[[set[int]], bool] = bool
    cost: float | None = 0.25
    first_session: Any = None
    n_turns_played: int = 0
    queries: list[str] = field(default_factory=list)
    lapse: Callable[[int, set[int]], bool] = lambda turn, wrong: False

    def __call__(self, message: str, state: dict[str, Any], session: Any) -> Iterator[Event | str]:
        if self.first_session is None:
            self.first_session = session.seed
        number = len(session.turns) + 1
        self.n_turns_played += 1
        self.queries.append(message)
        wrong = set(state.get("wrong", []))
        if (session.seed == self.first_session and number in self.wrong_turns) or self.lapse(number, wrong):
            wrong.add(number)
        state["wrong"] = sorted(wrong)
        if self.cost is not None:
            yield Event("usage", usage=Usage("openai/big", tokens_in=10, tokens_out=1, cost=self.cost))
        yield "no" if self.fails(wrong) else "yes"


@dataclass
class Blames:
    """A desk with an agent of these tests, and its searches."""

    forks: Forks
    agent: Agent
    blames: BlameDesk

    async def play(self, n_turns: int, n: int = 10, **values: Any) -> RunSummary:
        adopt(SHOP, self.agent.__call__)
        return await self.forks.play(replace(talk(n_turns), **values), n=n, concurrency=1)

    async def search(self, run: RunSummary, trial: int = 0, **values: Any) -> Blame:
        """The search for the decisive turn of a trial, at its end."""
        batch_plan = await self.blames.plan(run.id, (0, trial), BlameRequest(**values))
        (blame_id,) = await self.blames.start(batch_plan)
        return await self.over(blame_id)

    async def over(self, blame_id: int) -> Blame:
        async for blame in self.blames.watch(blame_id):
            last = blame
        return last

    def opened_again(self) -> BlameDesk:
        """The searches as another process finds them."""
        return BlameDesk(self.blames._desk)


@pytest.fixture
async def blames(forks: Forks) -> AsyncIterator[Blames]:
    fork_desk = ForkDesk(forks.store, forks.desk.runs, forks.desk.agents)
    blame_desk = BlameDesk(BlameSources(forks.store, forks.desk.runs, fork_desk, FailureDesk(forks.store)))
    yield Blames(forks, Agent(), blame_desk)
    await blame_desk.close()


@pytest.mark.parametrize("turn", range(1, 9))
async def test_the_turn_whose_call_was_wrong_is_named(blames: Blames, turn: int) -> None:
    blames.agent.wrong_turns = (turn,)
    run = await blames.play(8)

    blame = await blames.search(run)

    assert blame.status == "finished"
    assert blame.answer
    assert (blame.answer.finding, blame.answer.turn) == ("located", turn)
    assert blame.answer.before == Count(8, 8)
    assert sum(each.n for each in blame.answer.counts) <= 60


@pytest.mark.parametrize("fails", [bool, lambda wrong: len(wrong) > 1], ids=["either", "both"])
@pytest.mark.parametrize("turns", [(2, 6), (4, 5), (1, 8)], ids=str)
async def test_of_two_faults_no_third_turn_is_named(
    blames: Blames, turns: tuple[int, int], fails: Callable[[set[int]], bool]
) -> None:
    blames.agent.wrong_turns, blames.agent.fails = turns, fails
    run = await blames.play(8)

    blame = await blames.search(run)

    assert blame.answer
    assert blame.answer.turn in (None, *turns)
    assert (blame.answer.finding == "located") == (blame.answer.turn is not None)


async def test_few_turns_are_profiled_from_the_trials_of_the_case_on(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3, n=12)

    blame = await blames.search(run, budget=40)

    assert blame.answer
    assert (blame.answer.finding, blame.answer.turn) == ("located", 2)
    assert blame.answer.counts == (Count(16, 17), Count(17, 17), Count(0, 17))
    assert [(run.config.fork.point.turn, run.n_trials) for run in blames.blames.forks(blame) if run.config.fork] == [
        (1, 5),
        (2, 17),
        (3, 17),
    ]


async def test_a_case_that_never_passes_is_lost_at_the_start(blames: Blames) -> None:
    blames.agent.lapse = lambda turn, wrong: turn == 1
    run = await blames.play(3, n=10)

    blame = await blames.search(run)

    assert blame.answer
    assert (blame.answer.finding, blame.answer.turn) == ("already lost at the start", None)


async def test_a_failure_that_no_turn_explains_is_bad_luck(blames: Blames) -> None:
    blames.agent.wrong_turns = (3,)
    run = await blames.play(3, n=20)

    blame = await blames.search(run)

    assert blame.answer
    assert (blame.answer.finding, blame.answer.turn) == ("bad luck", 3)


async def test_a_search_that_was_killed_goes_on_and_doubles_no_fork(blames: Blames) -> None:
    blames.agent.wrong_turns = (5,)
    run = await blames.play(8)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())
    (blame_id,) = await blames.blames.start(batch_plan)
    while len(blames.blames.forks(await blames.blames.get(blame_id))) < 3:
        await asyncio.sleep(0.01)
    await blames.blames.close()  # as a process that dies, with a fork under way or between two
    forks_before = blames.blames.forks(await blames.blames.get(blame_id))

    other = blames.opened_again()
    await other.start_up()
    blame = await replace(blames, blames=other).over(blame_id)
    await other.close()

    forks = other.forks(blame)
    numbers = [
        number
        for each in forks
        if each.config.fork
        for number in range(each.config.fork.first, each.config.fork.first + each.n_trials)
    ]
    assert blame.answer
    assert blame.answer.turn == 5
    assert len(numbers) == len(set(numbers)) == sum(each.n for each in blame.answer.counts)
    assert [each.id for each in forks[: len(forks_before)]] == [each.id for each in forks_before]
    assert not any(each.n_todo for each in forks)


async def test_a_lease_keeps_other_processes_off(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())
    (blame_id,) = blames.forks.store.blames.create(batch_plan.plans)
    assert blames.forks.store.blames.take(blame_id)

    other = blames.opened_again()
    await other.start_up()

    assert not blames.forks.store.blames.take(blame_id)
    assert not await other.resume(blame_id)
    assert other.forks(await other.get(blame_id)) == []
    blames.forks.store.blames.release(blame_id)
    assert blames.forks.store.blames.take(blame_id)


async def test_a_budget_in_dollars_ends_a_search_before_it_is_passed(blames: Blames) -> None:
    blames.agent.wrong_turns = (5,)
    run = await blames.play(8)

    blame = await blames.search(run, max_cost=3.0)

    spent = sum(each.cost for each in blames.blames.forks(blame))
    assert blame.status == "finished"
    assert blame.reason == "The budget of $3.00 is used up"
    assert blame.answer
    assert blame.answer.finding == "not located"
    assert 0 < spent <= 3.0


async def test_a_search_needs_known_costs_for_a_budget_in_dollars(blames: Blames) -> None:
    blames.agent.wrong_turns, blames.agent.cost = (5,), None
    run = await blames.play(8)

    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest(max_cost=1.0))

    assert batch_plan.most_cost is None


async def test_a_plan_tells_forks_turns_and_cost_before_anything_is_played(blames: Blames) -> None:
    blames.agent.wrong_turns = (5,)
    run = await blames.play(8)
    n_before = blames.agent.n_turns_played

    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest(budget=40))

    (plan,) = batch_plan.plans
    assert (plan.n_turns, plan.own, plan.method, plan.n_forks) == (8, Count(9, 10), "search", 40)
    assert plan.cost_of_fork(1) == pytest.approx(8 * 0.25)
    assert plan.cost_of_fork(8) == pytest.approx(0.25)
    assert batch_plan.most_cost == pytest.approx(40 * 4.5 * 0.25)
    assert blames.agent.n_turns_played == n_before
    assert blames.forks.store.forks.of_run(run.id) == []


async def test_a_plan_tells_that_the_agent_has_changed(blames: Blames, monkeypatch: pytest.MonkeyPatch) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    plan = ForkDesk.plan

    async def plan_of_changed(self: ForkDesk, fork: Fork) -> ForkPlan:
        return replace(await plan(self, fork), is_agent_changed=True)

    monkeypatch.setattr(ForkDesk, "plan", plan_of_changed)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())
    plan_of_run = await blames.blames.plan_run(run.id, BlameRequest())

    for each in (batch_plan, plan_of_run):
        assert [note[:36] for note in each.notes] == ["The agent has changed since run 1: t"]


async def test_a_trial_without_a_decisive_turn_is_refused(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(8)

    for trial, request, words in (
        (1, BlameRequest(), "trial 2 passed; only a failed trial has a decisive turn"),
        (12, BlameRequest(), "trial 13 was not played"),
        (0, BlameRequest(budget=18), "18 forks are too few for 8 turns; at least 19 are needed"),
        (0, BlameRequest(budget=0), "the budget is 1 to 2,000 forks, not 0"),
        (0, BlameRequest(max_cost=0.0), "above 0 dollars"),
        (0, BlameRequest(max_cost=float("nan")), "above 0 dollars"),
    ):
        with pytest.raises(UsageError, match=words):
            await blames.blames.plan(run.id, (0, trial), request)
    with pytest.raises(NotFoundError):
        await blames.blames.plan(99, (0, 0), BlameRequest())


async def test_a_trial_is_searched_once_at_a_time(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())
    blames.forks.store.blames.create(batch_plan.plans)

    with pytest.raises(ConflictError, match="looked for already"):
        await blames.blames.start(batch_plan)


async def test_two_starts_at_once_begin_one_search(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())

    starts = [blames.blames.start(batch_plan) for _ in range(2)]
    ends = await asyncio.gather(*starts, return_exceptions=True)

    assert {type(each) for each in ends} == {list, ConflictError}  # either may be the quicker one
    assert len(await blames.blames.of_run(run.id)) == 1


async def test_two_resumptions_at_once_play_the_searches_of_a_batch_one_after_the_other(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest(budget=20))
    ids = blames.forks.store.blames.create([*batch_plan.plans] * 2)

    await asyncio.gather(blames.blames.resume(ids[0]), blames.blames.resume(ids[0]))
    ended_blames = [await blames.over(each) for each in ids]

    assert sum(run.config.n for each in ended_blames for run in blames.blames.forks(each)) <= 20
    assert ended_blames[1].reason == "The budget of 20 forks is used up"


async def test_a_stopped_search_answers_by_its_forks_and_can_go_on(blames: Blames) -> None:
    blames.agent.wrong_turns = (5,)
    run = await blames.play(8)
    batch_plan = await blames.blames.plan(run.id, (0, 0), BlameRequest())
    (blame_id,) = await blames.blames.start(batch_plan)
    while not blames.blames.forks(await blames.blames.get(blame_id)):
        await asyncio.sleep(0.01)

    await blames.blames.stop(blame_id)
    halted_blame = await blames.over(blame_id)
    assert halted_blame.status == "stopped"
    while not (await blames.blames.get(blame_id)).answer:
        await asyncio.sleep(0.01)
    assert await blames.blames.resume(blame_id)
    blame = await blames.over(blame_id)

    assert blame.answer
    assert (blame.status, blame.answer.turn) == ("finished", 5)


async def test_a_search_that_still_stops_goes_on_after_that(blames: Blames, monkeypatch: pytest.MonkeyPatch) -> None:
    blames.agent.wrong_turns = (5,)
    run = await blames.play(8)
    noted, may_end = threading.Event(), threading.Event()
    note_answer = BlameDesk._note_answer

    def note_slowly(*values: Any) -> None:
        note_answer(*values)
        noted.set()
        may_end.wait(PATIENCE_S)

    monkeypatch.setattr(BlameDesk, "_note_answer", note_slowly)
    (blame_id,) = await blames.blames.start(await blames.blames.plan(run.id, (0, 0), BlameRequest()))
    while not blames.blames.forks(await blames.blames.get(blame_id)):
        await asyncio.sleep(0.01)
    await blames.blames.stop(blame_id)
    assert await asyncio.to_thread(noted.wait, PATIENCE_S)

    resumption = asyncio.create_task(blames.blames.resume(blame_id))
    await asyncio.sleep(0.05)
    may_end.set()

    assert await resumption
    blame = await blames.over(blame_id)
    assert blame.answer
    assert (blame.status, blame.answer.turn) == ("finished", 5)


async def test_a_batch_shares_its_budget_among_failed_trials(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    blames.agent.lapse = lambda turn, wrong: False
    run = await blames.play(3, n=10)
    batch_plan = await blames.blames.plan_run(run.id, BlameRequest(budget=40))
    assert [each.key for each in batch_plan.plans] == [(0, 0)]

    ids = await blames.blames.start(batch_plan)
    blame = await blames.over(ids[-1])

    assert blame.answer
    assert sum(each.n_trials for each in blames.blames.forks(blame)) <= 40
    with pytest.raises(UsageError, match="no failed trial without an answer"):
        await blames.blames.plan_run(run.id, BlameRequest())


async def test_a_batch_has_no_more_searches_than_its_budget_can_play(blames: Blames) -> None:
    blames.agent.fails = lambda wrong: True
    run = await blames.play(3, n=12)

    batch_plan = await blames.blames.plan_run(run.id, BlameRequest(budget=25))

    assert len(batch_plan.plans) == 3  # of 10 forks each at least
    assert batch_plan.notes == ("9 of the failed trials are left for later: the forks are too few for them.",)


async def test_searches_leave_the_totals_of_the_parent_alone(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    before = blames.forks.store.runs.summary(run.id)

    await blames.search(run)

    assert blames.forks.store.runs.summary(run.id) == before


async def test_a_fork_of_a_person_is_none_of_a_search(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    await blames.forks.over(
        await play_fork(blames.forks.store, blames.forks.desk, Fork(ForkPoint(run.id, 0, 0, 2), n=3))
    )

    blame = await blames.search(run)

    assert blame.answer
    assert [each.n for each in blame.answer.counts[1:]] == [20, 20]


@pytest.mark.parametrize(
    "plan",
    [
        BlamePlan(1, 0, 0, 10**12, Count(0, 1), "search", 60, 60),
        BlamePlan(1, 0, 0, 8, Count(0, 1), "search", 10**9, 10**9),
        BlamePlan(1, 0, 0, 8, Count(0, 10**12), "profile", 60, 60),
    ],
    ids=["turns", "budget", "trials"],
)
async def test_a_stored_plan_beyond_all_bounds_is_not_played(blames: Blames, plan: BlamePlan) -> None:
    run = await blames.play(1, n=1)
    (blame_id,) = blames.forks.store.blames.create([replace(plan, run_id=run.id)])

    await blames.blames.resume(blame_id)

    blame = await blames.over(blame_id)
    assert (blame.status, blame.reason) == ("failed", "its stored plan is damaged; plan it again")
    assert blames.blames.forks(blame) == []


async def test_a_search_reads_all_of_its_forks(blames: Blames) -> None:
    run = await blames.play(1, n=1)
    case = blames.forks.store.runs.case(run.id, 0)
    plan = BlamePlan(run.id, 0, 0, 1, Count(0, 1), "search", MOST_BUDGET, MOST_BUDGET)
    (blame_id,) = blames.forks.store.blames.create([plan])
    config = replace(run.config, n=1)
    for number in range(MOST_LISTED + 1):
        part = ForkPart(ForkPoint(run.id, 0, 0, 1), first=blame_id * _OF_BLAME + number)
        blames.forks.store.runs.create(replace(config, fork=part), [case])

    forks = blames.blames.forks(await blames.blames.get(blame_id))

    assert len(forks) == MOST_LISTED + 1


async def test_searches_go_with_their_run(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    blame = await blames.search(run)

    await blames.forks.desk.runs.delete(run.id)

    assert blames.forks.store.blames.of_run(run.id) == []
    with pytest.raises(NotFoundError):
        await blames.blames.get(blame.id)


def test_trials_of_the_most_frequent_signature_come_first() -> None:
    keys = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]
    signatures = {(0, 0): "rare", (1, 0): "often", (3, 0): "often", (4, 0): "rare and later"}

    assert by_frequency(keys, signatures) == [(1, 0), (3, 0), (0, 0), (4, 0), (2, 0)]


async def test_a_turn_of_a_passed_trial_repairs_the_decisive_one(blames: Blames) -> None:
    blames.agent.wrong_turns = (2,)
    run = await blames.play(3)
    blame = await blames.search(run, budget=40)

    repair = await blames.forks.over(await blames.blames.repair(blame.id, n=6))

    (found,) = blames.blames.repairs(blame)
    part = repair.config.fork
    assert part
    assert (found.id, repair.n_passed, repair.n_trials) == (repair.id, 6, 6)
    assert (part.point.turn, part.edits[0].name) == (3, "trial 2")
    assert blames.forks.store.runs.trial(repair.id, 0, 0).transcript.turns[1].state_after == {
        "old": "x",
        "start": 1,
        "wrong": [],
    }


async def test_a_last_turn_and_a_trial_without_an_answer_have_no_repair(blames: Blames) -> None:
    blames.agent.wrong_turns = (3,)
    run = await blames.play(3, n=20)
    blame = await blames.search(run)

    with pytest.raises(UsageError, match="turn 3 is the last one: nothing is played after it"):
        await blames.blames.repair(blame.id)
    (waiting,) = blames.forks.store.blames.create((await blames.blames.plan(run.id, (0, 0), BlameRequest())).plans)
    with pytest.raises(ConflictError, match="no decisive turn"):
        await blames.blames.repair(waiting)


def test_calls_results_and_state_of_another_turn_become_edits() -> None:
    call, other_call = ToolCall("find", {"q": 1}), ToolCall("find", {"q": 2})
    events = (
        Event("tool_call", call=call),
        Event("tool_result", call=call, result={"n": 3}),
        Event("tool_call", call=other_call),
        Event("tool_result", call=other_call, result="down", is_error=True),
        Event("agent_message", text="found"),
    )
    record = TurnRecord("q", events, state_after={"a": {"x": 1, "z": 3}, "c": 4})

    edits = repair_edits({"a": {"x": 1, "y": 2}, "b": 5}, record, "trial 4")

    assert edits == (
        Edit(
            "assistant",
            text="found",
            name="trial 4",
            value=[{"name": "find", "args": {"q": 1}}, {"name": "find", "args": {"q": 2}}],
        ),
        Edit("tool_result", call=1, value={"n": 3}),
        Edit("tool_result", call=2, error="down"),
        Edit("state", value={"b": None, "a": {"y": None, "z": 3}, "c": 4}),
    )
    assert repair_words("the turn of trial 4", Count(16, 20), Count(2, 20)) == (
        "With the turn of trial 4 in its place 16 of 20 continuations pass, 70 points more; could be 40 to 84"
    )


def call_tool_of_turn(message: str, state: dict[str, Any], session: Any) -> Iterator[Event | str]:
    """Call `search` in turn 1 and `search` and `pay` in turn 2, by an agent of the tree of each, and fail."""
    number = len(session.turns) + 1
    for name in ("search", "pay")[:number]:
        yield Event("tool_call", call=ToolCall(name, {"turn": number}, f"{name}-{number}"), author=f"clerk {number}")
    yield "no"


async def test_located_turns_are_counted_by_agent_tool_and_kind_of_failure(blames: Blames) -> None:
    adopt(SHOP, call_tool_of_turn)
    run = await blames.forks.play(talk(2), n=3)
    plan = await blames.blames.plan_run(run.id, BlameRequest(500))
    ids = blames.forks.store.blames.create(plan.plans)
    answers = [Answer("located", turn, (Count(9, 10), Count(1, 10))) for turn in (1, 2)]
    answers.append(Answer("not located", None, (Count(5, 10), Count(5, 10))))

    for blame_id, answer in zip(ids, answers, strict=True):
        blames.forks.store.blames.end(blame_id, "finished", answer=answer)
    turns = read_decisive_turns(blames.forks.desk, run.id)

    counts = {name: dict(each) for name, each in turns.counts}
    assert counts["agent"] == {"clerk 1": 1, "clerk 2": 1}
    assert counts["tool"] == {"search": 2, "pay": 1}
    assert sum(counts["kind of failure"].values()) == 2
    assert all(counts["kind of failure"])
    assert dict(turns.findings) == {"located": 2, "not located": 1}
    assert [row.is_located for row in turns.rows] == [True, True, False]
