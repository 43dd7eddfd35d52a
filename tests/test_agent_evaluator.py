"""`AgentEvaluator`, as the tests of people who come from ADK use it."""

from __future__ import annotations

import asyncio
import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.golden_values import golden

import evaldesk
from evaldesk import AgentEvaluator, load_evalset
from evaldesk.desk.adk_verdict import adk_failures
from evaldesk.desk.criteria.criteria import function_criterion
from evaldesk.desk.named_agents import module_agent
from evaldesk.desk.other_tools import as_tool_judges
from evaldesk.desk.runs import kept_workers
from evaldesk.desk.runs.kept_workers import MAX_KEPT
from evaldesk.desk.runs.run_result import RunResult
from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, EvalSet, Expected, ToolCall, Turn
from evaldesk.testing.agent_evaluator import NotJudgedWarning, conclude

ANSWER = {"response_match_score": 0.8}


def echo(message: str, state: Mapping[str, Any]) -> str:
    if message == "raise":
        raise ValueError("asked to")
    return message


def _write_tests(folder: Path, *, reference: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{reference}.test.json"
    path.write_text(json.dumps([{"query": "hello", "expected_tool_use": [], "reference": reference}]))
    (folder / "test_config.json").write_text(json.dumps({"criteria": ANSWER}))
    return path


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lets the agent module `hello` be `echo` in this process; gives what it was run with."""
    from evaldesk.desk.runs import evaluating

    asked: list[Any] = []
    real = evaluating.evaluate_async

    async def run_here(agent: Any, evalset: Any, **options: Any) -> Any:
        asked.append((agent, evalset, options))
        return await real(echo, evalset, **options)

    monkeypatch.setattr(evaluating, "evaluate_async", run_here)
    monkeypatch.setattr("evaldesk.desk.named_agents.module_agent", lambda module, name=None: module)
    return asked


def _frames_shown(failure: pytest.ExceptionInfo[AssertionError]) -> list[str]:
    """What pytest prints the source of, of the failure and of whatever it came of."""
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None
    return [entry.name for entry in failure.traceback.filter(failure)]


@pytest.mark.usefixtures("inline")
def test_agent_evaluator_raises_with_the_turn_that_differs(tmp_path: Path) -> None:
    path = _write_tests(tmp_path, reference="goodbye")

    with pytest.raises(AssertionError) as failure:
        AgentEvaluator.evaluate("hello", str(path), num_runs=1, print_detailed_results=False)

    said = str(failure.value)
    assert "0 of 1 passed" in said
    assert 'expected answer  "goodbye"' in said
    assert 'actual answer    "hello"' in said
    assert _frames_shown(failure) == ["test_agent_evaluator_raises_with_the_turn_that_differs"]


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
    await asyncio.create_task(AgentEvaluator.evaluate("hello", tmp_path / "hello.test.json", num_runs=1))

    with pytest.raises(AssertionError, match="goodbye") as failure:
        await AgentEvaluator.evaluate("hello", _write_tests(tmp_path, reference="goodbye"))
    assert _frames_shown(failure) == ["test_agent_evaluator_is_awaited_in_a_loop"]


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


def test_objects_of_adk_are_taken_as_their_files_are(tmp_path: Path, inline: list[Any]) -> None:
    skip_without("google.adk")
    from google.adk.evaluation.eval_config import EvalConfig
    from google.adk.evaluation.eval_set import EvalSet
    from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager

    said = {"parts": [{"text": "hello"}]}
    case = {"eval_id": "greets", "conversation": [{"user_content": said, "final_response": said}], "tag": "kept"}
    evalset = EvalSet.model_validate({"eval_set_id": "greetings", "eval_cases": [case]})
    simulator = {"model": "openai/user", "max_allowed_invocations": 3}
    config = EvalConfig.model_validate({"criteria": ANSWER, "user_simulator_config": simulator})
    manager = LocalEvalSetResultsManager(agents_dir=str(tmp_path))

    AgentEvaluator.evaluate_eval_set(
        "hello", evalset, eval_config=config, num_runs=2, app_name="shop", eval_set_results_manager=manager
    )
    result = evaldesk.evaluate(echo, evalset, criteria=config)

    assert (inline[0][1].id, inline[0][1].cases[0].extra["tag"]) == ("greetings", "kept")
    assert (result.config.criteria, result.config.user.max_turns) == ((Criterion("response_match_score", 0.8),), 3)
    (saved,) = manager.list_eval_set_results("shop")
    cases = manager.get_eval_set_result("shop", saved).eval_case_results
    assert [(each.eval_id, each.final_eval_status.name) for each in cases] == [("greets", "PASSED")] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"artifact_service": object()}, "save the artifacts in a before_agent_callback"),
        ({"eval_set_results_manager": object()}, "needs app_name"),
    ],
)
def test_what_adk_takes_and_evaldesk_cannot_is_refused_in_words(
    tmp_path: Path, inline: list[Any], options: dict[str, Any], said: str
) -> None:
    path = _write_tests(tmp_path, reference="hello")

    with pytest.raises(ValueError, match=said):
        AgentEvaluator.evaluate("hello", path, **options)
    with pytest.raises(ValueError, match=said):
        AgentEvaluator.evaluate_eval_set("hello", evaldesk.load_evalset(path), **options)
    assert not inline


@pytest.mark.parametrize("spelled", ["pkg.hello", "pkg.hello.agent"])
def test_a_module_is_found_on_the_path_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    folder = tmp_path / "pkg" / "hello"
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text("raise SystemExit\nroot_agent = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    ref = module_agent(spelled)

    assert (ref.id, ref.target, ref.root) == ("hello", "pkg.hello.agent:root_agent", str(tmp_path))
    assert module_agent(spelled, "shout").part == "shout"
    with pytest.raises(UsageError, match=r"no module 'pkg.nothing' on sys\.path"):
        module_agent("pkg.nothing")


def _pooling_rows() -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in golden("adk_metrics")["agent_evaluator_pooling"]]


@pytest.mark.parametrize("row", _pooling_rows())
def test_the_recorded_verdicts_of_adk_are_given(row: Mapping[str, Any]) -> None:
    runs = row["runs_of_turn_scores"]
    answers = iter("yes" if score == 1.0 else "no" for scores in runs for score in scores)
    references = ["yes" if score is not None else None for score in runs[0]]

    result = _played(answers, _case(*references), {"response_exact": row["threshold"]}, n=len(runs))

    assert bool(adk_failures(result[0], result.config.criteria)) == bool(row["adk_failures"])


def _case(*references: str | None, calls: tuple[ToolCall, ...] | None = None) -> Case:
    return Case("c", tuple(Turn("Well?", Expected(reference=each, tool_calls=calls)) for each in references))


def _played(answers: Iterator[str], case: Case, criteria: Any, n: int = 1) -> RunResult:
    """A run in which the agent gives the answers one after the other, whatever it is asked."""

    def say(message: str) -> str:
        answer = next(answers)
        if answer == "raise":
            raise ValueError("asked to")
        return answer

    return evaldesk.evaluate(say, EvalSet("pooled", cases=(case,)), criteria=criteria, n=n, concurrency=1)


CALLS, ANSWERS = "tool_trajectory_avg_score", "response_match_score"


@pytest.mark.parametrize(
    ("answers", "case", "criteria", "n_passed", "said"),
    [
        ("yes no yes no", _case("yes"), {ANSWERS: 0.5}, 2, []),
        ("yes no yes no", _case("yes"), {ANSWERS: 0.6}, 2, [f"{ANSWERS}: the mean 0.5 over 4 turns of 4 runs does"]),
        ("yes no no yes", _case("yes", "yes"), {ANSWERS: 0.5}, 2, []),
        ("no no yes yes", _case("yes", "yes"), {ANSWERS: 0.5}, 1, []),
        ("yes raise", _case("yes"), {ANSWERS: 0.5}, 1, ["1 of 2 runs broke off before they could be judged"]),
        ("raise raise", _case("yes"), {ANSWERS: 0.5}, 0, ["2 of 2 runs broke off before they could be judged"]),
        ("yes", _case("yes"), {CALLS: 1.0, ANSWERS: 0.8}, 1, []),
        ("yes", _case(None, calls=()), {CALLS: 1.0}, 1, []),
        ("yes", _case(None, calls=()), {CALLS: 1.0, ANSWERS: 0.8}, 1, [f"{ANSWERS}: the mean 0 over", "ADK scores a"]),
        ("yes yes", _case("yes", None), {ANSWERS: 0.8}, 1, [f"{ANSWERS}: the mean 0.5 over 2 turns", "ADK scores a"]),
        ("yes", _case(None), {"response_exact": 0.8}, 0, ["response_exact could not judge any turn of 1 run"]),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_runs_of_a_case_are_pooled(
    answers: str, case: Case, criteria: Mapping[str, float], n_passed: int, said: list[str]
) -> None:
    words = answers.split()

    result = _played(iter(words), case, criteria, n=len(words) // len(case.turns))

    failures = adk_failures(result[0], result.config.criteria)
    assert result.n_passed == n_passed
    assert len(failures) == len(said)
    assert all(failure.startswith(start) for failure, start in zip(failures, said, strict=True))


@pytest.mark.parametrize(
    ("answer", "case", "criteria", "verdict"),
    [
        ("yes", _case("yes"), {CALLS: 1.0, ANSWERS: 0.8}, "passed"),
        ("yes", _case(None, calls=()), {CALLS: 1.0, ANSWERS: 0.8}, "failed"),
        ("raise", _case("yes"), {ANSWERS: 0.8}, "failed"),
        ("yes", _case(None), {"response_exact": 1.0}, "unscored"),
        ("yes", _case(None), {"response_exact": 1.0, CALLS: 1.0}, "passed"),
    ],
)
def test_one_trial_is_judged_as_adk_eval_does(
    answer: str, case: Case, criteria: Mapping[str, float], verdict: str
) -> None:
    result = _played(iter([answer]), case, criteria)

    assert as_tool_judges("adk", case, result[0][0], result.config.criteria).verdict == verdict


@pytest.mark.parametrize(("most", "n_failures"), [(2, 0), (1, 1)])
def test_less_is_better_where_the_metric_says_so(most: int, n_failures: int) -> None:
    result = _played(iter(["a", "b"]), _case("a", None), {"turn_count": most})

    assert len(adk_failures(result[0], result.config.criteria)) == n_failures


def test_a_metric_that_could_not_judge_a_run_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"rewards_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{module}.py").write_text(
        "n = iter([1.0, 0 / 1, None])\n\n\ndef reward(solution_str, ground_truth, extra_info=None):\n"
        "    found = next(n)\n    assert found is not None, 'no value'\n    return found\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    criterion = function_criterion(f"{module}:reward", 0.5)

    result = _played(iter(["a", "a", "a"]), _case("a"), [criterion], n=3)

    with pytest.warns(NotJudgedWarning, match="could not judge 1 of 3 turns; as in ADK the mean leaves them out"):
        conclude("hello", [result], is_detailed=False)


def test_a_key_that_is_not_set_is_refused_before_the_first_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "keyless").mkdir()
    (tmp_path / "keyless/agent.py").write_text(
        "from evaldesk import LlmAgent\n\nroot_agent = LlmAgent('a', 'openai/b')\n"
    )
    (tmp_path / "keyless/__init__.py").write_text("from . import agent\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UsageError, match="OPENAI_API_KEY is not set"):
        AgentEvaluator.evaluate("keyless", _write_tests(tmp_path / "cases", reference="hello"))


COUNTED = """
import os
from pathlib import Path

with Path(__file__).parents[1].joinpath("imports.txt").open("a") as file:
    file.write(f"{os.getpid()}\\n")


def root_agent(message, state):
    return message
"""


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable agent that notes the process of each of its imports beside its folder."""
    package = tmp_path / f"counted_{abs(hash(tmp_path)):x}"
    package.mkdir()
    (package / "__init__.py").write_text("from . import agent\n")
    (package / "agent.py").write_text(COUNTED)
    monkeypatch.syspath_prepend(tmp_path)
    return package


def _imports(package: Path) -> list[str]:
    return package.with_name("imports.txt").read_text().split()


def _evaluate(package: Path, reference: str = "hello") -> None:
    cases = _write_tests(package.with_name("sets"), reference=reference)
    AgentEvaluator.evaluate(package.name, str(cases), num_runs=2, print_detailed_results=False)


def test_many_files_import_the_agent_once(counted: Path) -> None:
    sets = counted.with_name("sets")
    for number in range(6):
        _write_tests(sets, reference="hello").rename(sets / f"hello_{number}.test.json")

    AgentEvaluator.evaluate(counted.name, str(sets), num_runs=1, print_detailed_results=False)

    assert len(_imports(counted)) == 1


def test_the_tests_of_a_session_import_the_agent_once(counted: Path) -> None:
    evalset = load_evalset(_write_tests(counted.with_name("sets"), reference="hello"))

    async def in_a_loop() -> None:
        await AgentEvaluator.evaluate_eval_set(counted.name, evalset, print_detailed_results=False)

    _evaluate(counted)
    _evaluate(counted)
    asyncio.run(in_a_loop())
    with pytest.raises(AssertionError):
        _evaluate(counted, reference="goodbye")

    assert len(_imports(counted)) == 1


def test_an_agent_that_changed_between_two_tests_is_imported_again(counted: Path) -> None:
    _evaluate(counted)

    (counted / "agent.py").write_text(COUNTED.replace("return message", "return 'changed ' + message"))
    _evaluate(counted, reference="changed hello")

    assert len(_imports(counted)) == 2


def test_another_environment_and_another_folder_have_workers_of_their_own(
    counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _evaluate(counted)
    with monkeypatch.context() as changed:
        changed.setenv("OF_ONE_TEST", "1")
        _evaluate(counted)
    _evaluate(counted)
    with monkeypatch.context() as changed:
        changed.chdir(counted)
        _evaluate(counted)

    assert len(_imports(counted)) == 3


def test_workers_beyond_those_that_are_kept_are_ended(counted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MAX_KEPT + 1):
        monkeypatch.setenv("OF_ONE_TEST", str(number))
        _evaluate(counted)

    oldest, *others = _imports(counted)
    assert not Path(f"/proc/{oldest}").exists()
    assert all(Path(f"/proc/{each}").exists() for each in others)


def test_workers_that_nobody_uses_for_a_while_are_ended(counted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_workers, "MAX_IDLE_S", 0.0)
    _evaluate(counted)

    while Path(f"/proc/{_imports(counted)[0]}").exists():
        time.sleep(0.01)
    _evaluate(counted)

    assert len(_imports(counted)) == 2


@pytest.mark.long
def test_workers_end_with_the_process_that_keeps_them_without_a_word(counted: Path) -> None:
    cases = _write_tests(counted.with_name("sets"), reference="hello")
    line = f"AgentEvaluator.evaluate({counted.name!r}, {str(cases)!r}, print_detailed_results=False)\n"
    script = f"from evaldesk import AgentEvaluator\n{line}{line}print('done')"

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=counted.parent, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    (worker,) = _imports(counted)
    assert not Path(f"/proc/{worker}").exists()
