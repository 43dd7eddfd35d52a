"""Steps over selected cases: copied, moved, reworded, deleted, and each undone."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from evaldesk.desk.evalsets.cases import MOST_CASES
from evaldesk.errors import UsageError
from evaldesk.model.evalset import case_key, ids_with_tags
from evaldesk.pages.case_list import matching_ids
from evaldesk.store.evalsets import large
from evaldesk.store.evalsets.case_index import build_index

Pages = Any


def case_of(case_id: str, query: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"eval_id": case_id, "conversation": [{"user_content": {"parts": [{"text": query}]}}], **more}


@pytest.fixture
def sets(pages: Pages) -> tuple[str, str]:
    """The ids of a set of 450 cases and of one of two."""
    many = [case_of(f"c{number:03}", f"Say {number}", tags=["odd"] if number % 2 else []) for number in range(450)]
    first = pages.write("many.evalset.json", {"eval_set_id": "many", "eval_cases": many})
    other = [case_of("c001", "Mine"), case_of("z")]
    return first, pages.write("other.evalset.json", {"eval_set_id": "other", "x_team": 1, "eval_cases": other})


def ids_in(pages: Pages, name: str) -> list[str]:
    return [case["eval_id"] for case in pages.stored(f"{name}.evalset.json")["eval_cases"]]


def n_versions(pages: Pages, set_id: str) -> int:
    n: int = pages.desk.evalsets.versions.count(set_id)
    return n


def undo_address(pages: Pages, answer: Any) -> str:
    """The undo that the page after a step offers."""
    assert answer.status_code == 303
    page = pages.get(answer.headers["location"]).text
    address = re.search(r'action="([^"]+/restoration)"', page)
    assert address
    return address[1]


@pytest.mark.parametrize("step", ["copy", "move"])
def test_cases_go_to_another_set_and_come_back_in_one_step(pages: Pages, sets: tuple[str, str], step: str) -> None:
    many, other = sets
    before = {name: pages.stored(f"{name}.evalset.json") for name in ("many", "other")}
    pages.get(f"/evalsets/{many}")
    pages.get(f"/evalsets/{other}")
    versions = {set_id: n_versions(pages, set_id) for set_id in sets}

    fields = {"case": ["c003", "c001"], "target": other, "step": step}
    answer = pages.post(f"/evalsets/{many}/selection/copies", fields)

    undo = undo_address(pages, answer)
    verb = "copied" if step == "copy" else "moved"
    assert f"2 cases {verb} to other" in pages.get(answer.headers["location"]).text
    assert ids_in(pages, "other") == ["c001", "z", "c001_2", "c003"]
    assert len(ids_in(pages, "many")) == (450 if step == "copy" else 448)
    assert n_versions(pages, other) == versions[other] + 1
    assert n_versions(pages, many) == versions[many] + (step == "move")
    assert pages.post(undo).status_code == 303
    assert {name: pages.stored(f"{name}.evalset.json") for name in ("many", "other")} == before
    assert pages.post(undo).status_code == 404


def test_a_copy_that_was_edited_is_not_taken_back(pages: Pages, sets: tuple[str, str]) -> None:
    many, other = sets
    answer = pages.post(
        f"/evalsets/{many}/selection/copies", {"case": ["c002", "c004"], "target": other, "step": "move"}
    )
    undo = undo_address(pages, answer)
    address = pages.case_address(other, "c004")
    pages.post(address, pages.fields(address) | {"turn-0-query": "Edited"})

    refused = pages.post(undo)

    assert refused.status_code == 409
    assert "c004" in refused.text
    assert ids_in(pages, "other") == ["c001", "z", "c002", "c004"]
    assert "c004" not in ids_in(pages, "many")


def test_all_cases_that_match_are_moved_from_every_page(pages: Pages, sets: tuple[str, str]) -> None:
    many, other = sets
    query = {"which": "all", "q": "", "with_tag": "odd", "with_only": "", "case": ["c000"]}

    shown = pages.post(f"/evalsets/{many}/selection", query).text
    pages.post(f"/evalsets/{many}/selection/copies", {**query, "target": other, "step": "move"})

    assert "<h1>225 selected cases</h1>" in shown
    assert shown.count('name="case"') >= 225
    assert len(ids_in(pages, "other")) == 227
    assert all(int(case_id[1:]) % 2 == 0 for case_id in ids_in(pages, "many"))


def test_the_list_offers_all_that_match_only_where_there_are_more_pages(pages: Pages, sets: tuple[str, str]) -> None:
    many, _ = sets

    whole = pages.get(f"/evalsets/{many}").text
    odd = pages.get(f"/evalsets/{many}?tag=odd&start=200").text
    few = pages.get(f"/evalsets/{many}?q=Say+44").text

    assert "Select all 450 cases that match" in whole
    assert "Select all 225 cases that match" in odd
    assert 'name="with_tag" value="odd"' in odd
    assert "that match" not in few


def test_all_that_match_are_played_from_the_form(pages: Pages, sets: tuple[str, str]) -> None:
    many, _ = sets

    some = pages.get(f"/runs/new?evalset={many}&which=all&q=Say+44&with_tag=odd").text
    every = pages.get(f"/runs/new?evalset={many}&which=all&q=").text

    assert ">5</span> of 450 cases selected" in some
    assert re.search(r'name="cases" value="all"[^>]* checked', every)


def test_a_case_is_duplicated_in_other_words_and_expects_the_same(pages: Pages, calc: str) -> None:
    before = pages.stored()
    fields = {
        "case": ["roll/and check", "quiet"],
        "case-0": "roll/and check",
        "text-0": "Please roll\r\na die",
        "take-0": "1",
        "case-1": "quiet",
        "text-1": "Hello",
    }

    answer = pages.post(f"/evalsets/{calc}/selection/wordings", fields)

    undo = undo_address(pages, answer)
    cases = pages.stored()["eval_cases"]
    assert [case["eval_id"] for case in cases] == ["roll/and check", "roll/and check_reworded", "quiet"]
    original, copy = cases[0]["conversation"][0], cases[1]["conversation"][0]
    assert copy["user_content"]["parts"][0]["text"] == "Please roll\na die"
    assert copy["intermediate_data"] == original["intermediate_data"]
    assert copy["final_response"] == original["final_response"]
    assert cases[1]["tags"] == ["smoke"]
    assert pages.post(undo).status_code == 303
    assert pages.stored() == before


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "Accept at least one wording"),
        ({"take-1": "1"}, "Write other words for &#39;quiet&#39;"),
        ({"take-1": "1", "text-1": "  "}, "Write other words for &#39;quiet&#39;"),
        ({"take-1": "1", "case-1": "gone", "text-1": "x"}, "This eval set has no case &#39;gone&#39;"),
    ],
    ids=["none", "same", "blank", "gone"],
)
def test_a_wording_that_cannot_be_comes_back_with_all_texts(
    pages: Pages, calc: str, fields: dict[str, str], sentence: str
) -> None:
    before = pages.stored()
    texts = {"case": ["roll/and check", "quiet"], "case-0": "roll/and check", "text-0": "Other <b>words</b>"}

    answer = pages.post(
        f"/evalsets/{calc}/selection/wordings", {**texts, "case-1": "quiet", "text-1": "Hello"} | fields
    )

    assert answer.status_code in (404, 422)
    assert sentence in answer.text
    assert "Other &lt;b&gt;words&lt;/b&gt;" in answer.text
    assert pages.stored() == before


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 422),
        ({"case": "gone", "target": "OTHER", "step": "copy"}, 404),
        ({"case": "c001", "target": "nowhere", "step": "copy"}, 422),
        ({"case": "c001", "target": "SELF", "step": "move"}, 422),
    ],
    ids=["nothing", "unknown case", "unknown set", "same set"],
)
def test_a_step_that_cannot_be_changes_nothing(
    pages: Pages, sets: tuple[str, str], fields: dict[str, str], status: int
) -> None:
    many, other = sets
    before = [pages.stored(f"{name}.evalset.json") for name in ("many", "other")]
    places = {"OTHER": other, "SELF": many}

    answer = pages.post(
        f"/evalsets/{many}/selection/copies", {name: places.get(text, text) for name, text in fields.items()}
    )

    assert answer.status_code == status
    assert [pages.stored(f"{name}.evalset.json") for name in ("many", "other")] == before


class Proposals:
    """A model that proposes a wording for the first text."""

    models = ("small",)

    async def propose(self, texts: list[str], model: str) -> dict[int, str]:
        if model != "small":
            raise UsageError(f"{model} is not among the models of the settings", field="model")
        return {0: f"<i>Kindly</i>: {texts[0]}"}


def test_a_model_proposes_texts_that_a_person_reads_before_they_count(pages: Pages, calc: str) -> None:
    pages.desk.__dict__["wordings"] = Proposals()
    before = pages.stored()
    fields = {"case": ["roll/and check", "quiet"], "text-1": "My own words", "take-1": "1", "op": "propose"}

    proposed = pages.post(f"/evalsets/{calc}/selection", fields | {"model": "small"}).text
    refused = pages.post(f"/evalsets/{calc}/selection", fields | {"model": "dear"})

    assert "&lt;i&gt;Kindly&lt;/i&gt;: Roll a die" in proposed
    assert not re.search(r'name="take-0"[^>]* checked', proposed)
    assert "My own words" in proposed
    assert re.search(r'name="take-1"[^>]* checked', proposed)
    assert refused.status_code == 422
    assert "My own words" in refused.text
    assert pages.stored() == before


def test_a_set_of_many_megabytes_is_tagged_moved_and_restored(pages: Pages, sets: tuple[str, str]) -> None:
    _, other = sets
    large = pages.write(
        "large.evalset.json",
        {"eval_set_id": "large", "eval_cases": [case_of(f"l{number}", "é" * 3_000) for number in range(400)]},
    )
    before = pages.stored("large.evalset.json")

    tagged = pages.post(f"/evalsets/{large}/tags", {"case": ["l7", "l399"], "add": "quarantine"})
    moved = pages.post(f"/evalsets/{large}/selection/copies", {"case": ["l8"], "target": other, "step": "move"})

    cases = {case["eval_id"]: case for case in pages.stored("large.evalset.json")["eval_cases"]}
    assert [case_id for case_id, case in cases.items() if case.get("tags")] == ["l7", "l399"]
    assert "l8" not in cases
    assert ids_in(pages, "other")[-1] == "l8"
    pages.post(undo_address(pages, moved))
    pages.post(undo_address(pages, tagged))
    assert pages.stored("large.evalset.json") == before


@pytest.fixture
def data_set(pages: Pages, sets: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a data set of 450 cases, which are found by their index."""
    monkeypatch.setattr(large, "DATA_SET", 1_000)
    monkeypatch.setattr(large, "WHOLE", 1_000)
    monkeypatch.setattr(large, "indexed_facts", build_index)
    pages.write("other.evalset.json", {"eval_set_id": "other", "eval_cases": []})
    return sets[0]


