"""Findings and modes: stored for the trial that was played, merged, split, retired, fixed, reopened, and undone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from sqlalchemy.event import listen
from tests.desk.stored_desk import desk_on
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.failures import FailureDesk, TypedFinding, TypedMode, checked_anchor, find_judged_mode
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.metrics import check_criteria
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.failures import Anchor, FindingDraft, Mode, trial_number
from evaldesk.pages.failures.kind import calibrations
from evaldesk.statistics.agreement import JudgeSkill, agreement
from evaldesk.store import Store
from evaldesk.wording.agreement import kappa_words
from evaldesk.wording.noise import corrected_sentence

CASES = [Case(f"c{index}", (Turn("When?"),)) for index in range(40)]
ANA = TypedFinding("Ana", "a week late")
SAID = Transcript((TurnRecord("When?", (Event("agent_message", text="You leave on Friday, 4 December."),)),))


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A workspace whose clock moves on a second with each look."""
    seconds = itertools.count()
    start = datetime(2026, 11, 21, tzinfo=UTC)
    place = place_of(request, tmp_path / "evaldesk.db")
    with Store.open(place, clock=lambda: start + timedelta(seconds=next(seconds))) as opened:
        yield opened


@pytest.fixture
def desk(store: Store) -> FailureDesk:
    return FailureDesk(store)


def played(store: Store, n_cases: int = 4, **config: object) -> int:
    """A run of one failed trial for each case."""
    cases = [Case(f"c{index}", (Turn("When?"),)) for index in range(n_cases)]
    frozen = replace(RunConfig(AgentRef("dice", "dice:agent"), "set"), **config)  # type: ignore[arg-type]
    run_id = store.runs.create(frozen, cases)
    store.runs.record(
        [TrialResult(run_id, index, 0, "finished", "failed", transcript=SAID) for index in range(n_cases)]
    )
    return run_id


def found(desk: FailureDesk, run_id: int, case: int, mode: str, who: str = "Ana") -> int:
    """A finding with a mode, which is created where it is new."""
    return desk.add(run_id, (case, 0), TypedFinding(who, new_mode=mode), SAID)


def names(store: Store, run_id: int) -> list[tuple[int, str]]:
    """The case and the mode of each finding of a run."""
    by_id = {mode.id: mode.name for mode in store.failures.modes()}
    return [(each.case_index, by_id.get(each.mode_id or 0, "")) for each in store.failures.list(run_id)]


def mode(store: Store, name: str) -> Mode:
    return next(each for each in store.failures.modes() if each.name == name)


def test_a_finding_is_anchored_in_the_text_and_makes_its_trial_read(store: Store, desk: FailureDesk) -> None:
    run = played(store)

    desk.add(run, (1, 0), replace(ANA, turn="0", event="0", quote=" Friday, 4 December "), SAID)
    desk.add(run, (1, 0), replace(ANA, note="", new_mode="wrong  date", turn="0"), SAID)

    first, second = desk.of_trial(run, (1, 0))
    assert (first.note, first.author, first.source, first.status) == ("a week late", "Ana", "person", "counted")
    assert first.anchor == Anchor(0, 0, 13, 31, "Friday, 4 December")
    assert (second.anchor, second.mode_id) == (Anchor(0), mode(store, "wrong date").id)
    (reading,) = store.failures.readings(run)
    assert (reading.case_index, reading.reader, reading.is_clear, reading.n_findings) == (1, "Ana", False, 2)
    assert reading.modes == (mode(store, "wrong date").id,)


def test_a_quote_that_is_not_in_the_text_anchors_at_the_call_alone(store: Store, desk: FailureDesk) -> None:
    run = played(store)

    desk.add(run, (0, 0), replace(ANA, turn="0", event="0", quote="never said"), SAID)

    assert desk.of_trial(run, (0, 0))[0].anchor == Anchor(0, 0)


def test_a_quote_finds_its_message_or_stays_with_the_question(store: Store, desk: FailureDesk) -> None:
    run = played(store)

    for quote in ("4 December", "When?", "never said"):
        desk.add(run, (0, 0), replace(ANA, turn="0", quote=quote), SAID)

    assert [each.anchor for each in desk.of_trial(run, (0, 0))] == [
        Anchor(0, 0, 21, 31, "4 December"),
        Anchor(0, quote="When?"),
        Anchor(0),
    ]


