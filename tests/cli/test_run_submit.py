"""`evaldesk run submit`: Osmosis' TOML, refused in full before anything runs, and what it comes to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result
from tests.islands import of_tools
from tests.virtual_environments import make_environment

from evaldesk.cli import _in_words
from evaldesk.desk.runs.file import EVALUATION, EXPERIMENT, OLDER, OPTIONS, is_run_file, read_run_file
from evaldesk.desk.runs.file_places import agent_of, at_revision, dataset_path, read_secrets, secrets_of
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.model import Gates, TrialResult, Verdict

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

pytestmark = of_tools("osmosis")

GOOD = """\
[experiment]
rollout = "calc"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "sums"
{experiment}
[evaluation]
{evaluation}
{more}
[secrets]
required = {required}
"""
WORKFLOW = '''
from osmosis_ai.rollout import AgentWorkflow, Grader


class Calc(AgentWorkflow):
    """Says 4."""

    async def run(self, ctx):
        return [*ctx.prompt, {"role": "assistant", "content": "4"}]


class IsRight(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
'''


def _write(
    root: Path, *, experiment: str = "", evaluation: str = "", more: str = "", required: str = "[]", text: str = ""
) -> Path:
    path = root / "configs/eval/sums.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"experiment": experiment, "evaluation": evaluation, "more": more, "required": required}
    path.write_text(text or GOOD.format(**values))
    return path


def _write_project(root: Path, source: str = WORKFLOW) -> Path:
    rollout, data = root / "rollouts/calc", root / "data"
    rollout.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    (rollout / "main.py").write_text(source)
    rows = [{"system_prompt": "Add.", "user_prompt": f"{n}+{4 - n}", "ground_truth": "4"} for n in range(20)]
    (data / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return _write(root)


def _refusal(path: Path) -> str:
    with pytest.raises(UsageError) as refused:
        read_run_file(path)
    return str(refused.value)


def test_defaults_are_those_of_osmosis(tmp_path: Path) -> None:
    file = read_run_file(_write(tmp_path))

    assert (file.limit, file.pass_threshold, file.agent_workflow_timeout_s) == (None, 1.0, 450.0)
    assert RunOptions(**file.run_options).value("n") == 1
    assert file.run_options == {"concurrency": 1, "judge_timeout_s": 150.0}
    assert file.root == tmp_path


def test_a_file_without_secrets_is_complete(tmp_path: Path) -> None:
    text = GOOD.format(experiment="", evaluation="", more="", required="[]").partition("[secrets]")[0]

    assert read_run_file(_write(tmp_path, text=text)).secrets == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"experiment": "foo = 1"}, "experiment.foo: Unrecognized key"),
        ({"experiment": 'commit_sha = "xyz"'}, "must be a hexadecimal Git commit SHA (7-40 hex characters)"),
        ({"experiment": 'commit_sha = "abcdef1"\nbranch = "b"'}, "Provide either branch or commit_sha, not both"),
        ({"experiment": 'branch = "a b"'}, "must not contain whitespace"),
        ({"evaluation": 'n = "x"'}, "evaluation.n: must be a whole number, 1 to 1000, got 'x'"),
        ({"evaluation": "limit = -3"}, "evaluation.limit: must be a whole number, at least 1, got -3"),
        ({"evaluation": "n = true"}, "evaluation.n: must be a whole number"),
        ({"evaluation": "pass_threshold = nan"}, "evaluation.pass_threshold: must be a finite number"),
        ({"evaluation": "grader_timeout_s = 0"}, "evaluation.grader_timeout_s: must be seconds"),
        ({"evaluation": "limits = 3"}, "evaluation.limits: Unrecognized key; there are: limit, n"),
        ({"more": "[env]\nFOO = 1"}, "env.FOO: must be a string, got 1"),
        ({"more": '[env]\nfoo = "1"'}, "Invalid env var name 'foo'"),
        ({"more": '[env]\n_OSMOSIS_X = "1"'}, "names starting with _OSMOSIS_ are reserved"),
        ({"more": "[other]\na = 1"}, "other: Unrecognized section"),
        ({"required": '["abc"]'}, "Invalid secret name 'abc'"),
        ({"required": '["A", "A"]'}, "Duplicate secret name(s)"),
        ({"required": '["A"]', "more": '[env]\nA = "1"'}, "Name(s) appear in both [env] and [secrets]"),
        ({"required": '"A"'}, "must be a list of strings"),
        ({"required": "[]\nfoo = 1"}, "only supports the 'required' field; unknown key(s): foo."),
        ({"text": "[experiment]\n[secrets]\n"}, "Missing 'required' in [secrets] section"),
        ({"text": "[secrets]\nrequired = []"}, "Missing [experiment] section in"),
        ({"text": "a ="}, "Invalid TOML in"),
    ],
)
def test_what_is_wrong_is_said_as_osmosis_says_it(tmp_path: Path, values: Mapping[str, str], said: str) -> None:
    assert said in _refusal(_write(tmp_path, **values))


def test_a_file_of_an_older_osmosis_is_told_where_each_section_belongs_now(tmp_path: Path) -> None:
    sections = "".join(f"[{name}]\n" for name in OLDER)

    said = f"{_refusal(_write(tmp_path, text=sections + '[other]'))}\n"

    assert "other: Unrecognized section\n" in said
    for name, words in OLDER.items():
        assert f"{name}: Unrecognized section; it is of Osmosis 0.2.18-0.2.22: {words}\n" in said
    assert {"dataset", "rollout", "entrypoint", "model_path"} == set(EXPERIMENT)
    assert {"limit", "n", "batch_size", "pass_threshold"} <= {key.name for key in EVALUATION}
    assert {"base_url", "api_key_env"} <= OPTIONS.keys()
    assert is_run_file(_write(tmp_path, text=sections))
    assert not is_run_file(_write(tmp_path, text="[llm]"))  # the config.toml of OpenHands has it


def test_everything_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    said = _refusal(_write(tmp_path, experiment="foo = 1", evaluation='n = "x"', required='["abc"]'))

    assert said.startswith("Invalid eval config ")
    assert said.count("\n  - ") == 3


def test_a_path_does_not_lead_out_of_the_rollout(tmp_path: Path) -> None:
    text = GOOD.format(experiment="", evaluation="", more="", required="[]")

    for name in ('"../other"', '"a/b"'):
        changed = text.replace('rollout = "calc"', f"rollout = {name}")
        assert "experiment.rollout: is invalid" in _refusal(_write(tmp_path, text=changed))
    for name in ('"../main.py"', '"/main.py"', '"main"'):
        changed = text.replace('entrypoint = "main.py"', f"entrypoint = {name}")
        assert "experiment.entrypoint: is invalid" in _refusal(_write(tmp_path, text=changed))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (WORKFLOW, "main:Calc"),
        ("class Loop(RolloutAgentLoop): ...\nagent_loop = Loop()\n", "main:agent_loop"),
        ("class Loop(RolloutAgentLoop): ...\nagent_loop = Loop()\napp = create_app(agent_loop)\n", "main:agent_loop"),
        ("from loops import calc\napp = create_app(calc, debug_dir=None)\n", "main:calc"),
        ("from loops import Loop\napp = create_app(Loop())\n", "main:app"),
        ("backend = LocalBackend(workflow=Calc)\napp = create_rollout_server(backend=backend)\n", "main:app"),
        ("def root_agent(message): ...\n", "main:root_agent"),
        ("from flow import Calc\n\ndef main():\n    backend = LocalBackend(workflow=Calc)\n", "main:Calc"),
    ],
)
def test_the_agent_is_found_by_reading_the_entrypoint(tmp_path: Path, source: str, target: str) -> None:
    ref = agent_of(read_run_file(_write_project(tmp_path, source)))

    assert (ref.id, ref.target, ref.root) == ("calc", target, str(tmp_path / "rollouts/calc"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n", "no AgentWorkflow and no RolloutAgentLoop subclass"),
        ("class A(AgentWorkflow): ...\nclass B(AgentWorkflow): ...\n", r"several \(A, B\); keep one"),
        ("def (:\n", "cannot be read as Python"),
    ],
)
def test_an_entrypoint_without_an_agent_is_refused(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        agent_of(read_run_file(_write_project(tmp_path, source)))


def test_what_is_named_and_not_there_is_said(tmp_path: Path) -> None:
    file = read_run_file(_write(tmp_path))

    with pytest.raises(UsageError, match="no rollout under"):
        agent_of(file)
    with pytest.raises(UsageError, match="a data set of the platform must be downloaded first"):
        dataset_path(file)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one commit on the branch `trunk`."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "somebody")
    _write_project(tmp_path)
    _git(tmp_path, "init", "-q", "-b", "trunk")
    _commit(tmp_path, "first")
    return tmp_path


def _git(folder: Path, *command: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True, text=True)  # noqa: S607
    return done.stdout.strip()


def _commit(folder: Path, name: str) -> str:
    _git(folder, "add", "rollouts", "data")
    _git(folder, "commit", "-qm", name)
    return _git(folder, "rev-parse", "HEAD")


def _code_of(root: Path, experiment: str) -> str:
    file, _ = at_revision(read_run_file(_write(root, experiment=experiment)), root / ".evaldesk/revisions")
    return (Path(agent_of(file).root) / "main.py").read_text()


def test_a_revision_that_is_checked_out_is_played_where_it_is(checkout: Path) -> None:
    head = _git(checkout, "rev-parse", "HEAD")

    for experiment in ("", f'commit_sha = "{head[:7]}"', 'branch = "trunk"'):
        file, commit = at_revision(read_run_file(_write(checkout, experiment=experiment)), checkout / "kept")
        assert (file.code_root, commit) == (None, head)
    assert not (checkout / "kept").exists()


def test_another_revision_is_played_from_a_git_worktree_of_it(checkout: Path) -> None:
    first = _git(checkout, "rev-parse", "HEAD")
    source = checkout / "rollouts/calc/main.py"
    source.write_text(WORKFLOW + "# second\n")
    second = _commit(checkout, "second")
    _git(checkout, "branch", "old", first)
    source.write_text(WORKFLOW + "# not committed\n")

    assert _code_of(checkout, f'commit_sha = "{first[:8]}"') == WORKFLOW
    assert _code_of(checkout, 'branch = "old"') == WORKFLOW
    assert _code_of(checkout, f'commit_sha = "{second}"') == WORKFLOW + "# second\n"
    assert _code_of(checkout, "") == source.read_text() == WORKFLOW + "# not committed\n"


def test_a_worktree_that_was_changed_is_made_again(checkout: Path) -> None:
    first = _git(checkout, "rev-parse", "HEAD")
    (checkout / "rollouts/calc/main.py").write_text("changed")
    assert _code_of(checkout, f'commit_sha = "{first}"') == WORKFLOW
    (checkout / f".evaldesk/revisions/{first}/rollouts/calc/main.py").write_text("changed too")

    assert _code_of(checkout, f'commit_sha = "{first}"') == WORKFLOW


def test_a_revision_that_is_not_there_is_named(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UsageError, match=r"commit_sha: .* has no abcdef1; git fetch"):
        _code_of(checkout, 'commit_sha = "abcdef1"')
    with pytest.raises(UsageError, match=r"branch: .* has no other; git fetch"):
        _code_of(checkout, 'branch = "other"')
    bare = tmp_path_factory.mktemp("bare")
    _write_project(bare)
    with pytest.raises(UsageError, match="is not a git checkout"):
        _code_of(bare, 'commit_sha = "abcdef1"')


def test_secrets_come_from_the_file_and_then_from_the_environment(tmp_path: Path) -> None:
    file = read_run_file(_write(tmp_path, required='["A", "B"]'))
    given = read_secrets("# keys\nexport A='one two'\n\nC=3\n")

    assert secrets_of(file, given, {"A": "other", "B": "b"}) == {"A": "one two", "B": "b"}
    with pytest.raises(UsageError, match="the environment has no A, B; export the missing ones"):
        secrets_of(file, {}, {"A": ""})
    with pytest.raises(UsageError, match="line 1: wanted NAME=value"):
        read_secrets("nothing")


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was handed over, instead of to a process."""
    found: list[Any] = []

    def hand_over(settings: Any, run_id: int, digest: str, *, environment: Any = None) -> str:
        found.append((run_id, environment))
        return "driver"

    monkeypatch.setattr("evaldesk.cli.runs.submit.hand_over", hand_over)
    return found


