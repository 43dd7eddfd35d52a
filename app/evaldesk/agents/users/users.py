"""Simulated and scripted users: the source of the next message to the agent, or of the reason to stop.

A case with turns has a scripted user. The user of a scenario is a function in the agent's module, or a model. The agent
does not see the scenario.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from evaldesk.errors import UsageError
from evaldesk.llm import DEFAULT_RETRIES, ModelCall, ModelReply, complete
from evaldesk.model import Case, ErrorRecord, Event, JsonObject, JsonValue, Session, Turn
from evaldesk.model.chat import chat_messages
from evaldesk.model.options import USER_VARIABLE, ModelOptions, UserConfig, UserStop
from evaldesk.model.user_reply import UserReply, scripted_reply
from evaldesk.reading.scenario import no_plan_words, own_model, plan_of, unlisted_words

EXIT = "/exit"
N_TRIES = 2  # an empty answer is asked for once more


class User(Protocol):
    """A user that talks to the agent."""

    async def next(self, session: Session) -> UserReply:
        """The message after the turns of `session`. May raise: that is the user's failure, not the agent's."""


@dataclass(slots=True)
class ScriptedUser:
    """Sends the turns of a case, one after the other, independent of the agent's answers."""

    turns: Sequence[Turn]

    async def next(self, session: Session) -> UserReply:
        """The next turn of the script."""
        return scripted_reply(self.turns, len(session.turns))


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


@dataclass(slots=True)
class BegunUser:
    """A user whose message after the first `n_turns` turns is given, and who says the others itself."""

    user: User
    message: str
    n_turns: int

    async def next(self, session: Session) -> UserReply:
        """The given message, then the user's own."""
        if len(session.turns) == self.n_turns:
            return UserReply(self.message)
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
    """Calls a `user_response_fn(state)`: a text is the next message, `/exit` means satisfied, None gives up."""

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
        answer = await self._call_function(state)
        if isinstance(answer, str) and not answer.strip():
            answer = await self._call_function(state)
        if isinstance(answer, str) and not answer.strip():
            error = ErrorRecord("user_error", f"the user_response_fn said nothing, {N_TRIES} times in a row")
            return UserReply(stop="user_error", error=error)
        if answer is None:
            return UserReply(stop="user_gave_up", events=(remark("the simulated user had nothing more to say"),))
        if not isinstance(answer, str):
            raise UsageError(f"a user_response_fn returns text, None or {EXIT!r}, not {type(answer).__name__}")
        if answer.strip() == EXIT:
            return UserReply(stop="user_satisfied", events=(remark(f"the simulated user said {EXIT}"),))
        return UserReply(answer)

    async def _call_function(self, state: UserState) -> Any:
        answer = self.function(state)
        return await answer if inspect.isawaitable(answer) else answer


def user_of(case: Case, target: str, config: UserConfig, default_model: str = "") -> User:
    """The user of `case`. Raises UsageError without one.

    The module of `target`, the agent's, may have a `user_response_fn`, or a mapping `simulated_users`; the scenario's
    `user` is a key of it. A scenario with a `user_model` is played by that model.
    """
    if case.scenario is None:
        return ScriptedUser(case.turns)
    if config.is_spoken:
        raise UsageError(
            f"case {case.id!r}: its user speaks (type llm_audio), which is not played yet; "
            'with "type": "llm_backed" its user writes'
        )
    scenario = case.scenario
    prompt = scenario.get("starting_prompt")
    user = (None if own_model(scenario) else _function_user(scenario, target)) or _model_user(
        scenario, config, default_model
    )
    return CappedUser(user, prompt if isinstance(prompt, str) else "", _cap(scenario, config))


def offers_user(target: str) -> bool:
    """Whether the imported module of an agent has functions that play users."""
    module = sys.modules.get(target.partition(":")[0])
    return any(hasattr(module, name) for name in ("user_response_fn", "simulated_users"))


