"""The pytest plugin: cases of eval sets as tests, and nothing at all where it is not used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from evaldesk.agents import load_agent
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.engine import ChatPlayers, InlineExecutor
from evaldesk.engine.worker.player import fault_of
from evaldesk.gate_options import GATE_OPTIONS
from evaldesk.model import AgentDescription, AgentRef
from evaldesk.run_options import RUN_OPTIONS, RunOption
from evaldesk.settings import Settings
from evaldesk.testing.pytest_items import ENDINGS
from evaldesk.testing.pytest_plugin import pytest_load_initial_conftests

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("installed_modules_kept")

AGENT = '''
n_flaky = 0


def root_agent(message, state):
    """Says what it hears; `raise` raises, `flaky` is wrong every other time."""
    global n_flaky
    if message == "raise":
        raise ValueError("asked to")
    if message == "flaky":
        n_flaky += 1
        return "flaky" if n_flaky % 2 else "no"
    return message
'''


def _case(name: str, query: str, reference: str | None, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    turn = {"user_content": {"parts": [{"text": query}]}}
    if reference is not None:
        turn["final_response"] = {"parts": [{"text": reference}]}
    return {"eval_id": name, "conversation": [turn], "tags": list(tags)}


CASES = [
    _case("greets", "hello", "hello", ("smoke",)),
    _case("differs", "hello", "goodbye"),
    _case("flaky", "flaky", "flaky"),
    _case("raises", "raise", "x"),
    _case("unjudged", "hello", None),
]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with an agent, an eval set of five cases and its criteria; trials are played in this process."""
    monkeypatch.setattr(
        "evaldesk.desk.runs.case_player.LocalExecutor", lambda _, concurrency, **__: InlineExecutor(concurrency)
    )
    monkeypatch.setattr(ChatPlayers, "describe", _describe)
    monkeypatch.setattr(ChatPlayers, "model_fault", _model_fault)
    _write_project(pytester.path)
    return pytester


async def _describe(self: ChatPlayers, ref: AgentRef) -> AgentDescription:
    return load_agent(ref).describe()


async def _model_fault(self: ChatPlayers, ref: AgentRef, model: str) -> str:
    return fault_of(load_agent(ref), model)


def _write_project(folder: Path, cases: list[dict[str, Any]] = CASES) -> None:
    agent, evalsets = folder / f"echo_{abs(hash(folder)):x}", folder / "evalsets"
    for made in (agent, evalsets):
        made.mkdir()
    (agent / "agent.py").write_text(AGENT)
    (evalsets / f"words{ENDINGS[1]}").write_text(json.dumps({"eval_set_id": "words", "eval_cases": cases}))
    (evalsets / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.8}}))


def _agent(folder: Path) -> str:
    return f"--evaldesk-agent={next(folder.glob('echo_*'))}"


def _run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(_agent(project.path), "-p", "no:asyncio", *arguments)


def test_each_case_is_an_item(project: pytest.Pytester) -> None:
    result = _run(project, "--collect-only", "-q", "evalsets")

    result.stdout.fnmatch_lines([f"evalsets/words.evalset.json::{case['eval_id']}" for case in CASES])


def test_a_failure_shows_the_turn_that_differs_and_no_traceback(project: pytest.Pytester) -> None:
    result = _run(project, "evalsets")

    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*0 of 1 scored trials passed, 100% must*",
            "trial 1 failed: turn 1: response_match_score*",
            'turn 1 failed: "hello"',
            '*expected answer  "goodbye"',
            '*actual answer    "hello"',
            "no trial was scored, 100% must (1 errored)",
            "trial 1 errored: *ValueError: asked to*",
            "no trial was scored, 100% must (1 unscored)",
        ]
    )
    assert "pytest_items.py" not in result.stdout.str()


def test_a_judge_that_no_provider_has_fails_each_case_before_any_trial(project: pytest.Pytester) -> None:
    criterion = {"threshold": 0.5, "judge_model": "antropic/x", "rubrics": ["Is kind."]}
    config = {"criteria": {"rubric_based_final_response_quality_v1": criterion}}
    (project.path / "evalsets" / "test_config.json").write_text(json.dumps(config))

    result = _run(project, "evalsets")

    assert not result.parseoutcomes().get("passed")
    result.stdout.fnmatch_lines(["*the judge 'antropic/x' of rubric_based_final_response_quality_v1: no provider is*"])


