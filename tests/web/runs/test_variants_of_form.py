"""Variants in the form of a run: added and taken out without a script, previewed, started and refused."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from evaldesk.desk.experiments.variants import AS_IT_IS, OF_EXPERIMENT
from evaldesk.model import AgentRef
from evaldesk.model.experiment import Experiment
from evaldesk.run_options import offered

MODELS = ("demo/a", "demo/b")
VARY_MODEL = {"vary": ["model"], "vary.model": [AS_IT_IS, "demo/a"]}
GRID = {
    "vary": ["model", "temperature"],
    "vary.model": [AS_IT_IS, "demo/a", "demo/b"],
    "vary.temperature": ["0", "0.7"],
}


@pytest.fixture
def form_desk(open_runs: Any) -> Any:
    return open_runs(models=MODELS)


def text_of(page: str) -> str:
    """The page as a reader sees it, in one line."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


def values_of(page: str, name: str) -> list[str]:
    """The values of an option that varies."""
    fields = re.findall(
        rf'<select id="vary\.{name}-\d+".*?</select>|<input id="vary\.{name}-\d+"[^>]*>', page, re.DOTALL
    )
    found = [re.search(r"<option selected>([^<]*)|value=\"([^\"]+)\"", each) for each in fields]
    return [match[1] or match[2] for match in found if match]


def cells_of(page: str) -> dict[str, bool]:
    """The variants of the grid, and whether each is ticked."""
    ticks = re.findall(r'<input type="checkbox" name="variant" value="([^"]*)"([^>]*)>', page)
    return {html.unescape(name): "checked" in rest for name, rest in ticks}


def stored(form_desk: Any, answer: Any) -> Experiment:
    assert answer.status_code == 303, text_of(answer.text)
    number = int(re.fullmatch(r"/experiments/(\d+)", answer.headers["location"])[1])  # type: ignore[index]
    experiment: Experiment = form_desk.desk.store.experiments.get(number)
    return experiment


def test_a_form_has_one_button_for_variants_and_loads_them_when_it_is_pressed(form_desk: Any) -> None:
    fresh = form_desk.get("/runs/new").text
    opened = form_desk.post("/runs/new", **form_desk.form(vary=""))

    assert fresh.count("Add variant") == 1
    assert 'id="variants"' not in fresh
    assert opened.status_code == 200
    assert '<option value="model">Model</option><option value="instruction">Instruction</option>' in opened.text
    assert "Start 8 trials" in text_of(opened.text)  # nothing varies yet


def test_a_chosen_option_has_a_field_for_its_next_value_and_keeps_those_it_has(form_desk: Any) -> None:
    page = form_desk.post("/runs/new", **form_desk.form(**GRID)).text

    assert values_of(page, "model") == [AS_IT_IS, "demo/a", "demo/b"]
    assert values_of(page, "temperature") == ["0", "0.7"]
    assert 'placeholder="+ Value"' in page
    assert '<option value="">+ Model</option>' in page


def test_a_value_and_an_option_are_taken_out_by_their_buttons(form_desk: Any) -> None:
    fewer = form_desk.post("/runs/new", **form_desk.form(**GRID, **{"value-drop": "model:1"})).text
    without = form_desk.post("/runs/new", **form_desk.form(**GRID, **{"vary-drop": "model"})).text

    assert values_of(fewer, "model") == [AS_IT_IS, "demo/b"]
    assert values_of(fewer, "temperature") == ["0", "0.7"]
    assert values_of(without, "model") == []
    assert values_of(without, "temperature") == ["0", "0.7"]


def test_the_grid_is_previewed_with_its_trials_and_the_difference_it_shows(form_desk: Any) -> None:
    page = form_desk.post("/runs/new", **form_desk.form(**GRID, n="5")).text
    text = text_of(page)

    assert "3 × 2 variants" in text
    names = [f"{model}/temperature={t}" for t in ("0", "0.7") for model in (AS_IT_IS, "demo/a", "demo/b")]
    assert cells_of(page) == dict.fromkeys(names, True)
    assert "3 x 2 variants x 4 cases x 5 = 120 trials, cost not known." in text
    assert "4 x 5 can show no difference between two variants 4 times in 5; add cases." in text
    assert "These cases were never played: a pass rate of 79 % is assumed." in text
    assert "Start 120 trials" in text


