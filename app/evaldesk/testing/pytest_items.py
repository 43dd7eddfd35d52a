"""Eval sets as pytest collects them: a file for each set, an item for each case, and the text of its failure."""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pytest

from evaldesk import load_evalset
from evaldesk.desk.criteria.criteria import find_criteria_file, read_criteria, read_user
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.runs.baseline import read_baseline_file
from evaldesk.desk.runs.case_player import CasePlayer, ComparedCase
from evaldesk.desk.runs.gates.conclusion import POOLED, CaseNumbers, RunNumbers, conclude
from evaldesk.desk.runs.plan import RunOptions, check_deciding, check_ids, left_out_ids, with_criteria_of_set
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.desk.runs.stored_runs import open_stored_runs
from evaldesk.errors import AgentError, EvaldeskError, UsageError
from evaldesk.gate_options import GATE_OPTIONS, GATES_BY_NAME, check_pooled, gates_of
from evaldesk.model import AgentRef, Case, Conclusion, EvalSet, GateOutcome, Gates
from evaldesk.model.comparison import Baseline, RunChange
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import own_trials
from evaldesk.paths import interpreter_path
from evaldesk.run_options import ADK_POOLED, Asked, RunOption, has_door, offered
from evaldesk.settings import read_settings
from evaldesk.wording.trial_text import first_words, trial_text
from evaldesk.wording.words import asides_words, scored_words

ENDINGS = (".test.json", ".evalset.json")
ALL_CASES = "all cases together"
WORKER_OUTPUT = "evaldesk"
"""The key of our cases among the output of a worker of pytest-xdist."""


