"""The page of 2 to 20 runs: the table of their cases, their differing options, and of two all of their comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.comparison import ComparisonPage, read_comparison, warnings_of
from evaldesk.pages.experiment import AnalysisPanel, named_analysis, run_names, runs_panel, with_case_means
from evaldesk.pages.failures.over_runs import ChangeRow, failure_changes
from evaldesk.pages.run_changes import RunChanges, changes_of_columns
from evaldesk.pages.runs.table import PAGE_SIZE, CaseTable, read_table
from evaldesk.pages.runs.table_query import TableQuery
from evaldesk.run_options import BY_NAME


@dataclass(frozen=True, slots=True)
class TablePage:
    """All that the page shows. `comparison` is that of two runs; `settings` are the differing ones of more.

    `edits` are the changes of eval set, criteria and gates since the first run.
    """

    title: str
    table: CaseTable
    comparison: ComparisonPage | None
    warnings: Sequence[str]
    settings: Mapping[str, Sequence[str]]
    is_live: bool
    panel: AnalysisPanel | None = None
    unread: str = ""
    otherwise: Sequence[ChangeRow] = ()
    edits: Sequence[RunChanges] = ()

    def export_href(self, name: str) -> str:
        """The address of an export of the table."""
        return self.table.query.href(after=None).replace(self.table.query.base, f"{self.table.query.base}/{name}", 1)


def read_table_page(
    desk: Desk, query: TableQuery, most: int = PAGE_SIZE, rows: Sequence[int] | None = None
) -> TablePage:
    """The page of the runs of a query, or with these `rows` alone.

    Raises NotFoundError where none is there; UsageError for a strange cursor.
    """
    table = read_table(desk, query, most=most, rows=rows)
    summaries = table.summaries
    is_pair = len(query.run_ids) == len(summaries) == 2
    first, last = query.run_ids[0], query.run_ids[-1]
    comparison = read_comparison(desk, first, last) if is_pair else None
    panel = None
    if len(summaries) > 2:
        names = run_names(summaries)
        analysis = named_analysis(desk.store, summaries, names)
        panel = runs_panel(desk.store, summaries, analysis, table.letters)
        table = replace(table, groups=with_case_means(table.groups, analysis, names))
    unread, otherwise = failure_changes(desk, first, last) if is_pair else ("", ())
    return TablePage(
        title=title_of(query.run_ids),
        table=table,
        comparison=comparison,
        warnings=comparison.warnings if comparison else run_warnings(desk, table, summaries),
        settings={} if comparison else table.facts,
        panel=panel,
        is_live=any(each.status in LIVE for each in summaries),
        unread=unread,
        otherwise=otherwise,
        edits=comparison.edits if comparison else changes_of_columns(desk.store, summaries) if rows is None else (),
    )


def title_of(run_ids: Sequence[int]) -> str:
    """`Runs 1, 2 and 7`."""
    *first, last = map(str, run_ids)
    return f"Runs {', '.join(first)} and {last}"


def run_warnings(desk: Desk, table: CaseTable, summaries: Sequence[RunSummary]) -> list[str]:
    """Why differences between these runs may not be ones between the agents: each reason and each option once.

    An option that their experiment varies is the question, and no limit of the answer.
    """
    found_ids = {each.id for each in summaries}
    notes = [
        f"Run {run_id} was deleted; its column is empty." for run_id in table.query.run_ids if run_id not in found_ids
    ]
    varied = varied_facts(desk, summaries)
    return notes + warnings_of(summaries, {name: texts for name, texts in table.facts.items() if name not in varied})


OF_AGENT = frozenset({"Agent", "Agent files", "Interpreter", "Model"})
"""The facts that another agent, or another place of it, may change."""


def varied_facts(desk: Desk, summaries: Sequence[RunSummary]) -> frozenset[str]:
    """The facts that the experiment of all these runs varies; none where they are not of one experiment."""
    parts = [each.config.experiment for each in summaries]
    experiment_ids = {part.experiment_id if part else None for part in parts}
    experiment_id = experiment_ids.pop() if len(experiment_ids) == 1 else None
    if experiment_id is None:
        return frozenset()
    try:
        variants = desk.store.experiments.get(experiment_id).plan.variants
    except NotFoundError:
        return frozenset()
    facts: set[str] = set()
    for option in {name for variant in variants for name in variant.options}:
        name, at, _ = option.partition("@")
        if name in ("agent", "environment"):
            facts |= OF_AGENT
        if name == "evalset":
            facts |= {"Eval set", "Cases"}
        elif name == "model":
            facts.add("Model")
        elif name in BY_NAME:
            facts.add(BY_NAME["instructions" if at else name].title)
    return frozenset(facts)
