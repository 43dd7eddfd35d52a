"""Every argument and option of every command that names a file or a folder, with what is none."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import click
import pytest
from tests.cli.test_help import COMMANDS
from tests.islands import of_tools

from evaldesk.cli import EXIT_USAGE, _in_words

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

RUBRIC = "rubric -d talks.jsonl -r polite --model demo/judge"
BENCHMARK = "eval --benchmark bench:run -d rows.jsonl"
ADDED = "eval_set add_eval_case AGENT booking"
PROPOSED = "eval_set generate_eval_cases AGENT booking --user_simulation_config_file"
JOB = """
[experiment]
rollout = "bench"
entrypoint = "bench:run"
model_path = "demo/dice"
dataset = "data.jsonl"
"""
READ = {
    ("agents", "python"): "agents --python @",
    ("benchmark", "python"): "benchmark --python @ benchmarks/one.py",
    ("benchmark", "script"): "benchmark @",
    ("compare", "baseline"): "compare 1 --baseline @",
    ("compare", "names"): "compare 1 @",
    ("convert", "source"): "convert @ out.jsonl",
    ("doctor", "python"): "doctor --python @",
    ("eval", "baseline"): "eval AGENT SET --check --baseline @",
    ("eval", "config_file"): f"{BENCHMARK} -l small --config-file @",
    ("eval", "config_file_path"): "eval AGENT SET --config-file-path @",
    ("eval", "dataset"): "eval -m bench:run -d @",
    ("eval", "python"): "eval AGENT SET --python @",
    ("eval_set add_eval_case", "scenarios_file"): f"{ADDED} --session_input_file session.json --scenarios_file @",
    ("eval_set add_eval_case", "session_input_file"): f"{ADDED} --scenarios_file scenes.json --session_input_file @",
    ("eval_set generate_eval_cases", "user_simulation_config_file"): f"{PROPOSED} @",
    ("import", "files"): "import @",
    ("mode import", "file"): "mode import @",
    ("propose case", "file"): "propose case one @",
    ("propose edit", "file"): "propose edit one case_1 @ --why shorter",
    ("rubric", "baseline"): f"{RUBRIC} -b @",
    ("rubric", "config"): "rubric -d talks.jsonl -r polite -c @",
    ("rubric", "data"): "rubric -d @ -r polite --model demo/judge",
    ("rubric", "rubric"): "rubric -d talks.jsonl -r @@ --model demo/judge",
    ("run merge", "names"): "run merge @",
    ("run play", "baseline"): "run play job.toml --yes --baseline @",
    ("run play", "dataset_file"): "run play job.toml --yes --dataset-file @",
    ("run play", "file"): "run play @ --yes",
    ("run play", "python"): "run play job.toml --yes --python @",
    ("run play", "secrets_file"): "run play job.toml --yes --secrets-file @",
    ("run rescore", "config_file_path"): "run rescore 1 --config-file-path @",
    ("run submit", "baseline"): "run submit job.toml --yes --baseline @",
    ("run submit", "dataset_file"): "run submit job.toml --yes --dataset-file @",
    ("run submit", "file"): "run submit @ --yes",
    ("run submit", "python"): "run submit job.toml --yes --python @",
    ("run submit", "secrets_file"): "run submit job.toml --yes --secrets-file @",
    ("experiment import", "file"): "experiment import @",
    ("score", "baseline"): "score seen.json --evalset SET --baseline @",
    ("score", "config_file_path"): "score seen.json --evalset SET --config-file-path @",
    ("score", "traces"): "score @ --evalset SET",
    ("ui", "python"): "ui --no-open --python @",
    ("validate", "files"): "validate @",
}
WRITTEN = {
    ("compare", "summary"): "compare 1 2 --summary @",
    ("convert", "target"): "convert SET @ --to osmosis-csv --force",
    ("eval", "junit"): "eval AGENT SET --junit @",
    ("eval", "outputs"): "eval AGENT SET -o @",
    ("eval", "summary"): "eval AGENT SET --summary @",
    ("experiment export", "output"): "experiment export 1 -o @",
    ("experiment report", "output"): "experiment report 1 -o @",
    ("export", "output"): "export one -o @ --force",
    ("mode export", "output"): "mode export -o @ --force",
    ("report", "output"): "report 1 -o @ --force",
    ("rubric", "output"): f"{RUBRIC} -o @",
    ("run export", "output"): "run export 1 -o @ --force",
    ("run merge", "junit"): "run merge shard.json --junit @",
    ("run merge", "output"): "run merge shard.json -o @",
    ("score", "junit"): "score seen.json --evalset SET --junit @",
    ("score", "outputs"): "score seen.json --evalset SET -o @",
    ("score", "summary"): "score seen.json --evalset SET --summary @",
    ("run merge", "summary"): "run merge shard.json --summary @",
}
FOLDERS = {
    ("adopt", "folder"): "adopt adk @",
    ("agents", "folders"): "agents @",
    ("doctor", "folders"): "doctor @",
    ("eval", "eval_output_dir"): f"{BENCHMARK} --eval-output-dir @",
    ("eval_set add_eval_case", "agent"): (
        "eval_set add_eval_case @ booking --session_input_file session.json --scenarios_file scenes.json"
    ),
    ("eval_set create", "agent"): "eval_set create @ booking",
    ("eval_set generate_eval_cases", "agent"): PROPOSED.replace("AGENT", "@") + " generation.json",
    ("ui", "folders"): "ui --no-open @",
}
PLAYED = {
    "compare": (),
    "experiment export": ("--vary", "temperature=0,1"),
    "experiment report": ("--vary", "temperature=0,1"),
    "run merge": ("--shard", "1/1", "-o", "shard.json"),
}
"""The options of a second run, of an experiment or of a shard, that a command needs."""
WORKSPACES = [path for path, command in COMMANDS.items() if any(each.name == "workspace" for each in command.params)]
NAMES = {"FILE", "IN", "OUT", "DIR", "YAML", "SCRIPT", "@FILE"}
LONG = "x" * 300
NO_FILE = ("pipe", "/dev/zero", "folder", "missing", "loop", LONG)
NO_OUTPUT = ("folder", "loop", LONG)
NO_FOLDER = ("pipe", "missing", "loop", LONG)


pytestmark = [
    of_tools("adk", "osmosis"),
    pytest.mark.timeout(100),
]  # what waits for a writer, or serves pages, is ended


@pytest.fixture
def filled(place: CommandFolder) -> CommandFolder:
    """The place with all that the commands name beside the one that is wrong."""
    folder = place.folder
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("gone")
    place.evalset("one", {"one": "one"})
    (folder / "rollouts" / "bench").mkdir(parents=True)
    for place_of_code in (folder, folder / "rollouts" / "bench"):
        (place_of_code / "bench.py").write_text("def run(instance, metadata):\n    return {}\n")
    (folder / "benchmarks" / "utils").mkdir(parents=True)
    (folder / "benchmarks" / "utils" / "evaluation.py").touch()
    (folder / "benchmarks" / "one.py").touch()
    messages = {"gen_ai.prompt": "one", "gen_ai.completion": "one"}
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in messages.items()]
    span = {"traceId": "1", "spanId": "1", "name": "chat", "attributes": attributes}
    (folder / "seen.json").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    (folder / "rows.jsonl").write_text('{"instance_id": "a", "question": "b"}\n')
    (folder / "data.jsonl").write_text('{"system_prompt": "a", "user_prompt": "a", "ground_truth": "a"}\n')
    (folder / "talks.jsonl").write_text('{"messages": [{"role": "assistant", "content": "hello"}]}\n')
    (folder / "job.toml").write_text(JOB)
    (folder / "scenes.json").write_text('{"scenarios": [{"starting_prompt": "a", "conversation_plan": "b"}]}')
    (folder / "session.json").write_text('{"app_name": "a", "user_id": "b", "state": {}}')
    (folder / "generation.json").write_text('{"count": 1, "model_name": "demo/user"}')
    return place


def test_each_that_names_a_file_or_a_folder_is_tried() -> None:
    found = {
        (" ".join(path), each.name)
        for path, command in COMMANDS.items()
        for each in command.params
        if isinstance(each.type, click.Path) or NAMES & {*re.split(r"[\[\]|. ]+", each.metavar or "")}
    }

    assert {each for each in found if each[1] != "workspace"} == READ.keys() | WRITTEN.keys() | FOLDERS.keys()


@pytest.mark.parametrize("name", READ, ids=" ".join)
def test_a_file_that_is_none_is_said_in_one_line(filled: CommandFolder, name: tuple[str, str]) -> None:
    if name[0].startswith("mode") or name[0] == "compare":
        filled.eval("one.evalset.json")
    for wrong in NO_FILE:
        _is_refused(filled, READ[name], wrong)


@pytest.mark.parametrize("name", WRITTEN, ids=" ".join)
def test_a_file_that_cannot_be_written_is_said_in_one_line(filled: CommandFolder, name: tuple[str, str]) -> None:
    filled.eval("one.evalset.json")
    if name[0] in PLAYED:
        filled.eval("one.evalset.json", *PLAYED[name[0]])
    for wrong in NO_OUTPUT:
        _is_refused(filled, WRITTEN[name], wrong)


@pytest.mark.parametrize("name", FOLDERS, ids=" ".join)
def test_a_folder_that_is_none_is_said_in_one_line(filled: CommandFolder, name: tuple[str, str]) -> None:
    for wrong in NO_FOLDER:
        if (name[1], wrong) != ("eval_output_dir", "missing"):  # it is made
            _is_refused(filled, FOLDERS[name], wrong)


@pytest.mark.parametrize("path", WORKSPACES, ids=" ".join)
def test_a_workspace_that_is_none_is_said_in_one_line(filled: CommandFolder, path: tuple[str, ...]) -> None:
    words = {
        "eval": "eval AGENT SET",
        "plan": "plan AGENT SET",
        "adopt": "adopt adk .",
        "gate explain": "gate explain --from 1 --min-pass-rate 0.9",
    }
    words |= {"accept": "accept 1 --turn 1 --yes", "mode merge": "mode merge a b", "import": "import one.evalset.json"}
    words |= {
        "mode check": "mode check 1 --max-mode a=1",
        "run submit": "run submit job.toml --yes",
        "run play": "run play job.toml --yes",
        "export": "export 1",
        "propose case": "propose case one one.evalset.json",
        "propose edit": "propose edit one case_1 one.evalset.json --why shorter",
        "propose expectation": "propose expectation 1 case_1 1",
        "propose finding": "propose finding 1 case_1 1 --kind a --quote b",
        "propose kind": "propose kind a --definition b",
        "run changes": "run changes 1 2",
        "score": "score seen.json --evalset SET",
        "run start": "run start echo one",
        "run trial": "run trial 1 case_1 1",
        **{f"proposals {verb}": f"proposals {verb} 1" for verb in ("accept", "refuse", "show", "undo")},
        "search": "search word",
        "evalset case": "evalset case one case_1",
        **{
            f"evalset {verb}": f"evalset {verb} one"
            for verb in ("cases", "criteria", "diff", "failures", "health", "log")
        },
        "evalset restore": "evalset restore one@07c6ba95",
    }
    words |= {
        "mode import": "mode import talks.jsonl",
        "ui": "ui --no-open",
        "trash empty": "trash empty --yes",
        "open": "open 1 --no-open",
    }
    words |= {
        "blame": "blame 1:case_1",
        "compare": "compare 1 2",
        "fork": "fork 1:case_1@1",
        "eval_set generate_eval_cases": f"{PROPOSED} generation.json",
        "experiment add": "experiment add 1 --vary model=a",
    }
    words |= {
        f"experiment {verb}": f"experiment {verb} 1"
        for verb in ("confirm", "drive", "export", "report", "resume", "show", "stop")
    }
    words |= {f"inbox {verb}": f"inbox {verb} 1" for verb in ("case", "drop", "replay", "show")}
    words |= {"inbox label": "inbox label 1 failed", "inbox score": "inbox score --criterion turn_count=1"}
    words["inbox pull"] = "inbox pull phoenix"
    words["experiment import"] = "experiment import experiment.json"
    words |= {name: f"{name} 1" for name in ("report", "mode cases", "mode judge", "trash restore")}
    words |= {
        f"run {verb}": f"run {verb} 1"
        for verb in ["drive", "export", "info", "logs", "rescore", "resume", "retry", "rm", "stop", "trials", "wait"]
    }
    words["run rescore"] += " --config-file-path test_config.json"
    name = " ".join(path)
    for wrong in NO_FOLDER:
        _is_refused(filled, f"{words.get(name, name)} --workspace @", wrong)


def _is_refused(place: CommandFolder, line: str, wrong: str) -> None:
    """The command ends with one line that names the path."""
    given = {"AGENT": str(place.agent), "SET": "one.evalset.json", "@": wrong, "@@": f"@{wrong}"}

    result = place.run(*(given.get(word, word) for word in line.split()))

    if isinstance(result.exception, Exception):
        said, code = _in_words(result.exception)
    else:
        said, code = result.stderr.strip().rpartition("\n")[2], result.exit_code
    assert code == EXIT_USAGE, (line, wrong, code, said, result.output)
    assert os.path.basename(wrong) in said, (line, wrong, said)
    assert "\n" not in said
