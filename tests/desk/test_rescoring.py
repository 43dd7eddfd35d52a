"""Scoring stored trials again: nothing is played, the old scores stay, and what is missing is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.runs.rescoring import SCORED_AT_ONCE, as_handed_out, plan_rescoring, without_grades
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.engine import Executor, InlineExecutor
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.metrics import function_options
from evaldesk.model import (
    AgentRef,
    Case,
    Container,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    Gates,
    Limits,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = pytest.mark.anyio

AGENT = Usage("openai/big", tokens_in=10, tokens_out=5, cost=0.25)
JUDGE = replace(AGENT, role="judge")
EXACT, ROUGE = Criterion("response_exact", 1.0), Criterion("response_match_score", 0.5)


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(place_of(request, folder / "evaldesk.db")) as opened:
        yield opened


@pytest.fixture
async def desk(store: Store, tmp_path: Path) -> AsyncIterator[RunDesk]:
    """A desk that plays nothing: an agent that is asked for would raise."""
    opened = RunDesk(
        Settings(workspace=tmp_path, roots=()),
        store,
        open_executor=lambda config: cast("Executor", InlineExecutor(config.concurrency)),
    )
    yield opened
    await opened.close()


PLAYED_HERE = AgentRef("nobody", "no_such_module:agent")
LIMITS = Limits()


def played(
    store: Store,
    *answers: str,
    n: int = 1,
    criteria: tuple[Criterion, ...] = (EXACT,),
    agent: AgentRef = PLAYED_HERE,
    limits: Limits = LIMITS,
) -> int:
    """A finished run of one case for each answer, each with the reference `four it is`; `` breaks off."""
    cases = [Case(f"c{index}", (Turn("Roll.", Expected(None, (), "four it is")),)) for index in range(len(answers))]
    config = RunConfig(agent, "dice", n=n, criteria=criteria, limits=limits)
    run_id = store.runs.create(config, cases)
    store.runs.set_status(run_id, "running")
    store.runs.record([result(run_id, at, answer) for at, answer in enumerate(answers)])
    store.runs.set_status(run_id, "finished")
    return run_id


def result(run_id: int, case_index: int, answer: str, **values: Any) -> TrialResult:
    error = None if answer else ErrorRecord("agent_raised", "it broke")
    turn = TurnRecord("Roll.", (Event("agent_message", 1.0, "nobody", answer),))
    is_exact = answer == "four it is"
    return replace(
        TrialResult(
            run_id,
            case_index,
            0,
            status="errored" if error else "finished",
            verdict="errored" if error else "passed" if is_exact else "failed",
            transcript=Transcript((turn,)),
            scores=() if error else (Score("response_exact", float(is_exact), None, 1.0, is_exact),),
            usages=(AGENT, JUDGE),
            error=error,
        ),
        **values,
    )


async def over(desk: RunDesk, run_id: int) -> Any:
    async for _ in desk.watch(run_id):
        pass
    return await desk.summary(run_id)


async def test_other_criteria_give_other_verdicts_and_the_old_ones_stay(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is", "it is four", "")

    again = await over(desk, await desk.rescore(source, (ROUGE,)))

    assert again.id != source
    assert (again.status, again.n_passed, again.n_failed, again.n_errored) == ("finished", 2, 0, 1)
    assert again.config.source_run_id == source
    old = store.runs.summary(source)
    assert (old.n_passed, old.n_failed, old.n_errored) == (1, 1, 1)
    assert [score.metric for score in store.runs.trial(again.id, 1, 0).scores if score.turn is None] == [ROUGE.metric]
    assert store.runs.trial(again.id, 1, 0).transcript == store.runs.trial(source, 1, 0).transcript


async def test_trials_played_in_containers_are_scored_again_where_none_can_be_started(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("no engine of containers is here")

    monkeypatch.setattr("evaldesk.engine.executors.container_client", refuse)
    source = played(store, "four it is", agent=replace(PLAYED_HERE, container=Container("shop:7")))

    again = await over(desk, await desk.rescore(source, (ROUGE,)))

    assert (again.status, again.n_passed) == ("finished", 1)


def test_functions_are_called_as_the_tool_that_judges_the_run_calls_them(store: Store) -> None:
    function = Criterion("loads", 0.5, function_options("json:loads"))
    played(store, "four it is")
    found = store.runs.summary(1)
    osmosis = store.runs.create(replace(found.config, compat="osmosis"), store.runs.cases(1))
    store.runs.record([result(osmosis, 0, "four it is")])
    store.runs.set_status(osmosis, "finished")

    plans = [plan_rescoring(store.runs, run_id, (function,)) for run_id in (1, osmosis)]

    assert [plan.config.criteria[0].options.get("compat") for plan in plans] == [None, "osmosis"]


async def test_what_a_judge_cost_before_is_not_counted_again(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is")

    again = await over(desk, await desk.rescore(source, (ROUGE,)))

    assert (again.cost, store.runs.summary(source).cost) == (0.25, 0.5)


async def test_what_the_trials_cost_before_is_no_reason_to_score_fewer_of_them(desk: RunDesk, store: Store) -> None:
    played(store, *["four it is"] * 3)
    config = replace(store.runs.summary(1).config, gates=Gates(max_cost=0.3), concurrency=1)
    source = store.runs.create(config, store.runs.cases(1))
    store.runs.record([result(source, at, "four it is") for at in range(3)])
    store.runs.set_status(source, "finished")

    judge = Criterion("safety_v1", 0.5, {"judge_model": "demo/judge"})
    again = await over(desk, await desk.rescore(source, (judge,)))

    assert (again.status, again.n_done, again.cost) == ("finished", 3, 0.75)
    gates = StoredRuns(store.runs).conclusion(again).gates
    assert [gate.name for gate in gates if "cost" in gate.name] == []


async def test_judges_have_as_long_as_the_run_gave_them(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = played(store, "four it is", limits=Limits(judge_timeout_s=7.0))
    given: list[float | None] = []

    async def judge(found: Any, timeout_s: float | None = None) -> Any:
        given.append(timeout_s)
        found.close()
        return []

    monkeypatch.setattr("evaldesk.metrics.scoring._within", lambda timeout_s, found: judge(found, timeout_s))
    await over(desk, await desk.rescore(source, (Criterion("safety_v1", 0.5, {"judge_model": "demo/judge"}),)))

    assert given == [7.0]


def test_many_trials_are_scored_at_once_where_nobody_is_asked() -> None:
    played_one = RunConfig(PLAYED_HERE, "dice", concurrency=1, criteria=(EXACT,))
    judged = (EXACT, Criterion("safety_v1", 0.5))
    by_a_function = (Criterion("mine", 0.5, {"function": "mine:score"}),)

    scored = [
        as_handed_out(replace(played_one, source_run_id=1, criteria=criteria)).concurrency
        for criteria in ((EXACT, ROUGE), judged, by_a_function)
    ]

    assert scored == [SCORED_AT_ONCE, 1, 1]


async def test_a_scoring_alone_has_many_trials_at_once_and_says_how_many_were_played_at_once(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = played(store, "four it is", "")
    opened: list[RunConfig] = []
    open_executor = desk._players._open_executor

    def noted(config: RunConfig) -> Executor:
        opened.append(config)
        return open_executor(config)

    monkeypatch.setattr(desk._players, "_open_executor", noted)
    again = await over(desk, await desk.rescore(source, (ROUGE,)))
    await desk.retry(source)
    await over(desk, source)

    assert [config.concurrency for config in opened] == [SCORED_AT_ONCE, store.runs.summary(source).config.concurrency]
    assert again.config.concurrency == store.runs.summary(source).config.concurrency < SCORED_AT_ONCE


async def test_a_scoring_of_a_scoring_names_the_run_that_played(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is")
    first = (await over(desk, await desk.rescore(source, (ROUGE,)))).id

    second = (await over(desk, await desk.rescore(first, (EXACT,)))).id

    assert store.runs.summary(second).config.source_run_id == source
    assert [run.id for run in store.runs.scorings(source)] == [first, second]


async def test_a_scoring_outlives_the_run_that_it_came_from(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is", "it is four")
    first = (await over(desk, await desk.rescore(source, (ROUGE,)))).id
    await desk.delete(source)

    second = await over(desk, await desk.rescore(first, (EXACT,)))

    assert (second.n_passed, second.n_failed) == (1, 1)
    assert second.config.source_run_id == first


async def test_the_last_verdicts_of_an_eval_set_are_those_of_what_was_played(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is")
    await over(desk, await desk.rescore(source, (ROUGE,)))

    assert {verdicts.run_id for verdicts in store.runs.last_verdicts("dice").values()} == {source}


async def test_an_old_fatal_error_does_not_stop_a_scoring_but_a_judge_without_a_key_does(
    desk: RunDesk, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = played(store, "four it is", "it is four", "")
    store.runs.retry_errored(source)
    broken = result(source, 2, "", attempt=2, error=ErrorRecord("authentication", "no key"))
    store.runs.record([broken])
    whole = await over(desk, await desk.rescore(source, (ROUGE,)))
    assert (whole.status, whole.n_passed, whole.n_errored) == ("finished", 2, 1)

    async def grade_without_key(played: TrialResult, *_: Any, **__: Any) -> TrialResult:
        refused = Score(ROUGE.metric, threshold=0.5, error=ErrorRecord("authentication", "wrong key"))
        return replace(played, scores=(refused,), verdict="errored")

    monkeypatch.setattr("evaldesk.engine.worker.jobs.grade", grade_without_key)
    stopped = await over(desk, await desk.rescore(source, (ROUGE,)))

    assert (stopped.status, stopped.n_done) == ("failed", 1)
    assert "wrong key" in stopped.reason


async def test_trials_that_were_never_played_wait_and_are_scored_on_resuming(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is", n=2)
    again = await over(desk, await desk.rescore(source, (ROUGE,)))
    missing = result(source, 0, "it is four", trial_index=1)
    assert (again.status, again.n_done) == ("stopped", 1)
    assert again.reason == f"1 trial was never played in run {source}. Resume that run first, then this one."

    store.runs.record([missing])
    await desk.resume(again.id)

    assert (await over(desk, again.id)).n_passed == 2


async def test_trials_that_a_file_does_not_have_keep_no_scoring_open(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is", n=2, agent=AgentRef("somebody", "", kind="imported"))

    again = await over(desk, await desk.rescore(source, (ROUGE,)))

    assert (again.status, again.n_done, again.n_passed) == ("finished", 1, 1)
    assert again.reason == f"1 trial was not in the file that run {source} was imported from."


@pytest.mark.parametrize("tells_results", [True, False])
async def test_a_call_without_a_result_in_a_run_of_a_file_counts_where_the_file_has_no_results(
    desk: RunDesk, store: Store, tells_results: bool
) -> None:
    call = ToolCall("refund", {"order": "A1"}, "c1")
    called, ended = Event("tool_call", call=call), Event("tool_result", call=call, result="done")
    cases = [Case(f"c{at}", (Turn("Refund.", Expected((call,))),)) for at in range(2)]
    source = store.runs.create(RunConfig(AgentRef("somebody", "", kind="imported"), "shop", criteria=()), cases)
    store.runs.set_status(source, "running")
    turns = [TurnRecord("Refund.", (called,)), TurnRecord("Refund.", (called, *[ended][: int(tells_results)]))]
    store.runs.record([result(source, at, "x", transcript=Transcript((turn,))) for at, turn in enumerate(turns)])
    store.runs.set_status(source, "finished")

    again = await over(desk, await desk.rescore(source, (Criterion("tool_trajectory_avg_score", 1.0),)))

    trials = [store.runs.trial(again.id, at, 0) for at in range(2)]
    assert [trial.verdict for trial in trials] == ["failed" if tells_results else "passed", "passed"]
    assert [trial.transcript.turns[0].stop_reason == "interrupted" for trial in trials] == [tells_results, False]
    assert ("refund, which has no result" in trials[0].scores[0].reason) is tells_results


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ((Criterion("response_match_score"),), "choose at least one metric that decides"),
        ((Criterion("response_match_score", 7.0),), "out of range"),
    ],
)
async def test_criteria_that_cannot_be_are_refused(
    desk: RunDesk, store: Store, criteria: tuple[Criterion, ...], said: str
) -> None:
    source = played(store, "four it is")

    with pytest.raises(UsageError, match=said):
        await desk.rescore(source, criteria)

    assert len(store.runs.list()) == 1


async def test_trials_are_measured_again_by_efficiency_alone(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is", "it is four")
    criteria = (Criterion("tool_call_count_v1"), Criterion("turn_count"))

    again = await over(desk, await desk.rescore(source, criteria))

    assert (again.status, again.counts.unscored, again.counts.done) == ("finished", 2, 2)
    scores = store.runs.trial(again.id, 0, 0).scores
    assert {score.metric: score.value for score in scores if score.turn is None} == {
        "tool_call_count_v1": 0.0,
        "turn_count": 1.0,
    }
    assert store.runs.summary(source).n_passed == 1


async def test_a_run_that_goes_on_or_does_not_exist_is_not_scored_again(desk: RunDesk, store: Store) -> None:
    source = played(store, "four it is")
    store.runs.set_status(source, "running")

    with pytest.raises(ConflictError, match="still running"):
        await desk.rescore(source, (ROUGE,))
    with pytest.raises(NotFoundError):
        await desk.rescore(99, (ROUGE,))


def _graded(change: Callable[[TrialResult], TrialResult]) -> TrialResult:
    return without_grades(change(result(1, 0, "four it is")))


async def test_a_trial_that_only_its_grading_broke_can_be_graded() -> None:
    broken = _graded(lambda each: replace(each, status="errored", error=ErrorRecord("grading_failed", "60 s")))

    assert (broken.status, broken.error, broken.scores) == ("finished", None, ())


async def test_a_trial_that_broke_off_while_it_was_played_stays_errored() -> None:
    broken = _graded(lambda each: replace(each, status="timed_out", error=ErrorRecord("timed_out", "120 s")))

    assert (broken.status, broken.error) == ("timed_out", ErrorRecord("timed_out", "120 s"))
