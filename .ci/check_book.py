"""Check the documentation for builders: docs/decisions with its index, docs/architecture.md with its picture.

    python .ci/check_book.py             print every finding; 1 when there is one
    python .ci/check_book.py --write     write docs/decisions/README.md anew from the pages

A page of a decision begins so:

    # 470 · Frozen code of graders
    Group: grading · Status: holds · Was: 218, 442

The title has a term of the glossary in CONTRIBUTING.md. Status is "holds" or "replaced by NNN". "Was" names the numbers
whose subject this page holds now. Each page is cited by its number from code, tests or another document:
"decision 470", or "docs/decisions/470".
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path("docs/decisions")
INDEX = FOLDER / "README.md"
ARCHITECTURE = Path("docs/architecture.md")
GLOSSARY = Path("CONTRIBUTING.md")
EXAMPLES = ("check_book.py", "test_tree_checks.py")
"""Files whose numbers are examples."""
GROUPS = {
    "house": "The code base",
    "tests": "Tests and figures",
    "agents": "Agents",
    "models": "Model calls",
    "workers": "Worker processes and executors",
    "grading": "Metrics and judges",
    "verdicts": "Verdicts, gates and statistics",
    "runs": "Runs",
    "evalsets": "Eval sets and cases",
    "formats": "Files of other tools",
    "store": "The store",
    "failures": "Labels, findings and failure modes",
    "pages": "Pages",
    "security": "Trust, secrets and the guard",
}
HEAD = re.compile(r"# (\d{3}) · (.+)\n\nGroup: (\w+) · Status: (holds|replaced by \d{3})(?: · Was: ([\d, ]+))?\n")
CITATION = re.compile(r"decisions?[ /](?:docs/decisions/)?(\d{3}(?:(?:, | and | to )\d{3})*)")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"`((?:\.ci|tests|docs)/[\w./-]+|[\w./]+(?:\.py|/))`")
IDENTIFIER = re.compile(r"`(?:\w+\.)?(_?[A-Z]\w*[a-z_]\w*|[A-Z][A-Z_]{2,}|[a-z]+_[a-z_]+)(?:\(.*?\))?`")
"""A name of code in prose: a class, a constant, or a word with an underscore."""
TARGETS = re.compile(r"`make ((?:[a-z]+ ?)+)`")
# Adjectives and general words are in many titles without naming their subject.
TERMS_BESIDES = (
    *(
        "module",
        "import",
        "package",
        "file",
        "database",
        "table",
        "template",
        "page",
        "chart",
        "browser",
        "test",
        "bench",
    ),
    *("process", "thread", "event loop", "container", "sandbox", "fork", "executor", "retry", "rate limit", "fault"),
    *("cookie", "referrer", "redirect", "guard", "client", "gateway", "span", "image", "interpreter", "lock"),
    *("transaction", "upload", "export", "search", "preset", "journey", "budget", "codec", "statistic", "pass rate"),
    *("function", "comparison", "benchmark", "stand-in", "report", "line count", "form", "key", "toast", "packaging"),
)


@dataclass(frozen=True)
class Page:
    """One page of a decision, as its head tells it."""

    name: str
    number: str
    title: str
    group: str
    status: str
    earlier: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Write the index, or print every finding; 1 when there is one."""
    if "--write" in arguments:
        (ROOT / INDEX).write_text(index(read_pages()[0]), "utf-8")
    findings = check_book()
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    return 1 if findings else 0


def check_book() -> list[str]:
    """Each fault of the decisions, their index, and the paths and names of the pages for builders."""
    pages, findings = read_pages()
    terms = read_terms()
    findings += [
        f"{FOLDER / page.name}: the title {page.title!r} has no term of the glossary in {GLOSSARY}"
        for page in pages
        if not names_term(page.title, terms)
    ]
    findings += _numbers(pages)
    listed = (ROOT / INDEX).read_text("utf-8") if (ROOT / INDEX).is_file() else ""
    if listed != index(pages):
        findings.append(f"{INDEX}: it is not what the pages say; run: .venv/bin/python .ci/check_book.py --write")
    cited = read_citations()
    known = {number for page in pages for number in (page.number, *page.earlier)}
    findings += [f"{place}: there is no decision {number}" for number, place in cited if number not in known]
    numbers = {number for number, place in cited if not place.startswith(f"{FOLDER}/")}
    findings += [
        f"{FOLDER / page.name}: no code, test or other document cites decision {page.number}"
        for page in pages
        if page.status == "holds" and not numbers & {page.number, *page.earlier}
    ]
    return [*findings, *dead_links(), *lost_names()]


def read_pages() -> tuple[list[Page], list[str]]:
    """The pages of decisions in the order of their numbers, and a finding for each whose head cannot be read."""
    pages: list[Page] = []
    findings: list[str] = []
    for path in sorted((ROOT / FOLDER).glob("*.md")):
        if path.name == INDEX.name:
            continue
        found = HEAD.match(path.read_text("utf-8"))
        if not found or not path.name.startswith(f"{found[1]}-") or found[3] not in GROUPS:
            findings.append(
                f"{FOLDER / path.name}: it must begin with '# {path.name[:3]} · TITLE', an empty line, and "
                f"'Group: GROUP · Status: holds'; groups: {', '.join(GROUPS)}"
            )
            continue
        earlier = tuple(each.strip() for each in (found[5] or "").split(",") if each.strip())
        pages.append(Page(path.name, found[1], found[2], found[3], found[4], earlier))
    return pages, findings


