"""Experiment files: `[experiment]` and `[[variants]]`, played as the same request of the command would be."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs import runs as runs_module
from evaldesk.errors import UsageError
from evaldesk.model.experiment import ExperimentPlan
from evaldesk.settings import Settings
from evaldesk.store import hold_workspace

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


PAIR = '[[variants]]\nname = "as now"\n[[variants]]\nname = "cold"\ntemperature = 0\n'


@pytest.mark.parametrize(("variants", "code"), [((), 2), (("as now",), 1), (("cold",), 1), (("as now", "cold"), 1)])
def test_the_gates_of_a_command_are_about_the_variants_that_it_names(
    place: CommandFolder, variants: tuple[str, ...], code: int
) -> None:
    play(place, PAIR)
    place.evalset("shop", {**ANSWERS, "c0": "another answer"})
    named_variants = [word for each in variants for word in ("--gate-variant", each)]

    result = place.run("run", "play", "trial.toml", "--min-pass-rate", "1.0", *named_variants)

    if code == 2:
        assert "add --gate-variant NAME" in str(result.exception)
        return
    assert result.exit_code == code, result.output
    runs = place.store().runs.list()[:2]
    rates = {run.config.experiment.variant: run.config.gates.min_pass_rate for run in runs if run.config.experiment}
    assert rates == {name: (1.0 if name in variants else None) for name in ("as now", "cold")}


def test_a_gate_variant_that_cannot_be_is_refused(place: CommandFolder) -> None:
    play(place, PAIR)

    unknown = place.run("run", "play", "trial.toml", "--min-pass-rate", "1.0", "--gate-variant", "warm")

    assert "warm" in str(unknown.exception)


def test_a_submitted_experiment_has_the_gates_of_its_variants(place: CommandFolder, started: list[list[str]]) -> None:
    play(place, PAIR)

    result = place.run("run", "submit", "trial.toml", "--yes", "--min-pass-rate", "0.9", "--gate-variant", "cold")

    assert result.exit_code == 0, result.output
    runs = place.store().runs.list()[:2]
    rates = {run.config.experiment.variant: run.config.gates.min_pass_rate for run in runs if run.config.experiment}
    assert rates == {"as now": None, "cold": 0.9}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the processes that would have been started."""
    commands: list[list[str]] = []

    class Process:
        pid = 1

        def __init__(self, command: list[str], **_: Any) -> None:
            commands.append(command)

    monkeypatch.setattr(
        "evaldesk.desk.runs.handover.subprocess", SimpleNamespace(Popen=Process, DEVNULL=subprocess.DEVNULL)
    )
    return commands


def submitted(place: CommandFolder, *options: object) -> Any:
    """The answer of a command that submits an experiment of four variants with two trials of each case."""
    place.evalset("shop", ANSWERS)
    base = f'agent = "{place.agent.name}"\nevalset = "shop.evalset.json"\ncriteria = "test_config.json"\n'
    (place.folder / "trial.toml").write_text(f"[experiment]\n{base}\n{GRID}[evaldesk]\nn = 2\nseed = 7\n")
    return place.run("run", "submit", "trial.toml", *options)


def strips_of(place: CommandFolder, experiment_id: int = 1) -> list[list[str]]:
    """The verdicts of the trials of each variant."""
    with place.store() as store:
        return [list(store.runs.strips(run_id)) for run_id in store.experiments.get(experiment_id).run_ids]


ALL_PASSED = [["pp"] * len(ANSWERS)] * 4


def test_a_submitted_experiment_is_played_by_one_process_of_its_own(
    place: CommandFolder, started: list[list[str]]
) -> None:
    result = submitted(place, "--yes")

    assert "Experiment 1, shop, is played in the background." in result.stdout, repr(result.exception)
    (command,) = started
    assert command[1:6] == ["-P", "-m", "evaldesk", "experiment", "drive"]
    assert [each.partition(":")[0] for each in command if ":" in each] == ["1", "2", "3", "4"]
    assert strips_of(place) == [[".."] * len(ANSWERS)] * 4
    assert place.run(*command[4:]).exit_code == 0
    assert strips_of(place) == ALL_PASSED
    assert place.run(*command[4:]).exit_code == 0  # nothing is left


def test_a_submitted_experiment_is_told_as_json(place: CommandFolder, started: list[list[str]]) -> None:
    result = submitted(place, "--json", "--name", "nightly")

    assert json.loads(result.stdout) == {"id": 1, "name": "nightly", "run_ids": [1, 2, 3, 4]}
    assert len(started) == 1


def test_a_submitted_experiment_is_stopped_and_resumed(place: CommandFolder, started: list[list[str]]) -> None:
    submitted(place, "--yes")

    place.run("experiment", "stop", 1)
    place.run(*started[0][4:-2])  # the process comes too late, and plays what is left as a resume does
    result = place.run("experiment", "resume", 1)

    assert result.exit_code == 0, result.output
    assert strips_of(place) == ALL_PASSED


@pytest.mark.anyio
async def test_the_desk_that_is_open_plays_all_variants_of_a_submitted_experiment(
    place: CommandFolder, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "POLL_S", 0.02)
    monkeypatch.setattr("evaldesk.desk.runs.handover.WAIT_S", 300.0)
    settings = Settings(place.folder, (place.folder,), environment=dict(os.environ))
    with hold_workspace(settings.state_folder, url="http://127.0.0.1:1/"):
        desk = Desk.open(settings)
        attending = asyncio.create_task(desk.runs.poll_requests(takes_up=True))

        result = await asyncio.to_thread(submitted, place, "--yes")
        for run_id in (1, 2, 3, 4):
            async for _ in desk.runs.watch(run_id):
                pass

        attending.cancel()
        await desk.close()
    assert "is played by the desk that is open." in result.stdout, repr(result.exception)
    assert started == []
    assert strips_of(place) == ALL_PASSED


@pytest.mark.long
def test_a_killed_process_of_an_experiment_is_resumed_with_every_cell_once(
    place: CommandFolder, started: list[list[str]]
) -> None:
    (place.agent / "agent.py").write_text(
        "import time\nfrom pathlib import Path\n\nplayed = Path(__file__).with_name('played.txt')\n\n\n"
        "def root_agent(message, session):\n"
        "    with played.open('a') as file:\n        file.write('x')\n"
        "    while played.stat().st_size > 8 and not Path(__file__).with_name('go').exists():\n"
        "        time.sleep(0.05)\n"
        "    return message\n"
    )
    submitted(place, "--yes")
    process = subprocess.Popen(started[0], cwd=place.folder)
    try:
        until = time.monotonic() + 500
        while sum("p" in strip for each in strips_of(place) for strip in each) < 3 and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    before = strips_of(place)
    (place.agent / "go").touch()

    result = place.run("experiment", "resume", 1)

    assert 3 <= sum(strip.count("p") for each in before for strip in each) < 48
    assert result.exit_code == 0, result.output
    assert strips_of(place) == ALL_PASSED


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--limit", 2), "--limit is of a run file"), (("--min-pass-rate", 0.5), "add --gate-variant NAME")],
    ids=["limit", "gate"],
)
@pytest.mark.parametrize("verb", ["submit", "play"])
def test_an_option_that_an_experiment_file_does_not_have_is_refused(
    place: CommandFolder, started: list[list[str]], verb: str, options: tuple[object, ...], words: str
) -> None:
    play(place, GRID)

    result = place.run("run", verb, "trial.toml", "--yes", *options)

    assert words in str(result.exception)
    assert started == []
