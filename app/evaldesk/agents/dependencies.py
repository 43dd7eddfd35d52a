"""Dependency objects of an agent's tools: built from the session state before a turn, read back after each call.

For agents whose context is an object of their own, such as a dataclass. The functions are `make_deps(state)` and
`read_state(deps)`, beside the agent or named in `evaldesk.toml`; either may be a coroutine function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from evaldesk.agents.agent import breadth_first
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentRef, JsonObject, Session
from evaldesk.registry import import_target
from evaldesk.wire import plain_json

# No state holds connections and clocks, so the user makes the object: decision 133.
MAKE, READ = "make_deps", "read_state"
MEMORY = "dependencies"


@dataclass(frozen=True)
class Dependencies:
    """The functions `make_deps` and `read_state` of an agent; None for a missing one."""

    make: Callable[[JsonObject], Any] | None = None
    read: Callable[[Any], Any] | None = None

    async def bind(self, session: Session, *, resumes: bool = False) -> Any:
        """The context of the tools in this turn: the session state, or the dependency object built from it.

        The object is reused from turn to turn, also by a turn that `resumes`, until another writer changes the state.
        Exceptions of `make_deps` pass through.
        """
        if self.make is None:
            _CURRENT.set(None)
            return session.state
        memory_entry: Any = session.memory.get(MEMORY)
        if memory_entry and memory_entry[1:] == (len(session.turns) + resumes, plain_json(session.state)):
            deps = memory_entry[0]
        else:
            deps = await _await_value(self.make(deepcopy(dict(session.state))))
        _CURRENT.set((deps, session, self))
        return deps

    async def keep(self, session: Session, deps: Any) -> None:
        """Read the state at the end of a turn, and store the object for the next one."""
        if self.make is not None:
            await self.update(session, deps)
            session.memory[MEMORY] = (deps, len(session.turns) + 1, plain_json(session.state))

    async def update(self, session: Session, deps: Any) -> None:
        """Update the session state by `read_state`. Raises AgentError for a state that is no object."""
        if self.read is None:
            return
        state = await _await_value(self.read(deps))
        if not isinstance(state, Mapping):
            raise AgentError(f"{READ} must give the session state as an object, not {type(state).__name__}")
        session.state = dict(state)


_CURRENT: ContextVar[tuple[Any, Session, Dependencies] | None] = ContextVar("dependencies", default=None)


def state_of(deps: Any) -> dict[str, Any]:
    """The session state for the double of a tool, by the context of the tool; empty for an unknown context."""
    if isinstance(deps, dict):
        return deps
    binding = _CURRENT.get()
    return dict(binding[1].state) if binding and binding[0] is deps else {}


async def note_state(deps: Any) -> None:
    """Update the session state after a call."""
    binding = _CURRENT.get()
    if binding and binding[0] is deps:
        await binding[2].update(binding[1], deps)


def dependencies_of(ref: AgentRef) -> Dependencies:
    """The functions in `evaldesk.toml`, else in the agent's module. Raises AgentError for a value that is no function.

    The agent's module is imported already.
    """
    module = sys.modules.get(ref.target.partition(":")[0])
    functions = {}
    for name, target in ((MAKE, ref.make_deps), (READ, ref.read_state)):
        try:
            function = import_target(target) if target else getattr(module, name, None)
        except UsageError as error:
            raise AgentError(f"{name}: {error}") from error
        if function is not None and not callable(function):
            raise AgentError(f"{name} must be a function, not {type(function).__name__}")
        functions[name] = function
    if functions[READ] and not functions[MAKE]:
        raise AgentError(f"{READ} needs {MAKE}(state), which makes what it reads")
    return Dependencies(functions[MAKE], functions[READ])


def hint_of(error: Exception, deps: Any) -> AgentError | None:
    """The hint to write `make_deps`, for an agent that expected an object and got the state; None for other errors.

    A framework may have wrapped the error of a tool in its own.
    """
    if isinstance(error, AgentError):
        return None  # it says what to write itself
    causes = breadth_first(cast("BaseException", error), lambda each: filter(None, [each.__cause__]))
    if agent_error := next((each for each in causes if isinstance(each, AgentError)), None):
        return agent_error
    attribute_errors = (each for each in causes if isinstance(each, AttributeError) and "'dict' object" in str(each))
    fault = next(attribute_errors, None)
    if fault is None or not isinstance(deps, dict):
        return None
    return AgentError(
        f"{fault}: the agent gets the session state, a dict; write {MAKE}(state) beside the agent, which makes of it "
        f"what the agent wants, and {READ}(deps), which gives the state back"
    )


async def _await_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
