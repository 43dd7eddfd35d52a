"""Full text search on both engines: what is found, what leaves, and what it never takes amiss."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaldesk.model import AgentRef, Case, Event, RunConfig, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.model.failures import FindingDraft
from evaldesk.store import Store, sqlite
from evaldesk.store.search import MAX_WORDS, SearchPosition, SearchStore, words_of

HOSTILE = (
    '"',
    "'",
    "a AND",
    "NEAR(a b)",
    "^a",
    "a*b*",
    "a:b",
    "-",
    "(",
    "\\",
    "%",
    "a\0b",
    "\ud800",
    "' | '",
    "OR",
    "日本",
    "x" * 5000,
)


def of_case(case: Case) -> str:
    return "\n".join((case.id, *(turn.query for turn in case.turns)))


def of_trial(result: TrialResult) -> str:
    return "\n".join(event.text for turn in result.transcript.turns for event in turn.events)


def index(store: Store) -> None:
    for _ in store.search.catch_up(of_case, of_trial):
        pass


@pytest.fixture
def played(store: Store, end: Callable[..., TrialResult]) -> Callable[..., int]:
    """A finished run of one case whose trials answer these texts."""

    def play(*answers: str, query: str = "What is the weather?") -> int:
        config = RunConfig(AgentRef("hello", "agent:root_agent"), "calc", n=len(answers))
        run_id = store.runs.create(config, [Case("weather", (Turn(query),))])
        store.runs.record([said(end, run_id, trial, text) for trial, text in enumerate(answers)])
        return run_id

    return play


def said(end: Callable[..., TrialResult], run_id: int, trial: int, text: str, **fields: Any) -> TrialResult:
    turn = TurnRecord("?", (Event("agent_message", text=text),))
    return end(run_id, 0, trial, transcript=Transcript((turn,)), **fields)


def found(store: Store, typed: str) -> list[SearchPosition]:
    return list(store.search.find(typed).places)


@pytest.mark.parametrize(
    ("typed", "trial"),
    [
        ("eleven degrees", 1),
        ("DEGREES eleven", 1),
        ("degrees elev", 1),
        ("zurich", 0),
        ("ZÜRICH", 0),
        ("roll_die", 0),
        ("die", 0),
        ("北京", 2),
    ],
)
def test_a_trial_is_found_by_all_its_words_in_any_order_and_the_beginning_of_the_last(
    store: Store, played: Callable[..., int], typed: str, trial: int
) -> None:
    run_id = played("Zürich says roll_die", "Eleven degrees", "我在北京")
    index(store)

    assert found(store, typed) == [SearchPosition(run_id, 0, trial)]
    assert found(store, f"{typed} absent") == []


def test_a_case_is_found_by_its_text_as_it_was_run(store: Store, played: Callable[..., int]) -> None:
    run_id = played("no", query="Is it raining?")
    index(store)

    assert found(store, "raining") == [SearchPosition(run_id, 0)]


def test_newer_runs_come_first_and_a_case_of_a_run_once(store: Store, played: Callable[..., int]) -> None:
    old, new = played("sunny", "sunny"), played("sunny")
    index(store)

    assert [place.run_id for place in found(store, "sunny")] == [new, old]


def test_what_is_recorded_later_is_found_after_the_next_step_and_until_then_said_to_be_behind(
    store: Store, played: Callable[..., int], end: Callable[..., TrialResult]
) -> None:
    run_id = store.runs.create(RunConfig(AgentRef("a", "b"), "calc", n=3), [Case("c", (Turn("q"),))])
    index(store)
    assert store.search.find("x").n_behind == 0
    for trial, text in enumerate(("first", "second", "third")):
        store.runs.record([said(end, run_id, trial, text)])
        assert store.search.find(text).n_behind == 1
        index(store)
        assert found(store, text) == [SearchPosition(run_id, 0, trial)]


def test_a_trial_that_a_set_back_clock_recorded_earlier_is_found(
    store: Store, played: Callable[..., int], end: Callable[..., TrialResult], clock: Any
) -> None:
    run_id = store.runs.create(RunConfig(AgentRef("a", "b"), "calc", n=2), [Case("c", (Turn("q"),))])
    store.runs.record([said(end, run_id, 0, "first")])
    index(store)
    clock.set(hours=-2)
    store.runs.record([said(end, run_id, 1, "second")])
    index(store)

    assert found(store, "second") == [SearchPosition(run_id, 0, 1)]


def test_a_trial_that_is_played_again_is_found_by_what_it_says_now(
    store: Store, end: Callable[..., TrialResult], clock: Any
) -> None:
    run_id = store.runs.create(RunConfig(AgentRef("a", "b"), "calc", n=1), [Case("c", (Turn("q"),))])
    store.runs.record([said(end, run_id, 0, "broken", verdict="errored")])
    index(store)
    store.runs.retry_errored(run_id)
    clock.move(seconds=1)
    store.runs.record([said(end, run_id, 0, "mended", attempt=2)])
    index(store)

    assert found(store, "mended") == [SearchPosition(run_id, 0, 0)]
    assert found(store, "broken") == []


def test_a_run_in_the_trash_is_not_found_and_is_again_once_it_is_restored(
    store: Store, played: Callable[..., int]
) -> None:
    run_id = played("sunny")
    index(store)
    store.runs.delete(run_id)
    assert found(store, "sunny") == []
    index(store)
    assert found(store, "sunny") == []

    store.runs.restore(run_id)

    assert [place.run_id for place in found(store, "sunny")] == [run_id]


def test_nothing_of_a_removed_run_stays_in_the_index(store: Store, played: Callable[..., int]) -> None:
    kept, gone = played("sunny"), played("rainy")
    index(store)
    store.runs.delete(gone)
    store.runs.remove_deleted()

    store.search.forget_removed()

    assert set(store.search._index.indexed_runs()) == {kept}
    assert store.search._index.numbers(["rainy"], (), 10) == []


@pytest.mark.parametrize("typed", HOSTILE)
def test_any_text_is_a_question_and_no_syntax(store: Store, played: Callable[..., int], typed: str) -> None:
    played("a b or near")
    index(store)

    store.search.find(typed)
    store.search.find(f"a {typed}")
    store.search.notes(typed.replace("\ud800", ""))


def test_a_hostile_text_of_a_trial_is_indexed(store: Store, played: Callable[..., int]) -> None:
    many = " ".join(f"w{number}x" for number in range(2 * MAX_WORDS))
    played(*(text for text in HOSTILE if text.isprintable()), many, "\0", "ﷺ" * 5000)
    index(store)

    assert found(store, "near")
    assert store.search.find("x").n_behind == 0


def test_notes_of_labels_and_findings_are_found_at_once_and_not_those_of_the_trash(
    store: Store, played: Callable[..., int], clock: Any
) -> None:
    run_id = played("sunny", "rainy")
    store.labels.put(run_id, (0, 0), None, "Ada", "failed", "wrong city, 100% sure")
    clock.move(seconds=1)
    store.failures.add(FindingDraft(run_id, 0, 1, "asks for the city twice"), "Bo")

    assert [(note.author, note.place.trial_index) for note in store.search.notes("city")] == [("Bo", 1), ("Ada", 0)]
    assert [note.author for note in store.search.notes("100% CITY")] == ["Ada"]
    assert store.search.notes("50%") == []
    store.runs.delete(run_id)
    assert store.search.notes("city") == []


def test_an_import_is_found_when_it_is_shown(store: Store, end: Callable[..., TrialResult]) -> None:
    from evaldesk.store.runs.imports import new_run
    from evaldesk.store.runs.run_store import imported_agent

    config = RunConfig(imported_agent("x"), "calc")
    run = new_run(config, [Case("c", (Turn("q"),))], [said(end, 0, 0, "imported words")], "file", "digest")
    import_id, (run_id,) = store.imports.begin("a.json", [run], "owner")
    for _ in store.imports.add(import_id, run_id, run, lambda result: result):
        pass
    store.imports.make_ready(import_id)
    index(store)
    assert found(store, "imported") == []

    store.imports.publish(import_id)
    index(store)

    assert [place.run_id for place in found(store, "imported")] == [run_id]


def test_no_step_holds_the_database_for_long(database: Path, store: Store, played: Callable[..., int]) -> None:
    """Another process that does not wait at all writes between any two of them."""
    played(*("some words of an answer " * 20 for _ in range(300)))
    n_written = 0
    with closing(sqlite3.connect(database, timeout=0)) as other:
        for _ in store.search.catch_up(of_case, of_trial):
            with other:
                n_written += other.execute("UPDATE run SET note = 'x'").rowcount

    assert n_written >= 3


def test_an_index_that_is_no_database_is_made_again(database: Path, store: Store, played: Callable[..., int]) -> None:
    run_id = played("sunny")
    database.with_name(sqlite.WORD_FILE).write_bytes(b"no database" * 1000)

    with pytest.raises(Exception, match=r"search\.db"):
        index(store)
    index(store)

    assert [place.run_id for place in found(store, "sunny")] == [run_id]


def test_a_python_without_fts5_says_so(database: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "has_fts5", lambda: False)
    fresh = SearchStore(store._database, store._clock)

    assert "FTS5" in fresh.refusal
    assert fresh.find("sunny").places == ()
    assert list(fresh.catch_up(of_case, of_trial)) == []


def test_the_index_is_for_the_user_alone(database: Path, store: Store, played: Callable[..., int]) -> None:
    played("sunny")
    index(store)

    assert {path.stat().st_mode & 0o077 for path in database.parent.glob("search.db*")} == {0}
    assert store.search.size() > 0


def test_words_are_alike_without_case_and_accents() -> None:
    assert words_of("Straße STRASSE Ünï_code 東京 x1") == ["strasse", "strasse", "uni", "code", "東", "京", "x1"]
