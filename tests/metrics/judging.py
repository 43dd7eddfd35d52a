"""Judges for tests, in place of `complete`: the scripted one, and one that replies what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.demo_model import judge
from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import Usage

PANEL = "evaldesk.metrics.judges.panel.complete"


async def scripted(call: ModelCall) -> ModelReply:
    """The scripted judge of the demo, without LiteLLM around it."""
    share = float(call.model.partition("mistakes=")[2] or 0.0)
    text = judge.reply(call.messages, seed=call.seed, share=share)
    return ModelReply(text, (), Usage(call.model, tokens_in=7, tokens_out=3, cost=0.5))


@dataclass
class Told:
    """Replies one after the other, an exception being raised; keeps what it was asked."""

    replies: Sequence[str | Exception]
    calls: list[ModelCall] = field(default_factory=list)
    finish_reason: str = "stop"

    async def __call__(self, call: ModelCall) -> ModelReply:
        reply = self.replies[len(self.calls) % len(self.replies)]
        self.calls.append(call)
        if isinstance(reply, Exception):
            raise reply
        return ModelReply(reply, (), Usage(call.model, tokens_in=7, tokens_out=3, cost=0.5), self.finish_reason)

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """System and user message of each call."""
        found: list[Any] = [[message["content"] for message in call.messages] for call in self.calls]
        return [(system, user) for system, user in found]


Install = Callable[[Any], Any]
DOWN = ModelError("m: rate limit", kind="rate_limit")
