"""Every command, in a workspace of hostile names, as a terminal and the logs of builds read what it prints."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from tests.conversations import put_conversation
from tests.forked_commands import ForkedCommands
from tests.islands import of_all_tools
from tests.security.test_outgoing_text import HOSTILE, steering

from evaldesk.cli import cli
from evaldesk.formats import write_evalset
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    EvalSet,
    Event,
    Expected,
    RunConfig,
    RunStatus,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.experiment import ExperimentPlan, Factor, Variant
from evaldesk.model.failures import FindingDraft
from evaldesk.model.proposals import ProposalDraft
from evaldesk.model.run import ExperimentPart, SharedState
from evaldesk.store import Store

BUILDS = ("GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION")
NAME = "x\x1b]0;t\x07\u202e\n::error::forged ##[add-mask]y ##vso[task.x]z ##teamcity[a b='c']"
"""A name of a file, so without a slash."""
AGENT = NAME.replace("\n", " ")
NAMELESS = {
    *("accept", "adopt", "agents", "mode judge", "mode undo", "trash empty"),
    *("inbox drop", "inbox label", "inbox listen", "inbox score"),
    *("experiment confirm", "experiment drive", "experiment stop", "run wait", "skill show"),
    *(f"propose {name}" for name in ("case", "expectation", "finding", "kind")),
    *(f"proposals {name}" for name in ("accept", "refuse", "undo")),
    *(f"run {name}" for name in ("drive", "rescore", "resume", "retry", "stop")),
}
"""Commands that name a run or an experiment by its number, or nothing; all others must print a hostile name."""

WORDS: dict[str, tuple[str, ...]] = {
    "accept": ("RUN",),
    "adopt": ("adk", "FOLDER"),
    "agents": ("FOLDER", "--trust"),
    "benchmark": ("FILE",),
    "blame": (f"1:{HOSTILE}",),
    "compare": ("RUN", HOSTILE),
    "completion": (HOSTILE,),
    "convert": ("SET", "-", "--to", "adk"),
    "docs": (HOSTILE,),
    "doctor": ("FOLDER",),
    "eval": ("FOLDER", "SET", "--check"),
    "evalset case": ("SET", HOSTILE),
    "evalset cases": ("SET",),
    "evalset criteria": ("SET",),
    "evalset diff": ("SET",),
    "evalset failures": ("SET",),
    "evalset health": ("SET",),
    "evalset list": (),
    "evalset log": ("SET",),
    "evalset restore": (f"{HOSTILE}@{HOSTILE}",),
    "eval_set add_eval_case": ("FOLDER", "s", "--scenarios_file", "FILE", "--session_input_file", "FILE"),
    "eval_set create": ("FOLDER", HOSTILE),
    "eval_set generate_eval_cases": ("FOLDER", "s", "--user_simulation_config_file", "FILE"),
    "experiment add": ("RUN", "--vary", f"model={HOSTILE},b"),
    "experiment confirm": ("RUN",),
    "experiment drive": ("RUN",),
    "experiment export": ("RUN",),
    "experiment import": ("FILE",),
    "experiment list": (),
    "experiment report": ("RUN",),
    "experiment resume": ("RUN",),
    "experiment show": ("RUN",),
    "experiment stop": ("RUN",),
    "export": ("RUN",),
    "fork": (f"1:{HOSTILE}@1", "--dry-run"),
    "gate explain": ("--cases", HOSTILE),
    "import": ("FILE",),
    "inbox case": ("1", "--preview"),
    "inbox draw": ("error:all", "--to", NAME),
    "inbox drop": ("1",),
    "inbox label": ("1", "failed", "--note", HOSTILE),
    "inbox list": (),
    "inbox listen": ("--key", HOSTILE),
    "inbox pull": (HOSTILE,),
    "inbox replay": ("1", "--trust", "--dry-run", "--agent", HOSTILE),
    "inbox score": ("--criterion", "turn_count=5"),
    "inbox show": ("1",),
    "inbox status": (),
    "mcp": ("--allow", HOSTILE),
    "metrics": (HOSTILE,),
    "mode cases": ("KIND",),
    "mode check": ("RUN", "--max-mode", f"{HOSTILE}=1"),
    "mode export": ("--format", "json"),
    "mode import": ("FILE", "--by", "ann"),
    "mode judge": ("KIND",),
    "mode list": (),
    "mode merge": ("KIND", "other", "--by", "ann"),
    "mode undo": (),
    "open": (HOSTILE,),
    "plan": ("FOLDER", "SET", "--vary", f"model={HOSTILE},b"),
    "proposals accept": ("1",),
    "proposals list": (),
    "proposals refuse": ("1",),
    "proposals show": ("1",),
    "proposals undo": ("1",),
    "propose case": ("SET", "FILE"),
    "propose edit": ("SET", HOSTILE, "FILE", "--why", HOSTILE),
    "propose expectation": ("RUN", HOSTILE, "1"),
    "propose finding": ("RUN", HOSTILE, "1", "--kind", HOSTILE, "--quote", "elsewhere"),
    "propose kind": ("other", "--definition", HOSTILE, "--by", HOSTILE),
    "report": ("RUN",),
    "rubric": ("-d", "FILE", "-r", HOSTILE),
    "run changes": ("RUN", HOSTILE),
    "run drive": ("RUN",),
    "run export": ("RUN",),
    "run info": ("RUN",),
    "run list": (),
    "run logs": ("RUN",),
    "run merge": ("FILE",),
    "run play": ("FILE",),
    "run rescore": ("RUN", "--config-file-path", "FILE"),
    "run resume": ("RUN",),
    "run retry": ("RUN",),
    "run rm": (HOSTILE,),
    "run start": (HOSTILE, "SET"),
    "run stop": ("RUN",),
    "run submit": ("FILE",),
    "run trial": ("RUN", HOSTILE, "1"),
    "run trials": ("RUN",),
    "run wait": ("RUN", "--seconds", "0"),
    "score": ("FILE", "--evalset", "SET"),
    "search": ("forged",),
    "skill install": ("--yes",),
    "skill show": (),
    "status": (),
    "store copy": ("FILE", HOSTILE),
    "trash empty": ("--yes",),
    "trash list": (),
    "trash restore": (HOSTILE,),
    "ui": ("--host", HOSTILE),
    "validate": ("SET", "FILE"),
}
"""The arguments of each command; SET, RUN, KIND, FILE and FOLDER stand for those of the workspace."""


def names_of_commands(command: click.Command = cli, *path: str) -> Iterator[str]:
    """The words of all commands that are no groups."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from names_of_commands(child, *path, name)


