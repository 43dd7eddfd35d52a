"""docs/security.md names the test of every promise: each of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.*`[\w/]+\.py`.*) \|$", PAGE, re.MULTILINE)
NAMED = [(promise, *pair) for promise, shown in ROWS for pair in re.findall(r"`([\w/]+\.py)`:? ?([^`;]*)", shown)]


def names(path: Path) -> list[str]:
    """The tests of a file, as the sentences that they are."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name.removeprefix("test_").replace("_", " ") for node in functions if node.name.startswith("test_")]


def test_the_table_has_a_row_for_every_promise() -> None:
    promised = PAGE.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("|")][2:]

    assert len(rows) > 20
    assert len(ROWS) == len(rows)


@pytest.mark.parametrize(("promise", "file", "said"), NAMED, ids=[f"{row[1]}-{row[2][:30]}" for row in NAMED])
def test_every_test_that_is_named_is_there(promise: str, file: str, said: str) -> None:
    path = next(path for path in (TESTS / "security" / file, TESTS / file) if path.is_file())
    found = names(path)

    for words in filter(None, map(str.strip, said.split(","))):
        plain = re.sub(r"[^a-z0-9 ]", "", words.lower().replace("-", " "))
        assert [name for name in found if plain in name], f"{promise}: {path.name} has no test {words!r}"
