"""`AgentEvaluator` with ADK's signatures, so that existing tests run as they are. (reference/adk.md section 4)"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaldesk.background_loop import is_in_loop
from evaldesk.desk.adk_verdict import adk_failures, pooled_scores
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.model import DEFAULT_CRITERIA, Criterion, EvalSet, SessionInit
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.trial_text import first_words, trial_text

TRIAL_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class _Output:
    """The places of results beside the test. Raises ValueError for an unsupported option."""

    file: str | os.PathLike[str] | None = None
    app_name: str | None = None
    manager: Any = None
    artifact_service: object = None

    def __post_init__(self) -> None:
        if self.manager is not None and not self.app_name:
            raise ValueError("eval_set_results_manager needs app_name, the app that it saves the results of")
        if self.artifact_service is not None:
            raise ValueError(
                "artifact_service cannot be used: the agent is played in a process of its own, and each trial has an "
                "empty artifact service; save the artifacts in a before_agent_callback of the agent"
            )


class AgentEvaluator:
    """Evaluates an agent in a test: raises AssertionError with the turns that differ, else returns.

    Each method runs to its end where no event loop is running, and is awaited where one is.
    """

    @staticmethod
    def evaluate(
        agent_module: str,
        eval_dataset_file_path_or_dir: str | os.PathLike[str] | None = None,
        num_runs: int = 2,
        agent_name: str | None = None,
        initial_session_file: str | os.PathLike[str] | None = None,
        print_detailed_results: bool = True,
        *,
        eval_dataset: str | os.PathLike[str] | None = None,
        artifact_service: object = None,
        output_file: str | os.PathLike[str] | None = None,
        app_name: str | None = None,
        eval_set_results_manager: Any = None,
    ) -> Evaluation:
        """Run every case of a file, or of each `*.test.json` under a folder, `num_runs` times, judged as ADK does.

        A case passes when each metric reaches its threshold in the mean over all turns of all runs, and no run breaks
        off. The criteria come from the `test_config.json` beside each file. `agent_name` names an agent inside the tree
        of the root agent. `eval_dataset` is the second argument's name in older versions; `initial_session_file` names
        the session that files of the old form start from. `output_file` is a CSV to which a row for each turn and
        metric is appended; `eval_set_results_manager` of google-adk saves the results of `app_name`. Raises
        AssertionError, or ValueError when there is nothing to run.
        """
        __tracebackhide__ = True
        output = _Output(output_file, app_name, eval_set_results_manager, artifact_service)
        dataset = eval_dataset_file_path_or_dir if eval_dataset_file_path_or_dir is not None else eval_dataset
        session = _initial_session(initial_session_file)
        jobs = [(_with_session(path, session, app_name), _criteria_beside(path)) for path in _files(dataset)]
        return _evaluation(agent_module, jobs, num_runs, agent_name, print_detailed_results, output)

    @staticmethod
    def evaluate_eval_set(
        agent_module: str,
        eval_set: EvalSet | Any,
        criteria: Any = None,
        eval_config: Any = None,
        num_runs: int = 2,
        agent_name: str | None = None,
        print_detailed_results: bool = True,
        *,
        artifact_service: object = None,
        output_file: str | os.PathLike[str] | None = None,
        app_name: str | None = None,
        eval_set_results_manager: Any = None,
    ) -> Evaluation:
        """As `evaluate`, for an eval set that was read already, also by google-adk.

        `criteria` and `eval_config` are as for `evaldesk.evaluate`.
        """
        __tracebackhide__ = True
        from evaldesk.desk.evalsets.cases import evalset_of

        output = _Output(output_file, app_name, eval_set_results_manager, artifact_service)
        jobs = [(evalset_of(eval_set), criteria if eval_config is None else eval_config)]
        return _evaluation(agent_module, jobs, num_runs, agent_name, print_detailed_results, output)

    @staticmethod
    def find_config_for_test_file(test_file: str | os.PathLike[str]) -> tuple[Criterion, ...]:
        """The criteria of the `test_config.json` beside the file, or the default ones. Raises UsageError."""
        from evaldesk.desk.criteria.criteria import read_criteria

        criteria = _criteria_beside(Path(test_file))
        return read_criteria(criteria) if isinstance(criteria, Path) else criteria

    @staticmethod
    def migrate_eval_data_to_new_schema(
        old_eval_data_file: str | os.PathLike[str],
        new_eval_data_file: str | os.PathLike[str],
        initial_session_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write a file of an old form again in the new one, its cases starting from `initial_session_file`."""
        from evaldesk import dump_evalset

        evalset = _with_session(Path(old_eval_data_file), _initial_session(initial_session_file), None)
        dump_evalset(evalset, Path(new_eval_data_file))


