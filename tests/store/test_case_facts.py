"""The facts of cases in the index of a large set: those of the cases themselves, also after an edit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from evaldesk.formats import load_evalset
from evaldesk.matching.case_facts import facts_of_case
from evaldesk.model import AgentDescription, Case, EvalSet, ToolDescription
from evaldesk.pages.set_health.health import SetHealth, health_of
from evaldesk.store.evalsets import large
from evaldesk.store.evalsets.case_index import IndexedCases, build_index, index_path
from evaldesk.store.evalsets.large import LargeSets
from evaldesk.store.evalsets.set_writer import SetWriter

SAMPLES = Path(__file__).resolve().parents[2] / "evalsets"
TOOL = ToolDescription("book", "", {"properties": {"day": {"enum": ["mon", "tue", "wed"]}, "note": {}}})
WORDS = ("book", "table", "for", "two", "at", "eight", "取消订单", "Straße", "\N{PARTY POPPER}", "40,000", "17", "?")


def indexed(path: Path, folder: Path) -> IndexedCases:
    return IndexedCases(path, index_path(folder, build_index(path, folder).version))


def drawn_case(chance: Random, number: int) -> dict[str, Any]:
    """A case with any mixture of words, calls, references and states; some say the same as others."""
    words = [chance.choice(WORDS) for _ in range(chance.randrange(6))]
    turn: dict[str, Any] = {"user_content": {"parts": [{"text": " ".join(words)}]}}
    if chance.random() < 0.5:
        turn["final_response"] = {"parts": [{"text": chance.choice(["40 000", "a table", "Strasse 17", "eight"])}]}
    if chance.random() < 0.5:
        args = {"day": chance.choice(["mon", ["mon", "tue"], 7]), "note": "x" * chance.choice([1, 90])}
        calls = [{"name": chance.choice(["book", "other"]), "args": args}] if chance.random() < 0.7 else []
        turn["intermediate_data"] = {"tool_uses": calls}
    case: dict[str, Any] = {"eval_id": f"c{number}", "conversation": [turn] * chance.choice([1, 1, 2])}
    if chance.random() < 0.3:
        case["final_session_state"] = {chance.choice(["done", "é"]): True}
    if chance.random() < 0.1:
        case |= {"conversation_scenario": {"starting_prompt": words[0] if words else "", "conversation_plan": "Two."}}
        del case["conversation"]
    return case


def drawn_set(path: Path, seed: int, n: int = 60) -> Path:
    chance = Random(seed)
    cases = [drawn_case(chance, number) for number in range(n)]
    path.write_text(json.dumps({"eval_set_id": "drawn", "eval_cases": cases}), "utf-8")
    return path


def health(cases: Any) -> SetHealth:
    return health_of(cases, description=AgentDescription("a", "adk", tools=(TOOL,)), agent_id="a")


@pytest.mark.parametrize("seed", range(12))
def test_an_index_tells_the_same_health_as_its_cases(tmp_path: Path, seed: int) -> None:
    path = drawn_set(tmp_path / "drawn.evalset.json", seed)
    cases = load_evalset(path).cases

    from_index = indexed(path, tmp_path / "indexes")

    assert [*from_index.case_facts()] == [facts_of_case(case) for case in cases]
    assert health(from_index) == health(cases)


@pytest.mark.parametrize("name", ["hello_world", "trip_planner"])
def test_a_sample_set_has_no_fault_by_its_index_either(tmp_path: Path, name: str) -> None:
    cases = indexed(SAMPLES / f"{name}.evalset.json", tmp_path)

    assert health_of(cases).findings == ()


def test_only_cases_that_look_alike_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, words = Random(5), [f"{first}{second}" for first in "bcdfghklmn" for second in "aeiou"]
    texts = [" ".join(chance.choices(words, k=12)) for _ in range(3_000)]
    texts[2_999] = texts[1_234].upper()
    path = tmp_path / "many.evalset.json"
    cases = [
        {"eval_id": f"c{number}", "conversation": [{"user_content": {"parts": [{"text": text}]}}]}
        for number, text in enumerate(texts)
    ]
    path.write_text(json.dumps({"eval_set_id": "many", "eval_cases": cases}))
    from_index, places = indexed(path, tmp_path / "indexes"), []
    read_cases = IndexedCases.read

    def count(self: IndexedCases, numbers: Iterable[int]) -> Iterator[Case]:
        numbers = [*numbers]
        places.extend(numbers)
        return read_cases(self, numbers)

    monkeypatch.setattr(IndexedCases, "read", count)
    findings = {finding.kind: finding for finding in health_of(from_index).findings}

    assert findings["twins"].case_ids == ("c1234", "c2999")
    assert findings["asserts_nothing"].n == 3_000
    assert places == [1_234, 2_999]


def test_facts_go_with_the_cases_of_an_edited_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WHOLE", 100)
    from_index = indexed(drawn_set(tmp_path / "drawn.evalset.json", 3), tmp_path / "indexes")
    new_case = replace(from_index[7], id="new")
    evalset = EvalSet("drawn", cases=from_index.splice(5, 9, [new_case]))
    path = tmp_path / "edited.evalset.json"

    with LargeSets(tmp_path / "indexes").content(evalset, path.name) as content:
        assert isinstance(content, SetWriter)
        path.write_bytes(b"".join(content.data))
        new_cases = IndexedCases(path, index_path(tmp_path / "indexes", content.version))

    assert [case.id for case in new_cases[4:7]] == ["c4", "new", "c9"]
    assert [*new_cases.case_facts()] == [facts_of_case(case) for case in new_cases]


def test_very_many_pairs_are_not_all_read_and_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.pages.set_health.texts.MOST_READ", 6)
    path_words = ["one two three", "four five six", "seven eight nine", "ten eleven twelve"]
    cases = load_evalset(SAMPLES / "hello_world.evalset.json").cases[:1]
    turn = cases[0].turns[0]
    alike = [
        replace(cases[0], id=f"{number}-{copy}", turns=(replace(turn, query=text),))
        for number, text in enumerate(path_words)
        for copy in "ab"
    ]

    (finding,) = health_of(alike).findings

    assert finding.n == 3
    assert "not all were compared" in finding.words
