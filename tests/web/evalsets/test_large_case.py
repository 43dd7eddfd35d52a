"""A case with values that are too large for a form: they stay in the file, and a file replaces them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

Pages = Any

LARGE = {"notes": "n" * 500_000, "log": ["e" * 100] * 2_000, "rolls": []}
USED = {"name": "store", "args": {"text": "t" * 200_000, "times": 2}}


@pytest.fixture
def large(pages: Pages) -> str:
    """The editor of a case with 700 kB of state, an argument of 200 kB, and a final state of 500 kB."""
    said = {"user_content": {"parts": [{"text": "Keep it"}]}, "intermediate_data": {"tool_uses": [USED]}}
    case = {
        "eval_id": "large",
        "conversation": [said],
        "session_input": {"app_name": "dice", "user_id": "u", "state": LARGE},
        "final_session_state": {"notes": LARGE["notes"]},
        "x_owner": "me",
    }
    set_id = pages.write("large.evalset.json", {"eval_set_id": "large", "eval_cases": [case]})
    return str(pages.case_address(set_id, "large"))


def stored(pages: Pages) -> Any:
    return pages.stored("large.evalset.json")["eval_cases"][0]


def version_on(text: str) -> str:
    found = re.search(r'name="version" value="([^"]+)"', text)
    assert found
    return found[1]


def test_a_large_case_is_opened_and_saved_without_its_values(pages: Pages, large: str) -> None:
    before = stored(pages)
    fields = pages.fields(large)

    answer = pages.post(large, fields | {"tags": "slow"})

    assert len(pages.get(large).content) < 150_000
    assert sum(map(len, fields.values())) < 5_000
    assert answer.status_code == 303
    assert stored(pages) == before | {"tags": ["slow"]}


def test_a_button_of_the_form_keeps_the_large_values(pages: Pages, large: str) -> None:
    from tests.web.evalsets.conftest import fields_of

    before = stored(pages)
    fields = pages.fields(large) | {"turn-0-call-0-arg-1-value": "3"}
    reshaped = pages.post(large, fields | {"op": "turn-0-call-0-arg-1-up"})

    pages.post(large, fields_of(reshaped.text))

    call = stored(pages)["conversation"][0]["intermediate_data"]["tool_uses"][0]
    assert len(reshaped.content) < 150_000
    assert call["args"] == {"times": 3, "text": USED["args"]["text"]}  # type: ignore[index]
    assert stored(pages)["session_input"] == before["session_input"]


def test_a_large_state_that_is_unticked_goes(pages: Pages, large: str) -> None:
    fields = pages.fields(large)
    del fields["initial-kept"], fields["final-kept"]

    pages.post(large, fields)

    assert not stored(pages)["session_input"].get("state")
    assert "final_session_state" not in stored(pages)


@pytest.mark.parametrize("name", ["initial", "final", "turn-0-call-0-arg-0-value"])
def test_a_value_that_changed_meanwhile_is_named_and_not_saved(pages: Pages, large: str, name: str) -> None:
    before = stored(pages)

    answer = pages.post(large, pages.fields(large) | {f"{name}-digest": "0" * 64})

    assert answer.status_code == 422
    assert f'id="{name}-error"' in answer.text
    assert "changed meanwhile" in answer.text
    assert stored(pages) == before


def test_many_values_that_are_too_much_together_stay_too(pages: Pages) -> None:
    args = {f"part{index}": "p" * 60_000 for index in range(90)}
    use = {"name": "store", "args": args}
    said = {"user_content": {"parts": [{"text": "Keep"}]}, "intermediate_data": {"tool_uses": [use]}}
    set_id = pages.write(
        "many.evalset.json", {"eval_set_id": "many", "eval_cases": [{"eval_id": "m", "conversation": [said]}]}
    )
    address = pages.case_address(set_id, "m")
    fields = pages.fields(address)

    answer = pages.post(address, fields | {"tags": "slow"})

    assert sum(map(len, fields.values())) < 50_000
    assert answer.status_code == 303
    found = pages.stored("many.evalset.json")["eval_cases"][0]
    assert found["conversation"][0]["intermediate_data"]["tool_uses"][0]["args"] == args


def test_texts_that_no_form_can_send_are_edited_in_a_file(pages: Pages) -> None:
    said = {"user_content": {"parts": [{"text": "q"}]}}
    case = {"eval_id": "t", "conversation": [said], "required_outputs": ["q" * 3_000_000]}
    set_id = pages.write("text.evalset.json", {"eval_set_id": "t", "eval_cases": [case]})

    answer = pages.get(pages.case_address(set_id, "t"))

    assert answer.headers["location"].endswith("/json")


def test_a_large_case_is_replaced_by_a_file(pages: Pages, large: str) -> None:
    page = pages.get(f"{large}/json")
    downloaded = pages.get(f"{large}/file")
    case = downloaded.json() | {"x_owner": "you"}
    case["session_input"]["state"]["rolls"] = [6]

    answer = pages.client.post(
        f"{large}/json",
        data={"version": version_on(page.text)},
        files={"file": ("case.json", json.dumps(case))},
    )

    assert len(page.content) < 50_000
    assert "<textarea" not in page.text
    assert downloaded.headers["content-disposition"] == 'attachment; filename="large.json"'
    assert answer.status_code == 303
    assert stored(pages) == case


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "empty"), (b'{"eval_id": 7}', "eval_id"), (b"\xff{}", "not UTF-8"), (None, "empty")]
)
def test_a_file_that_is_no_case_is_refused_beside_the_field(
    pages: Pages, large: str, data: bytes | None, said: str
) -> None:
    before, page = stored(pages), pages.get(f"{large}/json")
    files = {"file": ("case.json", data)} if data is not None else None

    answer = pages.client.post(f"{large}/json", data={"version": version_on(page.text)}, files=files)

    assert answer.status_code == 422
    assert said in answer.text
    assert 'id="raw-error"' in answer.text
    assert stored(pages) == before


def test_a_file_over_a_changed_case_asks_in_a_short_page(pages: Pages, large: str) -> None:
    case = pages.get(f"{large}/file").json()
    case["session_input"]["state"]["notes"] = "m" * 3_000_000
    files = {"file": ("case.json", json.dumps(case))}

    asked = pages.client.post(f"{large}/json", data={"version": "old"}, files=files)
    answer = pages.client.post(f"{large}/json", data={"version": "old", "choice": "overwrite"}, files=files)

    assert (asked.status_code, answer.status_code) == (409, 303)
    assert len(asked.content) < 200_000
    assert "again before you save" in asked.text
    assert stored(pages)["session_input"]["state"]["notes"] == "m" * 3_000_000