def test_repeats_are_judged_by_the_share_that_passes(project: pytest.Pytester) -> None:
    arguments = ("evalsets", "-k", "flaky", "--evaldesk-n=4", "--evaldesk-concurrency=1")

    _run(project, *arguments, "--evaldesk-min-pass-rate=0.5").assert_outcomes(passed=1, deselected=4)
    failed = _run(project, *arguments, "--evaldesk-min-pass-rate=0.75")

    failed.assert_outcomes(failed=1, deselected=4)
    failed.stdout.fnmatch_lines(["*2 of 4 scored trials passed, 75% must*"])


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        (("-k", "greets or differs"), {"passed": 1, "failed": 1, "deselected": 3}),
        (("-m", "smoke"), {"passed": 1, "deselected": 4}),
        (("-m", "evaldesk", "-x"), {"passed": 1, "failed": 1}),
        (("evalsets/words.evalset.json::greets",), {"passed": 1}),
    ],
    ids=["-k", "-m", "-x", "node id"],
)
def test_items_are_chosen_as_any_test_is(
    project: pytest.Pytester, arguments: tuple[str, ...], outcomes: dict[str, int]
) -> None:
    _run(project, "--strict-markers", *arguments).assert_outcomes(**outcomes)


def test_a_case_in_quarantine_is_played_and_fails_no_build(project: pytest.Pytester) -> None:
    cases = [
        _case("passes", "hello", "hello", ("quarantine",)),
        _case("differs", "hello", "goodbye", ("quarantine",)),
        _case("raises", "raise", "x", ("quarantine",)),
        _case("free", "hello", "goodbye"),
    ]
    file = project.path / "evalsets" / f"words{ENDINGS[1]}"
    file.write_text(json.dumps({"eval_set_id": "words", "eval_cases": cases}))

    result = _run(project, "-rx", "evalsets")

    result.assert_outcomes(passed=1, xfailed=2, failed=1)
    result.stdout.fnmatch_lines(["*differs*in quarantine, in no gate: 0 of 1 passed*"])


def test_the_ini_file_names_the_agent(project: pytest.Pytester) -> None:
    agent = next(project.path.glob("echo_*")).name
    project.makeini(f"[pytest]\nevaldesk_agent = {agent}\nevaldesk_n = 2\nevaldesk_min_pass_rate = 0.5\n")

    result = project.runpytest_inprocess("-p", "no:asyncio", "evalsets", "-k", "greets or flaky")

    result.assert_outcomes(passed=2, deselected=3)
    result.stdout.fnmatch_lines([f"evaldesk: agent {agent}, n 2, min-pass-rate 0.5"])


def test_a_scenario_is_played_as_the_criteria_file_beside_it_says(project: pytest.Pytester) -> None:
    agent = next(project.path.glob("echo_*")) / "agent.py"
    agent.write_text(AGENT + "\n\ndef user_response_fn(state):\n    return 'go on'\n")
    scenario = {"starting_prompt": "hello", "conversation_plan": "You talk for ever."}
    talk = json.dumps({"eval_set_id": "talk", "eval_cases": [{"eval_id": "talks", "conversation_scenario": scenario}]})
    for n, name in ((3, "eval_config.json"), (4, "test_config.json")):
        folder = project.mkdir(f"{n}_turns")
        (folder / "talk.evalset.json").write_text(talk)
        config = {"criteria": {"turn_count": 3}, "user_simulator_config": {"max_allowed_invocations": n}}
        (folder / name).write_text(json.dumps(config))

    result = _run(project, "3_turns", "4_turns")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["trial 1 failed: turn_count*4*"])


def test_options_and_the_settings_of_the_project_are_handed_on(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[RunOptions, Settings]] = []

    def seen(options: RunOptions, settings: Settings, root: str, isolation: str) -> RunOptions:
        asked.append((options, settings))
        return options

    monkeypatch.setattr("evaldesk.desk.runs.case_player.with_defaults", seen)
    (project.path / "evaldesk.toml").write_text("[user]\nmax_turns = 4\n")

    _run(project, "evalsets", "-k", "greets", "--evaldesk-user-model=demo/user", "--evaldesk-model=demo/scripted")

    assert len(set(map(repr, asked))) == 1  # for the check before the start, and for the case
    options, settings = asked[0]
    assert (options.value("user_model"), options.value("model"), settings.user.max_turns) == (
        "demo/user",
        "demo/scripted",
        4,
    )


