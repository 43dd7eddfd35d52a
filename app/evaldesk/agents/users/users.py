"""Users: the source of the next message to the agent, and the reason why there is none.

A case with turns has a scripted user. A case with a scenario is played by a function that the agent's module offers,
or by a model. The agent sees none of it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from evaldesk.agents.remote.message_events import chat_messages
from evaldesk.errors import UsageError
from evaldesk.model import Case, ErrorRecord, Event, JsonValue, Session, Turn
from evaldesk.model.media import Media
from evaldesk.model.options import USER_VARIABLE, UserConfig, UserStop

EXIT = "/exit"
N_TRIES = 2  # an empty answer is asked for once more


@dataclass(frozen=True, slots=True)
class UserReply:
    """The next message of a user; without a text the conversation is over, for the reason of `stop` where there is one.

    `events` are its cost and remarks: the calls of the user's own model. `media` go with the text.
    """

    text: str | None = None
    stop: UserStop | None = None
    events: tuple[Event, ...] = ()
    error: ErrorRecord | None = None
    media: tuple[Media, ...] = ()


class User(Protocol):
    """A user that talks to the agent."""

    async def next(self, session: Session) -> UserReply:
        """The message after the turns of `session`. May raise: that is the user's failure, not the agent's."""


@dataclass(slots=True)
class ScriptedUser:
    """Says the turns of a case, one after the other, independent of the agent's answers."""

    turns: Sequence[Turn]

    async def next(self, session: Session) -> UserReply:
        """The next turn of the script."""
        if len(session.turns) >= len(self.turns):
            return UserReply()
        turn = self.turns[len(session.turns)]
        return UserReply(turn.query, media=turn.media)


@dataclass(slots=True)
class CappedUser:
    """A user that begins with the scenario's first prompt and stops after a number of messages."""

    user: User
    starting_prompt: str
    max_turns: int | None

    async def next(self, session: Session) -> UserReply:
        """The starting prompt, then the user's messages, until the cap."""
        n_turns = len(session.turns)
        if n_turns == 0 and self.starting_prompt.strip():
            return UserReply(self.starting_prompt)
        if self.max_turns is not None and n_turns >= self.max_turns:
            note = f"the simulated user was stopped after {self.max_turns} messages"
            return UserReply(stop="user_cap", events=(remark(note),))
        return await self.user.next(session)


@dataclass(frozen=True, slots=True)
class UserState(Mapping[str, Any]):
    """The argument of a `user_response_fn`; its items are attributes as well.

    `history` are the chat messages so far, `state` the session state, `last_message` the agent's last answer, `n_turns`
    how often the user spoke, and `scenario` the case's own.
    """

    history: list[dict[str, Any]]
    state: dict[str, JsonValue]
    last_message: str
    n_turns: int
    scenario: dict[str, JsonValue] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        if key not in set(self):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (item.name for item in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(slots=True)
class FunctionUser:
    """Asks a `user_response_fn(state)`: text is said, `/exit` is satisfied, None gives up. Sync or async."""

    function: Callable[..., Any]
    scenario: Mapping[str, JsonValue]

    async def next(self, session: Session) -> UserReply:
        """The function's result. Raises UsageError for a value that is neither text nor None."""
        state = UserState(
            history=[dict(message) for message in chat_messages(session.turns)],
            state=deepcopy(session.state),
            last_message=session.turns[-1].answer if session.turns else "",
            n_turns=len(session.turns),
            scenario=deepcopy(dict(self.scenario)),
        )
        found = await self._returned(state)
        if isinstance(found, str) and not found.strip():
            found = await self._returned(state)
        if isinstance(found, str) and not found.strip():
            error = ErrorRecord("user_error", f"the user_response_fn said nothing, {N_TRIES} times in a row")
            return UserReply(stop="user_error", error=error)
        if found is None:
            return UserReply(stop="user_gave_up", events=(remark("the simulated user had nothing more to say"),))
        if not isinstance(found, str):
            raise UsageError(f"a user_response_fn returns text, None or {EXIT!r}, not {type(found).__name__}")
        if found.strip() == EXIT:
            return UserReply(stop="user_satisfied", events=(remark(f"the simulated user said {EXIT}"),))
        return UserReply(found)

    async def _returned(self, state: UserState) -> Any:
        found = self.function(state)
        return await found if inspect.isawaitable(found) else found


def user_of(case: Case, target: str, config: UserConfig, default_model: str = "") -> User:
    """The user that plays `case`. Raises UsageError when there is none.

    `target` is the agent's: its module may offer `user_response_fn`, or several in a mapping `simulated_users`, from
    which the scenario's `user` names one.
    """
    if case.scenario is None:
        return ScriptedUser(case.turns)
    scenario = case.scenario
    prompt = scenario.get("starting_prompt")
    user = _function_user(scenario, target) or _model_user(scenario, config, default_model)
    return CappedUser(user, prompt if isinstance(prompt, str) else "", _cap(scenario, config))


def remark(text: str) -> Event:
    """A line of the user's own log."""
    return Event("log", author="simulated user", text=text)


def _function_user(scenario: Mapping[str, JsonValue], target: str) -> User | None:
    module = sys.modules.get(target.partition(":")[0])
    name = scenario.get("user")
    if name is None:
        function = getattr(module, "user_response_fn", None)
        return FunctionUser(function, scenario) if callable(function) else None
    offered = getattr(module, "simulated_users", {})
    function = offered.get(name) if isinstance(offered, Mapping) else None
    if not callable(function):
        listed = ", ".join(map(str, offered)) if isinstance(offered, Mapping) and offered else "none"
        raise UsageError(
            f"the scenario names the user {name!r}, which the agent's module does not offer in its mapping "
            f"`simulated_users`; there are: {listed}"
        )
    return FunctionUser(function, scenario)


def _model_user(scenario: Mapping[str, JsonValue], config: UserConfig, default_model: str) -> User:
    from evaldesk.agents.users.model import ModelUser, instructions_of

    model = config.model or default_model
    if not model:
        raise UsageError(
            "the case has a scenario and no model plays its user; name one as `model` under [user] in evaldesk.toml, "
            f"or in {USER_VARIABLE}, or offer a user_response_fn in the agent's module"
        )
    return ModelUser(model, instructions_of(scenario, config), config)


def _cap(scenario: Mapping[str, JsonValue], config: UserConfig) -> int | None:
    cap = scenario.get("max_turns")
    return cap if isinstance(cap, int) and not isinstance(cap, bool) and cap > 0 else config.max_turns
