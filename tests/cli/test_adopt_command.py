"""`evaldesk adopt`: the parts of a project, its results as runs, and its tests, CI and dependencies as a diff first."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.islands import of_tools

from evaldesk.desk import adopting
from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

TEST_MODULE = """\
import pytest
from google.adk.evaluation.agent_evaluator import AgentEvaluator
from google.adk.agents import Agent


@pytest.mark.asyncio
async def test_it():
    await AgentEvaluator.evaluate("home", "home/simple.test.json")
"""
WORKFLOW = """\
jobs:
  evals:
    steps:
      - run: adk eval home home/a.evalset.json
      - run: adk optimize home --sampler_config_file_path s.json
"""
RESULTS = {
    "config": {"model": "m", "n_runs": 1, "pass_threshold": 1.0, "eval_fns": ["rewards:f"]},
    "summary": {"total_rows": 1, "total_runs": 1, "eval_fns": {}, "total_tokens": 1, "total_duration_ms": 1},
    "rows": [
        {
            "row_index": 0,
            "runs": [{"run_index": 0, "success": True, "scores": {"rewards:f": 1.0}, "duration_ms": 1, "tokens": 1}],
        }
    ],
}


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def project(place: CommandFolder) -> Path:
    """Parts of all three tools in one folder."""
    sample = Path(__file__).parents[1] / "formats/exchange_samples"
    folder = place.folder / "project"
    _write(
        folder,
        **{
            "home/agent.py": "root_agent = Agent(name='home')\n",
            "home/a.evalset.json": "{}",
            "home/test_config.json": "{}",
            "home/.adk/eval_history/a.evalset_result.json": (sample / "adk-results.evalset_result.json").read_text(),
            "tests/test_home.py": TEST_MODULE,
            ".github/workflows/evals.yml": WORKFLOW,
            "server.py": "class Loop(RolloutAgentLoop):\n    pass\n",
            "rewards.py": "@osmosis_reward\ndef f(solution_str): ...\n",
            "data.jsonl": '{"user_prompt": "2+2"}\n',
            "results.json": json.dumps(RESULTS),
            "broken.json": '{"eval_fns": ',
            "Makefile": "eval:\n\tosmosis eval -m server:loop -d data.jsonl\n\tosmosis evaluate\n",
            "bench/run_infer.py": "def process_instance(instance, metadata): ...\n",
            "bench/run.sh": "poetry run python ./bench/run_infer.py -l eval_gpt\n",
            "config.toml": '[llm]\nmodel = "m"\n',
            "outputs/x/output.jsonl": (sample / "openhands.jsonl").read_text(),
            ".venv/lib/agent.py": "root_agent = 1\n",
        },
    )
    return folder


def _texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("tool", "parts", "diff", "words"),
    [
        pytest.param(
            "adk",
            ["home/agent.py", "home/a.evalset.json", "home/test_config.json", "tests/test_home.py"],
            [
                "-from google.adk.evaluation.agent_evaluator import AgentEvaluator\n"
                "+from evaldesk import AgentEvaluator\n",
                "-      - run: adk eval home home/a.evalset.json\n"
                "+      - run: evaldesk eval home home/a.evalset.json\n",
            ],
            "--compat adk",
            marks=of_tools("adk"),
        ),
        pytest.param(
            "osmosis",
            ["server.py", "rewards.py", "data.jsonl"],
            ["-\tosmosis eval -m server:loop -d data.jsonl\n+\tevaldesk eval -m server:loop -d data.jsonl\n"],
            "--compat osmosis",
            marks=of_tools("osmosis"),
        ),
        pytest.param(
            "openhands",
            ["bench/run_infer.py", "config.toml"],
            [
                "-poetry run python ./bench/run_infer.py -l eval_gpt\n"
                "+evaldesk benchmark ./bench/run_infer.py -l eval_gpt\n"
            ],
            "There is no container",
            marks=of_tools("openhands"),
        ),
    ],
)
def test_a_project_is_shown_its_results_are_imported_and_nothing_is_written(
    place: CommandFolder, project: Path, tool: str, parts: list[str], diff: list[str], words: str
) -> None:
    before = _texts(project)

    done = place.run("adopt", tool, project)

    assert done.exit_code == 0, f"{done.output}{done.exception!r}"
    assert all(f"  {part}\n" in done.output for part in parts), done.output
    assert all(each in done.output for each in diff), done.output
    assert words in done.output
    assert "These changes are written with --write:" in done.output
    assert ".venv" not in done.output
    assert _texts(project) == before
    with place.store() as store:
        assert len(store.runs.list()) >= 1
    again = place.run("adopt", tool, project)
    assert "already imported as run" in again.output


@of_tools("adk")
def test_changes_are_written_when_asked_and_a_second_time_nothing_changes(place: CommandFolder, project: Path) -> None:
    done = place.run("adopt", "adk", project, "--write")

    assert "Changed:" in done.output
    texts = _texts(project)
    assert "from evaldesk import AgentEvaluator\nfrom google.adk.agents import Agent\n" in texts["tests/test_home.py"]
    assert "evaldesk eval home home/a.evalset.json" in texts[".github/workflows/evals.yml"]
    assert "- run: adk optimize home" in texts[".github/workflows/evals.yml"]
    assert texts["Makefile"].count("osmosis eval ") == 1
    assert "Nothing changes in tests, CI and dependencies." in place.run("adopt", "adk", project).output


@of_tools("osmosis")
def test_a_result_that_cannot_be_read_is_named_and_the_others_are_imported(place: CommandFolder, project: Path) -> None:
    said = place.run("adopt", "osmosis", project).output

    assert "broken.json" in said
    assert "this is not JSON" in said
    assert "  results.json: run 1\n" in said


@of_tools("osmosis")
def test_caches_of_osmosis_in_a_project_are_imported(place: CommandFolder, project: Path) -> None:
    run = {"row_index": 0, "run_index": 0, "success": True, "reward": 1.0, "duration_ms": 1, "tokens": 1}
    cache = {"version": 1, "task_id": "0a", "status": "completed", "config": {"model": "m", "n_runs": 1}, "runs": [run]}
    _write(project, **{".osmosis/cache/eval/m/data/1_0a.json": json.dumps(cache)})

    said = place.run("adopt", "osmosis", project).output

    assert "cache (1):\n  .osmosis/cache/eval/m/data/1_0a.json\n" in said
    assert "  .osmosis/cache/eval/m/data/1_0a.json: run " in said


@of_tools("osmosis")
def test_a_large_result_is_found_and_no_large_file_changes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "MAX_TEXT", 100)

    found = adopting.survey(project, "osmosis")

    assert "results.json" in [part.path for part in found.parts if part.is_history]
    assert all(len(change.before) <= 100 for change in found.changes)


@of_tools("adk")
def test_a_file_that_changed_meanwhile_is_not_overwritten(project: Path) -> None:
    found = adopting.survey(project, "adk")
    (project / "tests/test_home.py").write_text("# edited\n")

    with pytest.raises(UsageError, match="was changed meanwhile"):
        adopting.write(found.changes)

    assert (project / ".github/workflows/evals.yml").read_text() == WORKFLOW


@of_tools("adk")
def test_wrong_folders_are_refused(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not a folder" in str(place.run("adopt", "adk", "nowhere").exception)
    monkeypatch.setattr(adopting, "MAX_FILES", 1)

    with pytest.raises(UsageError, match="more than 1 files"):
        adopting.survey(place.folder, "adk")


@of_tools("adk")
def test_links_lead_nowhere(place: CommandFolder, project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    _write(outside, **{"test_other.py": TEST_MODULE})
    (project / "linked").symlink_to(outside)
    (project / "test_link.py").symlink_to(outside / "test_other.py")

    place.run("adopt", "adk", project, "--write")

    assert (outside / "test_other.py").read_text() == TEST_MODULE


PYPROJECT = """\
[project]
name = "osmosis-ai"
dependencies = ["google-adk>=1", "osmosis-ai[platform]>=0.2,<1"]

