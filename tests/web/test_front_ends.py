"""Front ends ask the desk and the pages; none reaches through them into the database."""

from __future__ import annotations

import ast
from pathlib import Path

import evaldesk

APP = Path(evaldesk.__file__).parent
FILES = [path for folder in ("cli", "testing", "web") for path in sorted((APP / folder).rglob("*.py"))]


def test_no_front_end_reaches_for_the_store() -> None:
    found = [
        f"{path.relative_to(APP)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "store"
    ]

    assert FILES
    assert not found
