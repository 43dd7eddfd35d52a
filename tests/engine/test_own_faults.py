"""A fault of our own code ends the trial or the run that meets it, and says so; nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from evaldesk.engine import GradeSpec, InlineExecutor, LocalExecutor, drive
from evaldesk.engine.driver.worker_process import WorkerProcess
from evaldesk.engine.frames import Ended, Grade, cancelled, frame_from_worker, grade_spec, play_frame
from evaldesk.engine.worker import jobs
from evaldesk.engine.worker.main import Worker
from evaldesk.errors import EvaldeskError
from evaldesk.model import AgentRef, TrialResult, TrialSpec
from evaldesk.wire import to_json

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play_ = Callable[..., Awaitable[dict[int, TrialResult]]]
ECHO = "def agent(message):\n    return message\n"


async def raises(*_: object, **__: object) -> TrialResult:
    raise TypeError("a fault of ours")


@pytest.fixture
def no_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "grade", raises)


async def test_a_grade_step_that_raises_is_an_errored_trial_of_the_inline_executor(
    no_grade: None, write_agent: Write, trial: Trial, play: Play_
) -> None:
    agent = write_agent(ECHO)

    results = await play(InlineExecutor(), [trial(agent, index) for index in range(9)])

    errors = [result.error for result in results.values() if result.error]
    assert [(error.kind, error.message) for error in errors] == [("engine", "TypeError: a fault of ours")] * 9
    assert {result.verdict for result in results.values()} == {"errored"}


async def test_grading_again_that_raises_is_an_errored_trial(
    write_agent: Write, trial: Trial, play: Play_, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = trial(write_agent(ECHO))
    played = (await play(InlineExecutor(), [spec]))[0]
    monkeypatch.setattr("evaldesk.engine.driver.inline.run_grader", raises)

    again = await play(InlineExecutor(), [GradeSpec(played, spec.case, spec.criteria, spec.limits)])

    assert again[0].error is not None
    assert again[0].error.message == "TypeError: a fault of ours"
    assert again[0].transcript == played.transcript


class Pipe:
    """The channel of a worker that keeps what is sent; refuses the first `n_refused`."""

    def __init__(self, n_refused: int = 0) -> None:
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        self.n_refused = n_refused

    def send(self, frame: Any) -> None:
        self.send_raw(to_json(frame))

    def send_raw(self, frame: bytes) -> None:
        if self.n_refused:
            self.n_refused -= 1
            raise RecursionError("secrets cannot be taken out")
        self.frames.put_nowait(frame_from_worker(frame))


async def test_a_grade_step_that_raises_in_a_worker_is_answered(
    no_grade: None, write_agent: Write, trial: Trial
) -> None:
    pipe = Pipe()
    worker = Worker(pipe)  # type: ignore[arg-type]

    spec = trial(write_agent(ECHO))
    worker.receive(to_json(Grade(7, grade_spec(spec, cancelled(spec)))))

    ended = await pipe.frames.get()
    assert isinstance(ended, Ended)
    assert (ended.key, ended.result.verdict) == (7, "errored")
    assert ended.result.error is not None
    assert ended.result.error.message == "TypeError: a fault of ours"


async def test_an_answer_that_cannot_be_sent_is_answered_with_why(write_agent: Write, trial: Trial) -> None:
    pipe = Pipe(n_refused=1)
    worker = Worker(pipe)  # type: ignore[arg-type]

    worker.receive(to_json(play_frame(7, trial(write_agent(ECHO)))))

    ended = await pipe.frames.get()
    assert ended.result.error is not None
    assert ended.result.error.message == "RecursionError: secrets cannot be taken out"


async def test_work_for_which_no_thread_can_be_started_is_answered(
    write_agent: Write, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Worker) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Worker, "_trial_thread", full)
    pipe = Pipe()

    Worker(pipe).receive(to_json(play_frame(7, trial(write_agent(ECHO)))))  # type: ignore[arg-type]

    ended = await pipe.frames.get()
    assert ended.result.error is not None
    assert ended.result.error.message == "RuntimeError: can't start new thread"


async def test_a_trial_that_no_frame_can_say_is_errored(
    write_agent: Write, trial: Trial, play: Play_, local: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: object) -> None:
        raise TypeError("no JSON says this")

    monkeypatch.setattr(WorkerProcess, "send", send)
    agent = write_agent(ECHO)

    results = await play(local, [trial(agent, index) for index in range(3)])

    assert {result.error.message for result in results.values() if result.error} == {"TypeError: no JSON says this"}
    assert len(results) == 3


async def test_a_worker_that_cannot_be_started_for_a_fault_of_ours_ends_the_trials(
    write_agent: Write, trial: Trial, play: Play_, local: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerProcess, "start", raises)

    results = await play(local, [trial(write_agent(ECHO))])

    assert results[0].error is not None
    assert (results[0].error.kind, results[0].error.message) == ("worker_start", "TypeError: a fault of ours")


class Ending(InlineExecutor):
    """An executor whose results end before the trials have."""

    async def results(self) -> AsyncIterator[TrialResult]:
        for _ in ():
            yield _


class Raising(InlineExecutor):
    """An executor whose results raise."""

    async def results(self) -> AsyncIterator[TrialResult]:
        yield await raises()


class Refusing(InlineExecutor):
    """An executor that takes nothing."""

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        raise TypeError("a fault of ours")


@pytest.mark.parametrize(
    ("executor", "error", "said"),
    [
        (Ending, EvaldeskError, "the executor ended while 3 trials had no result"),
        (Raising, TypeError, "a fault of ours"),
        (Refusing, TypeError, "a fault of ours"),
    ],
)
async def test_an_executor_that_breaks_ends_the_drive_with_the_reason(
    executor: type[InlineExecutor], error: type[Exception], said: str, write_agent: Write, trial: Trial
) -> None:
    agent = write_agent(ECHO)
    broken = executor()

    with pytest.raises(error) as raised:
        async for _ in drive([trial(agent, index) for index in range(3)], broken, 3):
            pass

    assert said in str(raised.value)
    await broken.close()