def _submit(place: CommandFolder, path: Path, *arguments: object) -> Result:
    return place.run("run", "submit", path, *arguments)


def test_a_submitted_run_waits_with_all_that_the_file_says(
    place: CommandFolder, handed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVEL_OF_SUMS", "before")  # so that the value of the file is taken back after the test
    monkeypatch.delenv("LEVEL_OF_SUMS")
    path = _write_project(place.folder)
    _write(
        place.folder,
        evaluation="n = 3\nlimit = 5\nbatch_size = 2\npass_threshold = 0.5",
        more='[env]\nLEVEL_OF_SUMS = "high"\n[advanced]\nx = 1',
    )

    result = _submit(place, path, "--yes", "--name", "nightly")

    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "recorded but not consumed: x" in result.output
    assert "Evaluation run submitted: nightly" in result.output
    assert handed == [(1, {"LEVEL_OF_SUMS": "high"})]
    with place.store() as store:
        run = store.runs.summary(1)
    assert (run.status, run.driver, run.n_cases, run.n_trials) == ("pending", "waiting", 5, 15)
    assert run.note.splitlines() == ["nightly", f"{path}; limit 5: the first 5 of 20 rows"]
    config = run.config
    assert (config.model, config.concurrency, config.limits.trial_timeout_s) == ("openai/gpt-5-mini", 2, 600.0)
    assert [(each.metric, each.threshold) for each in config.criteria] == [("reported_value", 0.5)]


def test_a_submitted_run_is_played_on_the_interpreter_that_is_named(place: CommandFolder, handed: list[Any]) -> None:
    path = _write_project(place.folder)
    python = make_environment(place.folder / "own")

    done = _submit(place, path, "--yes", "--python", python.parents[1])
    gone = _submit(place, path, "--yes", "--python", place.folder / "gone")
    both = _submit(place, path, "--yes", "--python", python, "--image", "shop:7")

    assert done.exit_code == 0, done.output + repr(done.exception)
    with place.store() as store:
        (run,) = store.runs.list()
    assert run.config.agent.python == str(python)
    assert "there is no interpreter at" in str(gone.exception)
    assert "leave one out" in str(both.exception)
    assert {type(gone.exception), type(both.exception)} == {UsageError}


@pytest.mark.parametrize(
    ("option", "n_cases", "words"),
    [
        (None, 20, "limit omitted: all 20 rows"),
        ("--sample", 2, "limit omitted: 2 of 20 rows, drawn with seed 42"),
    ],
)
def test_an_omitted_limit_is_said_and_kept(
    place: CommandFolder, handed: list[Any], option: str | None, n_cases: int, words: str
) -> None:
    result = _submit(place, _write_project(place.folder), "--yes", *([option] if option else []))

    assert words in result.output, repr(result.exception)
    assert handed == [(1, None)]
    with place.store() as store:
        run = store.runs.summary(1)
    assert run.n_cases == n_cases
    assert words in run.note


def test_a_submission_as_json_asks_nothing(place: CommandFolder, handed: list[Any]) -> None:
    result = _submit(place, _write_project(place.folder), "--json")

    found = json.loads(result.output)
    assert (found["id"], found["status"], found["name"][:5]) == (1, "pending", "sums-")
    assert len(handed) == 1


@pytest.mark.usefixtures("handed")
def test_nothing_is_submitted_where_nobody_can_be_asked(place: CommandFolder) -> None:
    result = _submit(place, _write_project(place.folder))

    assert isinstance(result.exception, EvaldeskError)
    assert "add --yes to submit the run" in str(result.exception)
    assert not (place.folder / ".evaldesk/evaldesk.db").exists()


def test_gates_are_stored_with_the_run_and_judge_it(place: CommandFolder, handed: list[Any]) -> None:
    path = _write_project(place.folder)

    result = _submit(place, path, "--yes", "--n", "2", "--min-pass-rate", "0.9", "--pass-at", "2=1", "--min-scored", 40)

    assert result.exit_code == 0, repr(result.exception)
    assert len(handed) == 1
    with place.store() as store:
        run = store.runs.summary(1)
        pending = store.runs.pending(1)
        store.runs.record([TrialResult(1, each.case_index, each.trial_index, "finished", "passed") for each in pending])
        store.runs.set_status(1, "finished")
    assert run.config.gates == Gates(min_pass_rate=0.9, pass_at=((2, 1.0),), min_scored=40)
    told = json.loads(place.run("run", "info", "1", "--json").output)["data"]["results"]
    names = [each["name"] for each in told["gates"] if each["answer"] == "held"]
    assert (told["outcome"], told["counts"]["n_passed"]) == ("passed", 40)
    assert {"--min-pass-rate", "--pass-at 2", "--min-scored"} <= set(names)
    shown = place.run("run", "info", "1").output
    assert "--min-pass-rate: held, pass rate 1 is at least 0.9: 40 of 40 passed" in shown


@pytest.fixture
def unstable(place: CommandFolder, handed: list[Any]) -> Path:
    """The run file of run 1, in which every second case passed one of its two trials, and the others both."""
    path = _write_project(place.folder)
    _submit(place, path, "--yes", "--n", "2", "--pass-at", "2=0.5")
    with place.store() as store:
        pending = store.runs.pending(1)
        verdicts: list[Verdict] = [
            "failed" if each.trial_index and each.case_index % 2 else "passed" for each in pending
        ]
        ended = zip(pending, verdicts, strict=True)
        store.runs.record(
            [TrialResult(1, each.case_index, each.trial_index, "finished", verdict) for each, verdict in ended]
        )
        store.runs.set_status(1, "finished")
    handed.clear()
    return path


def test_a_submitted_run_is_compared_with_its_baseline(place: CommandFolder, unstable: Path, handed: list[Any]) -> None:
    result = _submit(place, unstable, "--yes", "--n", "5", "--baseline", "1", "--regression-rule", "confirm")

    assert result.exit_code == 0, repr(result.exception)
    assert "Warning" not in result.stderr
    assert [run_id for run_id, _ in handed] == [2]
    with place.store() as store:
        change = StoredRuns(store.runs).change(store.runs.summary(2))
    assert change is not None
    assert (change.name, change.rule, len(change.cases)) == ("run 1", "confirm", 20)


def test_a_submitted_gate_that_often_fails_by_chance_is_warned_of(place: CommandFolder, unstable: Path) -> None:
    result = _submit(place, unstable, "--yes", "--baseline", "1", "--max-regressions", "0")

    assert result.exit_code == 0, repr(result.exception)
    assert re.search(r"(Warning|Note): --max-regressions 0: .*this gate fails .* of ", result.stderr)


def test_regressions_of_every_case_are_no_gate_of_a_submitted_run(
    place: CommandFolder, unstable: Path, handed: list[Any]
) -> None:
    result = _submit(place, unstable, "--yes", "--baseline", "1", "--max-regressions", "20")

    assert isinstance(result.exception, UsageError)
    assert "--max-regressions 20 can never fail: the run has 20 cases and 20 trials" in str(result.exception)
    assert handed == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--max-regressions", "0"], "--max-regressions needs --baseline"),
        (["--pass-hat", "3=0.9"], "--pass-hat 3 asks for 3 trials of each case; say --n 3 or more, not --n 1"),
        (["--min-scored", "21"], "--min-scored 21 can never hold: the run has 20 cases and 20 trials"),
        (["--baseline", "7"], "no run 7"),
    ],
)
def test_a_gate_that_cannot_be_judged_is_refused_before_the_run_is_stored(
    place: CommandFolder, handed: list[Any], given: list[str], said: str
) -> None:
    result = _submit(place, _write_project(place.folder), "--yes", *given)

    assert isinstance(result.exception, Exception)
    words, code = _in_words(result.exception)
    assert (code, said in words) == (2, True), words
    assert handed == []
    is_stored = (place.folder / ".evaldesk/evaldesk.db").exists() and place.store().runs.counts_by_status()
    assert not is_stored