def test_an_agent_of_the_settings_is_named_as_anywhere(project: pytest.Pytester) -> None:
    (folder,) = project.path.glob("echo_*")
    (project.path / "evaldesk.toml").write_text(f"[agents.echo]\ntarget = '{folder.name}'\n")

    result = project.runpytest_inprocess("--evaldesk-agent=echo", "-p", "no:asyncio", "-k", "greets", "evalsets")

    result.assert_outcomes(passed=1, deselected=4)


def test_settings_that_are_wrong_are_one_line(project: pytest.Pytester) -> None:
    (project.path / "evaldesk.toml").write_text("[limits]\nturn_timeout_s = 'soon'\n")

    result = _run(project, "evalsets")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: evaldesk: *evaldesk.toml*turn_timeout_s*"])


def test_numbers_are_in_the_junit_file(project: pytest.Pytester) -> None:
    _run(project, "evalsets", "-k", "greets", "--junit-xml=results.xml", "--evaldesk-n=2")

    assert 'name="evaldesk_passed" value="2"' in (project.path / "results.xml").read_text()


@pytest.mark.parametrize("n", [3, 0])
def test_a_case_has_its_own_trials(project: pytest.Pytester, n: int) -> None:
    case: Any = {"eval_id": "own", "trials": n, "conversation": [{"user_content": {"parts": [{"text": "hello"}]}}]}
    case["conversation"][0]["final_response"] = {"parts": [{"text": "hello"}]}
    path = project.path / "evalsets" / "own.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "own", "eval_cases": [case]}))

    result = _run(project, "evalsets/own.evalset.json", "--junit-xml=results.xml")

    if n:
        assert 'name="evaldesk_passed" value="3"' in (project.path / "results.xml").read_text()
    else:
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*case 'own': trials must be 1 to 1,000, got 0*"])


def test_a_file_that_cannot_be_read_is_an_error_of_the_collection(project: pytest.Pytester) -> None:
    (project.path / "evalsets" / "broken.test.json").write_text('[{"query": 1}]')

    result = _run(project, "evalsets")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*broken.test.json*query*"])


def test_a_file_in_which_cases_share_an_id_is_an_error_of_the_collection(project: pytest.Pytester) -> None:
    case = {"name": "greeting", "data": [{"query": "hi", "reference": "hi"}]}
    (project.path / "evalsets" / "twice.test.json").write_text(json.dumps([case, case]))

    result = _run(project, "evalsets/twice.test.json")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*twice.test.json: several cases have the same id: "greeting" (cases 1 and 2); give*'])


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--evaldesk-agent=nowhere", "*'nowhere' is neither a folder*"),
        ("--evaldesk-n=0", "evaldesk: --evaldesk-n must be 1 to 1000, not 0"),
        ("--evaldesk-n=1001", "evaldesk: --evaldesk-n must be 1 to 1000, not 1001"),
        ("--evaldesk-concurrency=0", "evaldesk: --evaldesk-concurrency must be 1 to 10000, not 0"),
        ("--evaldesk-timeout=nan", "evaldesk: --evaldesk-timeout must be 0.1 to 86400, not nan"),
        ("--evaldesk-n=1.5", "evaldesk: --evaldesk-n must be a whole number, not '1.5'"),
        ("--evaldesk-min-pass-rate=1.1", "evaldesk: --evaldesk-min-pass-rate must be 0 to 1, not 1.1"),
        ("--evaldesk-timeout=soon", "evaldesk: --evaldesk-timeout must be a number such as 0.8, not 'soon'"),
    ],
)
def test_wrong_options_are_one_line(project: pytest.Pytester, option: str, said: str) -> None:
    agent = () if option.startswith("--evaldesk-agent") else (_agent(project.path),)

    result = project.runpytest_inprocess(*agent, "-p", "no:asyncio", option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


def test_an_option_that_is_given_twice_is_refused_by_name(project: pytest.Pytester) -> None:
    result = _run(project, "--evaldesk-model=a", "--evaldesk-model", "b")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --evaldesk-model is given twice; leave one out"])


LEFT_OUT = [option for option in (*RUN_OPTIONS, *GATE_OPTIONS) if option.flags and "pytest" in option.left_out]


@pytest.mark.parametrize("option", LEFT_OUT, ids=lambda option: option.name)
def test_an_option_that_is_not_there_says_why(option: RunOption) -> None:
    name = f"--evaldesk-{option.flags[0].removeprefix('--')}"

    with pytest.raises(pytest.UsageError) as refused:
        pytest_load_initial_conftests([name, "1", "tests"])

    assert f"{name} is not there: {option.left_out['pytest']}" in str(refused.value)


def test_the_reason_is_said_before_an_option_is_called_unknown(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--evaldesk-agent=echo_agent", "--evaldesk-budget=20")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --evaldesk-budget is not there: an item is one case*leave it out"])


