"""The guide to OpenHands' evaluation harness: its configuration, its arguments and its own code, step by step."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.documents.conftest import Snippets
from tests.documents.statements import commands_of

from evaldesk.agents.openhands.kit.config import get_llm_config_arg, get_parser
from evaldesk.agents.openhands.kit.events import CmdRunAction, EventSource, MessageAction
from evaldesk.agents.openhands.kit.shared import codeact_user_response
from evaldesk.agents.openhands.kit.state import State

GUIDE = "openhands_harness"
OWN = """
import os

import pandas as pd
from evaluation.utils.shared import compatibility_for_eval_history_pairs


def get_instruction(instance, metadata):
    return f"Write twice the number {instance.number} to answer.txt."


def your_user_response_function(state: State) -> str:
    return "/exit"


def evaluate_agent_actions(runtime, instance):
    seen = runtime.run_action(CmdRunAction(command="cat answer.txt"))
    assert isinstance(seen, CmdOutputObservation)
    return {"resolved": seen.content.strip() == str(2 * instance["number"])}


"""
MAIN = """

if __name__ == "__main__":
    llm_config, dataset_name, agent_class = get_llm_config_arg("eval_small"), "Numbers", "CodeActAgent"
    max_iterations, eval_note, eval_output_dir, eval_n_limit, num_workers = 5, None, "outputs", None, 1
    your_dataset = pd.DataFrame([{"instance_id": "n3", "number": 3}])
"""
CONFIG = """
[llm.eval_small]
model = "openai/small"
base_url = "{address}"
api_key = "key"
num_retries = 0
"""


def _function(lines: list[str], depths: dict[str, int] | None = None) -> str:
    """A printed function with its indents, which the document has lost; `depths` are those of deeper lines."""
    found, is_inside = [], False
    for line in (line.strip() for line in lines):
        depth = next((depth for begins, depth in (depths or {}).items() if line.startswith(begins)), int(is_inside))
        found.append("    " * depth + line)
        is_inside = is_inside or line.startswith("def ")
    return "\n".join(found) + "\n"


def test_the_groups_of_the_guides_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snippets: Snippets
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("\n".join(snippets(GUIDE)["config"]))

    groups = ("llm", "eval_gpt4_1106_preview_llm", "llm.eval_some_openai_compatible_model_llm")
    found = [get_llm_config_arg(group) for group in groups]

    assert [config and (config.model, config.base_url, config.temperature) for config in found] == [
        ("claude-3-5-sonnet-20241022", None, found[0] and found[0].temperature),
        ("gpt-4-1106-preview", None, 0.0),
        ("openai/MODEL_NAME", "https://OPENAI_COMPATIBLE_URL/v1", 0.0),
    ]
    keys = [config.api_key.get_secret_value() for config in found if config and config.api_key]
    assert keys == ["sk-XXX", "XXX", "XXX"]


def test_the_arguments_of_the_guides_example_are_parsed(document: Callable[[str], str]) -> None:
    general, example = commands_of(document(GUIDE), "poetry")

    args = get_parser().parse_args(shlex.split(example)[4:])

    assert (args.max_iterations, args.agent_cls, args.llm_config) == (10, "CodeActAgent", "llm")
    assert args.task == "Write me a bash script that prints hello world."
    assert [word for word in general.split() if word.startswith("-")] == ["-i", "-t", "-c", "-l"]


def test_the_guides_own_code_runs(tmp_path: Path, snippets: Snippets) -> None:
    """As printed, with two `await` of the guide taken out, which stand where Python and OpenHands allow none."""
    steps = snippets(GUIDE)
    imports = "\n".join(line.strip() for line in steps["step_1"])
    functions = "\n\n".join(_function(steps[f"step_{number}"]).replace("await ", "") for number in (2, 3, 4))
    start = "\n".join(f"    {line.strip()}" for line in steps["step_5"]).replace("await ", "")
    (tmp_path / "run_infer.py").write_text(f"{imports}\n{OWN}{functions}{MAIN}{start}\n")

    with served() as endpoint:
        (tmp_path / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        endpoint.says("", ("c1", "execute_bash", json.dumps({"command": "echo 6 > answer.txt"})))
        endpoint.says("It is done.")
        ended = subprocess.run(
            [sys.executable, "-m", "evaldesk", "benchmark", "--score-key", "resolved", "run_infer.py"],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_KEY": ""},
            capture_output=True,
            text=True,
            check=False,
        )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 passed" in ended.stdout
    (row,) = (tmp_path / "outputs/Numbers/CodeActAgent/small_maxiter_5/output.jsonl").read_text().splitlines()
    written = json.loads(row)
    assert (written["instance_id"], written["test_result"], written["error"]) == ("n3", {"resolved": True}, None)
    assert written["instruction"] == "Write twice the number 3 to answer.txt."
    assert [pair[0].get("action") for pair in written["history"]] == ["message", "run", "message", "message", "finish"]


def test_our_user_offers_to_give_up_when_that_of_the_guide_does(snippets: Snippets) -> None:
    depths = {"# check": 2, "user_msgs": 2, "event": 3, "for event": 3, "if isinstance": 3, "]": 2, "if len": 2}
    depths |= {"# let": 3, "return (": 3, "return msg": 1, "msg\x00": 4, "+ ": 4}
    names = {"State": State, "MessageAction": MessageAction}
    exec(_function(snippets(GUIDE)["codeact"], depths), names)  # noqa: S102 - the function that the guide prints
    printed: Callable[[State | None], str] = names["codeact_user_response"]

    for n_messages in range(4):
        state = State(history=[CmdRunAction("ls"), *(_from_user(number) for number in range(n_messages))])
        said = [
            ("give up" in words, "human help" in words.lower())
            for words in (codeact_user_response(state), printed(state))
        ]
        assert said == [(n_messages >= 2, True)] * 2, n_messages
    assert ("give up" in codeact_user_response(State()), "give up" in printed(None)) == (False, False)


def _from_user(number: int) -> MessageAction:
    message = MessageAction(f"message {number}")
    message._source = EventSource.USER
    return message
