"""A LiteLLM that knows only providers of one's own: on the path of a desk that plays nothing but the scripted model.

The real one takes four CPU seconds to import, in each worker process. `tests/agents/test_litellm_double.py` holds this
one to it: text, tool calls, tokens, pieces and errors of the scripted model are the same through both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any


class CustomLLM:
    """What a provider of one's own derives from."""


class ModelResponse:
    """An answer in OpenAI's shape, its parts as attributes; falsy parts are None."""

    def __init__(self, **fields: Any) -> None:
        self.choices: list[Any] = []
        self.usage: Any = None
        for name, value in fields.items():
            setattr(self, name, _parts(value))


class _ProviderError(Exception):
    status_code = 500

    def __init__(self, message: str, *, model: str, llm_provider: str) -> None:
        super().__init__(f"litellm.{type(self).__name__}: {message}")
        self.message = str(self)
        self.model = model
        self.llm_provider = llm_provider


class NotFoundError(_ProviderError):
    """No such model."""

    status_code = 404


class ServiceUnavailableError(_ProviderError):
    """The provider has too much to do."""

    status_code = 503


class MidStreamFallbackError(ServiceUnavailableError):
    """The provider had too much to do when it was asked for a piece: its headers are lost, as with the real one."""


types = SimpleNamespace(utils=SimpleNamespace(Delta=SimpleNamespace))
LlmProviders: Sequence[Any] = ()
models_by_provider: Mapping[str, Any] = {}
custom_provider_map: list[dict[str, Any]] = []
callbacks: list[Any] = []
success_callback: list[Any] = []


def register_model(prices: Mapping[str, Any]) -> None:
    """Nothing here has a price."""


async def acompletion(model: str, messages: list[Any], *, stream: bool = False, **options: Any) -> Any:
    """The answer of the provider that the name of the model begins with; its pieces where it is streamed."""
    provider, _, name = model.partition("/")
    messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
    (handler,) = (entry["custom_handler"] for entry in custom_provider_map if entry["provider"] == provider)
    if stream:
        return _pieces(handler.astreaming(model=name, messages=messages, optional_params=options))
    return await handler.acompletion(model=name, messages=messages, optional_params=options)


async def _pieces(given: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[Any]:
    try:
        async for piece in given:
            calls = [piece["tool_use"]] if piece["tool_use"] else None
            delta = {"content": piece["text"] or None, "tool_calls": calls}
            choice = {"delta": delta, "finish_reason": piece["finish_reason"] or None}
            yield ModelResponse(choices=[choice], usage=piece["usage"])
    except ServiceUnavailableError as error:
        message = f"{error} Original exception: {type(error).__name__}: {error}"
        raise MidStreamFallbackError(message, model=error.model, llm_provider=error.llm_provider) from error


def stream_chunk_builder(chunks: Iterable[Any], messages: object = None) -> ModelResponse:
    """The answer that the pieces are parts of."""
    pieces = list(chunks)
    choices = [choice for piece in pieces for choice in piece.choices]
    message = SimpleNamespace(
        content="".join(choice.delta.content or "" for choice in choices) or None,
        tool_calls=[call for choice in choices for call in choice.delta.tool_calls or ()] or None,
    )
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
    whole = ModelResponse()
    whole.choices = [SimpleNamespace(message=message, finish_reason=reasons[-1] if reasons else "stop")]
    whole.usage = next((piece.usage for piece in reversed(pieces) if piece.usage), None)
    return whole


def _parts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Parts(**{name: _parts(part) for name, part in value.items()})
    return [_parts(part) for part in value] if isinstance(value, list) else value


class _Parts(SimpleNamespace):
    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
