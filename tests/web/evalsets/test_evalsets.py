"""The list of eval sets, one set, and what is done to a whole set."""

from __future__ import annotations

import html
import os
import re
from typing import Any

import pytest

from evaldesk.formats import read_evalset

Pages = Any


def test_the_list_names_every_set_and_why_one_cannot_be_read(pages: Pages, calc: str) -> None:
    (pages.folder / "broken.evalset.json").write_text('{"eval_set_id": "broken",\n "eval_cases": 7}')

    text = pages.get("/evalsets").text

    assert f'href="/evalsets/{calc}">calc</a>' in text
    assert "cannot be read" in text
    assert "broken.evalset.json:2" in text


def test_a_set_whose_file_has_no_time_of_its_own_is_shown(pages: Pages, calc: str) -> None:
    os.utime(pages.folder / "calc.evalset.json", ns=(0, 0))

    assert pages.get("/evalsets").status_code == 200
    assert pages.get(f"/evalsets/{calc}").status_code == 200


def test_an_empty_list_says_what_to_do_next(pages: Pages) -> None:
    assert "No eval sets yet" in pages.get("/evalsets").text


def test_the_page_of_a_set_that_cannot_be_read_says_where_and_why(pages: Pages) -> None:
    (pages.folder / "broken.evalset.json").write_text("{")
    set_id = pages.desk.evalsets.list()[0].id

    answer = pages.get(f"/evalsets/{set_id}")

    assert answer.status_code == 422
    assert "broken.evalset.json:1" in answer.text


@pytest.mark.parametrize(
    "address", ["/evalsets/nothing", "/evalsets/nothing/cases/x", "/evalsets/..%2f..%2fetc", "/evalsets/nothing/file"]
)
def test_a_set_that_is_not_there_is_404(pages: Pages, calc: str, address: str) -> None:
    assert pages.get(address).status_code == 404


@pytest.mark.parametrize("address", ["/evalsets/{}/trash", "/evalsets/{}/copies", "/evalsets/trash/x/restoration"])
def test_what_changes_something_does_not_answer_get(pages: Pages, calc: str, address: str) -> None:
    assert pages.get(address.format(calc)).status_code == 405


def test_a_set_is_created_and_its_page_opened(pages: Pages) -> None:
    answer = pages.post("/evalsets", {"name": "trips", "description": "Cities."})

    assert answer.status_code == 303
    assert pages.stored("trips.evalset.json")["description"] == "Cities."
    assert "No cases yet" in pages.get(answer.headers["location"]).text


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-x", "con", "x" * 101, "é", "a\x00b", "."])
def test_a_name_that_cannot_be_a_file_is_refused_beside_its_field(pages: Pages, name: str) -> None:
    answer = pages.post("/evalsets", {"name": name, "description": "kept"})

    assert answer.status_code == 422
    assert 'aria-invalid="true"' in answer.text
    assert "kept" in answer.text
    assert list(pages.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["calc", "CALC"])
def test_a_name_that_is_taken_is_answered_with_a_free_one(pages: Pages, calc: str, name: str) -> None:
    answer = pages.post("/evalsets", {"name": name})

    assert answer.status_code == 409
    assert f"{name}_2 is free" in answer.text


def test_renaming_keeps_what_the_file_says(pages: Pages, calc: str) -> None:
    answer = pages.post(f"/evalsets/{calc}/settings", {"name": "sums", "description": "Adds."})

    assert answer.status_code == 303
    stored = pages.stored("sums.evalset.json")
    assert stored["x_team"] == "dice"
    assert stored["description"] == "Adds."
    assert not (pages.folder / "calc.evalset.json").exists()


