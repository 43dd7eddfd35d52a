"""LiteLLM: its import without noise, and one request through it."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.errors import ModelError
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.endpoints import key_of
from evaldesk.llm.refusals import BrokenAnswerError, without_fields
from evaldesk.model import Usage
from evaldesk.process_setup import gc_paused, prepare_litellm, working_folder

# The import of LiteLLM takes seconds; threads that need it first wait for one import (decision 017).
_import_lock = threading.Lock()
UNPRICED: set[str] = set()  # models that LiteLLM looked for in vain, which takes 2 ms each time


def open_litellm() -> Any:
    """Import and configure LiteLLM once: silenced, with the demo model registered. Safe in any thread."""
    with _import_lock:
        return _setup_litellm()


def _import_litellm() -> Any:
    """Import LiteLLM. Raises ModelError on an agent's own interpreter without it."""
    folder = working_folder()
    n_before = sys.path.count(folder)
    try:
        import litellm
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        raise ModelError(
            f"this model is asked through LiteLLM, which {sys.executable} does not have: "
            f"{sys.executable} -m pip install litellm",
            kind="no_litellm",
            is_fatal=True,
        ) from None
    # It appends the working folder: a folder `agents` in there would pass for the package of that name.
    if sys.path.count(folder) > n_before and sys.path[-1] == folder:
        sys.path.pop()
    return litellm


@cache
def _setup_litellm() -> Any:
    prepare_litellm()
    with gc_paused(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user cannot mend the warnings of it and of pydantic
        litellm = _import_litellm()
        for kind in (litellm.ModelResponse, litellm.types.utils.Delta):
            kind()  # its schema is built when it is first used, with warnings
    from evaldesk.demo_model.provider import demo_provider, prices
    from evaldesk.llm.redirects import refuse_redirects

    refuse_redirects()

    # left behind by a call that is cancelled before its first byte
    for left_behind in (r"coroutine 'BaseLLMHTTPHandler", r"coroutine '.*completion' was never awaited"):
        warnings.filterwarnings("ignore", left_behind, RuntimeWarning)
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    litellm.custom_provider_map = [
        *litellm.custom_provider_map,
        {"provider": DEMO_PREFIX.rstrip("/"), "custom_handler": demo_provider()},
    ]
    litellm.register_model(prices())
    return litellm


async def ask(call: ModelCall, on_text: Callable[[str], object] | None, unknown: frozenset[str]) -> ModelReply:
    """Send one request, streamed with `on_text`, without the `unknown` fields.

    Exceptions of LiteLLM pass through.
    """
    litellm = open_litellm()
    arguments = without_fields(_arguments(call), unknown)
    if on_text is None:
        return _reply(call, await litellm.acompletion(**arguments))
    options: dict[str, Any] = {"stream": True}
    if "stream_options" not in unknown:
        options["stream_options"] = {"include_usage": True}
    chunks = []
    stream = await litellm.acompletion(**arguments, **options)
    async for chunk in stream:
        chunks.append(chunk)
        text = chunk.choices[0].delta.content if chunk.choices else None
        if text:
            on_text(text)
    response = litellm.stream_chunk_builder(chunks, messages=list(call.messages))
    return _reply(call, response, was_cached=is_cached(stream))


def is_cached(response: Any) -> bool:
    """Whether LiteLLM's own cache answered; `response` may be a stream."""
    return bool((getattr(response, "_hidden_params", None) or {}).get("cache_hit"))


def _arguments(call: ModelCall) -> dict[str, Any]:
    litellm = open_litellm()
    return {
        **endpoint(call),
        "messages": list(call.messages),
        "timeout": call.timeout_s,
        "num_retries": 0,
        "drop_params": True,  # fields unknown to a provider are left out, not refused
        "_skip_mcp_handler": True,  # tools= needs a package of its own without it in 1.106.0 to 1.106.2
        "no-log": not (litellm.callbacks or litellm.success_callback),  # a fifth of the call's CPU time, without use
        **({"tools": list(call.tools)} if call.tools else {}),
        **call.settings,
    }


def endpoint(call: ModelCall) -> dict[str, Any]:
    """The arguments for the model and its endpoint. Raises ModelError for a missing key."""
    extra = {name: value for name, value in call.extra.items() if name != "api_key"}
    optional = {"api_base": call.api_base, "api_key": key_of(call), "extra_body": extra}
    return {"model": _full_name(call), **{name: value for name, value in optional.items() if value}}


def _full_name(call: ModelCall) -> str:
    """`provider/name`; a name without a provider, at an `api_base`, is treated as a vLLM server."""
    provider, slash, _ = call.model.partition("/")
    if not call.api_base or (slash and provider in _providers()):
        return call.model
    return f"hosted_vllm/{call.model}"


@cache
def _providers() -> frozenset[str]:
    litellm = open_litellm()
    custom = (entry["provider"] for entry in litellm.custom_provider_map)
    return frozenset([*map(str, litellm.models_by_provider), *(item.value for item in litellm.LlmProviders), *custom])


def _reply(call: ModelCall, response: Any, *, was_cached: bool = False) -> ModelReply:
    if not response or not response.choices:
        raise BrokenAnswerError("the answer has no choices")
    choice = response.choices[0]
    calls = tuple(
        RequestedCall(
            tool_call.id or f"call_{index}", tool_call.function.name or "", tool_call.function.arguments or "{}"
        )
        for index, tool_call in enumerate(choice.message.tool_calls or ())
    )
    usage = _usage(call, response)
    if was_cached or is_cached(response):
        usage = replace(usage, cost=0.0, is_replayed=True)
    reason = choice.finish_reason or "stop"
    return ModelReply(choice.message.content or "", calls, replace(usage, is_cut=reason == "length"), reason)


def _usage(call: ModelCall, response: Any) -> Usage:
    raw_usage = getattr(response, "usage", None)
    tokens_in = getattr(raw_usage, "prompt_tokens", None) or 0
    tokens_out = getattr(raw_usage, "completion_tokens", None) or 0
    cached = getattr(getattr(raw_usage, "prompt_tokens_details", None), "cached_tokens", None) or 0
    reasoning = getattr(getattr(raw_usage, "completion_tokens_details", None), "reasoning_tokens", None) or 0
    return Usage(
        call.model,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=_cost(call.model, raw_usage),
        tokens_cached=cached,
        tokens_reasoning=reasoning,
    )


def _cost(model: str, usage: Any) -> float | None:
    """US dollars by LiteLLM's price map; None for an unlisted model, and without usage."""
    if model.startswith(DEMO_PREFIX):
        return 0.0
    if usage is None or model in UNPRICED:
        return None
    try:
        return float(sum(open_litellm().cost_per_token(model=model, usage_object=usage)))
    except Exception:  # LiteLLM raises a bare Exception for a model without a price
        UNPRICED.add(model)
        return None
