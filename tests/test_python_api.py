"""`evaldesk.evaluate` and `AgentEvaluator`, as a person's own Python uses them."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import evaldesk
from evaldesk import AgentEvaluator
from evaldesk.agent_evaluator import module_agent
from evaldesk.errors import AgentError, NotFoundError, UsageError
from evaldesk.model import Case, Criterion, EvalSet, Expected, ToolCall, Turn
from evaldesk.store import Store

ANSWER = {"response_match_score": 0.8}


def echo(message: str, state: Mapping[str, Any]) -> str:
    if message == "raise":
        raise ValueError("asked to")
    return message


def _case(name: str, query: str, reference: str | None, **values: Any) -> Case:
    return Case(name, (Turn(query, Expected(reference=reference, **values)),))


EVALSET = EvalSet(
    "words",
    cases=(_case("same", "one two", "one two"), _case("other", "one two", "three"), _case("broken", "raise", "x")),
)


def test_a_result_is_indexed_by_case_and_iterated() -> None:
    result = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, n=2)

    assert [case.id for case in result] == ["same", "other", "broken"]
    assert result["same"].pass_rate == 1.0
    assert result[1].n_failed == 2
    assert result["broken"].pass_rate is None
    assert [trial.verdict for trial in result["broken"]] == ["errored", "errored"]
    assert (result.n_passed, result.n_failed, result.n_errored, result.n_scored, len(result)) == (2, 2, 2, 4, 3)
    assert (result.pass_at(2), result.pass_hat(2), result.pass_at(3)) == (0.5, 0.5, None)
    assert str(result) == "2 of 4 passed; too few to name a rate (2 errored)"
    assert repr(result[0]) == "<CaseResult same: 2 of 2 passed>"


def test_an_unknown_case_is_answered_with_the_nearest() -> None:
    result = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, cases=["same"])

    assert len(result) == 1
    with pytest.raises(NotFoundError, match="did you mean 'same'"):
        result["sane"]
    with pytest.raises(NotFoundError, match="did you mean 'other'"):
        evaldesk.evaluate(echo, EVALSET, cases=["othr"])


def test_a_result_becomes_a_data_frame_and_a_figure() -> None:
    result = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, n=2)

    frame = result.to_dataframe()

    assert list(frame.case_id) == ["same", "same", "other", "other", "broken", "broken"]
    assert list(frame.response_match_score)[:4] == [1.0, 1.0, 0.0, 0.0]
    assert list(frame.error_message)[-1] == "ValueError: asked to"
    assert [trace.name for trace in result.figure().data] == ["pass@k", "pass^k"]


def test_nothing_is_printed_and_nothing_is_left(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evaldesk.evaluate(echo, EVALSET, criteria=ANSWER)

    assert tuple(capfd.readouterr()) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_given_workspace_keeps_the_run(tmp_path: Path) -> None:
    result = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, workspace=tmp_path, note="by hand")

    with Store.open(tmp_path / ".evaldesk/evaldesk.db", must_exist=True) as store:
        summary = store.runs.summary(result.id)
    assert (summary.status, summary.n_passed, summary.note) == ("finished", 1, "by hand")


def test_criteria_are_a_mapping_a_file_or_values(tmp_path: Path) -> None:
    config = tmp_path / "test_config.json"
    config.write_text(json.dumps({"criteria": ANSWER}))
    given: list[Any] = [
        ANSWER,
        config,
        [Criterion("response_match_score", 0.8)],
        {"response_match_score": {"threshold": 0.8}},
    ]

    chosen = [evaldesk.evaluate(echo, EVALSET, criteria=each, cases=["same"]).config.criteria for each in given]

    assert chosen == [(Criterion("response_match_score", 0.8),)] * 4


def test_a_file_of_criteria_names_the_simulated_user(tmp_path: Path) -> None:
    config = tmp_path / "test_config.json"
    config.write_text(json.dumps({"criteria": ANSWER, "user_simulator_config": {"model": "demo/user"}}))

    result = evaldesk.evaluate(echo, EVALSET, criteria=config, cases=["same"])

    assert result.config.user.model == "demo/user"


@pytest.mark.parametrize(
    ("criteria", "said"),
    [
        ({"response_match": 0.8}, "did you mean 'response_match_score'"),
        ({"response_match_score": "much"}, "expected a threshold"),
        ({"response_match_score": 8}, "Did you mean 0.8"),
    ],
)
def test_impossible_criteria_are_refused_before_anything_runs(criteria: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        evaldesk.evaluate(echo, EVALSET, criteria=criteria)


@pytest.mark.anyio
async def test_evaluate_works_inside_a_running_event_loop() -> None:
    assert evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, cases=["same"]).all_passed


@pytest.mark.anyio
async def test_evaluate_async_leaves_the_loop_free() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(message: str) -> str:
        begun.set()
        await may_end.wait()
        return message

    work = asyncio.create_task(evaldesk.evaluate_async(slow, EVALSET, criteria=ANSWER, cases=["same"]))
    await begun.wait()
    may_end.set()

    assert (await work).all_passed


@pytest.mark.anyio
async def test_cancelling_evaluate_async_keeps_what_is_finished(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def slow(message: str) -> str:
        if message == "wait":
            begun.set()
            await asyncio.Event().wait()
        return message

    cases = [_case("quick", "a", "a"), _case("slow", "wait", "a")]
    work = asyncio.create_task(evaldesk.evaluate_async(slow, cases, criteria=ANSWER, workspace=tmp_path, concurrency=1))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    with Store.open(tmp_path / ".evaldesk/evaldesk.db") as store:
        summary = store.runs.summary(1)
    assert (summary.status, summary.n_passed, summary.n_todo) == ("stopped", 1, 1)


def test_an_agent_named_by_its_folder_is_played_by_workers(tmp_path: Path) -> None:
    _write_agent(tmp_path / "pkg" / "echo")
    cases = [_case("same", "one two", "one two")]

    result = evaldesk.evaluate(str(tmp_path / "pkg" / "echo"), cases, criteria=ANSWER, concurrency=1)

    assert result.all_passed
    assert result.config.agent.folder == str(tmp_path / "pkg" / "echo")


def test_an_agent_that_cannot_be_loaded_is_said_with_its_place(tmp_path: Path) -> None:
    _write_agent(tmp_path / "broken", "import no_such_module\nroot_agent = None\n")

    with pytest.raises(AgentError, match=r"agent\.py.*no_such_module"):
        evaldesk.evaluate(tmp_path / "broken", EVALSET)


def _write_agent(folder: Path, source: str = "from .words import say as root_agent\n") -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "words.py").write_text("def say(message, state):\n    return message\n\n\nshout = str.upper\n")
    (folder / "agent.py").write_text(source)


def _write_tests(folder: Path, *, reference: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{reference}.test.json"
    path.write_text(json.dumps([{"query": "hello", "expected_tool_use": [], "reference": reference}]))
    (folder / "test_config.json").write_text(json.dumps({"criteria": ANSWER}))
    return path


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lets the agent module `hello` be `echo` in this process; gives what it was run with."""
    from evaldesk.desk import evaluating

    asked: list[Any] = []
    real = evaluating.evaluate_async

    async def run_here(agent: Any, evalset: Any, **options: Any) -> Any:
        asked.append((agent, evalset, options))
        return await real(echo, evalset, **options)

    monkeypatch.setattr(evaluating, "evaluate_async", run_here)
    monkeypatch.setattr("evaldesk.agent_evaluator.module_agent", lambda module, name=None: module)
    return asked