def test_cost_and_time_are_those_of_earlier_runs_of_each_model(form_desk: Any) -> None:
    form_desk.finish(n="1")

    text = text_of(form_desk.post("/runs/new", **form_desk.form(**VARY_MODEL, n="5", see="20")).text)

    assert "2 variants x 4 cases x 5 = 40 trials, $0, " in text
    assert re.search(r"By the pass rates of these cases in [1-4] earlier trials?\.", text)
    assert "To see 20 points: " in text


def test_variants_start_as_an_experiment_whose_runs_have_their_options(form_desk: Any) -> None:
    answer = form_desk.post(
        "/runs", **form_desk.form(**GRID, n="1", budget="50", **{"baseline-variant": "demo/a/temperature=0"})
    )

    experiment = stored(form_desk, answer)
    plan = experiment.plan
    assert (plan.name, plan.budget, plan.baseline, len(plan.variants)) == ("dice_set", "50", 2, 6)
    assert [(each.name, each.levels) for each in plan.factors] == [
        ("model", (AS_IT_IS, "demo/a", "demo/b")),
        ("temperature", ("temperature=0", "temperature=0.7")),
    ]
    assert plan.variants[0].options == {"temperature": 0.0}
    configs = [form_desk.desk.store.runs.summary(run_id).config for run_id in experiment.run_ids]
    assert [(each.model, each.model_options.temperature) for each in configs] == [
        (model, t) for model in (None, "demo/a", "demo/b") for t in (0.0, 0.7)
    ]
    assert len({each.seed for each in configs}) == 1


def test_an_unticked_variant_is_not_played_and_the_others_are_no_grid(form_desk: Any) -> None:
    names = [*cells_of(form_desk.post("/runs/new", **form_desk.form(**GRID)).text)]
    ticks = {"variant-shown": names, "variant": names[1:], "baseline-variant": names[0]}

    page = form_desk.post("/runs/new", **form_desk.form(**GRID, **ticks)).text
    experiment = stored(form_desk, form_desk.post("/runs", **form_desk.form(**GRID, **ticks, n="1")))

    assert cells_of(page) == {name: name != names[0] for name in names}
    assert "5 variants x 4 cases" in text_of(page)
    assert names[0] not in [each.name for each in experiment.plan.variants]
    assert (len(experiment.plan.variants), experiment.plan.factors, experiment.plan.baseline) == (5, (), 0)


def test_a_value_that_is_added_after_a_tick_was_taken_is_played(form_desk: Any) -> None:
    names = [*cells_of(form_desk.post("/runs/new", **form_desk.form(**VARY_MODEL)).text)]
    more = {"vary": ["model"], "vary.model": [AS_IT_IS, "demo/a", "demo/b"]}

    page = form_desk.post("/runs/new", **form_desk.form(**more, **{"variant-shown": names, "variant": names[:1]})).text

    assert cells_of(page) == {AS_IT_IS: True, "demo/a": False, "demo/b": True}


def test_all_unticked_leaves_the_grid_to_tick_again(form_desk: Any) -> None:
    page = form_desk.post("/runs/new", **form_desk.form(**VARY_MODEL, **{"variant-shown": [AS_IT_IS, "demo/a"]})).text

    assert cells_of(page) == {AS_IT_IS: False, "demo/a": False}
    assert "An experiment has at least 2 variants, and this has 0" in text_of(page)
    assert not re.search(r"Start \d+ trials", text_of(page))