def test_a_case_is_judged_by_its_mean_where_its_trials_are_pooled(project: pytest.Pytester) -> None:
    (project.path / "evalsets" / "test_config.json").write_text('{"criteria": {"response_match_score": 0.5}}')

    pooled = _run(project, "--evaldesk-n=2", "--evaldesk-compat=adk-pooled")
    refused = _run(project, "--evaldesk-compat=adk-pooled", "--evaldesk-min-pass-rate=0.5")

    pooled.assert_outcomes(passed=2, failed=3)
    pooled.stdout.fnmatch_lines(["*every case must pass in the mean: *differs (response_match_score: the mean 0 *"])
    refused.stderr.fnmatch_lines(["ERROR: *--evaldesk-min-pass-rate asks for the verdicts of single trials*"])


def test_an_option_overrides_that_of_the_project(project: pytest.Pytester) -> None:
    (project.path / "pytest.ini").write_text("[pytest]\naddopts = --evaldesk-n=0\n")

    _run(project, "--evaldesk-n=1").assert_outcomes(passed=2, failed=3)


def test_without_an_agent_no_eval_set_is_collected(project: pytest.Pytester) -> None:
    project.makepyfile("def test_one(): pass")

    project.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_loading_the_plugin_imports_the_table_of_options_alone() -> None:
    source = (
        "import sys; before = set(sys.modules); import evaldesk.testing.pytest_plugin; "
        "print(*sorted(name for name in set(sys.modules) - before if '.' not in name or name.startswith('evaldesk')))"
    )

    said = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.split()

    standard = set(sys.stdlib_module_names)
    assert [name for name in said if name not in standard] == [
        "evaldesk",
        "evaldesk.errors",
        "evaldesk.run_options",
        "evaldesk.testing",
        "evaldesk.testing.pytest_plugin",
    ]


