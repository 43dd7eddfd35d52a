"""Modules as syntax trees: several tests look at all of Evaldesk, and each module is parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a module, which its readers leave as it is."""
    return ast.parse(path.read_bytes())
