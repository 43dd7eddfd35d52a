"""A store on a real SQLite file, a clock that is set by hand, and short ways to plan runs and end trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import signature
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from sqlalchemy import Row, Select
from tests.postgresql_server import ENGINES, empty_database

from evaldesk.model import AgentRef, Case, ErrorRecord, RunConfig, Score, TrialResult, Turn, Usage, Verdict
from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store
from evaldesk.store.evalsets.files import EvalSetFiles

Plan = Callable[..., int]
End = Callable[..., TrialResult]


class Clock:
    """Stands still until it is moved, or set to another time of day."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
        self._set_by = timedelta()

    def __call__(self) -> datetime:
        return self.now

    def move(self, **how_far: float) -> None:
        self.now += timedelta(**how_far)

    def set(self, **by: float) -> None:
        self.now += timedelta(**by)
        self._set_by += timedelta(**by)

    def seconds(self) -> float:
        return (self.now - self._set_by).timestamp()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / ".evaldesk" / "evaldesk.db"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "evaldesk.db"
    Store.open(path).close()
    return path


@pytest.fixture
def place(request: pytest.FixtureRequest, database: Path, migrated: Path) -> Path | DatabaseUrl:
    """An empty database with its tables: a file, or that of a server."""
    if getattr(request, "param", "sqlite") == "postgresql":
        return empty_database(request)
    database.parent.mkdir()
    copyfile(migrated, database)
    return database


@pytest.fixture
def store(place: Path | DatabaseUrl, clock: Clock) -> Iterator[Store]:
    with Store.open(place, clock=clock, seconds=clock.seconds) as opened:
        yield opened


@pytest.fixture
def plan(store: Store) -> Plan:
    """Plan a run of cases named c0, c1, ...; keywords go to its configuration."""
    return partial(plan_run, store)


def plan_run(
    store: Store, n_cases: int = 3, *, ids: list[str] | None = None, agent: str = "hello", **config: Any
) -> int:
    names = ids or [f"c{index}" for index in range(n_cases)]
    full: dict[str, Any] = {"agent": AgentRef(agent, "agent:root_agent"), "evalset_id": "calc", "n": 2} | config
    return store.runs.create(RunConfig(**full), [Case(id=name, turns=(Turn("Roll."),)) for name in names])


@pytest.fixture
def end() -> End:
    """The result of a trial; `values` are scores of two metrics, by default in line with the verdict."""
    return end_trial


def end_trial(
    run_id: int, case_index: int, trial_index: int, verdict: Verdict = "passed", **fields: Any
) -> TrialResult:
    values = fields.pop("values", {"tool_trajectory_avg_score": float(verdict == "passed")})
    scores = tuple(Score(name, value, threshold=0.5, passed=value >= 0.5) for name, value in values.items())
    error = ErrorRecord("crash", "the agent gave up") if verdict == "errored" else None
    usual: dict[str, Any] = {
        "status": "errored" if error else "finished",
        "scores": scores,
        "usages": (Usage("demo", tokens_in=10, tokens_out=2, cost=0.5),),
        "duration_ms": 100.0,
        "error": error,
    }
    return TrialResult(run_id, case_index, trial_index, verdict=verdict, **(usual | fields))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is searched for eval sets."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def files(root: Path) -> EvalSetFiles:
    """The eval sets under `root`."""
    return EvalSetFiles([root], root / "evalsets", root / ".evaldesk" / "trash", home=root)


OF_ONE_ENGINE = frozenset(
    {
        "test_damaged_database.py",
        "test_database_file.py",
        "test_migrations.py",
        "test_postgresql.py",
        "test_recovery.py",
        "test_space.py",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Play each test of a store on both engines, but for those of one of them and those that read the file."""
    own = signature(metafunc.function).parameters
    is_of_one = metafunc.definition.path.name in OF_ONE_ENGINE or "database" in own
    if "store" in metafunc.fixturenames and not is_of_one:
        metafunc.parametrize("place", ENGINES, indirect=True)


def select_rows(store: Store, statement: Select[Any]) -> list[Row[Any]]:
    """The rows that a question finds in the database of a store."""
    with store._database.reading() as connection:
        return list(connection.execute(statement))
