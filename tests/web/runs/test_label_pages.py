"""Labels on the page of a trial and on their own, without a script."""

from __future__ import annotations

from typing import Any

import pytest

SAID = {"labeller": "Ana", "verdict": "failed", "note": "It <b>invents</b> a price.", "turn": ""}


def test_a_label_is_written_on_the_page_of_its_trial(pages: Any) -> None:
    trial = f"{pages.finish(n='1')}/cases/0/trials/0"

    answer = pages.post(f"{trial}/labels", **SAID)

    assert (answer.status_code, answer.headers["location"]) == (303, f"{trial}#labels")
    text = pages.get(trial).text
    assert "It &lt;b&gt;invents&lt;/b&gt; a price." in text
    assert 'id="labeller" name="labeller" maxlength="80" required value="Ana"' in text
    assert 'name="verdict" value="unsure" data-key="3"' in text
    listed = pages.get("/labels").text
    assert f'href="{trial}"' in listed
    assert '<span class="tag">disagree</span>' in listed
    assert "The verdict agrees with the labels 0 times of 1; on failures 0 of 1" in listed


def test_labels_come_after_the_turns_and_are_reached_from_above_them(pages: Any) -> None:
    page = pages.get(f"{pages.finish()}/cases/1/trials/0").text

    assert page.index('href="#labels"') < page.index('id="turn-1"') < page.index('id="labels"')


def test_a_label_is_removed_by_its_button(pages: Any) -> None:
    trial = f"{pages.finish(n='1')}/cases/0/trials/0"
    pages.post(f"{trial}/labels", **SAID)

    pages.post(f"{trial}/labels", labeller="Ana", turn="", op="remove")

    assert "No labels yet" in pages.get("/labels").text


def test_what_is_no_label_comes_back_with_what_was_typed(pages: Any) -> None:
    trial = f"{pages.finish(n='1')}/cases/0/trials/0"

    answer = pages.post(f"{trial}/labels", **(SAID | {"labeller": " "}))

    assert answer.status_code == 422
    assert "Enter your name" in answer.text
    assert "It &lt;b&gt;invents&lt;/b&gt; a price.</textarea>" in answer.text


@pytest.mark.parametrize("only", ["passed", "failed", "unsure", "disagreements", "__class__"])
def test_labels_are_filtered_by_links(pages: Any, only: str) -> None:
    run = pages.finish(n="1")
    pages.post(f"{run}/cases/0/trials/0/labels", **SAID)

    text = pages.get(f"/labels?run={run[6:]}&only={only}&labeller=Ana").text

    assert ("greets, trial 1" in text) == (only not in ("passed", "unsure"))
    assert f'href="/labels?run={run[6:]}"' in pages.get(run).text


def test_labels_need_a_trial_and_a_run(pages: Any) -> None:
    run = pages.finish(n="1")

    assert pages.post(f"{run}/cases/9/trials/0/labels", **SAID).status_code == 404
    assert pages.post("/runs/99/cases/0/trials/0/labels", **SAID).status_code == 404
    assert pages.get("/labels?run=99").status_code == 404


def test_the_panel_of_a_script_brings_the_count_of_the_outline(pages: Any) -> None:
    trial = f"{pages.finish(n='1')}/cases/0/trials/0"
    assert '<small id="n-labels">none yet</small>' in pages.get(trial).text

    panel = pages.client.post(f"{trial}/labels", data=SAID, headers={"HX-Target": "section#labels"}).text

    assert 'hx-swap-oob="innerHTML:#n-labels">1</div>' in panel
    assert '<small id="n-labels">1</small>' in pages.get(trial).text
    assert "hx-swap-oob" not in pages.get(trial).text
