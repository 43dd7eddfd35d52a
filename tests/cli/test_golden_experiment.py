"""Section 9 of the reference on experiments, replayed by real commands: each door gives the known numbers."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.golden_values import golden

from evaldesk.cli.runs.shared import opened_desk
from evaldesk.desk.experiments.turns import cell_rank
from evaldesk.pages.experiment import read_experiment_page

KNOWN = golden("experiments")
N, N_CASES = int(KNOWN["n"]), len(KNOWN["passes"]["m1/p1"])
COMMON = ("--criterion", "response_match_score=0.8", "--n", N)
AGENT = """
from evaldesk import Event, Usage

PASSES, COSTS, played = {passes!r}, {costs!r}, {{}}


def root_agent(message, session, instruction="p1"):
    model = session.model
    variant = model + "/" + instruction
    trial = played[variant, message] = played.get((variant, message), -1) + 1
    number = int(message.removeprefix("case "))
    with open("order.txt", "a") as file:
        print(number, ["m1/p1", "m1/p2", "m2/p1", "m2/p2", "m3/p1", "m3/p2"].index(variant), trial, file=file)
    {error}
    yield Event("usage", usage=Usage(model, tokens_in=9, tokens_out=1, cost=COSTS[variant]))
    yield message if trial < PASSES[variant][number] else "no"
