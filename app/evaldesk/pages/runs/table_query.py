"""The address of a table of cases: runs, filters, order, columns and density, read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import get_args
from urllib.parse import urlencode

from evaldesk.model.case_table import MAX_RUNS, ORDERS, RowFilter, RowSort
from evaldesk.model.comparison import KINDS
from evaldesk.model.stored import CaseFilter

MAX_TEXT = 200
MAX_COLUMNS = 40
DENSITIES = ("tight",)
FILTERS = ("only", "in", "tag", "tool", "error", "kind", "below", "divergence", "disagree", "show", "q")
"""The parts of an address that choose rows."""


NOTHING_ASKED = RowFilter()


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which rows of which runs a table shows, in which order and columns; `sort` None leaves the choice to the page.

    `base` is the address without a query. With `names_runs` the address names the runs; else `base` does. `columns` are
    keys of the shown columns, none for the page's own choice. `show` is a kind of change between two runs. `order` is
    the order that the table has, also where the address names none. `baseline` is the run that the address makes the
    first one, 0 for none.
    """

    base: str
    run_ids: tuple[int, ...]
    names_runs: bool = False
    sort: RowSort | None = None
    only: RowFilter = NOTHING_ASKED
    text: str = ""
    columns: tuple[str, ...] = ()
    density: str = ""
    hidden: tuple[int, ...] = ()
    show: str = ""
    after: str = ""
    order: RowSort | None = None
    baseline: int = 0

    @classmethod
    def of(
        cls, base: str, run_ids: Sequence[int], values: Mapping[str, str], *, names_runs: bool = False
    ) -> TableQuery:
        """The query of an address; what it does not know, it leaves out."""

        def text(name: str) -> str:
            return values.get(name, "").strip()[:MAX_TEXT]

        columns = tuple(filter(None, values.get("columns", "")[:4_000].split(",")))[:MAX_COLUMNS]
        return cls(
            base,
            tuple(run_ids),
            names_runs,
            sort_of(values.get("sort", ""), run_ids),
            RowFilter(
                verdict=next((each for each in get_args(CaseFilter) if each == values.get("only")), None),
                run_id=next((run_id for run_id in run_ids if str(run_id) == values.get("in")), None),
                disagree=values.get("disagree") == "1" and len(run_ids) > 1,
                tag=text("tag"),
                tool=text("tool"),
                error=text("error"),
                mode=number if (number := number_text(text("kind"))) else None,
                below=text("below"),
                divergence=values.get("divergence", "")[:500],
            ),
            text("q"),
            columns,
            next((each for each in DENSITIES if each == values.get("density")), ""),
            tuple(run_id for run_id in _all_numbers(values.get("hide", "")) if run_id in run_ids),
            values.get("show", "") if values.get("show", "") in (*KINDS, "changed") and len(run_ids) == 2 else "",
            values.get("after", "")[:2_000],
        )

    @property
    def has_filter(self) -> bool:
        """Whether some rows may be left out."""
        return bool(not self.only.asks_nothing or self.text or self.show)

    def fields(self) -> dict[str, str]:
        """The parts of the address that are not empty, runs first."""
        only = self.only
        parts = {
            "runs": ",".join(map(str, self.run_ids)) if self.names_runs else "",
            "q": self.text,
            "only": only.verdict or "",
            "in": str(only.run_id or ""),
            "disagree": "1" if only.disagree else "",
            "show": self.show,
            "tag": only.tag,
            "tool": only.tool,
            "error": only.error,
            "kind": str(only.mode or ""),
            "below": only.below,
            "divergence": only.divergence,
            "sort": sort_text(self.sort),
            "columns": ",".join(self.columns),
            "density": self.density,
            "hide": ",".join(map(str, self.hidden)),
            "baseline": str(self.baseline or ""),
            "after": self.after,
        }
        return {name: value for name, value in parts.items() if value}

    def href(self, **changes: str | None) -> str:
        """The address with some parts changed, from its first row on unless `after` is among them."""
        parts = {**_encoded_fields(self), **{name: _encoded(name, value) for name, value in changes.items()}}
        if "after" not in changes:
            parts.pop("after", None)
        query = "&".join(filter(None, parts.values()))
        return self.base + (f"?{query}" if query else "")

    def with_filter(self, **changes: object) -> TableQuery:
        """The same with another filter."""
        return replace(self, only=replace(self.only, **changes), after="")  # type: ignore[arg-type]

    def sort_href(self, sort: RowSort) -> str:
        """The address in this order; in the other direction where it has the order already."""
        now = self.order or self.sort
        if now is not None and replace(now, is_reversed=False) == sort:
            sort = replace(sort, is_reversed=not now.is_reversed)
        return self.href(sort=sort_text(sort))

    @property
    def shown_ids(self) -> list[int]:
        """The runs without the hidden ones; all of them where none would be left."""
        return [run_id for run_id in self.run_ids if run_id not in self.hidden] or list(self.run_ids)

    @property
    def disagree_href(self) -> str:
        """The address that shows only rows on which the runs disagree, or all rows again."""
        return self.href(disagree=None if self.only.disagree else "1")

    def baseline_href(self, run_id: int) -> str:
        """The address with this run as the first one, against which the others are compared."""
        others = [each for each in self.run_ids if each != run_id]
        if self.names_runs:
            return self.href(runs=",".join(map(str, (run_id, *others))), sort=None, show=None)
        return self.href(baseline=str(run_id))

    def view_text(self) -> str:
        """The part of the address that a named view stores: everything but the runs and the place in the table."""
        left_out = ("runs", "after", "in", "hide", "baseline")
        parts = {name: value for name, value in self.fields().items() if name not in left_out}
        if parts.get("sort"):
            parts["sort"] = parts["sort"].partition("@")[0]
        return urlencode(parts)


