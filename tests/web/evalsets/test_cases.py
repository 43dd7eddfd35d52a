"""The case editor, as a browser without a script uses it."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from tests.web.evalsets.conftest import fields_of

Pages = Any
CASE = "roll/and check"
HTMX = {"HX-Request": "true", "HX-Target": "div#editor"}


def test_saving_an_untouched_form_changes_not_a_byte(pages: Pages, address: str) -> None:
    before = (pages.folder / "calc.evalset.json").read_bytes()

    answer = pages.post(address, pages.fields(address))

    assert answer.status_code == 303
    assert (pages.folder / "calc.evalset.json").read_bytes() == before


DECISIONS: list[dict[str, Any]] = [
    {"tool": "look", "decision": "approve"},
    {"turn": 2, "decision": "answer", "answer": {"n": [1, "<b>"]}, "tool": "ask"},
    {"decision": "deny", "turn": 1, "tool": "roll_die", "reason": "No."},
]


def decide(pages: Pages, decisions: Any) -> None:
    """Write decisions into the first case of the file."""
    file = pages.folder / "calc.evalset.json"
    raw = json.loads(file.read_bytes())
    raw["eval_cases"][0]["human_decisions"] = decisions
    file.write_text(json.dumps(raw, indent=2))


def test_decisions_of_a_person_stand_at_their_turns(pages: Pages, address: str) -> None:
    decide(pages, DECISIONS)

    fields = pages.fields(address)

    assert (fields["turn-0-decision-0-tool"], fields["turn-0-decision-0-value"]) == ("roll_die", "No.")
    assert fields["turn-1-decision-0-value"] == '{"n": [1, "<b>"]}'
    assert fields["decision-0-tool"] == "look"
    assert "Kept unchanged: <code>human_decisions" not in pages.get(address).text


def test_decisions_that_nobody_edits_stay_as_they_are(pages: Pages, address: str) -> None:
    decide(pages, DECISIONS)
    before = (pages.folder / "calc.evalset.json").read_bytes()

    answer = pages.post(address, pages.fields(address))

    assert answer.status_code == 303
    assert (pages.folder / "calc.evalset.json").read_bytes() == before


def test_decisions_move_with_their_turn_and_go_with_it(pages: Pages, address: str) -> None:
    decide(pages, DECISIONS)
    moved = pages.post(address, pages.fields(address) | {"op": "turn-1-up"})
    typed = fields_of(moved.text) | {"turn-1-decision-0-value": "Never."}

    pages.post(address, typed)

    assert pages.stored()["eval_cases"][0]["human_decisions"] == [
        {"turn": 1, "tool": "ask", "decision": "answer", "answer": {"n": [1, "<b>"]}},
        {"turn": 2, "tool": "roll_die", "decision": "deny", "reason": "Never."},
        {"tool": "look", "decision": "approve"},
    ]
    gone = pages.post(address, pages.fields(address) | {"op": "turn-0-delete"})
    pages.post(address, fields_of(gone.text))
    assert [each.get("turn") for each in pages.stored()["eval_cases"][0]["human_decisions"]] == [1, None]


def test_decisions_are_added_and_deleted(pages: Pages, address: str) -> None:
    first = pages.post(address, pages.fields(address) | {"op": "turn-0-decision-add"})
    second = pages.post(address, fields_of(first.text) | {"op": "decision-add"})
    typed = fields_of(second.text) | {"turn-0-decision-0-tool": "refund", "decision-0-choice": "answer"}

    empty = pages.post(address, typed)
    saved = pages.post(address, typed | {"decision-0-value": "text, no JSON"})

    assert empty.status_code == 422
    assert "Enter the answer: JSON, or text." in empty.text
    assert saved.status_code == 303
    assert pages.stored()["eval_cases"][0]["human_decisions"] == [
        {"turn": 1, "tool": "refund", "decision": "approve"},
        {"decision": "answer", "answer": "text, no JSON"},
    ]
    without = pages.post(address, pages.fields(address) | {"op": "decision-0-delete"})
    without = pages.post(address, fields_of(without.text) | {"op": "turn-0-decision-0-delete"})
    pages.post(address, fields_of(without.text))
    assert "human_decisions" not in pages.stored()["eval_cases"][0]


@pytest.mark.parametrize(
    "decisions", [{}, ["x"], [{"decision": "approve", "turn": 9}], [{"decision": "approve", "more": 1}]]
)
def test_decisions_that_the_form_cannot_show_are_kept(pages: Pages, address: str, decisions: Any) -> None:
    decide(pages, decisions)
    before = (pages.folder / "calc.evalset.json").read_bytes()

    page = pages.get(address).text
    answer = pages.post(address, pages.fields(address))

    assert "<code>human_decisions</code>" in page
    assert "decision-add" not in page
    assert answer.status_code == 303
    assert (pages.folder / "calc.evalset.json").read_bytes() == before


def test_everything_in_a_case_is_edited_and_what_we_do_not_know_survives(pages: Pages, address: str) -> None:
    typed = pages.fields(address) | {
        "case": "rolled",
        "tags": "smoke, new, smoke",
        "turn-0-query": "Roll two dice",
        "turn-0-call-0-arg-0-value": '{"n": 2}',
        "turn-0-intermediate-0-text": "Wait.",
        "turn-0-reference": "3\r\nand 4",
        "turn-1-calls": "no_tool",
        "initial": '{"rolls": []}',
        "final": '{"total": 7}',
    }

    answer = pages.post(address, typed)

    stored = pages.stored()
    case = stored["eval_cases"][0]
    first, second = case["conversation"]
    assert answer.status_code == 303
    assert (stored["x_team"], case["x_owner"], first["invocation_id"]) == ("dice", "somebody", "e-1")
    assert (case["eval_id"], case["tags"], case["final_session_state"]) == ("rolled", ["smoke", "new"], {"total": 7})
    assert case["session_input"] == {"app_name": "dice", "user_id": "u", "state": {"rolls": []}}
    assert first["user_content"]["parts"] == [{"text": "Roll two dice"}]
    assert first["final_response"]["parts"] == [{"text": "3\nand 4"}]
    assert first["intermediate_data"]["tool_uses"] == [{"id": "c-1", "name": "roll_die", "args": {"sides": {"n": 2}}}]
    assert first["intermediate_data"]["intermediate_responses"] == [["dice", [{"text": "Wait."}]]]
    assert second["intermediate_data"]["tool_uses"] == []
    assert second["invocation_id"] == "e-2"


@pytest.mark.parametrize(
    ("op", "queries"),
    [
        ("turn-add", ["Roll a die", "Thanks", ""]),
        ("turn-1-up", ["Thanks", "Roll a die"]),
        ("turn-0-down", ["Thanks", "Roll a die"]),
        ("turn-0-up", ["Roll a die", "Thanks"]),
        ("turn-0-delete", ["Thanks"]),
    ],
)
def test_a_button_changes_the_turns_of_the_form_and_saves_nothing(
    pages: Pages, address: str, op: str, queries: list[str]
) -> None:
    before = pages.stored()

    answer = pages.post(address, pages.fields(address) | {"op": op})

    found = re.findall(r'<textarea id="turn-\d-query"[^>]*>\n([^<]*)</textarea>', answer.text)
    assert answer.status_code == 200
    assert found == queries
    assert pages.stored() == before


@pytest.mark.parametrize(
    ("op", "shown"),
    [
        ("turn-1-call-add", 'name="turn-1-call-0-name"'),
        ("turn-0-call-0-arg-add", 'name="turn-0-call-0-arg-1-value"'),
        ("turn-0-intermediate-add", 'name="turn-0-intermediate-1-text"'),
    ],
)
def test_a_button_adds_a_part_to_a_turn(pages: Pages, address: str, op: str, shown: str) -> None:
    assert shown in pages.post(address, pages.fields(address) | {"op": op}).text


def test_htmx_gets_the_editor_alone_and_is_sent_on_by_a_header(pages: Pages, address: str) -> None:
    fields = pages.fields(address)

    changed = pages.client.post(address, data=fields | {"op": "turn-add"}, headers=HTMX)
    saved = pages.client.post(address, data=fields, headers=HTMX)

    assert "<html" not in changed.text
    assert "hx-" not in changed.text
    assert saved.status_code == 200
    assert saved.headers["HX-Redirect"].startswith(address)


@pytest.mark.parametrize(
    "op", ["turn-9-up", "turn", "x-add", "turn-0-query-add", "turn-0-fly", "__class__-0-up", "-" * 999]
)
def test_a_button_that_does_not_exist_is_refused(pages: Pages, address: str, op: str) -> None:
    assert pages.post(address, pages.fields(address) | {"op": op}).status_code == 422


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("turn-0-query", " ", "Enter the message of the user"),
        ("turn-0-call-0-name", "", "Name the tool"),
        ("turn-0-call-0-arg-0-name", "", "Name the argument"),
        ("turn-0-call-0-arg-0-value", "Paris", "Text stands in quotes"),
        ("turn-0-call-0-arg-0-value", "NaN", "NaN"),
        ("turn-0-call-0-arg-0-value", '{"a": 1, "a": 2}', "twice"),
        ("initial", '{"a": 1,\n "b": }', "Line 2, column 7"),
        ("initial", "[1]", "This must be an object"),
        ("final", "{", "Line 1"),
        ("case", "", "Name the case"),
        ("case", "a\x00b", "control characters"),
        ("case", "x" * 501, "At most 500"),
        ("tags", ",".join(map(str, range(60))), "At most 50 tags"),
    ],
)
def test_a_problem_stands_beside_its_field_and_nothing_typed_is_lost(
    pages: Pages, address: str, field: str, value: str, sentence: str
) -> None:
    before = pages.stored()

    answer = pages.post(address, pages.fields(address) | {"turn-1-query": "typed <here>", field: value})

    assert answer.status_code == 422
    assert sentence in answer.text
    assert f'href="#{field}"' in answer.text
    assert f'id="{field}-error"' in answer.text
    assert "typed &lt;here&gt;" in answer.text
    assert pages.stored() == before


def test_text_that_is_not_json_is_offered_to_be_quoted(pages: Pages, address: str) -> None:
    typed = pages.fields(address) | {"turn-0-call-0-arg-0-value": 'say "Paris"'}

    offered = pages.post(address, typed).text
    quoted = pages.post(address, typed | {"op": "turn-0-call-0-arg-0-quote"}).text

    assert 'value="turn-0-call-0-arg-0-quote"' in offered
    assert "&#34;say \\&#34;Paris\\&#34;&#34;</textarea>" in quoted


def test_these_calls_without_a_call_is_a_problem(pages: Pages, address: str) -> None:
    answer = pages.post(address, pages.fields(address) | {"turn-1-calls": "calls"})

    assert answer.status_code == 422
    assert "Add a call, or choose" in answer.text


def test_the_last_turn_cannot_be_left_out(pages: Pages, calc: str) -> None:
    address = pages.case_address(calc, "quiet")
    fields = {name: value for name, value in pages.fields(address).items() if not name.startswith("turn-")}

    assert pages.post(address, fields).status_code == 422


def test_a_case_that_changed_meanwhile_is_shown_beside_what_was_typed(pages: Pages, calc: str, address: str) -> None:
    typed = pages.fields(address) | {"turn-0-reference": "mine"}
    theirs = pages.stored()
    theirs["eval_cases"][0]["x_owner"] = "somebody else"
    pages.write("calc.evalset.json", theirs)

    asked = pages.post(address, typed)
    unchanged = pages.stored()
    answer = pages.post(address, typed | {"choice": "overwrite"})

    case = pages.stored()["eval_cases"][0]
    assert asked.status_code == 409
    assert "mine" in asked.text
    assert "You rolled 3" in asked.text
    assert unchanged == theirs
    assert answer.status_code == 303
    assert case["x_owner"] == "somebody else"
    assert case["conversation"][0]["final_response"]["parts"] == [{"text": "mine"}]


def test_a_change_to_another_case_is_kept_and_in_nobodys_way(pages: Pages, calc: str, address: str) -> None:
    typed = pages.fields(address) | {"turn-0-reference": "mine"}
    theirs = pages.stored()
    theirs["eval_cases"][1]["x_new"] = True
    pages.write("calc.evalset.json", theirs)

    answer = pages.post(address, typed)

    assert answer.status_code == 303
    assert pages.stored()["eval_cases"][1]["x_new"] is True


def test_a_case_that_is_gone_can_be_added_again(pages: Pages, calc: str, address: str) -> None:
    typed = pages.fields(address)
    pages.post(f"{address}/trash")

    asked = pages.post(address, typed)
    answer = pages.post(address, typed | {"choice": "add"})

    assert asked.status_code == 409
    assert "no longer in calc" in asked.text
    assert answer.status_code == 303
    assert [case["eval_id"] for case in pages.stored()["eval_cases"]] == ["quiet", CASE]


def test_a_name_of_another_case_is_answered_with_a_choice(pages: Pages, address: str) -> None:
    typed = pages.fields(address) | {"case": "quiet"}

    asked = pages.post(address, typed)
    answer = pages.post(address, typed | {"choice": "free"})

    assert asked.status_code == 409
    assert "Save as quiet_2" in asked.text
    assert answer.status_code == 303
    assert [case["eval_id"] for case in pages.stored()["eval_cases"]] == ["quiet_2", "quiet"]


def test_a_new_case_is_written_by_hand(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/cases/new"
    typed = pages.fields(address) | {"case": "third", "turn-0-query": "Hi"}

    empty = pages.post(address, pages.fields(address))
    answer = pages.post(address, typed)
    taken = pages.post(address, typed)

    assert empty.status_code == 422
    assert answer.status_code == 303
    assert pages.get(answer.headers["location"]).status_code == 200
    assert pages.stored()["eval_cases"][2] == {
        "eval_id": "third",
        "conversation": [{"user_content": {"parts": [{"text": "Hi"}], "role": "user"}}],
    }
    assert taken.status_code == 409


def test_a_case_is_duplicated_moved_and_deleted(pages: Pages, calc: str, address: str) -> None:
    copy = pages.post(f"{address}/copies").headers["location"]
    pages.post(f"{address}/position", {"step": "down"})
    moved = [case["eval_id"] for case in pages.stored()["eval_cases"]]
    pages.post(f"{copy.partition('?')[0]}/trash")

    assert moved == [f"{CASE}_copy", CASE, "quiet"]
    assert [case["eval_id"] for case in pages.stored()["eval_cases"]] == [CASE, "quiet"]
    assert pages.post(f"{address}/position", {"step": "sideways"}).status_code == 422


def test_a_case_that_is_not_there_is_404(pages: Pages, calc: str) -> None:
    assert pages.get(f"/evalsets/{calc}/cases/nothing").status_code == 404
    assert pages.get(f"/evalsets/{calc}/cases/nothing/json").status_code == 404


def test_too_many_parts_are_refused(pages: Pages, address: str) -> None:
    many = {f"turn-{index}-query": "x" for index in range(201)}

    assert pages.post(address, {"case": "x"} | many).status_code == 422


OUTCOMES: list[dict[str, Any]] = [
    {"turn": 1, "outcome": "refused_by_guardrail", "guardrail": "off topic"},
    {"outcome": "answered"},
]


def expect_outcomes(pages: Pages, outcomes: Any) -> None:
    """Write expected outcomes into the first case of the file."""
    path = pages.folder / "calc.evalset.json"
    raw = json.loads(path.read_text())
    raw["eval_cases"][0]["expected_outcomes"] = outcomes
    path.write_text(json.dumps(raw, indent=2))


def test_expected_outcomes_are_lines_of_the_form(pages: Pages, address: str) -> None:
    expect_outcomes(pages, OUTCOMES)
    typed = pages.fields(address)

    saved = pages.post(address, typed | {"outcomes": "2: usage_limit\nrefused_by_model"})

    assert typed["outcomes"].splitlines() == ["1: refused_by_guardrail off topic", "answered"]
    assert saved.status_code == 303
    assert pages.stored()["eval_cases"][0]["expected_outcomes"] == [
        {"turn": 2, "outcome": "usage_limit"},
        {"outcome": "refused_by_model"},
    ]
    assert "Kept unchanged: <code>expected_outcomes" not in pages.get(address).text
    pages.post(address, pages.fields(address) | {"outcomes": ""})
    assert "expected_outcomes" not in pages.stored()["eval_cases"][0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("refused", "outcome must be one of"),
        ("one: answered", "the number of a turn stands before the colon"),
        ("answered off topic", "guardrail is the name of one"),
        ("9: answered", "the case has 2 turns"),
        ("0: answered", "turn must be 1 or more"),
    ],
)
def test_an_outcome_that_cannot_be_read_is_named_at_its_field(
    pages: Pages, address: str, line: str, words: str
) -> None:
    answer = pages.post(address, pages.fields(address) | {"outcomes": line})

    assert answer.status_code == 422
    assert words in html.unescape(answer.text)


def test_outcomes_stay_as_written_and_move_with_their_turn(pages: Pages, address: str) -> None:
    expect_outcomes(pages, OUTCOMES)
    before = (pages.folder / "calc.evalset.json").read_bytes()

    pages.post(address, pages.fields(address))
    unchanged = (pages.folder / "calc.evalset.json").read_bytes()
    moved = pages.post(address, pages.fields(address) | {"op": "turn-1-up"})
    pages.post(address, fields_of(moved.text))

    assert unchanged == before
    assert pages.stored()["eval_cases"][0]["expected_outcomes"] == [{**OUTCOMES[0], "turn": 2}, OUTCOMES[1]]


def test_outcomes_that_the_form_cannot_show_are_kept(pages: Pages, address: str) -> None:
    expect_outcomes(pages, [{"outcome": "no such"}])

    saved = pages.post(address, pages.fields(address) | {"case": "renamed"})

    assert saved.status_code == 303
    assert pages.stored()["eval_cases"][0]["expected_outcomes"] == [{"outcome": "no such"}]


def test_a_case_gets_its_own_number_of_trials_and_loses_it(pages: Pages, calc: str, address: str) -> None:
    case = pages.stored()["eval_cases"][0]

    pages.post(address, pages.fields(address) | {"trials": " 20 "})
    with_trials = pages.stored()["eval_cases"][0]
    refused = pages.post(address, pages.fields(address) | {"trials": "0"})
    pages.post(address, pages.fields(address) | {"trials": ""})

    assert with_trials == case | {"trials": 20}
    assert refused.status_code == 422
    assert "Enter a whole number from 1 to 1,000" in refused.text
    assert pages.stored()["eval_cases"][0] == case


def test_a_case_names_its_own_criteria_and_loses_them(pages: Pages, calc: str, address: str) -> None:
    case = pages.stored()["eval_cases"][0]

    pages.post(address, pages.fields(address) | {"criteria": "final_state_match, response_match_score=0.5"})
    with_criteria = pages.stored()["eval_cases"][0]
    shown = pages.fields(address)["criteria"]
    refused = pages.post(address, pages.fields(address) | {"criteria": "no_such_metric"})
    pages.post(address, pages.fields(address) | {"criteria": ""})

    assert with_criteria == case | {"criteria": {"final_state_match": None, "response_match_score": 0.5}}
    assert shown == "final_state_match, response_match_score = 0.5"
    assert refused.status_code == 422
    assert "no_such_metric" in refused.text
    assert pages.stored()["eval_cases"][0] == case


def test_another_column_named_criteria_is_kept(pages: Pages, calc: str, address: str) -> None:
    stored = pages.stored()
    stored["eval_cases"][0]["criteria"] = {"tone": {"weight": 2}}
    pages.write("calc.evalset.json", stored)

    fields = pages.fields(address)
    pages.post(address, fields | {"tags": "new"})

    assert "criteria" not in fields
    assert pages.stored()["eval_cases"][0]["criteria"] == {"tone": {"weight": 2}}
