"""A trial as a dialogue: the user says something, the agent answers, until one of them ends it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.agents.users.users import Said, User, user_of
from evaldesk.engine.failures import failure
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.errors import ModelError
from evaldesk.model import ErrorRecord, Event, Session, TrialResult, TrialSpec, TurnRecord
from evaldesk.model.transcript import BOUNDS
from evaldesk.wire import plain_text

if TYPE_CHECKING:
    from evaldesk.agents import Agent

MODEL_VARIABLE = "EVALDESK_USER_MODEL"
DEMO_USER = "demo/user"

Say: TypeAlias = Callable[[str, tuple[Event, ...]], Awaitable[TurnRecord]]


def trial_user(agent: Agent, spec: TrialSpec) -> User:
    """Who plays the user. Raises UsageError when nobody can."""
    default = os.environ.get(MODEL_VARIABLE, "")
    if spec.case.scenario is not None and not (default or spec.user.model) and _is_demo(agent):
        default = DEMO_USER
    return user_of(spec.case, spec.agent.target, spec.user, default)


async def converse(user: User, session: Session, attempt: Attempt, say: Say) -> Said:
    """Hold the conversation; the user's last word says how it ended, and is empty where the agent or a limit did.

    An agent that reached its bound in a turn is asked nothing more: there is no answer to go on from.
    """
    while True:
        said = await _next(user, session, attempt)
        if attempt.stop:
            return Said()
        if said.text is None:
            _keep_last(attempt, said.events)
            return said
        record = await say(plain_text(said.text), said.events)
        if record.error or attempt.stop or record.stop_reason in BOUNDS:
            return Said()


def with_end(result: TrialResult, said: Said) -> TrialResult:
    """The result, with the reason of a simulated user where it was the user who ended the conversation."""
    return replace(result, stop_reason=said.stop) if said.stop else result


async def _next(user: User, session: Session, attempt: Attempt) -> Said:
    try:
        return await user.next(session)
    except BaseException as error:
        if attempt.stop:
            return Said()
        found = failure(error, "user_error")
        is_fatal = isinstance(error, ModelError) and error.is_fatal
        said = ErrorRecord(
            found.kind if is_fatal else "user_error", f"the simulated user: {found.message}", found.trace
        )
        return Said(stop="user_error", error=said)


def _keep_last(attempt: Attempt, events: tuple[Event, ...]) -> None:
    """Add what the user's last decision took to the last turn; there is none before the first message."""
    if events and attempt.turns:
        last = attempt.turns[-1]
        stamped = tuple(replace(event, at_ms=last.duration_ms) for event in events)
        attempt.turns[-1] = replace(last, events=(*last.events, *stamped))


def _is_demo(agent: Agent) -> bool:
    try:
        return agent.describe().is_demo
    except Exception:
        return False  # an agent that cannot say what it is has no scripted user
