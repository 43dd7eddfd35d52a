"""Eval sets as pytest collects them: a file for each set, an item for each case, and what it says when it fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from evaldesk.agents import named_ref
from evaldesk.desk.bench import Bench
from evaldesk.desk.criteria import find_criteria_file, read_criteria, read_user
from evaldesk.desk.run_plan import RunOptions, check_deciding, check_numbers
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.model import AgentRef, Case, EvalSet
from evaldesk.report.run_result import CaseResult
from evaldesk.report.turn_text import first_words, trial_text
from evaldesk.settings import Settings, read_settings

Number = TypeVar("Number", int, float)
ENDINGS = (".test.json", ".evalset.json")


class EvalSetCollecting:
    """The hooks of a test run that was given an agent, and the workers of that run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._bench: Bench | None = None
        try:
            self.n = self._number("n", int)
            self.min_pass_rate = self._number("min-pass-rate", float)
            if not 0 <= self.min_pass_rate <= 1:
                raise UsageError(f"--evaldesk-min-pass-rate is between 0 and 1, got {self.min_pass_rate:g}")
            self._settings = read_settings(config.rootpath, (), environment=os.environ)
            self.agent = _agent(config, self._settings)
            self._options = RunOptions(
                n=self.n,
                concurrency=self._number("concurrency", int),
                timeout_s=self._number("timeout", float),
                model=self.said("model") or None,
                user_model=self.said("user-model") or None,
                seed=self._number("seed", int),
            )
            check_numbers(self._options)
        except EvaldeskError as error:
            raise pytest.UsageError(f"evaldesk: {error}") from error

    def said(self, name: str) -> str:
        """The option, or what the ini file says."""
        given = self._config.getoption(f"--evaldesk-{name}")
        return str(given or self._config.getini(f"evaldesk_{name.replace('-', '_')}"))

    def _number(self, name: str, kind: Callable[[str], Number]) -> Number:
        said = self.said(name)
        try:
            return kind(said)
        except ValueError:
            words = "a whole number" if kind is int else "a number"
            raise UsageError(f"--evaldesk-{name} is {words}, not {said!r}") from None

    @property
    def bench(self) -> Bench:
        """The workers, started with the first case that is run."""
        if self._bench is None:
            self._bench = Bench(self.agent, self._settings, concurrency=self._options.concurrency)
        return self._bench

    def options(self, path: Path) -> RunOptions:
        """How the eval set in `path` is run: by the file of criteria that was named or stands beside it, if any.

        Raises UsageError, FormatError.
        """
        named = self.said("config")
        file = self._config.invocation_params.dir / named if named else find_criteria_file(path)
        if file is None:
            return self._options
        criteria = read_criteria(file)
        check_deciding(criteria)
        return replace(self._options, criteria=criteria, user=read_user(file))

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalSetFile | None:
        """Take the eval sets."""
        if not file_path.name.endswith(ENDINGS):
            return None
        file: EvalSetFile = EvalSetFile.from_parent(parent, path=file_path)
        file.collecting = self
        return file

    def pytest_unconfigure(self) -> None:
        """End the workers."""
        if self._bench:
            self._bench.close()

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
            options = self.collecting.options(self.path)
        except EvaldeskError as error:
            raise self.CollectError(str(error)) from error
        for case in evalset.cases:
            yield _item(self, evalset, case, options)


class EvalCaseItem(pytest.Item):
    """One case, played n times; it passes when enough of its scored trials do and none errors."""

    evalset: EvalSet
    case: Case
    options: RunOptions
    collecting: EvalSetCollecting

    def runtest(self) -> None:
        """Play the case. Raises CaseFailedError."""
        result = self.collecting.bench.play(self.case, self.options)
        self.user_properties += [
            ("evaldesk_passed", result.n_passed),
            ("evaldesk_scored", result.n_scored),
            ("evaldesk_errored", result.n_errored),
        ]
        least = self.collecting.min_pass_rate
        if result.n_errored or result.pass_rate is None or result.pass_rate < least - 1e-9:
            raise CaseFailedError(_failure(result, least))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The turns that differ, without a traceback of ours."""
        if isinstance(excinfo.value, CaseFailedError | EvaldeskError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str], int | None, str]:
        """The eval set and the case."""
        return self.path, None, f"{self.evalset.id}: {self.case.id}"


class CaseFailedError(AssertionError):
    """A case that did not pass, with its turns."""


def _item(file: EvalSetFile, evalset: EvalSet, case: Case, options: RunOptions) -> EvalCaseItem:
    item: EvalCaseItem = EvalCaseItem.from_parent(file, name=case.id)
    item.evalset, item.case, item.options, item.collecting = evalset, case, options, file.collecting
    item.add_marker("evaldesk")
    for tag in case.tags:
        if tag.replace("-", "_").isidentifier() and not tag.startswith("_"):
            file.config.addinivalue_line("markers", f"{tag}: a tag of eval cases")
            item.add_marker(tag)
    return item


def _failure(result: CaseResult, least: float) -> str:
    asides = [f"{n} {word}" for n, word in ((result.n_errored, "errored"), (result.n_unscored, "unscored")) if n]
    said = f"{result.n_passed} of {result.n_scored} scored trials passed, {least:.0%} must"
    first = next(trial for trial in result if trial.verdict != "passed")
    head = f"trial {first.trial_index + 1} {first.verdict}: {first_words(result.case, first)}"
    return "\n".join([f"{said} ({', '.join(asides)})" if asides else said, head, trial_text(result.case, first)])


def _agent(config: pytest.Config, settings: Settings) -> AgentRef:
    """The agent of the option, or of the ini file, whose folders are looked up from where that lies."""
    named = config.getoption("--evaldesk-agent")
    said = str(named or config.getini("evaldesk_agent"))
    folder = config.rootpath / said
    is_folder = not named and said not in settings.agents and folder.is_dir()
    return named_ref(str(folder) if is_folder else said, settings.agents, config.rootpath)