def remark(text: str) -> Event:
    """A line of the user's own log."""
    return Event("log", author="simulated user", text=text)


def _function_user(scenario: Mapping[str, JsonValue], target: str) -> User | None:
    module = sys.modules.get(target.partition(":")[0])
    name = scenario.get("user")
    if name is None:
        function = getattr(module, "user_response_fn", None)
        return FunctionUser(function, scenario) if callable(function) else None
    users = getattr(module, "simulated_users", {})
    function = users.get(name) if isinstance(users, Mapping) else None
    if not callable(function):
        user_names = ", ".join(map(str, users)) if isinstance(users, Mapping) and users else "none"
        raise UsageError(
            f"the scenario names the user {name!r}, which the agent's module does not offer in its mapping "
            f"`simulated_users`; there are: {user_names}"
        )
    return FunctionUser(function, scenario)


def _model_user(scenario: Mapping[str, JsonValue], config: UserConfig, default_model: str) -> User:
    usual_model = config.model or default_model
    model = own_model(scenario) or usual_model
    if not model:
        raise UsageError(
            "the case has a scenario and no model plays its user; name one as `model` under [user] in evaldesk.toml, "
            f"or in {USER_VARIABLE}, or offer a user_response_fn in the agent's module"
        )
    if not plan_of(scenario):
        raise UsageError(no_plan_words(scenario))
    if model == usual_model:
        return ModelUser(model, instructions_of(scenario, config), config)
    if model not in config.models:
        raise UsageError(unlisted_words(model))
    return ModelUser(model, instructions_of(scenario, config), replace(config, options=_without_access(config.options)))


def _without_access(options: ModelOptions) -> ModelOptions:
    """The options for another model than the one they are for: without its address, key, price and own fields."""
    return replace(options, base_url=None, api_key_env=None, extra={}, price_in=None, price_out=None)


def _cap(scenario: Mapping[str, JsonValue], config: UserConfig) -> int | None:
    cap = scenario.get("max_turns")
    return cap if isinstance(cap, int) and not isinstance(cap, bool) and cap > 0 else config.max_turns


GREETING = "Hello! How can I help you today?"
OPENING_NOTE = "Your first message is said already."

STOPS: Mapping[str, UserStop] = {
    "###STOP###": "user_satisfied",
    "###GIVE-UP###": "user_gave_up",
    "###OUT-OF-SCOPE###": "user_out_of_scope",
    "###TRANSFER###": "user_transferred",
}
PERSONAS: Mapping[str, str] = {
    "EXPERT": "You know the subject well, use its terms, ask for exactly what you need and notice mistakes.",
    "NOVICE": "You know little of the subject, use everyday words, and give details only when you are asked for them.",
    "EVALUATOR": "You follow the plan to the letter, add nothing of your own, and answer questions plainly.",
}

_INSTRUCTIONS = """\
You play a person who talks to an agent. The agent must never learn that you are played.

<persona>
{{ persona }}
</persona>

<plan>
{{ conversation_plan }}
</plan>

Rules:
- Write the next message of this person and nothing else: no quotation marks, no stage directions.
- One thing at a time, in your own words, as people write in a chat. Do not tell the whole plan at once.
- Invent nothing. If you are asked for something that the plan does not say, say that you do not know it.
- If the agent asks you to confirm something, confirm or refuse first, and end the conversation only after its answer.
- When all of the plan is done, answer with {{ stop_signal }} alone.
- When it cannot be done and you would give up, answer with ###GIVE-UP### alone.
- When the agent hands you over to somebody else, answer with ###TRANSFER### alone.
- When the plan does not say enough to go on, answer with ###OUT-OF-SCOPE### alone.
"""


