"""How long pages take and how large they are: the server alone, asked over one connection on loopback."""

from __future__ import annotations

import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench.processor import cpu_s_of
from bench.row import Row, rounded
from bench.seed import index_copies, read, seed
from evaldesk.desk.trust import Trust
from evaldesk.settings import Settings

TOKEN = "a-token-for-the-bench"
N_ASKED = 30
MOST_REST_S, AT_REST_S = 120, 0.1
LARGE, FORM_CASES = 200_000, 10_000
N_FINDINGS = 10_000
RUN_PAGE, RUNS_LIST = "run page, 1,000 x 5", "runs list"
SEARCH = "search of all texts"
LARGE_RUN = f"run page, {LARGE:,} cases"
RUN_FORM = f"run form of an eval set of {FORM_CASES:,} cases"
_Page: TypeAlias = tuple[str, str, float | None, float | None]
SIZES = ((0, ""), (1_000_000, " beside 1,000,000 trials"))


@dataclass(frozen=True)
class Seen:
    """Median milliseconds until the last byte, kB, and seconds of processor of the server for all askings."""

    ms: float
    kb: float
    cpu_s: float


def measure(folder: Path) -> Iterator[Row]:
    """The main pages, alone and beside a million trials; the page of a run and the form of a set that are large."""
    for n_others, words in SIZES:
        workspace = folder / f"beside-{n_others}"
        (workspace / ".evaldesk").mkdir(parents=True)
        run_id = seed(workspace / ".evaldesk" / "evaldesk.db", 1000, 5, n_others)
        if n_others:
            give_trust(workspace)
            index_copies(workspace, run_id)
        yield from _measure_at(workspace, words, _pages_of(run_id))
    workspace = folder / "large"
    (workspace / ".evaldesk").mkdir(parents=True)
    run_id = seed(workspace / ".evaldesk" / "evaldesk.db", LARGE, 1, 0)
    (workspace / "large.evalset.json").write_text(json.dumps(large_set(FORM_CASES)))
    yield from _measure_at(workspace, "", ((LARGE_RUN, f"/runs/{run_id}", 25, None),))
    yield from _measure_at(workspace, "", ((RUN_FORM, "/runs/new", None, 40),), ".")
    workspace = folder / "read"
    (workspace / ".evaldesk").mkdir(parents=True)
    run_id = seed(workspace / ".evaldesk" / "evaldesk.db", 1000, 25, 0)
    kind = read(workspace / ".evaldesk" / "evaldesk.db", run_id, N_FINDINGS)
    pages = (("failure room", f"/failures?run={run_id}", 25, None), ("kind of failure", f"/failures/{kind}", 25, None))
    yield from _measure_at(workspace, f", {N_FINDINGS:,} findings", pages)


def _pages_of(run_id: int) -> Sequence[_Page]:
    return (
        (RUN_PAGE, f"/runs/{run_id}", 25, 80),
        (RUNS_LIST, "/runs", 25, 60),
        ("trial page", f"/runs/{run_id}/cases/3/trials/2", None, None),
        ("labels", "/labels", None, None),
        ("home", "/", None, None),
        (SEARCH, "/search?q=roll+prime", 50, None),
    )


def large_set(n: int) -> object:
    """An eval set of so many cases in ADK's form."""
    said = ({"parts": [{"text": text}]} for text in ("Hello", "Hello, how can I help?"))
    turn = dict(zip(("user_content", "final_response"), said, strict=True))
    cases = [{"eval_id": f"case_{number}", "conversation": [turn]} for number in range(n)]
    return {"eval_set_id": "large", "name": "large", "eval_cases": cases}


def _measure_at(workspace: Path, words: str, pages: Sequence[_Page], *folders: str) -> Iterator[Row]:
    os.sync()  # what was just written is not what is measured
    with served(workspace, *folders) as connection:
        for what, path, budget_ms, budget_kb in pages:
            seen = ask(connection, path)
            yield Row(f"{what}{words}", rounded(seen.ms), "ms", budget_ms, rounded(seen.cpu_s))
            yield Row(f"{what}{words}, size", rounded(seen.kb), "kB", budget_kb, rounded(seen.cpu_s))


class Served(http.client.HTTPConnection):
    """A connection to a desk in the process `pid`."""

    def __init__(self, host: str, port: int, pid: int) -> None:
        super().__init__(host, port)
        self.pid = pid


def trust_of(workspace: Path) -> dict[str, str]:
    """The variable of the folder with the answers about trust, which are those of no person."""
    return {"XDG_STATE_HOME": str(workspace / ".trust")}


def give_trust(workspace: Path) -> None:
    """Trust a workspace before its index is made: one that was there before may be of others, and is removed."""
    Trust(Settings(workspace=workspace, roots=()), trust_of(workspace)).give()


@contextmanager
def served(workspace: Path, *folders: str) -> Iterator[Served]:
    """A desk at rest on the samples, or on these agents and eval sets of the workspace, which it trusts."""
    options = ("--no-open", "--trust", "--port", "0", "--token", TOKEN, "--workspace", str(workspace))
    command = [sys.executable, "-m", "evaldesk", "ui", *(folders or ["--demo"]), *options]
    environment = os.environ | trust_of(workspace)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=workspace, env=environment)
    assert process.stdout is not None
    port = re.search(r":(\d+)/", process.stdout.readline())
    assert port is not None
    connection = Served("127.0.0.1", int(port[1]), process.pid)
    try:
        _rest(process.pid)
        yield connection
    finally:
        connection.close()
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()
        process.stdout.close()


def _rest(pid: int) -> None:
    """Wait until the desk has described its agents and has what the search finds, at most MOST_REST_S."""
    until = time.monotonic() + MOST_REST_S
    spent_s, before_s = 1.0, 0.0
    while spent_s > AT_REST_S and time.monotonic() < until:
        time.sleep(3)
        now_s = cpu_s_of(pid)
        spent_s, before_s = now_s - before_s, now_s


def ask(connection: Served, path: str, headers: Mapping[str, str] | None = None) -> Seen:
    """The page as it is when it was asked for once."""
    took, size = [], 0
    _fetch(connection, path, headers)
    before = cpu_s_of(connection.pid)
    for _ in range(N_ASKED):
        started = time.perf_counter()
        size = _fetch(connection, path, headers)
        took.append(1000 * (time.perf_counter() - started))
    return Seen(statistics.median(took), size / 1000, cpu_s_of(connection.pid) - before)


def _fetch(connection: Served, path: str, headers: Mapping[str, str] | None) -> int:
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", **(headers or {})})
    answer = connection.getresponse()
    size = len(answer.read())
    assert answer.status == 200, f"{path}: {answer.status}"
    return size
