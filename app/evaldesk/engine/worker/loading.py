"""Agents as this process has them: each is imported once, and one that cannot be stays so."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from evaldesk.agents.agent import ModelCaller
from evaldesk.errors import AgentError
from evaldesk.llm import set_variables
from evaldesk.model import AgentDescription, AgentRef, ModelOptions, Session

if TYPE_CHECKING:
    from evaldesk.agents import Agent

_lock = Lock()
_model_lock = Lock()
_ready: set[tuple[AgentRef, str | None, str | None]] = set()
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


def described(agent: Agent, ref: AgentRef) -> AgentDescription:
    """What the agent says of itself, and what its module and this process have beside it. Raises AgentError."""
    found: object = agent.describe()
    if not isinstance(found, AgentDescription):
        raise AgentError(f"describe must return an AgentDescription, got {type(found).__name__}")
    module = sys.modules.get(ref.target.partition(":")[0])
    offers_user = any(hasattr(module, name) for name in ("user_response_fn", "simulated_users"))
    return replace(found, variables=set_variables(os.environ), offers_user=offers_user)


def adopt(ref: AgentRef, found: object) -> Agent:
    """Let `ref` name an object that this process has already. Raises AgentError when no adapter knows it."""
    from evaldesk.agents import adapt_object

    agent = adapt_object(found, ref)
    _loaded[ref] = agent
    return agent


def disown(ref: AgentRef) -> None:
    """Forget what `adopt` was given."""
    _loaded.pop(ref, None)
    for known in [known for known in _ready if known[0] == ref]:
        _ready.discard(known)


def load_ready(ref: AgentRef, model: str | None = None, options: ModelOptions | None = None) -> Agent:
    """As `load`, with imported what the calls of the agent's model need: that takes seconds no turn should pay."""
    agent = load(ref)
    options = options or ModelOptions()
    asked = ref, model, options.base_url
    if asked not in _ready:
        with _model_lock:
            _warm(agent, Session("warm", model=model, model_options=options))
        _ready.add(asked)
    return agent


def _warm(agent: Agent, session: Session) -> None:
    """Import what the calls of the agent's model need, if it has one."""
    if isinstance(agent, ModelCaller):
        agent.warm(session)
    elif _has_model(agent):
        from evaldesk.llm.client import open_litellm

        open_litellm()


def _has_model(agent: Agent) -> bool:
    try:
        return agent.describe().model is not None
    except Exception:
        return False  # an agent that cannot say what it is may still answer
