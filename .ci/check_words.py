"""Count names and docstrings that a reader has to decode. `make check` prints the counts, and fails by each of them.

    python .ci/check_words.py            the counts
    python .ci/check_words.py --list     with the places, the files with most of them first

- Names: assigned variables, arguments and functions of app/ that are a bare participle or adjective. The name of a
  thing is its noun: `lines_read`, not `read`. At most 0.3 % of all names: `expected` beside `actual` is most of them.
- Free relatives: "what", "who", "that which", ... where a noun would stand: at most 2 in 1,000 words of docstrings.
- Pages of documentation: at most 2 free relatives in 1,000 words outside of code; decisions are left out.
- Docstrings: at least 93 % of public modules, classes and functions of app/ have one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "app" / "evaldesk"
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
CODE = re.compile(r"^```.*?^```|`[^`]*`", re.DOTALL | re.MULTILINE)
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
MOST_NAMES, MOST_RELATIVES, LEAST_DOCUMENTED = 0.3, 2.0, 93.0


@dataclass
class Counts:
    """The counts of the package, names and free relatives by file."""

    names: Counter[str] = field(default_factory=Counter)
    relatives: Counter[str] = field(default_factory=Counter)
    page_relatives: Counter[str] = field(default_factory=Counter)
    n_page_words: int = 0
    n_names: int = 0
    n_words: int = 0
    n_public: int = 0
    n_documented: int = 0

    @property
    def names_percent(self) -> float:
        """Names that are a participle or adjective, 0 to 100."""
        return 100 * self.names.total() / max(1, self.n_names)

    @property
    def relatives_rate(self) -> float:
        """Free relatives in 1,000 words of docstrings."""
        return 1000 * self.relatives.total() / max(1, self.n_words)

    @property
    def page_relatives_rate(self) -> float:
        """Free relatives in 1,000 words of the pages of documentation."""
        return 1000 * self.page_relatives.total() / max(1, self.n_page_words)

    @property
    def documented_percent(self) -> float:
        """Public modules, classes and functions with a docstring, 0 to 100."""
        return 100 * self.n_documented / max(1, self.n_public)

    def add(self, place: str, tree: ast.Module) -> None:
        """Count a module."""
        for name in assigned_names(tree):
            self.n_names += 1
            self.names[place] += is_no_name(name)
        for node in _documentable(tree):
            text = ast.get_docstring(node) or ""
            self.n_words += len(WORD.findall(text))
            self.relatives[place] += len(free_relatives(text))
            if isinstance(node, ast.Module) or not node.name.startswith("_"):
                self.n_public += 1
                self.n_documented += bool(text)

    def add_page(self, place: str, text: str) -> None:
        """Count a page of documentation, without its code."""
        prose = CODE.sub("", text)
        self.n_page_words += len(WORD.findall(prose))
        self.page_relatives[place] += len(FREE_RELATIVES.findall(prose))

    def findings(self) -> list[str]:
        """The targets that are missed."""
        found: list[str] = []
        if self.names_percent > MOST_NAMES:
            most = ", ".join(f"{place} {n}" for place, n in self.names.most_common(5))
            found.append(
                f"names: {self.names_percent:.2f} % are a bare participle or adjective (found, kept, whole, ...), "
                f"wanted at most {MOST_NAMES:g} %; see .ci/check_words.py --list; most in {most}"
            )
        if self.relatives_rate > MOST_RELATIVES:
            most = ", ".join(f"{place} {n}" for place, n in self.relatives.most_common(5))
            found.append(
                f"docstrings: {self.relatives_rate:.1f} free relatives (what, who, those that, ...) in 1,000 words, "
                f"wanted at most {MOST_RELATIVES:g}; see .ci/check_words.py --list; most in {most}"
            )
        if self.page_relatives_rate > MOST_RELATIVES:
            most = ", ".join(f"{place} {n}" for place, n in self.page_relatives.most_common(5))
            found.append(
                f"documentation: {self.page_relatives_rate:.1f} free relatives in 1,000 words, wanted at most "
                f"{MOST_RELATIVES:g}; most in {most}"
            )
        if self.documented_percent < LEAST_DOCUMENTED:
            found.append(
                f"docstrings: {self.documented_percent:.1f} % of public modules, classes and functions have one, "
                f"wanted {LEAST_DOCUMENTED:g} %"
            )
        return found


def main(arguments: Sequence[str]) -> int:
    """Print the counts and the missed targets; 1 when there is one."""
    counts = count()
    show(counts)
    if "--list" in arguments:
        for title, each in (
            ("names", counts.names),
            ("free relatives", counts.relatives + counts.page_relatives),
        ):
            sys.stdout.writelines(f"  {n:4} {title} in {place}\n" for place, n in each.most_common() if n)
    findings = counts.findings()
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    return 1 if findings else 0


def count(folder: Path = APP) -> Counts:
    """The counts of all modules below the folder."""
    counts = Counts()
    for path in sorted(folder.rglob("*.py")):
        counts.add(str(path.relative_to(folder)), ast.parse(path.read_text("utf-8")))
    for path in PAGES if folder == APP else ():
        counts.add_page(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    return counts


def show(counts: Counts) -> None:
    """Print the counts, a line each."""
    sys.stdout.write(
        f"names that are a participle or adjective: {counts.names.total():,} of {counts.n_names:,} "
        f"({counts.names_percent:.2f} %); at most {MOST_NAMES:g} %\n"
        f"free relatives in 1,000 words of docstrings: {counts.relatives_rate:.1f} ({counts.relatives.total():,} in "
        f"{counts.n_words:,}); at most {MOST_RELATIVES:g}\n"
        f"free relatives in 1,000 words of documentation: {counts.page_relatives_rate:.1f} "
        f"({counts.page_relatives.total():,} in {counts.n_page_words:,}); at most {MOST_RELATIVES:g}\n"
        f"public docstrings: {counts.documented_percent:.1f} %; at least {LEAST_DOCUMENTED:g} %\n"
    )


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
        is_of_python = name.startswith("__")  # such as `__missing__`
        return (
            not is_of_python
            and len(words) == 1
            and words[0] in (PARTICIPLES | ADJECTIVES) - {"read", "split", "cut", "put"}
        )
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
