"""Labels of single turns beside what the metrics said of the same turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.desk.stored_desk import desk_on

from evaldesk.desk.labels import LabelDesk, TypedLabel
from evaldesk.model import AgentRef, Case, Criterion, RunConfig, Score, TrialResult, Turn
from evaldesk.model.stored import LabelFilter
from evaldesk.pages import labels as label_agreement
from evaldesk.pages.labels import read_labels
from evaldesk.store import Store

METRIC = "response_match_score"
CONFIG = RunConfig(AgentRef("dice", "dice:agent"), "set", criteria=(Criterion(METRIC, 0.8),))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def played(store: Store, *strips: str, **config: object) -> int:
    """A run with one trial for each strip, and a turn for each letter: what the metric said of it, ` ` for nothing."""
    cases = [Case(f"c{at}", tuple(Turn("Roll.") for _ in verdicts)) for at, verdicts in enumerate(strips)]
    run_id = store.runs.create(replace(CONFIG, **config), cases)  # type: ignore[arg-type]
    for at, verdicts in enumerate(strips):
        scores = [
            Score(METRIC, float(letter == "p"), turn, 0.8, letter == "p")
            for turn, letter in enumerate(verdicts)
            if letter != " "
        ]
        whole = (*scores, Score(METRIC, 0.5, None, 0.8, False))
        store.runs.record([TrialResult(run_id, at, 0, "finished", "failed", scores=whole)])
    return run_id


def label(store: Store, run_id: int, case: int, verdicts: str, who: str = "Ana") -> None:
    for turn, letter in enumerate(verdicts):
        if letter != " ":
            verdict = {"p": "passed", "f": "failed", "u": "unsure"}[letter]
            LabelDesk(store).put(run_id, (case, 0), TypedLabel(who, verdict, "", str(turn)), len(verdicts))


def test_turns_are_compared_with_the_scores_of_the_same_turns(store: Store) -> None:
    run = played(store, "ppff", "pf p")
    label(store, run, 0, "ppfp")
    label(store, run, 1, "uffp")

    for wanted in (LabelFilter(run_id=run), LabelFilter()):
        found = read_labels(desk_on(store), wanted)

        (metric,) = found.turn_agreements
        assert metric.skill == "Response match agrees with the labels 5 times of 6; on failures 2 of 2"
        assert metric.kappa.startswith("kappa 0.67, 95 % CI")
        assert metric.enough == "Too few labels: add 44 more labels and 13 more of failures"
        assert (metric.corrected, found.agreements) == ("", [])


def test_people_who_labelled_the_same_turns_are_compared(store: Store) -> None:
    run = played(store, "ppff")
    label(store, run, 0, "ppff")
    label(store, run, 0, "ppf ", "Ben")
    label(store, run, 0, "  pf", "Cleo")

    found = read_labels(desk_on(store), LabelFilter())

    assert found.turn_alpha.startswith("3 people labelled 4 turns in common: Krippendorff's alpha")
    assert found.alpha == ""


def test_a_run_that_was_scored_again_has_its_new_scores_compared(store: Store) -> None:
    source = played(store, "pp")
    again = played(store, "ff", source_run_id=source)
    label(store, again, 0, "pp")

    found = {
        run: read_labels(desk_on(store), LabelFilter(run_id=run)).turn_agreements[0].skill for run in (source, again)
    }

    assert found[source] == "Response match agrees with the labels 2 times of 2"
    assert found[again] == "Response match agrees with the labels 0 times of 2"


def test_of_very_many_labelled_trials_the_newest_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_agreement, "MAX_TRIALS", 1)
    run = played(store, "pp", "pf")
    label(store, run, 0, "ff")
    label(store, run, 1, "pf")

    found = read_labels(desk_on(store), LabelFilter())

    (metric,) = found.turn_agreements
    assert metric.skill == "Response match agrees with the labels 2 times of 2; on failures 1 of 1"
    assert found.turn_bound == "Based on the 1 most recently labelled trials."


def test_without_labels_of_turns_there_is_nothing_to_say(store: Store) -> None:
    run = played(store, "p")
    LabelDesk(store).put(run, (0, 0), TypedLabel("Ana", "passed"), 1)

    found = read_labels(desk_on(store), LabelFilter())

    assert (found.turn_agreements, found.turn_alpha, found.turn_bound) == ([], "", "")
