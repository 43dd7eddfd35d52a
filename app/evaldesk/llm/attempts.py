"""One attempt at a model call, by the client that fits it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from evaldesk.backports import timeout
from evaldesk.errors import ModelError
from evaldesk.llm import client, demo
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.endpoints import own_endpoint


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
                if demo.is_demo(call):
                    return await demo.ask(call, on_text)
                return await (direct.ask(call, at, on_text, unknown) if at else client.ask(call, on_text, unknown))
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {call.timeout_s:g} s") from None
        except Exception as error:
            if not STRICTNESS.learn(call, error):
                raise


def warm(call: ModelCall) -> None:
    """Import the packages of such calls: LiteLLM takes 1.7 s, aiohttp 0.2."""
    if demo.is_demo(call):
        return
    if is_direct(call):
        from evaldesk.llm import direct

        direct.preload()
    else:
        client.open_litellm()


def is_direct(call: ModelCall) -> bool:
    """Whether such calls do without LiteLLM."""
    try:
        return demo.is_demo(call) or own_endpoint(call) is not None
    except ModelError:
        return True  # there is no key, which the call itself will say


OURS = ("seed", "stream_options")  # fields that we add by ourselves; any other was requested by a person
_REFUSED = frozenset({400, 404, 422})


@dataclass(slots=True)
class Strictness:
    """The fields that each model at each address refused, in this process."""

    _refused: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)

    def unknown_to(self, call: ModelCall) -> frozenset[str]:
        """The fields to leave out."""
        return frozenset(self._refused.get((call.model, call.api_base), ()))

    def learn(self, call: ModelCall, error: BaseException) -> bool:
        """Whether `error` is about a field of ours that was not known to be refused: then asking again may help."""
        if getattr(error, "status_code", None) not in _REFUSED:
            return False
        text = f"{getattr(error, 'body', '')} {error}"
        named = {name for name in OURS if re.search(rf"\b{name}\b", text)}
        new = named - self.unknown_to(call)
        if new:
            self._refused.setdefault((call.model, call.api_base), set()).update(new)
        return bool(new)


STRICTNESS = Strictness()
