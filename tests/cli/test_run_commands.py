"""`evaldesk run`: what is listed, told, stopped, resumed, scored again, given out and deleted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from evaldesk.desk.process_owner import current_owner
from evaldesk.errors import EvaldeskError
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

MIXED = {"one": "one", "two": "other", "raise": "x"}


def _refusal(result: Result) -> str:
    assert isinstance(result.exception, EvaldeskError), result.output
    return str(result.exception)


@pytest.fixture
def played(place: CommandFolder) -> CommandFolder:
    """A place with one run: a trial passed, one failed, one errored."""
    place.eval(place.evalset("first", MIXED), "--note", "nightly\nof the main branch", "--seed", 7)
    return place


def test_runs_are_listed_newest_first(played: CommandFolder) -> None:
    played.eval(played.folder / "first.evalset.json:case_1")

    lines = played.run("run", "list").output.splitlines()

    assert lines[0].split() == [
        "Run",
        "Name",
        "Status",
        "Conclusion",
        "Passed",
        "Errored",
        "Done",
        "Agent",
        "Eval",
        "set",
        "Submitted",
        "By",
    ]
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]
    assert "nightly  finished  failed      1 of 2  1        3 of 3" in lines[2]


def test_a_listing_is_cut_and_says_so(played: CommandFolder) -> None:
    played.eval(played.folder / "first.evalset.json:case_1")

    assert "1 of 2; --cursor 2 lists more, and --all every one." in played.run("run", "list", "--limit", 1).output
    assert "--all lists" not in played.run("run", "list", "--limit", 1, "--all").output
    assert played.run("run", "list", "--status", "running").output.startswith("No matching runs")


def test_a_listing_as_json(played: CommandFolder) -> None:
    found = json.loads(played.run("run", "list", "--json").output)

    assert (found["total_count"], found["has_more"]) == (1, False)
    item = found["items"][0]
    assert (item["id"], item["name"], item["status"], item["outcome"]) == (1, "nightly", "finished", "failed")
    assert item["summary"]["progress"] == {"completed": 3, "total": 3, "unit": "trials"}
    assert (item["summary"]["passed"], item["summary"]["errored"], item["summary"]["pass_rate"]) == (1, 1, 0.5)


@pytest.mark.parametrize("name", ["1", "nightly", "ni"])
def test_a_run_is_told_in_full_by_number_by_name_and_by_the_beginning_of_its_name(
    played: CommandFolder, name: str
) -> None:
    said = played.run("run", "info", name).output

    assert "Result                1 of 2 passed; too few trials for a rate" in said
    assert "1 errored, 0 unscored" in said
    assert "seed=7" in said
    assert "`evaldesk run retry 1` plays the one errored trial again." in said


def test_one_rate_has_one_interval_in_run_info(played: CommandFolder) -> None:
    """The pass rate, pass@1 and the mean of a score that is 0 or 1 are one number."""
    path = played.evalset("many", {f"say {number}": "no" if number == 3 else f"say {number}" for number in range(12)})
    played.eval(path)

    said = played.run("run", "info", 2).output

    assert "11 of 12 passed; 95 % CI 65–99 %" in said
    assert re.search(r"^response_match_score .*0\.65–0\.99", said, re.MULTILINE), said
    assert "Exact" not in said


def test_a_run_as_json(played: CommandFolder) -> None:
    found = json.loads(played.run("run", "info", "1", "--json").output)["data"]

    assert (found["results"]["n_scored"], found["results"]["pass_at_k"]) == (2, {"1": 0.5})


def test_a_run_says_how_the_calls_of_its_agent_became_known(played: CommandFolder) -> None:
    told = json.loads(played.run("run", "info", "1", "--json").output)["data"]["results"]
    again = json.loads(played.eval(played.folder / "first.evalset.json:case_1", "--json").stdout)

    assert told["capture"] == again["runs"][0]["capture"] == ["told"]
    assert (
        "Played in             this machine, in processes that trials share\n" in played.run("run", "info", "1").output
    )
    assert "Recorded as the agent reported it\n" in played.run("run", "info", "1").output


def test_an_unknown_run_is_answered_with_the_nearest(played: CommandFolder) -> None:
    assert "did you mean 'nightly'?" in _refusal(played.run("run", "info", "nigthly"))
    assert "no run 99" in _refusal(played.run("run", "logs", "99"))


def test_the_beginning_of_several_names_is_answered_with_all_of_them(played: CommandFolder) -> None:
    played.eval(played.folder / "first.evalset.json:case_1", "--note", "nights")
    played.eval(played.folder / "first.evalset.json:case_1", "--note", "night")

    assert _refusal(played.run("run", "rm", "nigh", "--yes")) == (
        "3 runs begin with 'nigh': night (3), nights (2), nightly (1); give more of the name, or a number"
    )
    assert "3, night\n" in played.run("run", "info", "night").output
    assert "no run named ''" in _refusal(played.run("run", "info", ""))


def test_logs_show_what_broke(played: CommandFolder) -> None:
    said = played.run("run", "logs", "1").output

    assert "case_3, trial 1 errored" in said
    assert "ValueError: raise was asked for" in said
    entry = json.loads(played.run("run", "logs", "1", "--errors", "--json").output)
    assert (entry["case_id"], entry["trial"]) == ("case_3", 1)


def test_logs_name_a_trial_that_changed_its_process(played: CommandFolder) -> None:
    with played.store() as store:
        again = store.runs.create(store.runs.summary(1).config, store.runs.cases(1))
        store.runs.record([TrialResult(again, 0, 0, "finished", "passed", logs="hello\n", changes="the umask")])

    said = played.run("run", "logs", str(again)).output.splitlines()

    assert [line.strip() for line in said if line.strip()] == [
        "case_1, trial 1 passed",
        "hello",
        "This trial changed the umask. Its process was ended after it.",
    ]


def test_errors_are_played_again_into_the_same_run(played: CommandFolder) -> None:
    source = (played.agent / "agent.py").read_text()
    (played.agent / "agent.py").write_text(source)

    result = played.run("run", "retry", "nightly")

    assert result.exit_code == 1
    with played.store() as store:
        assert store.runs.trial(1, 2, 0).attempt == 2
        assert store.runs.summary(1).n_trials == 3


def test_runs_are_found_by_model_data_set_rollout_and_text(place: CommandFolder) -> None:
    with Store.open(place.folder / ".evaldesk/evaldesk.db") as store:
        for agent, evalset, model in (("calc", "sums", "openai/small"), ("trip", "tours", "openai/large")):
            config = RunConfig(AgentRef(agent, f"{agent}:loop"), evalset, model=model)
            store.runs.create(config, [Case("a", (Turn("hi"),))])

    def listed(*options: str) -> list[int]:
        found = json.loads(place.run("eval", "list", *options, "--json").stdout)
        assert found["total_count"] == len(found["items"])
        return [item["id"] for item in found["items"]]

    assert listed("--model", "openai/small") == listed("--dataset", "sums") == listed("--rollout", "calc") == [1]
    assert listed("--evalset", "tours") == listed("--agent", "trip") == listed("--search", "LARGE") == [2]
    assert listed("--model", "SMALL") == listed("--dataset", "um") == listed("--agent", "Calc") == [1]
    assert listed("--model", "openai/", "--agent", "") == [2, 1]
    assert listed("--model", "openai/small", "--agent", "trip") == listed("--model", "openai_small") == []
    assert listed("--status", "pending", "--all") == [2, 1]
    assert "No matching runs." in place.run("run", "list", "--model", "other").output


def test_a_stopped_run_is_resumed_in_the_foreground(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    with place.store() as store:
        summary = store.runs.summary(1)
        run_id = store.runs.create(summary.config, [store.runs.case(1, 0)])
        store.runs.set_status(run_id, "stopped")

    result = place.run("run", "resume", run_id)

    assert (result.exit_code, "1 of 1 passed" in result.output) == (0, True), result.output
    assert "has no trial left to play" in _refusal(place.run("run", "resume", run_id))


def test_stopping_a_run_of_another_process_asks_that_process(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    with place.store() as store:
        config = RunConfig(AgentRef("a", "a:a"), "first")
        run_id = store.runs.create(config, [Case("a", (Turn("hi"),))])
        store.runs.set_status(run_id, "running", driver=current_owner())

    said = place.run("eval", "stop", run_id, "--yes").output

    assert f"Run {run_id} is being stopped." in said
    with place.store() as store:
        assert store.runs.summary(run_id).status == "stopping"
    assert "is finished already" in _refusal(place.run("run", "stop", "1"))


def test_a_running_run_whose_process_was_killed_says_how_it_goes_on(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one"}))
    with place.store() as store:
        run_ids = [
            store.runs.create(RunConfig(AgentRef("a", "a:a"), "first"), [Case("a", (Turn("hi"),))]) for _ in range(2)
        ]
        rest = current_owner().partition(" ")[2]
        for run_id, owner in zip(run_ids, (f"{2**30} {rest}", current_owner()), strict=True):
            store.runs.set_status(run_id, "running", driver=owner)

    gone, here = (place.run("run", "info", run_id).output for run_id in run_ids)

    listed = place.run("run", "list").output.splitlines()
    items = json.loads(place.run("run", "list", "--json").output)["items"]
    assert [item["status"] for item in items] == ["running", "interrupted", "finished"]
    assert [line.split()[1] for line in listed[1:]] == ["running", "interrupted", "finished"]
    assert re.search(r"^Status +interrupted$", gone, re.MULTILINE)
    assert "Its process is gone; an open desk goes on with it." in gone
    assert f"`evaldesk run resume {run_ids[0]}` plays the one remaining trial." in gone
    assert "Its process is gone" not in here
    assert "run resume" not in here


def test_a_run_is_scored_again_as_a_new_one(played: CommandFolder) -> None:
    config = played.folder / "strict.json"
    config.write_text(json.dumps({"criteria": {"response_exact": 1.0}}))

    result = played.run("run", "rescore", "1", "--config_file_path", config)

    assert "Run 2." in result.output, result.output
    with played.store() as store:
        scored = store.runs.list()[0]
    assert [criterion.metric for criterion in scored.config.criteria] == ["response_exact"]
    assert scored.config.source_run_id == 1
    same = "Run 2 has the same criteria: scores change only where a metric's code or a judge did."
    assert same not in result.output
    assert same in played.run("run", "rescore", "1", "--config_file_path", config).output


def test_a_run_is_given_out_as_a_file(played: CommandFolder) -> None:
    played.run("run", "export", "nightly", "-o", "run.csv")

    lines = (played.folder / "run.csv").read_text().splitlines()
    assert [line.split(",")[4] for line in lines] == ["verdict", "passed", "failed", "errored"]
    assert "is there already; --force replaces it" in _refusal(played.run("run", "export", "1", "-o", "run.csv"))
    assert json.loads(played.run("run", "export", "1", "--format", "adk-results").output)["eval_case_results"]


def test_runs_are_deleted_when_somebody_says_so(played: CommandFolder) -> None:
    assert "rm moves 3 trials to the trash; without a terminal add --yes" in _refusal(played.run("run", "rm", "1"))

    deleted = "Run 1 is in the trash; evaldesk trash restore run-1 brings it back.\n"
    assert played.run("run", "rm", "nightly", "--yes").output == deleted

    assert played.run("run", "list").output.startswith("No runs yet")


def test_a_folder_without_runs_says_what_to_do(tmp_path: Path, place: CommandFolder) -> None:
    said = _refusal(place.run("run", "list", "--workspace", tmp_path))

    assert "does not exist; start a desk or a run in this workspace first" in said


DRIVEN = '''
from pathlib import Path

CALLS = Path(__file__).parent / "calls.txt"


def root_agent(message, state):
    """Writes down that it was called."""
    with CALLS.open("a") as file:
        file.write(message + "\\n")
    return message
'''


@pytest.mark.long
def test_two_drivers_and_a_reader_share_a_run_without_doubling_it(place: CommandFolder) -> None:
    queries = {f"query {number}": f"query {number}" for number in range(6)}
    place.eval(f"{place.evalset('first', queries)}:case_1")
    (place.agent / "agent.py").write_text(DRIVEN)
    with place.store() as store:
        config = store.runs.summary(1).config
        cases = [Case(query, (Turn(query),)) for query in queries]
        run_id = store.runs.create(config, cases, "waiting")
        command = [sys.executable, "-m", "evaldesk", "run", "drive", str(run_id), "--workspace", str(place.folder)]
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        drivers = [subprocess.Popen(command, **streams) for _ in range(2)]
        for driver in drivers:
            while driver.poll() is None:
                place.run("run", "list")
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(timeout=0.3)

        said = [driver.communicate()[0] for driver in drivers]
        summary = store.runs.summary(run_id)

    assert said == ["", ""]
    assert (summary.status, summary.n_done, summary.n_duplicates) == ("finished", 6, 0)
    assert sorted((place.agent / "calls.txt").read_text().splitlines()) == sorted(queries)
