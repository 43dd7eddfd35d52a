"""`evaldesk eval AGENT EVALSET...`: what is chosen, what is said, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.errors import EvaldeskError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

GOOD = {"one": "one", "two": "two"}


def _refusal(place: CommandFolder, *arguments: object) -> str:
    result = place.run("eval", *arguments)
    assert isinstance(result.exception, EvaldeskError), result.output
    return str(result.exception)


def test_all_cases_of_all_files_are_run(place: CommandFolder) -> None:
    first, second = place.evalset("first", GOOD), place.evalset("second", {"three": "three"})

    result = place.eval(first, second, "--n", 2)

    assert result.exit_code == 0, result.output
    assert "4 of 4 passed" in result.output
    assert "2 of 2 passed" in result.output
    with place.store() as store:
        assert [run.config.evalset_path for run in store.runs.list()] == [str(second), str(first)]


def test_selectors_choose_cases_and_are_joined(place: CommandFolder) -> None:
    path = place.evalset("first", GOOD | {"three": "three"})

    result = place.eval(f"{path}:case_3", f"{path}: case_1 ,")

    assert [line for line in result.output.splitlines() if "case_" in line] == ["✓  case_1", "✓  case_3"]


def test_an_eval_set_beside_the_agent_is_named_by_its_id(place: CommandFolder) -> None:
    path = place.evalset("mine", GOOD)
    path.rename(place.agent / path.name)

    assert "✓  case_2" in place.eval("mine:case_2").output


def test_rows_choose_cases_by_their_place(place: CommandFolder) -> None:
    path = place.evalset("first", {str(number): str(number) for number in range(5)})

    result = place.eval(path, "--rows", "0,2-3")

    assert [line for line in result.output.splitlines() if "case_" in line] == ["✓  case_1", "✓  case_3", "✓  case_4"]


def test_a_named_run_is_continued_as_it_began_and_a_fresh_one_is_new(place: CommandFolder) -> None:
    path = place.evalset("first", {str(number): str(number) for number in range(3)})
    words = (path, "--name", "nightly")

    first, again, fresh = place.eval(*words), place.eval(*words), place.eval(*words, "--fresh")
    other = place.eval(*words, "--rows", "0-1")
    retried = place.eval(*words, "--retry-failed")
    unnamed = place.eval(path, "--retry-failed")

    assert (first.exit_code, fresh.exit_code) == (0, 0), first.output + fresh.output
    assert "run 1, named nightly, has no trial left to play; --fresh begins a new run" in str(again.exception)
    assert "run 2 began with other inputs: 3 rows, now 2" in str(other.exception)
    assert "run 2, named nightly, has no errored trial" in str(retried.exception)
    assert "--retry-failed: name the run as well, by --name" in str(unnamed.exception)
    with place.store() as store:
        assert [(run.id, run.config.name, run.n_done) for run in store.runs.list()] == [
            (2, "nightly", 3),
            (1, "nightly", 3),
        ]


def test_the_errored_trials_of_a_named_run_are_played_again_under_its_name(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("first", {str(number): str(number) for number in range(3)})
    monkeypatch.setenv("ECHO_RAISE", "1")
    broken = place.eval(path, "--name", "nightly")
    monkeypatch.delenv("ECHO_RAISE")

    retried = place.eval(path, "--name", "nightly", "--retry-failed")

    assert (broken.exit_code, retried.exit_code) == (3, 0), broken.output + retried.output
    assert "3 of 3 passed" in retried.output
    with place.store() as store:
        assert [(run.id, run.n_passed) for run in store.runs.list()] == [(1, 3)]


def test_the_trials_that_a_named_run_has_left_are_played_by_the_same_command(place: CommandFolder) -> None:
    path = place.evalset("first", {str(number): str(number) for number in range(3)})
    place.eval(path, "--name", "nightly")
    with place.store() as store:
        config, cases = store.runs.summary(1).config, [store.runs.case(1, index) for index in range(3)]
        run_id = store.runs.create(config, cases)
        store.runs.set_status(run_id, "stopped")

    continued = place.eval(path, "--name", "nightly")

    assert continued.exit_code == 0, continued.output
    with place.store() as store:
        assert [(run.id, run.n_done) for run in store.runs.list()] == [(2, 3), (1, 3)]


def test_a_run_that_was_scored_again_does_not_have_the_name(place: CommandFolder) -> None:
    path = place.evalset("first", GOOD)
    place.eval(path, "--name", "nightly")
    (place.folder / "softer.json").write_text(json.dumps({"criteria": {"response_match_score": 0.5}}))
    rescored = place.run("run", "rescore", "nightly", "--config-file-path", place.folder / "softer.json")

    again = place.eval(path, "--name", "nightly")

    assert rescored.exit_code == 0, rescored.output
    assert "run 1, named nightly, has no trial left to play" in str(again.exception)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--vary", "seed=1,2"), "--name is of one run, and --vary plays several"),
        (("second",), "--name is of one run, and these are 2"),
    ],
    ids=["variants", "eval sets"],
)
def test_a_name_is_of_one_run(place: CommandFolder, more: tuple[str, ...], words: str) -> None:
    path, second = place.evalset("first", GOOD), place.evalset("second", GOOD)
    arguments = [second if each == "second" else each for each in more]

    assert words in _refusal(place, place.agent, path, "--name", "nightly", *arguments)


@pytest.mark.parametrize(
    ("selectors", "rows", "words"),
    [
        ({"first": ":case_1"}, "0", "--rows and names of cases: choose the cases by one of them"),
        ({"first": "", "second": ""}, "0", "--rows is for one eval set, and 2 are named"),
        ({"first": ""}, "7", "there is no row 7; the file has 2 rows, 0 to 1"),
        ({"first": ""}, "x", "'x' is not a row or a range"),
    ],
    ids=["names", "files", "past the end", "no number"],
)
def test_rows_that_choose_nothing_are_refused(
    place: CommandFolder, selectors: dict[str, str], rows: str, words: str
) -> None:
    files = [f"{place.evalset(name, GOOD)}{selector}" for name, selector in selectors.items()]

    assert words in _refusal(place, place.agent, *files, "--rows", rows)


def test_a_selector_that_matches_nothing_lists_the_names(place: CommandFolder) -> None:
    path = place.evalset("first", GOOD)

    said = _refusal(place, place.agent, f"{path}:case_3,nothing")

    assert "no case named 'case_3'" in said
    assert "no case named 'nothing'" in said
    assert "case_1, case_2" in said


@pytest.mark.parametrize("spelled", ["--config_file_path", "--config-file-path"])
def test_options_take_dashes_and_underscores(place: CommandFolder, spelled: str) -> None:
    path = place.evalset("first", {"one": "two"})

    result = place.run(
        "eval", place.agent, path, spelled, place.folder / "test_config.json", "--print_detailed_results"
    )

    assert result.exit_code == 1, result.output
    assert 'expected answer  "two"' in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name an agent and an eval set"),
        (("samples/hello_world",), "name an eval set"),
        (("samples/hello_world", "nowhere.json"), "is not a file"),
        (("samples/hello_word", "nowhere.json"), "did you mean 'hello_world'"),
        (("samples/hello_world", "samples"), "samples is not a file; name an eval set"),
        (("samples/hello_world", "test_confg.json"), "did you mean test_config.json?"),
        (("samples/hello_world", "hello_world", "--workspace", "nowhere"), "nowhere is not a folder; name the folder"),
        (("test_config", "x.json"), "nor an agent that evaldesk.toml declares; did you mean test_config.json?"),
        (("samples/hello_world", "hello_world", "-o", "test_config.json/a.csv"), "cannot be written to; name another"),
        (("samples/hello_world", "hello_world", "--pass-hat", "5=1"), "asks for 5 trials of each case; say --n 5"),
    ],
)
def test_what_is_missing_is_said(place: CommandFolder, arguments: tuple[str, ...], said: str) -> None:
    assert said in _refusal(place, *arguments)


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param(GOOD, 0, id="all passed"),
        pytest.param(GOOD | {"x": "y"}, 1, id="one failed"),
        pytest.param(GOOD | {"raise": "x"}, 3, id="one errored"),
        pytest.param({"raise": "x", "x": "y"}, 1, id="an error does not hide a failure"),
    ],
)
def test_without_a_gate_every_trial_must_pass(place: CommandFolder, answers: dict[str, str], code: int) -> None:
    assert place.eval(place.evalset("first", answers)).exit_code == code


MIXED = {"one": "one", "flaky": "flaky", "raise": "x"}  # 2 of 2, 1 of 2 and 2 errored


@pytest.mark.parametrize(
    ("gates", "code", "said"),
    [
        ("--min-pass-rate 0.75", 0, "✓ held   --min-pass-rate: pass rate 0.75 is at least 0.75: 3 of 4 passed"),
        ("--min-pass-rate 0.8", 1, "✗ failed --min-pass-rate: pass rate 0.75 is below 0.8"),
        ("--min-case-pass-rate 0.5", 3, "1 of 3 cases passed less than 0.5 of its trials: case_3 (no scored trials)"),
        ("--min-case-pass-rate 0.6", 1, "case_2 (1 of 2), case_3 (no scored trials)"),
        ("--pass-at 2=1", 0, "✓ held   --pass-at 2: pass@2 1 is at least 1; 95 % CI 0.34–1.00; over the 2 of 3 cases"),
        ("--pass-hat 2=0.6", 1, "✗ failed --pass-hat 2: pass^2 0.5 is below 0.6"),
        ("--max-cost 0.5", 1, "✓ held   --max-cost: the run cost $0, within $0.5"),
    ],
)
def test_each_gate_is_printed_with_its_number(place: CommandFolder, gates: str, code: int, said: str) -> None:
    path = place.evalset("first", MIXED)

    result = place.eval(path, "--n", 2, *gates.split(), "--max-error-rate", "0.5")

    assert said in result.output
    assert "✓ held   --max-error-rate: 2 of 6 trials errored (33 %), within the tolerated 0.5" in result.output
    assert result.exit_code == code, result.output


def test_where_too_few_trials_were_scored_a_gate_of_several_does_not_hold(place: CommandFolder) -> None:
    result = place.eval(place.evalset("first", {"raise": "x"}), "--n", 2, "--pass-at", "2=0.1")

    assert "? open   --pass-at 2: pass@2 is undefined: no case has 2 scored trials" in result.output


def test_more_errors_than_tolerated_have_their_own_code(place: CommandFolder) -> None:
    path = place.evalset("first", MIXED)

    result = place.eval(path, "--n", 2, "--max-error-rate", "0.2", "--min-pass-rate", "0.1")

    assert "✗ failed --max-error-rate: 2 of 6 trials errored (33 %), more than the tolerated 0.2" in result.output
    assert result.exit_code == 3


def test_errors_count_as_failures_when_asked(place: CommandFolder) -> None:
    result = place.eval(place.evalset("first", MIXED), "--n", 2, "--count-errors-as-failures")

    assert "3 of 6 passed" in result.output


def test_regressions_are_counted_against_a_run_and_against_a_file(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, saved = place.evalset("first", GOOD | {"three": "three"}), place.folder / "base.json"
    place.eval(path, "-o", saved)
    monkeypatch.setenv("ECHO_WRONG", "two,three")

    against_run = place.eval(path, "--baseline", 1)
    against_file = place.eval(path, "--baseline", saved, "--max-regressions", 2)

    assert "2 of 3 cases regressed against run 1, 0 allowed" in against_run.output
    assert "Regressed: case_2, case_3" in against_run.output
    assert against_run.output.count("2 of 3 cases regressed") == 1
    assert "\nFailed: --max-regressions\n" in against_run.output
    assert against_run.exit_code == 1
    assert "2 of 3 cases regressed against base.json, 2 allowed" in against_file.output
    assert against_file.exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--baseline", "99"], "no run 99"),
        (["--baseline", "old.json"], "neither a file nor the number of a run"),
        (["--max-regressions", "1"], "needs --baseline"),
        (["--regression-rule", "likely"], "needs --baseline"),
        (["-o", "result.xls"], "the ending says the form"),
        (["-o", "summary.md"], "--summary FILE writes Markdown"),
        (["--junit", "."], "is a folder"),
        (["--junit", "a.xml", "--summary", "./a.xml"], "./a.xml is named twice"),
    ],
)
def test_what_cannot_be_judged_or_written_is_refused_before_anything_is_played(
    place: CommandFolder, options: list[str], said: str
) -> None:
    message = _refusal(place, place.agent, place.evalset("first", GOOD), *options)

    assert said in message
    database = place.folder / ".evaldesk/evaldesk.db"
    if database.exists():
        with place.store() as store:
            assert store.runs.list() == []


def test_a_pair_of_a_gate_is_checked(place: CommandFolder) -> None:
    path = place.evalset("first", GOOD)

    assert "K=R, such as 5=0.9" in place.eval(path, "--pass-at", "5").output
    assert "between 0 and 1" in place.eval(path, "--pass-hat", "5=9").output


def test_json_is_one_object_on_standard_output(place: CommandFolder) -> None:
    result = place.eval(place.evalset("first", MIXED), "--n", 2, "--json", "--annotations", "--max-error-rate", "1")

    found: dict[str, Any] = json.loads(result.stdout)
    run = found["runs"][0]
    assert (run["n_passed"], run["n_failed"], run["n_errored"], run["n_scored"]) == (3, 1, 2, 4)
    assert run["pass_at_k"]["2"] == 1.0
    assert [case["is_passed"] for case in run["cases"]] == [True, False, None]
    assert found["gates"][0]["is_held"] is False
    assert "::error title=Gate" in result.stderr


def test_quiet_says_the_answer_alone(place: CommandFolder) -> None:
    lines = place.eval(place.evalset("first", GOOD), "-q").output.splitlines()

    assert lines[0] == "2 of 2 passed; too few trials for a rate"
    assert len(lines) == 2


def test_an_agent_that_does_not_load_is_said_in_one_line(place: CommandFolder) -> None:
    (place.agent / "agent.py").write_text("import no_such_module_here\nroot_agent = 1\n")

    result = place.eval(place.evalset("first", GOOD))

    [line] = result.stderr.splitlines()
    assert result.exit_code == 3
    assert "cannot be loaded: " in line
    assert line.endswith("No module named 'no_such_module_here'; add --debug for the trace")


def test_options_of_the_model_reach_the_run(place: CommandFolder) -> None:
    options = "--model a/b --base-url http://127.0.0.1:1/v1 --temperature 0.5 --max-tokens 9 --max-turns 3 --seed 5"

    place.eval(place.evalset("first", GOOD), *options.split(), "--note", "tuned", "--timeout", 7, "--concurrency", 2)

    with place.store() as store:
        config = store.runs.summary(1).config
    model = config.model_options
    assert (config.model, model.base_url, model.temperature, model.max_tokens, model.max_turns) == (
        "a/b",
        "http://127.0.0.1:1/v1",
        0.5,
        9,
        3,
    )
    assert (config.seed, config.note, config.limits.trial_timeout_s, config.concurrency) == (5, "tuned", 7.0, 2)


@pytest.mark.parametrize(
    ("threshold", "code", "sentence"),
    [
        ((), 1, "every trial must pass: 3 of 4 trials passed"),
        (("--pass-threshold", 0.5), 0, ""),
        (
            ("--pass-threshold", 0.6),
            1,
            "every case must pass: 1 of 2 cases passed less than 0.6 of its trials: case_2 (1 of 2)",
        ),
        (("--pass-threshold", 0.5, "--min-pass-rate", 0.8), 1, "pass rate 0.75 is below 0.8"),
    ],
    ids=["every trial", "half of the trials", "more than half", "another gate"],
)
def test_the_pass_threshold_of_a_case_decides_where_no_gate_asks_for_verdicts(
    place: CommandFolder, threshold: tuple[object, ...], code: int, sentence: str
) -> None:
    result = place.eval(place.evalset("first", {"one": "one", "flaky": "flaky"}), "--n", 2, *threshold)

    listed = place.run("run", "info", 1).output

    assert result.exit_code == code, result.output
    assert sentence in result.output
    conclusion = next(line for line in listed.splitlines() if line.startswith("Conclusion"))
    assert conclusion.split(maxsplit=1)[1].startswith("failed" if code else "passed")
    assert sentence.partition(": case_2")[0] in listed
