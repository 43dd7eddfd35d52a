"""The settings and criteria of an untrusted folder take neither keys nor code to an agent that is from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.forked_commands import ForkedCommands

from evaldesk.desk.trust import Trust

OWN = 'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name="own", model="openai/small")\n'
CASE = {"eval_id": "one", "conversation": [{"user_content": {"parts": [{"text": "Hello"}]}}]}
Evaluated = Callable[..., subprocess.CompletedProcess[str]]
FOREIGN = {
    "a function": {"criteria": {"evil:score": 0.5}},
    "a function of ADK": {
        "criteria": {"evil": 0.5},
        "custom_metrics": {"evil": {"code_config": {"name": "evil.score"}}},
    },
    "a judge elsewhere": {
        "criteria": {
            "final_response_match_v2": {
                "threshold": 0.5,
                "judge_model_options": {"judge_model": "j", "base_url": "ADDRESS", "api_key_env": "MY_OWN_KEY"},
            }
        }
    },
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of somebody else with an eval set, and beside it an agent of one's own."""
    home = tmp_path / "clone"
    home.mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "agent.py").write_text(OWN)
    (home / "agent.py").write_text(OWN)
    (home / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n\n\ndef score(*_, **__):\n    return 1.0\n")
    (home / "x.evalset.json").write_text(json.dumps({"eval_set_id": "x", "eval_cases": [CASE]}))
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MY_OWN_KEY", "a-key-of-the-person-1234")
    monkeypatch.setenv("PYTHONPATH", str(home))
    return home


@pytest.fixture
def evaluated(clone: Path, commands: ForkedCommands) -> Evaluated:
    """Plays `evaldesk eval` in the folder of somebody else."""

    def evaluated(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return commands.run("eval", *words, "--retries", "0", cwd=clone, environment={**os.environ, **variables})

    return evaluated


def write_settings(clone: Path, endpoint: Endpoint, table: str = "model") -> None:
    (clone / "evaldesk.toml").write_text(
        f'[{table}]\nbase_url = "{endpoint.address}"\napi_key_env = "MY_OWN_KEY"\nn_retries = 0\n'
    )


@pytest.mark.parametrize("table", ["model", "user.options"])
@pytest.mark.parametrize("agent", ["../own", "samples/hello_world"])
def test_no_key_goes_where_settings_of_somebody_else_say(
    clone: Path, evaluated: Evaluated, agent: str, table: str
) -> None:
    with served() as endpoint:
        endpoint.says("Hi")
        write_settings(clone, endpoint, table)
        done = evaluated(agent, "x.evalset.json")

    assert endpoint.headers == []
    assert done.returncode == 2, done.stderr
    assert "evaldesk.toml says where the keys of models are sent" in done.stderr
    assert "EVALDESK_TRUST=1" in done.stderr


def test_settings_hold_for_an_agent_of_the_same_folder_and_for_a_trusted_one(clone: Path, evaluated: Evaluated) -> None:
    with served() as endpoint:
        endpoint.says("Hi").says("Hi")
        write_settings(clone, endpoint)
        evaluated(".", "x.evalset.json")
        evaluated("../own", "x.evalset.json", EVALDESK_TRUST="1")

    assert len(endpoint.headers) == 2


IN_PYTHON = """
import sys
sys.path.insert(0, "..")
import evaldesk
from own.agent import root_agent, reply
for agent in ("../own", reply):
    try:
        evaldesk.evaluate(agent, "x.evalset.json", n_retries=0)
    except Exception as error:
        print(error)
"""


@pytest.mark.server
@pytest.mark.parametrize("trusted", ["", "1"])
def test_python_sends_no_key_where_settings_of_somebody_else_say(clone: Path, trusted: str) -> None:
    calls = "    return LlmAgent(name='own', model='openai/small')\n"
    with (clone.parent / "own" / "agent.py").open("a") as file:
        file.write(f"\n\ndef reply(message):\n{calls}")
    environment = {**os.environ, "EVALDESK_TRUST": trusted}
    with served() as endpoint:
        endpoint.says("Hi")
        write_settings(clone, endpoint)
        done = subprocess.run(
            [sys.executable, "-P", "-c", IN_PYTHON],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    refused = done.stdout.count("evaldesk.toml says where the keys of models are sent")
    assert (refused, len(endpoint.headers)) == ((0, 1) if trusted else (2, 0)), done.stdout + done.stderr


@pytest.mark.parametrize("name", FOREIGN)
def test_criteria_that_nobody_named_run_nothing_for_an_agent_from_elsewhere(
    clone: Path, evaluated: Evaluated, name: str
) -> None:
    with served() as endpoint:
        endpoint.says("{}")
        text = json.dumps(FOREIGN[name]).replace("ADDRESS", endpoint.address)
        (clone / "test_config.json").write_text(text)
        done = evaluated("samples/hello_world", "x.evalset.json")

    assert done.returncode == 2, done.stderr
    assert "name the file with --config-file-path" in done.stderr
    assert endpoint.headers == []
    assert not (clone.parent / "ran").exists()


def test_criteria_that_are_named_run(clone: Path, evaluated: Evaluated) -> None:
    (clone / "test_config.json").write_text(json.dumps(FOREIGN["a function"]))

    evaluated("samples/hello_world", "x.evalset.json", "--config-file-path", "test_config.json")

    assert (clone.parent / "ran").exists()


def test_criteria_with_metrics_alone_ask_nothing(clone: Path, evaluated: Evaluated) -> None:
    (clone / "test_config.json").write_text('{"criteria": {"response_match_score": 0.0}}')

    done = evaluated("samples/hello_world", "x.evalset.json")

    assert "is not trusted" not in done.stderr
    assert "Run 1." in done.stderr + done.stdout


def test_one_repository_is_one_author(clone: Path) -> None:
    from evaldesk.agents import agent_ref
    from evaldesk.errors import TrustError
    from evaldesk.settings import read_settings

    repository, home = clone.parent / "repository", clone.parent
    for name in ("agents/own", "evalsets"):
        (repository / name).mkdir(parents=True)
    (repository / "agents" / "own" / "agent.py").write_text(OWN)
    path = repository / "evalsets" / "test_config.json"
    path.write_text("{}")
    trust = Trust(read_settings(home / "own", (home / "own",), environment=os.environ))
    ref = agent_ref(str(repository / "agents" / "own"))

    with pytest.raises(TrustError):
        trust.check_criteria_file(ref, path)
    (repository / ".git").mkdir()
    trust.check_criteria_file(ref, path)
