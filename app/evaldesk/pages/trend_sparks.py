"""One small trend for each eval set and agent, as the home page and the page of agents show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.model.conclusion import counted
from evaldesk.model.set_trend import TrendRun
from evaldesk.model.stored import EvalSetFile
from evaldesk.wording.words import share_words

N_RUNS = 12
MOST_SETS = 8
"""Sets that are drawn, those with the newest runs."""
N_READ = 48
"""Runs of a set that are read, since several agents share it."""


@dataclass(frozen=True, slots=True)
class Spark:
    """The pass rate of an agent on a set over its last runs: a path in a box of 100 x 20, and its newest point."""

    evalset_id: str
    name: str
    agent_id: str
    path: str
    end: tuple[float, float]
    value: str
    words: str

    @property
    def address(self) -> str:
        """The trend of this agent on the set."""
        return f"/evalsets/{self.evalset_id}/trend?{urlencode({'agent': self.agent_id})}"


def set_sparks(desk: Desk, files: Sequence[EvalSetFile] | None = None, limit: int = MOST_SETS) -> list[Spark]:
    """The sets with the newest complete runs, each with every agent that it has; the newest run first.

    Sets without a scored run have none, so an import without verdicts draws nothing.
    """
    runs = desk.store.runs
    files = desk.evalsets.list() if files is None else files
    newest = {evalset_id: run.id for evalset_id, run in runs.newest_of_evalsets().items()}
    names = {file.id: file.name for file in files if file.id in newest and not file.error}
    recent_ids = sorted(names, key=lambda each: -newest[each])[:limit]
    sparks = []
    for evalset_id in recent_ids:
        by_agent: dict[str, list[TrendRun]] = {}
        for run in reversed(runs.trend_runs(evalset_id, limit=N_READ)):
            by_agent.setdefault(run.agent_id, []).insert(0, run)
        sparks += [_spark(evalset_id, names[evalset_id], own) for own in by_agent.values()]
    return sparks


def newest_sparks(sparks: Sequence[Spark]) -> list[Spark]:
    """One spark a set: that of the agent that played it last."""
    first: Mapping[str, Spark] = {spark.evalset_id: spark for spark in reversed(sparks)}
    return [spark for spark in sparks if first[spark.evalset_id] is spark]


def _spark(evalset_id: str, name: str, every_run: Sequence[TrendRun]) -> Spark:
    newest = every_run[-1]
    runs = [run for run in every_run if run.variant == newest.variant][-N_RUNS:]
    floor = min(0.5, *(run.rate for run in runs), 0.5)
    step = 94 / max(1, len(runs) - 1)
    places = [(3 + at * step, 18 - 16 * (run.rate - floor) / (1 - floor), run) for at, run in enumerate(runs)]
    if len(places) == 1:
        places = [(97.0, places[0][1], newest)]
    path = "".join(
        f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y, _ in part)}"
        for _, part in ((line, list(part)) for line, part in groupby(places, key=lambda place: place[2].line))
        if len(part) > 1
    )
    words = f"{name} with {newest.agent_id}: {counted(len(runs), 'run')}, now {newest.n_passed:,} of "
    words += f"{newest.n_scored:,} trials passed"
    return Spark(evalset_id, name, newest.agent_id, path, places[-1][:2], share_words(newest.rate), words)
