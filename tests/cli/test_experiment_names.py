"""Names of experiments and variants that cannot be shown are refused alike, at every door that takes one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

import evaldesk
from evaldesk.desk.experiments.variants import MOST_NAME, usual_name
from evaldesk.errors import EvaldeskError

ANSWERS = {f"c{at}": f"c{at}" for at in range(6)}
HEAD = 'agent = "said:said"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
OPTIONS = ({"temperature": 0}, {"temperature": 1})
NAMES = {
    "an escape sequence": ("a\x1b[31mb", "control characters"),
    "two lines": ("a\nb", "control characters"),
    "another direction": ("a\u202eb", "control characters"),
    "10 kB": ("n" * 10_240, f"10,240 characters; {MOST_NAME} fit"),
    "spaces": ("   ", "name"),
}


@pytest.fixture
def shop(place: CommandFolder) -> CommandFolder:
    place.evalset("shop", ANSWERS)
    (place.folder / "said.py").write_text("def said(message, session):\n    return message\n\nsaid.tells_cost = True\n")
    return place


def by_command(shop: CommandFolder, name: str) -> Any:
    return shop.run("eval", "said:said", "shop.evalset.json", "--vary", "temperature=0,1", "--experiment", name)


def by_file(shop: CommandFolder, name: str) -> Any:
    text = f"[experiment]\n{HEAD}name = {json.dumps(name)}\n[experiment.vary]\ntemperature = [0, 1]\n"
    (shop.folder / "trial.toml").write_text(text)
    return shop.run("run", "play", "trial.toml")


def by_validate(shop: CommandFolder, name: str) -> Any:
    by_file(shop, name)
    return shop.run("validate", "trial.toml")


def by_python(shop: CommandFolder, name: str) -> Any:
    evaldesk.evaluate("said:said", "shop.evalset.json", workspace=".", variants=OPTIONS, experiment=name)


def variant_by_file(shop: CommandFolder, name: str) -> Any:
    variants = "".join(
        f"[[variants]]\nname = {json.dumps(each)}\ntemperature = {at}\n" for at, each in enumerate(("a", name))
    )
    (shop.folder / "trial.toml").write_text(f"[experiment]\n{HEAD}{variants}")
    return shop.run("run", "play", "trial.toml")


def variant_by_python(shop: CommandFolder, name: str) -> Any:
    variants = [{"name": each, **options} for each, options in zip(("a", name), OPTIONS, strict=True)]
    evaldesk.evaluate("said:said", "shop.evalset.json", workspace=".", variants=variants)


def variant_by_command(shop: CommandFolder, name: str) -> Any:
    return shop.run("eval", "said:said", "shop.evalset.json", "--vary", f"model=a,{name}")


DOORS: dict[str, Callable[[CommandFolder, str], Any]] = {
    "--experiment": by_command,
    "name of the file": by_file,
    "validate": by_validate,
    "experiment=": by_python,
    "[[variants]]": variant_by_file,
    "variants=": variant_by_python,
}


def refusal(door: Callable[[CommandFolder, str], Any], shop: CommandFolder, name: str) -> str:
    """The sentence of a door that refuses a name; empty where it takes it."""
    try:
        result = door(shop, name)
    except EvaldeskError as error:
        return str(error)
    if result is None or result.exit_code == 0:
        return ""
    return str(result.exception) if isinstance(result.exception, EvaldeskError) else result.output


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(("name", "words"), NAMES.values(), ids=NAMES)
def test_a_name_that_cannot_be_shown_is_refused_before_any_trial(
    shop: CommandFolder, door: Callable[[CommandFolder, str], Any], name: str, words: str
) -> None:
    sentence = refusal(door, shop, name)

    assert words in sentence
    assert "\x1b" not in sentence
    assert len(sentence) < 1_000
    assert not (shop.folder / ".evaldesk/evaldesk.db").exists() or shop.store().runs.list() == []


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\u202eb"])
def test_a_value_that_names_its_variant_is_refused(shop: CommandFolder, name: str) -> None:
    error = variant_by_command(shop, name).exception

    assert "control characters" in str(error)


def test_the_set_names_its_experiment_by_what_can_be_shown(shop: CommandFolder) -> None:
    path = shop.folder / "shop.evalset.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "name": "trips\x1b[2J\n" + "n" * 10_240}))

    result = shop.run("eval", "said:said", "shop.evalset.json", "--vary", "temperature=0,1", "--n", 1)

    assert result.exit_code == 0, result.output
    name = shop.store().experiments.get(1).plan.name
    assert name.startswith("trips [2J n")
    assert len(name) == MOST_NAME


@pytest.mark.parametrize(
    ("text", "name"), [("trips", "trips"), ("", "experiment"), ("\n", "experiment"), ("n" * 201, f"{'n' * 199}…")]
)
def test_a_usual_name_can_be_shown(text: str, name: str) -> None:
    assert usual_name(text) == name
