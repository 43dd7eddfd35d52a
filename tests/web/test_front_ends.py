"""Front ends ask the desk and the pages; none reaches through them into the database."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.parsed_sources import parsed

import evaldesk

APP = Path(evaldesk.__file__).parent
ROOT = APP.parents[1]
FILES = [path for folder in ("cli", "testing", "web") for path in sorted((APP / folder).rglob("*.py"))]


def test_no_front_end_reaches_for_the_store() -> None:
    found = [
        f"{path.relative_to(APP)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "store"
    ]

    assert FILES
    assert not found


def test_the_style_names_only_what_a_page_or_a_script_writes() -> None:
    style = re.sub(r"/\*.*?\*/", "", (ROOT / "static" / "app.css").read_text(), flags=re.DOTALL)
    selectors = " ".join(re.findall(r"([^{};]*)\{", style))
    written = "\n".join(
        path.read_text()
        for folder, ending in (("templates", ".html"), ("app", ".py"), ("static", "app.js"))
        for path in sorted((ROOT / folder).rglob(f"*{ending}"))
    )

    ids = {*re.findall(r"#([a-z][\w-]*)", selectors)} - {*re.findall(r'id="([^"]*)"', written)}
    words, data = {*re.findall(r"[\w-]+", written)}, {*re.findall(r"(?<![\w-])dataset\.([\w-]+)", written)}
    names = {
        name
        for mark in (r"\.", r"\[")
        for name in re.findall(rf"{mark}([a-z][\w-]*)", selectors)
        if name not in words and name.removeprefix("data-") not in data
    }

    assert "tabs" in selectors
    assert ids == set()
    assert names == set()
