"""A user that a model plays, from an ADK conversation scenario or tau-bench's instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evaldesk.agents.users.users import N_TRIES, UserReply, remark
from evaldesk.llm import PATIENT, ModelCall, ModelReply, complete, pace_of
from evaldesk.model import ErrorRecord, Event, JsonObject, JsonValue, Session
from evaldesk.model.options import UserConfig, UserStop

GREETING = "Hello! How can I help you today?"
OPENED = "Your first message is said already."

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
        """The next message, or why there is none. Raises ModelError."""
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
        call = ModelCall(
            self.model,
            self._messages(session),
            temperature=options.temperature,
            top_p=options.top_p,
            reasoning_effort=options.reasoning_effort,
            pace=pace_of(options),
            max_tokens=options.max_tokens,
            seed=session.seed,
            api_base=options.base_url,
            api_key_env=options.api_key_env,
            prices=options.prices,
            extra=options.extra,
        )
        return await complete(call, patience=PATIENT.with_retries(options.n_retries))

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
        found = pattern.search(text)
        if not found:
            return text.strip(), None
        known = {signal.upper(): stop for signal, stop in stops.items()}
        return pattern.sub("", text).strip(), known[found[0].upper()]


def instructions_of(scenario: Mapping[str, JsonValue], config: UserConfig) -> str:
    """The input of the user's model; it begins in the middle where the scenario has a starting prompt."""
    has_begun = bool(str(scenario.get("starting_prompt") or "").strip())
    values = {
        "conversation_plan": str(scenario.get("conversation_plan") or scenario.get("instructions") or ""),
        "stop_signal": config.stop_signal,
        "persona": _persona(scenario.get("user_persona")),
        "conversation_history": "(The conversation follows as messages.)",
    }
    text = re.sub(
        r"\{\{\s*(\w+)\s*\}\}", lambda found: values.get(found[1], found[0]), config.instructions or _INSTRUCTIONS
    )
    return f"{text}\n{OPENED}" if has_begun else text


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
