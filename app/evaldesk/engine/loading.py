"""Agents as this process has them: each is imported once, and one that cannot be stays so."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from evaldesk.model import AgentRef

if TYPE_CHECKING:
    from evaldesk.agents import Agent

_lock = Lock()
_model_lock = Lock()
_ready: set[AgentRef] = set()
_loaded: dict[AgentRef, Agent | BaseException] = {}


def load(ref: AgentRef) -> Agent:
    """The agent that `ref` names. Raises whatever its import raised, the same error again every time."""
    from evaldesk.agents import load_agent

    found = _loaded.get(ref)
    if found is None:
        with _lock:
            found = _loaded.get(ref)
            if found is None:
                try:
                    found = load_agent(ref)
                except BaseException as error:
                    found = error
                _loaded[ref] = found
    if isinstance(found, BaseException):
        raise found
    return found


def adopt(ref: AgentRef, found: object) -> Agent:
    """Let `ref` name an object that this process has already. Raises AgentError when no adapter knows it."""
    from evaldesk.agents import adapt_object

    agent = adapt_object(found, ref)
    _loaded[ref] = agent
    return agent


def disown(ref: AgentRef) -> None:
    """Forget what `adopt` was given."""
    _loaded.pop(ref, None)
    _ready.discard(ref)


def load_ready(ref: AgentRef) -> Agent:
    """As `load`, with LiteLLM imported where the agent has a model to call: that takes seconds no turn should pay."""
    agent = load(ref)
    if ref not in _ready:
        with _model_lock:
            if _has_model(agent):
                from evaldesk.llm.client import open_litellm

                open_litellm()
        _ready.add(ref)
    return agent


def _has_model(agent: Agent) -> bool:
    try:
        return agent.describe().model is not None
    except Exception:
        return False  # an agent that cannot say what it is may still answer