def test_an_instruction_is_a_text_or_a_file_of_the_folder_of_prompts(form_desk: Any) -> None:
    folder = form_desk.desk.settings.workspace / "prompts"
    folder.mkdir()
    (folder / "brief.md").write_text("Be brief.\n")
    vary = {"vary": ["instruction"], "vary.instruction": [AS_IT_IS, "@prompts/brief.md", "Ask first,\r\nthen answer."]}

    plan = stored(form_desk, form_desk.post("/runs", **form_desk.form(**vary, n="1"))).plan

    assert [(each.name, each.options) for each in plan.variants] == [
        (AS_IT_IS, {}),
        ("brief", {"instruction": "Be brief.\n"}),
        ("Ask first, then answer.", {"instruction": "Ask first,\nthen answer."}),
    ]


def test_kept_prompts_are_chosen_from_a_list_beside_the_text(form_desk: Any) -> None:
    folder = form_desk.desk.settings.workspace / "prompts"
    folder.mkdir()
    for name in ("brief.md", "long.md"):
        (folder / name).write_text("Be brief.\n")
    vary = {"vary": ["instruction"], "vary.instruction": [AS_IT_IS, "Ask first.", "@prompts/brief.md"]}

    page = form_desk.post("/runs/new", **form_desk.form(**vary)).text

    added = re.search(r'<select id="vary\.instruction-3-file".*?</select>', page, re.DOTALL)
    assert added
    assert re.findall(r"<option[^>]*>([^<]*)", added[0]) == ["+ File", "@prompts/long.md"]
    assert values_of(page, "instruction") == [AS_IT_IS, "@prompts/brief.md"]
    assert re.findall(r'<textarea id="vary\.instruction-\d+"[^>]*>\s*([^<]*)', page) == ["Ask first.", ""]


def test_the_heading_tells_how_many_variants_there_are(form_desk: Any) -> None:
    one = form_desk.post("/runs/new", **form_desk.form(vary="")).text
    whole = form_desk.post("/runs/new", **form_desk.form(**GRID)).text
    htmx = {"HX-Request": "true", "HX-Target": "form#plan"}
    part = form_desk.client.post("/runs/new", data=form_desk.form(**GRID), headers=htmx).text

    assert "<h1>New run</h1>" in one
    assert "<h1>New run <span>6 variants: an experiment</span></h1>" in whole
    assert 'hx-swap-oob="innerHTML:h1"' not in whole
    assert 'hx-swap-oob="innerHTML:h1">New run <span>6 variants: an experiment</span></div>' in part


LIST = GRID | {"variant-list": "1"}


def test_a_list_has_a_variant_for_each_place_and_no_combinations(form_desk: Any) -> None:
    page = form_desk.post("/runs/new", **form_desk.form(**LIST, n="1")).text
    experiment = stored(form_desk, form_desk.post("/runs", **form_desk.form(**LIST, n="1")))

    names = [f"{AS_IT_IS}/temperature=0", "demo/a/temperature=0.7", f"demo/b/{AS_IT_IS}"]
    assert cells_of(page) == dict.fromkeys(names, True)
    assert "3 variants x 4 cases x 1 = 12 trials" in text_of(page)
    assert "New run 3 variants: an experiment" in text_of(page)
    plan = experiment.plan
    assert [(each.name, each.options) for each in plan.variants] == [
        (names[0], {"temperature": 0.0}),
        (names[1], {"model": "demo/a", "temperature": 0.7}),
        (names[2], {"model": "demo/b"}),
    ]
    assert plan.factors == ()


def test_a_variant_of_a_list_is_unticked_as_one_of_a_grid(form_desk: Any) -> None:
    names = [*cells_of(form_desk.post("/runs/new", **form_desk.form(**LIST)).text)]
    ticks = {"variant-shown": names, "variant": names[:2]}

    experiment = stored(form_desk, form_desk.post("/runs", **form_desk.form(**LIST, **ticks, n="1")))

    assert [each.name for each in experiment.plan.variants] == names[:2]


