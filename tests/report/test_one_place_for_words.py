"""Sentences with numbers stand in one place, and pages and the command line take them from there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.parsed_sources import parsed

import evaldesk
from evaldesk import paths

CODE = Path(evaldesk.__file__).parent
SHOWN_BY = ("desk", "pages", "cli", "web")
OF_REPORTS = ("desk/runs/gates/conclusion.py", "desk/runs/run_result.py", "pages/reports/")
"""Gates, the value of `evaluate()` and result files: they say the numbers that a machine reads, too."""
OWN_WORDS = re.compile(
    r"(could be|95 % CI) \{\}( %|–| to )|distinguishable|\{[^}]*\} of \{[^}]*\} passed|kappa \{|alpha \{|\bp < |\bp \{"
)


def sources() -> Iterator[Path]:
    for floor in SHOWN_BY:
        yield from sorted((CODE / floor).rglob("*.py"))


def sentences() -> Iterator[tuple[str, str]]:
    """Each public function of the modules of words, with its module."""
    for path in sorted((CODE / "wording").glob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield path.stem, node.name


def test_every_sentence_is_shown_somewhere() -> None:
    shown = {name for path in sources() for name in re.findall(r"\b\w+\b(?!,)", path.read_text("utf-8"))}
    words = "\n".join(path.read_text("utf-8") for path in (CODE / "wording").glob("*.py"))
    called = set(re.findall(r"(?<!def )\b\w+(?=\()|(?:(?<=, )|(?<=\())\w+(?=, )", words))

    unshown = [(module, name) for module, name in sentences() if name not in shown | called]

    assert unshown == []
    assert ("words", "passed_sentence") in sentences()


def test_no_page_and_no_command_has_words_of_its_own_for_doubt() -> None:
    found = [
        (path.relative_to(CODE).as_posix(), match[0])
        for path in sources()
        for match in [OWN_WORDS.search(_said(path))]
        if match and not path.relative_to(CODE).as_posix().startswith(OF_REPORTS)
    ]

    assert found == []


def test_no_template_makes_a_sentence_of_numbers() -> None:
    folder = paths.shipped("templates")
    own = re.compile(r"could be \{\{|95 % CI \{\{|\}\} of \{\{[^}]*\}\} passed|distinguishable")

    assert [path.name for path in sorted(folder.rglob("*.html")) if own.search(path.read_text("utf-8"))] == []


def _said(path: Path) -> str:
    """The texts of a module that are no docstrings; what is filled in reads `{}`."""
    nodes = [*ast.walk(parsed(path))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            texts.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | inside:
            texts.append(node.value)
    return "\n".join(texts)
