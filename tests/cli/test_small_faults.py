"""What a person types that is nearly right is answered with what was meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from tests.islands import has_island, of_tools

import evaldesk
from evaldesk import paths
from evaldesk.cli.eval.command import evaluate
from evaldesk.cli.eval.options import SECTIONS
from evaldesk.cli.eval.spellings import tool_options
from evaldesk.errors import FormatError, UsageError, WorkspaceError
from evaldesk.reading.strict_json import parse_json
from evaldesk.store import Store

CommandFolder = Any

TURN = {
    "user_content": {"role": "user", "parts": [{"text": "one"}]},
    "final_response": {"role": "model", "parts": [{"text": "one"}]},
}
RUN_FILE = """
[experiment]
rollout = "greeter"
entrypoint = "main.py"
model_path = "demo/dice"
dataset = "data.jsonl"
"""


def echo(message: str, state: dict[str, Any]) -> str:
    """Says what it is told."""
    return message


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an eval set of three cases."""
    cases = [{"eval_id": name, "conversation": [TURN]} for name in ("first", "second", "third")]
    value = {"eval_set_id": "greetings", "eval_cases": cases}
    (tmp_path / "greetings.evalset.json").write_text(json.dumps(value), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("evalset", "names"),
    [
        ("greetings.evalset.json", ["first", "second", "third"]),
        ("greetings.evalset.json:second", ["second"]),
        ("greetings.evalset.json:third,first", ["first", "third"]),
        (["greetings.evalset.json:third", "greetings.evalset.json:first"], ["first", "third"]),
        (["greetings.evalset.json:third", "greetings.evalset.json"], ["first", "second", "third"]),
    ],
    ids=str,
)
def test_evaluate_takes_cases_after_a_colon_as_the_command_line_does(
    folder: Path, evalset: Any, names: list[str]
) -> None:
    result = evaldesk.evaluate(echo, evalset, criteria={"response_match_score": 0.5})

    assert [case.id for case in result] == names


@pytest.mark.parametrize(
    ("evalset", "options", "said"),
    [
        ("greetings.evalset.json:forth", {}, "did you mean"),
        ("greetings.evalset.json:", {}, "name a case after the colon"),
        ("greetings.evalset.json:first", {"cases": ["second"]}, "not both"),
        ("greetings.evalset.jsn", {}, "did you mean greetings.evalset.json?"),
        ("greeting", {}, "did you mean greetings.evalset.json?"),
        ("greetings.evalset.json", {"n": True}, "not True"),
        ("greetings.evalset.json", {"n": 2.5}, "not 2.5"),
        ("greetings.evalset.json", {"n": "3"}, "not '3'"),
        ("greetings.evalset.json", {"concurrency": True}, "not True"),
        ("greetings.evalset.json", {"timeout_s": True}, "not True"),
        ([7], {}, "not int"),
    ],
    ids=str,
)
def test_evaluate_refuses_what_cannot_be_meant(folder: Path, evalset: Any, options: Any, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        evaldesk.evaluate(echo, evalset, criteria={"response_match_score": 0.5}, **options)

    assert said in str(refused.value)


def test_an_eval_set_of_the_agents_folder_is_answered_with_its_near_name(place: CommandFolder) -> None:
    result = place.run("eval", "samples/hello_world", "helo_world")

    assert "did you mean hello_world?" in str(result.exception)


@pytest.mark.parametrize("text", [r"C:\evals\set.json", "C:/evals/set.json", r"C:\evals\set.json:roll_16"])
def test_the_colon_of_a_drive_separates_no_case(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        paths.selected_cases(text)

    said = str(refused.value)
    assert said.startswith(text.removesuffix(":roll_16") + " is not a file; it is a path of Windows")


def test_a_path_of_windows_is_no_module_of_an_agent(place: CommandFolder) -> None:
    for arguments in ((r"C:\agents\mine", "hello_world"), ("samples/hello_world", r"C:\evals\set.json")):
        result = place.run("eval", *arguments)

        assert isinstance(result.exception, UsageError)
        assert "it is a path of Windows" in str(result.exception)
    assert "it is a path of Windows" in place.run("validate", r"C:\evals\set.json").stderr


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1,}', 1, 8),
        ('{\n "a": [\n  1,\n  2,\n ]\n}', 4, 4),
        ('{\n "a": 1\n ,\n}', 3, 2),
        ("[1, 2 , ]", 1, 7),
    ],
)
def test_a_trailing_comma_is_named_with_its_line(text: str, line: int, column: int) -> None:
    with pytest.raises(FormatError) as refused:
        parse_json(text.encode(), source="set.json")

    assert f"trailing comma at line {line}" in str(refused.value)
    assert (refused.value.line, refused.value.column) == (line, column)


@pytest.mark.parametrize("text", ["[1,", "[,1]", "[1,,2]", '{"a": ","', "[1 2]"])
def test_no_other_fault_is_called_a_trailing_comma(text: str) -> None:
    with pytest.raises(FormatError) as refused:
        parse_json(text.encode(), source="set.json")

    assert "trailing comma" not in str(refused.value)


