"""The checks of `make check` that hold the documentation for builders to the code."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import grimp
import pytest

FOLDER = Path(__file__).resolve().parents[1] / ".ci"


def _script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("draw_floors", monkeypatch)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _script("check_words", monkeypatch)


def test_the_picture_of_the_floors_is_what_the_imports_say(floors: ModuleType) -> None:
    assert floors.drift(grimp.build_graph("evaldesk")) == []


def test_a_new_dependency_between_rooms_makes_the_picture_old(floors: ModuleType) -> None:
    graph = grimp.build_graph("evaldesk")

    graph.add_import(importer="evaldesk.web", imported="evaldesk.samples")

    assert "run: .venv/bin/python .ci/draw_floors.py" in floors.drift(graph)[0]


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