def index(pages: Sequence[Page]) -> str:
    """The text of the index: the pages by group, then every number with the page that holds its subject."""
    lines = [
        "# Decisions",
        "",
        "Choices that are hard to reverse, one page a subject: context, decision, consequences. A new choice on a",
        "known subject changes its page. Code that looks odd cites a number; the last table leads from every number",
        "that ever was to its page. This index is written by `.ci/check_book.py --write`.",
    ]
    for group, title in GROUPS.items():
        lines += ["", f"## {title}", "", "| number | subject | status | earlier numbers |", "|---|---|---|---|"]
        lines += [
            f"| {page.number} | [{page.title}]({page.name}) | {page.status} | {', '.join(page.earlier)} |"
            for page in pages
            if page.group == group
        ]
    numbers = {number: page for page in pages for number in (page.number, *page.earlier)}
    lines += ["", "## All numbers", "", "| number | page |", "|---|---|"]
    lines += [f"| {number} | [{page.title}]({page.name}) |" for number, page in sorted(numbers.items())]
    return "\n".join([*lines, ""])


def read_terms() -> set[str]:
    """The terms of the glossary, and the words of subjects that it does not have."""
    text = (ROOT / GLOSSARY).read_text("utf-8")
    _, _, glossary = text.partition("## Glossary")
    rows = re.findall(r"^\| ([^|]+) \|", glossary.partition("\n## ")[0], re.MULTILINE)
    terms = {term.strip() for row in rows for term in row.split(",")} - {"term", "---"}
    return terms | set(TERMS_BESIDES)


def names_term(title: str, terms: set[str]) -> bool:
    """Whether one of the terms is in the title, in singular or plural."""
    return any(re.search(rf"(?i)\b{_stem(term)}(?:e?s|ies|ing)?\b", title) for term in terms)


def read_citations() -> list[tuple[str, str]]:
    """Each number of a decision that a tracked text names, with the file."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [
        (number, name)
        for name in listed
        if name.endswith((".py", ".md", ".toml", ".js", ".html", ".css", "Makefile", "run")) and name != str(INDEX)
        for number in _cited_in(ROOT / name)
    ]


def _cited_in(path: Path) -> Iterator[str]:
    if not path.is_file() or path.name in EXAMPLES:
        return
    for found in CITATION.finditer(path.read_text("utf-8")):
        yield from re.findall(r"\d{3}", found[1])


def _stem(term: str) -> str:
    return re.escape(term[:-1] if term.endswith("y") else term) + ("(?:y|(?=ies))" if term.endswith("y") else "")


def _numbers(pages: Sequence[Page]) -> list[str]:
    used = Counter(number for page in pages for number in (page.number, *page.earlier))
    found = [f"{FOLDER}: two pages hold the number {number}" for number, n in sorted(used.items()) if n > 1]
    for page in pages:
        if page.status != "holds" and page.status[-3:] not in used:
            found.append(f"{FOLDER / page.name}: {page.status}, which is no page")
    return found


def dead_links() -> list[str]:
    """Each link of a document that leads to no file, or to no heading of it."""
    findings: list[str] = []
    for path in [*sorted((ROOT / "docs").glob("**/*.md")), *sorted(ROOT.glob("*.md"))]:
        for target, anchor in LINK.findall(path.read_text("utf-8")):
            found = path.parent / target if target else path
            if not found.exists() or (anchor and found.suffix == ".md" and anchor not in _anchors(found)):
                findings.append(f"{path.relative_to(ROOT)}: {target}{anchor and '#'}{anchor} leads nowhere")
    return findings


def _anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and others make them."""
    headings = HEADING.findall(path.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost_names() -> list[str]:
    """Each path, name of code and target of make on the pages for builders that does not exist."""
    sources = [path.read_text("utf-8") for path in _sources()]
    words = {word for text in sources for word in re.findall(r"\w+", text)}
    makefile = ROOT / "Makefile"
    targets = set(re.findall(r"^([a-z]+):", makefile.read_text("utf-8"), re.MULTILINE)) if makefile.is_file() else set()
    findings = []
    for page in (ARCHITECTURE, GLOSSARY):
        text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        lost = [path for path in PATH.findall(text) if not _is_there(path)]
        lost += [name for name in IDENTIFIER.findall(text) if name not in words]
        lost += [f"make {name}" for row in TARGETS.findall(text) for name in row.split() if name not in targets]
        findings += [f"{page}: {name} does not exist; name the place where this is done now" for name in lost]
    return findings


def _sources() -> Iterator[Path]:
    for folder in ("app", "tests", ".ci"):
        yield from (ROOT / folder).rglob("*.py")


def _is_there(path: str) -> bool:
    return any((ROOT / folder / path).exists() for folder in ("", "app/evaldesk", "tests"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
