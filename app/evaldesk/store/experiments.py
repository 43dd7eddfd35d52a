"""Experiments: their plans, and the runs of their variants."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, exists, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.experiment import Analysis, Experiment, ExperimentPlan, Member
from evaldesk.model.run import ExperimentPart, RunConfig
from evaldesk.store.database import StorePart
from evaldesk.store.runs.planning import Planning, begin_together
from evaldesk.store.tables.experiments import EXPERIMENT
from evaldesk.store.tables.runs import RUN, VISIBLE
from evaldesk.wire import from_json, to_json


@dataclass(frozen=True, slots=True)
class NewExperiment:
    """An experiment that is to be stored: its plan, and of one in a file its time and the variants dropped early."""

    plan: ExperimentPlan
    created_at: datetime | None = None
    dropped: Mapping[int, int] = field(default_factory=dict)


class ExperimentStore(StorePart):
    """The experiments of a workspace. A variant whose run is gone keeps its place."""

    def begin(self, plan: ExperimentPlan, plannings: Sequence[Planning]) -> int:
        """Store an experiment and its runs with their first cases in one transaction; gives its id."""
        experiment_id = 0

        def insert_plan(connection: Connection) -> Sequence[RunConfig]:
            nonlocal experiment_id
            experiment_id = insert_experiment(connection, NewExperiment(plan), self._clock())
            return _configs(experiment_id, plan, plannings)

        begin_together(self._database, plannings, insert_plan)
        return experiment_id

    def extend(self, experiment_id: int, plan: ExperimentPlan, plannings: Sequence[Planning]) -> None:
        """Replace the plan by one with more variants, and store the runs of these, as `begin` does.

        Raises NotFoundError, and ConflictError where somebody added variants since `plan` was made.
        """

        def change_plan(connection: Connection) -> Sequence[RunConfig]:
            stored_plan = from_json(_row(connection, experiment_id).plan, ExperimentPlan)
            n_earlier = len(plan.variants) - len(plannings)
            if [each.name for each in stored_plan.variants] != [each.name for each in plan.variants[:n_earlier]]:
                raise ConflictError(
                    f"experiment {experiment_id} got other variants meanwhile; look at it, and begin again"
                )
            values = {"plan": to_json(plan).decode(), "name": plan.name}
            connection.execute(update(EXPERIMENT).where(EXPERIMENT.c.id == experiment_id).values(values))
            return _configs(experiment_id, plan, plannings, first=len(plan.variants) - len(plannings))

        begin_together(self._database, plannings, change_plan)

    def note_drop(self, experiment_id: int, variant_index: int, n_blocks: int) -> None:
        """Note that a variant is not played on after so many blocks. Raises NotFoundError."""
        with self._database.writing() as connection:
            dropped = {**_dropped(_row(connection, experiment_id)), variant_index: n_blocks}
            values = {"dropped": to_json(dropped).decode()}
            connection.execute(update(EXPERIMENT).where(EXPERIMENT.c.id == experiment_id).values(values))

    def keep_analysis(self, experiment_id: int, state: str, analysis: Analysis) -> None:
        """Store the analysis of the trials that `state` tells. Raises NotFoundError."""
        self._update(experiment_id, analysed=state, analysis=to_json(analysis).decode())

    def analysis(self, experiment_id: int, state: str) -> Analysis | None:
        """The stored analysis, if it is of the trials that `state` tells. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = _row(connection, experiment_id)
        return from_json(row.analysis, Analysis) if row.analysis and row.analysed == state else None

    def get(self, experiment_id: int) -> Experiment:
        """An experiment. Raises NotFoundError."""
        with self._database.reading() as connection:
            return _experiments(connection, [_row(connection, experiment_id)])[0]

    def list(
        self, *, before: int | None = None, agent_id: str | None = None, limit: int = 50
    ) -> builtins.list[Experiment]:
        """Experiments that have a run, newest first, of one agent or of all; `before` ends the last page.

        Those whose runs are all in the trash come back with them.
        """
        has_run = exists().where(RUN.c.experiment_id == EXPERIMENT.c.id, VISIBLE)
        rows = select(EXPERIMENT).where(has_run).order_by(EXPERIMENT.c.id.desc()).limit(limit)
        if agent_id is not None:
            rows = rows.where(EXPERIMENT.c.id.in_(select(RUN.c.experiment_id).where(RUN.c.agent_id == agent_id)))
        if before is not None:
            rows = rows.where(EXPERIMENT.c.id < before)
        with self._database.reading() as connection:
            return _experiments(connection, connection.execute(rows).all())

    def _update(self, experiment_id: int, **values: object) -> None:
        with self._database.writing() as connection:
            _row(connection, experiment_id)
            connection.execute(update(EXPERIMENT).where(EXPERIMENT.c.id == experiment_id).values(values))


def insert_experiment(connection: Connection, experiment: NewExperiment, now: datetime) -> int:
    """Store an experiment; gives its id."""
    row = {
        "name": experiment.plan.name,
        "plan": to_json(experiment.plan).decode(),
        "dropped": to_json(dict(experiment.dropped)).decode(),
        "analysed": "",
        "analysis": "",
        "created_at": experiment.created_at or now,
    }
    experiment_id: int = connection.execute(insert(EXPERIMENT).values(row).returning(EXPERIMENT.c.id)).scalar_one()
    return experiment_id


def _configs(
    experiment_id: int, plan: ExperimentPlan, plannings: Sequence[Planning], first: int = 0
) -> Sequence[RunConfig]:
    """The configurations of runs as variants of an experiment, from the variant `first` on."""
    return [
        replace(each.config, experiment=ExperimentPart(experiment_id, index, plan.variants[index].name))
        for index, each in enumerate(plannings, first)
    ]


def _row(connection: Connection, experiment_id: int) -> Any:
    row = connection.execute(select(EXPERIMENT).where(EXPERIMENT.c.id == experiment_id)).first()
    if row is None:
        raise NotFoundError(f"there is no experiment {experiment_id}; `evaldesk experiment list` shows them")
    return row


def _dropped(row: Any) -> dict[int, int]:
    return from_json(row.dropped, dict[int, int])


def _experiments(connection: Connection, rows: Sequence[Any]) -> builtins.list[Experiment]:
    """The experiments of some rows; the newest run of a variant counts."""
    columns = (RUN.c.experiment_id, RUN.c.variant_index, RUN.c.id, RUN.c.deleted_at)
    runs = select(*columns).where(RUN.c.experiment_id.in_([row.id for row in rows])).order_by(RUN.c.id)
    members: dict[tuple[int, int], Member] = {}
    for experiment_id, index, run_id, deleted_at in connection.execute(runs):
        members[experiment_id, index] = Member(index, run_id, deleted_at is not None)
    experiments = []
    for row in rows:
        plan = from_json(row.plan, ExperimentPlan)
        of_variants = tuple(members.get((row.id, at), Member(at, None)) for at in range(len(plan.variants)))
        experiments.append(Experiment(row.id, plan, of_variants, row.created_at, _dropped(row)))
    return experiments