class Evaluation(Coroutine[Any, Any, None]):
    """The value of a finished coroutine, or one to await in the running loop; `asyncio.run` takes either.

    It is no plain coroutine, so that a type checker lets a test call `evaluate` without `await`.
    """

    def __init__(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        __tracebackhide__ = True
        if self._work is not None:
            yield from self._work.__await__()

    def send(self, value: Any) -> Any:
        """As a coroutine does it."""
        if self._work is None:
            raise StopIteration
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine does it."""
        if self._work is None:
            raise error[0]
        return self._work.throw(*error)

    def close(self) -> None:
        """As a coroutine does it."""
        if self._work is not None:
            self._work.close()


def _evaluation(
    agent_module: str,
    jobs: Sequence[tuple[EvalSet, Any]],
    n: int,
    agent_name: str | None,
    is_detailed: bool,
    output: _Output,
) -> Evaluation:
    """Evaluate on the loop of the kept workers, and conclude where the caller is."""
    __tracebackhide__ = True
    from evaldesk.desk.runs.kept_workers import awaited_on_kept_loop, on_kept_loop, shared_workers

    if n < 1:
        raise ValueError(f"num_runs must be at least 1, got {n}")

    async def work() -> list[RunResult]:
        async with shared_workers():
            return [await _run(agent_module, evalset, criteria, n, agent_name) for evalset, criteria in jobs]

    if is_in_loop():

        async def awaited() -> None:
            __tracebackhide__ = True
            conclude(agent_module, await awaited_on_kept_loop(work()), is_detailed, output)

        return Evaluation(awaited())
    conclude(agent_module, on_kept_loop(work()), is_detailed, output)
    return Evaluation()


async def _run(agent_module: str, evalset: EvalSet, criteria: Any, n: int, agent_name: str | None) -> RunResult:
    from evaldesk.desk.named_agents import module_agent
    from evaldesk.desk.runs.evaluating import evaluate_async

    if not evalset.cases:
        raise ValueError(f"eval set {evalset.id} has no cases; add one, or leave the file out")
    ref = module_agent(agent_module, agent_name)
    criteria_of_run = DEFAULT_CRITERIA if criteria is None else criteria
    return await evaluate_async(ref, evalset, criteria=criteria_of_run, n=n, timeout_s=TRIAL_TIMEOUT_S, strict=True)


def _criteria_beside(path: Path) -> Path | tuple[Criterion, ...]:
    from evaldesk.desk.criteria.criteria import find_criteria_file

    return find_criteria_file(path) or DEFAULT_CRITERIA


def _files(path_text: str | os.PathLike[str] | None) -> list[Path]:
    if path_text is None:
        raise TypeError("evaluate() needs eval_dataset_file_path_or_dir: a file, or a folder of *.test.json files")
    path = Path(path_text)
    if path.is_file():
        return [path]
    files = sorted(path.rglob("*.test.json")) if path.is_dir() else []
    if not files:
        raise ValueError(f"{path} is not an eval set file, and no *.test.json is under it")
    return files


def _with_session(path: Path, session: SessionInit | None, app_name: str | None) -> EvalSet:
    from evaldesk import load_evalset
    from evaldesk.desk.evalsets.cases import with_app_name, with_session

    evalset = with_session(load_evalset(path), session, str(path)) if session else load_evalset(path)
    return with_app_name(evalset, app_name) if app_name else evalset


def _initial_session(path: str | os.PathLike[str] | None) -> SessionInit | None:
    if path is None:
        return None
    from evaldesk.desk.imports.files import bytes_of

    value = json.loads(bytes_of(Path(path)).decode("utf-8-sig"))
    if not isinstance(value, dict):
        raise ValueError(f"{path}: wanted an object with app_name, user_id and state, got {type(value).__name__}")
    session_fields = {name: value[name] for name in ("app_name", "user_id", "state") if name in value}
    return SessionInit(
        **session_fields, extra={name: item for name, item in value.items() if name not in session_fields}
    )


POOLED = "As ADK judges: each metric by its mean over all turns of all runs."


class NotJudgedWarning(UserWarning):
    """A case passed although some of its turns could not be judged: ADK leaves those out of the mean."""


def conclude(agent_module: str, results: Sequence[RunResult], is_detailed: bool, output: _Output = _Output()) -> None:
    """Print and write the requested results, and raise when ADK would."""
    __tracebackhide__ = True
    if is_detailed:
        from evaldesk.wording.writer import show

        show("".join(_details(result) for result in results), nl=False)
    if output.file is not None:
        from evaldesk.pages.reports.adk_rows import append_adk_rows

        append_adk_rows(Path(output.file), results)
    if output.manager is not None and output.app_name:
        _save(results, output.app_name, output.manager)
    failures = [failure for result in results for case in result if (failure := failure_text(case, result))]
    if failures:
        raise AssertionError("\n\n".join([f"{agent_module} did not pass. {POOLED}", *failures]))
    for sentence in (sentence for result in results for case in result for sentence in _unscored_lines(case, result)):
        warnings.warn(in_one_line(sentence), NotJudgedWarning, stacklevel=2)


def _save(results: Sequence[RunResult], app_name: str, manager: Any) -> None:
    """Give google-adk's own manager the results, judged as ADK judges them."""
    from google.adk.evaluation.eval_result import EvalSetResult

    from evaldesk.desk.evalsets.exporting import adk_results

    for result in results:
        evalset_result = EvalSetResult.model_validate_json(adk_results(result, app_name))
        manager.save_eval_set_result(app_name, evalset_result.eval_set_id, evalset_result.eval_case_results)


def failure_text(case: CaseResult, result: RunResult) -> str:
    """Why ADK would fail a case, and the turns of its first trial that differ; empty when it would pass it."""
    reasons = adk_failures(case, result.config.criteria)
    if not reasons:
        return ""
    text = "\n".join(
        [f"{result.config.evalset_name} / {case.id}: {case.n_passed} of {case.n_planned} passed", *reasons]
    )
    first = next((trial for trial in case if trial.verdict != "passed"), None)
    if first is None:
        return text if len(case) else f"{text}; {result.reason or 'the run was stopped before they were played'}"
    head = f"{text}\ntrial {first.trial_index + 1} {first.verdict}: {first_words(case.case, first)}"
    return f"{head}\n{trial_text(case.case, first)}"


def _unscored_lines(case: CaseResult, result: RunResult) -> Iterator[str]:
    for each in pooled_scores(case, result.config.criteria):
        if each.n_missing:
            yield (
                f"{result.config.evalset_name} / {case.id}: {each.metric} could not judge {each.n_missing} of "
                f"{each.n_turns} turns; as in ADK the mean leaves them out"
            )


def _details(result: RunResult) -> str:
    lines = [f"{result.config.evalset_name}: {result}"]
    for case in result:
        lines.append(f"{case.id}: {case.n_passed} of {case.n_planned} passed")
        lines += [each.sentence(case.n_planned) for each in pooled_scores(case, result.config.criteria)]
        lines += [f"trial {trial.trial_index + 1} {trial.verdict}\n{case.diff(at)}" for at, trial in enumerate(case)]
    return "\n".join(lines) + "\n"