def test_python_calls_work_under_pytest_asyncio(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    project.makepyfile(
        """
        import evaldesk, pytest

        @pytest.mark.asyncio
        async def test_in_a_loop():
            given = {"criteria": {"response_match_score": 0.8}, "cases": ["greets"]}
            for result in (
                await evaldesk.evaluate_async(lambda message: message, "evalsets/words.evalset.json", **given),
                evaldesk.evaluate(lambda message: message, "evalsets/words.evalset.json", **given),
            ):
                assert result.all_passed
        """
    )

    result = project.runpytest_inprocess(_agent(project.path), "-W", "error", "-k", "greets or loop")

    result.assert_outcomes(passed=2, deselected=4)


@pytest.mark.long
def test_cases_run_in_workers_under_xdist(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_project(pytester.path, CASES[:2])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    plugins = ("-p", "xdist", "-p", "evaldesk.testing.pytest_plugin")

    result = pytester.runpytest_subprocess(_agent(pytester.path), *plugins, "-n", "2", "-W", "error")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(['*expected answer  "goodbye"'])


@pytest.mark.server
def test_a_test_run_imports_the_agent_once(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_project(pytester.path, [_case(name, name, name) for name in ("one", "two", "three")])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    source = next(pytester.path.glob("echo_*")) / "agent.py"
    noted = "with open(__file__ + '.imports', 'a') as file:\n    file.write('once ')\n"
    source.write_text(noted + source.read_text())

    plugin = ("-p", "evaldesk.testing.pytest_plugin")
    result = pytester.runpytest_subprocess(_agent(pytester.path), *plugin, "--evaldesk-n", "3", "-W", "error")

    result.assert_outcomes(passed=3)
    assert source.with_name("agent.py.imports").read_text() == "once "


def test_a_key_that_is_not_set_is_a_usage_error_before_the_first_trial(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    agent = next(project.path.glob("echo_*")) / "agent.py"
    agent.write_text("from evaldesk import LlmAgent\n\nroot_agent = LlmAgent('shop', 'openai/gpt-5-mini')\n")

    result = _run(project, "evalsets")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "OPENAI_API_KEY is not set" in result.stdout.str() + result.stderr.str()


def test_a_function_with_a_wrong_signature_is_a_usage_error_before_the_first_trial(project: pytest.Pytester) -> None:
    config = {"criteria": {"mine": 0.5}, "custom_metrics": {"mine": {"code_config": {"name": "rewards_wrong.wrong"}}}}
    (project.path / "rewards_wrong.py").write_text("def wrong(answer):\n    return 1.0\n")
    (project.path / "evalsets" / "test_config.json").write_text(json.dumps(config))

    result = _run(project, "evalsets")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Cannot detect eval function mode: first parameter is 'answer'" in result.stdout.str() + result.stderr.str()


def test_a_case_too_close_to_its_bar_is_skipped_where_that_is_asked(project: pytest.Pytester) -> None:
    options = ("--evaldesk-n=4", "--evaldesk-min-pass-rate=0.5", "--evaldesk-undecided=neutral")

    result = _run(project, *options, "-rs", "-k", "flaky", "evalsets")

    result.assert_outcomes(skipped=1, deselected=len(CASES) - 1)
    result.stdout.fnmatch_lines(["*too close to 0.5 to be sure, add cases*"])


def test_an_unknown_answer_is_refused(project: pytest.Pytester) -> None:
    result = _run(project, "--evaldesk-undecided=maybe", "evalsets")

    result.stderr.fnmatch_lines(["*--evaldesk-undecided must be one of pass, fail, neutral, not 'maybe'*"])


def test_more_scored_trials_than_a_case_has_are_refused_before_the_first_trial(project: pytest.Pytester) -> None:
    result = _run(project, "--evaldesk-n=2", "--evaldesk-min-scored=3", "evalsets")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--evaldesk-min-scored 3 can never hold: each case has 2 trials; say --evaldesk-min-scored 2 or less*"]
    )


def _baseline(project: pytest.Pytester, trials: dict[str, str], threshold: float = 1.0) -> str:
    """A file as `evaldesk eval -o FILE.json` writes it, with the verdicts of the trials of each case."""
    cases = [
        {
            "evalset": "words",
            "case_id": case_id,
            "ordinal": 0,
            "digest": "",
            "trials": letters,
            "pass_threshold": threshold,
            "errors_are_failures": False,
            "asserted": {},
        }
        for case_id, letters in trials.items()
    ]
    (project.path / "main.json").write_text(json.dumps({"version": 2, "runs": [{"cases": cases}]}))
    return "--evaldesk-baseline=main.json"


def test_a_case_fails_where_it_regressed_against_the_baseline(project: pytest.Pytester) -> None:
    baseline = _baseline(project, {"greets": "p", "differs": "p", "flaky": "f"})

    result = _run(project, "evalsets", "-k", "greets or differs or flaky", baseline)

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*--max-regressions: 1 of 1 case regressed against main.json, 0 allowed*"])


def test_a_case_that_failed_before_passes_and_one_without_a_baseline_is_judged_alone(project: pytest.Pytester) -> None:
    baseline = _baseline(project, {"differs": "f"})

    result = _run(project, "evalsets", "-k", "greets or differs", baseline)
    strict = _run(project, "evalsets", "-k", "greets or differs", baseline, "--evaldesk-min-pass-rate=1")
    alone = _run(project, "evalsets", "-k", "greets or differs", _baseline(project, {"flaky": "p"}))

    result.assert_outcomes(passed=2)
    strict.assert_outcomes(passed=1, failed=1)
    alone.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("confirm", "line", "n_skipped"),
    [
        ("2/4", "*Played again, 2 of 4 must pass: differs passed 0 of 4*", 0),
        ("4", "*1 case flipped; played again: differs failed 4 of 4 (worse, 2 of 2 before, by chance in *", 1),
    ],
    ids=["fixed bar", "history"],
)
def test_a_regression_is_confirmed_by_fresh_trials(
    confirm: str, line: str, n_skipped: int, project: pytest.Pytester
) -> None:
    baseline = _baseline(project, {"flaky": "pp", "differs": "pp"})
    rule = ("--evaldesk-regression-rule=confirm", f"--evaldesk-confirm={confirm}")

    result = _run(project, "evalsets", "-k", "flaky or differs", baseline, *rule, "--evaldesk-n=2")

    result.assert_outcomes(passed=1, failed=1, skipped=n_skipped)  # three cases are left out by -k
    result.stdout.fnmatch_lines([line])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--evaldesk-baseline=nowhere.json"], "neither a file nor the number of a run"),
        (["--evaldesk-baseline=77"], "*"),
        (["--evaldesk-regression-rule=confirm"], "needs --evaldesk-baseline"),
        (["--evaldesk-confirm=3/5"], "which plays the fresh trials"),
        (["--evaldesk-baseline=evalsets/test_config.json"], "this contains no runs"),
    ],
)
def test_a_comparison_that_cannot_be_is_one_line(project: pytest.Pytester, options: list[str], said: str) -> None:
    result = _run(project, "evalsets", *options)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: evaldesk: *{said}*"])


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (40, "--max-regressions: 1 of 1 case regressed by more than chance*"),
        (1, "*differs failed 3 of 3, too little history to tell*"),
    ],
    ids=["long history", "short history"],
)
def test_a_case_that_passes_fewer_trials_than_its_history_allows_fails_by_the_rule_likely(
    before: int, line: str, project: pytest.Pytester
) -> None:
    (project.path / "evalsets/words.evalset.json").write_text(
        json.dumps({"eval_set_id": "w", "eval_cases": [_case("greets", "hello", "hello"), CASES[1]]})
    )
    baseline = _baseline(project, {"greets": "p" * before, "differs": "p" * before})

    result = _run(project, "evalsets", baseline, "--evaldesk-regression-rule=likely", "--evaldesk-n=3")

    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines([line])