def test_osmosis_spelling_is_understood(place: CommandFolder, handed: list[Any]) -> None:
    result = place.run("eval", "submit", _write_project(place.folder), "--yes")

    assert "Evaluation run submitted" in result.output, repr(result.exception)
    assert "pending" in place.run("eval", "list").output
    assert len(handed) == 1


@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        (WORKFLOW, {"required": '["OPENAI_API_KEY"]'}, "the environment has no OPENAI_API_KEY"),
        (
            WORKFLOW,
            {"text": GOOD.format(experiment="", evaluation="", more="", required="[]").replace("model_path", "#")},
            "model_path",
        ),
    ],
    ids=["no key", "no model"],
)
def test_what_no_trial_could_do_without_is_refused_before_anything_is_stored(
    place: CommandFolder,
    handed: list[Any],
    source: str,
    changes: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _write_project(place.folder, source)
    path = _write(place.folder, **changes)

    result = _submit(place, path, "--yes")

    assert isinstance(result.exception, Exception)
    words, code = _in_words(result.exception)
    assert (code, said in words) == (2, True), words + result.output
    assert handed == []
    assert not (place.folder / ".evaldesk/evaldesk.db").exists()


@pytest.mark.parametrize("method", ["run", "grade"])
def test_a_method_that_does_not_take_the_context_is_refused_before_anything_is_stored(
    place: CommandFolder, handed: list[Any], method: str
) -> None:
    path = _write_project(place.folder, WORKFLOW.replace(f"def {method}(self, ctx)", f"def {method}(self)"))

    result = _submit(place, path, "--yes")

    assert (result.exit_code, handed) == (3, [])
    assert f"{method} must take the context, as in {method}(self, ctx)" in result.stderr
    assert not place.store().runs.counts_by_status()


VARIANTS = """
[[variants]]
name = "as now"
[[variants]]
name = "cold"
temperature = 0
[[variants]]
model_path = "openai/gpt-5-nano"
[evaldesk]
seed = 7
"""


@pytest.mark.parametrize("verb", ["play", "submit"])
def test_variants_of_a_run_file_are_an_experiment_with_its_rows_and_its_variables(
    place: CommandFolder, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVEL_OF_SUMS", "before")  # so that the value of the file is taken back after the test
    monkeypatch.delenv("LEVEL_OF_SUMS")
    handed: list[Any] = []

    def hand_over(settings: Any, experiment_id: int, digests: Any, *, environment: Any = None) -> str:
        handed.append((experiment_id, [*digests], environment))
        return "driver"

    monkeypatch.setattr("evaldesk.cli.eval.experiment.hand_over_experiment", hand_over)
    _write_project(place.folder)
    head = 'name = "three models"\nbaseline = "cold"\n'
    path = _write(
        place.folder,
        experiment=head,
        evaluation="n = 2\nlimit = 5\nbatch_size = 2\npass_threshold = 0.5",
        more=f'[env]\nLEVEL_OF_SUMS = "high"\n{VARIANTS}',
    )

    result = place.run("run", verb, path, "--yes")

    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "limit 5: the first 5 of 20 rows" in result.output
    with place.store() as store:
        plan = store.experiments.get(1).plan
        runs = [store.runs.summary(number) for number in (1, 2, 3)]
    assert (plan.name, [each.name for each in plan.variants], plan.baseline, plan.seed, plan.concurrency) == (
        ("three models", ["as now", "cold", "openai/gpt-5-nano"], 1, 7, 2)
    )
    models = ["openai/gpt-5-mini", "openai/gpt-5-mini", "openai/gpt-5-nano"]
    assert [(run.config.model, run.config.model_options.temperature) for run in runs] == [
        (model, temperature) for model, temperature in zip(models, (None, 0, None), strict=True)
    ]
    assert {(run.n_cases, run.n_trials, run.config.name) for run in runs} == {(5, 10, None)}
    assert {(each.metric, each.threshold) for run in runs for each in run.config.criteria} == {("reported_value", 0.5)}
    assert {run.config.limits.trial_timeout_s for run in runs} == {600.0}
    assert [run.n_done for run in runs] == [10 * (verb == "play")] * 3
    assert handed == ([] if verb == "play" else [(1, [1, 2, 3], {"LEVEL_OF_SUMS": "high"})])


def test_a_model_that_all_variants_name_is_left_out_of_the_experiment(place: CommandFolder) -> None:
    path = _write_project(place.folder)
    text = path.read_text().replace('model_path = "openai/gpt-5-mini"\n', "")
    path.write_text(text + '[experiment.vary]\nmodel_path = ["openai/gpt-5-mini", "openai/gpt-5-nano"]\n')

    result = place.run("run", "play", path, "--yes", "--rows", "0-2")

    assert result.exit_code == 0, result.output + repr(result.exception)
    with place.store() as store:
        runs = [store.runs.summary(number) for number in (1, 2)]
    assert [(run.config.model, run.n_done) for run in runs] == [("openai/gpt-5-mini", 3), ("openai/gpt-5-nano", 3)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"more": "[[variants]]\nname = 'a'"}, "at least 2 variants, and this has 1"),
        ({"more": "[[variants]]\nname = 'a'\n[[variants]]\nname = 'b'"}, "b is the same as a"),
        ({"more": "[[variants]]\ntemperatur = 0\n[[variants]]\ntop_p = 1"}, "did you mean 'temperature'?"),
        ({"more": "[[variants]]\nbatch_size = 1\n[[variants]]\nbatch_size = 2"}, "concurrency is one for all variants"),
        (
            {"more": "[[variants]]\nmodel = 'a'\nmodel_path = 'b'\n[[variants]]\ntop_p = 1"},
            "variant 1: model_path and model are one option; name it once",
        ),
        ({"experiment": "agent = 'x'", "more": VARIANTS}, "experiment.agent: Unrecognized key"),
        ({"experiment": "baseline = 3", "more": VARIANTS}, "experiment.baseline: must be text, got 3"),
        ({"experiment": "baseline = 'x'", "more": VARIANTS}, "variant"),
        ({"experiment": "allow_equal = 'x'", "more": VARIANTS}, "experiment.allow_equal: must be true or false"),
        ({"evaluation": "n = 0", "more": VARIANTS}, "evaluation.n: must be a whole number"),
        ({"experiment": "foo = 1", "more": VARIANTS}, "experiment.foo: Unrecognized key"),
        ({"required": '["NOT_THERE_AT_ALL"]', "more": VARIANTS}, "the environment has no NOT_THERE_AT_ALL"),
        ({"experiment": 'name = "a"'}, "experiment.name: Unrecognized key"),
    ],
)
def test_variants_of_a_run_file_that_cannot_be_are_refused_before_any_trial(
    place: CommandFolder, changes: dict[str, str], words: str
) -> None:
    _write_project(place.folder)
    path = _write(place.folder, **changes)

    result = place.run("run", "play", path, "--yes")

    assert isinstance(result.exception, EvaldeskError), result.output
    assert words in str(result.exception)
    assert not (place.folder / ".evaldesk/evaldesk.db").exists() or place.store().runs.list() == []


