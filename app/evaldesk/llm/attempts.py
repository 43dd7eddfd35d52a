"""One attempt at a model call, by the client that fits it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from evaldesk.backports import timeout
from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.demo_model.answering import answer
from evaldesk.demo_model.mistakes import OVERLOADED, Overloaded
from evaldesk.errors import ModelError
from evaldesk.llm import client
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.endpoints import has_listeners, own_endpoint
from evaldesk.llm.refusals import MAX_COMPLETION, MAX_TOKENS, EndpointError
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import Usage


async def attempt(call: ModelCall, on_text: Callable[[str], object] | None) -> ModelReply:
    """One request, streamed when `tell` is given; another where the endpoint refused a field of ours.

    Raises ModelError, TimeoutError, and exceptions of the client.
    """
    from evaldesk.llm import direct

    while True:
        unknown = STRICTNESS.unknown_to(call)
        at = own_endpoint(call)
        try:
            async with timeout(call.timeout_s):
                if is_demo(call):
                    return await _ask_demo(call, on_text)
                return await (direct.ask(call, at, on_text, unknown) if at else client.ask(call, on_text, unknown))
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {call.timeout_s:g} s") from None
        except Exception as error:
            dropped = STRICTNESS.learn(call, error)
            if not dropped:
                raise
            tell_dropped(call, dropped)


def warm(call: ModelCall) -> None:
    """Import the packages of such calls: LiteLLM takes 1.7 s, aiohttp 0.2."""
    if is_demo(call):
        return
    if is_direct(call):
        from evaldesk.llm import direct

        direct.preload()
    else:
        client.open_litellm()


def is_direct(call: ModelCall) -> bool:
    """Whether such calls do without LiteLLM."""
    try:
        return is_demo(call) or own_endpoint(call) is not None
    except ModelError:
        return True  # there is no key, which the call itself will say


OURS = ("seed", "stream_options")  # fields that we add by ourselves; any other was requested by a person
ASKED = ("temperature", "top_p", MAX_TOKENS, MAX_COMPLETION, "reasoning_effort")
_REFUSED = frozenset({400, 404, 422})
_NOT_KNOWN = re.compile(
    r"not? (?:longer )?support|unsupported|does not support|unrecognized|unknown|unexpected|not permitted|not allowed"
    r"|extra (?:inputs|fields)|deprecated|only the default",
    re.I,
)
"""How a refusal of a parameter reads, as opposed to one of its value."""


@dataclass(slots=True)
class Strictness:
    """The fields that each model at each address refused, in this process."""

    _refused: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)

    def unknown_to(self, call: ModelCall) -> frozenset[str]:
        """The fields to leave out."""
        return frozenset(self._refused.get((call.model, call.api_base), ()))

    def learn(self, call: ModelCall, error: BaseException) -> frozenset[str]:
        """The fields that `error` refuses and that were not known to be refused: without them it may help to ask again.

        A field that a person asked for is one of them where the model does not have it, not where its value is wrong.
        """
        if getattr(error, "status_code", None) not in _REFUSED:
            return frozenset()
        text = f"{getattr(error, 'body', '')} {error}"
        known = self.unknown_to(call)
        asked = _asked(call, known) if _NOT_KNOWN.search(text) else ()
        named = {name for name in (*OURS, *asked) if re.search(rf"\b{name}\b", text)}
        new = frozenset(named - known)
        if new:
            self._refused.setdefault((call.model, call.api_base), set()).update(new)
        return new


def _asked(call: ModelCall, unknown: frozenset[str]) -> tuple[str, ...]:
    """The fields that a person asked for and that were sent."""
    if MAX_TOKENS in unknown:
        return tuple(name for name in ASKED if name == MAX_COMPLETION or getattr(call, name, None) is not None)
    return tuple(name for name in ASKED if getattr(call, name, None) is not None)


def tell_dropped(call: ModelCall, names: frozenset[str]) -> None:
    """Tell the turn what is left out from now on; another name of a field is nothing to tell."""
    turn = PLAYED_TURN.get()
    dropped = sorted(names - {*OURS, MAX_TOKENS})
    if turn and dropped:
        turn.notes(f"{call.model} refuses {' and '.join(dropped)}: from now on it is asked without")


STRICTNESS = Strictness()


def is_demo(call: ModelCall) -> bool:
    """Whether the demo model answers the call here: where something listens to LiteLLM's calls, LiteLLM asks it."""
    return call.model.startswith(DEMO_PREFIX) and not has_listeners()


async def _ask_demo(call: ModelCall, on_text: Callable[[str], object] | None) -> ModelReply:
    """One request, streamed word by word with `on_text`. Raises EndpointError."""
    try:
        found = answer(call.model.removeprefix(DEMO_PREFIX), call.messages, call.tools, seed=call.seed)
    except ValueError as error:
        raise EndpointError(404, str(error).encode()) from None
    except Overloaded:
        raise EndpointError(503, OVERLOADED.encode(), {"x-should-retry": "false"}) from None
    if on_text:
        for word in found.words:
            await asyncio.sleep(found.delay_s)
            on_text(word)
    calls = tuple(
        RequestedCall(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in found.calls
    )
    usage = Usage(call.model, tokens_in=found.tokens_in, tokens_out=found.tokens_out, cost=0.0)
    return ModelReply(found.text, calls, usage, found.finish_reason)
