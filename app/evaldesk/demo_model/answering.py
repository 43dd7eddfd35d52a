"""One answer of the scripted model, for every caller: its text, its tool calls, its tokens."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from evaldesk.demo_model import judge
from evaldesk.demo_model.conversation import Reply
from evaldesk.demo_model.script import NAMES, decide, next_sentence

DELAY_VARIABLE = "EVALDESK_DEMO_DELAY_MS"
DEFAULT_DELAY_MS = 20.0


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of a model name. `delay_ms` is the pause before each streamed word."""

    script: str
    share: float | None = None
    delay_ms: float = DEFAULT_DELAY_MS


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the model; `calls` have the shape of OpenAI's tool calls. `delay_s` is before each word."""

    text: str
    calls: Sequence[dict[str, Any]]
    tokens_in: int
    tokens_out: int
    delay_s: float

    @property
    def finish_reason(self) -> str:
        """`tool_calls` or `stop`."""
        return "tool_calls" if self.calls else "stop"

    @property
    def words(self) -> list[str]:
        """The text in the parts in which it is streamed."""
        first, *others = re.findall(r"\S+\s*", self.text) or [""]
        return [self.text[: len(self.text) - len(self.text.lstrip())] + first, *others] if first else []


def answer(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = (), *, seed: int | None
) -> Answer:
    """The answer of `model`, a name without its `demo/`. Raises ValueError for a wrong name, and Overloaded."""
    name = read_name(model, _delay_ms())
    reply = _reply(name, messages, tools, seed)
    # four characters a token, as a rough count; a provider is sent no fields without a value
    sent_messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
    tokens_in = len(json.dumps([sent_messages, list(tools)])) // 4
    tokens_out = max(1, (len(reply.text) + len(json.dumps(reply.calls)) * bool(reply.calls)) // 4)
    return Answer(reply.text, _calls(reply, len(messages)), tokens_in, tokens_out, name.delay_ms / 1000)


def read_name(model: str, default_delay_ms: float = DEFAULT_DELAY_MS) -> Name:
    """The parts of `dice?mistakes=0.3`. Raises ValueError for a script or a number that is none."""
    script, _, query = model.partition("?")
    if script not in NAMES:
        raise ValueError(f"no scripted model {script!r}; there are: {', '.join(f'demo/{name}' for name in NAMES)}")
    options = {name: _number(name, values[-1]) for name, values in parse_qs(query, strict_parsing=bool(query)).items()}
    unknown = set(options) - {"mistakes", "delay_ms"}
    if unknown:
        raise ValueError(f"no option {min(unknown)!r} of the scripted model; there are: mistakes, delay_ms")
    return Name(script, options.get("mistakes"), options.get("delay_ms", default_delay_ms))


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} of the scripted model must be a number, got {text[:80]!r}") from None


def _reply(
    name: Name, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], seed: int | None
) -> Reply:
    if name.script == "user":
        return next_sentence(messages)
    if name.script == "judge":
        return Reply(judge.reply(messages, seed=seed, share=name.share or 0.0))
    return decide(messages, tools, seed=seed, share=name.share, environment=os.environ)


def _delay_ms() -> float:
    try:
        return max(0.0, float(os.environ.get(DELAY_VARIABLE) or DEFAULT_DELAY_MS))
    except ValueError:
        return DEFAULT_DELAY_MS


def _calls(reply: Reply, n_messages: int) -> list[dict[str, Any]]:
    """The tool calls in OpenAI's shape; ids count the messages, so that the same conversation has the same ids."""
    return [
        {
            "id": f"call_{n_messages}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, ensure_ascii=False)},
        }
        for index, (name, args) in enumerate(reply.calls)
    ]
