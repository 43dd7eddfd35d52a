"""The scripted model as a custom provider of LiteLLM, for agents that ask LiteLLM for `demo/dice` themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from evaldesk.demo_model.answering import Answer, answer
from evaldesk.demo_model.mistakes import OVERLOADED, Overloaded
from evaldesk.demo_model.script import NAMES


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
            reply = _answer(model, messages, optional_params)
            message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
            if reply.calls:
                message["tool_calls"] = reply.calls
            response = litellm.ModelResponse(
                model=model,
                choices=[{"index": 0, "finish_reason": reply.finish_reason, "message": message}],
                usage=_usage(reply),
            )
            response._hidden_params = {"response_cost": 0.0}  # or LiteLLM searches its price map three times
            return response

        async def astreaming(
            self, model: str, messages: list[Any], optional_params: dict[str, Any], **_: Any
        ) -> AsyncIterator[Any]:
            reply = _answer(model, messages, optional_params)
            for word in reply.words:
                await asyncio.sleep(reply.delay_s)
                yield _chunk(text=word)
            for index, call in enumerate(reply.calls):
                yield _chunk(tool_use={**call, "index": index})
            yield _chunk(finish_reason=reply.finish_reason, is_finished=True, usage=_usage(reply))

    def _answer(model: str, messages: list[Any], options: dict[str, Any]) -> Answer:
        try:
            return answer(model, messages, options.get("tools") or (), seed=options.get("seed"))
        except ValueError as error:
            raise litellm.NotFoundError(str(error), model=model, llm_provider="demo") from None
        except Overloaded:
            raise _overloaded(model) from None

    def _overloaded(model: str) -> Exception:
        error: Exception = litellm.ServiceUnavailableError(OVERLOADED, model=model, llm_provider="demo")
        error.litellm_response_headers = {"x-should-retry": "false"}  # type: ignore[attr-defined]
        return error

    return DemoProvider()


def _usage(reply: Answer) -> dict[str, int]:
    total = reply.tokens_in + reply.tokens_out
    return {"prompt_tokens": reply.tokens_in, "completion_tokens": reply.tokens_out, "total_tokens": total}


def _chunk(**fields: Any) -> dict[str, Any]:
    empty = {"text": "", "is_finished": False, "finish_reason": "", "index": 0, "tool_use": None, "usage": None}
    return {**empty, **fields}
