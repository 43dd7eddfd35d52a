"""Files of other tools from the command line: what they are, into another form, into the workspace and out of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.faulty_disk import FaultyDisk
from tests.islands import of_tools

from evaldesk.cli import cli
from evaldesk.desk.imports import files as import_files
from evaldesk.errors import DiskError
from evaldesk.formats import dump_evalset, load_evalset
from evaldesk.formats.files import read_file
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.store import Store
from evaldesk.store.evalsets import large

pytestmark = of_tools("openhands", "osmosis")

SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
ROWS = SAMPLES / "osmosis-csv.csv"
RESULTS = SAMPLES / "adk-results.evalset_result.json"
OPENHANDS = SAMPLES / "openhands.jsonl"

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


def error_of(result: Result) -> str:
    """The one line that an error is."""
    return str(result.exception) if result.exception and not result.stderr else result.stderr


def test_validate_says_what_a_file_is_and_what_it_holds(run: Run) -> None:
    result = run("validate", ROWS, RESULTS)

    assert result.exit_code == 0
    assert "Osmosis data set, CSV" in result.output
    assert "2 cases with 2 turns." in result.output
    assert "kept: In 2 cases: system_prompt, level." in result.output
    assert "3 trials of 2 cases; 1 passed, 2 failed." in result.output


def test_validate_names_the_place_of_an_error_and_goes_on(run: Run) -> None:
    Path("bad.jsonl").write_text('{"user_prompt": "x", "ground_truth": 4}\n')
    Path("bad.json").write_text('{"eval_set_id": "x", "eval_cases": [{"eval_id": NaN}]}')

    result = run("validate", "bad.jsonl", "bad.json", "gone.json", ROWS)

    assert result.exit_code == 2
    first, second, third = result.stderr.splitlines()
    assert first == "evaldesk: bad.jsonl:1:1: Row 0: 'ground_truth' must be a string, got int"
    assert second.startswith("evaldesk: bad.json:1:")
    assert "NaN is not a JSON number" in second
    assert third == "evaldesk: gone.json cannot be read: No such file or directory"
    assert "Osmosis data set, CSV" in result.stdout


def test_validate_as_json_has_an_object_for_each_file(run: Run) -> None:
    Path("bad.json").write_text("[1")

    result = run("validate", "--json", ROWS, RESULTS, "bad.json")

    assert result.exit_code == 2
    rows, results, bad = json.loads(result.stdout)
    assert (rows["format"], rows["n_cases"], rows["runs"]) == ("osmosis-csv", 2, [])
    assert (results["format"], results["runs"]) == ("adk-results", [{"name": "dice", "n_cases": 2, "n_trials": 3}])
    assert (bad["is_valid"], bad["line"]) == (False, 1)


def test_validate_holds_a_criteria_file_against_the_metrics_that_there_are(run: Run) -> None:
    criteria = {"tool_exact": 1.0, "cost": {"threshold": None}}
    Path("good.json").write_text(json.dumps({"criteria": criteria, "user_simulator_config": {"model": "demo/user"}}))
    Path("bad.json").write_text('{"criteria": {\n  "tool_exakt": 1.0}}')

    result = run("validate", "good.json", "bad.json")

    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "good.json: criteria file",
        "  tool_exact: at least 1.00.",
        "  cost: no threshold.",
        "  A simulated user by demo/user.",
    ]
    assert result.stderr.startswith("evaldesk: bad.json:2:17: criteria.tool_exakt: ")
    assert "did you mean 'tool_exact'?" in result.stderr


def test_validate_says_why_a_file_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("test_config.json").write_text('{"criteria": {"tool_exact": 1.0}}')

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)

    result = run("validate", "test_config.json")

    assert (result.exit_code, result.stderr) == (
        2,
        "evaldesk: test_config.json cannot be read: Permission denied\n",
    )


def test_convert_reads_one_form_and_writes_another(run: Run) -> None:
    result = run("convert", ROWS, "add.evalset.json")

    assert result.exit_code == 0
    assert next(case.turns[0].query for case in load_evalset("add.evalset.json").cases) == "What is 2 + 2?"
    again = run("convert", "add.evalset.json", "-", "--to", "osmosis-csv")
    assert next(iter(csv.DictReader(again.stdout.splitlines())))["ground_truth"] == "4"


def test_convert_asks_for_a_format_where_the_name_could_be_several(run: Run) -> None:
    result = run("convert", ROWS, "add.json")

    assert "choose one with --to" in error_of(result)
    assert not Path("add.json").exists()


def test_convert_replaces_a_file_only_when_told_to(run: Run) -> None:
    Path("a.csv").write_text("mine")

    assert "--force" in error_of(run("convert", ROWS, "a.csv"))
    assert Path("a.csv").read_text() == "mine"
    assert run("convert", ROWS, "a.csv", "--force").exit_code == 0


def test_convert_says_what_the_new_form_leaves_out(run: Run) -> None:
    scenarios = SAMPLES / "adk-scenarios.scenarios.json"

    result = run("convert", scenarios, "old.json", "--to", "adk-old")

    assert result.exit_code == 0
    assert result.stderr.startswith("evaldesk: left out: ")


def test_import_makes_an_eval_set_and_export_gives_it_out(run: Run) -> None:
    result = run("import", ROWS, "--name", "add")

    assert result.exit_code == 0
    assert "Eval set add." in result.output
    assert len(load_evalset("evalsets/add.evalset.json").cases) == 2
    out = run("export", "add", "--format", "osmosis-jsonl", "-o", "add.jsonl")
    assert out.exit_code == 0
    assert json.loads(Path("add.jsonl").read_text().splitlines()[0])["ground_truth"] == "4"
    assert "already" in error_of(run("import", ROWS, "--name", "add"))
    assert run("import", ROWS, "--name", "add", "--replace").exit_code == 0


def test_import_of_results_makes_a_run_that_export_gives_out(run: Run) -> None:
    result = run("import", RESULTS)

    assert "Run 1." in result.output
    with Store.open(Path(".evaldesk/evaldesk.db"), must_exist=True) as store:
        assert (store.runs.summary(1).n_passed, store.runs.summary(1).n_failed) == (1, 2)
    out = run("export", 1, "--format", "adk-results")
    again = read_file(out.stdout_bytes, "again.json").runs[0]
    assert again.results == read_file(RESULTS.read_bytes(), "again.json").runs[0].results


def test_several_files_become_the_trials_of_one_run(run: Run) -> None:
    result = run("import", OPENHANDS, OPENHANDS, "--as-trials")

    assert result.exit_code == 0
    with Store.open(Path(".evaldesk/evaldesk.db"), must_exist=True) as store:
        strips = [row.verdicts for row in store.runs.case_rows(1, sort="file")]
    assert strips == ["pfpf", "uu"]


def test_the_folder_of_a_run_of_openhands_is_imported_with_its_metadata(run: Run) -> None:
    folder = Path("outputs/run_1")
    folder.mkdir(parents=True)
    (folder / "metadata.json").write_text('{"agent_class": "A", "llm_config": {"model": "m/x"}, "dataset": "bench"}')
    (folder / "output.jsonl").write_text('{"instance_id": "i", "history": [], "test_result": {"own": 1}}')

    alone, whole = run("import", folder / "metadata.json"), run("import", folder, "--outcome", "own")
    elsewhere = run("import", folder.parent)

    assert "contains no trial; choose the output.jsonl beside it" in error_of(alone)
    assert "is a folder without results that a tool is known by: output.jsonl, or" in error_of(elsewhere)
    assert "A trial passes when its own is true or 1" in whole.output
    with Store.open(Path(".evaldesk/evaldesk.db"), must_exist=True) as store:
        summary = store.runs.summary(1)
    assert (summary.n_passed, summary.config.agent_model, summary.config.evalset_path) == (1, "m/x", "bench")


@pytest.mark.parametrize("whole", [2**30, -1], ids=["read-whole", "streamed"])
def test_instances_that_a_benchmark_of_the_sdk_left_out_are_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """Its `output.jsonl` lacks every row with an error. (OpenHands/benchmarks benchmarks/utils/iterative.py)"""
    monkeypatch.setattr(large, "WHOLE", whole)
    folder = Path("eval_out")
    folder.mkdir()
    metadata = {"llm": {"model": "m/x"}, "dataset": "swe", "critic": {"kind": "PassCritic"}, "max_iterations": 5}
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1))
    solved = {"instance_id": "a", "attempt": 2, "history": [], "test_result": {"resolved": True}, "error": None}
    failures = (("a", "stuck"), ("b", "502"), ("b", "503"), ("c", "x: MaxIterationsReached"))
    rows = [{"instance_id": name, "history": [], "test_result": {}, "error": error} for name, error in failures]
    (folder / "output.jsonl").write_text(json.dumps(solved))
    (folder / "output_errors.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))

    alone, result = run("import", folder / "metadata.json"), run("import", folder)

    assert "contains no trial; choose the output.jsonl beside it" in error_of(alone)
    assert "2 instances of output_errors.jsonl which output.jsonl leaves out: counted too." in result.output
    with Store.open(Path(".evaldesk/evaldesk.db"), must_exist=True) as store:
        summary, errored = store.runs.summary(1), store.runs.trial(1, 1, 0)
        strips = [row.verdicts for row in store.runs.case_rows(1, sort="file")]
    assert (summary.config.agent_model, summary.config.evalset_path) == ("m/x", "swe")
    assert strips == ["p", "e", "u"]
    assert errored.error is not None
    assert errored.error.message == "503"


def test_import_stores_nothing_when_one_file_is_wrong(run: Run) -> None:
    Path("bad.json").write_text("{")

    result = run("import", ROWS, "bad.json")

    assert result.exit_code != 0
    assert not Path("evalsets").exists()


def with_ids(path: Path, *ids: str) -> Path:
    """An eval set file with a case of each id."""
    dump_evalset(EvalSet("greetings", cases=tuple(Case(each, (Turn("hi"),)) for each in ids)), path)
    return path


def test_import_stores_nothing_when_the_cases_of_one_file_share_an_id(run: Run, tmp_path: Path) -> None:
    wrong = with_ids(tmp_path / "wrong.json", "a", "b", "a")

    result = run("import", ROWS, RESULTS, wrong)

    assert 'wrong.json: several cases have the same id: "a" (cases 1 and 3)' in error_of(result)
    assert not list(Path("evalsets").glob("*"))
    with Store.open(Path(".evaldesk/evaldesk.db")) as store:
        assert store.runs.list() == []
    assert run("import", ROWS, RESULTS).exit_code == 0


def test_import_stores_nothing_when_the_name_of_one_file_is_taken(run: Run, tmp_path: Path) -> None:
    run("import", with_ids(tmp_path / "one.json", "a"))

    result = run("import", ROWS, with_ids(tmp_path / "one.json", "b"))

    assert "there is an eval set named 'one' already" in error_of(result)
    assert [path.name for path in Path("evalsets").iterdir()] == ["one.evalset.json"]


def test_an_eval_set_that_lies_here_in_another_layout_is_known(run: Run, tmp_path: Path) -> None:
    foreign = with_ids(tmp_path / "one.json", "a")
    laid_out = json.dumps(json.loads(foreign.read_bytes()), indent=7, sort_keys=True)
    Path("one.evalset.json").write_text(laid_out)

    assert error_of(run("import", foreign)) == "already imported as eval set one"

    Path("one.evalset.json").write_text(laid_out.replace('"a"', '"b"'))
    assert "there is an eval set named 'one' already" in error_of(run("import", foreign))


def test_an_eval_set_that_is_imported_again_is_named_and_nothing_is_stored(run: Run, tmp_path: Path) -> None:
    run("import", with_ids(tmp_path / "one.json", "a"))
    before = Path("evalsets/one.evalset.json").read_bytes()

    again = run("import", ROWS, tmp_path / "one.json")
    elsewhere = run("import", tmp_path / "one.json", "--name", "two")
    replaced = run("import", tmp_path / "one.json", "--replace")

    assert error_of(again) == "already imported as eval set one"
    assert {path.name for path in Path("evalsets").iterdir()} == {"one.evalset.json", "two.evalset.json"}
    assert (elsewhere.exit_code, replaced.exit_code) == (0, 0)
    assert Path("evalsets/one.evalset.json").read_bytes() == before


def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = with_ids(tmp_path / "large.json", "a")
    monkeypatch.setattr(import_files, "MAX_FILE", large.stat().st_size - 1)
    monkeypatch.setattr(import_files, "read_file", None)

    result = run("import", large)

    assert "large.json has more than" in error_of(result)
    assert not list(Path("evalsets").glob("*"))


def test_two_files_cannot_become_one_eval_set(run: Run, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("x", "y")]
    for folder in folders:
        folder.mkdir()

    result = run("import", *(with_ids(folder / "set.json", "a") for folder in folders), "--replace")

    assert "would both be the eval set 'set'" in error_of(result)
    assert not Path("evalsets").exists()


def test_validate_exits_with_1_when_cases_share_an_id(run: Run, tmp_path: Path) -> None:
    repeated = with_ids(tmp_path / "repeated.json", "a", "a")
    right = with_ids(tmp_path / "right.json", "a", "b")

    found = run("validate", right, repeated)
    as_json = run("validate", right, repeated, "--json")

    assert (found.exit_code, as_json.exit_code) == (1, 1)
    assert 'repeated.json: several cases have the same id: "a" (cases 1 and 2)' in found.stderr
    assert [each["repeats"] for each in json.loads(as_json.stdout)] == ["", '"a" (cases 1 and 2)']
    assert run("validate", right).exit_code == 0
    assert run("validate", repeated, tmp_path / "missing.json").exit_code == 2


def test_a_run_is_given_out_as_a_table_that_no_spreadsheet_executes(run: Run) -> None:
    row = {"row_index": 0, "run_index": 0, "success": False, "error": "=1+1"}
    Path("r.json").write_text(json.dumps({"config": {"n_runs": 1, "eval_fns": ["f"]}, "runs": [row]}))
    run("import", "r.json")

    out = run("export", 1, "--format", "csv")

    (line,) = csv.DictReader(out.stdout.splitlines())
    assert (line["verdict"], line["error_message"]) == ("errored", "'=1+1")


@pytest.mark.parametrize(
    "arguments", [("export", "nothing"), ("export", "7"), ("export", "7", "--format", "os:system")]
)
def test_what_is_not_there_is_said_in_one_line(run: Run, arguments: tuple[str, ...]) -> None:
    run("import", RESULTS)

    result = run(*arguments)

    assert result.exit_code != 0
    assert "\n" not in error_of(result)


@pytest.mark.parametrize("name", ["validate", "convert", "import", "export"])
def test_the_help_of_each_command_has_an_example(run: Run, name: str) -> None:
    assert f"\n  evaldesk {name} " in run(name, "--help").output


@pytest.mark.parametrize("words", [("import", "--replace"), ("import", "--name", "other"), ("export", "--force")])
def test_a_full_disk_is_told_in_one_line_and_leaves_the_files(run: Run, words: tuple[str, ...]) -> None:
    assert run("import", ROWS, "--name", "add").exit_code == 0
    Path("out.json").write_text("before")
    before = Path("evalsets/add.evalset.json").read_bytes()
    named = ("--name", "add") if words[-1] == "--replace" else ()
    arguments = ("add", "-o", "out.json") if words[0] == "export" else (SAMPLES / "osmosis-jsonl.jsonl", *named)

    with FaultyDisk(1, ENOSPC, lasts=True).inserted():
        refused = run(words[0], *arguments, *words[1:])

    assert isinstance(refused.exception, DiskError)
    assert "cannot be written: the disk is full (No space left on device); free some space" in str(refused.exception)
    assert Path("evalsets/add.evalset.json").read_bytes() == before
    assert Path("out.json").read_text() == "before"
    assert sorted(path.name for path in Path("evalsets").iterdir()) == ["add.evalset.json"]
    assert run(words[0], *arguments, *words[1:]).exit_code == 0
