"""The request of `evaldesk eval`: its options as one value, and the runs that result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaldesk.cli.eval.options import check_rule
from evaldesk.desk.criteria.criteria import criteria_of
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Criterion, EvalSet, Gates
from evaldesk.model.conclusion import CONFIRM, RegressionRule, Undecided
from evaldesk.model.stored import RunSummary
from evaldesk.run_options import BY_NAME, OWN, Asked
from evaldesk.settings import Settings, read_settings


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """The options of the command as they were given; None is not given. `asked` has those of the table."""

    words: tuple[str, ...]
    asked: Asked = field(default_factory=Asked)
    criteria: tuple[tuple[str, object], ...] = ()
    check: bool = False
    config_file_path: str | None = None
    workspace: str | None = None
    python: str | None = None
    image: str | None = None
    print_detailed_results: bool = False
    quiet: bool = False
    is_json: bool = False
    min_pass_rate: float | None = None
    min_case_pass_rate: float | None = None
    pass_at: tuple[tuple[int, float], ...] = ()
    pass_hat: tuple[tuple[int, float], ...] = ()
    max_error_rate: float | None = None
    max_unscored_rate: float | None = None
    min_scored: int | None = None
    max_cost: float | None = None
    baseline: str | None = None
    max_regressions: int | None = None
    regression_rule: RegressionRule | None = None
    confirm: tuple[int, int] | None = None
    undecided: Undecided | None = None
    outputs: tuple[str, ...] = ()
    junit: str | None = None
    summary: str | None = None
    annotations: bool = False
    module: str | None = None
    dataset: str | None = None
    eval_fns: tuple[str, ...] = ()
    offset: int = 0
    limit: int | None = None
    api_key: str | None = None
    baseline_model: str | None = None
    baseline_base_url: str | None = None
    benchmark: str | None = None
    llm_config: str | None = None
    config_file: str = "config.toml"
    max_iterations: int | None = None
    eval_n_limit: int | None = None
    eval_num_workers: int | None = None
    eval_ids: str | None = None
    eval_note: str | None = None
    eval_output_dir: str | None = None
    eval_metadata: str | None = None
    score_key: str = "success"

    @property
    def gates(self) -> Gates:
        """The gates that were asked for. Raises UsageError when one cannot be judged."""
        most, n = self.max_regressions, self.value("n")
        if most is not None and self.baseline is None:
            raise UsageError("--max-regressions needs --baseline: the run, or the JSON file of one, to compare with")
        if self.regression_rule is not None and self.baseline is None:
            raise UsageError("--regression-rule needs --baseline: the run, or the JSON file of one, to compare with")
        check_rule(self.regression_rule, self.confirm)
        for name, k in [("--pass-at", k) for k, _ in self.pass_at] + [("--pass-hat", k) for k, _ in self.pass_hat]:
            if k > n:
                raise UsageError(f"{name} {k} asks for {k} trials of each case; say --n {k} or more, not --n {n}")
        gates = Gates(
            min_pass_rate=self.min_pass_rate,
            min_case_pass_rate=self.min_case_pass_rate,
            pass_at=self.pass_at,
            pass_hat=self.pass_hat,
            max_error_rate=self.max_error_rate or 0.0,
            max_cost=self.max_cost,
            max_unscored_rate=self.max_unscored_rate or 0.0,
            min_scored=self.min_scored,
            all_must_pass=not (self.module or self.benchmark),
            max_regressions=0 if self.baseline is not None and most is None else most,
            baseline=_baseline_name(self.baseline),
            regression_rule=self.regression_rule or "any",
            confirm=self.confirm or CONFIRM,
            undecided=self.undecided,
        )
        if self.value("compat") != OWN:
            return gates.as_tool(self.value("compat"))
        is_silent = not (gates.all_must_pass or gates.asks_for_verdicts) and self.max_unscored_rate is None
        return replace(gates, max_unscored_rate=1.0) if is_silent else gates

    @property
    def spelled(self) -> str:
        """The tool as which the command is spelled."""
        return "openhands" if self.benchmark else "osmosis" if self.module else "adk"

    @property
    def named_criteria(self) -> tuple[Criterion, ...]:
        """Those of `--criterion`. Raises UsageError."""
        return criteria_of(dict(self.criteria))

    @property
    def home(self) -> Path:
        """The workspace."""
        return Path(self.workspace).resolve() if self.workspace else Path.cwd()

    def settings(self) -> Settings:
        """Settings of the workspace, in which the models that were named may be used."""
        if not self.home.is_dir():
            raise UsageError(f"{self.home} is not a folder; name the folder that holds .evaldesk, or is to hold it")
        n_workers = max(1, min(self.value("concurrency"), os.cpu_count() or 2))
        settings = read_settings(self.home, (self.home,), environment=os.environ, n_workers=n_workers)
        named = [model for model in (self.asked.get("model"), self.baseline_model) if model]
        return replace(settings, models=(*settings.models, *named))

    def options(self, case_ids: tuple[str, ...] | None = None, criteria: tuple[Criterion, ...] = ()) -> RunOptions:
        """How to run, as the form of a page would say it. Raises UsageError."""
        return RunOptions(case_ids=case_ids, criteria=criteria or None, gates=self.gates, **self.asked)

    def value(self, name: str) -> Any:
        """The value of an option of the table, or its default."""
        return self.asked.get(name, BY_NAME[name].default)


def _baseline_name(given: str | None) -> str:
    """The name of the run or file that this run is compared with."""
    return f"run {given}" if given and given.isdecimal() else Path(given or "").name


def _nothing(runs: StoredRuns, run: RunSummary) -> None:
    """No listener."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run that the command comes to; `path` is the file of its cases, `on_progress` is told of every step.

    `found_criteria` is the file of the criteria that nobody named, which stood beside the eval set.
    """

    agent: AgentRef
    evalset: EvalSet
    path: Path
    options: RunOptions
    found_criteria: Path | None = None
    is_baseline: bool = False
    on_progress: Callable[[StoredRuns, RunSummary], None] = _nothing
