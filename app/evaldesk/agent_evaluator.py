"""`AgentEvaluator` with ADK's signatures, so that existing tests run as they are. (reference/adk.md section 4)"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Criterion, EvalSet, SessionInit
from evaldesk.report.run_result import RunResult

TRIAL_TIMEOUT_S = 600.0


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
        output_file: str | os.PathLike[str] | None = None,
        app_name: str | None = None,
    ) -> Evaluation:
        """Run every case of a file, or of each `*.test.json` under a folder, `num_runs` times, judged as ADK does.

        A case passes when each metric reaches its threshold in the mean over all turns of all runs, and no run breaks
        off. The criteria come from the `test_config.json` beside each file. `agent_name` names an agent inside the
        tree of the root agent. `eval_dataset` is what older versions call the second argument; `initial_session_file`
        names the session that files of the old form start from. `output_file` is a CSV to which a row for each turn
        and metric is appended. Raises AssertionError, or ValueError when there is nothing to run.
        """
        __tracebackhide__ = True
        from evaldesk.desk.criteria import find_criteria_file
        from evaldesk.model import DEFAULT_CRITERIA

        given = eval_dataset_file_path_or_dir if eval_dataset_file_path_or_dir is not None else eval_dataset
        files = _files(given)
        session = _initial_session(initial_session_file)

        from evaldesk.agent_conclusion import conclude

        async def work() -> None:
            __tracebackhide__ = True
            results = [
                await _run(
                    agent_module,
                    _with_session(path, session, app_name),
                    find_criteria_file(path) or DEFAULT_CRITERIA,
                    num_runs,
                    agent_name,
                )
                for path in files
            ]
            conclude(agent_module, results, print_detailed_results, output_file)

        return _now_or_awaited(_checked(num_runs, work()))

    @staticmethod
    def evaluate_eval_set(
        agent_module: str,
        eval_set: EvalSet,
        criteria: Any = None,
        eval_config: Any = None,
        num_runs: int = 2,
        agent_name: str | None = None,
        print_detailed_results: bool = True,
        *,
        output_file: str | os.PathLike[str] | None = None,
    ) -> Evaluation:
        """As `evaluate`, for an eval set that was read already; `criteria` and `eval_config` as `evaldesk.evaluate`."""
        __tracebackhide__ = True
        from evaldesk.agent_conclusion import conclude

        async def work() -> None:
            __tracebackhide__ = True
            given = criteria if eval_config is None else eval_config
            result = await _run(agent_module, eval_set, given, num_runs, agent_name)
            conclude(agent_module, [result], print_detailed_results, output_file)

        return _now_or_awaited(_checked(num_runs, work()))

    @staticmethod
    def find_config_for_test_file(test_file: str | os.PathLike[str]) -> tuple[Criterion, ...]:
        """The criteria of the `test_config.json` beside the file, or the default ones. Raises UsageError."""
        from evaldesk.desk.criteria import find_criteria_file, read_criteria
        from evaldesk.model import DEFAULT_CRITERIA

        path = find_criteria_file(Path(test_file))
        return read_criteria(path) if path else DEFAULT_CRITERIA

    @staticmethod
    def migrate_eval_data_to_new_schema(
        old_eval_data_file: str | os.PathLike[str],
        new_eval_data_file: str | os.PathLike[str],
        initial_session_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write a file of an old form again in the new one, its cases starting from `initial_session_file`."""
        from evaldesk.formats import dump_evalset

        evalset = _with_session(Path(old_eval_data_file), _initial_session(initial_session_file), None)
        dump_evalset(evalset, Path(new_eval_data_file))


