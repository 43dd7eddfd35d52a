"""Presets of the form of a run: saved under a name, filled in again, replaced knowingly, deleted."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest


def saved(pages: Any, name: str = "nightly <b>", **changes: str) -> str:
    """The address that a saved preset leads to."""
    answer = pages.post("/runs/presets", **pages.form(**changes), **{"preset-name": name})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def value(text: str, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}"[^>]*value="([^"]*)"', text)
    assert found, name
    return html.unescape(found[1])


def test_a_preset_fills_the_form_as_it_was_saved(pages: Any) -> None:
    address = saved(
        pages, n="7", timeout_s="44", temperature="0.3", note="of that run", seed="12", pass_threshold="0.6"
    )

    text = pages.get(address).text

    kept = [value(text, name) for name in ("n", "timeout_s", "temperature", "seed", "pass_threshold")]
    assert kept == ["7", "44", "0.3", "12", "0.6"]
    assert "of that run" not in text
    assert '<option value="1" selected>nightly &lt;b&gt;</option>' in text
    fresh = pages.get("/runs/new").text
    assert ("nightly &lt;b&gt;" in fresh, value(fresh, "n")) == (True, "5")


def test_a_preset_keeps_criteria_and_gates_and_starts_a_run_with_them(pages: Any) -> None:
    form = pages.form(n="3") | {"min_pass_rate": "0.25"}
    answer = pages.post("/runs/presets", **form, **{"preset-name": "gated"})
    asked = pages.desk.store.presets.get(1)

    text = pages.get(answer.headers["location"]).text

    assert value(text, "min_pass_rate") == "0.25"
    assert "metric" in dict(asked.fields)
    assert not {name for name, _ in asked.fields} & {"agent", "evalset", "note", "preset-name"}


def test_a_name_is_one_of_its_agent_and_a_preset_is_replaced_only_by_the_form_that_shows_it(pages: Any) -> None:
    saved(pages, "nightly", n="7")

    other = pages.post("/runs/presets", **pages.form(n="9"), **{"preset-name": " NIGHTLY "})
    mine = pages.post("/runs/presets", **pages.form(n="9"), **{"preset-name": "Nightly", "preset": "1"})

    assert other.status_code == 422
    assert "There is a preset “NIGHTLY”" in other.text
    assert "The preset was not stored" in other.text
    assert value(other.text, "n") == "9"
    assert mine.status_code == 303
    assert pages.desk.store.presets.names(pages.agent) == [(1, "Nightly")]
    assert dict(pages.desk.store.presets.get(1).fields)["n"] == "9"


@pytest.mark.parametrize("name", ["", "  ", "n" * 61, "a\x07b"])
def test_a_preset_needs_a_name(pages: Any, name: str) -> None:
    answer = pages.post("/runs/presets", **pages.form(), **{"preset-name": name})

    assert answer.status_code == 422
    assert "Name the preset in at most 60 letters" in answer.text
    assert pages.desk.store.presets.names(pages.agent) == []


def test_what_cannot_be_started_cannot_be_saved(pages: Any) -> None:
    answer = pages.post("/runs/presets", **pages.form(n="0"), **{"preset-name": "x"})
    huge = pages.post("/runs/presets", **pages.form(), **{"preset-name": "x", "other": "y" * 64_001})

    assert (answer.status_code, huge.status_code) == (422, 422)
    assert "1 to 1000" in answer.text
    assert pages.desk.store.presets.names(pages.agent) == []


def test_a_preset_is_deleted_and_one_that_is_gone_is_not_found(pages: Any) -> None:
    address = saved(pages)
    assert 'formaction="/runs/presets/1/deletion"' in pages.get(address).text

    gone = pages.post("/runs/presets/1/deletion")

    assert (gone.status_code, gone.headers["location"]) == (303, f"/runs/new?agent={pages.agent}")
    assert "nightly" not in pages.get(gone.headers["location"]).text
    assert pages.get(address).status_code == 404
    assert pages.post("/runs/presets/1/deletion").status_code == 404


def test_an_agent_has_a_bounded_number_of_presets(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.store.presets.MAX_PRESETS", 1)
    saved(pages, "one")

    answer = pages.post("/runs/presets", **pages.form(), **{"preset-name": "two"})

    assert (answer.status_code, "delete one first" in answer.text) == (422, True)


def pressed_by_enter(text: str) -> tuple[str, dict[str, str]]:
    """Where the form goes when Enter is pressed without a script, and what its first button says."""
    form = text[text.index('id="plan"') :]
    button = re.search(r'<button class="hidden" type="submit"[^>]*>', form[: form.index("</form>")])
    assert button
    assert form.index("<button") == button.start()
    found = dict(re.findall(r'([\w-]+)="([^"]*)"', button[0]))
    return found["formaction"], {found["name"]: found["value"]}


def test_enter_in_the_name_saves_and_never_starts_a_run_without_a_script(pages: Any) -> None:
    address, pressed = pressed_by_enter(pages.get("/runs/new").text)

    named = pages.post(address, **pages.form(n="7"), **pressed, **{"preset-name": "nightly"})
    shown = {"preset": "1", "preset-name": "nightly"}
    assert pressed_by_enter(pages.get(named.headers["location"]).text) == (address, pressed)
    same, unnamed, wrong = (
        pages.post(address, **pages.form(**change), **pressed, **name)
        for change, name in (({"n": "9"}, shown), ({"n": "9"}, {"preset-name": " "}), ({"n": "0"}, shown))
    )
    other = pages.post(address, **pages.form(n="8"), **pressed, **{"preset": "1", "preset-name": "quick"})

    assert [each.status_code for each in (named, same, unnamed, wrong, other)] == [303, 200, 200, 422, 303]
    assert "The form is valid." in same.text
    assert "The run was not started" in wrong.text
    presets = [pages.desk.store.presets.get(at) for at in (1, 2)]
    assert [(each.name, dict(each.fields)["n"]) for each in presets] == [("nightly", "7"), ("quick", "8")]
    assert "enter" not in dict(presets[0].fields)
    assert pages.get("/runs/1").status_code == 404
