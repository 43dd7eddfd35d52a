"""Fill a database quickly: one run to look at, and as many trials of other runs beside it as are asked for."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text, update

from evaldesk.desk.search import SearchDesk
from evaldesk.model import (
    AgentRef,
    Case,
    ErrorRecord,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
)
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs.recounting import add_totals, recount
from evaldesk.store.search import numbers_of
from evaldesk.store.tables import METADATA
from evaldesk.store.tables.failures import FINDING, READING
from evaldesk.store.tables.runs import RUN, RUN_CASE, TO_DO

COPIED_AT_ONCE = 100
OTHER_CASES = 1000
OTHER_N = 10
COPIED = (
    "run_metric",
    "run_outcome",
    "run_case",
    "case_snapshot",
    "error_group",
    "case_metric",
    "case_facet",
    "trial",
    "score",
    "transcript",
)
WORDS = ("the", "die", "shows", "six", "which", "is", "not", "prime", "so", "roll", "again", "and", "check", "it")


def seed(database: Path, n_cases: int, n: int, n_other_trials: int, *, luck: int = 1) -> int:
    """Return the id of a finished run of `n_cases` x `n`, recorded as the product does it.

    Runs with another `luck` are of the same cases and have other results. At least `n_other_trials` trials of other
    finished runs (1,000 cases x 10) are copied in beneath it by SQL.
    """
    chance = random.Random(luck)
    with Store.open(database) as store:
        n_runs = -(-n_other_trials // (OTHER_CASES * OTHER_N))
        pattern = play(store, chance, OTHER_CASES, OTHER_N) if n_runs else None
        if pattern is not None:
            copy_run(store, pattern, n_runs - 1)
    with Store.open(database) as store:
        return play(store, chance, n_cases, n)


def play(
    store: Store, chance: random.Random, n_cases: int, n: int, *, has_words: bool = True, evalset_id: str = "calc"
) -> int:
    """A finished run, recorded as the product does it; its transcripts are empty without words."""
    config = RunConfig(agent=AgentRef("hello_world", "agent:root_agent"), evalset_id=evalset_id, n=n, note="seeded")
    fixed = random.Random(1)
    run_id = store.runs.create(config, [_case(fixed, index) for index in range(n_cases)])
    store.runs.set_status(run_id, "running", driver="bench")
    results = _results(chance, run_id, n_cases, n, 50 if has_words else 0)
    while batch := list(islice(results, 500)):
        store.runs.record(batch)
    store.runs.set_status(run_id, "finished")
    return run_id


def copy_run(store: Store, run_id: int, n: int) -> None:
    """Copy a run with all its rows under the next ids, on either engine; nobody else may make runs meanwhile."""
    for first in range(0, n, COPIED_AT_ONCE):
        with store._database.writing() as connection:
            columns = _columns("run", but="id")
            made = f"INSERT INTO run ({columns}) SELECT {columns} FROM run WHERE id = :run RETURNING id"  # noqa: S608
            n_now = min(COPIED_AT_ONCE, n - first)
            ids = [connection.execute(text(made), {"run": run_id}).scalar_one() for _ in range(n_now)]
            assert ids == list(range(ids[0], ids[0] + n_now))
            for table in COPIED:
                columns = _columns(table, but="run_id")
                rows = f"SELECT copy.id, {_columns(table, but='run_id', of='held')} FROM {table} AS held"  # noqa: S608
                rows += " CROSS JOIN run AS copy WHERE held.run_id = :run AND copy.id BETWEEN :first AND :last"
                span = {"run": run_id, "first": ids[0], "last": ids[-1]}
                connection.execute(text(f"INSERT INTO {table} (run_id, {columns}) {rows} ORDER BY copy.id"), span)


def index_copies(workspace: Path, last: int) -> None:
    """Let the search know the run `last`, and all runs before it, which are copies of one another."""
    database, source = workspace / ".evaldesk" / "evaldesk.db", last - 1
    with Store.open(database) as store:
        desk = SearchDesk(Settings(workspace, (workspace,)), store)
        for _ in store.search.catch_up(desk.case_text, desk.trial_text):
            if source - 1 in store.search._index.indexed_runs():  # newer runs come first
                break
    first, end = numbers_of(source)
    with closing(sqlite3.connect(database.with_name("search.db"))) as index:
        index.execute(
            "CREATE TEMP TABLE copied AS SELECT rowid AS at, words FROM place WHERE at >= ? AND at < ?", (first, end)
        )
        for run_id in range(1, source):
            less, after = numbers_of(run_id)
            index.execute("DELETE FROM place WHERE rowid >= ? AND rowid < ?", (less, after))
            index.execute("INSERT INTO place(rowid, words) SELECT at - ?, words FROM copied", (first - less,))
            index.execute("REPLACE INTO seen SELECT ?, mark, up_to FROM seen WHERE run_id = ?", (run_id, source))
            index.commit()


def read(database: Path, run_id: int, n: int) -> int:
    """Give so many failed trials of a run a finding each, of two readers and twelve kinds; returns the first kind."""
    chance, now = random.Random(1), datetime.now(UTC)
    with Store.open(database) as store:
        kinds = [store.failures.create_mode("Ann", name=f"kind of failure {number}") for number in range(12)]
        failed = (
            (case, at) for case, (_, strip) in enumerate(store.failures.verdicts(run_id)) for at in _failed(strip)
        )
        places = [{"run_id": run_id, "case_index": case, "trial_index": at} for case, at in islice(failed, n)]
        readers = [chance.choice(("Ann", "Bob")) for _ in places]
        of_person = {"note": _text(chance, 8), "source": "person", "status": "counted", "created_at": now}
        findings = [
            place | of_person | {"author": reader, "mode_id": kinds[min(int(chance.expovariate(0.5)), 11)]}
            for place, reader in zip(places, readers, strict=True)
        ]
        readings = [
            place | {"reader": reader, "is_clear": False, "read_at": now}
            for place, reader in zip(places, readers, strict=True)
        ]
        with store._database.writing() as connection:
            connection.execute(insert(FINDING), findings)
            connection.execute(insert(READING), readings)
    return kinds[0]


def _failed(strip: str) -> Iterator[int]:
    return (at for at, letter in enumerate(strip) if letter == "f")


def multiply(store: Store, run_id: int, times: int) -> None:
    """Give each case of a finished run so many times the trials it has: copies of these."""
    n = store.runs.summary(run_id).n_most
    numbers = "WITH RECURSIVE copy (nth) AS (SELECT 1 UNION ALL SELECT nth + 1 FROM copy WHERE nth < :times - 1)"
    with store._database.writing() as connection:
        for table in ("trial", "score", "transcript"):
            columns = _columns(table, but="trial_index")
            rows = f"SELECT trial_index + :n * nth, {columns} FROM {table} CROSS JOIN copy"  # noqa: S608
            rows += " WHERE run_id = :run AND nth < :times ORDER BY case_index, nth"
            made = f"{numbers} INSERT INTO {table} (trial_index, {columns}) {rows}"
            connection.execute(text(made), {"run": run_id, "times": times, "n": n})
        more = {"n": n * times, "n_least": n * times, "n_trials": RUN.c.n_trials * times}
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(more))
        planned = {"strip": TO_DO * n * times}
        connection.execute(update(RUN_CASE).where(RUN_CASE.c.run_id == run_id).values(planned))
        recount(connection, run_id)
        while add_totals(connection, run_id):
            pass


def _columns(table: str, *, but: str, of: str = "") -> str:
    start = f"{of}." if of else ""
    return ", ".join(f'{start}"{column.name}"' for column in METADATA.tables[table].columns if column.name != but)


def _results(chance: random.Random, run_id: int, n_cases: int, n: int, n_texts: int) -> Iterator[TrialResult]:
    transcripts = [_transcript(chance) for _ in range(n_texts)] or [Transcript()]
    ease = [chance.choice((0.0, 0.3, 0.6, 0.9, 1.0)) for _ in range(n_cases)]
    for trial_index in range(n):
        for case_index in range(n_cases):
            yield _result(chance, (run_id, case_index, trial_index), ease[case_index], chance.choice(transcripts))


def _result(chance: random.Random, key: tuple[int, int, int], ease: float, transcript: Transcript) -> TrialResult:
    error = ErrorRecord("rate_limit", f"429 after {chance.randint(1, 99)} s") if chance.random() < 0.02 else None
    is_passed = chance.random() < ease
    match = chance.uniform(0.8, 1.0) if is_passed else chance.uniform(0.0, 1.0)
    verdict: Verdict = "errored" if error else "passed" if is_passed else "failed"
    run_id, case_index, trial_index = key
    return TrialResult(
        run_id,
        case_index,
        trial_index,
        status="errored" if error else "finished",
        verdict=verdict,
        stop_reason="error" if error else "answered",
        transcript=transcript,
        scores=(
            Score("tool_trajectory_avg_score", float(is_passed), threshold=1.0, passed=is_passed),
            Score("response_match_score", match, threshold=0.8, passed=match >= 0.8),
        ),
        usages=(Usage("demo/rules", tokens_in=400, tokens_out=80, cost=0.004, duration_ms=900.0),),
        duration_ms=chance.uniform(500, 5000),
        error=error,
    )


def _case(chance: random.Random, index: int) -> Case:
    expected = Expected(tool_calls=(ToolCall("roll_die", {"sides": 6}),), reference=_text(chance, 20))
    return Case(id=f"case_{index:04}", turns=tuple(Turn(_text(chance, 12), expected) for _ in range(2)))


def _transcript(chance: random.Random) -> Transcript:
    return Transcript(tuple(_turn(chance, index) for index in range(4)))


def _turn(chance: random.Random, index: int) -> TurnRecord:
    query = _text(chance, 15)
    call = ToolCall("roll_die", {"sides": chance.randint(4, 20), "why": _text(chance, 6)}, id=f"call_{index}")
    result: dict[str, Any] = {"value": chance.randint(1, 20), "remark": _text(chance, 20)}
    events = (
        Event("user_message", 0.0, "user", query),
        Event("tool_call", 1.0, "hello_world", call=call),
        Event("tool_result", 2.5, "hello_world", call=call, result=result, duration_ms=1.5),
        Event("usage", 2.5, usage=Usage("demo/rules", tokens_in=100, tokens_out=20, cost=0.001)),
        Event("agent_message", 3.0, "hello_world", _text(chance, 40)),
    )
    return TurnRecord(query, events, {"rolls": []}, {"rolls": [index]}, duration_ms=12.5)


def _text(chance: random.Random, n_words: int) -> str:
    return " ".join(chance.choice(WORDS) + str(chance.randint(0, 999)) for _ in range(n_words))
