"""The prose of the repository: its words, its links, the files it names, and the shape of changelog and decisions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.islands import is_removed
from tests.parsed_sources import parsed

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "app" / "evaldesk"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted(ROOT.glob("docs/*.md"))]
REFUSED = (
    r"whoever|whomever|heeds?|heeded|bury|buried|lopsided|leeway|brought clients?|spare workers?|lanes?|nobody knows"
)
REFUSED_TEXTS = r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|better than\b|such\b)|\bholds? no\b|\bwhat is no\b"
"""Negations in texts for people: "is not a number" instead of "is no number", "contains no run"."""
CHANGES = (ROOT / "CHANGELOG.md").read_text("utf-8")


def _prose(path: Path) -> str:
    """The text of a page without its code and without the names of tests."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`[^|\n]*(?=\|$)|`[^`\n]*`", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_uses_the_terms_of_the_field(path: Path) -> None:
    assert re.findall(rf"\b(?:{REFUSED})\b", _prose(path), re.IGNORECASE) == []


def test_texts_of_the_code_negate_as_people_do() -> None:
    paths = sorted(APP.rglob("*.py"))
    suspects = [path for path in paths if re.search(REFUSED_TEXTS, _joined(path))]
    texts = [(path.name, text) for path in suspects for text in _texts(parsed(path))]

    assert len(paths) > 500
    assert [found for found in texts if re.search(REFUSED_TEXTS, found[1])] == []


def _joined(path: Path) -> str:
    """The code of a module, whose texts go on in their next line; to parse all modules takes two seconds."""
    return re.sub(r"""["']\s+[a-z]{0,2}["']""", "", path.read_text("utf-8"))


def test_pages_name_things_by_nouns() -> None:
    """No "what the case expects" where the field says "expectations"; questions and two set phrases are left."""
    allowed = r"(?:went wrong|changed since|counts)\b"
    shown = {str(path): _shown(path) for path in sorted((ROOT / "templates").rglob("*.html"))}

    found = {
        name: re.findall(rf"\b(?:what(?! {allowed})|whatever|whoever)\b.{{0,40}}", text) for name, text in shown.items()
    }

    assert len(shown) > 50
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def _shown(path: Path) -> str:
    """The texts of a template, in lower case, with the texts in its expressions."""
    text = re.sub(r"\{#.*?#\}", "", path.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"\{[{%].*?[}%]\}", lambda part: " ".join(re.findall(r'"([^"]*)"', part[0])), text, flags=re.DOTALL)
    attributes = re.findall(r' (?:title|placeholder|aria-label)="([^"]*)"', text)
    return " ".join([re.sub(r"<[^>]*>", " ", text), *attributes]).lower()


def _texts(tree: ast.AST) -> Iterator[str]:
    """The texts of a module without its docstrings."""
    for node in ast.walk(tree):
        children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
        is_docs = isinstance(node, ast.Expr)
        yield from (
            child.value
            for child in children
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not is_docs
        )


@pytest.mark.parametrize("path", [*PAGES, *DECISIONS], ids=lambda path: path.name)
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text("utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", [*PAGES, *DECISIONS], ids=lambda path: path.name)
def test_every_module_that_a_page_names_is_there(path: Path) -> None:
    rooms = {room.name for room in APP.iterdir() if room.is_dir()}
    named = re.findall(r"`(?:evaldesk/)?([a-z_]+/[a-z_/]+\.py)\b", path.read_text("utf-8"))

    named = [name for name in named if name.split("/")[0] in rooms and "/test_" not in name]

    assert [name for name in named if not (APP / name).is_file() and not is_removed(APP / name)] == []


def test_the_floors_of_the_guide_are_folders_of_the_package() -> None:
    (floors,) = re.findall(r"^```\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = re.findall(r"\b([a-z_]+)/(?:\{([a-z,]+)\})?", floors)
    rooms = [f"{room}/{part}".rstrip("/") for room, parts in names for part in parts.split(",")]

    assert len(rooms) > 15
    assert [room for room in rooms if not (APP / room).is_dir()] == []


def test_each_change_stands_in_a_group_and_is_told_once() -> None:
    before_groups, *groups = re.split(r"^### .*$", CHANGES, flags=re.MULTILINE)
    capabilities = re.findall(r"^- \*\*(.+?)\*\*", CHANGES, re.MULTILINE)

    assert re.findall(r"^- .*", before_groups, re.MULTILINE) == []
    assert len(groups) > 10
    assert len(set(capabilities)) == len(capabilities)


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_decision_and_consequences(path: Path) -> None:
    text = path.read_text("utf-8")

    assert text.startswith(f"# {path.stem[:3]} ")
    assert [word for word in ("**Context", "**Decision", "**Consequences") if word not in text] == []
