"""`evaldesk eval_set`: sets beside an agent, scenarios of a file, and scenarios that a model proposes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.islands import of_tools

from evaldesk.engine import ChatPlayers
from evaldesk.formats import load_evalset
from evaldesk.formats.adk.scenarios import scenario_id
from evaldesk.model import ErrorRecord, Event, TurnRecord, TurnSpec
from evaldesk.model.evalset import NEEDS_REVIEW

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

pytestmark = of_tools("adk")

SCENARIOS = [
    {"starting_prompt": "Hi", "conversation_plan": "Book a seat."},
    {"starting_prompt": "Hello", "conversation_plan": "Cancel it.", "user_persona": "EXPERT"},
]


def _file(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


def test_a_set_is_made_and_gets_the_scenarios_of_a_file_once(place: CommandFolder) -> None:
    scenarios = _file(place.folder, "s.json", {"scenarios": SCENARIOS})
    session = _file(place.folder, "session.json", {"app_name": "app", "user_id": "u", "state": {"seat": 4}})
    add = ("add_eval_case", place.agent, "booking", "--scenarios_file", scenarios, "--session_input_file", session)

    missing = place.run("eval_set", *add)
    created, again = (place.run("eval_set", "create", place.agent, "booking") for _ in range(2))
    first, second = (place.run("eval_set", *add) for _ in range(2))

    assert "create it first: evaldesk eval_set create" in missing.stderr
    assert created.exit_code == 0, created.output
    assert "is there already" in again.stderr
    assert (missing.exit_code, again.exit_code) == (1, 1)
    assert first.output.count("added to eval set 'booking'") == 2
    assert second.output == "2 of 2 scenarios are in the set already.\n"
    cases = load_evalset(place.agent / "booking.evalset.json").cases
    assert [(case.scenario, dict(case.initial_state)) for case in cases] == [(each, {"seat": 4}) for each in SCENARIOS]
    assert all(isinstance(case.extra["creation_timestamp"], float) for case in cases)


def test_the_id_of_a_scenario_is_that_of_adk() -> None:
    scenarios = pytest.importorskip("google.adk.evaluation.conversation_scenarios")
    scenario = scenarios.ConversationScenario(**SCENARIOS[0])

    text = json.dumps(scenario.model_dump(), sort_keys=True)

    import hashlib

    assert scenario_id(SCENARIOS[0]) == hashlib.sha256(text.encode()).hexdigest()[:8]


@pytest.mark.parametrize("name", ["a-b", "a.b", "", "ä"])
def test_an_id_that_adk_refuses_is_refused(place: CommandFolder, name: str) -> None:
    done = place.run("eval_set", "create", place.agent, name)

    assert "use letters, digits and _ only" in done.stderr
    assert done.exit_code == 1


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[TurnSpec]:
    """The questions to a model that gives three scenarios, one of them twice."""
    asked: list[TurnSpec] = []

    async def play_turn(self: ChatPlayers, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        asked.append(spec)
        text = json.dumps({"scenarios": [SCENARIOS[0], SCENARIOS[0], {**SCENARIOS[1], "starting_prompt": "Third"}]})
        yield TurnRecord("", (Event("agent_message", text=f"Here:\n{text}"),))

    monkeypatch.setattr(ChatPlayers, "play_turn", play_turn)
    return asked


def test_proposed_scenarios_wait_for_a_review(place: CommandFolder, prompts: list[TurnSpec]) -> None:
    config = {"count": 5, "model_name": "gemini-2.5-flash", "generation_instruction": "Changes of mind."}
    file = _file(place.folder, "generation.json", config)

    done = place.run(
        "eval_set", "generate_eval_cases", place.agent, "trips", "--user_simulation_config_file", file, "--trust"
    )

    assert done.exit_code == 0, f"{done.output}{done.exception}"
    cases = load_evalset(place.agent / "trips.evalset.json").cases
    assert [case.scenario and case.scenario["starting_prompt"] for case in cases] == ["Hi", "Third"]
    assert all(NEEDS_REVIEW in case.tags for case in cases)
    assert "no run plays them before the tag needs-review is taken away" in done.output
    (spec,) = prompts
    assert "Changes of mind." in spec.message
    assert '"gemini/gemini-2.5-flash"' in (spec.agent.declared or "")


@pytest.mark.parametrize(
    ("config", "words"),
    [({"count": 0, "model_name": "m"}, "count must be 1 to 50"), ({"count": 2}, "name a model"), ({}, "count")],
    ids=["count", "model", "empty"],
)
def test_a_wrong_config_is_refused_before_a_model_is_asked(
    place: CommandFolder, prompts: list[TurnSpec], config: dict[str, Any], words: str
) -> None:
    file = _file(place.folder, "generation.json", config)

    done = place.run("eval_set", "generate_eval_cases", place.agent, "trips", "--user_simulation_config_file", file)

    assert words in done.stderr
    assert not prompts


def test_an_answer_without_scenarios_adds_nothing(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play_turn(self: ChatPlayers, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        error = ErrorRecord("model", "no key")
        yield TurnRecord("", (Event("error", error=error),))

    monkeypatch.setattr(ChatPlayers, "play_turn", play_turn)
    file = _file(place.folder, "generation.json", {"count": 2, "model_name": "m"})

    done = place.run(
        "eval_set", "generate_eval_cases", place.agent, "trips", "--user_simulation_config_file", file, "--trust"
    )

    assert "no key" in str(done.exception) + done.stderr
    assert not (place.agent / "trips.evalset.json").exists()


ADD = ("--scenarios_file", "../s.json", "--session_input_file", "../session.json")
BESIDE = (
    ("create", "my", "booking"),
    ("create", "my", "booking"),
    ("create", "my", "a-b"),
    ("create", "none", "booking"),
    ("add_eval_case", "my", "booking", *ADD),
    ("add_eval_case", "my", "booking", *ADD),
    ("add_eval_case", "my", "none", *ADD),
    ("add_eval_case", "my", "booking", "--scenarios_file", "../none.json", *ADD[2:]),
    ("add_eval_case", "my", "booking", "--scenarios_file", "../session.json", *ADD[2:]),
)


@pytest.mark.long
def test_adk_eval_set_and_ours_write_the_same_set_and_end_alike(tmp_path: Path) -> None:
    """A persona by its name is left out: ADK writes all its text into the case, whose id is that of the text."""
    pytest.importorskip("google.adk.cli")
    _file(tmp_path, "s.json", {"scenarios": SCENARIOS[:1]})
    _file(tmp_path, "session.json", {"app_name": "app", "user_id": "u", "state": {"seat": 4}})

    theirs = _eval_sets(tmp_path / "adk", "google.adk.cli")
    ours = _eval_sets(tmp_path / "own", "evaldesk")

    assert ours == theirs
    assert ours[0] == [0, 1, 1, 2, 0, 0, 1, 2, 1]


def _eval_sets(folder: Path, module: str) -> tuple[list[int], Any]:
    """The exit codes of the commands, and the set with its numbers replaced by their types."""
    (folder / "my").mkdir(parents=True)
    (folder / "my" / "__init__.py").write_text("")
    command = [sys.executable, "-W", "ignore", "-m", module, "eval_set"]
    codes = [
        subprocess.run(
            [*command, *arguments], cwd=folder, env=dict(os.environ), capture_output=True, check=False, timeout=300
        ).returncode
        for arguments in BESIDE
    ]
    text = (folder / "my" / "booking.evalset.json").read_text()
    return codes, json.loads(text, parse_float=lambda _: "a number")