[dependency-groups]
dev = [
    "google-adk[eval, extensions]>=1.0,<3",  # the evaluator
    "pytest",
]

[project.optional-dependencies]
test = [
    "google-adk[eval]==1.2"
]
"""
INSTALLS = """\
      - run: pip install google-adk[eval] pytest
      - run: pip install -q 'google-adk[eval]>=1'
      - run: echo google-adk[eval]
"""


def _adopted(folder: Path, tool: str, **files: str) -> dict[str, str]:
    """The files of a project as they are after its changes."""
    _write(folder, **files)
    adopting.write(adopting.survey(folder, tool).changes)
    assert adopting.survey(folder, tool).changes == []
    return _texts(folder)


@of_tools("adk")
def test_the_extra_of_adks_evaluation_becomes_evaldesk(tmp_path: Path) -> None:
    files = {
        "requirements-dev.txt": "google-adk[eval]>=1.0,<3  # tests\npytest\n",
        "requirements.txt": "google-adk>=1.0\n",
        "requirements/all.txt": "evaldesk[adk]>=0.1\ngoogle-adk[eval]\n",
        "setup.cfg": "tests =\n    Google_ADK[eval]\n    pytest\n",
        "pyproject.toml": PYPROJECT,
        ".github/workflows/test.yml": INSTALLS,
        "tests/test_home.py": TEST_MODULE,
    }

    texts = _adopted(tmp_path, "adk", **files)

    assert texts["requirements-dev.txt"] == "google-adk>=1.0,<3  # tests\nevaldesk[adk]\npytest\n"
    assert texts["requirements.txt"] == files["requirements.txt"]
    assert texts["requirements/all.txt"] == "evaldesk[adk]>=0.1\ngoogle-adk\n"
    assert texts["setup.cfg"] == "tests =\n    Google_ADK\n    evaldesk[adk]\n    pytest\n"
    assert '    "google-adk==1.2",\n    "evaldesk[adk]"\n]' in texts["pyproject.toml"]
    assert 'dependencies = ["google-adk>=1", ' in texts["pyproject.toml"]
    assert '    "google-adk[extensions]>=1.0,<3", "evaldesk[adk]",  # the evaluator\n' in texts["pyproject.toml"]
    assert texts[".github/workflows/test.yml"] == (
        "      - run: pip install google-adk evaldesk[adk] pytest\n"
        "      - run: pip install -q 'google-adk>=1' 'evaldesk[adk]'\n"
        "      - run: echo google-adk[eval]\n"
    )


@of_tools("adk")
def test_the_extra_stays_where_something_still_needs_it(tmp_path: Path) -> None:
    texts = _adopted(
        tmp_path,
        "adk",
        **{"dev-requirements.in": "google-adk[eval]\n", "make.sh": "adk optimize home\n"},
    )

    assert texts["dev-requirements.in"] == "google-adk[eval]\nevaldesk[adk]\n"


@of_tools("adk")
@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("adk eval_set create home x", "evaldesk eval_set create home x"),
        (
            "adk eval_set add_eval_case home x --scenarios_file s",
            "evaldesk eval_set add_eval_case home x --scenarios_file s",
        ),
        ("adk eval home x.evalset.json", "evaldesk eval home x.evalset.json"),
        ("adk eval home x.evalset.json --log_level DEBUG", ""),
        ("adk eval_set create home x --eval_storage_uri gs://sets", ""),
        ("adk eval_set create home x \\\n  --log_level DEBUG", ""),
        ("adk eval_set generate_eval_cases home x --user_simulation_config_file c", ""),
    ],
)
def test_a_command_changes_where_ours_does_the_same(tmp_path: Path, command: str, changed: str) -> None:
    """Cases that Evaldesk generates wait for a review, so a job that plays them at once keeps ADK's command."""
    texts = _adopted(tmp_path, "adk", **{"dev-requirements.in": "google-adk[eval]\n", "make.sh": f"{command}\n"})

    assert texts["make.sh"] == f"{changed or command}\n"
    assert texts["dev-requirements.in"] == f"google-adk{'' if changed else '[eval]'}\nevaldesk[adk]\n"


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        pytest.param("osmosis", "osmosis-ai", marks=of_tools("osmosis")),
        pytest.param("openhands", "openhands-ai", marks=of_tools("openhands")),
        pytest.param("openhands", "openhands-sdk", marks=of_tools("openhands")),
    ],
)
def test_the_packages_of_the_other_tools_stay_beside_evaldesk(tmp_path: Path, tool: str, name: str) -> None:
    files = {"requirements.txt": f"{name}>=0.2\n{name}-extras\n", "setup.py": f"setup(install_requires=['{name}'])\n"}

    texts = _adopted(tmp_path, tool, **files)

    assert texts["requirements.txt"] == f"{name}>=0.2\nevaldesk\n{name}-extras\n"
    assert texts["setup.py"] == f"setup(install_requires=['{name}', 'evaldesk'])\n"


