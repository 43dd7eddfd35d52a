"""Agents written to disk for a test, trials of them, and the workers that play them."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from tests.ray_cluster import LocalCluster, local_cluster

from evaldesk.engine import ChatPlayers, Executor, LocalExecutor, drive
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Expected,
    JsonValue,
    Limits,
    SessionInit,
    TrialResult,
    TrialSpec,
    Turn,
)

Results: TypeAlias = dict[int, TrialResult]

# ROUGE takes seconds to import, in every worker.
CRITERIA = (Criterion("tool_trajectory_avg_score", 1.0),)


@pytest.fixture(autouse=True)
def own_modules(own_imports: None) -> None:
    """The agents and functions that a test plays in this process are forgotten after it."""


@pytest.fixture
def write_agent(tmp_path: Path) -> Callable[..., AgentRef]:
    """Writes the source of an agent, something called `agent`, to a module of its own."""

    def write(source: str, name: str = "scripted") -> AgentRef:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / f"{name}_agent.py").write_text(textwrap.dedent(source))
        return AgentRef(name, f"{name}_agent:agent", root=str(folder), folder=str(folder))

    return write


@pytest.fixture
def trial() -> Callable[..., TrialSpec]:
    """Makes one trial whose case asks `queries`, expects no tool call, and each query as its answer."""

    def make(
        agent: AgentRef,
        index: int = 0,
        queries: Sequence[str] = ("hello",),
        *,
        timeout_s: float = 30.0,
        state: Mapping[str, JsonValue] | None = None,
    ) -> TrialSpec:
        turns = tuple(Turn(query, Expected((), (), query)) for query in queries)
        case = Case(f"case_{index}", turns, initial_session=SessionInit(state=state or {}))
        return TrialSpec(1, index, 0, case, agent, criteria=CRITERIA, limits=Limits(timeout_s))

    return make


@pytest.fixture
def play() -> Callable[..., Awaitable[Results]]:
    """Plays trials and gives their results by case index; fails where a trial has two."""

    async def results_of(
        executor: Executor, specs: Sequence[TrialSpec], concurrency: int = 8
    ) -> dict[int, TrialResult]:
        results: Results = {}
        async for result in drive(specs, executor, concurrency):
            assert result.case_index not in results
            results[result.case_index] = result
        return results

    return results_of


@pytest.fixture
async def local() -> AsyncIterator[LocalExecutor]:
    """Two workers, eight trials at once."""
    executor = LocalExecutor(n_workers=2, concurrency=8)
    yield executor
    await executor.close()


@pytest.fixture
async def host() -> AsyncIterator[ChatPlayers]:
    """A host without workers yet."""
    host = ChatPlayers()
    yield host
    await host.close()


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of Ray with two nodes, for all tests on Ray."""
    with local_cluster() as found:
        yield found
