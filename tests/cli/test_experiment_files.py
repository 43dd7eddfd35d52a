"""Experiment files: `[experiment]` and `[[variants]]`, played as the same request of the command would be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk.errors import UsageError
from evaldesk.model.experiment import ExperimentPlan

ANSWERS = {f"c{at}": f"c{at}" for at in range(6)}
GRID = "[experiment.vary]\ntemperature = [0, 0.5]\ntop_p = [0.5, 1]\n"
LIST = "".join(f"[[variants]]\ntemperature = {t}\ntop_p = {p}\n" for t in (0, 0.5) for p in (0.5, 1))


def play(place: CommandFolder, rest: str, head: str = "") -> Any:
    place.evalset("shop", ANSWERS)
    base = f'agent = "{place.agent.name}"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
    (place.folder / "trial.toml").write_text(f"[experiment]\n{base}{head}\n{rest}")
    return place.run("run", "play", "trial.toml")


def plan_of(place: CommandFolder, number: int) -> ExperimentPlan:
    with place.store() as store:
        return store.experiments.get(number).plan


@pytest.mark.parametrize("variants", [GRID, LIST], ids=["a grid", "a list"])
def test_a_file_asks_for_the_experiment_of_the_same_command(place: CommandFolder, variants: str) -> None:
    options = '[evaldesk]\nn = 2\nseed = 7\nbudget = "40"\n'
    result = play(place, f"{variants}{options}", 'baseline = "temperature=0/top_p=1"\nname = "warm or cold"')
    by_command = place.run(
        "eval", place.agent, "shop.evalset.json", "--config-file-path", "test_config.json",
        "--vary", "temperature=0,0.5", "--vary", "top_p=0.5,1", "--n", 2, "--seed", 7, "--budget", 40,
        "--experiment", "warm or cold", "--baseline-variant", "temperature=0/top_p=1",
    )  # fmt: skip

    assert (result.exit_code, by_command.exit_code) == (0, 0), (result.output, by_command.output)
    assert plan_of(place, 1) == plan_of(place, 2)
    assert (plan_of(place, 1).baseline, plan_of(place, 1).budget, plan_of(place, 1).seed) == (1, "40", 7)


def test_variants_have_names_and_files_beside_the_experiment_file(place: CommandFolder) -> None:
    (place.folder / "p1.md").write_text("Be brief.")
    (place.folder / "said.py").write_text(
        "def said(message, instruction=''):\n    return message\n\nsaid.tells_cost = True\n"
    )
    rest = '[[variants]]\nname = "as now"\n[[variants]]\nname = "brief"\ninstruction = "@p1.md"\n'

    place.evalset("shop", ANSWERS)
    (place.folder / "trial.toml").write_text(
        f'[experiment]\nagent = "said:said"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n{rest}'
    )
    result = place.run("run", "play", "trial.toml")

    assert result.exit_code == 0, result.output
    variants = plan_of(place, 1).variants
    assert [(each.name, each.options) for each in variants] == [("as now", {}), ("brief", {"instruction": "Be brief."})]


REFUSED: dict[str, tuple[str, str, str]] = {
    "an unknown key": (GRID, "base_line = 'a'", "did you mean 'baseline'?"),
    "an unknown section": (f"{GRID}[variant]\nname = 'a'\n", "", "did you mean 'variants'?"),
    "an unknown run option": (f"{GRID}[evaldesk]\nconcurency = 2\n", "", "did you mean 'concurrency'?"),
    "an option of no variant": (
        "[[variants]]\ntemperatur = 0\n[[variants]]\ntop_p = 1\n",
        "",
        "did you mean 'temperature'?",
    ),
    "a grid and a list": (f"{GRID}{LIST}", "", "either by [[variants]] or by experiment.vary"),
    "no variants": ("", "", "either by [[variants]] or by experiment.vary"),
    "one variant": ("[[variants]]\ntemperature = 0\n", "", "at least 2 variants, and this has 1"),
    "two equal variants": (
        "[[variants]]\nname='a'\ntop_p=1\n[[variants]]\nname='b'\ntop_p=1\n",
        "",
        "b is the same as a",
    ),
    "a value without a list": ("[experiment.vary]\nmodel = 'a'\n", "", "must be a table of lists"),
    "a switch of text": (GRID, "drop_worse = 'yes'", "must be true or false"),
    "an empty name": (GRID, "name = ''", "experiment.name: must be text"),
    "a number out of its range": (f"{GRID}[evaldesk]\nn = 0\n", "", "evaldesk.n"),
    "a baseline that is none of them": (GRID, "baseline = 'x'", "variant"),
    "no TOML": ("[[variants\n", "", "Invalid TOML"),
}


@pytest.mark.parametrize(("rest", "head", "words"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_is_refused_before_any_trial(
    place: CommandFolder, rest: str, head: str, words: str
) -> None:
    result = play(place, rest, head)

    assert isinstance(result.exception, UsageError), result.output
    assert words in str(result.exception)
    assert not (place.folder / ".evaldesk").exists() or place.store().runs.list() == []


def test_an_experiment_is_played_and_not_submitted(place: CommandFolder) -> None:
    play(place, GRID)

    result = place.run("run", "submit", "trial.toml", "--yes")

    assert "evaldesk run play trial.toml" in str(result.exception)
