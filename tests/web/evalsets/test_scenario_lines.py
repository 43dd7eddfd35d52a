"""What the line of a scenario case begins with."""

from __future__ import annotations

import pytest

from evaldesk.model import Case
from evaldesk.pages.case_list import CaseLine


@pytest.mark.parametrize(
    ("scenario", "shown"),
    [
        ({"starting_prompt": "Hi", "conversation_plan": "Ask."}, "Hi"),
        ({"starting_prompt": "", "conversation_plan": "Ask."}, "Ask."),
        ({}, ""),
    ],
    ids=["prompt", "plan", "nothing"],
)
def test_a_scenario_shows_how_it_begins_or_what_its_user_does(scenario: dict[str, str], shown: str) -> None:
    assert CaseLine("k", Case("c", scenario=dict(scenario)), "scenario", "").first_message == shown
