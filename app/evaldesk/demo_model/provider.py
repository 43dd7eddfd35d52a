"""The scripted model as a custom provider of LiteLLM: `demo/dice`, `demo/trips?mistakes=0.3&delay_ms=0`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from evaldesk.demo_model import judge, user
from evaldesk.demo_model.conversation import Reply
from evaldesk.demo_model.mistakes import Overloaded
from evaldesk.demo_model.script import NAMES, decide

DELAY_VARIABLE = "EVALDESK_DEMO_DELAY_MS"
DEFAULT_DELAY_MS = 20.0


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of a model name. `delay_ms` is the pause before each streamed word."""

    script: str
    share: float | None = None
    delay_ms: float = DEFAULT_DELAY_MS


def read_name(model: str, default_delay_ms: float = DEFAULT_DELAY_MS) -> Name:
    """The parts of `dice?mistakes=0.3`. Raises ValueError for a script or a number that is none."""
    script, _, query = model.partition("?")
    if script not in NAMES:
        raise ValueError(f"no scripted model {script!r}; there are: {', '.join(f'demo/{name}' for name in NAMES)}")
    options = {name: float(values[-1]) for name, values in parse_qs(query, strict_parsing=bool(query)).items()}
    unknown = set(options) - {"mistakes", "delay_ms"}
    if unknown:
        raise ValueError(f"no option {min(unknown)!r} of the scripted model; there are: mistakes, delay_ms")
    return Name(script, options.get("mistakes"), options.get("delay_ms", default_delay_ms))


def prices() -> dict[str, dict[str, Any]]:
    """Entries for LiteLLM's price map: free. A model that is not in it costs a slow search on every call."""
    free = {"litellm_provider": "demo", "mode": "chat", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
    return {f"demo/{name}": dict(free) for name in NAMES}


def demo_provider() -> Any:
    """The provider; its class can only be made once LiteLLM is imported."""
    import litellm

    class DemoProvider(litellm.CustomLLM):  # type: ignore[misc]
        """Answers by rules. Calls pass by the whole of LiteLLM, so that an agent cannot tell the difference."""

        async def acompletion(
            self, model: str, messages: list[Any], optional_params: dict[str, Any], **_: Any
        ) -> litellm.ModelResponse:
            reply = _reply(model, messages, optional_params)
            message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
            if reply.calls:
                message["tool_calls"] = _calls(reply, messages)
            reason = "tool_calls" if reply.calls else "stop"
            response = litellm.ModelResponse(
                model=model,
                choices=[{"index": 0, "finish_reason": reason, "message": message}],
                usage=_usage(messages, optional_params, reply),
            )
            response._hidden_params = {"response_cost": 0.0}  # or LiteLLM searches its price map three times
            return response

        async def astreaming(
            self, model: str, messages: list[Any], optional_params: dict[str, Any], **_: Any
        ) -> AsyncIterator[Any]:
            reply = _reply(model, messages, optional_params)
            delay_s = read_name(model, _delay_ms()).delay_ms / 1000
            for word in re.findall(r"\S+\s*", reply.text):
                await asyncio.sleep(delay_s)
                yield _chunk(text=word)
            for index, call in enumerate(_calls(reply, messages)):
                yield _chunk(tool_use={**call, "index": index})
            reason = "tool_calls" if reply.calls else "stop"
            yield _chunk(finish_reason=reason, is_finished=True, usage=_usage(messages, optional_params, reply))

    def _reply(model: str, messages: list[Any], options: dict[str, Any]) -> Reply:
        try:
            name = read_name(model, _delay_ms())
        except ValueError as error:
            raise litellm.NotFoundError(str(error), model=model, llm_provider="demo") from None
        if name.script == user.NAME:
            return user.answer(messages)
        if name.script == judge.NAME:
            return Reply(judge.reply(messages, seed=options.get("seed"), share=name.share or 0.0))
        try:
            return decide(
                messages,
                options.get("tools") or (),
                seed=options.get("seed"),
                share=name.share,
                environment=os.environ,
            )
        except Overloaded:
            raise _overloaded(model) from None

    def _overloaded(model: str) -> Exception:
        error: Exception = litellm.ServiceUnavailableError(
            "the scripted demo model pretends to be overloaded", model=model, llm_provider="demo"
        )
        error.litellm_response_headers = {"x-should-retry": "false"}  # type: ignore[attr-defined]
        return error

    return DemoProvider()


def _delay_ms() -> float:
    try:
        return max(0.0, float(os.environ.get(DELAY_VARIABLE) or DEFAULT_DELAY_MS))
    except ValueError:
        return DEFAULT_DELAY_MS


def _calls(reply: Reply, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The tool calls in OpenAI's shape; ids count the messages, so that the same conversation has the same ids."""
    return [
        {
            "id": f"call_{len(messages)}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, ensure_ascii=False)},
        }
        for index, (name, args) in enumerate(reply.calls)
    ]


def _usage(messages: Sequence[Any], options: dict[str, Any], reply: Reply) -> dict[str, int]:
    """Tokens at four characters each, as a rough count."""
    tokens_in = len(json.dumps([list(messages), options.get("tools") or []])) // 4
    tokens_out = max(1, (len(reply.text) + len(json.dumps(reply.calls)) * bool(reply.calls)) // 4)
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _chunk(**fields: Any) -> dict[str, Any]:
    empty = {"text": "", "is_finished": False, "finish_reason": "", "index": 0, "tool_use": None, "usage": None}
    return {**empty, **fields}
