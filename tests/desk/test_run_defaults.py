"""What a run leaves open is as the settings of the workspace have it."""

from __future__ import annotations

from pathlib import Path

from evaldesk.desk.run_defaults import with_defaults
from evaldesk.desk.run_plan import RunOptions
from evaldesk.model import Limits, ModelOptions
from evaldesk.model.recording import Recording
from evaldesk.model.user import UserConfig
from evaldesk.settings import Settings

SETTINGS = Settings(
    Path("/home"),
    (),
    model_options=ModelOptions(temperature=0.5, max_tokens=9),
    limits=Limits(turn_timeout_s=5, tool_timeout_s=6),
    user=UserConfig("openai/usual", max_turns=4),
    recording=Recording("auto"),
)


def test_what_is_asked_for_stays_and_the_rest_is_filled_up() -> None:
    asked = RunOptions(turn_timeout_s=1, model_options=ModelOptions(temperature=0))

    found = with_defaults(asked, SETTINGS, "")

    assert (found.turn_timeout_s, found.tool_timeout_s, found.judge_timeout_s) == (1, 6, None)
    assert (found.model_options.temperature, found.model_options.max_tokens) == (0, 9)
    assert found.user == UserConfig("openai/usual", max_turns=4)
    assert found.recording == Recording("auto", folder="/home/.evaldesk/recordings")


def test_a_named_model_plays_the_user_whoever_describes_it() -> None:
    described = UserConfig("openai/described", max_turns=2)

    usual = with_defaults(RunOptions(user_model="openai/named"), SETTINGS, "").user
    other = with_defaults(RunOptions(user=described, user_model="openai/named"), SETTINGS, "").user

    assert usual == UserConfig("openai/named", max_turns=4)
    assert other == UserConfig("openai/named", max_turns=2)