@pytest.fixture(scope="module")
def made_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which all that has a name has a hostile one, of runs, cases, sets, agents, files and findings."""
    home = tmp_path_factory.mktemp("hostile") / NAME
    home.mkdir()
    call = ToolCall(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE)
    case = Case(HOSTILE, (Turn(HOSTILE, Expected((call,), reference=HOSTILE)),), tags=(HOSTILE,))
    (home / f"{NAME}.evalset.json").write_bytes(write_evalset(EvalSet(HOSTILE, HOSTILE, HOSTILE, (case,))))
    (home / f"{NAME}.json").write_text(json.dumps({HOSTILE: [HOSTILE, {HOSTILE: None}]}))
    agent = home / AGENT
    agent.mkdir()
    (agent / "agent.py").write_text(f"raise ValueError({HOSTILE!r})\n")
    error = ErrorRecord("agent_raised", HOSTILE, HOSTILE)
    events = (
        Event("tool_call", call=call, author=HOSTILE),
        Event("agent_message", text=HOSTILE, author=HOSTILE, parent=HOSTILE, within=HOSTILE),
        Event("log", text=HOSTILE),
        Event("error", error=error),
    )
    with Store.open(home / ".evaldesk" / "evaldesk.db") as store:
        reference = AgentRef(HOSTILE, HOSTILE, root=str(home), folder=str(agent))
        criteria = (Criterion(HOSTILE, 1.0, {HOSTILE: HOSTILE}),)
        statuses: tuple[RunStatus, ...] = ("finished", "stopped")
        for status in statuses:
            config = RunConfig(reference, HOSTILE, criteria=criteria, note=HOSTILE, model=HOSTILE)
            run_id = store.runs.create(config, [case])
            score = Score(HOSTILE, 0.0, 0, 1.0, passed=False, reason=HOSTILE, details={HOSTILE: HOSTILE})
            transcript = Transcript((TurnRecord(HOSTILE, events, {HOSTILE: HOSTILE}),))
            trial = TrialResult(run_id, 0, 0, "errored", "errored", HOSTILE, transcript, (score,), error=error)
            shared_state = SharedState(HOSTILE, (HOSTILE,))
            store.runs.record([replace(trial, shared_state=shared_state, changes=HOSTILE)])
            store.runs.set_status(run_id, status, HOSTILE)
        store.failures.add(FindingDraft(1, 0, 0, HOSTILE), HOSTILE, HOSTILE)
        texts = {"name": HOSTILE, "definition": HOSTILE, "example_yes": HOSTILE, "example_no": HOSTILE}
        store.client_proposals.propose(ProposalDraft("kind", json.dumps(texts), why=HOSTILE, case_id=HOSTILE), HOSTILE)
        session = store.sessions.create(HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
        store.sessions.append_turn(session.id, transcript.turns[0])
        put_conversation(store, HOSTILE, replace(trial, scores=()))
        store.runs.delete(run_id)
        variant = Variant(HOSTILE, {"model": HOSTILE}, (HOSTILE,))
        plan = ExperimentPlan(HOSTILE, (variant, Variant("b", {"model": "b"}, ("b",))), 7, 1)
        number = store.experiments.begin(replace(plan, factors=(Factor("model", (HOSTILE, "b")),)), [])
        run_id = store.runs.create(replace(config, experiment=ExperimentPart(number, 0, HOSTILE)), [case])
        store.runs.record([replace(trial, run_id=run_id)])
        store.runs.set_status(run_id, "finished", HOSTILE)
    return home


@of_all_tools
def test_every_command_is_tried() -> None:
    assert {*names_of_commands()} ^ WORDS.keys() == set()


@pytest.mark.parametrize("command", WORDS)
def test_a_command_among_hostile_names_steers_no_terminal_and_no_build(
    command: str, made_workspace: Path, tmp_path: Path, commands: ForkedCommands
) -> None:
    home = tmp_path / NAME
    shutil.copytree(made_workspace, home)
    places = {"SET": f"{NAME}.evalset.json", "FILE": f"{NAME}.json", "FOLDER": AGENT, "RUN": "1", "KIND": HOSTILE}
    words = [*command.split(), *(places.get(word, word) for word in WORDS[command])]
    environment = {**os.environ, **dict.fromkeys(BUILDS, "true"), "EVALDESK_WORKSPACE": str(home)}

    result = commands.run(*words, cwd=home, environment=environment)

    assert steering(result.stdout) == []
    assert steering(result.stderr) == []
    assert ("forged" in result.stdout + result.stderr) is (command not in NAMELESS), result.stdout + result.stderr


SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
PLAIN_KEYS = ("type", "role", "object", "kind", "version", "format", "schema", "source", "op", "operation", "name_of")
"""Keys whose texts say what a file is; the texts under all others become hostile."""


def _hostile(value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {name: _hostile(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_hostile(each, key) for each in value]
    is_plain = not isinstance(value, str) or any(word in key.lower() for word in PLAIN_KEYS)
    return value if is_plain else f"{value}{HOSTILE}"


def _written(sample: Path, folder: Path) -> Path:
    """The sample with hostile texts, under a hostile name."""
    path = folder / f"{NAME}{sample.suffix}"
    if sample.suffix == ".jsonl":
        lines = [json.dumps(_hostile(json.loads(line))) for line in sample.read_text().splitlines() if line.strip()]
        path.write_text("\n".join(lines))
    else:
        path.write_text(json.dumps(_hostile(json.loads(sample.read_text()))))
    return path


@pytest.mark.parametrize("command", ["import", "validate"])
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.js*")), ids=lambda sample: sample.name)
def test_a_file_of_another_tool_with_hostile_texts_steers_no_terminal_and_no_build(
    sample: Path, command: str, tmp_path: Path, commands: ForkedCommands
) -> None:
    file = _written(sample, tmp_path)
    environment = {**os.environ, **dict.fromkeys(BUILDS, "true"), "EVALDESK_WORKSPACE": str(tmp_path)}

    results = [commands.run(command, str(file), cwd=tmp_path, environment=environment)]
    results += [
        commands.run("run", *words, cwd=tmp_path, environment=environment)
        for words in (("info", "1"), ("list",))
        if command == "import"
    ]

    assert [steering(text) for each in results for text in (each.stdout, each.stderr) if steering(text)] == []


CONFIG = """
[experiment]
rollout = TEXT
entrypoint = TEXT
model_path = TEXT
dataset = TEXT
name = TEXT
[evaluation]
limit = 1
[evaldesk]
isolation = TEXT
"""
SETTINGS = """
public_url = TEXT
isolation = ISOLATION
[agents.TEXT]
target = TEXT
command = [TEXT]
image = TEXT
isolation = TEXT
[store]
url = TEXT
"""


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize(
    "words",
    [("doctor",), ("eval", "FOLDER", "SET"), ("run", "play", "RUN.toml"), ("eval", "run", "RUN.toml")],
    ids=" ".join,
)
def test_a_hostile_text_of_a_setting_steers_no_terminal_and_no_build(
    words: tuple[str, ...], at: int, made_workspace: Path, tmp_path: Path, commands: ForkedCommands
) -> None:
    """The first `at` settings of each file are there, so that each is the one that is refused."""
    home = tmp_path / NAME
    shutil.copytree(made_workspace, home)
    text = json.dumps(HOSTILE)
    (home / "evaldesk.toml").write_text(
        "\n".join(SETTINGS.strip().splitlines()[:at]).replace("ISOLATION", '"auto"').replace("TEXT", text)
    )
    (home / "RUN.toml").write_text("\n".join(CONFIG.strip().splitlines()[: at + 2]).replace("TEXT", text))
    places = {"SET": f"{NAME}.evalset.json", "FOLDER": AGENT}
    environment = {**os.environ, **dict.fromkeys(BUILDS, "true"), "EVALDESK_WORKSPACE": str(home)}

    result = commands.run(*(places.get(word, word) for word in words), cwd=home, environment=environment)

    assert steering(result.stdout) == []
    assert steering(result.stderr) == []