MARKED = """**Flights** to *Lisbon*:

- [TP 1944](https://fares.example/x?a=b) for `120 €`
- nothing **else**"""
RECORD = TurnRecord(
    "Which flights?",
    (
        Event("tool_call", 0.0, call=ToolCall("find", {"to": "Lisbon", "days": [1, 2]}, "c")),
        Event("tool_result", 1.0, call=ToolCall("find", {}, "c"), result={"price": "1,250 €", "note": 'a "cheap" one'}),
        Event("agent_message", 2.0, author="agent", text=MARKED),
    ),
)


@pytest.mark.parametrize(
    ("quote", "anchor"),
    [
        ("Flights to Lisbon", Anchor(0, 2, 2, 22, "Flights** to *Lisbon")),
        ("Lisbon:\nTP 1944 for 120", Anchor(0, 2, 16, 75, MARKED[16:75])),
        ("[TP 1944](https://fares.example/x?a=b)", Anchor(0, 2, 28, 66, MARKED[28:66])),
        ("nothing else", Anchor(0, 2, 81, 95, "nothing **else")),
        ("days\n2 items\n1", Anchor(0)),
        ("price\n1,250", Anchor(0, 1, quote='price": "1,250')),
        ("cheap” one", Anchor(0, 1, quote='cheap\\" one')),
        ("to: Lisbon, days", Anchor(0, 0, quote='to": "Lisbon", "days')),
        ("which flights", Anchor(0)),
        ("Which  flights", Anchor(0, quote="Which flights")),
        ("…!", Anchor(0)),
    ],
)
def test_text_that_is_marked_on_a_page_is_found_as_it_was_written(quote: str, anchor: Anchor) -> None:
    found = checked_anchor(TypedFinding(turn="0", quote=quote), Transcript((RECORD,)))

    assert found == anchor


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        (replace(ANA, author=""), "author"),
        (replace(ANA, author="a\x1b[31m"), "author"),
        (replace(ANA, note=" "), "finding"),
        (replace(ANA, note="x" * 4_001), "finding"),
        (replace(ANA, turn="1"), "turn"),
        (replace(ANA, turn="0", event="7"), "turn"),
        (replace(ANA, mode="x"), "mode"),
        (replace(ANA, new_mode="n" * 61), "name"),
        (replace(ANA, new_mode="a\x07b"), "name"),
    ],
)
def test_a_finding_that_cannot_be_is_refused_beside_its_field(
    store: Store, desk: FailureDesk, typed: TypedFinding, field: str
) -> None:
    run = played(store)

    with pytest.raises(UsageError) as caught:
        desk.add(run, (0, 0), typed, SAID)

    assert caught.value.field == field
    assert store.failures.list() == []
    assert store.failures.modes() == []


def test_findings_of_trials_and_modes_that_do_not_exist_are_refused(store: Store, desk: FailureDesk) -> None:
    run = played(store)

    for at, key, typed in ((run, (9, 0), ANA), (99, (0, 0), ANA), (run, (0, 0), replace(ANA, mode="7"))):
        with pytest.raises(NotFoundError):
            desk.add(at, key, typed, SAID)
    assert store.failures.readings(run) == []


