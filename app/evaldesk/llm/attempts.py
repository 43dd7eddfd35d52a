"""One attempt at a model call, by the demo model, our own client or LiteLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evaldesk.backports import timeout
from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.demo_model.answering import answer
from evaldesk.demo_model.mistakes import OVERLOADED, Overloaded
from evaldesk.errors import ModelError
from evaldesk.llm import client
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.endpoints import has_listeners, own_endpoint
from evaldesk.llm.faults import MALFORMED, SLOW, SLOW_S, STATUS, TIMEOUT, TRUNCATED, WORDS, refusal_body
from evaldesk.llm.refusals import (
    MAX_COMPLETION,
    MAX_TOKENS,
    OPTION_FIELDS,
    STRICTNESS,
    BrokenAnswerError,
    EndpointError,
    dropped_fields_note,
)
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import Usage


async def attempt(call: ModelCall, on_text: Callable[[str], object] | None) -> ModelReply:
    """Send one request, streamed with `on_text`; repeated without the fields that the endpoint refuses.

    Raises ModelError, TimeoutError, and exceptions of the client.
    """
    from evaldesk.llm import direct

    turn = PLAYED_TURN.get()
    await _inject(turn.fault(call.model) if turn else "", call)
    while True:
        unknown = STRICTNESS.unknown_to(call.model, call.api_base)
        at = own_endpoint(call)
        try:
            async with timeout(call.timeout_s):
                if is_demo(call):
                    return await _ask_demo(call, on_text)
                return await (direct.ask(call, at, on_text, unknown) if at else client.ask(call, on_text, unknown))
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {call.timeout_s:g} s") from None
        except Exception as error:
            status, text = getattr(error, "status_code", None), f"{getattr(error, 'body', '')} {error}"
            STRICTNESS.learn(call.model, call.api_base, _sent_fields(call, unknown), status, text)
            dropped_fields = (
                STRICTNESS.unknown_to(call.model, call.api_base) - unknown
            )  # or learned by a call beside it
            if not dropped_fields:
                raise
            note = dropped_fields_note(call.model, dropped_fields)
            if turn and note:
                turn.log_note(note)


async def _inject(fault: str, call: ModelCall) -> None:
    """Raise the exception of an injected fault, or wait for a slow answer."""
    if fault in STATUS:
        raise EndpointError(STATUS[fault], refusal_body(STATUS[fault]))
    if fault == TIMEOUT:
        raise TimeoutError(f"no answer within {call.timeout_s:g} s (injected)")
    if fault in (TRUNCATED, MALFORMED):
        raise BrokenAnswerError(f"{WORDS[fault]} (injected)")
    await asyncio.sleep(SLOW_S if fault == SLOW else 0)


def warm(call: ModelCall) -> None:
    """Import the packages of the call: LiteLLM takes 1.7 s, aiohttp 0.2."""
    if is_demo(call):
        return
    if is_direct(call):
        from evaldesk.llm import direct

        direct.preload()
    else:
        client.open_litellm()


def is_direct(call: ModelCall) -> bool:
    """Whether the call needs no LiteLLM."""
    try:
        return is_demo(call) or own_endpoint(call) is not None
    except ModelError:
        return True  # there is no key, which the call itself will say


def _sent_fields(call: ModelCall, unknown: frozenset[str]) -> frozenset[str]:
    """The sent fields that the user set."""
    return frozenset(call.settings.keys() & OPTION_FIELDS | ({MAX_COMPLETION} if MAX_TOKENS in unknown else set()))


def is_demo(call: ModelCall) -> bool:
    """Whether the demo model answers the call directly; with callbacks of LiteLLM, LiteLLM calls it."""
    return call.model.startswith(DEMO_PREFIX) and not has_listeners()


async def _ask_demo(call: ModelCall, on_text: Callable[[str], object] | None) -> ModelReply:
    """Ask the demo model, streamed word by word with `on_text`. Raises EndpointError."""
    try:
        demo_answer = answer(call.model.removeprefix(DEMO_PREFIX), call.messages, call.tools, seed=call.seed)
    except ValueError as error:
        raise EndpointError(404, str(error).encode()) from None
    except Overloaded:
        raise EndpointError(503, OVERLOADED.encode(), {"x-should-retry": "false"}) from None
    if on_text:
        for word in demo_answer.words:
            await asyncio.sleep(demo_answer.delay_s)
            on_text(word)
    calls = tuple(
        RequestedCall(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in demo_answer.calls
    )
    usage = Usage(call.model, tokens_in=demo_answer.tokens_in, tokens_out=demo_answer.tokens_out, cost=0.0)
    return ModelReply(demo_answer.text, calls, usage, demo_answer.finish_reason)
