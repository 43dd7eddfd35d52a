"""Every statement of the documents has a check, every check is a test, and docs/coming-from.md says the same."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest
from tests.documents.shown_commands import commands_of_tool, section_commands
from tests.documents.statements import HERE, NAMES, NO_CLAIM, OUTSIDE, rows_of
from tests.islands import is_removed, of_tools

from evaldesk.desk.adopting import load_project

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
def test_every_row_says_what_is_true_and_names_a_test(name: str) -> None:
    for row in rows_of(name):
        assert row.here in (NO_CLAIM, *HERE), row
        assert bool(row.checks) == (row.here not in (NO_CLAIM, "missing")), row
        assert row.here not in ("better", "differs") or row.begins != OUTSIDE or row.words, row
        assert (row.here == "missing") == (row.begins in MISSING), row
        for check in row.checks:
            file, _, function = check.partition("::")
            if is_removed(ROOT / f"tests/{file}.py"):
                continue
            assert function in _tests_of(ROOT / f"tests/{file}.py"), f"{row.begins}: there is no {check}"


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """The names of the tests in a file; none where there is no such file."""
    tree = ast.parse(path.read_text("utf-8")) if path.is_file() else ast.Module([], [])
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_the_page_for_users_says_what_the_tables_say() -> None:
    head = PAGE.read_text("utf-8").partition("\n## Osmosis")[0] if PAGE.is_file() else "# Coming from another tool\n"
    page = f"{head}\n{_sections()}"
    if os.environ.get("EVALDESK_SNAPSHOTS") == "write":
        PAGE.write_text(page, "utf-8")

    assert PAGE.read_text("utf-8") == page


@pytest.mark.parametrize(
    ("tool", "names"),
    [
        pytest.param("adk", ["adk_evaluation"], marks=of_tools("adk")),
        pytest.param("openhands", ["openhands_harness"], marks=of_tools("openhands")),
        pytest.param("osmosis", [NAMES[0], NAMES[1]], marks=of_tools("osmosis")),
    ],
)
def test_adopt_says_the_same_differences(tool: str, names: list[str]) -> None:
    rows = [row for name in names for row in rows_of(name)]

    assert [row.words for row in rows if row.here == "differs" and row.words] == list(load_project(tool).differences)


def _sections() -> str:
    blocks = []
    for first, title in SECTIONS.items():
        rows = [row for name in NAMES if ONE_PAGE.get(name, name) == first for row in rows_of(name)]
        blocks.append(f"## {title}\n")
        for here, heading in TITLES.items():
            words = [row.words for row in rows if row.here == here and row.words]
            blocks.append(f"{heading}:\n\n" + "".join(f"- {sentence}\n" for sentence in words))
    return "\n".join(blocks)


PLAYED = {
    "From a clone to a verdict": {
        "adk": "integrations/adk/test_documented_move.py",
        "osmosis": "integrations/osmosis/test_documented_move.py",
        "openhands": "integrations/openhands/test_documented_move.py",
    },
    "OpenAI Evals": {"": "integrations/openai_evals/test_documented_adoption.py"},
    "agents-cli": {"": "cli/test_agents_cli_project.py"},
    "OpenHands' benchmarks on its SDK": {"": "integrations/openhands/test_documented_move.py"},
}
"""The files whose tests carry out the commands of a section, of one tool where they are named by it."""


def test_each_command_of_the_page_is_carried_out_by_a_test() -> None:
    head, *sections = PAGE.read_text("utf-8").split("\n## ")
    commands = {section.partition("\n")[0]: _shown(section) for section in sections if _shown(section)}
    played = {line for title in PLAYED for line in section_commands(title)}

    assert commands.keys() == PLAYED.keys()
    assert sorted(commands["From a clone to a verdict"]) == sorted(
        line for tool in PLAYED["From a clone to a verdict"] for line in commands_of_tool(tool)
    )
    assert played == {line for lines in commands.values() for line in lines}
    assert {*_shown(head)} <= played
    for title, files in PLAYED.items():
        for tool, name in files.items():
            call = f'commands_of_tool("{tool}")' if tool else f'section_commands("{title}")'
            source = (ROOT / "tests" / name).read_text("utf-8") if not is_removed(ROOT / "tests" / name) else call
            assert call in source, f"{name} does not carry out the commands of {title!r}"


def _shown(text: str) -> list[str]:
    return re.findall(r"^evaldesk .*$", text, re.MULTILINE)