PROJECT_OF_BENCHMARKS = """\
[project]
dependencies = [
    "openhands-sdk",
]
[project.scripts]
swebench-infer = "benchmarks.swebench.run_infer:main"
swebench-eval = "benchmarks.swebench.eval_infer:main"
[tool.uv]
gaia-infer = "benchmarks.gaia.run_infer:main"
"""


@of_tools("openhands")
@pytest.mark.parametrize(
    ("command", "changed"),
    [
        (
            "uv run swebench-infer .llm_config/a.json",
            "uv run evaldesk benchmark benchmarks/swebench/run_infer.py .llm_config/a.json",
        ),
        ("swebench-infer \\", "evaldesk benchmark benchmarks/swebench/run_infer.py \\"),
        ("python -m benchmarks.gaia.run_infer a.json", "evaldesk benchmark benchmarks/gaia/run_infer.py a.json"),
        ("python benchmarks/gaia/run_infer.py a.json", "evaldesk benchmark benchmarks/gaia/run_infer.py a.json"),
        ("uv run swebench-eval out/output.jsonl", ""),
        ("uv run gaia-infer a.json", ""),
        ("logs/swebench-infer.log", ""),
        ("python -m benchmarks.gaia.run_infer.part", ""),
    ],
)
def test_commands_of_benchmarks_on_the_sdk_of_openhands_change(tmp_path: Path, command: str, changed: str) -> None:
    texts = _adopted(tmp_path, "openhands", **{"pyproject.toml": PROJECT_OF_BENCHMARKS, "run.sh": f"{command}\n"})

    assert texts["run.sh"] == f"{changed or command}\n"
    assert texts["pyproject.toml"] == PROJECT_OF_BENCHMARKS.replace('sdk",\n', 'sdk",\n    "evaldesk",\n')


