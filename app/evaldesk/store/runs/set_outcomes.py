"""The verdicts of the cases of an eval set over its newest runs, for the health of the set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, select

from evaldesk.store.tables.runs import LISTED, RUN, RUN_CASE
from evaldesk.wire import from_json, to_json

MOST_RUNS = 500
MOST_ROWS = 200_000
"""Cases of all runs that are read, about half a second's reading; of older runs none."""


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """A case in a run: a letter for each trial, its cost, and the trials without a known one."""

    case_index: int
    case_id: str
    digest: str
    verdicts: str
    cost: float
    n_unpriced: int


@dataclass(frozen=True, slots=True)
class SetRun:
    """A run of an eval set with its cases. `agent` is the version of its agent and model."""

    run_id: int
    agent: str
    letters: str
    cases: tuple[CaseOutcome, ...]


class _Config(msgspec.Struct):
    """The part of a run's configuration that says which agent it had, and how it counts."""

    agent_version: str = ""
    agent_model: str | None = None
    model: str | None = None
    errors_are_failures: bool = False
    source_run_id: int | None = None
    agent: Mapping[str, object] = {}
    model_options: Mapping[str, object] = {}


def set_runs(connection: Connection, evalset_id: str, agent_id: str) -> list[SetRun]:
    """The newest runs of an eval set with an agent, newest first; runs that score another again are left out."""
    columns = RUN.c
    runs = select(columns.id, columns.config, columns.n_cases).where(
        columns.evalset_id == evalset_id, columns.agent_id == agent_id, LISTED
    )
    configs: dict[int, _Config] = {}
    n_rows = 0
    for run_id, config, n_cases in connection.execute(runs.order_by(columns.id.desc()).limit(MOST_RUNS)):
        n_rows += n_cases
        if configs and n_rows > MOST_ROWS:
            break
        read_config = from_json(config, _Config)
        if read_config.source_run_id is None:
            configs[run_id] = read_config
    case = RUN_CASE.c
    rows = select(case.run_id, case.case_index, case.case_id, case.digest, case.strip, case.cost, case.n_unpriced)
    cases: dict[int, list[CaseOutcome]] = defaultdict(list)
    for run_id, *values in connection.execute(rows.where(case.run_id.in_(list(configs)))):
        cases[run_id].append(CaseOutcome(*values))
    return [
        SetRun(run_id, _version(config), "pfe" if config.errors_are_failures else "pf", tuple(cases[run_id]))
        for run_id, config in configs.items()
    ]


def _version(config: _Config) -> str:
    own = (config.agent.get("part"), config.model_options.get("instruction"), config.model_options.get("instructions"))
    return to_json((config.agent_version, config.model or config.agent_model, *own)).decode()
