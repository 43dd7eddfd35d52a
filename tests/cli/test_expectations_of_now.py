"""A run is scored again by the expectations that its eval set has now, where its cases still ask the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from evaldesk.desk.runs.set_changes import set_changes
from evaldesk.model import Case, Expected, Turn

if TYPE_CHECKING:
    from tests.cli.conftest import Place

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

    assert (changes.asserting, changes.asking, changes.gone, changes.n_new) == found
    assert sentence in changes.sentence
    assert bool(changes.sentence) == bool(sentence)
    assert [case.id for case in changes.cases] == ["a", "b"]
    assert changes.cases[0] == (EXPECTING if changes.asserting else PLAYED[0])


def test_the_shell_scores_by_the_expectations_of_the_run_or_of_now(place: Place) -> None:
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


def test_a_set_that_is_not_here_says_what_to_do(place: Place) -> None:
    (place.folder / "evalsets").mkdir()
    path = place.evalset("evalsets/greet", {"hi": "hi"})
    place.eval(path)
    path.unlink()

    result = place.run(
        "run", "rescore", 1, "--config-file-path", place.folder / "test_config.json", "--expectations", "set"
    )

    assert result.exit_code != 0
    assert "its eval set greet is not here; score it by the expectations of the run" in str(result.exception)
