"""`docs/performance.md` has each budget of the bench, and only rows that `make bench` makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"


@dataclass(frozen=True)
class Bench:
    """The modules of the bench, which is no part of the package."""

    budgets: Any
    row: Any
    run: Any

    @property
    def names(self) -> list[str]:
        return [each.row for each in self.budgets.BUDGETS]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from bench import budgets, row, run

        yield Bench(budgets, row, run)


def rows_of(text: str) -> dict[str, list[list[str]]]:
    """The cells of each table, by its title."""
    parts = text.split("\n## ")[1:]
    lines = {part.partition("\n")[0]: re.findall(r"^\| (.*) \|$", part, re.MULTILINE)[1:] for part in parts}
    return {title: [[cell.strip() for cell in line.split("|")] for line in found] for title, found in lines.items()}


def test_the_page_has_each_budget_once_and_in_their_order(bench: Bench) -> None:
    found = rows_of(PAGE.read_text("utf-8"))

    assert [cells[0] for cells in found["Budgets"]] == bench.names
    assert len(set(bench.names)) == len(bench.names) > 25
    assert not {cells[0] for cells in found["Other figures"]} & set(bench.names)


def test_each_figure_has_its_load_and_processor_time_or_says_that_it_is_missing(bench: Bench) -> None:
    for table in rows_of(PAGE.read_text("utf-8")).values():
        for what, _budget, measured, processor, load, _peer in table:
            if measured != bench.budgets.NOT_MADE:
                assert re.match(r"-?[\d.,]+(e-?\d+)?( \S+)?$", measured), what
                assert re.match(r"[\d.e-]+ s$", processor), what
                assert re.match(r"[\d.]+$", load), what


def test_the_page_is_what_the_bench_writes(bench: Bench) -> None:
    first, second, *others = bench.budgets.BUDGETS
    row = bench.row.Row
    rows = [row(each.row, 1234.5, "ms", 25, 0.5, 1.25) for each in (second, *others)]

    written = bench.budgets.page("2 cores", [*rows, row("another", 0.5, "", None, 2.0, 3.0)])

    assert written.partition("\nMachine")[0] == PAGE.read_text("utf-8").partition("\nMachine")[0]
    budgets, figures = rows_of(written).values()
    assert budgets[0] == [first.row, "", bench.budgets.NOT_MADE, "", "", first.peer]
    assert budgets[1] == [second.row, "25 ms", "1,234 ms", "0.5 s", "1.2", second.peer]
    assert figures == [["another", "", "0.5", "2 s", "3.0", ""]]


def test_rows_that_were_measured_alone_take_their_lines_in_the_page(bench: Bench) -> None:
    last = bench.budgets.BUDGETS[-1].row
    rows = [bench.row.Row(last, 4.5, "min", 5, 300.0, 2.0), bench.row.Row("of no line", 1.0, "s")]

    before, after = PAGE.read_text("utf-8"), bench.budgets.with_rows(PAGE.read_text("utf-8"), rows)

    assert f"| {last} | 5 min | 4.5 min | 300 s | 2.0 |  |\n" in after
    assert [line for line in after.splitlines() if last not in line] == [
        line for line in before.splitlines() if last not in line
    ]


def test_no_row_has_a_name_that_breaks_its_table(bench: Bench) -> None:
    assert not [each for each in bench.budgets.BUDGETS if re.search(r"[|\n]", each.row + each.peer)]


def test_a_measure_makes_the_rows_of_its_budgets(bench: Bench, tmp_path: Path) -> None:
    made = {row.what: row for row in bench.run.MEASURES["assets"](tmp_path)}

    mine = [name for name in bench.names if name in made]
    assert mine
    assert all(made[name].budget for name in mine)


def test_every_measure_is_run() -> None:
    files = {path.stem.removeprefix("measure_") for path in (ROOT / "bench").glob("measure_*.py")}

    assert files == set(re.findall(r'"(\w+)": measure_\1\.measure', (ROOT / "bench" / "run.py").read_text("utf-8")))
