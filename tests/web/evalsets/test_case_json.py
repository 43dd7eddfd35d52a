"""A case as raw JSON, scenarios and files of the old form, as a browser without a script edits them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

Pages = Any


def test_the_raw_json_is_the_case_as_the_file_has_it_and_may_be_edited(pages: Pages, calc: str, address: str) -> None:
    shown = pages.get(f"{address}/json").text
    version = re.search(r'name="version" value="([^"]+)"', shown)
    case = pages.stored()["eval_cases"][0]

    typed = {"raw": json.dumps(case | {"x_owner": "me"}), "version": version[1] if version else ""}
    answer = pages.post(f"{address}/json", typed)

    assert "x_owner" in shown
    assert answer.status_code == 303
    assert pages.stored()["eval_cases"][0] == case | {"x_owner": "me"}


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        ('{"eval_id": "x",\n "conversation": 7}', "Line 2"),
        ('{"eval_id": "x",\n', "Line"),
        ("", "empty"),
        ('{"eval_id": "", "conversation": []}', "Name the case"),
    ],
)
def test_raw_json_that_is_no_case_says_where(pages: Pages, address: str, raw: str, place: str) -> None:
    answer = pages.post(f"{address}/json", {"raw": raw, "version": ""})

    assert answer.status_code == 422
    assert place in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_raw_json_over_a_changed_case_shows_both(pages: Pages, address: str) -> None:
    raw = json.dumps(pages.stored()["eval_cases"][0] | {"x_owner": "me"})

    asked = pages.post(f"{address}/json", {"raw": raw, "version": "old"})
    answer = pages.post(f"{address}/json", {"raw": raw, "version": "old", "choice": "overwrite"})

    assert asked.status_code == 409
    assert "Overwrite with mine" in asked.text
    assert answer.status_code == 303


def test_a_scenario_is_shown_beside_its_raw_json(pages: Pages) -> None:
    scenario = {"starting_prompt": "Hi", "conversation_plan": "Ask:\n\n1. for a **die**\n2. <script>x</script>"}
    criteria = {"actions": [{"name": "roll_die", "arguments": {"sides": 6}}]}
    case = {"eval_id": "plan", "conversation_scenario": scenario, "evaluation_criteria": criteria}
    address = pages.case_address(pages.write("s.evalset.json", {"eval_set_id": "s", "eval_cases": [case]}), "plan")

    answer, page = pages.get(address), pages.get(f"{address}/json").text

    assert answer.status_code == 200
    assert "simulated user" in page
    assert "<li>for a <strong>die</strong></li>" in page
    assert "<li>&lt;script&gt;x&lt;/script&gt;</li>" in page
    assert "<code>roll_die</code>" in page
    assert "not made" not in page


def test_a_file_of_the_old_form_asks_before_it_becomes_a_new_one(pages: Pages) -> None:
    turns = [{"query": "Roll", "expected_tool_use": [], "reference": "3"}]
    set_id = pages.write("old.test.json", turns)
    address = pages.case_address(set_id, "old")
    typed = pages.fields(address) | {"final": '{"a": 1}'}

    asked = pages.post(address, typed)
    unchanged = pages.stored("old.test.json")
    answer = pages.post(address, typed | {"form": "adk"})

    assert asked.status_code == 409
    assert "Save the file in ADK" in asked.text
    assert unchanged == turns
    assert answer.status_code == 303
    assert pages.stored("old.test.json")["eval_cases"][0]["final_session_state"] == {"a": 1}