def test_a_data_set_is_copied_from_and_never_changed(pages: Pages, data_set: str, sets: tuple[str, str]) -> None:
    before = (pages.folder / "many.evalset.json").read_bytes()
    pages.post(f"/evalsets/{data_set}/tags", {"case": "c001", "add": "quarantine"})

    copied = pages.post(f"/evalsets/{data_set}/selection/copies", {"case": "c001", "target": sets[1], "step": "copy"})
    moved = pages.post(f"/evalsets/{data_set}/selection/copies", {"case": "c001", "target": sets[1], "step": "move"})
    wording = {"case": "c001", "case-0": "c001", "text-0": "x", "take-0": "1"}
    reworded = pages.post(f"/evalsets/{data_set}/selection/wordings", wording)
    deleted = pages.post(f"/evalsets/{data_set}/trash/cases", {"case": "c001"})
    criteria_answer = pages.post(
        f"/evalsets/{data_set}/selection/criteria", {"case": "c001", "criteria": "response_exact"}
    )

    assert copied.status_code == 303
    assert pages.stored("other.evalset.json")["eval_cases"][0]["tags"] == ["odd", "quarantine"]
    for refused in (moved, reworded, deleted, criteria_answer):
        assert refused.status_code == 422
        assert "he file evalsets/many.evalset.json is above 64 MiB" in refused.text
    assert (pages.folder / "many.evalset.json").read_bytes() == before


