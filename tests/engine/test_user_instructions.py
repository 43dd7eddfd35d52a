"""What a simulated user is told, and how a configuration file names it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.engine.simulated import SCENARIO

from evaldesk.agents.users.users import UserState, instructions_of
from evaldesk.errors import UsageError
from evaldesk.model.options import UserConfig, UserStop
from evaldesk.settings import read_settings
from evaldesk.wire import from_json, to_json


@pytest.mark.parametrize(
    ("persona", "shown"),
    [
        ("EXPERT", "know the subject well"),
        ("a pirate", "a pirate"),
        (
            {"id": "p", "description": "terse", "behaviors": [{"name": "short", "behavior_instructions": ["3 words"]}]},
            "terse\n- short: \n  - 3 words",
        ),
        (None, "ordinary person"),
    ],
)
def test_the_instructions_hold_plan_and_persona(persona: Any, shown: str) -> None:
    text = instructions_of({**SCENARIO, "user_persona": persona}, UserConfig())

    assert shown in text
    assert "Book a flight. Then leave." in text
    assert "{{" not in text


def test_instructions_of_ones_own_must_hold_the_plan_and_the_signal() -> None:
    own = UserConfig(instructions="Plan: {{conversation_plan}}. End: {{ stop_signal }}.", stop_signal="BYE")

    assert instructions_of({"conversation_plan": "fly"}, own) == "Plan: fly. End: BYE."
    with pytest.raises(UsageError, match="stop_signal"):
        UserConfig(instructions="{{ conversation_plan }}")


def test_the_configuration_file_names_the_user(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text(
        '[user]\nmodel = "openai/x"\nmax_turns = 5\n[user.options]\ntemperature = 0\n'
    )

    user = read_settings(tmp_path, (), environment={}).user

    assert (user.model, user.max_turns, user.options.temperature) == ("openai/x", 5, 0)
    assert from_json(to_json(user), UserConfig) == user


def test_a_wrong_key_of_the_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('[user]\nmodl = "x"\n')

    with pytest.raises(UsageError, match=r"\[user\] may have the keys"):
        read_settings(tmp_path, (), environment={})


def test_the_documentation_shows_what_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulated-users.md").read_text("utf-8")
    (tmp_path / "evaldesk.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    (case,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)  # noqa: S102 - our own documentation

    user = read_settings(tmp_path, (), environment={}).user
    instructions = instructions_of(json.loads(case)["conversation_scenario"], user)

    assert (user.max_turns, user.options.api_key_env) == (12, "USER_MODEL_KEY")
    assert "You ordered a lamp last week." in instructions
    assert names["user_response_fn"](UserState([], {}, "It is refunded.", 2)) == "/exit"
    assert names["user_response_fn"](UserState([], {}, "No.", 3)) is None
    assert all(f"`{reason}`" in text for reason in get_args(UserStop))