class EvalSetCollecting:
    """The hooks of a test run that was given an agent, and the workers of that run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._case_player: CasePlayer | None = None
        self.n_collected = 0
        self.n_judged = 0
        self.compared: dict[str, tuple[ComparedCase, CaseNumbers]] = {}
        self.together: GateOutcome | None = None
        self._is_judged = False
        self._not_together = ""
        self._worker_outputs: list[dict[str, Any]] = []
        try:
            least = self._gate("min_pass_rate")
            self.min_pass_rate = 1.0 if least is None else least
            self.gates = Gates(
                min_pass_rate=self.min_pass_rate,
                max_unscored_rate=self._gate("max_unscored_rate") or 0.0,
                min_scored=self._gate("min_scored"),
                undecided=self._gate("undecided"),
            )
            self._settings = read_settings(config.rootpath, (), environment=os.environ)
            self.agent = self._agent()
            self._options = RunOptions(**self._options_of_ini())
            self.n = self._options.value("n")
            if self._options.value("compat") == ADK_POOLED:
                names = (option.name for option in GATE_OPTIONS if has_door(option, "pytest"))
                values = {name: self._gate(name) for name in names}
                usual = {"min_scored": 1}  # a case without a scored trial never passes there
                named = {name: each for name, each in values.items() if each is not None and each != usual.get(name)}
                check_pooled(named, _flag)
                self.gates = Gates().as_tool(ADK_POOLED)
            self._check_min_scored()
            self.baseline = self._baseline()
            self.new_cases = self._gate("new_cases") if self.baseline else None
            self.compared_gates = self._compared_gates(has_least=least is not None)
        except EvaldeskError as error:
            raise pytest.UsageError(f"evaldesk: {error}") from error

    def _agent(self) -> AgentRef:
        """The agent of the option, or of the ini file, whose paths are resolved from the ini file's own."""
        root = self._config.rootpath
        option_value = self._config.getoption("--evaldesk-agent")
        name = str(option_value or self._config.getini("evaldesk_agent"))
        is_folder = not option_value and name not in self._settings.agents and (root / name).is_dir()
        python = self.option_text("python")
        if python and not self._config.getoption("--evaldesk-python"):
            python = interpreter_path(python, root)
        place = (python, self.option_text("image"), self.option_text("environment"))
        return named_agent(str(root / name) if is_folder else name, str(root), *place)

    def option_text(self, name: str) -> str:
        """The option, or the value of the ini file."""
        option_value = self._config.getoption(f"--evaldesk-{name}")
        return str(option_value or self._config.getini(f"evaldesk_{name.replace('-', '_')}"))

    def _options_of_ini(self) -> Asked:
        """The options of the table that were given. Raises UsageError."""
        options = {}
        for option in offered("pytest"):
            name = option.flags[0].removeprefix("--")
            options[option.name] = option.read(self.option_text(name), f"--evaldesk-{name}")
        return cast("Asked", options)

    def _gate(self, name: str) -> Any:
        """The gate of the table that was given; None for none. Raises UsageError."""
        option = GATES_BY_NAME[name]
        return option.read(self.option_text(name.replace("_", "-")), _flag(option))

    def _baseline(self) -> Baseline | None:
        """The run that each case is compared with: a file beside the command or the ini file, or a run of this folder.

        Raises UsageError, NotFoundError.
        """
        baseline_text = self.option_text("baseline")
        if not baseline_text:
            return None
        is_typed = bool(self._config.getoption("--evaldesk-baseline"))
        file = (self._config.invocation_params.dir if is_typed else self._config.rootpath) / baseline_text
        if baseline_text.isdecimal() and not file.is_file():
            with open_stored_runs(self._settings) as runs:
                return runs.baseline_of(int(baseline_text))
        if not file.is_file():
            raise UsageError(f"--evaldesk-baseline {baseline_text}: neither a file nor the number of a run")
        return read_baseline_file(str(file))

    def _compared_gates(self, *, has_least: bool) -> Gates:
        """The gates of a case that the baseline has. Raises UsageError for gates that do not go together."""
        gate_values = {
            "min_pass_rate": self.min_pass_rate if has_least else None,
            "max_unscored_rate": self.gates.max_unscored_rate,
            "min_scored": self.gates.min_scored,
            "undecided": self.gates.undecided,
            "baseline": self.option_text("baseline"),
            "regression_rule": self._gate("regression_rule"),
            "confirm": self._gate("confirm"),
            "new_cases": self._gate("new_cases"),
        }
        return gates_of(gate_values, n=self.n, name_of=_flag)

    def _check_min_scored(self) -> None:
        """Raise UsageError where a case has fewer trials than must be scored: no case could pass."""
        least = self.gates.min_scored or 0
        if least > self.n:
            trials = counted(self.n, "trial")
            raise UsageError(
                f"--evaldesk-min-scored {least} can never hold: each case has {trials}; "
                f"say --evaldesk-min-scored {self.n} or less, or --evaldesk-n {least}"
            )

    @property
    def case_player(self) -> CasePlayer:
        """The workers, started with the first case that is run."""
        if self._case_player is None:
            self._case_player = CasePlayer(self.agent, self._settings, concurrency=self._options.value("concurrency"))
        return self._case_player

    def add(self, item: EvalCaseItem, change: RunChange | None, numbers: CaseNumbers) -> None:
        """Count a case that was played; one that the baseline accounts for is judged together with the others."""
        self.n_judged += 1
        if change is not None:
            self.compared[item.nodeid] = ComparedCase(item.case, item.options, item.options.value("n"), change), numbers

    def options(self, path: Path, evalset: EvalSet) -> RunOptions:
        """How the eval set in `path` is run: by the file of criteria that was named, its own, or a file beside it.

        Raises UsageError, FormatError.
        """
        config_path = self.option_text("config")
        options, is_by_set = with_criteria_of_set(self._options, evalset)
        file = self._config.invocation_params.dir / config_path if config_path else find_criteria_file(path)
        if is_by_set and not config_path:  # the other settings of a file beside the set count, as for the command
            check_deciding(options.criteria or ())
            return options if file is None else options.but(user=read_user(file))
        if file is None:
            return self._options
        criteria = read_criteria(file)
        check_deciding(criteria)
        return self._options.but(criteria=criteria, user=read_user(file), is_by_file=True)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalSetFile | None:
        """Take the eval sets."""
        if not file_path.name.endswith(ENDINGS):
            return None
        file: EvalSetFile = EvalSetFile.from_parent(parent, path=file_path)
        file.collecting = self
        return file

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add an item for all cases together after the last case, where their history judges them."""
        is_played_here = not hasattr(self._config, "workerinput")
        if self._is_together and is_played_here and any(isinstance(item, EvalCaseItem) for item in items):
            items.append(self._last_item(session))

    @property
    def _is_together(self) -> bool:
        """Whether a history judges all cases together."""
        return self.compared_gates.is_by_history and not self.compared_gates.max_regressions

    def _last_item(self, session: pytest.Session) -> AllCasesItem:
        last: AllCasesItem = AllCasesItem.from_parent(session, name=ALL_CASES, nodeid=f"evaldesk::{ALL_CASES}")
        last.collecting = self
        return last

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker of pytest-xdist: send the cases that it played to the process that judges all of them."""
        if not self._is_together:
            return
        if not hasattr(self._config, "workerinput"):
            if (session.shouldfail or session.shouldstop) and not self._is_judged:
                self._not_together = "the test run ended before the last case"
            return
        positions = {item.nodeid: at for at, item in enumerate(getattr(session, "items", ()))}
        cases = [(positions[nodeid], *each) for nodeid, each in self.compared.items()]
        numbers = {"n_collected": self.n_collected, "n_judged": self.n_judged}
        cast("Any", self._config).workeroutput[WORKER_OUTPUT] = {**numbers, "played": pickle.dumps(cases)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take the cases that a worker of pytest-xdist played; one that crashed sends none."""
        if not self._is_together:
            return
        output = None if error else getattr(node, "workeroutput", {}).get(WORKER_OUTPUT)
        if output is None:
            self._not_together = "a worker of pytest-xdist crashed"
        else:
            self._worker_outputs.append(output)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Judge all cases together after the workers of pytest-xdist have played them."""
        result = yield
        if self._worker_outputs or self._not_together:
            self._take_from_workers()
            if self.n_collected:
                self._config.hook.pytest_runtest_protocol(item=self._last_item(session), nextitem=None)
        return result

    def _take_from_workers(self) -> None:
        """Put the cases of the workers together, in the order of their collection, which is the same in each."""
        cases = sorted(
            (each for output in self._worker_outputs for each in pickle.loads(output["played"])),  # noqa: S301 - our own
            key=itemgetter(0),
        )
        self.compared = {str(at): (case, numbers) for at, case, numbers in cases}
        self.n_collected = max((output["n_collected"] for output in self._worker_outputs), default=0)
        self.n_judged = sum(output["n_judged"] for output in self._worker_outputs)

    def judge_together(self) -> None:
        """Judge all cases together, as a run does. Raises CaseFailedError; skips where some were not played.

        Fewer cases are another build than the history is of, and so are cases that several workers played.
        """
        self._is_judged = True
        if not self._not_together and self.n_judged != self.n_collected:
            is_repeated = self.n_judged > self.n_collected
            few = f"{self.n_judged} of {counted(self.n_collected, 'case')} were played"
            self._not_together = "each case was played by several workers of pytest-xdist" if is_repeated else few
        if self._not_together:
            pytest.skip(self._not_judged)
        if self.baseline is None or not self.compared:
            return
        change = self.case_player.change_together(
            [each for each, _ in self.compared.values()], self.baseline, self.compared_gates
        )
        numbers = RunNumbers.of_cases([each for _, each in self.compared.values()])
        gates = conclude(self.compared_gates, numbers, change).gates
        self.together = next(each for each in gates if each.name == "--max-regressions")
        if not self.together.is_held:
            raise CaseFailedError(f"{self.together.name}: {self.together.sentence}")

    @property
    def _not_judged(self) -> str:
        return f"not judged: {self._not_together}; `evaldesk eval --baseline` judges them so"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The gate on all cases together where it held, or the reason why it is not judged; a failure has its text."""
        if self._not_together or (self.together and self.together.is_held):
            terminalreporter.section(f"evaldesk: {ALL_CASES}")
            sentence = self.together and f"held: {self.together.name}: {self.together.sentence}"
            terminalreporter.write_line(sentence or self._not_judged)

    def pytest_unconfigure(self) -> None:
        """End the workers."""
        if self._case_player:
            self._case_player.close()

    def pytest_report_header(self) -> str:
        """Which agent the cases are run with."""
        return f"evaldesk: agent {self.agent.id}, n {self.n}, min-pass-rate {self.min_pass_rate:g}"


class EvalSetFile(pytest.File):
    """One eval set."""

    collecting: EvalSetCollecting

    def collect(self) -> Iterator[EvalCaseItem]:
        """An item for each case, marked `evaldesk` and with the tags of the case."""
        try:
            evalset = load_evalset(self.path)
            check_ids(evalset, file=self.path.name)
            options = self.collecting.options(self.path, evalset)
            items = [_item(self, evalset, case, options) for case in evalset.cases]
        except (EvaldeskError, ValueError) as error:
            raise self.CollectError(str(error)) from error
        self.collecting.n_collected += len(evalset.cases)
        yield from items


class EvalCaseItem(pytest.Item):
    """One case, played n times; it passes when enough of its scored trials do and none is errored or unscored."""

    evalset: EvalSet
    case: Case
    options: RunOptions
    collecting: EvalSetCollecting

    def runtest(self) -> None:
        """Play the case. Raises CaseFailedError."""
        with suppress(AgentError):  # the trials say why, with the trace
            self._check()
        result = self.collecting.case_player.play(self.case, self.options)
        self.user_properties += [
            ("evaldesk_passed", result.n_passed),
            ("evaldesk_scored", result.n_scored),
            ("evaldesk_errored", result.n_errored),
            ("evaldesk_unscored", result.n_unscored),
        ]
        if self.case.id in left_out_ids([self.case], self.options.value("without")):
            self._end_in_no_gate(result)
            return
        gates, change = self.collecting.gates, self._change(result)
        is_alone = change is None or bool(change.unaccounted_cases)
        failure = None
        if gates.is_pooled:
            from evaldesk.desk.adk_verdict import pooled_failure  # most runs judge single trials

            failure = pooled_failure(result, self.collecting.case_player.criteria(self.case, self.options))
        numbers = CaseNumbers(self.case.id, result.counts, pooled_failure=failure)
        if not is_alone:
            gates = self.collecting.compared_gates
        self.collecting.add(self, None if is_alone else change, numbers)
        conclusion = conclude(gates, RunNumbers.of_cases([numbers]), change)
        has_evidence = all(gate.is_held for gate in conclusion.gates if gate.is_of_evidence)
        if self.collecting.new_cases == "inform" and is_alone and not conclusion.is_passed and has_evidence:
            pytest.skip(f"a case that the baseline does not account for informs only: {conclusion.reason}")
        if conclusion.is_neutral:
            pytest.skip(conclusion.reason)
        if not conclusion.is_passed:
            raise CaseFailedError(_failure(result, conclusion, gates))

    def _end_in_no_gate(self, result: CaseResult) -> None:
        """Pass, or be expected to fail: no gate asks for a case in quarantine, and its trials are told."""
        self.collecting.add(self, None, CaseNumbers(self.case.id, result.counts))
        if not result.counts.all_passed:
            words = f"{scored_words(result.counts)}{asides_words(result.counts)}"
            pytest.xfail(f"in quarantine, in no gate: {words}")

    def _change(self, result: CaseResult) -> RunChange | None:
        """The change against the baseline; None without one, and for a case that it has not got."""
        collecting = self.collecting
        if collecting.baseline is None:
            return None
        name = next(self.path.name.removesuffix(end) for end in ENDINGS if self.path.name.endswith(end))
        player, gates = collecting.case_player, collecting.compared_gates
        return player.change(self.case, name, self.options, result, collecting.baseline, gates)

    def _check(self) -> None:
        """End the test run where a model lacks its name or its key: every case would fail, after the cost of others."""
        try:
            self.collecting.case_player.check(self.case, self.options)
        except UsageError as error:
            pytest.exit(f"evaldesk: {error}", returncode=pytest.ExitCode.USAGE_ERROR)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The turns that differ, without a traceback of ours."""
        if isinstance(excinfo.value, CaseFailedError | EvaldeskError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """The eval set and the case."""
        return self.path, None, f"{self.evalset.id}: {self.case.id}"


class AllCasesItem(pytest.Item):
    """The verdict on all cases together, by their history; the last item of a test run."""

    collecting: EvalSetCollecting

    def runtest(self) -> None:
        """Judge the cases that were played. Raises CaseFailedError."""
        self.collecting.judge_together()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The sentence of the gate, without a traceback of ours."""
        if isinstance(excinfo.value, CaseFailedError | EvaldeskError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """No file: the cases may be of several."""
        return self.path, None, f"evaldesk: {ALL_CASES}"


class CaseFailedError(AssertionError):
    """A case that did not pass, with its turns."""


def _flag(option: RunOption) -> str:
    return f"--evaldesk-{option.flags[0].removeprefix('--')}"


def _item(file: EvalSetFile, evalset: EvalSet, case: Case, options: RunOptions) -> EvalCaseItem:
    item: EvalCaseItem = EvalCaseItem.from_parent(file, name=case.id)
    item.evalset, item.case, item.collecting = evalset, case, file.collecting
    n = own_trials(case)
    item.options = options if n is None else options.but(n=n)
    item.add_marker("evaldesk")
    for tag in case.tags:
        if tag.replace("-", "_").isidentifier() and not tag.startswith("_"):
            file.config.addinivalue_line("markers", f"{tag}: a tag of eval cases")
            item.add_marker(tag)
    return item


def _failure(result: CaseResult, conclusion: Conclusion, gates: Gates) -> str:
    counts = result.counts
    words = f"{counts.passed} of {counts.scored} scored trials passed" if counts.scored else "no trial was scored"
    words += "" if gates.min_pass_rate is None else f", {gates.min_pass_rate:.0%} must"
    words += asides_words(counts)
    named_gates = ("--max-regressions", POOLED)
    own_gates = [gate for gate in conclusion.gates if gate.is_of_evidence or gate.name in named_gates]
    reasons = [f"{gate.name}: {gate.sentence}" for gate in own_gates if not gate.is_held]
    first = next((trial for trial in result if trial.verdict != "passed"), None)
    if first is None:
        return "\n".join([words, *conclusion.reasons])
    head = f"trial {first.trial_index + 1} {first.verdict}: {first_words(result.case, first)}"
    return "\n".join([words, *reasons, head, trial_text(result.case, first)])
