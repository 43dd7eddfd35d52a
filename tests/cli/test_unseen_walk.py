"""Each door says the same of an agent whose tool calls cannot be seen, and none of them judges it."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from starlette.datastructures import ImmutableMultiDict
from tests.agents.answering import answering
from tests.agents.endpoint import Answer, completion, served
from tests.cli.door_calls import tool_answer
from tests.desk_client import DeskClient

import evaldesk
from evaldesk.agents.agent import AGENTS
from evaldesk.desk.trash import open_desk
from evaldesk.model import Case, Expected, Turn
from evaldesk.model.visibility import UNSEEN_CALLS, UNSEEN_STATE, UNSEEN_TOKENS
from evaldesk.settings import read_settings
from evaldesk.web.forms.run import judged_lines
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

PORT, TOKEN = 8420, "a-token-of-enough-letters"
ANSWER = {"kind": "message", "text": "It comes."}
FUNCTION = """
import subprocess, sys

def root_agent(message):
    return subprocess.run([sys.executable, "-Sc", "print('It comes.', end='')"], capture_output=True, text=True).stdout
"""
STREAM = FUNCTION.replace("return", "yield")
COMMAND = f"""
import json, sys
for line in sys.stdin:
    for event in ({ANSWER!r}, {{"kind": "done"}}):
        print(json.dumps(event), flush=True)
