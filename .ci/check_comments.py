"""Refuse places where an experienced reader stops, without the number of the decision that gives the reason.

Such places are locks, forks, signals, `prctl`, byte layouts, ends without cleanup, and private names of libraries. The
number stands in the function or class around the place, in the four lines above it, or in the docstring of the module.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "app" / "evaldesk"
ODD = re.compile(
    r"\bfcntl\.(?:flock|lockf)|\bthreading\.(?:R?Lock|Condition|Semaphore)\b|"
    r"\bos\.(?:fork|kill|killpg|_exit|register_at_fork)\(|\bsignal\.(?:signal|set_wakeup_fd|pthread_\w+|setitimer)\(|"
    r"\bctypes\.|\bstruct\.(?:Struct|pack|unpack)\b|BEGIN IMMEDIATE|\bprctl\b"
)
DECISION = re.compile(r"\bdecisions? \d{3}")
N_ABOVE = 4


def findings() -> list[str]:
    """Each place of the package without a decision."""
    paths = sorted(APP.rglob("*.py"))
    return [f"{path.relative_to(ROOT)}:{place}" for path in paths for place in odd_places(path.read_text("utf-8"))]


def odd_places(text: str) -> Iterator[str]:
    """Line, code and fault of each such place of a module, in order."""
    tree, lines = ast.parse(text), text.splitlines()
    if DECISION.search(ast.get_docstring(tree) or ""):
        return
    for number in sorted({*_odd_lines(lines), *_private_names(tree)}):
        around = next((node for node in tree.body if _first_line(node) <= number <= (node.end_lineno or 0)), None)
        begin, end = (_first_line(around), around.end_lineno) if around else (number, number)
        if not DECISION.search("\n".join(lines[max(0, begin - 1 - N_ABOVE) : end])):
            yield f"{number}: `{lines[number - 1].strip()}` needs its reason and the number of its decision"


def _odd_lines(lines: list[str]) -> Iterator[int]:
    for number, line in enumerate(lines, 1):
        if ODD.search(line) and not line.lstrip().startswith(("#", "import ", "from ")):
            yield number


def _private_names(tree: ast.Module) -> Iterator[int]:
    """The lines that use a private name of a module that is not ours."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {(each.asname or each.name).partition(".")[0] for each in node.names if not _is_ours(each.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and not _is_ours(node.module):
            modules |= {each.asname or each.name for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            root: ast.expr = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in modules:
                yield node.lineno


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "evaldesk"


def _first_line(node: ast.stmt) -> int:
    return min(node.lineno, *(each.lineno for each in (node, *getattr(node, "decorator_list", []))))


if __name__ == "__main__":
    sys.stdout.writelines(f"{finding}\n" for finding in findings())
