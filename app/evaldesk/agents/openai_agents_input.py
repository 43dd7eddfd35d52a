"""What the OpenAI Agents SDK is given: the conversation until now, and another model where a run asks for one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from evaldesk.agents.history import chat_messages
from evaldesk.errors import ModelError
from evaldesk.llm import PATIENT
from evaldesk.model import ModelOptions, Session, TurnRecord


def input_items(turns: Iterable[TurnRecord]) -> list[Any]:
    """The turns in the shape of the Responses API."""
    return [item for message in chat_messages(turns) for item in _items(dict(message))]


def model_of(session: Session) -> dict[str, Any]:
    """The fields of a RunConfig that say which model is asked, where and how. Raises ModelError."""
    from agents import ModelSettings

    asked = session.model_options
    settings = {"temperature": asked.temperature, "top_p": asked.top_p, "max_tokens": asked.max_tokens}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if asked.extra:
        given["extra_body"] = dict(asked.extra)
    fields: dict[str, Any] = {"model_settings": ModelSettings(**given)} if given else {}
    if session.model or asked.base_url:
        fields["model"] = _model(session.model, asked)
    return fields


def _model(name: str | None, asked: ModelOptions) -> Any:
    from agents import OpenAIChatCompletionsModel

    provider, slash, bare = (name or "").partition("/")
    if asked.base_url:
        model = bare if slash and provider in {"openai", "hosted_vllm"} else name
        if not model:
            raise ModelError("name the model of the endpoint, too: --model NAME", kind="unknown_model", is_fatal=True)
        return OpenAIChatCompletionsModel(model, _client(asked))
    if not slash or provider == "openai":
        return bare or name
    from agents.extensions.models.litellm_model import LitellmModel

    from evaldesk.llm.client import open_litellm

    open_litellm()
    return LitellmModel(name or "")


def _client(asked: ModelOptions) -> Any:
    from openai import AsyncOpenAI

    variable = asked.api_key_env or "OPENAI_API_KEY"
    key = os.environ.get(variable)
    if asked.api_key_env and not key:
        raise ModelError(f"the environment has no {variable}; set it", kind="authentication", is_fatal=True)
    return AsyncOpenAI(base_url=asked.base_url, api_key=key or "none", max_retries=PATIENT.n_attempts - 1)


def _items(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    if message.get("content"):
        yield {"role": message["role"], "content": message["content"]}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {
            "type": "function_call",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }
