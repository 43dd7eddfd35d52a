"""`evaldesk eval --stop-when-decided`: fewer trials, the same conclusion, and every writer shows the stop."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

RIGHT = {"one": "one", "two": "two", "three": "three"}
WRONG = {"one": "no", "two": "no", "three": "three"}


@pytest.mark.parametrize(("answers", "code"), [(RIGHT, 0), (WRONG, 1)], ids=["passes", "fails"])
def test_a_stopped_run_ends_as_the_whole_one_after_fewer_trials(
    place: CommandFolder, answers: dict[str, str], code: int
) -> None:
    path, gates = place.evalset("set", answers), ["--n", "20", "--min-pass-rate", "0.5", "--concurrency", "1"]
    whole = place.eval(path, *gates, "-o", "whole.json")
    stopped = place.eval(
        path,
        *gates,
        "--stop-when-decided",
        "exact",
        "-o",
        "stopped.json",
        "--junit",
        "junit.xml",
        "--summary",
        "summary.md",
    )
    before, after = (json.loads((place.folder / name).read_text()) for name in ("whole.json", "stopped.json"))
    info = place.run("run", "info", "2", "--json")

    assert (whole.exit_code, stopped.exit_code) == (code, code), stopped.output
    assert before["outcome"] == after["outcome"] == json.loads(info.output)["data"]["results"]["outcome"]
    with place.store() as store:
        run = store.runs.summary(2)
    assert run.stop is not None
    assert run.n_done < 60
    says = run.stop.answers[0].sentence
    assert says in stopped.output
    assert says in (place.folder / "summary.md").read_text()
    assert says in ET.tostring(ET.parse(place.folder / "junit.xml").getroot(), encoding="unicode") or code == 0  # noqa: S314
    assert after["runs"][0]["stop"] == {"rule": "exact", "n_blocks": run.stop.n_blocks, "n_trials": run.stop.n_trials}
    assert before["runs"][0]["stop"] is None
    assert "resume" not in stopped.output.lower()


def test_every_interval_of_a_stopped_run_holds_at_any_stop_or_is_not_shown(place: CommandFolder) -> None:
    """The rate of 12 cases has the one of cases like these, its gate that of these cases, and means and pass@k none."""
    answers = {f"case {at}": f"case {at}" for at in range(12)}
    gates = ("--n", "20", "--min-pass-rate", "0.5", "--concurrency", "1", "--stop-when-decided", "likely")

    place.eval(place.evalset("set", answers), *gates, "-o", "stopped.json")

    result = json.loads((place.folder / "stopped.json").read_text())
    (run,), (gate,) = result["runs"], result["gates"]
    assert run["interval"] is not None
    assert "for these 12 cases" in gate["sentence"]
    assert [metric["interval"] for metric in run["metrics"]] == [None]
    shown = {k: ends for k, ends in run["pass_at_k_interval"].items() if ends}
    assert shown in ({}, {"1": run["interval"]})


def test_several_runs_of_a_command_are_never_stopped_by_one_of_them(place: CommandFolder) -> None:
    first, second = place.evalset("first", RIGHT), place.evalset("second", RIGHT)

    result = place.eval(first, second, "--stop-when-decided", "exact")

    assert isinstance(result.exception, UsageError)
    assert "--stop-when-decided is about one run, and these are 2" in str(result.exception)


def test_a_decided_run_is_resumed_and_then_plays_every_trial(place: CommandFolder) -> None:
    place.eval(place.evalset("set", WRONG), "--n", "20", "--stop-when-decided", "exact", "--concurrency", "1")
    hint = place.run("run", "info", "1").output
    place.run("run", "resume", "1")

    assert "`evaldesk run resume 1` plays" in hint
    with place.store() as store:
        run = store.runs.summary(1)
    assert (run.n_done, run.stop, run.status) == (60, None, "finished")