@pytest.mark.parametrize("values", [["0.5", "0.50"], ["0.5", "0.5"]], ids=["two spellings", "one spelling"])
def test_equal_variants_are_played_where_the_form_allows_them(form_desk: Any, values: list[str]) -> None:
    equal = {"vary": ["temperature"], "vary.temperature": values, "allow-equal": "1"}

    page = form_desk.post("/runs/new", **form_desk.form(**equal)).text
    plan = stored(form_desk, form_desk.post("/runs", **form_desk.form(**equal, n="1"))).plan

    assert re.search(r'name="allow-equal" value="1" checked', page)
    assert [each.options for each in plan.variants] == [{"temperature": 0.5}] * 2
    assert len({each.name for each in plan.variants}) == 2


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../secret.md", "prompts/../secret.md", "prompts/link.md", "nothing.md"]
)
def test_a_form_reads_no_other_file(form_desk: Any, name: str) -> None:
    folder = form_desk.desk.settings.workspace / "prompts"
    folder.mkdir()
    (folder.parent / "secret.md").write_text("a secret of the machine")
    (folder / "link.md").symlink_to(folder.parent / "secret.md")
    vary = {"vary": ["instruction"], "vary.instruction": [AS_IT_IS, f"@{name}"]}

    for address in ("/runs/new", "/runs"):
        page = form_desk.post(address, **form_desk.form(**vary))
        assert "no such file of prompts" in page.text
        assert "a secret of the machine" not in page.text
    assert form_desk.desk.store.experiments.list() == []


@pytest.mark.parametrize("option", [each.name for each in offered("form") if each.name not in OF_EXPERIMENT])
def test_no_option_of_a_form_reads_a_file_of_the_machine(
    form_desk: Any, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(return_value="a secret")
    monkeypatch.setattr("evaldesk.desk.experiments.variants._file_text", read)

    for address in ("/runs/new", "/runs"):
        form_desk.post(address, **form_desk.form(vary=[option], **{f"vary.{option}": ["@/etc/passwd", "@/dev/zero"]}))

    assert read.call_args_list == []
    assert form_desk.desk.store.experiments.list() == []


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one value": ({"vary": ["model"], "vary.model": ["demo/a"]}, "at least 2 variants, and this has 1"),
    "61 values": (
        {"vary": ["temperature"], "vary.temperature": [str(at / 100) for at in range(61)]},
        "are more than 60",
    ),
    "the same twice": (
        {"vary": ["temperature"], "vary.temperature": ["0.5", "0.50"]},
        "temperature=0.50 is the same as temperature=0.5",
    ),
    "one value twice": (
        {"vary": ["temperature"], "vary.temperature": ["1", "1"]},
        "temperature=1 (2) is the same as temperature=1",
    ),
    "a model that is not allowed": (
        {"vary": ["model"], "vary.model": ["demo/a", "evil/model"]},
        "variant 'evil/model': 'evil/model' is not among the allowed models",
    ),
    "an option out of its range": (
        {"vary": ["temperature"], "vary.temperature": ["0", "900"]},
        "variant 'temperature=900': temperature: 0 to 100, not 900",
    ),
    "an option that no browser sets": (
        {"vary": ["base_url"], "vary.base_url": ["http://a", "http://b"]},
        "'base_url' cannot be varied in a form",
    ),
    "an unknown option": ({"vary": ["colour"], "vary.colour": ["a", "b"]}, "'colour' cannot be varied in a form"),
    "a seed for each": ({"vary": ["seed"], "vary.seed": ["1", "2"]}, "'seed' cannot be varied in a form"),
    "a baseline that is none of them": (VARY_MODEL | {"baseline-variant": "demo/c"}, "demo/c"),
    "control characters": (
        {"vary": ["instruction"], "vary.instruction": ["a\x1b[31m", "b"]},
        "control characters",
    ),
    "a gate": (VARY_MODEL | {"min_pass_rate": "0.9"}, "a gate is of one run"),
    "an allocation": (
        VARY_MODEL | {"budget": "20", "allocate": "uncertain"},
        "the budget of an experiment is spent in",
    ),
}


