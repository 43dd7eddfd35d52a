"""`evaldesk experiment export` and `import`: what is written is read back, with equal numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk.desk.experiments.exchange import read_experiment
from evaldesk.errors import EvaldeskError, FormatError, UsageError

ANSWERS = {f"c{at}": f"c{at}" for at in range(8)}
OF_THIS_DATABASE = ("id", "run_id", "status", "reason")


def played(place: CommandFolder, *options: object) -> Path:
    """The file of an experiment of a strong and a weak agent and two temperatures."""
    (place.folder / "weak.py").write_text(
        "def weak(message, session):\n"
        "    if message == 'c3':\n        raise ValueError(message)\n"
        "    return message if message < 'c3' else 'nothing'\n\nweak.tells_cost = True\n"
    )
    evalset = place.evalset("shop", ANSWERS)
    result = place.run(
        *("eval", place.agent, evalset, "--criterion", "response_match_score=0.8", "--vary", "temperature=0,1"),
        *("--vary", f"agent={place.agent},weak:weak", "--n", 2, "--seed", 7, *options),
    )
    assert result.exit_code == 0, result.output
    file = place.folder / "experiment.json"
    assert place.run("experiment", "export", 1, "-o", file).exit_code == 0
    return file


def numbers(place: CommandFolder, experiment_id: int) -> Any:
    """All that `show --json` says, without the numbers of this database."""
    found = json.loads(place.run("experiment", "show", experiment_id, "--json").stdout)
    for each in (found, *found["variants"]):
        for key in OF_THIS_DATABASE:
            each.pop(key, None)
    return found


@pytest.mark.parametrize(
    "options",
    [(), ("--budget", 20), ("--count-errors-as-failures",), ("--baseline-variant", "temperature=1/weak:weak")],
    ids=["whole", "cut by its budget", "errors are failures", "another baseline"],
)
def test_an_experiment_that_was_exported_reads_back_equal(place: CommandFolder, options: tuple[object, ...]) -> None:
    file = played(place, *options)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, result.output
    assert "Imported as experiment 2" in result.stdout
    assert numbers(place, 2) == numbers(place, 1)
    again = place.folder / "again.json"
    place.run("experiment", "export", 2, "-o", again)
    assert json.loads(again.read_text())["plan"] == json.loads(file.read_text())["plan"]
    first, second = (json.loads(each.read_text())["variants"] for each in (file, again))
    assert [each["run"]["results"] for each in first] == [each["run"]["results"] for each in second]


@pytest.mark.parametrize("added", [(), ("temperature=0.2",), ("top_p=0.5,1",)], ids=["alone", "and one", "and two"])
def test_an_experiment_of_one_option_or_with_later_variants_reads_back_equal(
    place: CommandFolder, added: tuple[str, ...]
) -> None:
    evalset = place.evalset("shop", ANSWERS)
    options = ("--criterion", "response_match_score=0.8", "--vary", "temperature=0,1")
    assert place.run("eval", place.agent, evalset, *options).exit_code == 0
    for each in added:
        assert place.run("experiment", "add", 1, "--vary", each).exit_code == 0
    file = place.folder / "experiment.json"
    place.run("experiment", "export", 1, "-o", file)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, repr(result.exception)
    assert numbers(place, 2) == numbers(place, 1)


def test_a_full_grid_with_a_later_variant_reads_back_equal(place: CommandFolder) -> None:
    played(place)
    assert place.run("experiment", "add", 1, "--vary", "temperature=0.2").exit_code == 0
    file = place.folder / "experiment.json"
    place.run("experiment", "export", 1, "-o", file)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, repr(result.exception)
    assert numbers(place, 2) == numbers(place, 1)


def test_levels_of_a_file_without_factors_are_left_out(place: CommandFolder) -> None:
    file = change(played(place), "plan", "factors", [])

    plan = read_experiment(file, "experiment.json").plan

    assert {each.levels for each in plan.variants} == {()}
    assert plan.grid is None


def test_a_file_is_imported_once_unless_again_is_said(place: CommandFolder) -> None:
    file = played(place)
    place.run("experiment", "import", file)

    refused = place.run("experiment", "import", file)
    again = place.run("experiment", "import", file, "--again")

    assert isinstance(refused.exception, UsageError)
    assert "was imported before, as runs 5, 6, 7, 8; add --again" in str(refused.exception)
    assert again.exit_code == 0, again.output
    assert [each.id for each in place.store().experiments.list()] == [3, 2, 1]


def test_an_experiment_of_which_a_run_was_deleted_comes_whole_again(place: CommandFolder) -> None:
    file = played(place)
    place.run("experiment", "import", file)
    place.store().runs.delete(5)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, result.output
    assert numbers(place, 3) == numbers(place, 1)


def test_an_experiment_whose_budget_ended_before_a_variant_began_reads_back_equal(place: CommandFolder) -> None:
    file = played(place, "--budget", 1)
    exported = json.loads(file.read_text())["variants"]
    assert any(not each["run"]["results"] for each in exported)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, result.output
    assert numbers(place, 2) == numbers(place, 1)


def test_a_deleted_variant_stays_deleted(place: CommandFolder) -> None:
    played(place)
    place.store().runs.delete(2)
    file = place.folder / "three.json"
    place.run("experiment", "export", 1, "-o", file)

    result = place.run("experiment", "import", file)

    assert result.exit_code == 0, result.output
    shown = json.loads(place.run("experiment", "show", 2, "--json").stdout)
    assert [each["status"] == "deleted" for each in shown["variants"]] == [False, True, False, False]
    assert numbers(place, 2) == numbers(place, 1)


def test_a_secret_is_not_in_the_file(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "c7-of-the-shop-0123456789")
    (place.folder / "leaky.py").write_text(
        "def leaky(message, session):\n    return 'c7-of-the-shop-0123456789'\n\nleaky.tells_cost = True\n"
    )
    monkeypatch.delenv("SHOP_API_KEY")
    evalset = place.evalset("shop", ANSWERS)
    place.run("eval", "leaky:leaky", evalset, "--vary", "temperature=0,1")
    monkeypatch.setenv("SHOP_API_KEY", "c7-of-the-shop-0123456789")

    result = place.run("experiment", "export", 1)

    assert "c7-of-the-shop-0123456789" not in result.stdout
    assert "masked" in result.stderr


def change(file: Path, *keys: Any) -> bytes:
    """The file with another value at the place that the keys but the last one lead to."""
    content = json.loads(file.read_text())
    *path, last, value = keys
    at = content
    for key in path:
        at = at[key]
    at[last] = value
    return json.dumps(content).encode()


def without_trials(file: Path) -> bytes:
    content = json.loads(file.read_text())
    for each in content["variants"]:
        each["run"]["results"] = []
    return json.dumps(content).encode()


def test_a_file_with_a_fault_names_it_and_stores_nothing(place: CommandFolder) -> None:
    file = played(place)
    faults: dict[str, tuple[bytes, str]] = {
        "no JSON": (b"{", "this file is not of `evaldesk experiment export`"),
        "another file": (b'{"eval_cases": []}', "this file is not of `evaldesk experiment export`"),
        "of a later version": (change(file, "evaldesk_experiment", 2), "wanted 1"),
        "one variant": (change(file, "plan", "variants", [{"name": "a", "options": {}}]), "at least 2 variants"),
        "names with control characters": (change(file, "plan", "variants", 0, "name", "a\x1b"), "control characters"),
        "a name with control characters": (change(file, "plan", "name", "a\x1b"), "control characters"),
        "a name of 10 kB": (change(file, "plan", "name", "n" * 10_240), "200 fit"),
        "two of one index": (change(file, "variants", 1, "index", 0), "an index of its own"),
        "an index of none": (change(file, "variants", 1, "index", 9), "an index of its own"),
        "a baseline of none": (change(file, "plan", "baseline", 9), "an index of its own"),
        "no run": (change(file, "variants", []), "an index of its own"),
        "no trial": (without_trials(file), "contains no trial"),
        "a trial of no case": (change(file, "variants", 3, "run", "results", 0, "case_index", 99), "but the run has 8"),
        "a huge number of trials": (change(file, "variants", 0, "n", 10**12), "n must be from 1 to"),
        "a negative number of trials": (change(file, "variants", 0, "n", -1), "n must be from 1 to"),
        "no look": (change(file, "plan", "n_looks", 0), "n_looks and concurrency must be 1 or more"),
        "a dropped variant of none": (change(file, "dropped", {"99": 1}), "the index of a variant"),
        "levels of no factor": (change(file, "plan", "variants", 0, "levels", ["a", "b", "c"]), "combination"),
        "levels of another": (change(file, "plan", "variants", 0, "levels", ["1", "1"]), "combination"),
        "a missing cell": (change(file, "plan", "variants", 0, "levels", []), "combination"),
        "a factor of many levels": (
            change(file, "plan", "factors", 0, "levels", [str(at) for at in range(10**6)]),
            "combination",
        ),
        "a moment outside of the calendar": (
            change(file, "created_at", "9999-12-31T23:59:59-12:00"),
            "outside of the calendar",
        ),
        "not UTF-8": (b"\xff\xfe{}", "this file is not of `evaldesk experiment export`"),
    }
    for name, (data, words) in faults.items():
        faulty = place.folder / "faulty.json"
        faulty.write_bytes(data)

        result = place.run("experiment", "import", faulty)

        assert isinstance(result.exception, EvaldeskError), name
        assert words in str(result.exception), name
    store = place.store()
    assert [each.id for each in store.experiments.list()] == [1]
    assert [run.id for run in store.runs.list()] == [4, 3, 2, 1]


def test_deep_and_long_files_are_read_as_faults() -> None:
    for data in (b"[" * 100_000, b'{"plan": ' + b"[" * 5_000, b""):
        with pytest.raises(FormatError):
            read_experiment(data, "x.json")
