"""Pages of a trial, a report and a chat of 10,000 turns: processor of the desk, and size."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.measure_pages import N_ASKED, TOKEN, Seen, Served, ask, served
from bench.row import Row, rounded
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.durable_files import create_file
from evaldesk.formats import write_evalset
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    EvalSet,
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
)
from evaldesk.model.evalset import case_key
from evaldesk.store import Store
from evaldesk.web.report import run_report

N, BROKEN = 10_000, 4_321
TRIAL_PAGE, PIECE, CHAT = f"trial page of {N:,} turns", f"piece of a trial of {N:,} turns", f"chat of {N:,} turns"
BUDGET_MS, BUDGET_KB = 100, 400
HTMX = {"HX-Request": "true"}
CRITERIA = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_match_score", 0.5))


def measure(folder: Path) -> Iterator[Row]:
    """What each takes; the trial is recorded in a process of its own before, and that is counted, too."""
    (folder / ".evaldesk").mkdir()
    (folder / "evalsets").mkdir()
    create_file(folder / "evalsets" / "trips.evalset.json", write_evalset(EvalSet("trips", cases=(_case(_records()),))))
    with Store.open(folder / ".evaldesk" / "evaldesk.db") as store:
        run_id, recorded_s = _record(store)
        of_pair, _ = _record(store, 2)
        of_one_turn = _record_one_turn(store)
        session = store.sessions.create("hello_world", "long", {})
        for record in _records():
            store.sessions.append_turn(session.id, record)
        began = time.process_time()
        report = run_report(StoredRuns(store.runs), run_id)
        report_ms = 1000 * (time.process_time() - began)
    yield Row(f"trial of {N:,} turns, recorded: processor", rounded(1000 * recorded_s), "ms")
    trial, chat = f"/runs/{run_id}/cases/0/trials/0", f"/sessions/{session.id}"
    one = f"/runs/{of_one_turn}/cases/0/trials/0"
    pages: tuple[tuple[str, str, dict[str, str]], ...] = (
        (TRIAL_PAGE, trial, {}),
        (f"{TRIAL_PAGE}, a turn of the address", f"{trial}?turn={N - 20}", {}),
        (PIECE, f"{trial}/turns?from={N - 60}&to={N}", HTMX),
        (CHAT, chat, {}),
        (f"piece of a {CHAT}", f"{chat}/pieces?from=1&to={N - 50}", HTMX),
        (f"time line of a trial of {N:,} turns", f"{trial}/timeline", {}),
        (f"pair of trials of {N:,} turns", f"/runs/{of_pair}/cases/0/trials/0/pair", {}),
        (f"trial page of one turn of {N:,} calls", one, {}),
        (f"time line of one turn of {N:,} calls", f"{one}/timeline", {}),
        (f"time line of a {CHAT}", f"{chat}/timeline", {}),
    )
    with served(folder) as connection:
        for what, path, headers in pages:
            yield from _rows(what, ask(connection, path, headers))
    with served(folder, ".") as connection:
        yield from _rows(f"case of {N:,} turns", ask(connection, _case_address(connection)))
    yield Row(f"report of a trial of {N:,} turns: processor", rounded(report_ms), "ms")
    yield Row(f"report of a trial of {N:,} turns, size", rounded(len(report.data) / 1000), "kB")


def _rows(what: str, seen: Seen) -> Iterator[Row]:
    yield Row(f"{what}: processor", rounded(1000 * seen.cpu_s / N_ASKED), "ms", BUDGET_MS, rounded(seen.cpu_s))
    yield Row(f"{what}, size", rounded(seen.kb), "kB", BUDGET_KB, rounded(seen.cpu_s))


def _case_address(connection: Served) -> str:
    """The page of the case in the eval set, once the desk has read that."""
    found = None
    while found is None:
        time.sleep(0.2)
        connection.request("GET", "/evalsets", headers={"Authorization": f"Bearer {TOKEN}"})
        found = re.search(r'href="(/evalsets/[\w-]*trips[\w-]*)"', connection.getresponse().read().decode())
    return f"{found[1]}/cases/{case_key('long')}/json"


def _case(records: Sequence[TurnRecord]) -> Case:
    """The case whose trial these are, but for one turn."""
    return Case("long", tuple(Turn(each.query, Expected(each.tool_calls, reference=each.answer)) for each in records))


def _record(store: Store, n: int = 1) -> tuple[int, float]:
    """The run of one long trial or of two that differ, and the seconds that the recording of one took."""
    records = _records()
    case = _case(records)
    records[BROKEN] = TurnRecord(case.turns[BROKEN].query, (Event("agent_message", text="Which flight?"),))
    scores = tuple(
        score
        for at in range(N)
        for score in (
            Score(CRITERIA[0].metric, float(at != BROKEN), at, 1.0, at != BROKEN, details={"n_expected": 1}),
            Score(CRITERIA[1].metric, 0.9, at, 0.5, True),
        )
    )
    usages = tuple(usage for record in records for usage in record.usages)
    config = RunConfig(AgentRef("hello_world", "agent"), "trips", n=n, criteria=CRITERIA)
    run_id = store.runs.create(config, [case])
    result = TrialResult(
        run_id, 0, 0, "finished", "failed", "answered", Transcript(tuple(records)), scores, usages, 20.0 * N
    )
    began = time.process_time()
    store.runs.record([result])
    took = time.process_time() - began
    if n == 1:
        store.runs.set_status(run_id, "finished")
        return run_id, took
    others = (*records[:BROKEN], *(replace(each, events=each.events[:2]) for each in records[BROKEN:]))
    store.runs.record([replace(result, trial_index=1, transcript=Transcript(others))])
    store.runs.set_status(run_id, "finished")
    return run_id, took


def _record_one_turn(store: Store) -> int:
    """The run of a trial whose one turn has all the calls."""
    events = tuple(event for record in _records() for event in record.events)
    run_id = store.runs.create(
        RunConfig(AgentRef("hello_world", "agent"), "trips"), [Case("one", (Turn("Find all."),))]
    )
    transcript = Transcript((TurnRecord("Find all.", events),))
    store.runs.record([TrialResult(run_id, 0, 0, "finished", "failed", "answered", transcript)])
    store.runs.set_status(run_id, "finished")
    return run_id


def _records() -> list[TurnRecord]:
    calls = (ToolCall("search", {"flight": at, "from": "JFK", "to": "SEA"}, str(at)) for at in range(N))
    return [
        TurnRecord(
            f"Find flight {at} please, and say when it leaves.",
            (
                Event("usage", 1, usage=Usage("demo/trips", tokens_in=900, tokens_out=20, cost=0.001, duration_ms=3)),
                Event("tool_call", 4, call=call),
                Event("tool_result", 9, call=call, result={"flights": [{"id": f"HAT{at}", "fare": 120.5 + at}]}),
                Event(
                    "agent_message", 12, text=f"Flight {at} leaves at {at % 24:02}:{at % 60:02} from gate {at % 97}."
                ),
            ),
            {"n": at},
            {"n": at + 1},
            20.0,
            captures=("adapter",),
        )
        for at, call in enumerate(calls)
    ]
