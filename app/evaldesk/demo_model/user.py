"""The script of a simulated user: it says the sentences of its plan, one after the other, and then stops."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.demo_model.conversation import Reply

NAME = "user"

_PLAN = re.compile(r"<plan>\n(.*?)\n</plan>", re.DOTALL)
_STOP = re.compile(r"answer with (\S+) alone")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_PREFIX = re.compile(
    r"^(?:[-*]|\d+[.)])?\s*(?:then |next |finally |and )?(?:you )?(?:ask|tell|want|get)s?"
    r"(?: (?:the agent|it|them))?(?: to| for)? ",
    re.I,
)


def answer(messages: Sequence[Mapping[str, Any]]) -> Reply:
    """The next sentence of the plan; the stop signal when there is none left."""
    system = "\n".join(str(message.get("content", "")) for message in messages if message["role"] == "system")
    n_said = sum(message["role"] == "assistant" for message in messages)
    if "first message is said already" in system:
        n_said = max(0, n_said - 1)
    lines = _lines(system)
    if n_said < len(lines):
        return Reply(lines[n_said])
    stop = _STOP.search(system)
    return Reply(stop[1] if stop else "###STOP###")


def _lines(system: str) -> list[str]:
    plan = _PLAN.search(system)
    sentences = _SENTENCE.split(plan[1]) if plan else []
    said = [_PREFIX.sub("", sentence.strip()) for sentence in sentences]
    return [line[0].upper() + line[1:] for line in said if line]
