"""The verdicts of the cases of an eval set over its newest runs, for the health of the set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import msgspec
from sqlalchemy import Connection, select

from evaldesk.store.tables.runs import LISTED, RUN, RUN_CASE
from evaldesk.wire import from_json, to_json

MOST_QUARANTINE_RUNS, MOST_QUARANTINE_ROWS = 100, 40_000
"""Runs, and cases of all of them, in which the list of a set looks for cases in quarantine."""
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


@dataclass(frozen=True, slots=True)
class QuarantineRuns:
    """The newest runs of a set, one after the other, in which a case was in quarantine; `first_run_id` began them.

    `is_cut`: older runs may belong to them, which are not read.
    """

    first_run_id: int
    n_runs: int
    n_passed: int
    n_scored: int
    is_cut: bool


class _QuarantineConfig(msgspec.Struct):
    """The part of a run's configuration that says which cases no gate asks for."""

    left_out: tuple[str, ...] = ()
    errors_are_failures: bool = False
    source_run_id: int | None = None


def quarantine_runs(connection: Connection, evalset_id: str, case_ids: Collection[str]) -> dict[str, QuarantineRuns]:
    """The newest runs in which each of these cases was in quarantine, up to the one that played it outside of it."""
    columns, case = RUN.c, RUN_CASE.c
    runs = select(columns.id, columns.config, columns.n_cases).where(columns.evalset_id == evalset_id, LISTED)
    rows = connection.execute(runs.order_by(columns.id.desc()).limit(MOST_QUARANTINE_RUNS)).all()
    configs: dict[int, _QuarantineConfig] = {}
    n_rows = 0
    for run_id, config, n_cases in rows:
        n_rows += n_cases
        if configs and n_rows > MOST_QUARANTINE_ROWS:
            break
        configs[run_id] = from_json(config, _QuarantineConfig)
    strips: dict[int, dict[str, str]] = defaultdict(dict)
    some_cases = select(case.run_id, case.case_id, case.strip).where(
        case.run_id.in_(list(configs)), case.case_id.in_(list(case_ids))
    )
    for run_id, case_id, strip in connection.execute(some_cases):
        strips[run_id][case_id] = strip
    is_cut = len(configs) < len(rows) or len(rows) == MOST_QUARANTINE_RUNS
    known_runs: dict[str, QuarantineRuns] = {}
    open_ids = set(case_ids)
    for run_id, run in configs.items():
        left_out_ids = open_ids.intersection(run.left_out)
        open_ids -= strips[run_id].keys() - left_out_ids
        for case_id in left_out_ids if run.source_run_id is None else ():
            strip = strips[run_id].get(case_id, "")
            n_scored = sum(map(strip.count, "pfe" if run.errors_are_failures else "pf"))
            before = known_runs.get(case_id, QuarantineRuns(run_id, 0, 0, 0, is_cut))
            known_runs[case_id] = QuarantineRuns(
                run_id, before.n_runs + 1, before.n_passed + strip.count("p"), before.n_scored + n_scored, is_cut
            )
    return {case_id: replace(each, is_cut=is_cut and case_id in open_ids) for case_id, each in known_runs.items()}