@of_tools("adk")
def test_a_locked_file_stays_as_it_is(tmp_path: Path) -> None:
    locked = "google-adk[eval]==1.0 \\\n    --hash=sha256:00\n"

    assert _adopted(tmp_path, "adk", **{"requirements.txt": locked}) == {"requirements.txt": locked}


@of_tools("adk")
def test_dependencies_are_shown_first(place: CommandFolder, project: Path) -> None:
    _write(project, **{"requirements.txt": "google-adk[eval]\n"})

    done = place.run("adopt", "adk", project)

    assert "-google-adk[eval]\n+google-adk[eval]\n" not in done.output
    assert "+evaldesk[adk]\n" in done.output
    assert (project / "requirements.txt").read_text() == "google-adk[eval]\n"


@of_tools("adk")
@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml", "setup.cfg", "test_agent.py", "Makefile"])
@pytest.mark.parametrize("line", ["google-adk{}x", "{}", "pip install google-adk{}'", "'google-adk[{}"])
def test_a_line_of_blanks_takes_no_time(tmp_path: Path, name: str, line: str) -> None:
    """16,000 blanks took 8 s."""
    start = time.process_time()

    _adopted(tmp_path, "adk", **{name: line.format(" " * 16_000) + "\n"})

    assert time.process_time() - start < 2
