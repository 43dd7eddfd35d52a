"""The checks of `make check` that hold the documentation for builders to the code."""

from __future__ import annotations

import ast
import importlib
import subprocess
from pathlib import Path
from types import ModuleType

import grimp
import pytest
from tests.islands import of_all_tools

FOLDER = Path(__file__).resolve().parents[1] / ".ci"


def _script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("draw_floors", monkeypatch)


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("check_book", monkeypatch)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("check_words", monkeypatch)


@pytest.fixture
def comments(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("check_comments", monkeypatch)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("evaldesk")


@of_all_tools
def test_the_picture_of_the_floors_is_what_the_imports_say(floors: ModuleType, graph: grimp.ImportGraph) -> None:
    assert floors.drift(graph) == []


def test_a_new_dependency_between_rooms_makes_the_picture_old(floors: ModuleType, graph: grimp.ImportGraph) -> None:
    graph.add_import(importer="evaldesk.web", imported="evaldesk.samples")

    findings = floors.drift(graph)
    graph.remove_import(importer="evaldesk.web", imported="evaldesk.samples")

    assert "run: .venv/bin/python .ci/draw_floors.py" in findings[0]


def test_an_arrow_that_others_imply_is_left_out(floors: ModuleType) -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")):
        for room in (importer, imported):
            graph.add_module(f"evaldesk.{room}")
        graph.add_import(importer=f"evaldesk.{importer}", imported=f"evaldesk.{imported}")

    assert floors.room_imports(graph, ["a", "b", "c", "d"]) == {
        "a": frozenset({"b", "d"}),
        "b": frozenset({"c"}),
        "c": frozenset(),
        "d": frozenset(),
    }


@pytest.mark.parametrize(
    ("name", "is_none"),
    [
        ("said", True),
        ("_kept", True),
        ("whole", True),
        ("lines_read", False),
        ("n_kept", False),
        ("expected_calls", False),
        ("told()", True),
        ("_asked()", True),
        ("read()", False),
        ("is_kept()", False),
        ("passed", False),
    ],
)
def test_a_bare_participle_or_adjective_is_no_name(words: ModuleType, name: str, is_none: bool) -> None:
    assert words.is_no_name(name) is is_none


def test_variables_arguments_loops_and_functions_are_names(words: ModuleType) -> None:
    tree = ast.parse(
        "def read(given):\n    said = given\n    for kept in said: (told := kept)\n    with said as held: pass\n"
    )

    assert sorted(words.assigned_names(tree)) == ["given", "held", "kept", "read()", "said", "told"]


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("What a worker does, and who asks for it.", 2),
        ("Those that are left, as many as there are.", 2),
        ("The calls of a turn, `what` in code apart.", 0),
        ("Reset a run's stop decision before a retry.", 0),
    ],
)
def test_free_relatives_are_counted_outside_of_code(words: ModuleType, text: str, n: int) -> None:
    assert len(words.free_relatives(text)) == n


def test_too_many_bare_participles_are_a_finding(words: ModuleType, tmp_path: Path) -> None:
    nouns = "".join(f"line_{n} = {n}\n" for n in range(998))
    (tmp_path / "rows.py").write_text(f'"""The lines of a file."""\nkept = 1\ntold = 2\n{nouns}', "utf-8")
    assert words.count(tmp_path).findings() == []

    (tmp_path / "more.py").write_text('"""More lines."""\nsaid = 1\nwhole = 2\n', "utf-8")
    (names,) = words.count(tmp_path).findings()

    assert names.startswith("names: 0.40 % are a bare participle")
    assert "most in rows.py 2, more.py 2" in names or "most in more.py 2, rows.py 2" in names


