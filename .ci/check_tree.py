"""Faults that no linter looks for: paths of one machine and executable content where data belongs, in a tracked file.

And no circle of imports between modules; the picture of the floors (`draw_floors`); the decisions, their index, links
and paths (`check_book`); the reasons of locks, signals and private names (`check_comments`). The counts of words
(`check_words`) are printed; bare participles as names, free relatives and missing docstrings fail.
"""

from __future__ import annotations

import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import check_book
import check_comments
import check_words
import draw_floors
import grimp

ROOT = Path(__file__).resolve().parents[1]
REFUSED = {
    "an address of a package registry": re.compile(r"(pypi|pythonhosted|npmjs|debian)\.(org|com)/", re.I),
    "a path of one machine": re.compile(r"(?<![\w.])/(home|Users|root|work|tmp/bash_jobs)/\w"),
}
TEMPLATE_REFUSED = {
    "unescaped output": re.compile(r"\|\s*safe\b|autoescape\s+false"),
    "an inline handler or style": re.compile(r"\s(on[a-z]+|style)=", re.I),
    "an inline script": re.compile(r"<script(?![^>]*(src=|application/json))", re.I),
    "an htmx expression": re.compile(r"hx-on|hx-vals=|hx-headers=", re.I),
}


def main() -> int:
    """Print every finding; 1 when there is one."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    findings = [finding for name in listed.split("\0") if name for finding in _findings(name)]
    graph = grimp.build_graph("evaldesk")
    findings += [*_circles(graph), *draw_floors.drift(graph), *check_book.check_book(), *check_comments.findings()]
    words = check_words.count()
    check_words.show(words)
    findings += words.findings()
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    return 1 if findings else 0


def _circles(graph: grimp.ImportGraph) -> list[str]:
    """The first circle of imports between modules, those for types included."""
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [f"a circle of imports: {' <- '.join(error.args[1])}"]
    return []


def _findings(name: str) -> list[str]:
    path = ROOT / name
    if not path.is_file() or "vendor/" in name or name == ".ci/check_tree.py":
        return []
    if name.startswith(("templates/", "static/")) and path.suffix == ".py":
        return [f"{name}: a .py file here breaks the editable install"]
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    refused = {**REFUSED, **(TEMPLATE_REFUSED if name.startswith("templates/") else {})}
    return [
        f"{name}:{number}: {what}"
        for number, line in enumerate(lines, 1)
        for what, pattern in refused.items()
        if pattern.search(line)
    ]


if __name__ == "__main__":
    sys.exit(main())