def test_all_that_is_wrong_with_a_run_file_and_its_variants_is_listed_at_once(place: CommandFolder) -> None:
    _write_project(place.folder)
    path = _write(place.folder, experiment="foo = 1\nbaseline = 3", evaluation="n = 0", more="[variants]\na = 1")

    said = str(place.run("run", "play", path, "--yes").exception)

    assert said.startswith("Invalid eval config ")
    assert said.count("\n  - ") == 4


def test_an_experiment_of_several_names_takes_up_no_single_run(place: CommandFolder) -> None:
    _write_project(place.folder)

    result = place.run("run", "play", _write(place.folder, more=VARIANTS), "--yes", "--retry-failed")

    assert "--retry-failed is of one run" in str(result.exception)


def test_an_experiment_file_is_validated_by_its_variants(place: CommandFolder) -> None:
    _write_project(place.folder)
    path = _write(place.folder, more=VARIANTS)
    own = place.folder / "own.toml"
    own.write_text('[experiment]\nagent = "a"\nevalset = "b"\nvary.model = ["x", "y"]\nbaseline = "y"\n')

    found = json.loads(place.run("validate", path, own, "--json").output)
    own.write_text(own.read_text().replace('baseline = "y"', 'baseline = "z"'))
    refused = place.run("validate", own)

    assert [(each["format"], each["understood"]) for each in found] == [
        (
            "experiment-file",
            ["calc (main.py) on sums.", "3 variants: as now, cold, openai/gpt-5-nano.", "The baseline is as now."],
        ),
        ("experiment-file", ["a on b.", "2 variants: x, y.", "The baseline is y."]),
    ]
    assert refused.exit_code == 2
    assert "z" in refused.stderr


