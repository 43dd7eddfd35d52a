"""Cells of a CSV file that a spreadsheet opens: text stays text, whoever wrote it."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\0", "＝", "＋", "－", "＠")
"""What a cell must not begin with (https://owasp.org/www-community/attacks/CSV_Injection)."""


def cell(value: T) -> T | str:
    """`value`; a text that a spreadsheet would take for a formula has a quote before it, which keeps it text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
