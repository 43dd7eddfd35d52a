"""Grading records by a rubric: every record as often as asked, and the numbers over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaldesk.desk.criteria.rubric_configs import RubricConfig
from evaldesk.desk.criteria.rubric_records import RubricRecord
from evaldesk.errors import ModelError, UsageError
from evaldesk.metrics.judges.panel import Panel, question
from evaldesk.metrics.judges.rubric_score import check_scale, points_task
from evaldesk.metrics.judges.voting import spread

Clock = Callable[[], datetime]
N_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One grade of one record; `score` is None where there is none, and `error` says why."""

    score: float | None
    explanation: str
    error: str
    raw: str
    started: datetime
    completed: datetime

    @property
    def duration_s(self) -> float:
        """Seconds the judge took, waits and further attempts included."""
        return round((self.completed - self.started).total_seconds(), 3)


@dataclass(frozen=True, slots=True)
class JudgedRecord:
    """A record with its grades, in the order they were asked for."""

    record: RubricRecord
    runs: tuple[JudgedRun, ...]

    @property
    def scores(self) -> list[float]:
        """The grades that there are."""
        return [run.score for run in self.runs if run.score is not None]

    @property
    def errors(self) -> list[str]:
        """Why the others are missing."""
        return [run.error for run in self.runs if run.error]


async def judge_records(
    records: Sequence[RubricRecord],
    config: RubricConfig,
    number: int,
    *,
    clock: Clock,
    on_done: Callable[[JudgedRecord], None] = lambda _: None,
) -> list[JudgedRecord]:
    """Grade each record `number` times by `config`; a failure is an error of that grade. Raises UsageError."""
    room = asyncio.Semaphore(N_AT_ONCE)
    for record in records:
        _scale(record, config)

    async def one(record: RubricRecord) -> JudgedRecord:
        runs = await asyncio.gather(*(_run(room, config, record, at, clock) for at in range(number)))
        judged = JudgedRecord(record, tuple(runs))
        on_done(judged)
        return judged

    return list(await asyncio.gather(*map(one, records)))


def statistics(scores: Sequence[float]) -> dict[str, Any]:
    """Mean, variance and deviation of the population, least and greatest; None for each without any score."""
    if not scores:
        return dict.fromkeys(("average", "variance", "stdev", "min", "max"))
    found = spread(scores)
    return {
        "average": found.mean,
        "variance": found.std**2,
        "stdev": found.std,
        "min": found.low,
        "max": found.high,
    }


async def _run(
    room: asyncio.Semaphore, config: RubricConfig, record: RubricRecord, number: int, clock: Clock
) -> JudgedRun:
    low, high = _scale(record, config)
    task = points_task(low, high, config.instructions)
    spare = {"QUESTION": config.question, "REFERENCE": config.reference}
    sections = {name: text for name, text in spare.items() if text} | dict(record.sections)
    messages = question(task, {**sections, "ANSWER": record.answer, "RUBRIC": config.text})
    async with room:
        started = clock()
        try:
            judge = config.options.models[0]
            sample = await Panel.of(config.options, 1).sample(task, messages, judge, number)
        except ModelError as error:
            return JudgedRun(None, "", str(error), "", started, clock())
    answer = sample.answer
    if answer is None:
        return JudgedRun(None, "", sample.problem, sample.text, started, clock())
    return JudgedRun(answer.score, answer.reasoning, "", sample.text, started, clock())


def _scale(record: RubricRecord, config: RubricConfig) -> tuple[float, float]:
    low = config.low if record.low is None else record.low
    high = config.high if record.high is None else record.high
    try:
        check_scale(low, high)
    except UsageError as error:
        raise UsageError(f"{record.label}: {error}") from error
    return low, high