def test_tags_of_a_data_set_are_in_the_database_and_taken_back(pages: Pages, data_set: str) -> None:
    path = pages.folder / "many.evalset.json"
    pages.get(f"/evalsets/{data_set}")
    before, versions = path.read_bytes(), n_versions(pages, data_set)

    tagged = pages.post(f"/evalsets/{data_set}/tags", {"case": ["c001", "c002"], "add": "quarantine"})
    untagged = pages.post(f"/evalsets/{data_set}/tags", {"case": ["c001"], "remove": "odd"})

    words = pages.get(tagged.headers["location"]).text
    assert "Quarantine added to 2 cases" in words
    rows = pages.get(f"/evalsets/{data_set}?tag=quarantine").text
    assert [case_id for case_id in ("c000", "c001", "c002", "c003") if f">{case_id}</a>" in rows] == ["c001", "c002"]
    cases = pages.desk.evalsets.evalset(data_set).cases
    assert ids_with_tags(cases, ["quarantine"]) == ["c001", "c002"]
    assert (cases[1].tags, cases[2].tags, cases[3].tags) == (("quarantine",), ("quarantine",), ("odd",))
    assert len(ids_with_tags(cases, ["odd"])) == 224
    assert matching_ids(cases, text="quarant") == ["c001", "c002"]
    exported = pages.get(f"/evalsets/{data_set}/file?format=adk").json()["eval_cases"]
    assert [case["eval_id"] for case in exported if "quarantine" in case.get("tags", ())] == ["c001", "c002"]
    assert path.read_bytes() == before
    assert n_versions(pages, data_set) == versions

    assert pages.post(undo_address(pages, untagged)).status_code == 303
    undo = undo_address(pages, tagged)
    assert pages.post(undo).status_code == 303
    assert pages.post(undo).status_code == 404
    cases = pages.desk.evalsets.evalset(data_set).cases
    assert ids_with_tags(cases, ["quarantine"]) == []
    assert set(cases[1].tags) == {"odd"}
    assert len(ids_with_tags(cases, ["odd"])) == 225