@pytest.mark.usefixtures("inline")
def test_agent_evaluator_raises_with_the_turn_that_differs(tmp_path: Path) -> None:
    path = _write_tests(tmp_path, reference="goodbye")

    with pytest.raises(AssertionError) as failure:
        AgentEvaluator.evaluate("hello", str(path), num_runs=1, print_detailed_results=False)

    said = str(failure.value)
    assert "0 of 1 passed" in said
    assert 'expected answer  "goodbye"' in said
    assert 'actual answer    "hello"' in said


def test_agent_evaluator_runs_sync_in_both_spellings(tmp_path: Path, inline: list[Any]) -> None:
    path = _write_tests(tmp_path, reference="hello")

    AgentEvaluator.evaluate("hello", str(path), print_detailed_results=False)
    AgentEvaluator.evaluate(agent_module="hello", eval_dataset=str(path), print_detailed_results=False)
    asyncio.run(AgentEvaluator.evaluate("hello", path, num_runs=1, print_detailed_results=False))

    assert [options["n"] for _, _, options in inline] == [2, 2, 1]
    assert [options["criteria"] for _, _, options in inline] == [path.parent / "test_config.json"] * 3
    assert AgentEvaluator.find_config_for_test_file(path) == (Criterion("response_match_score", 0.8),)


@pytest.mark.anyio
@pytest.mark.usefixtures("inline")
async def test_agent_evaluator_is_awaited_in_a_loop(tmp_path: Path) -> None:
    await AgentEvaluator.evaluate("hello", _write_tests(tmp_path, reference="hello"), print_detailed_results=False)

    with pytest.raises(AssertionError, match="goodbye"):
        await AgentEvaluator.evaluate("hello", _write_tests(tmp_path, reference="goodbye"))


