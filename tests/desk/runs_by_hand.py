"""Runs whose trials end when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import GradeSpec
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import AgentRef, Case, ErrorRecord, EvalSet, Score, TrialResult, TrialSpec, Turn, Verdict
from evaldesk.model.run import Place
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store
from evaldesk.store.runs.recounting import recount

OpenDesk = Callable[..., RunDesk]


class HandExecutor:
    """Holds every trial until the test ends it, or ends all at once with `verdicts` in turn."""

    def __init__(self, verdicts: Sequence[Verdict] = ()) -> None:
        self.is_cancelled = False
        self.specs: list[TrialSpec] = []
        self.held: list[TrialSpec] = []
        self.verdicts = verdicts
        self.end_reason = ""
        self.pauses: Sequence[Pause] = ()
        self.places: Sequence[Place] = ()
        self.grading_changes: Sequence[str] = ()
        self.arrived = asyncio.Condition()
        self._results: asyncio.Queue[TrialResult | None] = asyncio.Queue()

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, TrialSpec)
        self.specs.append(spec)
        if self.is_cancelled:
            self._results.put_nowait(ended(spec, "unscored", status="cancelled"))
        elif self.verdicts:
            self._results.put_nowait(ended(spec, self.verdicts[(len(self.specs) - 1) % len(self.verdicts)]))
        else:
            self.held.append(spec)
            async with self.arrived:
                self.arrived.notify_all()

    async def results(self) -> AsyncIterator[TrialResult]:
        while (result := await self._results.get()) is not None:
            yield result

    async def cancel(self) -> None:
        self.is_cancelled = True
        while self.held:
            self._results.put_nowait(ended(self.held.pop(), "unscored", status="cancelled"))

    async def close(self) -> None:
        await self.cancel()
        self._results.put_nowait(None)

    async def holds(self, n: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.held) >= n)

    def end(self, n: int = 1, verdict: Verdict = "passed", **values: Any) -> None:
        for _ in range(n):
            self._results.put_nowait(ended(self.held.pop(0), verdict, **values))


def ended(spec: TrialSpec, verdict: Verdict, **values: Any) -> TrialResult:
    error = ErrorRecord("agent_raised", "it broke", "Traceback") if verdict == "errored" else None
    score = Score("tool_trajectory_avg_score", 1.0 if verdict == "passed" else 0.0, None, 1.0, verdict == "passed")
    result = TrialResult(
        spec.run_id,
        spec.case_index,
        spec.trial_index,
        status="errored" if error else "finished",
        verdict=verdict,
        scores=(score,) if verdict in ("passed", "failed") else (),
        error=error,
        attempt=spec.attempt,
    )
    return replace(result, **values)


def subject(n_cases: int = 3, folder: str = "") -> RunSubject:
    cases = tuple(Case(f"c{index}", (Turn("hello"),)) for index in range(n_cases))
    return RunSubject(
        AgentRef("echo", "echo:agent", folder=folder), EvalSet("set", cases=cases), "set", "/sets/dice.evalset.json"
    )


def check_exact(store: Store, run_id: int) -> None:
    """A finished run has each of its trials once, and counting them again gives the same totals."""
    summary = store.runs.summary(run_id)
    keys = [(case, trial) for case in range(summary.n_cases) for trial in range(summary.config.n)]
    assert (summary.status, summary.n_todo, len(store.runs.trials(run_id, keys))) == ("finished", 0, summary.n_trials)
    assert summary.counts.done == summary.n_trials == len(keys)
    with store.runs._database.writing() as connection:
        recount(connection, run_id)
    again = store.runs.summary(run_id)
    assert again.duration_ms == pytest.approx(summary.duration_ms)
    assert replace(again, duration_ms=summary.duration_ms) == summary


async def started(desk: RunDesk, n_cases: int = 3, **options: Any) -> int:
    return await desk.start(desk.plan_for(subject(n_cases), RunOptions(**options)))


async def over(desk: RunDesk, run_id: int) -> RunSummary:
    async for _ in desk.watch(run_id):
        pass
    return await desk.summary(run_id)