def test_a_tag_of_a_data_set_that_changed_again_is_not_taken_back(pages: Pages, data_set: str) -> None:
    tagged = pages.post(f"/evalsets/{data_set}/tags", {"case": "c002", "add": "slow"})
    undo = undo_address(pages, tagged)
    pages.post(f"/evalsets/{data_set}/tags", {"case": "c002", "add": "quarantine"})

    refused = pages.post(undo)

    assert refused.status_code == 409
    assert set(pages.desk.evalsets.evalset(data_set).cases[2].tags) == {"slow", "quarantine"}


def test_a_case_of_a_data_set_that_is_edited_takes_its_tags_into_the_file(pages: Pages, data_set: str) -> None:
    pages.post(f"/evalsets/{data_set}/tags", {"case": ["c001", "c002"], "add": "quarantine"})
    desk = pages.desk.evalsets
    found = desk.cases.find(data_set, case_key("c001"))

    desk.cases.save(data_set, found.key, replace(found.case, tags=("odd", "kept")), found.version)

    stored = pages.stored("many.evalset.json")["eval_cases"]
    assert stored[1]["tags"] == ["odd", "kept"]
    assert desk.evalset(data_set).cases[1].tags == ("odd", "kept")
    assert desk.evalset(data_set).cases[2].tags == ("quarantine",)