"""


@pytest.fixture
def place_of_models(place: CommandFolder) -> CommandFolder:
    """An agent whose trials pass as the known numbers say, by its model and its instruction."""
    write_agent(place, "pass")
    place.evalset("known", {f"case {at}": f"case {at}" for at in range(N_CASES)})
    return place


def write_agent(place: CommandFolder, error: str) -> None:
    """Write the agent; `error` is a statement before its answer."""
    folder = place.folder / "known"
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(AGENT.format(passes=KNOWN["passes"], costs=KNOWN["cost_per_trial"], error=error))


def begin(place: CommandFolder, *vary: str) -> dict[str, Any]:
    options = [part for each in vary for part in ("--vary", each)]
    result = place.run("eval", "known", "known.evalset.json", *COMMON, *options, "--json")
    assert result.exit_code == 0, result.output + repr(result.exception)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_played_grid_has_the_known_numbers_at_each_door(place_of_models: CommandFolder) -> None:
    place = place_of_models
    played = begin(place, "model=m1,m2,m3", "instruction=p1,p2")
    shown = json.loads(place.run("experiment", "show", 1, "--json").stdout)
    lines = list(csv.DictReader(io.StringIO(place.run("experiment", "show", 1, "--csv").stdout)))
    compared = json.loads(place.run("compare", *range(1, 7), "--json").stdout)["runs"]
    report = place.run("experiment", "report", 1).stdout
    with opened_desk(str(place.folder)) as desk:
        page = read_experiment_page(desk, 1, {})

    names = list(KNOWN["passes"])
    assert shown == played
    assert [each["name"] for each in played["variants"]] == names
    rates = pytest.approx(list(KNOWN["pass_rate"].values()))
    assert [each["pass_rate"] for each in played["rates"]] == rates
    assert [float(each["pass_rate"]) for each in lines] == rates
    assert [each["pass_rate"] for each in compared] == rates
    assert [each.rate for each in page.table.groups] == rates
    assert [each["cost_per_trial"] for each in played["rates"]] == pytest.approx([*KNOWN["cost_per_trial"].values()])
    differences = {each["variant"]: each for each in played["differences"]}
    of_lines = {each["variant"]: each for each in lines}
    of_runs = dict(zip(names, compared, strict=True))
    for name, known in KNOWN["against_baseline"].items():
        numbers = ("difference", "low", "high", "family_low", "family_high", "holm_p")
        found = [differences[name][each] for each in numbers]
        assert found == pytest.approx([known[each] for each in numbers])
        assert differences[name]["p"] == pytest.approx(known["sign_flip_p"])
        assert {differences[name]["word"], of_lines[name]["word"], of_runs[name]["word"]} == {known["word"]}
        assert float(of_lines[name]["holm_p"]) == of_runs[name]["holm_p"] == pytest.approx(known["holm_p"])
    pairs = {f"{each['first']} - {each['second']}": each for each in played["pairs"]}
    for name, known in KNOWN["pairs"].items():
        assert [pairs[name][each] for each in known] == pytest.approx([*known.values()])
    assert played["may_be_best"] == KNOWN["may_be_best"]
    assert [each for each, run in of_runs.items() if run["may_be_best"]] == KNOWN["may_be_best"]
    assert played["best"] is None
    assert played["front"] == KNOWN["front"]
    by_points = [each["variant"] for each in played["rates"] if each["is_dominated_by_points"]]
    assert by_points == [each for each in names if each not in KNOWN["front_by_points_only"]] == ["m1/p1"]
    assert "m3/p1 is worse than m1/p1" in report
    assert [f"| {name} | {100 * rate:.0f} % (" in report for name, rate in KNOWN["pass_rate"].items()] == [True] * 6


def test_the_factors_of_the_played_grid_are_the_known_ones(place_of_models: CommandFolder) -> None:
    played = begin(place_of_models, "model=m1,m2,m3", "instruction=p1,p2")

    effects = {}
    for each in played["effects"]:
        name = f"{each['level']} - {each['reference']}"
        other = each["interaction_with"]
        effects[f"{name} x {other['level']} - {other['reference']}" if other else name] = each
    known = KNOWN["factorial"]
    for name, key in {"p2 - p1": "prompt p2 - p1", "m2 - m1": "m2 - m1", "m3 - m1": "m3 - m1"}.items():
        numbers = ("difference", "low", "high", "p")
        assert [effects[name][each] for each in numbers] == pytest.approx([known[key][each] for each in numbers])
    interactions = [each for each in played["effects"] if each["interaction_with"]]
    found = sorted(round(abs(each["difference"]), 9) for each in interactions)
    assert found == pytest.approx([abs(known["interaction prompt x (m2 - m1)"]["difference"]), 0.15])
    assert sorted(each["p"] for each in interactions) == [0.0625, 0.625]


def test_errored_cases_are_left_out_of_the_pairs_of_their_variant(place_of_models: CommandFolder) -> None:
    write_agent(
        place_of_models,
        'if variant == "m2/p2" and number in (5, 10): raise ValueError("no answer")',
    )

    played = begin(place_of_models, "model=m1,m2", "instruction=p1,p2")

    (difference,) = (each for each in played["differences"] if each["variant"] == "m2/p2")
    known = KNOWN["shared_cases_only"]
    assert [difference[each] for each in ("difference", "low", "high", "p")] == pytest.approx(
        [known[each] for each in ("difference", "low", "high", "p")]
    )
    assert (difference["n_cases"], difference["n_unshared_cases"]) == (known["cases"], len(known["left_out"]))


def planned_order(n_cases: int, n_variants: int, n: int) -> list[tuple[int, ...]]:
    """The cells of an experiment with seed 7: case, variant and trial."""
    cells = [(case, variant, trial) for case in range(n_cases) for variant in range(n_variants) for trial in range(n)]
    return sorted(cells, key=lambda cell: cell_rank(7, cell[2], cell[0], cell[1]))


def begun_order(place: CommandFolder) -> list[tuple[int, ...]]:
    """The cells as the agent was asked."""
    return [tuple(map(int, line.split())) for line in (place.folder / "order.txt").read_text().splitlines()]


def test_cells_are_played_in_the_known_order_and_resumed_in_it(place_of_models: CommandFolder) -> None:
    place = place_of_models
    place.evalset("known", {f"case {at}": f"case {at}" for at in range(2)})
    options = ("--seed", 7, "--concurrency", 1, "--vary", "model=m1,m2", "--vary", "instruction=p1,p2")

    cut = place.run("eval", "known", "known.evalset.json", *COMMON, *options, "--budget", "9")
    at_cap = begun_order(place)
    whole = place.run("eval", "known", "known.evalset.json", *COMMON, *options)

    planned = planned_order(2, 4, N)
    assert (cut.exit_code, whole.exit_code) == (0, 0), cut.output + whole.output
    assert at_cap == planned[:9]
    assert "only 1 trial of each case count, which all variants have" in cut.output
    assert [cell[:2] for cell in begun_order(place)[9:]] == [cell[:2] for cell in planned]


def test_below_five_shared_cases_no_door_has_an_interval_or_a_word(place_of_models: CommandFolder) -> None:
    place = place_of_models
    place.evalset("known", {f"case {at}": f"case {at}" for at in range(4)})

    played = begin(place, "model=m1,m3")
    (_, compared) = json.loads(place.run("compare", 1, 2, "--json").stdout)["runs"]

    (difference,) = played["differences"]
    assert [difference[each] for each in ("difference", "low", "high", "p", "holm_p")] == [None] * 5
    assert {difference["word"], compared["word"]} == {"too few shared cases"}
    assert played["may_be_best"] == ["m1", "m3"]
