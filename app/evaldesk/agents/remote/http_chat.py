"""An OpenAI-compatible chat endpoint as an agent; only its answers are visible."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from evaldesk.agents.agent import Agent, ModelCaller
from evaldesk.agents.event_pump import SendEvent, events_of
from evaldesk.agents.own.model_calls import ask
from evaldesk.agents.remote.http_protocol import read_options
from evaldesk.codec import msgspec
from evaldesk.llm import ModelCall, is_direct, warm
from evaldesk.llm.retry_events import note_capture, note_unseen
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, JsonObject, Session
from evaldesk.model.chat import chat_messages, user_messages

KIND = "http_chat"
DEFAULT_MODEL = "default"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's table. `model` is the model name of the request, `instruction` the first message, if any."""

    model: str = DEFAULT_MODEL
    instruction: str = ""
    api_key_env: str | None = None
    extra: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent at an address."""
    return HttpChatAgent(ref, read_options(ref, Options))


@dataclass(frozen=True, slots=True)
class HttpChatAgent(ModelCaller):
    """An endpoint that gets the whole conversation and answers with text. A run's model replaces the model name."""

    ref: AgentRef
    options: Options

    def describe(self) -> AgentDescription:
        """Its address and its model name."""
        return AgentDescription(
            name=self.ref.id,
            kind=KIND,
            description=f"An OpenAI-compatible endpoint at {self.ref.target}",
            instruction=self.options.instruction,
            model=self.options.model,
            is_direct=is_direct(self._call(Session("describe"), "")),
        )

    def warm(self, session: Session) -> None:
        """Import the packages for its calls."""
        warm(self._call(session, ""))

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Call the endpoint once. Raises ModelError."""
        return events_of(lambda send: self._ask(session, message, send))

    async def _ask(self, session: Session, message: str, send: SendEvent) -> None:
        def send_text(text: str) -> None:
            send(Event("agent_message", author=self.ref.id, text=text, is_partial=True))

        note_capture("answers")
        note_unseen("state")
        reply = await ask(session, self._call(session, message), send_text if session.is_streaming else None)
        send(Event("usage", usage=reply.usage))
        if reply.text:
            send(Event("agent_message", author=self.ref.id, text=reply.text))
        if reply.tool_calls:
            names = ", ".join(call.name for call in reply.tool_calls)
            sentence = f"the endpoint wants us to call {names}; an agent behind an endpoint calls its tools itself"
            send(Event("error", error=ErrorRecord("wants_tools", sentence)))

    def _call(self, session: Session, message: str) -> ModelCall:
        run_options, own_options = session.model_options, self.options
        system: list[JsonObject] = (
            [{"role": "system", "content": own_options.instruction}] if own_options.instruction else []
        )
        return ModelCall.from_options(
            run_options,
            session.model or own_options.model,
            [*system, *chat_messages(session.turns), *user_messages(message, session.media)],
            seed=session.seed,
            api_base=self.ref.target.removesuffix("/chat/completions"),
            api_key_env=run_options.api_key_env or own_options.api_key_env,
            extra={**own_options.extra, **run_options.extra},
        )