def test_too_many_free_relatives_and_too_few_docstrings_are_findings(words: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text('"""The calls of a turn."""\n', "utf-8")
    assert words.count(tmp_path).findings() == []

    (tmp_path / "bad.py").write_text('"""What is said."""\n\ndef play(): ...\n', "utf-8")
    relatives, missing = words.count(tmp_path).findings()

    assert "most in bad.py 1" in relatives
    assert missing.startswith("docstrings: 66.7 % of public modules")


def test_too_many_free_relatives_of_the_documentation_are_a_finding(words: ModuleType) -> None:
    counts = words.Counts()
    counts.add_page("docs/good.md", f"{'A run has trials. ' * 100}\n```\nwhat a block of code is\n```\n`what` it is")
    assert counts.findings() == ["docstrings: 0.0 % of public modules, classes and functions have one, wanted 93 %"]

    counts.add_page("docs/bad.md", "What a person who asks gets.")
    (relatives, _) = counts.findings()

    assert relatives.startswith("documentation: 4.9 free relatives in 1,000 words, wanted at most 2")
    assert relatives.endswith("most in docs/bad.md 2, docs/good.md 0")


@of_all_tools
def test_the_decisions_and_their_index_are_whole(book: ModuleType) -> None:
    assert book.check_book() == []


@pytest.mark.parametrize(
    ("title", "is_one"),
    [
        ("Leases of runs", True),
        ("Retries of model calls", True),
        ("Case histories and forecasts of gates", True),
        ("Said in the corner", False),
        ("A thing is said once", False),
        ("Nothing is replaced unseen", False),
    ],
)
def test_a_title_names_its_subject_by_a_term(book: ModuleType, title: str, is_one: bool) -> None:
    assert book.names_term(title, book.read_terms()) is is_one


@pytest.fixture
def small_book(book: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book of two pages without a fault."""
    files = {
        "CONTRIBUTING.md": "## Glossary\n\n| term | meaning |\n|---|---|\n| run | ... |\n| trial | ... |\n",
        "docs/architecture.md": "`app/evaldesk/` and [the decisions](decisions/README.md)\n",
        "docs/decisions/001-runs.md": "# 001 · Runs\n\nGroup: runs · Status: holds · Was: 002, 003\n\nText.\n",
        "docs/decisions/004-trials.md": "# 004 · Trials\n\nGroup: runs · Status: replaced by 001\n\nText.\n",
        "app/evaldesk/runs.py": "# Odd, as decision 003 says.\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # noqa: S607
    book.main(["--write"])
    return tmp_path


def test_a_book_without_a_fault_has_no_finding(book: ModuleType, small_book: Path) -> None:
    assert book.check_book() == []


def test_the_index_leads_from_each_number_to_its_page(small_book: Path) -> None:
    index = (small_book / "docs/decisions/README.md").read_text("utf-8")

    assert [line for line in index.splitlines() if line.startswith("| 00")] == [
        "| 001 | [Runs](001-runs.md) | holds | 002, 003 |",
        "| 004 | [Trials](004-trials.md) | replaced by 001 |  |",
        "| 001 | [Runs](001-runs.md) |",
        "| 002 | [Runs](001-runs.md) |",
        "| 003 | [Runs](001-runs.md) |",
        "| 004 | [Trials](004-trials.md) |",
    ]


FAULTS = {
    "head": (
        "docs/decisions/005-a.md",
        "# 005 · Runs\n",
        "docs/decisions/005-a.md: it must begin with '# 005 · TITLE'",
    ),
    "group": (
        "docs/decisions/005-a.md",
        "# 005 · Runs\n\nGroup: none · Status: holds\n",
        "docs/decisions/005-a.md: it must begin with '# 005 · TITLE'",
    ),
    "index": (
        "docs/decisions/005-a.md",
        "# 005 · Runs\n\nGroup: runs · Status: holds\n",
        "docs/decisions/README.md: it is not what the pages say",
    ),
    "number": (
        "docs/decisions/004-trials.md",
        "# 004 · Trials\n\nGroup: runs · Status: holds · Was: 003\n",
        "docs/decisions: two pages hold the number 003",
    ),
    "replaced": (
        "docs/decisions/004-trials.md",
        "# 004 · Trials\n\nGroup: runs · Status: replaced by 009\n",
        "docs/decisions/004-trials.md: replaced by 009, which is no page",
    ),
    "title": (
        "docs/decisions/004-trials.md",
        "# 004 · What stays\n\nGroup: runs · Status: replaced by 001\n",
        "docs/decisions/004-trials.md: the title 'What stays' has no term of the glossary",
    ),
    "uncited": (
        "app/evaldesk/runs.py",
        "# Plain.\n",
        "docs/decisions/001-runs.md: no code, test or other document cites decision 001",
    ),
    "unknown": ("app/evaldesk/more.py", "# see decision 010\n", "app/evaldesk/more.py: there is no decision 010"),
    "link": ("docs/other.md", "[a page](nowhere.md)\n", "docs/other.md: nowhere.md leads nowhere"),
    "anchor": ("docs/other.md", "# One\n[two](#two)\n", "docs/other.md: #two leads nowhere"),
    "path": ("docs/architecture.md", "`desk/gone.py`\n", "docs/architecture.md: desk/gone.py does not exist"),
    "class": ("docs/architecture.md", "`GoneAway`\n", "docs/architecture.md: GoneAway does not exist"),
    "function": ("docs/architecture.md", "`go_away(run)`\n", "docs/architecture.md: go_away does not exist"),
    "table": ("docs/architecture.md", "one line in `GONE`\n", "docs/architecture.md: GONE does not exist"),
    "target": ("docs/architecture.md", "`make check away`\n", "docs/architecture.md: make check does not exist"),
}


@pytest.mark.parametrize(("name", "text", "finding"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_the_book_is_a_finding(
    book: ModuleType, small_book: Path, name: str, text: str, finding: str
) -> None:
    (small_book / name).write_text(text, "utf-8")

    assert any(each.startswith(finding) for each in book.check_book()), book.check_book()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import threading\n_lock = threading.Lock()\n", [2]),
        ("import threading\n# Two threads must not start two loops (decision 003).\n_lock = threading.Lock()\n", []),
        (
            '"""A lock (decision 114)."""\nimport fcntl, os\nfcntl.flock(0, fcntl.LOCK_EX)\nos.kill(1, 0)\n',
            [],
        ),
        ("import os\n\ndef end():\n    os._exit(0)\n", [4]),
        ("import os\n\ndef end():\n    # No cleanup of an agent may run (decision 099).\n    os._exit(0)\n", []),
        ("import asyncio\n\ndef hide():\n    asyncio.tasks._enter_task(None, None)\n", [4]),
        ("from evaldesk.store import tables\ntables._LENGTHS\n", []),
        ("import struct\n\n# decision 089\ndef f(): ...\n\n\n\n\nLENGTHS = struct.Struct('>II')\n", [9]),
        ("from dataclasses import replace\nreplace(1)._private\n", []),
    ],
    ids=[
        "lock",
        "reason above",
        "reason of the module",
        "end",
        "reason inside",
        "private",
        "our own",
        "far",
        "of a value",
    ],
)
def test_an_odd_place_needs_the_number_of_its_decision(comments: ModuleType, text: str, lines: list[int]) -> None:
    assert [int(place.partition(":")[0]) for place in comments.odd_places(text)] == lines


def test_each_odd_place_of_the_package_has_its_decision(comments: ModuleType) -> None:
    assert comments.findings() == []
