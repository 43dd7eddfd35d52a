"""`evaldesk.evaluate`, as a person's own Python uses it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import evaldesk
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.errors import AgentError, NotFoundError, TrustError, UsageError
from evaldesk.formats import dump_evalset
from evaldesk.model import Case, Criterion, EvalSet, Expected, ToolCall, Turn
from evaldesk.store import Store

pytestmark = pytest.mark.usefixtures("own_imports")

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
    assert str(result) == "2 of 4 passed; too few trials for a rate (2 errored)"
    assert repr(result[0]) == "<CaseResult same: 2 of 2 passed>"


def test_the_trace_of_an_error_begins_in_the_code_of_the_agent() -> None:
    (trial,) = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, cases=["broken"])["broken"]

    assert trial.error is not None
    assert trial.error.trace.startswith("Traceback")
    assert "another exception" not in trial.error.trace


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


def test_the_file_beside_an_eval_set_says_the_criteria_unless_others_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "words.evalset.json"
    dump_evalset(EVALSET, file)
    (tmp_path / "test_config.json").write_text('{"criteria": {"response_match_score": 0.1}}')

    found = evaldesk.evaluate(echo, file, cases=["same"])
    given = evaldesk.evaluate(echo, file, cases=["same"], criteria=ANSWER)

    assert [each.threshold for each in found["same"][0].scores if each.turn is None] == [0.1]
    assert [each.threshold for each in given["same"][0].scores if each.turn is None] == [0.8]

    (tmp_path / "test_config.json").write_text('{"criteria": {"m": {"threshold": 1, "function": "os:getcwd"}}}')
    monkeypatch.delenv("EVALDESK_TRUST")
    with pytest.raises(TrustError, match="names code or an address"):
        evaldesk.evaluate("samples/hello_world", file, cases=["same"])


@pytest.mark.parametrize("name", ["test_config.json", "eval_config.json"])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.symlink_to("gone.json"), "is a link that leads nowhere; repair or remove it"),
        (lambda path: path.symlink_to(path.name), "is a link that leads nowhere; repair or remove it"),
        (Path.mkdir, "is not a file; repair or remove it"),
        (os.mkfifo, "is not a file; repair or remove it"),
    ],
    ids=["dangling", "of itself", "folder", "pipe"],
)
def test_an_odd_file_beside_an_eval_set_is_named_and_never_means_the_default_criteria(
    tmp_path: Path, name: str, make: Callable[[Path], None], says: str
) -> None:
    file = tmp_path / "words.evalset.json"
    dump_evalset(EVALSET, file)
    make(tmp_path / name)

    with pytest.raises(UsageError, match=f"{name} {says}"):
        evaldesk.evaluate(echo, file)

    assert evaldesk.evaluate(echo, file, criteria=ANSWER, cases=["same"]).all_passed


async def priced(message: str, state: Mapping[str, Any]) -> str:
    return message


priced.tells_cost = True  # type: ignore[attr-defined]


def test_an_object_that_asks_no_model_is_played_within_a_limit_of_cost_where_it_says_so() -> None:
    asked = partial(evaldesk.evaluate, evalset=EVALSET, criteria=ANSWER, cases=["same"], n=3, max_cost=1.0)

    result, silent = asked(priced), asked(echo)

    assert (result.status, result.conclusion.outcome) == ("finished", "passed")
    assert silent.conclusion.outcome == "undecided"


def test_a_limit_of_cost_is_refused_before_the_start_where_the_price_of_a_judge_is_not_known() -> None:
    asked = partial(evaldesk.evaluate, evalset=EVALSET, cases=["same"], max_cost=1.0)

    with pytest.raises(UsageError, match="max_cost=: the price of 'hosted_vllm/one' is not known"):
        asked(priced, criteria={"final_response_match_v2": {"threshold": 1, "judge_model": "hosted_vllm/one"}})

    assert asked(priced, criteria=ANSWER).conclusion.is_passed


def test_nothing_is_printed_and_nothing_is_left(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    evaldesk.evaluate(echo, EVALSET, criteria=ANSWER)

    assert tuple(capfd.readouterr()) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_words_of_a_result_are_not_made_before_somebody_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(RunResult, "__str__", lambda _: made.append("words"))

    evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, cases=["same"])

    assert made == []


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


def test_an_agent_that_the_working_folder_declares_is_played_by_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_agent(tmp_path / "pkg" / "echo")
    (tmp_path / "evaldesk.toml").write_text('[agents.mine]\ntarget = "pkg/echo"\n[limits]\ntool_timeout_s = 7\n')
    monkeypatch.chdir(tmp_path)

    result = evaldesk.evaluate("mine", [_case("same", "one two", "one two")], criteria=ANSWER, concurrency=1)

    assert result.all_passed
    assert (result.config.agent.id, result.config.limits.tool_timeout_s) == ("mine", 7)
    assert not (tmp_path / ".evaldesk").exists()
    assert result.config.agent.folder == str(tmp_path / "pkg" / "echo")


def test_an_agent_that_cannot_be_loaded_is_said_with_its_place(tmp_path: Path) -> None:
    _write_agent(tmp_path / "broken", "import no_such_module\nroot_agent = None\n")

    with pytest.raises(AgentError, match=r"agent\.py.*no_such_module"):
        evaldesk.evaluate(tmp_path / "broken", EVALSET)


def test_both_ways_to_evaluate_take_the_same_and_say_so() -> None:
    waiting, awaited = inspect.signature(evaldesk.evaluate), inspect.signature(evaldesk.evaluate_async)

    assert waiting == awaited
    assert waiting.parameters["timeout_s"].default == 120.0
    assert (evaldesk.evaluate.__name__, evaldesk.evaluate.__doc__) == ("evaluate", evaldesk.evaluate_async.__doc__)
    assert inspect.iscoroutinefunction(evaldesk.evaluate_async)
    assert not inspect.iscoroutinefunction(evaldesk.evaluate)


def test_type_checkers_are_told_of_everything_public() -> None:
    stub = Path(evaldesk.__file__).with_suffix(".pyi").read_text()

    told = {line.rpartition(" as ")[2] for line in stub.splitlines() if line.startswith("from ")}

    assert told | {"__version__"} == set(evaldesk.__all__)


def _write_agent(folder: Path, source: str = "from .words import say as root_agent\n") -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "words.py").write_text("def say(message, state):\n    return message\n\n\nshout = str.upper\n")
    (folder / "agent.py").write_text(source)


def test_a_missing_tool_call_is_named() -> None:
    cases = [_case("calls", "hi", None, tool_calls=(ToolCall("roll_die", {"sides": 6}),))]

    result = evaldesk.evaluate(echo, cases, criteria={"tool_trajectory_avg_score": 1.0})

    assert "- roll_die(sides=6)   expected, not called" in result["calls"].diff()


@pytest.mark.parametrize(
    ("model", "said"),
    [("", "names no model"), ("openai/gpt-5-mini", "OPENAI_API_KEY is not set")],
    ids=["no model", "no key"],
)
def test_a_model_without_a_name_or_a_key_is_refused_before_the_first_trial(
    model: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    played: list[Any] = []

    with pytest.raises(UsageError, match=said):
        evaldesk.evaluate(evaldesk.LlmAgent("shop", model), EVALSET, criteria=ANSWER, on_progress=played.append)

    assert not played


def test_a_variable_that_the_code_sets_is_as_good_as_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "set by the code")
    agent = evaldesk.LlmAgent("shop", "anthropic/claude", api_base="http://127.0.0.1:9/v1")

    with pytest.raises(UsageError, match="GROQ_API_KEY is not set"):
        evaldesk.evaluate(agent, EVALSET, criteria=ANSWER, model="groq/llama")


def test_rows_and_a_name_choose_the_cases_and_the_run_as_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "agent.py").write_text(
        "def root_agent(message):\n    if message == 'raise':\n        raise ValueError(message)\n    return message\n"
    )
    path = tmp_path / "words.evalset.json"
    dump_evalset(EVALSET, path)

    def run(**options: Any) -> RunResult:
        result: RunResult = evaldesk.evaluate(
            tmp_path / "echo", path, criteria=ANSWER, workspace=tmp_path, name="nightly", **options
        )
        return result

    first = run(rows="0, 2")
    retried = run(rows="0,2", retry_failed=True)
    fresh = run(rows="0,2", fresh=True)

    assert [case.id for case in first] == [case.id for case in retried] == ["same", "broken"]
    assert [each.config.name for each in (first, retried, fresh)] == ["nightly"] * 3
    assert (retried.n_passed, retried.n_errored) == (1, 1)
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        assert [(each.id, each.n_done) for each in store.runs.list()] == [(2, 2), (1, 2)]
    with pytest.raises(UsageError, match=r"run 2 began with other inputs: 2 rows, now 1"):
        run(rows="1")
    with pytest.raises(UsageError, match=r"there is no row 3; the file has 3 rows, 0 to 2"):
        run(rows="3", fresh=True)
    with pytest.raises(UsageError, match="choose the cases by one of them"):
        run(rows="1", cases=["same"], fresh=True)


def test_the_number_of_a_run_without_a_name_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "agent.py").write_text("def root_agent(message):\n    return message\n")
    path = tmp_path / "words.evalset.json"
    dump_evalset(EVALSET, path)

    first, second = (
        evaldesk.evaluate(tmp_path / "echo", path, criteria=ANSWER, workspace=tmp_path, name=name)
        for name in (None, "1")
    )

    assert (first.config.name, second.config.name) == (None, "1")
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        assert [run.id for run in store.runs.list()] == [2, 1]


def test_a_run_of_an_object_has_a_name_and_is_not_continued_by_it(tmp_path: Path) -> None:
    result = evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, workspace=tmp_path, name="nightly")

    assert result.config.name == "nightly"
    with pytest.raises(UsageError, match="played an object of Python, which cannot be found again"):
        evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, workspace=tmp_path, name="nightly", retry_failed=True)


def test_a_name_is_of_one_run_and_not_of_variants(tmp_path: Path) -> None:
    variants = [{"temperature": 0.1}, {"temperature": 0.2}]

    with pytest.raises(UsageError, match="name= is of one"):
        evaldesk.evaluate(echo, EVALSET, criteria=ANSWER, workspace=tmp_path, variants=variants, name="nightly")
