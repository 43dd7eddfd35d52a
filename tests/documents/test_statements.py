"""Every statement of the documents has a check, every check is a test, and docs/coming-from.md says the same."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.documents.statements import HERE, NAMES, NO_CLAIM, OUTSIDE, commands_of, faults_of, rows_of

from evaldesk.wording.other_tools import DIFFERENCES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/coming-from.md"
MISSING: dict[str, str] = {}
"""Statements that Evaldesk does not fulfil, by their beginning, with the reason."""
SECTIONS = {"osmosis_eval_mode_2": "Osmosis", "openhands_harness": "OpenHands", "adk_evaluation": "ADK"}
ONE_PAGE = {"osmosis_platform_runs": "osmosis_eval_mode_2"}
"""Documents whose users read the section of another."""
TITLES = {"same": "The same", "better": "Better", "differs": "Different"}

every_document = pytest.mark.parametrize("name", NAMES)


@every_document
def test_every_statement_has_a_row(document: Callable[[str], str], name: str) -> None:
    assert faults_of(document(name), rows_of(name)) == []


def test_a_statement_without_a_row_is_a_fault(document: Callable[[str], str]) -> None:
    for name in NAMES:
        text, rows = document(name), rows_of(name)

        assert faults_of(f"{text}\nA new statement.\n", rows)[-1].endswith("has no row: 'A new statement.'")
        assert faults_of(f"A new statement.\n{text}", rows)
        assert faults_of(text.partition("\n")[2], rows)


def test_the_chinese_text_of_osmosis_says_the_same(document: Callable[[str], str]) -> None:
    """Its commands, functions and files are those of the English text, statement by statement."""
    chinese, english = document("osmosis_eval_mode"), document("osmosis_eval_mode_2")

    assert [each for each in commands_of(chinese, "osmosis") if each.isascii()] == [*commands_of(english, "osmosis")]
    pairs = list(zip(chinese.splitlines(), english.splitlines(), strict=False))
    assert len(chinese.splitlines()) in (len(english.splitlines()), len(english.splitlines()) - 1)
    assert [bool(one.strip()) for one, _ in pairs] == [bool(other.strip()) for _, other in pairs]
    differing = [one for one, other in pairs if one != other and one.isascii() and one.strip()]
    assert differing == []


@every_document
def test_every_row_says_what_is_true_and_names_a_test(name: str) -> None:
    for row in rows_of(name):
        assert row.here in (NO_CLAIM, *HERE), row
        assert bool(row.checks) == (row.here not in (NO_CLAIM, "missing")), row
        assert row.here not in ("better", "differs") or row.begins != OUTSIDE or row.words, row
        assert (row.here == "missing") == (row.begins in MISSING), row
        for check in row.checks:
            file, _, function = check.partition("::")
            assert function in _tests_of(ROOT / f"tests/{file}.py"), f"{row.begins}: there is no {check}"


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """The names of the tests in a file; none where there is no such file."""
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_the_page_for_users_says_what_the_tables_say() -> None:
    head = PAGE.read_text("utf-8").partition("\n## ")[0] if PAGE.is_file() else "# Coming from another tool\n"
    page = f"{head}\n{_sections()}"
    if os.environ.get("EVALDESK_SNAPSHOTS") == "write":
        PAGE.write_text(page, "utf-8")

    assert PAGE.read_text("utf-8") == page


def test_adopt_says_the_same_differences() -> None:
    of_tools = {"adk": ["adk_evaluation"], "openhands": ["openhands_harness"], "osmosis": [NAMES[0], NAMES[1]]}

    for tool, names in of_tools.items():
        rows = [row for name in names for row in rows_of(name)]
        assert [row.words for row in rows if row.here == "differs" and row.words] == list(DIFFERENCES[tool])


def _sections() -> str:
    blocks = []
    for first, title in SECTIONS.items():
        rows = [row for name in NAMES if ONE_PAGE.get(name, name) == first for row in rows_of(name)]
        blocks.append(f"## {title}\n")
        for here, heading in TITLES.items():
            words = [row.words for row in rows if row.here == here and row.words]
            blocks.append(f"{heading}:\n\n" + "".join(f"- {sentence}\n" for sentence in words))
    return "\n".join(blocks)
