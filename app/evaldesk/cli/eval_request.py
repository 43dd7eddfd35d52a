"""What `evaldesk eval` was asked: its options as one value, and the runs that they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from evaldesk.desk.criteria import criteria_of
from evaldesk.desk.run_plan import RunOptions
from evaldesk.errors import UsageError
from evaldesk.model import DEFAULT_CRITERIA, AgentRef, Criterion, EvalSet, ModelOptions
from evaldesk.model.recording import Recording, RecordingMode
from evaldesk.report.gates import Gates
from evaldesk.settings import Settings, read_settings
from evaldesk.store import RunSummary, Store


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """The options of the command as they were given; None is not given."""

    words: tuple[str, ...]
    n: int = 1
    concurrency: int | None = None
    timeout_s: float = 120.0
    model: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    top_p: float | None = None
    retries: int | None = None
    user_model: str | None = None
    turn_timeout_s: float | None = None
    tool_timeout_s: float | None = None
    judge_timeout_s: float | None = None
    recording: RecordingMode | None = None
    criteria: tuple[tuple[str, object], ...] = ()
    check: bool = False
    config_file_path: str | None = None
    pass_threshold: float | None = None
    count_errors_as_failures: bool = False
    seed: int | None = None
    note: str = ""
    workspace: str | None = None
    print_detailed_results: bool = False
    quiet: bool = False
    is_json: bool = False
    min_pass_rate: float | None = None
    min_case_pass_rate: float | None = None
    pass_at: tuple[tuple[int, float], ...] = ()
    pass_hat: tuple[tuple[int, float], ...] = ()
    max_error_rate: float | None = None
    max_cost: float | None = None
    baseline: str | None = None
    max_regressions: int | None = None
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
    api_key_env: str | None = None
    baseline_model: str | None = None
    baseline_base_url: str | None = None
    compat: str | None = None
    benchmark: str | None = None
    llm_config: str | None = None
    config_file: str = "config.toml"
    max_iterations: int | None = None
    eval_n_limit: int | None = None
    eval_num_workers: int | None = None
    eval_ids: str | None = None
    eval_note: str | None = None
    eval_output_dir: str | None = None
    score_key: str = "success"

    @property
    def gates(self) -> Gates:
        """The gates that were asked for. Raises UsageError when one cannot be judged."""
        most = self.max_regressions
        if most is not None and self.baseline is None:
            raise UsageError("--max-regressions needs --baseline: the run, or the JSON file of one, to compare with")
        for name, k in [("--pass-at", k) for k, _ in self.pass_at] + [("--pass-hat", k) for k, _ in self.pass_hat]:
            if k > self.n:
                raise UsageError(f"{name} {k} asks for {k} trials of each case; say --n {k} or more, not --n {self.n}")
        return Gates(
            min_pass_rate=self.min_pass_rate,
            min_case_pass_rate=self.min_case_pass_rate,
            pass_at=self.pass_at,
            pass_hat=self.pass_hat,
            max_error_rate=self.max_error_rate or 0.0,
            max_cost=self.max_cost,
            all_must_pass=not (self.module or self.benchmark),
            max_regressions=0 if self.baseline is not None and most is None else most,
        )

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
        n_workers = max(1, min(self.concurrency or 4, os.cpu_count() or 2))
        settings = read_settings(self.home, (self.home,), environment=os.environ, n_workers=n_workers)
        named = [model for model in (self.model, self.baseline_model) if model]
        return replace(settings, models=(*settings.models, *named))

    def options(self, case_ids: tuple[str, ...] | None = None, criteria: tuple[Criterion, ...] = ()) -> RunOptions:
        """How to run, as the form of a page would say it. Raises UsageError."""
        return RunOptions(
            case_ids=case_ids,
            n=self.n,
            criteria=criteria or DEFAULT_CRITERIA,
            pass_threshold=1.0 if self.pass_threshold is None else self.pass_threshold,
            concurrency=self.concurrency or 4,
            timeout_s=self.timeout_s,
            model=self.model,
            model_options=ModelOptions(
                base_url=self.base_url,
                api_key_env=self.api_key_env,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                max_turns=self.max_turns,
                top_p=self.top_p,
                n_retries=self.retries,
            ),
            user_model=self.user_model,
            recording=Recording(self.recording) if self.recording else None,
            turn_timeout_s=self.turn_timeout_s,
            tool_timeout_s=self.tool_timeout_s,
            judge_timeout_s=self.judge_timeout_s,
            seed=self.seed,
            note=self.note,
            errors_are_failures=self.count_errors_as_failures,
        )


def _nothing(store: Store, run: RunSummary) -> None:
    """Nobody else wants to know."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run that the command comes to; `path` is the file of its cases, `on_progress` is told of every step."""

    agent: AgentRef
    evalset: EvalSet
    path: Path
    options: RunOptions
    is_baseline: bool = False
    on_progress: Callable[[Store, RunSummary], None] = _nothing