@lru_cache(maxsize=64)
def _encoded_fields(query: TableQuery) -> Mapping[str, str]:
    """Each part of an address as it stands there, `name=value`; a page has hundreds of addresses of one query."""
    return {name: _encoded(name, value) for name, value in query.fields().items()}


def _encoded(name: str, value: str | None) -> str:
    """A part of an address, empty where it has no value."""
    return urlencode({name: value}) if value else ""


def sort_text(sort: RowSort | None) -> str:
    """`-metric:response_match_score@7`: reversed, the order with its metric, and the run."""
    if sort is None:
        return ""
    metric = f":{sort.metric}" if sort.metric else ""
    run = f"@{sort.run_id}" if sort.run_id else ""
    return f"{'-' if sort.is_reversed else ''}{sort.order}{metric}{run}"


def sort_of(text: str, run_ids: Sequence[int]) -> RowSort | None:
    """The order that an address names; None for one that is not known or of another run."""
    words, _, run_text = text[:MAX_TEXT].removeprefix("-").partition("@")
    name, _, metric = words.partition(":")
    order = next((each for each in ORDERS if each == name), None)
    run_id = number_text(run_text)
    is_metric = order == "metric"
    if order is None or (run_id and run_id not in run_ids) or is_metric != bool(metric):
        return None
    if (order == "spread" and len(run_ids) < 2) or (order == "change" and len(run_ids) != 2):
        return None
    return RowSort(order, metric, run_id or None, text.startswith("-"))


def run_numbers(text: str) -> tuple[int, ...]:
    """The different numbers of `1,2,7`, at most one more than a table has runs."""
    return _all_numbers(text)[: MAX_RUNS + 1]


def _all_numbers(text: str) -> tuple[int, ...]:
    """The different numbers of `1,2,7`; an experiment has more variants than a table of runs may name."""
    return tuple(dict.fromkeys(filter(None, map(number_text, text[:2_000].split(",")))))


def number_text(text: str) -> int:
    """A whole number above 0; 0 for any other text."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
