"""Variants are added to an experiment on its page, as `evaldesk experiment add` does."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.web.runs.test_experiment_changes import VARIED, statuses, wait_for_end

from evaldesk.desk.experiments.results import results
from evaldesk.model.run import LIVE

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages

ADDRESS = "/experiments/1/variants"
MORE = {"vary": ["temperature"], "vary.temperature": ["0.3"]}
PREVIEW = {"HX-Request": "true", "HX-Target": "form#plan"}


@pytest.fixture
def played(pages: RunPages) -> RunPages:
    """Experiment 1 of two variants, played to its end."""
    pages.start(**VARIED)
    wait_for_end(pages)
    return pages


def trials_of(pages: RunPages) -> list[tuple[int, list[bytes]]]:
    """The cases and verdicts of each variant's run."""
    runs = pages.desk.store.runs
    ids = pages.desk.store.experiments.get(1).run_ids
    return [(run_id, [(row.case_id + row.verdicts).encode() for row in runs.case_rows(run_id)]) for run_id in ids]


def test_the_page_of_an_experiment_leads_to_the_form_with_its_variants(played: RunPages) -> None:
    page = played.get("/experiments/1").text
    form = played.get(f"{ADDRESS}/new")

    assert re.search(rf'href="{ADDRESS}/new" data-key="v"', page)
    assert form.status_code == 200
    assert "2 variants so far" in form.text
    assert re.findall(r'<span class="letter" data-variant="\w+">(\w+)</span> ([^<]+)</li>', form.text) == [
        ("A", "temperature=0"),
        ("B", "temperature=1"),
    ]
    assert "Choose an option and a value of it." in form.text
    assert 'name="baseline-variant"' not in form.text
    assert "seed" in form.text


def test_the_estimate_follows_the_typed_values_and_nothing_is_played(played: RunPages) -> None:
    before = trials_of(played)

    block = played.client.post(f"{ADDRESS}/new", data=MORE, headers=PREVIEW)

    assert block.status_code == 200
    assert "<main" not in block.text
    assert "= 8 trials" in block.text
    assert "Play 8 trials" in block.text
    assert re.search(r'data-variant="C">C<', block.text)
    assert "4 times in 5" in block.text
    assert trials_of(played) == before


def test_added_variants_are_played_on_the_same_cases_and_seeds_and_the_others_stay(played: RunPages) -> None:
    before = trials_of(played)

    answer = played.post(ADDRESS, **{**MORE, "vary.temperature": ["0.3", "0.6"]})
    wait_for_end(played)

    assert (answer.status_code, answer.headers["location"]) == (303, "/experiments/1")
    found = results(played.desk.store, 1)
    assert [each.name for each in found.experiment.plan.variants] == [
        f"temperature={each}" for each in ("0", "1", "0.3", "0.6")
    ]
    assert statuses(played) == [("finished", 0)] * 4
    assert len({run.config.seed for run in found.runs.values()}) == 1
    assert trials_of(played)[:2] == before
    assert len({tuple(played.desk.store.runs.case_ids(run_id).values()) for run_id, _ in trials_of(played)}) == 1
    page = played.get("/experiments/1").text
    assert all(f'data-variant="{letter}"' in page for letter in "ABCD")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({}, "Choose an option and a value of it."),
        ({"vary": ["temperature"], "vary.temperature": ["1"]}, "two variants are named"),
        ({"vary": ["temperature"], "vary.temperature": ["hot"]}, "temperature"),
        ({"vary": ["model"], "vary.model": ["nobody/knows"]}, "nobody/knows"),
        ({"vary": ["seed"], "vary.seed": ["1"]}, "cannot be varied in a form"),
        ({"vary": ["instruction"], "vary.instruction": ["@/etc/passwd"]}, "no such file of prompts"),
        (MORE | {"budget": "5"}, "No further trial would begin"),
        (MORE | {"budget": "six"}, "must be a number of trials such as 200"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_variants_that_cannot_be_played_are_refused_with_what_was_typed(
    played: RunPages, form: dict[str, list[str] | str], words: str
) -> None:
    before = trials_of(played)

    refused = played.post(ADDRESS, **form)

    assert refused.status_code == 422
    assert words.lower() in html.unescape(refused.text).lower()
    assert "No variant was added" in refused.text
    if "budget" in form:
        assert f'value="{form["budget"]}"' in refused.text
        assert 'value="0.3"' in refused.text
    assert trials_of(played) == before
    assert len(played.desk.store.experiments.get(1).plan.variants) == 2


def test_a_second_press_adds_nothing_twice(played: RunPages) -> None:
    answers = [played.post(ADDRESS, **MORE) for _ in range(2)]
    wait_for_end(played)

    assert answers[0].status_code == 303
    assert answers[1].status_code in {409, 422}
    assert [each.name for each in played.desk.store.experiments.get(1).plan.variants] == [
        f"temperature={each}" for each in ("0", "1", "0.3")
    ]
    assert statuses(played) == [("finished", 0)] * 3


def test_an_experiment_that_is_played_takes_no_variants(open_runs: Callable[..., RunPages]) -> None:
    gate = threading.Event()
    pages = open_runs(gate=gate, models=("openai/big",))
    pages.start(**VARIED)
    page = pages.get("/experiments/1").text
    refused = pages.post(ADDRESS, **MORE)
    gate.set()
    wait_for_end(pages)

    assert f"{ADDRESS}/new" not in page
    assert refused.status_code == 409
    assert "still running" in refused.text
    assert len(pages.desk.store.experiments.get(1).plan.variants) == 2
    assert all(status not in LIVE for status, _ in statuses(pages))


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_experiment_that_is_not_there_takes_no_variants(pages: RunPages, method: str) -> None:
    assert getattr(pages, method)("/experiments/4/variants/new").status_code == 404


def test_an_experiment_whose_runs_are_gone_says_so(played: RunPages) -> None:
    for run_id in played.desk.store.experiments.get(1).run_ids:
        played.post(f"/runs/{run_id}/deletion")

    assert "were deleted; begin a new one" in played.get(f"{ADDRESS}/new").text
