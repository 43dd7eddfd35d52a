"""What a page asks the database: however many trials are stored, no page reads all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.runs.stored_runs import RECENT_RUNS
from evaldesk.formats import case_to_json
from evaldesk.pages.door.tools import TOOLS, call

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

LARGE = ("trial", "trial_agent", "transcript", "score", "run_case", "case_snapshot")
"""The tables that grow with the trials and cases of all runs."""


@pytest.fixture
def rare_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The desk reads nothing by itself while statements are counted; it starts after this."""
    for name in ("runs.runs.POLL_S", "blame.blaming.POLL_S", "search.LOOK_EVERY_S"):
        monkeypatch.setattr(f"evaldesk.desk.{name}", 3600.0)


@pytest.fixture
def asked(pages: RunPages) -> Iterator[list[tuple[str, Any]]]:
    """The statements of pages with their values."""
    found: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        found.append((statement, values))

    engine = pages.desk.store._database._reader
    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)


def test_no_page_reads_a_whole_table_of_trials(pages: RunPages, asked: list[tuple[str, Any]]) -> None:
    first, second = pages.finish(), pages.finish()
    pages.desk.store.labels.put(1, (0, 0), None, "me", "passed", "")
    asked.clear()
    addresses = (
        *(
            "/",
            "/runs",
            "/runs?q=dice",
            first,
            f"{first}?sort=worst",
            f"{first}/spread",
            f"{first}/agents",
            f"{first}/cases/0/trials/0",
        ),
        *("/evalsets", f"/evalsets/{pages.evalset}", "/labels", "/gates", "/trash", "/imports", "/runs/new"),
        pages.get(f"/compare?run={first.rpartition('/')[2]}&run={second.rpartition('/')[2]}").headers["location"],
    )

    statuses = [pages.get(address).status_code for address in addresses]

    assert statuses == [200] * len(addresses)
    assert len(asked) > len(addresses)
    assert scans(pages, asked) == []


@pytest.mark.usefixtures("rare_polls")
def test_no_reading_tool_reads_a_whole_table_of_trials_nor_asks_more_beside_other_runs(
    pages: RunPages, asked: list[tuple[str, Any]]
) -> None:
    first, second, *_ = (int(pages.finish(n="1").rpartition("/")[2]) for _ in range(RECENT_RUNS + 1))
    case = pages.desk.evalsets.evalset(pages.evalset).cases[0]
    turn = case_to_json(case)["conversation"][0] | {"final_response": {"parts": [{"text": "seven"}]}}
    made = ClientProposalDesk(pages.desk).propose_edit(
        "Claude Code", pages.evalset, case.id, {"conversation": [turn]}, "as it says"
    )
    inputs: dict[str, dict[str, Any]] = {
        "status": {},
        "list_agents": {},
        "list_evalsets": {},
        "list_cases": {"set": "dice_set"},
        "get_case": {"set": "dice_set", "case": "misses"},
        "list_runs": {"limit": 2},
        "get_run": {"run": str(first)},
        "compare": {"runs": [str(first), str(second)]},
        "list_trials": {"run": str(first), "filter": "verdict:failed"},
        "get_trial": {"run": str(first), "case": "misses", "trial": 1},
        "get_failures": {"set": "dice_set"},
        "explain_gate": {"run": str(first)},
        "health": {"set": "dice_set"},
        "list_proposals": {},
        "get_proposal": {"proposal": made.id},
    }
    of_index = {
        "search",
        "get_docs",
    }  # words are looked up in an index of their own, and pages of documentation in files
    assert inputs.keys() | of_index == {name for name, tool in TOOLS.items() if tool.group == "read"}

    def n_statements(name: str) -> int:
        asked.clear()
        pages.client.within(call, TOOLS[name], pages.desk, inputs[name])
        assert scans(pages, asked[:]) == [], name
        return len(asked)

    def least_statements() -> dict[str, int]:
        """Of each tool the fewest of some calls: the desk itself asks now and then, and the first call fills caches."""
        return {name: min(n_statements(name) for _ in range(4)) for name in inputs}

    before = least_statements()
    for n in ("1", "5", "1"):
        pages.finish(n=n)

    after = least_statements()
    # The errors of an agent are counted over its newest runs, of which one that failed asks for its divergences, too.
    few = {"list_agents": 2 + RECENT_RUNS}
    assert {name: (before[name], n) for name, n in after.items() if n > few.get(name, before[name])} == {}


def test_the_status_asks_neither_for_trends_nor_for_the_errors_of_agents(
    pages: RunPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaldesk status` tells the steps of the home page without its other parts."""
    pages.finish(n="1")
    status = pages.client.within(call, TOOLS["status"], pages.desk, {})
    names = ("trend_sparks.set_sparks", "set_trend.trend_page", "home_news.read_news", "agents.errored_words")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the status builds the home page")

    for name in (*names, "home.set_sparks", "home.read_news", "home.errored_words", "home.live_runs"):
        monkeypatch.setattr(f"evaldesk.pages.{name}", refuse)

    again = pages.client.within(call, TOOLS["status"], pages.desk, {})

    assert again == status
    with pytest.raises(AssertionError, match="the status builds"):
        pages.get("/")


def scans(pages: RunPages, asked: list[tuple[str, Any]]) -> list[str]:
    """The statements that read a large table from its beginning to its end."""
    found = []
    with pages.desk.store._database.reading() as connection:
        for statement, values in asked:
            if not statement.lstrip().upper().startswith(("SELECT", "WITH")):
                continue
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            plan = [str(row[-1]) for row in rows]
            if any(re.match(rf"SCAN ({'|'.join(LARGE)})\b", line) for line in plan):
                found.append(f"{statement}\n{plan}")
    return found