SUITE = [_case(f"case_{at}", "hello", "hello") for at in range(20)]
CONFIRMED = "--evaldesk-regression-rule=confirm"
TOGETHER = ("--evaldesk-n=2", "--evaldesk-concurrency=1", "--junit-xml=junit.xml")


@pytest.fixture
def suite(project: pytest.Pytester) -> pytest.Pytester:
    """A project with twenty cases, each of which passed 19 of 20 trials before."""
    (project.path / "evalsets/words.evalset.json").write_text(json.dumps({"eval_set_id": "w", "eval_cases": SUITE}))
    _baseline(project, {case["eval_id"]: "p" * 19 + "f" for case in SUITE}, threshold=0.5)
    return project


def _answering(project: pytest.Pytester, period: int) -> None:
    """An agent that is wrong each so many times, in no case more often than in others."""
    (next(project.path.glob("echo_*")) / "agent.py").write_text(
        "n = 0\n\n\ndef root_agent(message, state):\n    global n\n    n += 1\n"
        f"    return 'no' if n % {period} == 0 else message\n"
    )


@pytest.mark.parametrize("rule", ["likely", "confirm"])
@pytest.mark.parametrize(("period", "code"), [(20, 0), (3, 1)], ids=["as before", "worse"])
def test_an_even_drop_in_all_cases_fails_one_item_for_all_of_them(
    suite: pytest.Pytester, period: int, code: int, rule: str
) -> None:
    _answering(suite, period)

    result = _run(suite, "evalsets", "--evaldesk-baseline=main.json", *TOGETHER, f"--evaldesk-regression-rule={rule}")

    result.assert_outcomes(passed=21 - code, failed=code)
    assert result.ret == code
    result.stdout.fnmatch_lines(["*evaldesk: all cases together*", f"{'held: ' * (not code)}--max-regressions: *"])
    *cases, last = ET.parse(suite.path / "junit.xml").getroot().iter("testcase")  # noqa: S314 - our own file
    assert [case.get("name") for case in cases if case.find("failure") is not None] == []
    assert (last.get("classname"), last.get("name")) == ("evaldesk", "all cases together")
    assert [each.tag for each in last] == ["failure"] * code