@pytest.fixture
def played(place: CommandFolder) -> Path:
    """A project whose agent answers itself, since no model is asked."""
    path = _write_project(place.folder)
    _write(place.folder, evaluation="n = 2\nlimit = 3")
    return path


def _numbers(place: CommandFolder) -> list[tuple[int, int, int]]:
    """The number, the cases and the finished trials of each run, oldest first."""
    with place.store() as store:
        return [(run.id, run.n_cases, run.n_done) for run in reversed(store.runs.list())]


@pytest.mark.parametrize("words", [("run", "play"), ("eval", "run")], ids=" ".join)
def test_a_run_file_is_played_to_its_end_as_osmosis_does(
    place: CommandFolder, played: Path, words: tuple[str, str]
) -> None:
    result = place.run(*words, played, "--yes", "--rows", "3,0,10-11")

    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "rows 3,0,10-11: 4 of 20" in result.output
    assert _numbers(place) == [(1, 4, 8)]
    with place.store() as store:
        assert [row.case_id for row in store.runs.case_outcomes(1)] == ["row_0", "row_3", "row_10", "row_11"]


def test_a_run_of_the_same_name_is_continued_and_a_fresh_one_is_new(place: CommandFolder, played: Path) -> None:
    place.run("run", "play", played, "--yes")

    whole = place.run("run", "play", played, "--yes")
    retried = place.run("run", "play", played, "--yes", "--retry-failed")
    fresh = place.run("run", "play", played, "--yes", "--fresh")
    other = place.run("run", "play", played, "--yes", "--name", "other")
    none = place.run("run", "play", played, "--yes", "--name", "none", "--retry-failed")

    assert "run 1, named sums, has no trial left to play; --fresh begins a new run" in str(whole.exception)
    assert "has no errored trial" in str(retried.exception)
    assert (fresh.exit_code, other.exit_code) == (0, 0), fresh.output + repr(fresh.exception)
    assert "there is no run named none" in str(none.exception)
    assert _numbers(place) == [(1, 3, 6), (2, 3, 6), (3, 3, 6)]