def test_a_folder_is_run_to_its_end_before_it_fails(tmp_path: Path, inline: list[Any]) -> None:
    for name in ("a", "b", "hello"):
        _write_tests(tmp_path, reference=name)

    with pytest.raises(AssertionError) as failure:
        AgentEvaluator.evaluate("hello", str(tmp_path), num_runs=1, print_detailed_results=False)

    assert len(inline) == 3
    assert str(failure.value).count("0 of 1 passed") == 2


@pytest.mark.usefixtures("inline")
def test_details_are_printed_and_rows_appended_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = _write_tests(tmp_path, reference="hello"), tmp_path / "out" / "scores.csv"

    for _ in range(2):
        AgentEvaluator.evaluate("hello", path, num_runs=1, output_file=output)

    assert "turn 1 passed" in capsys.readouterr().out
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert [(row["metric_name"], row["eval_status"], row["actual_response"]) for row in rows] == [
        ("response_match_score", "PASSED", "hello")
    ] * 2


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_runs": 0}, "at least 1"),
        ({"eval_dataset": "nowhere"}, r"no \*\.test\.json"),
        ({"eval_dataset": None}, "needs"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    given = {"eval_dataset": _write_tests(tmp_path, reference="hello"), **options}

    with pytest.raises((ValueError, TypeError), match=said):
        AgentEvaluator.evaluate("hello", **given)


def test_an_initial_session_is_for_files_of_the_old_form(tmp_path: Path, inline: list[Any]) -> None:
    old, session = _write_tests(tmp_path, reference="hello"), tmp_path / "session.json"
    session.write_text(json.dumps({"app_name": "home", "user_id": "u", "state": {"a": 1}, "id": "s"}))
    new = tmp_path / "new.evalset.json"

    AgentEvaluator.evaluate("hello", old, initial_session_file=session, print_detailed_results=False)
    AgentEvaluator.migrate_eval_data_to_new_schema(old, new, session)

    assert inline[0][1].cases[0].initial_state == {"a": 1}
    migrated = evaldesk.load_evalset(new).cases[0]
    assert (migrated.initial_state, migrated.turns[0].query) == ({"a": 1}, "hello")
    with pytest.raises(ValueError, match="for older files"):
        AgentEvaluator.evaluate("hello", new, initial_session_file=session)


@pytest.mark.parametrize("spelled", ["pkg.hello", "pkg.hello.agent"])
def test_a_module_is_found_on_the_path_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    _write_agent(tmp_path / "pkg" / "hello", "raise SystemExit\nroot_agent = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    ref = module_agent(spelled)

    assert (ref.id, ref.target, ref.root) == ("hello", "pkg.hello.agent:root_agent", str(tmp_path))
    assert module_agent(spelled, "shout").target == "pkg.hello.agent:shout"
    with pytest.raises(UsageError, match=r"no module 'pkg.nothing' on sys\.path"):
        module_agent("pkg.nothing")


def test_a_missing_tool_call_is_named() -> None:
    cases = [_case("calls", "hi", None, tool_calls=(ToolCall("roll_die", {"sides": 6}),))]

    result = evaldesk.evaluate(echo, cases, criteria={"tool_trajectory_avg_score": 1.0})

    assert "- roll_die(sides=6)   expected, not called" in result["calls"].diff()


def _pooling_rows() -> list[Any]:
    path = Path(__file__).resolve().parents[2] / "shared" / "golden" / "adk_metrics.json"
    rows = json.loads(path.read_text("utf-8"))["agent_evaluator_pooling"] if path.is_file() else []
    return [pytest.param(row, id=row["id"]) for row in rows]


@pytest.mark.parametrize("row", _pooling_rows())
def test_what_adk_fails_over_all_runs_fails_here(row: Mapping[str, Any]) -> None:
    """ADK pools the turns of all runs; here each trial must hold, which is never less."""
    runs = row["runs_of_turn_scores"]
    answers = iter("yes" if score == 1.0 else "no" for scores in runs for score in scores)
    references = ["yes" if score is not None else None for score in runs[0]]
    case = Case("c", tuple(Turn("Well?", Expected(reference=reference)) for reference in references))

    result = evaldesk.evaluate(
        lambda message: next(answers),
        EvalSet("pooled", cases=(case,)),
        criteria={"response_exact": row["threshold"]},
        n=len(runs),
        concurrency=1,
    )

    assert (result.n_passed == result.n_trials) == (row["adk_failures"] == [])