def test_a_set_gets_criteria_which_the_form_of_a_run_has(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/settings"

    answer = pages.post(address, {"name": "calc", "criteria": "tool_exact = 1\r\nresponse_match_score = 0.25"})

    assert answer.status_code == 303
    assert pages.stored()["criteria"] == {"tool_exact": 1, "response_match_score": 0.25}
    assert "tool_exact = 1\nresponse_match_score = 0.25</textarea>" in pages.get(address).text
    form = pages.get(f"/runs/new?evalset={calc}").text
    assert re.search(r'value="tool_exact"[^>]*checked', form)
    assert not re.search(r'value="tool_trajectory_avg_score"[^>]*checked', form)
    assert len(pages.desk.evalsets.versions.list(calc)) >= 1


def test_criteria_that_somebody_else_changed_are_not_overwritten(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/settings"
    fields = {"name": "calc", "criteria-seen": ""}
    pages.post(address, fields | {"criteria": "tool_exact = 1"})

    answer = pages.post(address, fields | {"criteria": "tool_exact = 0.5"})

    assert answer.status_code == 409
    assert "changed meanwhile" in answer.text
    assert pages.stored()["criteria"] == {"tool_exact": 1}


@pytest.mark.parametrize(
    ("criteria", "sentence"),
    [
        ("no_such_metric = 1", "no_such_metric"),
        ("tool_exact = 2", "out of range"),
        ("tool_exact = [", "tool_exact"),
        ("os:system = 1", "name a function or an address"),
        ("<script>", "METRIC = THRESHOLD"),
    ],
)
def test_criteria_that_cannot_be_are_refused_with_what_was_typed(
    pages: Pages, calc: str, criteria: str, sentence: str
) -> None:
    answer = pages.post(f"/evalsets/{calc}/settings", {"name": "sums", "criteria": criteria})

    assert answer.status_code == 422
    assert sentence in answer.text
    assert html.escape(criteria) in answer.text
    assert "criteria" not in pages.stored()


def test_renaming_to_a_taken_name_keeps_what_was_typed(pages: Pages, calc: str) -> None:
    pages.post("/evalsets", {"name": "trips"})

    answer = pages.post(f"/evalsets/{calc}/settings", {"name": "trips", "description": "typed"})

    assert answer.status_code == 409
    assert "typed" in answer.text
    assert (pages.folder / "calc.evalset.json").exists()


def test_a_description_that_somebody_else_changed_is_kept_beside_the_typed_one(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/settings"
    pages.post(address, {"name": "calc", "description": "Adds\r\nnumbers.", "seen": ""})
    shown = pages.get(address).text

    refused = pages.post(address, {"name": "sums", "description": "Mine <b>", "seen": ""})
    again = {"name": "sums", "description": "Mine <b>", "seen": "Adds\r\nnumbers."}

    assert 'name="seen" value="Adds\nnumbers."' in shown
    assert refused.status_code == 409
    assert "Somebody changed the description meanwhile: now it is “Adds\nnumbers.”" in refused.text
    assert "Mine &lt;b&gt;</textarea>" in refused.text
    assert 'value="sums"' in refused.text
    assert 'name="seen" value="Adds\nnumbers."' in refused.text
    assert pages.stored("calc.evalset.json")["description"] == "Adds\nnumbers."
    assert pages.post(address, again).status_code == 303
    assert pages.stored("sums.evalset.json")["description"] == "Mine <b>"


def test_the_same_description_of_both_is_no_conflict(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/settings"
    pages.post(address, {"name": "calc", "description": "Adds.", "seen": ""})

    assert pages.post(address, {"name": "calc", "description": "Adds.", "seen": ""}).status_code == 303


def test_a_copy_has_a_free_name(pages: Pages, calc: str) -> None:
    pages.post(f"/evalsets/{calc}/copies")
    pages.post(f"/evalsets/{calc}/copies")

    assert {each.name for each in pages.desk.evalsets.list()} == {"calc", "calc_copy", "calc_copy_2"}


def test_a_deleted_set_comes_back_by_undo(pages: Pages, calc: str) -> None:
    gone = pages.post(f"/evalsets/{calc}/trash").headers["location"]
    note = pages.get(gone).text
    token = gone.partition("trashed=")[2]

    answer = pages.post(f"/evalsets/trash/{token}/restoration")

    assert "calc.evalset.json</span> was moved to the trash" in note
    assert answer.status_code == 303
    assert pages.get(answer.headers["location"]).status_code == 200
    assert pages.post(f"/evalsets/trash/{token}/restoration").status_code == 404


def test_a_form_of_a_set_that_was_renamed_meanwhile_goes_to_the_renamed_one(pages: Pages, calc: str) -> None:
    address, seen = f"/evalsets/{calc}/settings", {"called": "calc", "seen": ""}
    typed = {"description": "Mine", **seen}
    pages.post(address, {"name": "sums", "description": "", **seen})

    followed = pages.post(f"{address}?from=form", {"name": "calc", **typed})
    there = followed.headers["location"].removesuffix("?from=form")
    described = pages.post(there, {"name": "calc", **typed})
    renamed = pages.post(there, {"name": "totals", **typed})
    again = pages.post(there, {"name": "totals", **typed, "called": "sums", "seen": "Mine"})
    twice = pages.get(address)

    assert followed.status_code == 307
    assert there.endswith("/settings")
    assert described.status_code == 303  # the name that the form only showed is no wish to rename it back
    assert renamed.status_code == 409
    assert "Somebody renamed it meanwhile: now it is sums." in renamed.text
    assert 'name="called" value="sums"' in renamed.text
    assert "Mine</textarea>" in renamed.text
    assert again.status_code == 303
    assert twice.headers["location"] == again.headers["location"].removesuffix("?note=changed") + "/settings"
    assert pages.stored("totals.evalset.json")["description"] == "Mine"


def test_an_address_of_a_set_that_is_there_again_or_gone_is_not_followed(pages: Pages, calc: str) -> None:
    there = pages.post(f"/evalsets/{calc}/settings", {"name": "sums", "description": ""}).headers["location"]
    sums = there.split("?")[0]
    followed = pages.get(f"/evalsets/{calc}/cases/none")
    pages.post("/evalsets", {"name": "calc"})

    back = pages.get(f"/evalsets/{calc}/cases/none")
    (pages.folder / "calc.evalset.json").unlink()
    pages.post(f"{sums}/trash", {})
    gone = pages.get(f"/evalsets/{calc}")

    assert (followed.status_code, followed.headers["location"]) == (307, f"{sums}/cases/none")
    assert (back.status_code, gone.status_code) == (404, 404)


@pytest.mark.parametrize("token", ["x", "..%2f..%2fetc", "%3Cscript%3E"])
def test_a_token_that_undoes_nothing_shows_no_note(pages: Pages, token: str) -> None:
    text = pages.get(f"/evalsets?trashed={token}").text

    assert "moved to the trash" not in text
    assert "<script>" not in text


def test_the_old_form_says_beforehand_what_it_leaves_out(pages: Pages, calc: str) -> None:
    pages.post(f"/evalsets/{calc}/settings", {"name": "calc", "description": "Adds."})

    text = pages.get(f"/evalsets/{calc}/exports").text
    given = pages.get(f"/evalsets/{calc}/file?format=adk-old")

    assert "description" in text
    assert read_evalset(given.content, source="old.json").cases[0].id == "roll/and check"
    assert given.json()[0]["data"][0]["query"] == "Roll a die"


def test_a_format_that_is_none_is_404(pages: Pages, calc: str) -> None:
    assert pages.get(f"/evalsets/{calc}/file?format=%22%0d%0aX").status_code == 404


def test_cases_are_searched_in_messages_and_tools(pages: Pages, calc: str) -> None:
    assert "quiet" not in rows(pages, calc, "q=roll_die")
    assert "quiet" in rows(pages, calc, "q=hello")
    assert "No case matches" in rows(pages, calc, "q=nowhere")


def test_cases_are_filtered_by_tag_and_by_what_they_assert(pages: Pages, calc: str) -> None:
    assert "quiet" not in rows(pages, calc, "tag=smoke")
    assert "No case matches" in rows(pages, calc, "only=unasserted")


def rows(pages: Pages, set_id: str, query: str) -> str:
    answer = pages.get(f"/evalsets/{set_id}?{query}", **{"HX-Request": "true", "HX-Target": "div#rows"})
    assert "<html" not in answer.text
    return str(answer.text)


def test_a_line_says_what_is_expected_and_what_is_not_asserted(pages: Pages, calc: str) -> None:
    text = pages.get(f"/evalsets/{calc}").text

    assert "+ 1 turn not asserted" in text
    assert "no tool may be called" in text


def test_a_long_set_is_shown_a_page_at_a_time(pages: Pages) -> None:
    turn = {"user_content": {"parts": [{"text": "Hi"}], "role": "user"}}
    cases = [{"eval_id": f"case_{index:03}", "conversation": [turn]} for index in range(250)]
    set_id = pages.write("long.evalset.json", {"eval_set_id": "long", "eval_cases": cases})

    first = pages.get(f"/evalsets/{set_id}").text
    second = pages.get(f"/evalsets/{set_id}?start=200").text

    assert "case_199</a>" in first
    assert "case_200</a>" not in first
    assert "case_200</a>" in second
    assert "1 to 200 of 250 cases" in first


def test_names_and_messages_are_shown_as_text(pages: Pages) -> None:
    turn = {"user_content": {"parts": [{"text": "<img src=x onerror=alert(1)>"}], "role": "user"}}
    value = {"eval_set_id": "x", "eval_cases": [{"eval_id": "<script>", "conversation": [turn], "tags": ["<b>"]}]}

    text = pages.get(f"/evalsets/{pages.write('x.evalset.json', value)}").text

    assert "<script>" not in text
    assert "<img" not in text
    assert "<b>&lt;" not in text.replace("<b>1</b>", "")


def test_ticked_cases_are_deleted_and_come_back_where_they_stood(pages: Pages, calc: str) -> None:
    gone = pages.post(f"/evalsets/{calc}/trash/cases", {"case": ["roll/and check"]}).headers["location"]
    left = [case["eval_id"] for case in pages.stored()["eval_cases"]]
    note = pages.get(gone).text
    token = gone.partition("case_trashed=")[2]

    answer = pages.post(f"/evalsets/{calc}/trash/cases/{token}/restoration")

    assert left == ["quiet"]
    assert "roll/and check was deleted" in note
    assert answer.status_code == 303
    assert pages.stored()["eval_cases"][0]["eval_id"] == "roll/and check"
    assert pages.stored()["eval_cases"][0]["x_owner"] == "somebody"


def test_deleting_without_a_tick_is_refused(pages: Pages, calc: str) -> None:
    assert pages.post(f"/evalsets/{calc}/trash/cases").status_code == 422