@dataclass(slots=True)
class ModelUser:
    """Asks a model for each message. A stop signal beside other text counts after the agent's answer."""

    model: str
    instructions: str
    config: UserConfig
    _stop: UserStop | None = field(default=None, init=False)

    async def next(self, session: Session) -> UserReply:
        """The next message, or the reason to stop. Raises ModelError."""
        if self._stop:
            return UserReply(stop=self._stop)
        events: list[Event] = []
        for _ in range(N_TRIES):
            reply = await self._ask(session)
            events.append(Event("usage", usage=replace(reply.usage, role="user")))
            text, stop = self._read(reply.text)
            if text and stop:
                self._stop = stop
                events.append(remark(f"{reply.text.strip()!r} names a stop signal beside other words"))
            if text:
                return UserReply(text, events=tuple(events))
            if stop:
                return UserReply(
                    stop=stop, events=(*events, remark(f"the simulated user ended it: {reply.text.strip()}"))
                )
            events.append(remark("the simulated user's model answered with no text"))
        error = ErrorRecord("user_error", f"the simulated user ({self.model}) said nothing, {N_TRIES} times in a row")
        return UserReply(stop="user_error", events=tuple(events), error=error)

    async def _ask(self, session: Session) -> ModelReply:
        options = self.config.options
        call = ModelCall.from_options(options, self.model, self._messages(session), seed=session.seed)
        return await complete(call, retry_policy=DEFAULT_RETRIES.with_retries(options.n_retries))

    def _messages(self, session: Session) -> list[JsonObject]:
        """The conversation from the user's side: the agent's messages are the input of this model."""
        messages: list[JsonObject] = [{"role": "system", "content": self.instructions}]
        messages.append({"role": "user", "content": GREETING})
        for turn in session.turns:
            messages.append({"role": "assistant", "content": turn.query})
            messages.append({"role": "user", "content": turn.answer or "(The agent said nothing.)"})
        return messages

    def _read(self, text: str) -> tuple[str, UserStop | None]:
        """The text without stop signals, and the meaning of the first of them."""
        stops: dict[str, UserStop] = {self.config.stop_signal: "user_satisfied", **STOPS}
        pattern = re.compile("|".join(re.escape(signal) for signal in stops), re.IGNORECASE)
        match = pattern.search(text)
        if not match:
            return text.strip(), None
        stop_by_signal = {signal.upper(): stop for signal, stop in stops.items()}
        return pattern.sub("", text).strip(), stop_by_signal[match[0].upper()]


def instructions_of(scenario: Mapping[str, JsonValue], config: UserConfig) -> str:
    """The instructions of the user's model, with a note for a scenario with a starting prompt."""
    has_begun = bool(str(scenario.get("starting_prompt") or "").strip())
    values = {
        "conversation_plan": str(scenario.get("conversation_plan") or scenario.get("instructions") or ""),
        "stop_signal": config.stop_signal,
        "persona": _persona(scenario.get("user_persona")),
        "conversation_history": "(The conversation follows as messages.)",
    }
    text = re.sub(
        r"\{\{\s*(\w+)\s*\}\}", lambda match: values.get(match[1], match[0]), config.instructions or _INSTRUCTIONS
    )
    return f"{text}\n{OPENING_NOTE}" if has_begun else text


def _persona(raw: JsonValue) -> str:
    """A persona in words: ADK's three names, an object with behaviours, or any text."""
    if isinstance(raw, str) and raw:
        return PERSONAS.get(raw.upper(), raw)
    if not isinstance(raw, dict):
        return "An ordinary person who wants to get this done."
    lines = [str(raw.get("description") or raw.get("id") or "")]
    behaviors = raw.get("behaviors")
    for behavior in behaviors if isinstance(behaviors, list) else []:
        if isinstance(behavior, dict):
            lines.append(f"- {behavior.get('name', '')}: {behavior.get('description', '')}")
            rules = behavior.get("behavior_instructions")
            lines += [f"  - {rule}" for rule in (rules if isinstance(rules, list) else [])]
    return "\n".join(line for line in lines if line.strip())
