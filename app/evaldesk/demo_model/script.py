"""The choice of the script, the one whose tools are offered, and the script of a simulated user."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.demo_model import dice, trips
from evaldesk.demo_model.conversation import Conversation, Reply, SpokenTurn, read_messages
from evaldesk.demo_model.mistakes import OVERLOADED, Overloaded, Slips, environment_share, slips_of

NAMES = ("dice", "trips", "scripted", "user", "judge")
BEYOND = (
    "I am a scripted demo model, and I only know the tools of the sample agents. "
    "Set EVALDESK_MODEL, or the agent's own model, to a real one, and the key of its provider."
)

_PLAN = re.compile(r"<plan>\n((?:(?!<plan>\n).)*?)\n</plan>", re.DOTALL)
_STOP = re.compile(r"answer with (\S+) alone")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_PREFIX = re.compile(
    r"^(?:[-*]|\d+[.)])?\s*(?:then |next |finally |and )?(?:you )?(?:ask|tell|want|get)s?"
    r"(?: (?:the agent|it|them))?(?: to| for)? ",
    re.I,
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
    return _answer(conversation, slips_of(seed, conversation.texts, share))


def _answer(conversation: Conversation, slips: Slips) -> Reply:
    if conversation.tools & dice.TOOLS:
        return dice.answer(conversation, slips)
    if conversation.tools & trips.TOOLS:
        return trips.answer(conversation, slips)
    return Reply(BEYOND)


def mistake(texts: Sequence[str], tools: Collection[str], *, seed: int, share: float) -> str:
    """The mistake in the answer to the last of the messages, told before a tool is called; empty for a right one.

    It is OVERLOADED where the model gives no answer.
    """
    conversation = Conversation("", [SpokenTurn(text) for text in texts], frozenset(tools))
    slips = _NotedSlips(share, slips_of(seed, texts, share).key)
    try:
        _answer(conversation, slips)
    except Overloaded:
        return OVERLOADED
    return next(iter(slips.noted), "")


@dataclass(frozen=True, slots=True)
class _NotedSlips(Slips):
    """Keeps the mistakes that were picked."""

    noted: list[str] = field(default_factory=list)

    def pick(self, kinds: Sequence[str]) -> str:
        """One of `kinds`, or empty."""
        picked = Slips.pick(self, kinds)
        if picked:
            self.noted.append(picked)
        return picked


def next_sentence(messages: Sequence[Mapping[str, Any]]) -> Reply:
    """The next sentence of the plan of a simulated user; the stop signal when there is none left."""
    system = "\n".join(str(message.get("content", "")) for message in messages if message["role"] == "system")
    n_spoken = sum(message["role"] == "assistant" for message in messages)
    if "first message is said already" in system:
        n_spoken = max(0, n_spoken - 1)
    lines = _lines(system)
    if n_spoken < len(lines):
        return Reply(lines[n_spoken])
    stop = _STOP.search(system)
    return Reply(stop[1] if stop else "###STOP###")


def _lines(system: str) -> list[str]:
    plan = _PLAN.search(system)
    sentences = _SENTENCE.split(plan[1]) if plan else []
    lines = [_PREFIX.sub("", sentence.strip()) for sentence in sentences]
    return [line[0].upper() + line[1:] for line in lines if line]