class Evaluation(Coroutine[Any, Any, None]):
    """What is over already, or waits to be awaited in the loop that runs; `asyncio.run` takes either.

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


def _now_or_awaited(work: Coroutine[Any, Any, None]) -> Evaluation:
    __tracebackhide__ = True
    if _is_in_loop():
        return Evaluation(work)

    import asyncio

    try:
        asyncio.run(work)
    except AssertionError as error:  # what a test prints is the turns that differ, and no frames of ours
        raise error.with_traceback(None) from None
    return Evaluation()


def _is_in_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _checked(num_runs: int, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    if num_runs < 1:
        work.close()
        raise ValueError(f"num_runs must be at least 1, got {num_runs}")
    return work


async def _run(agent_module: str, evalset: EvalSet, criteria: Any, n: int, agent_name: str | None) -> RunResult:
    from evaldesk.desk.evaluating import evaluate_async

    if not evalset.cases:
        raise ValueError(f"eval set {evalset.id} has no cases; add one, or leave the file out")
    ref = module_agent(agent_module, agent_name)
    return await evaluate_async(ref, evalset, criteria=criteria, n=n, timeout_s=TRIAL_TIMEOUT_S)


def module_agent(agent_module: str, agent_name: str | None = None) -> AgentRef:
    """The agent in an importable module, which has an `agent` or is one, or at a path that names a folder.

    The module is looked up along `sys.path` without importing it: workers do that. Raises UsageError.
    """
    from evaldesk.agents import agent_ref

    if Path(agent_module).is_dir() or ":" in agent_module or "/" in agent_module:
        return _with_part(agent_ref(agent_module), agent_name)
    parts = agent_module.removesuffix(".agent").split(".")
    for entry in sys.path:
        folder = Path(entry or ".").resolve().joinpath(*parts)
        if folder.is_dir():
            ref = agent_ref(str(folder))
            return _with_part(_under(ref, parts, folder), agent_name)
        if folder.with_suffix(".py").is_file():
            root = str(Path(entry or ".").resolve())
            return _with_part(AgentRef(parts[-1], f"{'.'.join(parts)}:root_agent", root=root), agent_name)
    raise UsageError(f"no module {agent_module!r} on sys.path has an agent; name one such as my_package.my_agent")


def _under(ref: AgentRef, parts: Sequence[str], folder: Path) -> AgentRef:
    """The same agent under the whole name of its module, so that its relative imports work."""
    module, _, attribute = ref.target.partition(":")
    inside = module.removeprefix(folder.name).removeprefix(".")
    whole = ".".join([*parts, inside] if inside else parts)
    return replace(ref, target=f"{whole}:{attribute}", root=str(folder.parents[len(parts) - 1]))


def _with_part(ref: AgentRef, agent_name: str | None) -> AgentRef:
    """The agent called `agent_name` inside the one that was found; a worker looks for it there."""
    if agent_name is None or agent_name == "root_agent":
        return ref
    return replace(ref, id=agent_name, part=agent_name)


def _files(given: str | os.PathLike[str] | None) -> list[Path]:
    if given is None:
        raise TypeError("evaluate() needs eval_dataset_file_path_or_dir: a file, or a folder of *.test.json files")
    path = Path(given)
    if path.is_file():
        return [path]
    files = sorted(path.rglob("*.test.json")) if path.is_dir() else []
    if not files:
        raise ValueError(f"{path} is no eval set file, and no *.test.json is under it")
    return files


def _with_session(path: Path, session: SessionInit | None, app_name: str | None) -> EvalSet:
    from evaldesk.formats import evalset_format, load_evalset

    evalset = load_evalset(path)
    if session and evalset_format(evalset) == "adk":
        raise ValueError(
            f"{path}: this file names the session of each case itself; initial_session_file is for older files"
        )
    if session:
        cases = tuple(replace(case, initial_session=case.initial_session or session) for case in evalset.cases)
        evalset = replace(evalset, cases=cases)
    if not app_name:
        return evalset
    named = tuple(
        replace(case, initial_session=replace(case.initial_session or SessionInit(), app_name=app_name))
        for case in evalset.cases
    )
    return replace(evalset, cases=named)


def _initial_session(path: str | os.PathLike[str] | None) -> SessionInit | None:
    if path is None:
        return None
    value = json.loads(Path(path).read_text("utf-8-sig"))
    if not isinstance(value, dict):
        raise ValueError(f"{path}: wanted an object with app_name, user_id and state, got {type(value).__name__}")
    known = {name: value[name] for name in ("app_name", "user_id", "state") if name in value}
    return SessionInit(**known, extra={name: item for name, item in value.items() if name not in known})