@pytest.mark.long
@pytest.mark.parametrize(("period", "code"), [(20, 0), (3, 1)], ids=["as before", "worse"])
def test_all_cases_are_judged_together_after_the_workers_of_xdist(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, period: int, code: int
) -> None:
    _write_project(pytester.path, SUITE)
    _answering(pytester, period)
    baseline = _baseline(pytester, {case["eval_id"]: "p" * 19 + "f" for case in SUITE}, threshold=0.5)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    plugins = ("-p", "xdist", "-p", "evaldesk.testing.pytest_plugin", "-n", "2", "-W", "error")

    result = pytester.runpytest_subprocess(_agent(pytester.path), *plugins, baseline, *TOGETHER, CONFIRMED)

    result.assert_outcomes(passed=21 - code, failed=code)
    assert result.ret == code
    result.stdout.fnmatch_lines([f"{'held: ' * (not code)}--max-regressions: *"])
    *_, last = ET.parse(pytester.path / "junit.xml").getroot().iter("testcase")  # noqa: S314 - our own file
    assert (last.get("name"), [each.tag for each in last]) == ("all cases together", ["failure"] * code)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-n", "2", "-k", "case_1"), "11 of 20 cases were played"),
        (("--tx", "2*popen", "--dist", "each"), "each case was played by several workers of pytest-xdist"),
    ],
    ids=["chosen", "each"],
)
def test_other_cases_than_those_of_the_history_are_not_judged_together_under_xdist(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], reason: str
) -> None:
    _write_project(pytester.path, SUITE)
    baseline = _baseline(pytester, {case["eval_id"]: "p" * 19 + "f" for case in SUITE}, threshold=0.5)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    plugins = ("-p", "xdist", "-p", "evaldesk.testing.pytest_plugin", "-W", "error")

    result = pytester.runpytest_subprocess(
        _agent(pytester.path), *plugins, *arguments, baseline, "--evaldesk-n=1", CONFIRMED
    )

    assert result.ret == 0
    result.stdout.fnmatch_lines([f"not judged: {reason}; `evaldesk eval --baseline` judges them so"])


@pytest.mark.long
def test_a_crashed_worker_of_xdist_leaves_the_cases_unjudged(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_project(pytester.path, SUITE)
    baseline = _baseline(pytester, {case["eval_id"]: "p" * 19 + "f" for case in SUITE}, threshold=0.5)
    pytester.makeconftest(
        "import os, pytest\n\n\ndef pytest_runtest_setup(item):\n    if 'case_7' in item.name:\n        os._exit(9)\n"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take seconds to import
    plugins = ("-p", "xdist", "-p", "evaldesk.testing.pytest_plugin", "-n", "2", "-W", "error")

    result = pytester.runpytest_subprocess(_agent(pytester.path), *plugins, baseline, "--evaldesk-n=1", CONFIRMED)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["not judged: a worker of pytest-xdist crashed; *"])


def test_cases_after_the_first_failure_are_not_judged_together(suite: pytest.Pytester) -> None:
    (next(suite.path.glob("echo_*")) / "agent.py").write_text("def root_agent(message, state):\n    return 'no'\n")

    result = _run(suite, "evalsets", "-x", "--evaldesk-baseline=main.json", *TOGETHER, CONFIRMED)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["not judged: the test run ended before the last case; *"])


def test_chosen_cases_are_not_judged_together(suite: pytest.Pytester) -> None:
    _answering(suite, 3)

    result = _run(suite, "evalsets", "-k", "case_1", "--evaldesk-baseline=main.json", *TOGETHER, CONFIRMED)

    assert result.ret == 0
    result.assert_outcomes(passed=11, skipped=1, deselected=9)
    result.stdout.fnmatch_lines(["not judged: 11 of 20 cases were played; `evaldesk eval --baseline` judges them so"])


def test_a_set_with_criteria_has_the_user_of_the_file_beside_it(project: pytest.Pytester) -> None:
    agent = next(project.path.glob("echo_*")) / "agent.py"
    agent.write_text(AGENT + "\n\ndef user_response_fn(state):\n    return 'go on'\n")
    scenario = {"starting_prompt": "hello", "conversation_plan": "You talk for ever."}
    cases = [
        {"eval_id": "talks", "conversation_scenario": scenario},
        {"eval_id": "wrong", "conversation_scenario": scenario, "criteria": {"turn_count": -1}},
    ]
    talk = {"eval_set_id": "talk", "eval_cases": cases, "criteria": {"turn_count": 3}}
    folder = project.mkdir("own")
    (folder / "talk.evalset.json").write_text(json.dumps(talk))
    config = {"criteria": {"turn_count": 1}, "user_simulator_config": {"max_allowed_invocations": 3}}
    (folder / "test_config.json").write_text(json.dumps(config))

    result = _run(project, "own")

    result.assert_outcomes(passed=1)  # the second ends the session before it is played
    result.stdout.fnmatch_lines(["*case 'wrong', criteria: turn_count: threshold -1 is out of range*"])