def test_nothing_wrong_and_a_finding_exclude_each_other(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    desk.clear(run, (0, 0), "Ana")
    desk.clear(run, (0, 0), "Ben")

    desk.add(run, (0, 0), ANA, SAID)
    with pytest.raises(ConflictError, match="you have a finding"):
        desk.clear(run, (0, 0), "Ana")

    assert [(each.reader, each.is_clear) for each in store.failures.readings(run)] == [("Ana", False), ("Ben", True)]


def test_a_trial_that_is_scored_again_shares_the_findings_of_the_one_that_was_played(
    store: Store, desk: FailureDesk
) -> None:
    run = played(store)
    again = played(store, source_run_id=run)

    desk.add(again, (0, 0), ANA, SAID)

    assert [each.run_id for each in desk.of_trial(again, (0, 0))] == [run]
    assert store.failures.readings(again) == []


def test_names_are_unique_without_case(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    found(desk, run, 0, "Wrong date")
    found(desk, run, 1, "WRONG DATE")

    with pytest.raises(UsageError, match="in use") as caught:
        desk.create(TypedMode("wrong  Date"), "Ana")
    other = desk.create(TypedMode("asks twice"), "Ana")
    with pytest.raises(UsageError, match="in use"):
        desk.edit(other, TypedMode("wrong date"), "Ana")

    assert caught.value.field == "name"
    assert names(store, run) == [(0, "Wrong date"), (1, "Wrong date")]


def test_a_merge_moves_all_findings_and_can_be_undone(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    for case, name in enumerate(("wrong day", "wrong date", "wrong day")):
        found(desk, run, case, name)
    day, date = mode(store, "wrong day"), mode(store, "wrong date")

    desk.merge(day.id, date.id, "Ben")

    assert names(store, run) == [(0, "wrong date"), (1, "wrong date"), (2, "wrong date")]
    assert mode(store, "wrong day").merged_into == date.id
    with pytest.raises(ConflictError, match="“wrong day” was merged into “wrong date”"):
        desk.add(run, (3, 0), replace(ANA, mode=str(day.id)), SAID)
    assert desk.undo("Ben").words == "“wrong day” merged into “wrong date”"
    assert names(store, run) == [(0, "wrong day"), (1, "wrong date"), (2, "wrong day")]
    assert mode(store, "wrong day").is_active


def test_a_mode_is_split_renamed_and_retired(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    ids = [found(desk, run, case, "wrong date") for case in range(3)]
    date = mode(store, "wrong date").id

    desk.split(date, ids[:2], TypedMode("wrong year"), "Ana")
    desk.edit(date, TypedMode("wrong weekday", "Another day of the week."), "Ana")
    desk.retire(date, "Ana")

    assert names(store, run) == [(0, "wrong year"), (1, "wrong year"), (2, "wrong weekday")]
    assert mode(store, "wrong weekday").definition == "Another day of the week."
    with pytest.raises(ConflictError, match="retired"):
        desk.merge(date, mode(store, "wrong year").id, "Ana")
    assert [desk.undo("Ana").kind for _ in range(4)] == ["retired", "edited", "split", "found"]
    assert names(store, run) == [(0, "wrong date"), (1, "wrong date")]
    assert [each.name for each in store.failures.modes()] == ["wrong date"]


def test_a_split_takes_findings_of_its_mode_alone(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    found(desk, run, 0, "wrong date")
    other = found(desk, run, 1, "asks twice")

    for ids in ([], [other], [99]):
        with pytest.raises(UsageError, match="Choose findings"):
            desk.split(mode(store, "wrong date").id, ids, TypedMode("new"), "Ana")

    assert "new" not in {each.name for each in store.failures.modes()}


def test_notes_get_a_kind_later_and_none_that_has_one_is_named_anew(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    ids = [store.failures.add(FindingDraft(run, at, 0, f"note {at}"), "Ana") for at in range(2)]

    desk.name(ids, TypedFinding("Ben", new_mode=" wrong  date "))

    assert names(store, run) == [(0, "wrong date"), (1, "wrong date")]
    with pytest.raises(ConflictError, match="named one of these notes meanwhile"):
        desk.name(ids[:1], TypedFinding("Ana", new_mode="other"))
    with pytest.raises(NotFoundError):
        desk.name([99], TypedFinding("Ana", new_mode="other"))
    for typed, those in ((TypedFinding("Ana"), ids), (TypedFinding("Ana", new_mode="other"), [])):
        with pytest.raises(UsageError):
            desk.name(those, typed)
    assert [each.name for each in store.failures.modes()] == ["wrong date"]
    desk.undo("Ben")
    assert names(store, run) == [(0, ""), (1, "")]
    assert store.failures.modes() == []


def test_a_step_is_not_undone_over_a_later_one_of_somebody_else(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    finding = found(desk, run, 0, "wrong date")
    store.failures.remove(finding, "Ben")

    with pytest.raises(ConflictError, match="Ben changed the same since"):
        desk.undo("Ana")

    desk.undo("Ben")
    assert names(store, run) == [(0, "wrong date")]


def test_a_mode_that_another_reader_uses_is_not_taken_away_by_undo(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    desk.create(TypedMode("wrong date"), "Ana")
    found(desk, run, 0, "wrong date", "Ben")

    with pytest.raises(ConflictError, match="Ben changed the same since"):
        desk.undo("Ana")


def test_a_mode_that_another_reader_merged_into_is_not_taken_away_by_undo(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    desk.create(TypedMode("wrong date"), "Ana")
    found(desk, run, 0, "wrong day", "Ben")
    desk.merge(mode(store, "wrong day").id, mode(store, "wrong date").id, "Ben")

    with pytest.raises(ConflictError, match="Ben changed the same since"):
        desk.undo("Ana")

    assert names(store, run) == [(0, "wrong date")]


def test_nothing_is_undone_after_30_days_or_twice(tmp_path: Path) -> None:
    now = [datetime(2026, 11, 1, tzinfo=UTC)]
    with Store.open(tmp_path / "evaldesk.db", clock=lambda: now[0]) as store:
        desk = FailureDesk(store)
        desk.create(TypedMode("a"), "Ana")
        desk.create(TypedMode("b"), "Ana")
        desk.undo("Ana")
        now[0] += timedelta(days=31)

        with pytest.raises(NotFoundError, match="nothing to undo"):
            desk.undo("Ana")
        with pytest.raises(NotFoundError, match="nothing to undo"):
            desk.undo("Ben")

        assert [each.name for each in store.failures.modes()] == ["a"]


def test_a_mode_is_fixed_in_a_run_and_reopened_when_a_later_one_shows_it(store: Store, desk: FailureDesk) -> None:
    runs = [played(store) for _ in range(3)]
    found(desk, runs[0], 0, "wrong date")
    date = mode(store, "wrong date").id
    with pytest.raises(UsageError, match=f"was found in run {runs[0]}"):
        desk.mark_fixed(date, runs[0], "Ana")
    assert mode(store, "wrong date").life_words == "open"

    desk.mark_fixed(date, runs[1], "Ana")
    found(desk, runs[0], 1, "wrong date")
    assert mode(store, "wrong date").life_words == f"fixed in run {runs[1]}"

    found(desk, runs[2], 0, "wrong date")

    assert mode(store, "wrong date").life_words == f"reopened in run {runs[2]}"
    desk.undo("Ana")
    assert mode(store, "wrong date").life_words == f"fixed in run {runs[1]}"


def test_a_merge_reopens_a_fixed_mode_that_gets_findings_of_later_runs(store: Store, desk: FailureDesk) -> None:
    runs = [played(store) for _ in range(2)]
    found(desk, runs[1], 0, "wrong day")
    fixed = desk.create(TypedMode("wrong date"), "Ana")
    desk.mark_fixed(fixed, runs[0], "Ana")

    desk.merge(mode(store, "wrong day").id, fixed, "Ana")

    assert mode(store, "wrong date").life == "reopened"


def test_proposals_count_nowhere_until_a_person_accepts_them(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    drafts = [FindingDraft(run, case, 0, "date differs", signature="s") for case in range(2)]
    assert store.proposals.propose(drafts, "signature") == 2
    assert store.failures.list(run) == []
    assert store.failures.readings(run) == []
    first, second = store.failures.list(run, status="proposed")

    desk.create(TypedMode("wrong date"), "Ana")
    store.proposals.decide([first.id], "Ana", "wrong date")
    store.proposals.decide([second.id], "Ana")

    assert store.proposals.propose(drafts, "signature") == 0
    assert [(each.case_index, each.author, each.source) for each in store.failures.list(run)] == [
        (0, "Ana", "signature")
    ]
    assert [each.case_index for each in store.failures.readings(run)] == [0]
    with pytest.raises(ConflictError, match="accepted or rejected meanwhile"):
        store.proposals.decide([second.id], "Ben", "wrong date")
    desk.undo("Ana")
    assert len(store.failures.list(run, status="proposed")) == 1


def test_a_removed_finding_leaves_its_trial_unread(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    first, second = (found(desk, run, 0, name) for name in ("a", "b"))

    store.failures.remove(first, "Ana")
    assert len(store.failures.readings(run)) == 1
    store.failures.remove(second, "Ana")

    assert store.failures.readings(run) == []
    with pytest.raises(NotFoundError):
        store.failures.remove(second, "Ana")
    desk.undo("Ana")
    assert names(store, run) == [(0, "b")]
    assert len(store.failures.readings(run)) == 1


def test_findings_of_a_mode_are_counted_by_run_and_trial(store: Store, desk: FailureDesk) -> None:
    first, second = (played(store) for _ in range(2))
    for run, case in ((first, 0), (first, 0), (first, 1), (second, 2)):
        found(desk, run, case, "wrong date")

    date = mode(store, "wrong date").id

    assert store.failures.trials_by_run(date) == {first: 2, second: 1}
    assert [each.run_id for each in store.failures.of_mode(date, limit=2)] == [second, first]
    assert store.failures.read_runs() == [second, first]


def test_findings_go_with_their_run(store: Store, desk: FailureDesk) -> None:
    run = played(store)
    finding = found(desk, run, 0, "wrong date")
    desk.undo("Ana")
    finding = found(desk, run, 0, "wrong date")
    store.failures.remove(finding, "Ana")
    store.runs.delete(run)

    assert store.failures.list() == []
    store.runs.remove_deleted()
    desk.undo("Ana")  # the finding went with its run

    assert store.failures.list() == []


def test_the_sets_of_trials_tell_what_the_readings_tell(store: Store, desk: FailureDesk) -> None:
    run, chance = played(store, 30), Random(7)
    played(store, 3)
    modes = [desk.create(TypedMode(name), "Ana") for name in ("late", "dear", "rude")]
    for case in range(27):
        for who in chance.sample(("Ana", "Ben", "Cy"), chance.randint(0, 3)):
            if chance.random() < 0.3:
                desk.clear(run, (case, 0), who)
            for mode in chance.choices([*map(str, modes), ""], k=chance.randint(0, 2)):
                desk.add(run, (case, 0), TypedFinding(who, "why", mode), SAID)
    desk.retire(modes[0], "Ana")
    store.proposals.propose([FindingDraft(run, 28, 0, signature="s")], "signature")

    told, found = store.failures.readings(run), store.failures.read_trials(run)

    numbers = {each: trial_number((each.case_index, each.trial_index)) for each in told}
    assert found.read == set(numbers.values())
    assert found.by_mode == {mode: {number for each, number in numbers.items() if mode in each.modes} for mode in modes}
    assert found.trials_without_mode == {
        number for each, number in numbers.items() if each.n_findings and not each.modes
    }
    doubted = {number for each, number in numbers.items() if not each.is_clear}
    assert found.all_clear == found.read - doubted
    assert found.of_reader("Ben") == {number for each, number in numbers.items() if each.reader == "Ben"}
    assert [found.with_mode(mode) for mode in (99, modes[1])] == [set(), found.by_mode[modes[1]]]


def test_findings_are_counted_from_indexes_alone(tmp_path: Path) -> None:
    asked = []
    with Store.open(tmp_path / "evaldesk.db") as store, store._database.reading() as connection:
        listen(connection.engine, "before_cursor_execute", lambda *call: asked.append(call[2:4]))
        store.failures.read_trials(1)
        store.failures.trials_by_run(1)
        counted = [each for each in asked if "FROM finding" in each[0]]
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {words}", given).all() for words, given in counted]

    assert len(plans) == 2
    for plan in plans:
        steps = [row[-1] for row in plan if " finding " in row[-1]]
        assert [step for step in steps if "USING COVERING INDEX ix_finding_" not in step] == []
        assert steps


def test_proposals_that_are_alike_are_one_group(store: Store) -> None:
    run, mode = played(store, 4), store.failures.create_mode("Ana", name="late")
    drafts = [FindingDraft(run, case, 0, "twice", signature="b") for case in (3, 0, 2)]
    store.proposals.propose([*drafts, FindingDraft(run, 1, 0, "twice", mode, signature="b")], "signature")
    store.proposals.decide([2], "Ana")

    found = {each.mode_id: each for each in store.proposals.proposed(run)}

    assert found[None].findings == [(1, trial_number((3, 0))), (3, trial_number((2, 0)))]
    assert found[mode].findings == [(4, trial_number((1, 0)))]
    assert (found[None].signature, found[None].note) == ("b", "twice")


@pytest.mark.parametrize("is_rescored", [False, True])
def test_the_calibration_of_a_judge_counts_what_a_reader_would(
    store: Store, desk: FailureDesk, is_rescored: bool
) -> None:
    chance = Random(11)
    late = desk.create(TypedMode("Late", "a day <b>later</b>", "Friday", "Monday"), "Ana")
    other = desk.create(TypedMode("dear"), "Ana")
    criteria = desk.judged_by(late, ())
    config = RunConfig(AgentRef("dice", "dice:agent"), "set", criteria=criteria)
    source = run = store.runs.create(replace(config, criteria=()) if is_rescored else config, CASES)
    if is_rescored:
        run = store.runs.create(replace(config, source_run_id=source), CASES)
        store.runs.record([TrialResult(source, case, 0, "finished", "failed") for case in range(40)])
    verdicts = [chance.choice((0.0, 1.0, 1.0, None)) for _ in CASES]
    name = criteria[0].metric
    store.runs.record(
        [
            TrialResult(run, case, 0, "finished", "failed", scores=(Score(name, 1.0, 0), Score(name, value)))
            for case, value in enumerate(verdicts)
        ]
    )
    there, read = set[int](), set[int]()
    for case in chance.sample(range(40), 30):
        read.add(case)
        if chance.random() < 0.4:
            there.add(case)
            desk.add(source, (case, 0), TypedFinding("Ana", "why", str(late)), SAID)
        elif chance.random() < 0.5:
            desk.add(source, (case, 0), TypedFinding("Ben", "why", str(other)), SAID)
        else:
            desk.clear(source, (case, 0), "Ben")

    (found,) = calibrations(desk_on(store), mode(store, "Late"))

    pairs = [(bool(verdicts[case]), case not in there) for case in read if verdicts[case] is not None]
    assert found.counts == JudgeSkill(
        n_good=sum(is_good for _, is_good in pairs),
        n_good_passed=pairs.count((True, True)),
        n_bad=sum(not is_good for _, is_good in pairs),
        n_bad_failed=pairs.count((False, False)),
    )
    assert found.run.id == run
    assert found.kappa == kappa_words(agreement(pairs))
    told = Counter(verdicts)
    rate = found.counts.correct(told[1.0] / (told[1.0] + told[0.0]))
    assert found.share == corrected_sentence(rate.of_failures if rate else None)
    assert calibrations(desk_on(store), mode(store, "dear")) == []
    assert found.is_current
    desk.edit(late, TypedMode("LATE", "two days later"), "Ana")
    assert [each.is_current for each in calibrations(desk_on(store), mode(store, "LATE"))] == [False]


def test_a_judge_takes_the_place_of_the_earlier_one_of_its_kind(store: Store, desk: FailureDesk) -> None:
    late = desk.create(TypedMode("too late!", "{mark} <b>late</b>", "Friday"), "Ana")
    same_label = desk.create(TypedMode("too-late", "", "", "no"), "Ana")
    nameless = desk.create(TypedMode("!?"), "Ana")
    usual = Criterion("response_match_score", 0.8)

    criteria = desk.judged_by(late, [usual])
    key = mode(store, "too late!").key
    texts = {"failure": "too late!", "definition": "{mark} <b>late</b>", "example_yes": "Friday", "kind": key}
    assert criteria == (usual, Criterion("failure_mode/too-late", 1.0, texts))
    assert desk.judged_by(late, criteria) == criteria
    both = desk.judged_by(nameless, desk.judged_by(same_label, criteria))
    assert [each.metric for each in both[2:]] == [f"failure_mode/kind-{same_label}", f"failure_mode/kind-{nameless}"]
    check_criteria(both)
    with pytest.raises(NotFoundError, match="no kind of failure 99"):
        desk.judged_by(99, criteria)


def test_a_judge_stays_that_of_its_kind_when_it_is_renamed_merged_split_or_retired(
    store: Store, desk: FailureDesk
) -> None:
    late, dear = (desk.create(TypedMode(name), "Ana") for name in ("late", "dear"))
    (judge,) = desk.judged_by(late, ())
    run = played(store, 2)
    ids = [desk.add(run, (case, 0), TypedFinding("Ana", "why", str(late)), SAID) for case in range(2)]

    def judged(criterion: Criterion = judge) -> int | None:
        found = find_judged_mode(criterion, store.failures.modes())
        return found.id if found else None

    assert (judged(), judged(Criterion("late", 1.0)), judged(Criterion("failure_mode", 1.0))) == (late, None, None)
    desk.edit(late, TypedMode("too late"), "Ana")
    again = desk.create(TypedMode("late"), "Ana")
    assert judged() == late
    desk.split(late, ids[:1], TypedMode("much too late"), "Ana")
    assert judged() == late
    desk.merge(late, dear, "Ana")
    assert judged() == dear
    desk.undo("Ana")
    desk.retire(late, "Ana")
    assert judged() == late
    foreign = replace(judge, options={"failure": " LATE", "kind": "0123456789abcdef"})
    assert (judged(foreign), judged(replace(judge, options={"failure": "Dear"}))) == (again, dear)


def test_modes_that_were_merged_in_a_ring_still_have_a_judge(store: Store, desk: FailureDesk) -> None:
    first, second = (desk.create(TypedMode(name), "Ana") for name in ("first", "second"))
    (judge,) = desk.judged_by(first, ())
    modes = [replace(mode, merged_into=second if mode.id == first else first) for mode in store.failures.modes()]

    assert find_judged_mode(judge, modes) in modes
