"""Model calls of agents without a model of their own; the run or the chat names model and endpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evaldesk.agents.message_events import MessageEvents
from evaldesk.errors import ModelError
from evaldesk.llm import DEFAULT_RETRIES, ModelCall, ModelReply, complete
from evaldesk.llm.call import SAMPLING
from evaldesk.llm.endpoints import KEY_OF, key_of
from evaldesk.model import Event, JsonObject, ModelOptions, Session
from evaldesk.model.chat import assistant_message

_RESERVED_FIELDS = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "api_key", "api_base", "base_url", "n"}
)


def model_call(
    session: Session,
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject] = (),
    options: Mapping[str, Any] | None = None,
) -> ModelCall:
    """A call of the session's model. `options` of the chat completion override the session's options.

    Raises ModelError when the session has no model.
    """
    options = options or {}
    session_options = session.model_options
    model = options.get("model") or session.model
    if not model:
        sentence = "this agent has no model of its own; name one with --model, or choose one in the form"
        raise ModelError(sentence, kind="no_model", is_fatal=True)
    call_options = {
        name: value for name, value in options.items() if name not in _RESERVED_FIELDS and value is not None
    }
    sampling = {"seed": session.seed} | {
        name: call_options.pop(name) for name in (*SAMPLING, "seed") if name in call_options
    }
    extra = {**session_options.extra, **call_options}
    return ModelCall.from_options(session_options, model, list(messages), tools=list(tools), extra=extra, **sampling)


def endpoint_client(model: str, options: ModelOptions) -> tuple[Any, str]:
    """A client of the package `openai` for the endpoint of a run, and the model's name there. Raises ModelError."""
    from openai import AsyncOpenAI

    key = key_of(ModelCall(model or "the model", (), api_key_env=options.api_key_env)) or os.environ.get(
        "OPENAI_API_KEY", "none"
    )
    provider, _, model_name = model.partition("/")
    client = AsyncOpenAI(base_url=options.base_url, api_key=key, max_retries=DEFAULT_RETRIES.n_attempts - 1)
    return client, model_name if model_name and provider in KEY_OF else model


async def ask(session: Session, call: ModelCall, on_text: Callable[[str], None] | None = None) -> ModelReply:
    """Call the model with the session's retries. Raises ModelError."""
    return await complete(call, on_text, retry_policy=DEFAULT_RETRIES.with_retries(session.model_options.n_retries))


async def ask_and_report(
    session: Session,
    events: MessageEvents,
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject],
    options: Mapping[str, Any],
) -> tuple[ModelReply, dict[str, Any]]:
    """Call the session's model, send the events of the reply, and return it, also as a chat message. Raises ModelError.

    The message has no `content` for a reply without text.
    """
    events.catch_up(messages)
    reply = await ask(session, model_call(session, messages, tools, options))
    events.send(Event("usage", usage=reply.usage))
    message = {key: value for key, value in reply_message(reply).items() if value is not None}
    events.answer(message)
    return reply, message


def reply_message(reply: ModelReply) -> JsonObject:
    """The reply as a message of the conversation."""
    return assistant_message(reply.text, [(call.id, call.name, call.arguments) for call in reply.tool_calls])


def reply_usage(reply: ModelReply) -> dict[str, int]:
    """The tokens of the reply in OpenAI's form."""
    usage = reply.usage
    return {
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
    }
