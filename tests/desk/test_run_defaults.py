"""What a run leaves open is as the settings of the workspace have it."""

from __future__ import annotations

from pathlib import Path

from evaldesk.desk.runs.plan import RunOptions, apply_options, with_defaults
from evaldesk.model import AgentRef, Limits, ModelOptions, RunConfig
from evaldesk.model.options import Recording, UserConfig
from evaldesk.settings import Settings

SETTINGS = Settings(
    Path("/home"),
    (),
    model_options=ModelOptions(temperature=0.5, max_tokens=9),
    limits=Limits(turn_timeout_s=5, tool_timeout_s=6),
    user=UserConfig("openai/usual", max_turns=4),
    recording=Recording("auto"),
)


def frozen_by(options: RunOptions) -> RunConfig:
    return apply_options(RunConfig(AgentRef("dice", "dice:agent"), "set"), with_defaults(options, SETTINGS, ""), ())


def test_what_is_asked_for_stays_and_the_rest_is_filled_up() -> None:
    asked = RunOptions(turn_timeout_s=1, temperature=0)

    found = frozen_by(asked)

    assert found.limits == Limits(turn_timeout_s=1, tool_timeout_s=6)
    assert (found.model_options.temperature, found.model_options.max_tokens) == (0, 9)
    assert found.user == UserConfig("openai/usual", max_turns=4, models=("openai/usual",))
    assert found.recording == Recording("auto")


def test_a_named_model_plays_the_user_whoever_describes_it() -> None:
    described = UserConfig("openai/described", max_turns=2)

    usual = frozen_by(RunOptions(user_model="openai/named")).user
    other = frozen_by(RunOptions(user=described, user_model="openai/named")).user

    assert usual == UserConfig("openai/named", max_turns=4, models=("openai/usual",))
    assert other == UserConfig("openai/named", max_turns=2, models=("openai/usual",))
