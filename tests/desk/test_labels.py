"""Labels of people: kept with the trial that was played, compared with the metrics, said in words."""

from __future__ import annotations

import getpass
import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.desk.stored_desk import desk_on
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.labels import LabelDesk, Person, TypedLabel
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentRef, Case, Criterion, RunConfig, Score, TrialResult, Turn, Verdict
from evaldesk.model.stored import LabelFilter
from evaldesk.pages.labels import cursor_time, read_labels
from evaldesk.store import Store

ANA = TypedLabel("Ana", "passed", "good enough")
METRIC = Criterion("response_match_score", 0.8)


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A workspace whose clock moves on a second with each look."""
    seconds = itertools.count()
    start = datetime(2026, 11, 21, tzinfo=UTC)
    place = place_of(request, tmp_path / "evaldesk.db")
    with Store.open(place, clock=lambda: start + timedelta(seconds=next(seconds))) as opened:
        yield opened


def played(store: Store, verdicts: str, **config: object) -> int:
    """A run of one trial for each letter: `p` passed, `f` failed."""
    cases = [Case(f"c{index}", (Turn("Roll."),)) for index in range(len(verdicts))]
    frozen = replace(RunConfig(AgentRef("dice", "dice:agent"), "set", criteria=(METRIC,)), **config)  # type: ignore[arg-type]
    run_id = store.runs.create(frozen, cases)
    store.runs.record([_result(run_id, index, letter == "p") for index, letter in enumerate(verdicts)])
    return run_id


def _result(run_id: int, case_index: int, is_passed: bool) -> TrialResult:
    verdict: Verdict = "passed" if is_passed else "failed"
    score = Score(METRIC.metric, float(is_passed), None, 0.8, is_passed)
    return TrialResult(run_id, case_index, 0, status="finished", verdict=verdict, scores=(score,))


def label(store: Store, run_id: int, verdicts: str, who: str = "Ana") -> None:
    """Label the first trials of a run; a space leaves one out, `u` is unsure."""
    said = {"p": "passed", "f": "failed", "u": "unsure"}
    for index, letter in enumerate(verdicts):
        if letter != " ":
            LabelDesk(store).put(run_id, (index, 0), TypedLabel(who, said[letter]), 1)


def test_a_label_takes_the_place_of_an_earlier_one_of_the_same_person(store: Store) -> None:
    run = played(store, "pf")

    LabelDesk(store).put(run, (1, 0), ANA, 1)
    LabelDesk(store).put(run, (1, 0), replace(ANA, verdict="failed", note=""), 1)
    LabelDesk(store).put(run, (1, 0), TypedLabel("Ben", "unsure"), 1)
    LabelDesk(store).put(run, (1, 0), TypedLabel("Ana", "", "odd wording", "0"), 1)

    found = [(each.labeller, each.verdict, each.note, each.turn) for each in LabelDesk(store).panel(run, (1, 0)).labels]
    assert found == [("Ana", "failed", ANA.note, None), ("Ben", "unsure", "", None), ("Ana", None, "odd wording", 0)]
    assert Person(store).name() == "Ana"


def test_what_is_not_said_now_stays(store: Store) -> None:
    run, desk = played(store, "p"), LabelDesk(store)

    desk.put(run, (0, 0), TypedLabel("Ana", "passed"), 1)
    desk.put(run, (0, 0), TypedLabel("Ana", "", "odd wording"), 1)
    desk.put(run, (0, 0), TypedLabel("Ana", "failed"), 1)

    (label,) = desk.panel(run, (0, 0)).labels
    assert (label.verdict, label.note) == ("failed", "odd wording")


def test_nobody_is_offered_the_name_of_another_on_a_database_that_is_shared(store: Store) -> None:
    run = played(store, "p")
    ana, ben = (LabelDesk(store, Person(store, is_alone=False)) for _ in range(2))
    ana.put(run, (0, 0), ANA, 1)

    assert ana.panel(run, (0, 0)).form.labeller == "Ana"
    assert ben.panel(run, (0, 0)).form.labeller == getpass.getuser()
    ben.put(run, (0, 0), TypedLabel("Ben", "failed"), 1)
    assert ben.panel(run, (0, 0)).form.labeller == "Ben"
    assert {each.labeller for each in ben.panel(run, (0, 0)).labels} == {"Ana", "Ben"}


def test_a_label_can_be_taken_away(store: Store) -> None:
    run = played(store, "p")
    LabelDesk(store).put(run, (0, 0), ANA, 1)

    LabelDesk(store).put(run, (0, 0), TypedLabel("Ana", op="remove"), 1)

    assert LabelDesk(store).panel(run, (0, 0)).labels == []


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        (TypedLabel("", "passed"), "labeller"),
        (TypedLabel("a" * 81, "passed"), "labeller"),
        (TypedLabel("a\x1b[31m", "passed"), "labeller"),
        (TypedLabel("Ana", "great"), "verdict"),
        (TypedLabel("Ana", "", "  "), "note"),
        (TypedLabel("Ana", "passed", "x" * 2001), "note"),
        (TypedLabel("Ana", "passed", "", "1"), "turn"),
        (TypedLabel("Ana", "passed", "", "-1"), "turn"),
    ],
)
def test_what_is_no_label_is_refused_beside_its_field(store: Store, typed: TypedLabel, field: str) -> None:
    run = played(store, "p")

    with pytest.raises(UsageError) as caught:
        LabelDesk(store).put(run, (0, 0), typed, 1)

    assert caught.value.field == field
    assert store.labels.count(LabelFilter()) == 0


def test_labels_of_trials_that_do_not_exist_are_refused(store: Store) -> None:
    run = played(store, "p")

    for at, key in ((run, (5, 0)), (run, (0, 3)), (99, (0, 0))):
        with pytest.raises(NotFoundError):
            LabelDesk(store).put(at, key, ANA, 1)


def test_a_trial_that_is_scored_again_shares_the_labels_of_the_one_that_was_played(store: Store) -> None:
    source = played(store, "pp")
    again = played(store, "fp", source_run_id=source)

    LabelDesk(store).put(again, (0, 0), ANA, 1)

    assert [each.labeller for each in LabelDesk(store).panel(source, (0, 0)).labels] == ["Ana"]
    assert LabelDesk(store).panel(again, (0, 0)).where == source
    verdicts = {
        run: read_labels(desk_on(store), LabelFilter(run_id=run)).agreements[0].skill for run in (source, again)
    }
    assert verdicts[source] == "The verdict agrees with the labels 1 time of 1"
    assert verdicts[again] == "The verdict agrees with the labels 0 times of 1"


def test_labels_go_with_their_run(store: Store) -> None:
    run = played(store, "p")
    LabelDesk(store).put(run, (0, 0), ANA, 1)

    store.runs.delete(run)

    assert read_labels(desk_on(store), LabelFilter()).n_all == 0


def test_a_metric_is_measured_by_the_labels_and_its_rate_corrected(store: Store) -> None:
    run = played(store, "pppppppfff" * 2)
    label(store, run, "ppppppfffp" * 2)

    found = read_labels(desk_on(store), LabelFilter(run_id=run))

    verdict, metric = found.agreements
    assert verdict.skill == "The verdict agrees with the labels 16 times of 20; on failures 4 of 6"
    assert metric.skill == "Response match agrees with the labels 16 times of 20; on failures 4 of 6"
    assert metric.kappa == "kappa 0.52, 95 % CI 0.12 to 0.93"
    assert metric.enough == "Too few labels: add 30 more labels and 9 more of failures"
    assert metric.corrected == "Response match says 70 %; corrected about 70 %, 95 % CI 36–100 %"
    assert found.alpha == ""


def test_the_labels_that_are_missing_are_told_for_each_verdict_of_the_judge(store: Store) -> None:
    run = played(store, "pppppppfff" * 10)
    label(store, run, "ppppppfffp" + " " * 90)

    some = read_labels(desk_on(store), LabelFilter(run_id=run)).agreements[0]
    label(store, run, "ppppppfffp" * 10)
    every = read_labels(desk_on(store), LabelFilter(run_id=run)).agreements[0]

    assert some.next_labels == "For ± 10 points, label 43 that it passed and 22 that it failed"
    assert every.next_labels == ""


def test_people_are_compared_with_one_another_where_they_labelled_the_same(store: Store) -> None:
    run = played(store, "ppff")
    label(store, run, "ppff", "Ana")
    label(store, run, "ppf ", "Ben")
    label(store, run, "u  p", "Cleo")

    found = read_labels(desk_on(store), LabelFilter())

    assert (
        found.alpha == "3 people labelled 4 trials in common: Krippendorff's alpha 0.53, too low to rely on the labels"
    )
    assert found.agreements[0].skill == "The verdict agrees with the labels 3 times of 3; on failures 1 of 1"


def test_labels_are_filtered_and_come_a_page_at_a_time(store: Store) -> None:
    run, other = played(store, "p" * 60), played(store, "f")
    label(store, run, "f" + "p" * 59)
    label(store, other, "u", "Ben")

    everything = read_labels(desk_on(store), LabelFilter())

    assert [(each.text, each.n) for each in everything.filters] == [
        ("All", 61),
        ("passed", 59),
        ("failed", 1),
        ("unsure", 1),
        ("metrics disagree", 1),
    ]
    assert (len(everything.labels), everything.labels[0].label.labeller) == (50, "Ben")
    older = read_labels(desk_on(store), LabelFilter(), cursor_time(everything.older_href.rpartition("=")[2]))
    assert (len(older.labels), older.older_href) == (11, "")
    wrong = read_labels(desk_on(store), LabelFilter(is_disagreement=True)).labels
    assert [(each.case_id, each.is_disagreement) for each in wrong] == [("c0", True)]
    assert [each.run_id for each in read_labels(desk_on(store), LabelFilter(labeller="Ben")).labels] == [other]


@pytest.mark.parametrize("text", ["", "soon", "-1", "9" * 18, "9" * 400])
def test_a_strange_cursor_begins_at_the_newest(text: str) -> None:
    assert cursor_time(text) is None
