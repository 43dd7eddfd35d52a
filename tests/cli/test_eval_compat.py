"""`evaldesk eval --compat`: verdicts, means and exit codes of other tools; without it each other verdict is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.islands import of_tools

from evaldesk.agents import agent_ref
from evaldesk.desk.runs.case_player import CasePlayer
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.formats import load_evalset
from evaldesk.model import Criterion
from evaldesk.run_options import OWN
from evaldesk.settings import read_settings

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

CODE = """
async def loop(message, session):
    if message == "raise":
        raise ValueError("asked to")
    return message


def exact(solution_str, ground_truth, extra_info=None):
    return {"7": 1.0, "8": 0.0}[solution_str]


def process_instance(instance, metadata, reset_logger=True):
    error = "the sandbox is gone" if instance["instance_id"] == "breaks" else None
    found = {} if instance["instance_id"] == "silent" else {"success": instance["instance_id"] == "solves"}
    return {"instance_id": instance["instance_id"], "test_result": found, "history": [], "error": error}
"""


@pytest.fixture
def code(place: CommandFolder) -> str:
    name = f"compat_{place.agent.name}"
    (place.folder / f"{name}.py").write_text(CODE)
    return name


def _verdicts(place: CommandFolder, run_id: int) -> list[str]:
    with place.store() as store:
        run = store.runs.summary(run_id)
        return [store.runs.trial(run_id, at, 0).verdict for at in range(run.n_cases)]


def test_adk_fails_what_broke_off_or_was_not_evaluated_with_code_1(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": None, "raise": "x"})
    asked = ("eval", place.agent, path, "--criterion", "response_match_score=0.8")

    ours = place.run(*asked)
    theirs = place.run(*asked, "--compat", "adk")
    empty = place.run(*asked[:-1], "tool_call_count_v1=9", "--compat", "adk")

    assert (ours.exit_code, theirs.exit_code, empty.exit_code) == (3, 1, 1)
    assert _verdicts(place, 1) == ["passed", "unscored", "errored"]
    assert _verdicts(place, 2) == ["passed", "failed", "failed"]
    assert _verdicts(place, 3) == ["unscored", "unscored", "failed"]
    assert "case_1: " not in ours.output
    assert "case_2: unscored here, failed by `adk eval`: response_match_score is 0 there" in ours.output
    assert "case_3: errored here, failed by `adk eval`: a trial that broke off counts as failed" in ours.output
    assert "Judged as `adk eval` does." in theirs.output
    assert "here, " not in theirs.output


def test_a_case_of_pytest_is_judged_as_the_tool_that_is_named(place: CommandFolder) -> None:
    settings = read_settings(place.folder, (), environment={})
    cases = load_evalset(place.evalset("first", {"one": "one", "two": None, "raise": "x"})).cases
    player = CasePlayer(agent_ref(str(place.agent)), settings, concurrency=1)
    criteria = (Criterion("response_match_score", 0.8),)

    try:
        verdicts = {
            tool: [player.play(each, RunOptions(criteria=criteria, compat=tool))[0].verdict for each in cases]
            for tool in (OWN, "adk")
        }
    finally:
        player.close()

    assert verdicts == {OWN: ["passed", "unscored", "errored"], "adk": ["passed", "failed", "failed"]}


def test_criteria_that_adk_does_not_know_are_said_once(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": "two", "raise": "x"})

    result = place.run("eval", place.agent, path, "--criterion", "response_exact=0")

    assert result.output.count("adk eval") == 1
    assert "`adk eval` scores none of these cases: it does not decide by response_exact.\n" in result.output


def test_a_mean_with_the_empty_answer_of_adk_is_said(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one"})
    found = json.loads(path.read_text())
    found["eval_cases"][0]["conversation"].append({"user_content": {"parts": [{"text": "two"}]}})
    path.write_text(json.dumps(found))

    ours = place.run("eval", place.agent, path, "--criterion", "response_match_score=0.5")

    assert "1 case has the same verdict and other scores by `adk eval`; --compat adk shows them." in ours.output
    assert "other scores" not in place.run("eval", place.agent, place.evalset("all", {"one": "one"})).output


@of_tools("osmosis")
def test_osmosis_counts_what_raises_as_0_and_ends_with_0(place: CommandFolder, code: str) -> None:
    data = place.folder / "data.jsonl"
    rows = [{"system_prompt": "s", "user_prompt": asked, "ground_truth": "7"} for asked in ("7", "8", "9", "raise")]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("eval", "-m", f"{code}:loop", "-d", data, "--eval-fn", f"{code}:exact")

    ours = place.run(*asked, "-o", "ours.json")
    theirs = place.run(*asked, "--compat", "osmosis", "-o", "theirs.json")

    assert (ours.exit_code, theirs.exit_code) == (3, 0)
    assert _verdicts(place, 1) == ["passed", "failed", "errored", "errored"]
    assert _verdicts(place, 2) == ["passed", "failed", "failed", "failed"]
    assert f"errored here, failed by Osmosis: {code}:exact is 0 there, where a missing score or" in ours.output
    assert "errored here, failed by Osmosis: a trial that broke off counts as 0 there" in ours.output
    assert "failed by Osmosis" not in theirs.output
    assert [_scores(place, name)[2] for name in ("ours", "theirs")] == [{}, {f"{code}:exact": 0.0}]
    found = json.loads((place.folder / "theirs.json").read_text())
    assert found["summary"]["eval_fns"][f"{code}:exact"]["mean"] == 0.25
    assert found["rows"][3]["runs"][0]["success"] is False


def _scores(place: CommandFolder, name: str) -> list[dict[str, float]]:
    found = json.loads((place.folder / f"{name}.json").read_text())
    return [row["runs"][0]["scores"] for row in found["rows"]]


@of_tools("openhands")
def test_openhands_counts_what_was_not_solved_and_ends_with_0(place: CommandFolder, code: str) -> None:
    ids = ("solves", "fails", "silent", "breaks")
    data = place.folder / "instances.jsonl"
    data.write_text("".join(json.dumps({"instance_id": name, "question": name}) + "\n" for name in ids))
    asked = ("eval", "--benchmark", f"{code}:process_instance", "-d", data)

    ours = place.run(*asked, "--eval-output-dir", "ours")
    theirs = place.run(*asked, "--eval-output-dir", "theirs", "--compat", "openhands")

    assert (ours.exit_code, theirs.exit_code) == (3, 0)
    assert _verdicts(place, 1) == ["passed", "failed", "unscored", "errored"]
    assert _verdicts(place, 2) == ["passed", "failed", "failed", "failed"]
    assert "silent: unscored here, failed by OpenHands: " in ours.output
    assert "breaks: errored here, failed by OpenHands: a trial that broke off counts as 0 there" in ours.output
    assert "by OpenHands: " not in theirs.output


def test_json_has_every_other_verdict(place: CommandFolder) -> None:
    path: Path = place.evalset("first", {"one": "one", "two": None})

    found = json.loads(place.run("eval", place.agent, path, "--json").stdout)

    (said,) = found["runs"][0]["other_verdicts"]
    assert (said["tool"], said["case_id"], said["n"], said["n_trials"]) == ("adk", "case_2", 1, 1)
    assert found["runs"][0]["options"]["compat"] == "evaldesk"


def test_trials_to_which_a_criterion_does_not_apply_are_counted(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": None, "three": "three"})
    asked = ("eval", place.agent, path, "--n", 2, "--json", "--criterion", "response_match_score=0.8")

    mixed = json.loads(place.run(*asked, "--criterion", "turn_count=9").stdout)
    strict = json.loads(place.run(*asked, "--criterion", "turn_count=9", "--strict").stdout)

    assert [found["counts"]["n_not_applicable"] for found in (mixed, strict)] == [2, 0]
    assert mixed["runs"][0]["n_not_applicable"] == 2
    assert mixed["counts"]["n_passed"] == 6
