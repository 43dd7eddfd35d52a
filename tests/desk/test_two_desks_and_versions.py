"""Versions of a set that two desks note on one database: each is noted once, and in one order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgresql_server import ENGINES, place_of

from evaldesk.matching.case_version import canonical_case, version_keys, version_of_set
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.model.set_versions import SetContent
from evaldesk.store import Store
from evaldesk.store.set_versions import NewVersion


@pytest.fixture(params=ENGINES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    seconds = itertools.count()
    start = datetime(2026, 11, 30, tzinfo=UTC)

    def clock() -> datetime:
        return start + timedelta(seconds=next(seconds))

    place = place_of(request, tmp_path / "evaldesk.db")
    with Store.open(place, clock=clock) as anna, Store.open(place, clock=clock) as ben:
        yield anna, ben


def evalset(n: int) -> EvalSet:
    """A set of `n` cases and criteria; its text has what a database may trip over."""
    cases = tuple(Case(f"case_{at}", (Turn(f"Wie heißt 東京 {at}? \u0000 '\"; --"),)) for at in range(n))
    return EvalSet("calc", cases=cases, extra={"criteria": {"tool_exact": 1}})


def note(store: Store, given: EvalSet, author: str) -> bool:
    keys = tuple(version_keys(given))
    version = NewVersion(
        version_of_set(given),
        SetContent(keys, given.extra["criteria"]),
        len(given.cases),
        "desk",
        author,
    )
    by_digest = {digest: canonical_case(case) for (_, digest), case in zip(keys, given.cases, strict=True)}
    return store.set_versions.note("calc", version, lambda digests: {each: by_digest[each] for each in digests})


def test_versions_and_contents_are_read_back_by_the_other_desk(stores: tuple[Store, Store]) -> None:
    anna, ben = stores

    noted = [note(anna, evalset(2), "Anna"), note(ben, evalset(2), "Ben"), note(ben, evalset(3), "Ben")]
    versions = anna.set_versions.list("calc")
    newest = anna.set_versions.content(versions[0].number)
    digests = [digest for _, digest in newest.cases]

    assert noted == [True, False, True]
    assert [(each.version, each.author, each.n_cases) for each in versions] == [
        (version_of_set(evalset(3)), "Ben", 3),
        (version_of_set(evalset(2)), "Anna", 2),
    ]
    assert newest.criteria == {"tool_exact": 1}
    assert anna.set_versions.cases(digests) == {
        digest: canonical_case(case) for digest, case in zip(digests, evalset(3).cases, strict=True)
    }
    assert (anna.set_versions.count("calc"), anna.set_versions.newest_digest("calc")) == (2, versions[0].version)


def test_two_desks_that_see_the_same_change_at_once_note_it_once(stores: tuple[Store, Store]) -> None:
    answers: list[bool] = []
    together = threading.Barrier(2)

    def see(store: Store, author: str) -> None:
        for n in range(1, 9):
            together.wait(timeout=60)
            answers.append(note(store, evalset(n), author))

    threads = [threading.Thread(target=see, args=(store, name)) for store, name in zip(stores, "AB", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    versions = [each.version for each in stores[0].set_versions.list("calc")]
    assert answers.count(True) == 8
    assert versions == [version_of_set(evalset(n)) for n in range(8, 0, -1)]
