"""A run is scored again by the expectations that its eval set has now, where its cases still ask the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.runs.set_changes import SetChanges, changes_on_page, set_changes
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.formats import write_evalset
from evaldesk.model import AgentRef, Case, EvalSet, Expected, RunConfig, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.evalsets import large
from evaldesk.store.evalsets.case_index import build_index
from evaldesk.store.runs.run_store import RunStore

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

PLAYED = (Case("a", (Turn("hi", Expected(reference="hello")),)), Case("b", (Turn("bye"),)))
EXPECTING = replace(PLAYED[0], turns=(Turn("hi", Expected(reference="hi")),))
ASKING = replace(PLAYED[0], turns=(Turn("hey", Expected(reference="hello")),))


@pytest.mark.parametrize(
    ("now", "found", "sentence"),
    [
        (PLAYED, ((), (), (), 0), ""),
        ((replace(PLAYED[0], tags=("x",)), PLAYED[1]), ((), (), (), 0), ""),
        (PLAYED[::-1], ((), (), (), 0), ""),
        ((EXPECTING, PLAYED[1]), (("a",), (), (), 0), "1 case asserts something else now (a)"),
        ((ASKING, PLAYED[1]), ((), ("a",), (), 0), "1 case asks something else now (a)"),
        (PLAYED[:1], ((), (), ("b",), 0), "1 case is gone (b)"),
        ((*PLAYED, replace(ASKING, id="c")), ((), (), (), 1), "1 case was not played"),
        ((replace(PLAYED[0], id="z"), PLAYED[1]), ((), (), (), 0), ""),
    ],
    ids=["same", "tags", "order", "expectation", "question", "deleted", "new", "another id"],
)
def test_a_set_is_compared_with_what_was_played(
    now: tuple[Case, ...], found: tuple[object, ...], sentence: str
) -> None:
    changes = set_changes(PLAYED, now)

    assert (changes.asserting, changes.asking, changes.removed_ids, changes.n_new) == found
    assert sentence in changes.sentence
    assert bool(changes.sentence) == bool(sentence)
    assert [case.id for case in changes.cases] == ["a", "b"]
    assert changes.cases[0] == (EXPECTING if changes.asserting else PLAYED[0])


MANY = tuple(Case(f"c{at}", (Turn(f"q{at}", Expected(reference=f"a{at}")),)) for at in range(600))
EDITS = {
    "an expectation": lambda cases: (replace(cases[0], turns=(Turn("q0", Expected(reference="b")),)), *cases[1:]),
    "a question": lambda cases: (replace(cases[0], turns=(Turn("q", Expected(reference="a0")),)), *cases[1:]),
    "another order, one gone and a new one": lambda cases: (*cases[:0:-1], Case("new", (Turn("q"),))),
    "a tag": lambda cases: (replace(cases[0], tags=("x",)), *cases[1:]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_large_set_is_compared_by_the_versions_of_its_cases(
    edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were read whole; no case is read but the edited ones."""
    monkeypatch.setattr(large, "WHOLE", 10_000)
    monkeypatch.setattr(large, "indexed_facts", build_index)
    path, settings = tmp_path / "many.evalset.json", Settings(tmp_path, (tmp_path,))
    path.write_bytes(write_evalset(EvalSet("many", cases=MANY), "adk"))
    now = EDITS[edit](MANY)
    with Store.open(tmp_path / "evaldesk.db") as store:
        evalsets, runs = EvalSetDesk(settings, store), StoredRuns(store.runs)
        (file,) = evalsets.list()
        config = RunConfig(AgentRef("a", "a"), file.id, evalset_path=str(path), evalset_version=file.version)
        run = store.runs.summary(store.runs.create(config, MANY))
        assert changes_on_page(evalsets, runs, run) is None
        path.write_bytes(write_evalset(EvalSet("many", cases=now), "adk"))
        monkeypatch.setattr(RunStore, "cases", None)

        found, whole = changes_on_page(evalsets, runs, run), set_changes(MANY, now)

    assert (found.sentence if found else "") == whole.sentence
    assert found is None or (found.choice, found.n_new) == (whole.choice, whole.n_new)


def test_a_large_set_with_many_edited_cases_says_how_many() -> None:
    found = SetChanges(("a",), (), (), 0, (), ("b", "c"))

    assert found.sentence.endswith("1 case asserts something else now (a), 2 cases are edited (b, c).")
    assert (found.choice, found.n_differing) == ("1 to 3 cases differ", 3)


def test_the_shell_scores_by_the_expectations_of_the_run_or_of_now(place: CommandFolder) -> None:
    (place.folder / "evalsets").mkdir()
    path = place.evalset("evalsets/greet", {"hi": "nothing of it", "yes": "yes"})
    place.eval(path)
    place.evalset("evalsets/greet", {"hi": "hi", "yes": "yes"})
    flags = ("--config-file-path", place.folder / "test_config.json")

    as_played = place.run("run", "rescore", 1, *flags)
    of_now = place.run("run", "rescore", 1, *flags, "--expectations", "set")

    assert "Expectations: as in the run; --expectations set takes those of now." in as_played.stderr
    assert "1 case asserts something else now (case_1)" in of_now.stderr
    assert (as_played.exit_code, of_now.exit_code) == (1, 0), of_now.output
    runs = place.store().runs
    assert [(run.config.source_run_id, run.counts.passed) for run in runs.list()] == [(1, 2), (1, 1), (None, 1)]


def test_a_set_that_is_not_here_says_what_to_do(place: CommandFolder) -> None:
    (place.folder / "evalsets").mkdir()
    path = place.evalset("evalsets/greet", {"hi": "hi"})
    place.eval(path)
    path.unlink()

    result = place.run(
        "run", "rescore", 1, "--config-file-path", place.folder / "test_config.json", "--expectations", "set"
    )

    assert result.exit_code != 0
    assert "its eval set greet is not here; score it by the expectations of the run" in str(result.exception)