def test_a_long_name_of_a_file_is_cut_where_the_run_takes_it(
    place: CommandFolder, played: Path, handed: list[Any]
) -> None:
    path = played.rename(played.with_name("s" * 120 + ".toml"))

    result, submission = place.run("run", "play", path, "--yes"), _submit(place, path, "--yes")

    assert (result.exit_code, submission.exit_code) == (0, 0), result.output + submission.output
    with place.store() as store:
        later, first = (run.config.name for run in store.runs.list())
    assert first == "s" * 96
    assert later
    assert re.fullmatch(r"s{80}-\d{8}-\d{6}", later)


def test_the_trials_that_are_left_of_a_run_are_played_under_its_name(
    place: CommandFolder, played: Path, handed: list[Any]
) -> None:
    _submit(place, played, "--yes", "--name", "sums")
    assert _numbers(place) == [(1, 3, 0)]

    result = place.run("eval", "run", played, "--yes")

    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "Run 1 is continued: 0 of 6 trials are there." in result.output
    assert _numbers(place) == [(1, 3, 6)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("row", "3 rows, now 3, the first is row_1"),
        ("limit", "3 rows, now 2"),
        ("n", "2 trials a row, now 3"),
        ("agent", "the files of agent calc"),
        ("threshold", "the criteria"),
        ("option", "option temperature"),
        ("gate", "gate min_pass_rate none, now 0.9"),
        ("cost", "gate max_cost none, now 2.0"),
        ("budget", "option budget"),
    ],
)
def test_changed_inputs_lock_a_run_that_is_continued(
    place: CommandFolder, played: Path, change: str, words: str
) -> None:
    """Its trials would be of two kinds; the message names the input and the way on."""
    place.run("run", "play", played, "--yes")
    data, source = place.folder / "data/sums.jsonl", place.folder / "rollouts/calc/main.py"
    if change == "row":
        data.write_text(data.read_text().replace("1+3", "one+three"))
    if change == "agent":
        source.write_text(source.read_text() + "\nVERSION = 2\n")
    more = {
        "limit": ("--limit", "2"),
        "n": ("--n", "3"),
        "option": ("--temperature", "0.5"),
        "gate": ("--min-pass-rate", "0.9"),
        "cost": ("--max-cost", "2"),
        "budget": ("--budget", "9"),
    }.get(change, ())
    if change == "threshold":
        _write(place.folder, evaluation="n = 2\nlimit = 3\npass_threshold = 0.5")

    refused = place.run("run", "play", played, "--yes", *more)

    assert isinstance(refused.exception, UsageError), refused.output
    assert str(refused.exception).startswith("run 1 began with other inputs: ")
    assert words in str(refused.exception)
    assert str(refused.exception).endswith("undo that, or say --fresh for a new run")
    assert _numbers(place) == [(1, 3, 6)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "9-3"), "--rows range '9-3' is inverted; write it as 3-9"),
        (("--rows", "20"), "--rows: there is no row 20; the file has 20 rows, 0 to 19"),
        (("--rows", "a"), "--rows: 'a' is not a row or a range"),
        (("--rows", "1", "--limit", "2"), "choose the rows by one of them"),
        (("--offset", "20"), "No rows to evaluate: --offset 20 is past the 20 rows"),
        (("--dataset-file", "gone.jsonl"), "Dataset file not found: gone.jsonl"),
        (("--fresh", "--retry-failed"), "a new run has no errored trial; leave one out"),
    ],
    ids=" ".join,
)
def test_rows_that_are_not_there_are_refused_before_the_start(
    place: CommandFolder, played: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = place.run("run", "play", played, "--yes", *arguments)

    assert isinstance(refused.exception, UsageError), refused.output
    assert words in str(refused.exception)
    assert not (place.folder / ".evaldesk/evaldesk.db").exists()


def test_a_named_data_set_takes_the_place_of_that_of_the_file(place: CommandFolder, played: Path) -> None:
    rows = [{"user_prompt": "2+2", "ground_truth": "4", "case_id": name} for name in ("a", "b")]
    (place.folder / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    result = place.run("eval", "run", played, "--yes", "--dataset-file", place.folder / "other.jsonl")

    assert result.exit_code == 0, result.output + repr(result.exception)
    with place.store() as store:
        assert [row.case_id for row in store.runs.case_outcomes(1)] == ["a", "b"]


def test_download_writes_the_results_of_a_run(place: CommandFolder, played: Path) -> None:
    assert place.run("eval", "run", played, "--yes").exit_code == 0

    result = place.run("eval", "download", "1", "-o", place.folder / "results.json")

    assert result.exit_code == 0, result.output
    results = json.loads((place.folder / "results.json").read_text())
    assert {"config", "summary", "rows"} <= results.keys()


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("ls",), "run list"),
        (("compare", "1", "2"), "compare"),
        (("diff", "1", "2"), "compare"),
        (("cancel", "1"), "run stop"),
        (("trials", "1"), "run trials"),
        (("rescor", "1"), "run rescore"),
        (("improt", "x"), "import"),
    ],
)
def test_an_unknown_verb_names_its_equivalent_and_is_no_agent(
    place: CommandFolder, words: tuple[str, ...], command: str
) -> None:
    refused = place.run("eval", *words)

    assert isinstance(refused.exception, UsageError)
    assert f"eval {words[0]} is not a command" in str(refused.exception)
    assert f"use `evaldesk {command}`;" in str(refused.exception)


@pytest.mark.parametrize("words", [("frobnicate", "x"), ("./ls", "x"), ("shop:agent", "x")])
def test_a_word_like_no_verb_is_an_agent_that_is_missing(place: CommandFolder, words: tuple[str, ...]) -> None:
    refused = place.run("eval", *words)

    assert isinstance(refused.exception, EvaldeskError)
    assert "is not a command" not in str(refused.exception)


def test_an_agent_of_the_name_of_a_verb_is_played(place: CommandFolder) -> None:
    (place.folder / "evaldesk.toml").write_text(f'[agents.diff]\ntarget = "{place.agent.name}.agent:root_agent"\n')

    assert "is not a command" not in str(place.run("eval", "diff", "missing.evalset.json").exception)


@pytest.mark.parametrize(
    ("verb", "words"),
    [("upload", "evaldesk import"), ("cache", "evaldesk run list")],
)
def test_a_verb_of_osmosis_names_its_equivalent_and_is_no_agent(place: CommandFolder, verb: str, words: str) -> None:
    refused = place.run("eval", verb, "3")

    assert isinstance(refused.exception, UsageError)
    assert f"eval {verb} is not a command" in str(refused.exception)
    assert words in str(refused.exception)