"""
CRITERIA: dict[str, Any] = {
    "tool_used": {"threshold": 1.0, "tool": "refund", "at_least": 0, "at_most": 0},
    "tool_trajectory_avg_score": 1.0,
    "tool_call_count_v1": 0.0,
    "cost": 1.0,
    "final_state_match": 1.0,
}
OF_CALLS = ("tool_used", "tool_trajectory_avg_score", "tool_call_count_v1")
NEEDS = ("at least 1.00", "at most 0.00")
DENIALS = ("none was made", "not called", "none called", "is not set, expected", ">no calls<")
N_TURNS = 16
KINDS = ("function", "function that streams", "chat endpoint", "command", "address")
KNOWN_BEFORE = {"chat endpoint": {*OF_CALLS, "final_state_match"}, "function": {"final_state_match"}}
KNOWN_BEFORE["function that streams"] = KNOWN_BEFORE["function"]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def target_of(kind: str, place: CommandFolder, opened: ExitStack) -> str:
    """The agent of this kind, as the command line names it."""
    if kind == "chat endpoint":
        endpoint = opened.enter_context(served())
        for _ in range(N_TURNS):
            endpoint.answers.append(Answer({**completion("It comes."), "usage": None}))
        return f"chat:{endpoint.address}"
    if kind == "address":
        address, answers = opened.enter_context(answering())
        for _ in range(3 * N_TURNS):
            answers.gives({"name": "remote", "events": [ANSWER]})
        return f"json:{address}"
    if kind == "command":
        (place.folder / "says.py").write_text(COMMAND)
        return f"command:{sys.executable} -S {place.folder / 'says.py'}"
    (place.agent / "agent.py").write_text(STREAM if "streams" in kind else FUNCTION)
    return str(place.agent)


def written_set(place: CommandFolder) -> str:
    """An eval set of one case that wants a call and a state."""
    turn = {
        "user_content": {"parts": [{"text": "hi"}]},
        "intermediate_data": {"tool_uses": [{"name": "get_order", "args": {}}]},
    }
    cases = [{"eval_id": "a", "conversation": [turn], "final_session_state": {"order": "A7"}}]
    path = place.folder / "cases.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "cases", "eval_cases": cases}))
    (place.folder / "test_config.json").write_text(json.dumps({"criteria": CRITERIA}))
    return str(path)


def plain(text: str) -> str:
    """The text of a page or a terminal in one line."""
    return " ".join(html.unescape(text).split())


def check_text(text: str) -> None:
    """Each metric is unscored with its sentence, and nothing is said to be called or not called."""
    shown = plain(text)
    for name in OF_CALLS:
        assert any(f"{name} unscored (needs {needs}): {UNSEEN_CALLS}" in shown for needs in NEEDS), shown
    assert f"final_state_match unscored (needs at least 1.00): {UNSEEN_STATE}" in shown
    assert "cost unscored (needs at most 1.00): " in shown
    assert not {each for each in DENIALS if each in shown.lower()}, shown


@pytest.mark.parametrize("kind", KINDS)
def test_no_door_judges_calls_that_cannot_be_seen(kind: str, place: CommandFolder, opened: ExitStack) -> None:
    target, path = target_of(kind, place, opened), written_set(place)

    check = place.run("eval", target, path, "--check", "--json")
    done = place.run("eval", target, path, "--junit", place.folder / "junit.xml", "--json")
    shown = place.run("run", "info", "1")
    text = place.run("run", "trial", "1", "a", "1").stdout
    by_tool = tool_answer(place.folder, "get_trial", {"run": "1", "case": "a", "trial": 1})

    foreseen = {each["metric"]: each["reason"] for each in json.loads(check.stdout)["runs"][0]["unscored"]}
    assert foreseen == {
        name: UNSEEN_STATE if name == "final_state_match" else UNSEEN_CALLS for name in KNOWN_BEFORE.get(kind, ())
    }
    assert done.exit_code == 3, done.stderr
    run = json.loads(done.stdout)["runs"][0]
    assert (run["n_unscored"], run["n_scored"]) == (1, 0)
    assert "tool_used: " + UNSEEN_CALLS in plain(place.run("eval", target, path).output)
    assert "Recorded by its answers alone" in shown.stdout
    check_text(text)
    check_text(by_tool["text"])
    assert by_tool["first_divergence"] == f"tool_used: {UNSEEN_CALLS}"
    junit = (place.folder / "junit.xml").read_text()
    assert ElementTree.fromstring(junit).find(".//testcase/skipped") is not None  # noqa: S314 - it is ours
    assert f"tool_used: {UNSEEN_CALLS}" in plain(junit)
    check_pages(place)


def check_pages(place: CommandFolder) -> None:
    """The page of the trial has the sentences, and the page of the run its verdict."""
    with (
        open_desk(read_settings(place.folder, (place.folder,), environment={})) as desk,
        DeskClient(
            create_app(desk, guard_settings(TOKEN, PORT)),
            base_url=f"http://127.0.0.1:{PORT}",
            headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
            follow_redirects=False,
        ) as client,
    ):
        trial, run = client.get("/runs/1/cases/0/trials/0"), client.get("/runs/1")
    assert (trial.status_code, run.status_code) == (200, 200)
    assert UNSEEN_CALLS in plain(trial.text)
    assert UNSEEN_STATE in plain(trial.text)
    assert "unscored" in plain(run.text)
    for page in (trial, run):
        assert not {each for each in DENIALS if each in plain(page.text).lower()}


def test_a_result_in_python_says_so_of_a_function_that_starts_a_process(place: CommandFolder) -> None:
    names: dict[str, Any] = {"__name__": "shop"}
    exec(FUNCTION, names)  # noqa: S102 - the source above

    result = evaldesk.evaluate(names["root_agent"], written_set(place), criteria=CRITERIA, workspace=place.folder)

    (trial,) = result.trials
    reasons = {score.metric: score.reason for score in trial.scores if score.turn is None}
    assert (result.conclusion.outcome, trial.verdict) == ("undecided", "unscored")
    assert {name: reasons[name] for name in OF_CALLS} == dict.fromkeys(OF_CALLS, UNSEEN_CALLS)
    assert (reasons["final_state_match"], reasons["cost"]) == (UNSEEN_STATE, UNSEEN_TOKENS)


def test_the_form_of_a_run_says_so_before_it_is_started() -> None:
    cases = [Case("a", (Turn("hi", Expected(tool_calls=())),), final_state={})]
    metrics = ("tool_trajectory_avg_score", "final_state_match")
    form_values = ImmutableMultiDict[str, object]([("filled", "1"), *(("metric", name) for name in metrics)])

    unscored, _ = judged_lines(form_values, cases, AGENTS["http_chat"].visibility)

    assert len(unscored) == 2
    assert unscored[0].endswith(UNSEEN_CALLS)
    assert unscored[1].endswith(UNSEEN_STATE)
