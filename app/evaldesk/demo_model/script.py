"""The choice of the script: the one whose tools are offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.demo_model import dice, trips
from evaldesk.demo_model.conversation import Reply, read_messages
from evaldesk.demo_model.mistakes import environment_share, slips_of

NAMES = ("dice", "trips", "scripted", "user", "judge")
BEYOND = (
    "I am a scripted demo model, and I only know the tools of the sample agents. "
    "Set EVALDESK_MODEL, or the agent's own model, to a real one, and the key of its provider."
)


def decide(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    seed: int | None,
    share: float | None,
    environment: Mapping[str, str],
) -> Reply:
    """The model's next answer: always the same for the same arguments. Raises Overloaded.

    `share` of mistakes, 0 to 1; None leaves it to the environment for trials and makes none in a chat.
    """
    conversation = read_messages(messages, tools)
    if share is None:
        share = 0.0 if seed is None else environment_share(environment)
    slips = slips_of(seed, conversation.texts, share)
    if conversation.tools & dice.TOOLS:
        return dice.answer(conversation, slips)
    if conversation.tools & trips.TOOLS:
        return trips.answer(conversation, slips)
    return Reply(BEYOND)
