"""Count names and docstrings that a reader has to decode. `make check` prints the counts; none fails it yet.

    python .ci/check_words.py            the counts
    python .ci/check_words.py --list     with the places, the files with most of them first

- Names: assigned variables, arguments, fields and functions of app/ whose whole name, or last word for a function, is a
  participle or an adjective. The name of a thing is its noun: `lines_read`, not `read`.
- Free relatives: "what", "who", "that which", ... where a noun would stand, for each 1,000 words of docstrings. The
  target is 2.
- Docstrings: the share of public modules, classes and functions of app/ that have one. The target is 93 %.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

APP = Path(__file__).resolve().parents[1] / "app" / "evaldesk"
PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        """
        said told kept found given asked left shown taken known made seen held meant written read
        heard sent brought called counted drawn played scored stored chosen wanted needed used gone
        done begun ended stopped changed added removed missing waiting running looked named spoken
        judged planned foreseen listed packed unpacked parsed joined split cut put moved copied
        refused accepted allowed claimed expected
        """,
    )
)
"""Participles that are no names; those that the model has as values, such as `passed` and `failed`, are not here."""
ADJECTIVES = frozenset(
    re.findall(
        r"\w+",
        """
        whole bare plain odd usual strange new old late early quick large small long short anew
        beside meanwhile moment
        """,
    )
)
FREE_RELATIVES = re.compile(
    r"\b(?:what|whatever|who|whoever|whom|that which|those that|those who|one that|ones that|of which|as many as|"
    r"so many|how many|how much)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z]+")
TARGET_RELATIVES, TARGET_DOCSTRINGS = 2.0, 93.0


def main(arguments: Sequence[str]) -> int:
    """Print the counts; always 0."""
    names: Counter[str] = Counter()
    n_names = n_public = n_documented = n_words = 0
    relatives: Counter[str] = Counter()
    for path in sorted(APP.rglob("*.py")):
        place = str(path.relative_to(APP))
        tree = ast.parse(path.read_text("utf-8"))
        for name in assigned_names(tree):
            n_names += 1
            names[place] += is_no_name(name)
        for node in _documentable(tree):
            text = ast.get_docstring(node) or ""
            n_words += len(WORD.findall(text))
            relatives[place] += len(free_relatives(text))
            if isinstance(node, ast.Module) or not node.name.startswith("_"):
                n_public += 1
                n_documented += bool(text)
    per_thousand = 1000 * relatives.total() / n_words
    sys.stdout.write(
        f"names that are a participle or adjective: {names.total():,} of {n_names:,} "
        f"({names.total() / n_names:.1%}); target 0\n"
        f"free relatives in 1,000 words of docstrings: {per_thousand:.1f} ({relatives.total():,} in {n_words:,}); "
        f"target {TARGET_RELATIVES:g}\n"
        f"public docstrings: {n_documented / n_public:.1%}; target {TARGET_DOCSTRINGS:g} %\n"
    )
    if "--list" in arguments:
        for title, counts in (("names", names), ("free relatives", relatives)):
            sys.stdout.writelines(f"  {n:4} {title} in {place}\n" for place, n in counts.most_common() if n)
    return 0


def assigned_names(tree: ast.Module) -> Iterator[str]:
    """Every variable, argument, field and function that a module names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{node.name}()"


def is_no_name(name: str) -> bool:
    """Whether a name is a bare participle or adjective; `read` and other verbs are names of functions."""
    if name.endswith("()"):
        words = name[:-2].strip("_").split("_")
        return len(words) == 1 and words[0] in (PARTICIPLES | ADJECTIVES) - {"read", "split", "cut", "put"}
    return name.strip("_") in PARTICIPLES | ADJECTIVES


def free_relatives(text: str) -> list[str]:
    """The free relatives of a docstring, without its code."""
    return FREE_RELATIVES.findall(re.sub(r"`[^`]*`", "", text))


def _documentable(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
