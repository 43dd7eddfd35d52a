"""What the page of a run says of recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.model import AgentRef, RunConfig
from evaldesk.model.options import Recording, UserConfig
from evaldesk.pages.runs.facts import recording_sentence, user_sentence


def config(mode: Any = "off", kind: str = "", **fields: Any) -> RunConfig:
    return RunConfig(AgentRef("a", "a:b", kind=kind), "set", recording=Recording(mode), **fields)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            config("replay"),
            "All answers of models come from the recording, and so do those of the tools whose calls",
        ),
        (config("auto"), "where it has them"),
        (config(kind="replay"), "from a recorded transcript"),
    ],
)
def test_replayed_trials_are_said_to_be_no_independent_repeats(run: RunConfig, said: str) -> None:
    sentence = recording_sentence(run)

    assert said in sentence
    assert "not an independent trial" in sentence
    assert repeats_recorded(run)


def test_a_run_of_its_own_answers_says_nothing() -> None:
    assert not repeats_recorded(config())
    assert not repeats_recorded(config("record"))
    assert recording_sentence(config()) == ""
    assert "independent" not in recording_sentence(config("record"))


def test_the_simulated_user_is_named_with_its_cap() -> None:
    assert user_sentence(config()) == ""
    assert user_sentence(config(user=UserConfig("openai/x", max_turns=5))) == (
        "openai/x plays the user of a scenario, at most 5 messages"
    )
