"""A set that is read by an index is the same set: its cases, its edits, its bytes, and what is asked of all cases."""

from __future__ import annotations

import gc
import json
import random
import sqlite3
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.formats.test_adk_stream import GOOD
from tests.store.evalset_folders import id_of, put

from evaldesk.desk.evalsets.cases import CaseDesk
from evaldesk.desk.runs.plan import Foresight, Unjudged, foresee
from evaldesk.errors import ConflictError, FormatError
from evaldesk.formats import read_evalset, write_evalset
from evaldesk.matching.case_version import case_version
from evaldesk.metrics import METRICS, missing_reasons, unset_option
from evaldesk.metrics.asserted import asserted_part
from evaldesk.model import Case, Criterion, EvalSet, Expected, SessionInit, ToolCall, Turn, default_criteria
from evaldesk.model.evalset import LargeCases, case_key, case_pieces, repeats_words
from evaldesk.store.evalsets import large
from evaldesk.store.evalsets.case_index import build_index, index_path
from evaldesk.store.evalsets.files import EvalSetFiles

NAME = "big.evalset.json"


@pytest.fixture(autouse=True)
def every_set_is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is made in this process, which is the same code and quicker for a small file."""
    monkeypatch.setattr(large, "WHOLE", -1)
    if "in_a_process" not in request.node.name:
        monkeypatch.setattr(large, "indexed_facts", build_index)


def some_cases(n: int, *, seed: int = 0) -> tuple[Case, ...]:
    chance = random.Random(seed)
    return tuple(
        Case(
            f"case {number}" if number % 7 else "again",
            (
                Turn(
                    f"Würfle {number} 🎲\n",
                    Expected(
                        chance.choice([None, (), (ToolCall("roll", {"n": number}),)]),
                        reference=chance.choice([None, f"{number}", "yes"]),
                    ),
                ),
            ),
            initial_session=SessionInit(chance.choice(["", "dice", "calc"])) if number % 3 else None,
            final_state=chance.choice([None, {"n": number}]),
            tags=tuple(chance.sample(["smoke", "slow", "ü"], chance.randrange(3))),
            extra={"x_own": number} if number % 5 == 0 else {},
        )
        for number in range(n)
    )


def opened(files: EvalSetFiles) -> tuple[EvalSet, LargeCases, str]:
    evalset, version = files.read(id_of(files, NAME))
    assert isinstance(evalset.cases, LargeCases)
    return evalset, evalset.cases, version


@pytest.mark.parametrize("name", GOOD)
def test_it_is_the_set_that_is_read_whole(files: EvalSetFiles, root: Path, name: str) -> None:
    data = GOOD[name].encode()
    put(root, NAME, data)

    evalset, cases, _ = opened(files)

    whole = read_evalset(data, source=NAME)
    assert list(cases.versions()) == [(case.id, case_version(case)) for case in whole.cases]
    assert replace(evalset, cases=tuple(cases)) == whole
    assert evalset == whole
    assert [cases[number] for number in range(len(cases))] == list(whole.cases)
    assert cases[1:] == whole.cases[1:]


def test_what_is_asked_of_all_cases_is_what_they_say(files: EvalSetFiles, root: Path) -> None:
    whole = some_cases(1_203)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))

    _, cases, _ = opened(files)
    (file,) = files.list()

    assert tuple(cases) == whole
    assert list(cases.ids()) == [case.id for case in whole]
    assert cases.id_at(700) == "again"
    assert repeats_words(cases) == repeats_words(whole)
    assert cases.with_ids(["case 8", "case 3", "no"]) == (whole[3], whole[8])
    assert cases.tags() == Counter(tag for case in whole for tag in case.tags)
    assert cases.first_app(["dice", "other"]) == "dice"
    assert cases.first_app(["other"]) == ""
    assert {repr(group.case): group.n for group in cases.groups()} == Counter(repr(asserted_part(c)) for c in whole)
    assert (file.n_cases, file.n_turns, file.tags) == (1_203, 1_203, ("slow", "smoke", "ü"))
    assert file.app_names == ("", "calc", "dice")


@pytest.mark.parametrize(("text", "tag"), [("", ""), ("würfle 1", ""), ("roll", "slow"), ("", "ü"), ("%", "")])
def test_a_search_finds_the_cases_that_have_it(files: EvalSetFiles, root: Path, text: str, tag: str) -> None:
    whole = some_cases(300)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))
    _, cases, _ = opened(files)
    found = [
        number
        for number, case in enumerate(whole)
        if (not tag or tag in case.tags) and any(text in piece.casefold() for piece in case_pieces(case))
    ]

    assert cases.search(text, tag, None, 0, 1_000) == (len(found), found)
    assert cases.search(text, tag, None, 3, 5) == (len(found), found[3:8])


def test_the_cases_of_groups_are_found(files: EvalSetFiles, root: Path) -> None:
    whole = some_cases(300)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))
    _, cases, _ = opened(files)
    stated = [group.number for group in cases.groups() if group.case.final_state is not None]
    expected = [case.id for case in whole if case.final_state is not None]

    assert list(cases.ids(stated)) == expected
    assert cases.search("", "", stated, 0, 2)[0] == len(expected)


def test_what_metrics_do_not_apply_to_is_foreseen_as_of_all_cases(files: EvalSetFiles, root: Path) -> None:
    whole = tuple(replace(case, id=f"c{number}") for number, case in enumerate(some_cases(120)))
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))
    _, cases, _ = opened(files)
    criteria = [Criterion(name, 1.0) for name in METRICS if unset_option(Criterion(name, 1.0)) is None]

    for chosen in ([each] for each in criteria):
        for strict in (False, True):
            assert told(foresee(cases, chosen, strict=strict)) == told(foresee(whole, chosen, strict=strict))
    found = foresee(cases, criteria[:6])
    of_all = foresee(whole, criteria[:6])
    assert told(found) == told(of_all)
    assert found.n_partly_asserted == of_all.n_partly_asserted == len(of_all.partly_asserted)
    assert found.n_asserted(120) == of_all.n_asserted(120)
    assert default_criteria(cases) == default_criteria(whole)
    for each in criteria:
        reasons = missing_reasons(each, whole)
        assert dict(missing_reasons(each, cases)) == reasons
        assert len(missing_reasons(each, cases)) == len(reasons)


def told(foresight: Foresight) -> Any:
    def of(found: Sequence[Unjudged]) -> list[Any]:
        return [(each.metric, each.reason, list(each.case_ids), tuple(each.case_ids[:5])) for each in found]

    assert all(len(each.case_ids) == len(list(each.case_ids)) for each in foresight.not_applicable)
    return of(foresight.unscored), of(foresight.not_applicable)


def rows(index: Path) -> list[Any]:
    with closing(sqlite3.connect(index)) as connection:
        items = "SELECT item.number, start, length, line, place, digest, id, key, asserted, n_turns, app, text"
        return [
            *connection.execute(f"{items} FROM item JOIN part ON part.number = item.part ORDER BY item.number"),
            *connection.execute("SELECT number, tag FROM tag ORDER BY number, tag"),
            *connection.execute("SELECT asserted, n FROM part WHERE n > 0 ORDER BY asserted"),
            *connection.execute("SELECT * FROM fact ORDER BY name"),
        ]


STYLES: dict[str, dict[str, Any]] = {
    "adk": {},
    "tabs": {"indent": "\t"},
    "windows": {"newline": "\r\n", "ends_with": "\n"},
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(2))
def test_edits_give_the_bytes_and_the_index_of_a_set_that_is_written_whole(
    files: EvalSetFiles, root: Path, tmp_path: Path, seed: int, style: str
) -> None:
    extra: dict[str, Any] = {"$form": {"style": STYLES[style]}} if style != "adk" else {}
    whole = EvalSet("big", "Big", None, some_cases(30, seed=seed), extra)
    put(root, NAME, write_evalset(whole))
    file_id, chance = id_of(files, NAME), random.Random(seed)
    for step in range(12):
        evalset, version = files.read(file_id)
        whole = read_evalset((root / NAME).read_bytes(), source=NAME)
        change = edit(chance, step)

        files.save(file_id, change(evalset), version)

        expected = write_evalset(change(whole))
        assert (root / NAME).read_bytes() == expected
        _, cases, version = opened(files)
        assert tuple(cases) == read_evalset(expected, source=NAME).cases
        again = build_index(root / NAME, tmp_path / "again").version
        assert again == version
        assert rows(index_path(root / ".evaldesk/indexes", version)) == rows(index_path(tmp_path / "again", again))


def edit(chance: random.Random, step: int) -> Callable[[EvalSet], EvalSet]:
    from evaldesk.model.evalset import splice_cases

    start = chance.randrange(25)
    stop = start + chance.randrange(4)
    new = some_cases(chance.randrange(3), seed=step)
    description = chance.choice([None, f"Step {step} ü"])
    if step == 10:
        start, stop, new = 0, 1_000, ()
    return lambda evalset: replace(
        evalset, description=description, cases=splice_cases(evalset.cases, start, min(stop, len(evalset.cases)), new)
    )


def test_the_case_desk_edits_it_as_it_edits_a_small_one(
    files: EvalSetFiles, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(at: Path, name: str) -> tuple[bytes, list[Any]]:
        of = EvalSetFiles([at], at / "evalsets", at / ".evaldesk/trash", home=at)
        put(at, NAME, write_evalset(EvalSet("big", cases=some_cases(20))))
        desk = CaseDesk(of, lambda each: of.read(each)[0], tmp_path / name)
        file_id = id_of(of, NAME)
        seen: list[Any] = []

        def note(step: Callable[[], Any]) -> None:
            try:
                found = step()
                seen.append((found.index, found.key, found.version, found.case) if hasattr(found, "key") else found)
            except ConflictError as error:
                seen.append(str(error))

        note(lambda: desk.add(file_id, Case("new", (Turn("hi"),))))
        note(lambda: desk.add(file_id, Case("again", (Turn("hi"),))))
        note(lambda: desk.put(file_id, Case("case 3", (Turn("put"),))))
        note(lambda: desk.put(file_id, Case("case 99", (Turn("put"),))))
        note(lambda: desk.duplicate(file_id, case_key("case 4")))
        note(lambda: desk.duplicate(file_id, case_key("case 4")))
        note(lambda: desk.move(file_id, case_key("case 8"), -1))
        note(lambda: desk.move(file_id, case_key("again") + ".2", 1))
        found = desk.find(file_id, case_key("case 9"))
        note(lambda: desk.save(file_id, found.key, replace(found.case, id="case nine"), found.version))
        note(lambda: desk.save(file_id, case_key("case 10"), found.case, "another"))
        note(lambda: desk.save(file_id, case_key("case 10"), replace(found.case, id="case 11"), None))
        token = desk.delete(file_id, [case_key("again") + ".3", case_key("new"), case_key("case 1")])
        note(lambda: desk.list_deleted_ids(file_id, token))
        note(lambda: desk.add(file_id, Case("last", (Turn("hi"),))))
        note(lambda: desk.restore(file_id, desk.delete(file_id, [case_key("last"), case_key("case 2")])))
        return (at / NAME).read_bytes(), seen

    as_large = play(root, "large")
    monkeypatch.setattr(large, "WHOLE", 1 << 20)
    small = tmp_path / "small"
    small.mkdir()

    assert as_large == play(small, "small")


def test_a_save_without_a_change_leaves_the_bytes_of_any_form(files: EvalSetFiles, root: Path) -> None:
    data = GOOD["spaces"].encode()
    put(root, NAME, data)
    evalset, _, version = opened(files)

    assert files.save(id_of(files, NAME), evalset, version) == version
    assert (root / NAME).read_bytes() == data


def test_cases_that_are_not_edited_keep_their_very_bytes(files: EvalSetFiles, root: Path) -> None:
    put(root, NAME, GOOD["spaces"].encode())
    evalset, cases, version = opened(files)

    files.save(id_of(files, NAME), replace(evalset, cases=cases.splice(1, 2, [Case("c", (Turn("c"),))])), version)

    written = (root / NAME).read_bytes()
    first = json.dumps(json.loads(GOOD["spaces"])["eval_cases"][0]).encode()
    assert first in written
    assert [case.id for case in read_evalset(written, source=NAME).cases] == ["ä🎲", "c"]


def test_a_file_that_is_written_over_in_place_is_never_taken_for_the_old_one(files: EvalSetFiles, root: Path) -> None:
    path = put(root, NAME, write_evalset(EvalSet("big", cases=some_cases(10))))
    _, cases, _ = opened(files)
    path.write_bytes(path.read_bytes().replace("Würfle".encode(), b"Wuerfl" + b"e"))

    with pytest.raises(FormatError, match="the file changed while its cases were read"):
        list(cases)
    assert opened(files)[1][0].turns[0].query.startswith("Wuerfle")


def test_a_run_reads_on_in_the_old_file_when_a_new_one_takes_its_name(files: EvalSetFiles, root: Path) -> None:
    whole = some_cases(10)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))
    evalset, cases, version = opened(files)

    files.save(id_of(files, NAME), replace(evalset, cases=cases.splice(0, 9, ())), version)

    assert tuple(cases) == whole
    assert len(opened(files)[1]) == 1


@pytest.mark.parametrize("damage", ["gone", "empty", "text", "cut"])
def test_an_index_that_is_lost_or_damaged_is_made_again(files: EvalSetFiles, root: Path, damage: str) -> None:
    whole = some_cases(50)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))
    index = index_path(root / ".evaldesk/indexes", opened(files)[2])
    if damage == "gone":
        index.unlink()
    else:
        index.write_bytes({"empty": b"", "text": b"no database" * 1_000, "cut": index.read_bytes()[:5_000]}[damage])

    assert tuple(opened(files)[1]) == whole


def test_indexes_of_versions_that_are_gone_are_removed_after_an_hour(
    files: EvalSetFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, NAME, write_evalset(EvalSet("big", cases=some_cases(5))))
    evalset, cases, version = opened(files)
    files.save(id_of(files, NAME), replace(evalset, cases=cases.splice(0, 1, ())), version)
    folder = root / ".evaldesk/indexes"
    (folder / ".1-killed.tmp").write_bytes(b"")
    sets = large.LargeSets(folder)

    sets.sweep({opened(files)[2]})
    before = len(list(folder.iterdir()))
    monkeypatch.setattr(large, "UNUSED_S", -60)
    sets.sweep({opened(files)[2]})

    assert (before, [path.name for path in folder.iterdir()]) == (3, [index_path(folder, opened(files)[2]).name])


@pytest.mark.long
def test_a_broken_set_is_named_as_a_whole_reader_names_it_in_a_process(files: EvalSetFiles, root: Path) -> None:
    text = write_evalset(EvalSet("big", cases=some_cases(3))).decode()
    put(root, NAME, text.replace('"case 1",', '"case 1",,').encode())

    (file,) = files.list()

    assert file.error.startswith("big.evalset.json:")
    with pytest.raises(FormatError) as whole:
        read_evalset((root / NAME).read_bytes(), source=NAME)
    assert file.error == str(whole.value)


@pytest.mark.long
def test_a_set_is_indexed_in_a_process_of_its_own(files: EvalSetFiles, root: Path) -> None:
    whole = some_cases(20)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))

    assert tuple(opened(files)[1]) == whole


def test_a_new_name_and_a_copy_keep_the_cases(files: EvalSetFiles, root: Path) -> None:
    whole = some_cases(20)
    put(root, NAME, write_evalset(EvalSet("big", cases=whole)))

    copied = files.duplicate(id_of(files, NAME), "copy")
    renamed = files.rename(id_of(files, NAME), "new")

    for file_id, name in ((copied, "copy"), (renamed, "new")):
        found = files.read(file_id)[0]
        assert (found.id, tuple(found.cases)) == (name, whole)
        assert (root / f"{name}.evalset.json").read_bytes() == write_evalset(EvalSet(name, cases=whole))


def peak_of(action: Callable[[], object]) -> int:
    gc.collect()
    gc.freeze()  # the more objects a process has, the later garbage is collected
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_memory_does_not_grow_with_the_cases(root: Path) -> None:
    def use(n: int) -> int:
        at = root / str(n)
        at.mkdir()
        with (at / NAME).open("w") as file:
            one = json.dumps({"eval_id": "ID", "conversation": [{"user_content": {"parts": [{"text": "x" * 800}]}}]})
            file.write('{"eval_set_id": "big", "eval_cases": [')
            file.writelines(("," if number else "") + one.replace("ID", f"case {number}") for number in range(n))
            file.write("]}")
        of = EvalSetFiles([at], at / "evalsets", at / ".evaldesk/trash", home=at)

        def all_of_it() -> None:
            evalset, cases, version = opened(of)
            assert sum(1 for _ in cases) == sum(1 for _ in cases.ids()) == n
            cases.search("case", "", None, n - 5, 200)
            of.save(id_of(of, NAME), replace(evalset, cases=cases.splice(3, 4, ())), version)
            of.duplicate(id_of(of, NAME), "copy")

        return peak_of(all_of_it)

    use(100)  # what is compiled once
    few, many = use(2_000), use(5_000)

    assert many < few + 100_000, "3,000 more cases have 3 MiB in memory"