@pytest.mark.parametrize(("fields", "words"), REFUSED.values(), ids=REFUSED)
def test_variants_that_cannot_be_are_refused_before_any_trial_and_stay_in_the_form(
    form_desk: Any, fields: dict[str, Any], words: str
) -> None:
    answer = form_desk.post("/runs", **form_desk.form(**fields))

    assert answer.status_code == 422
    assert words in text_of(answer.text)
    assert 'id="variants"' in answer.text
    assert form_desk.desk.store.experiments.list() == []
    assert form_desk.desk.store.runs.list() == []


def test_a_variant_whose_model_no_provider_has_is_named_before_any_trial(
    form_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def model_fault(ref: AgentRef, model: str) -> str:
        return "no provider is named <b>" if model == "demo/a" else ""

    monkeypatch.setattr(form_desk.desk.host, "model_fault", model_fault)

    answer = form_desk.post("/runs", **form_desk.form(**VARY_MODEL))

    assert answer.status_code == 422
    assert "variant 'demo/a': the model 'demo/a': no provider is named <b>" in html.unescape(answer.text)
    assert "named <b>" not in answer.text
    assert form_desk.desk.store.runs.list() == []


def test_a_check_lists_the_faults_of_variants_and_starts_nothing(form_desk: Any) -> None:
    bad = form_desk.post("/runs/new", **form_desk.form(**REFUSED["the same twice"][0], check="1"))
    good = form_desk.post("/runs/new", **form_desk.form(**VARY_MODEL, check="1"))

    assert bad.status_code == 422
    assert "is the same as" in bad.text
    assert "The form is valid." in good.text
    assert form_desk.desk.store.runs.list() == []


def test_one_trial_is_tried_with_the_options_of_the_baseline(form_desk: Any) -> None:
    answer = form_desk.post("/runs", **form_desk.form(**VARY_MODEL, **{"try": "1", "baseline-variant": "demo/a"}))

    assert answer.headers["location"] == "/runs/1"
    summary = form_desk.desk.store.runs.summary(1)
    assert (summary.config.model, summary.n_trials, summary.config.experiment) == ("demo/a", 1, None)


def test_options_without_values_are_one_run(form_desk: Any) -> None:
    answer = form_desk.post("/runs", **form_desk.form(vary=["", "model"], **{"vary.model": ""}))

    assert answer.headers["location"] == "/runs/1"


def test_a_preset_has_the_options_that_vary_and_not_the_ticks(form_desk: Any) -> None:
    ticks = {"variant-shown": [AS_IT_IS, "demo/a"], "variant": [AS_IT_IS]}
    answer = form_desk.post("/runs/presets", **form_desk.form(**VARY_MODEL, **ticks, **{"preset-name": "two models"}))

    page = form_desk.get(answer.headers["location"]).text

    assert values_of(page, "model") == [AS_IT_IS, "demo/a"]
    assert cells_of(page) == {AS_IT_IS: True, "demo/a": True}


def test_a_name_with_markup_is_text(form_desk: Any) -> None:
    vary = {"vary": ["instruction"], "vary.instruction": ["<img src=x>", "b"]}

    page = form_desk.post("/runs/new", **form_desk.form(**vary)).text

    assert "<img src=x>" not in page
    assert "&lt;img src=x&gt;" in page


def test_the_desk_and_the_shell_ask_for_the_same_experiment(form_desk: Any, tmp_path: Path) -> None:
    from evaldesk.desk.experiments.variants import grid_of, listed_variants, varied_option

    plan = stored(form_desk, form_desk.post("/runs", **form_desk.form(**GRID, n="1", seed="7"))).plan
    factors, variants = grid_of([varied_option(f"model={AS_IT_IS},demo/a,demo/b"), varied_option("temperature=0,0.7")])
    names = [each.name for each in variants]
    _, listed = listed_variants(
        [
            {"name": name, "model": model, "temperature": t}
            for name, (model, t) in zip(
                names, [(m, t) for m in (AS_IT_IS, "demo/a", "demo/b") for t in (0, 0.7)], strict=True
            )
        ]
    )

    assert plan.factors == factors
    assert [(each.name, each.levels) for each in plan.variants] == [(each.name, each.levels) for each in variants]
    assert [each.options for each in plan.variants] == [each.options for each in listed]
