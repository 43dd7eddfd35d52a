"""Names of models that no provider can answer, found without a call."""

from __future__ import annotations

from importlib.util import find_spec

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.errors import VALUE_LIMIT
from evaldesk.llm.call import ModelCall
from evaldesk.llm.endpoints import PROVIDERS, own_endpoint
from evaldesk.llm.price_list import is_listed

_WAY = "name it as PROVIDER/MODEL, such as openai/gpt-4o-mini"


def model_fault(model: str) -> str:
    """The reason why LiteLLM would refuse every call of `model`; empty where it may be called.

    LiteLLM is imported for a doubtful name only; the user's code may have registered a provider there. A name that a
    known provider does not have is known to the provider alone.
    """
    provider, slash, _ = model.partition("/")
    if model.startswith(DEMO_PREFIX):
        return _demo_fault(model.removeprefix(DEMO_PREFIX))
    if (slash and provider in PROVIDERS) or is_listed(model) or own_endpoint(ModelCall(model, ())):
        return ""
    if find_spec("litellm") is None or _is_known(model):
        return ""
    if slash:
        return _provider_fault(provider)
    return f"it names no provider; {_WAY}"


def _provider_fault(provider: str) -> str:
    from difflib import get_close_matches

    name = provider[:VALUE_LIMIT]
    nearest = get_close_matches(name, sorted({*PROVIDERS, "demo"}), n=1, cutoff=0.75)
    return f"no provider is named {name!r}; {f'did you mean {nearest[0]!r}?' if nearest else _WAY}"


def _demo_fault(name: str) -> str:
    from evaldesk.demo_model.answering import read_name

    try:
        read_name(name)
    except ValueError as error:
        return str(error)
    return ""


def _is_known(model: str) -> bool:
    from evaldesk.llm.client import open_litellm

    litellm = open_litellm()
    try:
        litellm.get_llm_provider(model)
    except litellm.exceptions.BadRequestError:
        return False
    return True
