"""The request of `evaldesk eval`: its options as one value, and the runs that result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaldesk.cli.files.exchange_files import open_home
from evaldesk.cli.runs.shared import n_workers
from evaldesk.desk.criteria.criteria import criteria_of
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.gate_options import AskedGates, flag_of, gates_of
from evaldesk.model import AgentRef, Criterion, EvalSet, Gates
from evaldesk.model.run import FileOption
from evaldesk.model.stored import RunSummary
from evaldesk.paths import workspace_folder
from evaldesk.run_options import BY_NAME, Asked
from evaldesk.settings import Settings


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """The options of the command as they were given; None is not given.

    `run_options` and `asked_gates` have those of the tables, `tool_options` those of the `tool` in whose form the
    command is written; it `is_mixed` where another form was selected, too. `more_models` may be used, besides that of
    the run. `vary` and `models` are the values of an experiment, `listed` its variants one by one; the fields after
    them belong to it, which with `is_submitted` is played in the background, where `own_environment` are variables of
    its process.
    """

    words: tuple[str, ...]
    run_options: Asked = field(default_factory=Asked)
    asked_gates: AskedGates = field(default_factory=AskedGates)
    criteria: tuple[tuple[str, object], ...] = ()
    check: bool = False
    config_file_path: str | None = None
    workspace: str | None = None
    python: str | None = None
    image: str | None = None
    print_detailed_results: bool = False
    quiet: bool = False
    is_json: bool = False
    outputs: tuple[str, ...] = ()
    junit: str | None = None
    summary: str | None = None
    annotations: bool = False
    tool: str = "adk"
    tool_options: Mapping[str, Any] = field(default_factory=dict)
    is_mixed: bool = False
    more_models: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    listed: tuple[Mapping[str, object], ...] = ()
    experiment: str | None = None
    baseline_variant: str | None = None
    gate_variants: tuple[str, ...] = ()
    allow_equal: bool = False
    drop_worse: bool = False
    is_submitted: bool = False
    own_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> str | None:
        """The rows to run, such as `3,7,10-20`; None for all."""
        return self.run_options.get("rows")

    @property
    def is_experiment(self) -> bool:
        """Whether variants are to be played: options have several values."""
        return bool(self.vary or self.models or self.listed)

    @property
    def gates(self) -> Gates:
        """The gates that were asked for. Raises UsageError when one cannot be judged."""
        gates = gates_of(
            self.asked_gates,
            n=self.value("n"),
            compat=self.value("compat"),
            all_must_pass=self.tool == "adk",
            name_of=flag_of,
        )
        return replace(gates, pass_threshold=self.value("pass_threshold"))

    @property
    def files(self) -> tuple[tuple[FileOption, str], ...]:
        """The files that are asked for, by their option and with their whole path; those of Osmosis have their own."""
        names: list[tuple[FileOption, str | None]] = [
            ("osmosis" if self.tool == "osmosis" and Path(name).suffix in ("", ".json") else "output", name)
            for name in self.outputs
        ]
        names += [("junit", self.junit), ("summary", self.summary)]
        return tuple((option, str(Path(name).absolute())) for option, name in names if name)

    @property
    def baseline(self) -> str | None:
        """The run, or the file, to compare with."""
        value = self.asked_gates.get("baseline")
        return None if value is None else str(value)

    @property
    def named_criteria(self) -> tuple[Criterion, ...]:
        """Those of `--criterion`. Raises UsageError."""
        return criteria_of(dict(self.criteria))

    @property
    def home(self) -> Path:
        """The workspace."""
        return workspace_folder(self.workspace)

    def settings(self) -> Settings:
        """Settings of the workspace, in which the models that were named may be used."""
        settings = open_home(self.workspace)
        option_models = filter(None, (self.run_options.get("model"), *self.more_models))
        n = n_workers(self.value("concurrency"))
        return replace(settings, models=(*settings.models, *option_models), n_workers=n)

    def options(self, case_ids: tuple[str, ...] | None = None, criteria: tuple[Criterion, ...] = ()) -> RunOptions:
        """How to run, as the form of a page would say it. Raises UsageError."""
        return RunOptions(case_ids=case_ids, criteria=criteria or None, gates=self.gates, **self.run_options)

    def value(self, name: str) -> Any:
        """The value of an option of the table, or its default."""
        return self.run_options.get(name, BY_NAME[name].default)


def _nothing(runs: StoredRuns, run: RunSummary) -> None:
    """No listener."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run that the command comes to; `path` is the file of its cases, `on_progress` is told of every step.

    `found_criteria` is the file of the criteria that nobody named, which stood beside the eval set. `is_stored` says
    whether the eval set is an earlier version of the file, out of the database.
    """

    agent: AgentRef
    evalset: EvalSet
    path: Path
    options: RunOptions
    found_criteria: Path | None = None
    is_baseline: bool = False
    is_stored: bool = False
    on_progress: Callable[[StoredRuns, RunSummary], None] = _nothing
