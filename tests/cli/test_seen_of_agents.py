"""What cannot be seen of an agent is said before a run: by the check, the list of agents and the doctor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.agents.endpoint import Endpoint, served

from evaldesk.cli import cli
from evaldesk.model.visibility import UNSEEN_CALLS, UNSEEN_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import CommandFolder

OF_CHAT = "tokens seen in part; tool calls, results, inner calls and state not seen"
OF_FUNCTION = "state seen; tool calls, results, inner calls and tokens seen in part"
CALLS, STATE = "tool_used", "final_state_match"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with served() as endpoint:
        yield endpoint


def checked(place: CommandFolder, agent: object) -> tuple[str, dict[str, Any]]:
    path = place.folder / "cases.evalset.json"
    cases = [
        {"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}], "final_session_state": {}}
    ]
    path.write_text(json.dumps({"eval_set_id": "cases", "eval_cases": cases}))
    (place.folder / "test_config.json").write_text(
        json.dumps({"criteria": {CALLS: {"threshold": 1.0, "tool": "refund", "at_least": 0, "at_most": 0}, STATE: 1.0}})
    )
    words = ("eval", agent, path, "--check")
    text, as_json = place.run(*words), place.run(*words, "--json")
    assert (text.exit_code, as_json.exit_code) == (0, 0), text.output
    return text.output, json.loads(as_json.stdout)["runs"][0]


def test_a_check_names_the_metrics_that_a_chat_endpoint_leaves_unscored(
    place: CommandFolder, endpoint: Endpoint
) -> None:
    output, facts = checked(place, f"chat:{endpoint.address}")

    assert f": {OF_CHAT}" in output
    assert {each["metric"]: each["reason"] for each in facts["unscored"]} == {CALLS: UNSEEN_CALLS, STATE: UNSEEN_STATE}
    assert (facts["seen"]["calls"], facts["seen"]["tokens"], facts["seen"]["state"]) == ("none", "part", "none")


def test_a_check_leaves_nothing_unscored_of_a_function_that_takes_its_state(place: CommandFolder) -> None:
    output, facts = checked(place, place.agent)

    assert f": {OF_FUNCTION}" in output
    assert facts["unscored"] == []


def test_agents_and_the_doctor_say_how_to_make_a_function_seen(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.agent / "agent.py").write_text("def root_agent(message):\n    return 'hi'\n")

    agents = CliRunner().invoke(cli, ["agents", "--workspace", str(place.folder)])
    doctor = CliRunner().invoke(cli, ["doctor", "--workspace", str(place.folder)])

    assert f"  {OF_FUNCTION.removeprefix('state seen; ')}; state not seen\n  {UNSEEN_STATE}" in agents.output
    assert UNSEEN_STATE in " ".join(doctor.output.split())
