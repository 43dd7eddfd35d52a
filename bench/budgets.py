"""The budgets of the product, in the order of its design, and the page that says how they stand.

Each names the rows that `make bench` makes for it. A row that was not made here, such as one for a program that is not
installed, says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import (
    measure_assets,
    measure_commands,
    measure_comparison,
    measure_live,
    measure_llm,
    measure_long,
    measure_metrics,
    measure_newcomer,
    measure_pages,
    measure_players,
    measure_scale,
    measure_secrets,
    measure_start,
    measure_table,
    measure_tools,
    measure_trend,
    measure_trials,
)
from bench.framework_agents import PACKAGES
from bench.row import Row


@dataclass(frozen=True)
class Budget:
    """A line of the table: the name of its row, and the figure of the best peer on the same machine."""

    row: str
    peer: str = ""


SCRIPTED = measure_trials.SCRIPTED_TRIALS
# The one table of budgets: decision 179.
BUDGETS = (
    Budget(measure_start.VERSION, "1.7 s"),
    Budget(measure_start.READY, "1.2 s"),
    Budget(measure_commands.ONE_TRIAL, "4.2 s"),
    Budget(f"{SCRIPTED}: trials", "39 /s"),
    Budget(f"{SCRIPTED}: processor", "18 ms/trial"),
    Budget(f"{SCRIPTED}: largest process", "171 MiB"),
    Budget(measure_llm.efficiency(measure_llm.SHORT, measure_llm.BUDGET_AT)),
    Budget(measure_commands.efficiency(measure_commands.AT_ONCE[0])),
    Budget(measure_metrics.matches(3), "7,200 /s"),
    Budget(measure_metrics.matches(20), "1,200 /s"),
    Budget(measure_pages.RUN_PAGE, "12.8 ms at 1,000 rows"),
    Budget(f"{measure_pages.RUN_PAGE}, size", "224 kB"),
    Budget(f"{measure_pages.RUN_PAGE}{measure_pages.SIZES[1][1]}"),
    Budget(measure_pages.RUNS_LIST, "428 ms"),
    Budget(f"{measure_pages.RUNS_LIST}, size", "752 kB"),
    Budget(f"{measure_pages.SEARCH}{measure_pages.SIZES[1][1]}"),
    Budget(measure_pages.LARGE_RUN),
    Budget(f"{measure_pages.RUN_FORM}, size"),
    Budget(f"{measure_long.TRIAL_PAGE}: processor"),
    Budget(f"{measure_long.TRIAL_PAGE}, size"),
    Budget(f"{measure_long.PIECE}: processor"),
    Budget(f"{measure_long.PIECE}, size"),
    Budget(f"{measure_long.CHAT}: processor"),
    Budget(f"{measure_long.CHAT}, size"),
    Budget(measure_assets.FIRST, "930 kB"),
    Budget(measure_comparison.COMPARISON),
    *(Budget(f"{measure_table.SMALL}, {what}: processor") for what, _ in measure_table.QUESTIONS),
    *(Budget(f"{measure_table.OF_LARGE}, {what}: processor") for what, _ in measure_table.QUESTIONS),
    Budget(measure_table.PAGE),
    Budget(f"{measure_table.TABLE}, size"),
    Budget(measure_trend.PAGE),
    Budget(f"{measure_trend.TREND}, size"),
    *(Budget(measure_tools.tool_row(name, measure_tools.SMALL)) for name in measure_tools.READ),
    Budget(measure_tools.FIRST_ANSWER),
    Budget(measure_live.TABS),
    Budget(measure_players.GATEWAY),
    Budget(measure_players.WARM_EVALUATOR, "0 s after the first import"),
    *(Budget(f"{name}, {measure_commands.OVER_IMPORT}") for name in PACKAGES),
    *(Budget(f"{name}, {measure_players.OVER_LOOP}") for name in PACKAGES),
    *(Budget(f"{name}, {measure_players.ADAPTER}") for name in PACKAGES),
    *(Budget(f"{measure_secrets.SHARE}, {what}") for what in measure_secrets.SIZES),
    Budget(f"{measure_scale.alone('PostgreSQL')}: processor"),
    Budget(f"{measure_scale.ON_HOSTS}: of the driver"),
    Budget(measure_newcomer.READY),
    Budget(measure_newcomer.TESTS),
)
HEAD = "| measure | budget | measured | processor | load | best peer |\n|---|---|---|---|---|---|\n"
NOT_MADE = "not measured here"


def page(machine: str, rows: Sequence[Row]) -> str:
    """`docs/performance.md`: the budgets with their figures, then all the others."""
    made = {row.what: row for row in rows}
    budgets = "".join(_line(each.row, made, each.peer) for each in BUDGETS)
    named = {each.row for each in BUDGETS}
    others = "".join(_line(row.what, made, "") for row in rows if row.what not in named)
    return f"""# Performance

`make bench` writes this page, and nothing asserts its figures: they are of one machine at one time.
"Processor" is the time spent to take a figure, over all processes of ours. "Load" is the number of processes that
wanted a processor meanwhile, those of the bench included: on a machine that others use, times on the clock are longer
than on a quiet one, and processor time is nearly the same. Figures of peers were measured on the same machine, at
another time.

Machine: {machine}.

## Budgets

{HEAD}{budgets}
## Other figures

{HEAD}{others}"""


def with_rows(text: str, rows: Sequence[Row]) -> str:
    """The page with the figures of these rows, and its other lines as they were."""
    made = {row.what: row for row in rows}
    peers = {each.row: each.peer for each in BUDGETS}
    lines = []
    for line in text.splitlines(keepends=True):
        what = line.removeprefix("| ").partition(" | ")[0]
        lines.append(_line(what, made, peers.get(what, "")) if what in made else line)
    return "".join(lines)


def _line(what: str, made: Mapping[str, Row], peer: str) -> str:
    row = made.get(what)
    if row is None:
        return f"| {what} | | {NOT_MADE} | | | {peer} |\n"
    budget = "" if row.budget is None else _figure(row.budget, row.unit)
    spent = "" if row.cpu_s is None else f"{row.cpu_s:g} s"
    load = "" if row.load is None else f"{row.load:.1f}"
    return f"| {what} | {budget} | {_figure(row.value, row.unit)} | {spent} | {load} | {peer} |\n"


def _figure(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
    return f"{number} {unit}".strip()
