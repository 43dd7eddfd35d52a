"""The values that the page of a run shows in a column, by its title."""

from __future__ import annotations

from typing import Any

from evaldesk.pages.runs.page import RunPage


def column_values(page: RunPage, title: str) -> list[Any]:
    """The value of each case, and of the whole run after them where the page has that line."""
    at = [column.title for column in page.columns].index(title)
    return [line[at].value for line in (*(row.cells for row in page.rows), page.total) if line]