@of_tools("osmosis")
def test_a_trailing_comma_in_lines_of_json_is_at_the_line_of_the_file(place: CommandFolder) -> None:
    (place.folder / "rows.jsonl").write_text(
        '{"system_prompt": "", "user_prompt": "a", "ground_truth": "a"}\n{"user_prompt": "b",}\n', "utf-8"
    )

    said = place.run("validate", "rows.jsonl").stderr

    assert "rows.jsonl:2:" in said
    assert "trailing comma at line 2" in said


def test_validate_reads_the_settings_of_a_workspace(place: CommandFolder) -> None:
    path = place.folder / "evaldesk.toml"
    path.write_text('models = ["demo/dice"]\n', "utf-8")
    found = place.run("validate", "evaldesk.toml")
    assert (found.exit_code, "settings of a workspace" in found.output) == (0, True)
    assert "Models: demo/dice." in found.output

    path.write_text('modles = ["demo/dice"]\n', "utf-8")
    refused = place.run("validate", "evaldesk.toml")
    assert refused.exit_code == 2
    assert "unknown key 'modles'" in refused.stderr


def test_validate_reads_run_files_and_says_which_toml_it_reads(place: CommandFolder) -> None:
    (place.folder / "good.toml").write_text(f"{RUN_FILE}[secrets]\nrequired = []\n", "utf-8")
    (place.folder / "bad.toml").write_text("[experiment]\nrollout = 3\n", "utf-8")
    (place.folder / "other.toml").write_text("[tool.ruff]\n", "utf-8")

    assert "run file" in place.run("validate", "good.toml").output
    (said,) = place.run("validate", "bad.toml").stderr.splitlines()
    assert said.startswith("evaldesk: Invalid eval config bad.toml: - Missing 'entrypoint' in [experiment]")
    refused = place.run("validate", "other.toml")
    assert refused.exit_code == 2
    assert "other.toml is neither evaldesk.toml nor a run file of `evaldesk run submit`" in refused.stderr
    as_json = json.loads(place.run("validate", "good.toml", "--json").output)
    assert as_json[0]["format"] == "run-file"


SECTION_OF = {tool: options.section for tool, options in tool_options().items()}
FORMS = {
    "adk": ["agent", "set"],
    "osmosis": ["-m", "agent:a", "-d", "set"],
    "openhands": ["--benchmark", "b:f", "-d", "set"],
}
FOREIGN = [
    (form, option)
    for form in FORMS
    if form == "adk" or has_island(form)
    for option in evaluate.params
    if isinstance(option, click.Option)
    and option.expose_value
    and SECTIONS.get(str(option.name)) in {*SECTION_OF.values()} - {SECTION_OF.get(form)}
    and option.name not in {"module", "dataset", "benchmark"}
]


@pytest.mark.parametrize(("form", "option"), FOREIGN, ids=[f"{option.opts[0]} as {form}" for form, option in FOREIGN])
def test_an_option_of_another_tool_is_refused_by_name(place: CommandFolder, form: str, option: click.Option) -> None:
    refused = place.run("eval", *FORMS[form], option.opts[0], "3")

    assert f"{option.opts[0]} needs " in str(refused.exception)
    assert isinstance(refused.exception, UsageError)


@of_tools("osmosis")
def test_criteria_are_named_in_one_way(place: CommandFolder) -> None:
    command = ["eval", "-m", "agent:a", "-d", place.evalset("one", {"hello": "hello"})]

    refused = place.run(*command, "--eval-fn", "rewards:good", "--criterion", "response_match_score=1")

    assert "--eval-fn and --criterion: name the criteria by one of them" in str(refused.exception)


def test_a_full_standard_output_is_a_sentence() -> None:
    command = [sys.executable, "-P", "-m", "evaldesk", "metrics"]

    with open("/dev/full", "w") as full:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)

    words = "the output could not be written: No space left on device; free space there, or write it to another place"
    assert done.stderr == f"evaldesk: {words}\n"
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (".evaldesk/evaldesk.db/", ".evaldesk/evaldesk.db is a folder, where the file of the database should be"),
        (".evaldesk", ".evaldesk is a file, where the folder of the database should be"),
    ],
    ids=["a folder in its place", "a file in the place of its folder"],
)
def test_a_database_that_cannot_be_made_is_a_sentence(tmp_path: Path, taken: str, words: str) -> None:
    place = tmp_path / taken
    place.parent.mkdir(exist_ok=True)
    place.mkdir() if taken.endswith("/") else place.touch()

    with pytest.raises(WorkspaceError) as refused:
        Store.open(tmp_path / ".evaldesk" / "evaldesk.db")

    assert str(refused.value) == f"{tmp_path / words}; move it away, or name another workspace"


def test_a_folder_that_cannot_be_made_is_a_sentence() -> None:
    with pytest.raises(WorkspaceError, match=r"^/proc/sys/.evaldesk cannot be made: [\w ]+; name another workspace$"):
        Store.open(Path("/proc/sys/.evaldesk/evaldesk.db"))
