"""A recorded transcript as an agent: it repeats the recorded answers, marked as replayed.

The file holds one transcript (`{"turns": […]}`), several of them by case and trial (`{"trials": [{"case_id": …,
"trial_index": …, "transcript": {"turns": […]}}]}`), or the messages of one conversation as OpenAI, Anthropic or
pydantic-ai have them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from evaldesk.agents.agent import Agent
from evaldesk.agents.tools.doubles import RECORDING
from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.codec import msgspec
from evaldesk.errors import VALUE_LIMIT, AgentError, FormatError
from evaldesk.llm.retry_events import note_capture
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session, Transcript, TurnRecord
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.messages.anthropic import has_blocks, read_anthropic
from evaldesk.transcripts.messages.chat import read_chat
from evaldesk.transcripts.messages.pydantic import is_pydantic, read_pydantic
from evaldesk.transcripts.messages.turns import turns_of
from evaldesk.wire import converted, to_json

KIND = "replay"
MAX_BYTES = 64 * 1024 * 1024


class Trial(msgspec.Struct, frozen=True):
    """One recorded trial; without a case id it answers for any case."""

    transcript: Transcript
    case_id: str | None = None
    trial_index: int = 0


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent of a recording file. Raises AgentError."""
    return ReplayAgent(ref, tuple(read_recording(Path(ref.target))))


@dataclass(frozen=True, slots=True)
class ReplayAgent:
    """Answers from a recording. An unrecorded question is an error, never the answer to another question."""

    ref: AgentRef
    trials: tuple[Trial, ...] = field(repr=False)

    def describe(self) -> AgentDescription:
        """The file, and its number of trials."""
        n = len(self.trials)
        text = f"Answers from {Path(self.ref.target).name}, a recording of {n} {'trial' if n == 1 else 'trials'}"
        return AgentDescription(name=self.ref.id, kind=KIND, description=text)

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Yield the events of the recorded turn; its usage is marked as replayed, at no cost."""
        note_capture("told")
        number = len(session.turns)
        turn = self._turn([*(turn.query for turn in session.turns), message])
        if turn is None or turn.query.strip() != message.strip():
            yield Event("error", error=ErrorRecord("not_recorded", self._no_turn_words(turn, number, message)))
            return
        yield Event("log", author=RECORDING, text=f"replayed from {Path(self.ref.target).name}, turn {number + 1}")
        for event in turn.events:
            if event.kind == "state_delta":
                for change in event.changes:
                    if change.is_present:
                        session.state[change.key] = change.after
                    else:
                        session.state.pop(change.key, None)
            elif event.usage:
                yield replace(event, usage=replace(event.usage, cost=0.0, is_replayed=True))
            elif event.kind != "user_message" and not event.is_partial:
                yield event

    def _turn(self, queries: Sequence[str]) -> TurnRecord | None:
        """The recorded turn of the last of `queries`, in the first trial with the same queries.

        Without such a trial, the turn at that place in the first trial of the case and index.
        """
        number = len(queries) - 1
        candidates = [trial.transcript.turns for trial in self.trials if _is_meant(trial)]
        long_enough = [turns for turns in candidates if number < len(turns)]
        texts = [query.strip() for query in queries]
        same = (turns for turns in long_enough if [turn.query.strip() for turn in turns[: number + 1]] == texts)
        turns = next(same, long_enough[0] if long_enough else None)
        return turns[number] if turns else None

    def _no_turn_words(self, turn: TurnRecord | None, number: int, message: str) -> str:
        place = f"turn {number + 1}"
        playing = CURRENT_TRIAL.get()
        if playing:
            place = f"case {playing.case.id!r}, trial {playing.trial_index + 1}, {place}"
        if turn is None:
            return f"the recording has no {place}"
        query = turn.query[:VALUE_LIMIT]
        return f"the recording has another question at {place}: {query!r}, not {message[:VALUE_LIMIT]!r}"


def _is_meant(trial: Trial) -> bool:
    """Whether the recorded trial has the case and index of the current trial; in a chat, any trial.

    The first recorded trial never answers the second: the same answers would count twice.
    """
    playing = CURRENT_TRIAL.get()
    if playing is None:
        return True
    return trial.case_id in {None, playing.case.id} and trial.trial_index == playing.trial_index


def read_recording(path: Path) -> list[Trial]:
    """The trials in a file. Raises AgentError with the accepted forms."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentError(f"{path}: bigger than {MAX_BYTES // 2**20} MiB")
        data = path.read_bytes()
        content = json.loads(data, parse_constant=_refuse_constant)
        if b"\\ud" in data.lower():
            to_json(content)  # half of a character raises ValueError here, and nowhere else any more
    except OSError as error:
        raise AgentError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise AgentError(f"{path}: no JSON: {error}") from error
    try:
        return list(_trials(content))
    except (msgspec.ValidationError, ValueError, FormatError) as error:
        raise AgentError(f"{path}: no recording: {error}; wanted turns, trials or messages") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _trials(content: Any) -> Iterator[Trial]:
    if isinstance(content, list) or (isinstance(content, dict) and "messages" in content):
        yield Trial(_transcript_of(content))
    elif isinstance(content, dict) and "turns" in content:
        yield Trial(converted(content, Transcript))
    elif isinstance(content, dict) and isinstance(content.get("trials"), list):
        yield from converted(content["trials"], list[Trial])
    else:
        raise ValueError(f"it is {type(content).__name__} without turns or trials")


def _transcript_of(content: list[Any] | dict[str, Any]) -> Transcript:
    """The turns of the messages, equal to an import of them. Raises FormatError."""
    place = JsonPosition(Document(content))
    at, messages = (place, content) if isinstance(content, list) else (place.at("messages"), content["messages"])
    read_messages = read_pydantic if is_pydantic(messages) else read_anthropic if has_blocks(content) else read_chat
    return Transcript(turns_of(read_messages(at, messages, Notes())))
