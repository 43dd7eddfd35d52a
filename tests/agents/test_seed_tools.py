"""`make newest` reads the names of the seed tools from their sources, and each has a row in docs/coming-from.md."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evaldesk.metrics.metric import METRICS

ROOT = Path(__file__).resolve().parents[2]
METRICS_OF_TOOL = '''
class Names(Enum):
    """Prebuilt."""
    ONE = "one_score"
    TWO = "two_score"

class Case(BaseModel):
    model_config: ClassVar[dict] = {}
    query: str
    _hidden: int = 0

def load[T: Case](path: str) -> T:
    local: int = 0
'''
COMMANDS = """
@main.command("run")
@click.option("--rows/--no-rows", help="--quoted words are no option")
def run(name: str = typer.Option(None, "--name", "-n")): ...
"""


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return import_module("bench.newest.seed_tools")


@pytest.fixture
def tool(seeds: Any, tmp_path: Path) -> Any:
    """A tool with a metric of each name, a field and two options."""
    (tmp_path / "names.py").write_text(METRICS_OF_TOOL)
    (tmp_path / "commands.py").write_text(COMMANDS)
    sources = (
        seeds.NameSource("metric", "names.py", ("Names",)),
        seeds.NameSource("field", "names.py", ("Case",)),
        seeds.NameSource("option", "commands.py"),
    )
    return seeds.SeedTool("Tool", "tool", sources)


def page_of(*rows: str) -> str:
    return "\n".join(["| Tool: kind | names | here |", "|---|---|---|", *rows, "", "more"])


def test_names_are_read_from_the_sources_of_any_python(seeds: Any, tool: Any, tmp_path: Path) -> None:
    assert seeds.names_of(tool, tmp_path) == {
        "metric": {"one_score", "two_score"},
        "field": {"query"},
        "option": {"--rows", "--name"},
    }


def test_a_name_without_a_row_and_a_row_without_a_name_are_problems(seeds: Any, tool: Any, tmp_path: Path) -> None:
    page = page_of(
        "| metric | `one_score` | the same |",
        "| field | `query`, `old` | the same |",
        "| option | `--rows`, `--name` | |",
    )

    assert list(seeds.problems_of(page, tool, tmp_path)) == [
        "Tool: tool has no field old",
        "Tool: no row for the metric two_score",
        "Tool: no row for the option --name, --rows",  # their row says nothing
    ]


def test_a_source_that_moved_is_a_problem(seeds: Any, tool: Any, tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text("")
    [empty] = seeds.problems_of(page_of(), tool, tmp_path)
    (tmp_path / "names.py").unlink()
    [gone] = seeds.problems_of(page_of(), tool, tmp_path)

    assert empty == "Tool: tool: names.py has no metric; has it moved?"
    assert "names.py" in gone


def test_each_tool_has_rows_and_no_name_twice(seeds: Any) -> None:
    page = (ROOT / "docs/coming-from.md").read_text("utf-8")

    for tool in seeds.SEED_TOOLS:
        kinds = {source.kind for source in tool.sources}
        assert {kind for kind, names in seeds.rows_of(page, tool).items() if names} == kinds, tool.name
        table = page.partition(f"| {tool.name}: kind |")[2].partition("\n\n")[0]
        rows = [line.strip("|").split("|")[:2] for line in table.splitlines()[2:]]
        names = [(kind.strip(), name.strip()) for kind, cell in rows for name in cell.split(", ")]
        assert len(names) == len(set(names)), tool.name


def test_every_metric_of_adk_with_a_row_is_a_metric_here(seeds: Any) -> None:
    page = (ROOT / "docs/coming-from.md").read_text("utf-8")
    [adk] = [tool for tool in seeds.SEED_TOOLS if tool.name == "ADK"]

    assert seeds.rows_of(page, adk)["metric"] <= set(METRICS)


@pytest.mark.parametrize("tool", ["ADK", "Osmosis"])
def test_options_that_are_the_same_are_options_here(tool: str) -> None:
    page = (ROOT / "docs/coming-from.md").read_text("utf-8").partition(f"| {tool}: kind |")[2].partition("\n\n")[0]
    [row] = re.findall(r"\| option \| (.*?) \| the same \|", page)

    own = {each.replace("_", "-") for each in re.findall(r"--[\w-]+", (ROOT / "tests/snapshots/help.txt").read_text())}
    assert {each.replace("_", "-") for each in re.findall(r"--[\w-]+", row)} <= own