def test_a_data_set_has_a_most_of_tags(pages: Pages, data_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.store.case_tags.MOST_TAGGED", 2)

    refused = pages.post(f"/evalsets/{data_set}/tags", {"case": ["c001", "c002", "c004"], "add": "quarantine"})

    assert refused.status_code == 422
    assert "at most 2 tags of a data set are kept, not 3" in refused.text
    assert ids_with_tags(pages.desk.evalsets.evalset(data_set).cases, ["quarantine"]) == []


def test_tags_follow_a_data_set_that_is_renamed(pages: Pages, data_set: str) -> None:
    pages.post(f"/evalsets/{data_set}/tags", {"case": ["c001"], "add": "quarantine"})

    new_id = pages.desk.evalsets.change(data_set, "several", "")

    assert ids_with_tags(pages.desk.evalsets.evalset(new_id).cases, ["quarantine"]) == ["c001"]


def test_a_step_has_a_most_of_cases(pages: Pages, calc: str) -> None:
    answer = pages.post(
        f"/evalsets/{calc}/selection/copies",
        {"case": [str(number) for number in range(MOST_CASES + 1)], "target": calc},
    )

    assert answer.status_code == 422
    assert json.dumps(pages.stored()).count("eval_id") == 2


def test_ticked_cases_get_criteria_of_their_own_in_one_step_and_one_version(
    pages: Pages, sets: tuple[str, str]
) -> None:
    many, _ = sets
    before = pages.stored("many.evalset.json")
    pages.get(f"/evalsets/{many}")
    n = n_versions(pages, many)
    fields = {"case": ["c001", "c003"], "criteria": "response_exact, response_match_score = 0.6"}

    answer = pages.post(f"/evalsets/{many}/selection/criteria", fields)

    undo = undo_address(pages, answer)
    assert "Criteria of 2 cases changed." in pages.get(answer.headers["location"]).text
    criteria_by_id = {
        case["eval_id"]: case["criteria"]
        for case in pages.stored("many.evalset.json")["eval_cases"]
        if "criteria" in case
    }
    assert criteria_by_id == {key: {"response_exact": None, "response_match_score": 0.6} for key in ("c001", "c003")}
    assert n_versions(pages, many) == n + 1
    same_text = pages.post(f"/evalsets/{many}/selection", {"case": ["c001", "c003"]}).text
    assert 'value="response_exact, response_match_score = 0.6"' in same_text
    assert 'name="criteria" value=""' in pages.post(f"/evalsets/{many}/selection", {"case": ["c001", "c002"]}).text
    assert pages.post(undo).status_code == 303
    assert pages.stored("many.evalset.json") == before


def test_criteria_are_taken_from_all_cases_that_match(pages: Pages, sets: tuple[str, str]) -> None:
    many, _ = sets
    query = {"which": "all", "q": "", "with_tag": "odd", "with_only": ""}
    pages.post(f"/evalsets/{many}/selection/criteria", {**query, "criteria": "response_exact"})
    assert sum("criteria" in case for case in pages.stored("many.evalset.json")["eval_cases"]) == 225

    pages.post(f"/evalsets/{many}/selection/criteria", {**query, "criteria": "response_exact", "step": "clear"})

    assert not any("criteria" in case for case in pages.stored("many.evalset.json")["eval_cases"])


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", "Name at least one metric"),
        ("no_such_metric", "no_such_metric"),
        ("response_exact, response_exact", "named twice"),
        ("response_exact = nan", "threshold"),
        ("response_exact = <b>", "&lt;b&gt;"),
    ],
)
def test_criteria_that_cannot_be_change_nothing_and_stay_in_their_field(
    pages: Pages, sets: tuple[str, str], typed: str, sentence: str
) -> None:
    before = (pages.folder / "many.evalset.json").read_bytes()

    answer = pages.post(f"/evalsets/{sets[0]}/selection/criteria", {"case": ["c001"], "criteria": typed})

    assert answer.status_code == 422
    assert sentence in answer.text
    assert f'name="criteria" value="{html.escape(typed)}"' in answer.text
    assert (pages.folder / "many.evalset.json").read_bytes() == before


def test_another_column_named_criteria_is_not_written_over_by_a_step(pages: Pages) -> None:
    cases = [case_of("a", criteria="by hand"), case_of("b")]
    set_id = pages.write("own.evalset.json", {"eval_set_id": "own", "eval_cases": cases})

    answer = pages.post(f"/evalsets/{set_id}/selection/criteria", {"case": ["a", "b"], "criteria": "response_exact"})

    assert answer.status_code == 422
    assert "another column named criteria" in answer.text
    assert pages.stored("own.evalset.json")["eval_cases"] == cases
