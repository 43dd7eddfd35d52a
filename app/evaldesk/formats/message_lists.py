"""Lists of messages as OpenAI, Anthropic and pydantic-ai write them: one conversation, several, or one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from evaldesk.errors import FormatError
from evaldesk.formats.adk.old import stem
from evaldesk.formats.exchange import Holding, Imported, ReadOnly
from evaldesk.formats.recorded_cases import repeatable_cases
from evaldesk.model import Case, EvalSet
from evaldesk.model.evalset import REVIEW_REASON, for_review
from evaldesk.reading.fields import read_documents
from evaldesk.reading.json_lines import write_lines
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_mapping
from evaldesk.transcripts.conversation_case import case_of, check_conversation, write_openai
from evaldesk.transcripts.messages.anthropic import has_blocks, read_anthropic, write_anthropic
from evaldesk.transcripts.messages.chat import ITEMS, NO_TEXT, read_chat
from evaldesk.transcripts.messages.pydantic import is_pydantic, read_pydantic
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.transcripts.recorded_sessions import lost_words

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_NAMES = ("id", "case_id", "conversation_id")
_BESIDE = {"messages", "system", *_NAMES}
# Keys of other tools' files that hold messages, too.
_OTHERS = {"instance_id", "trajectory", "traj", "simulations", "evaluation_criteria", "test_result", "eval", "samples"}
_Read = Callable[[JsonPosition, Any, Notes], tuple[Message, ...]]


class _Messages:
    """Conversations, one a line where they are written."""

    name: ClassVar[str]
    suffixes = (".messages.jsonl", ".jsonl", ".json")
    writes: ClassVar[tuple[Holding, ...]] = ("evalset",)
    of_anthropic: ClassVar[bool]

    @classmethod
    def recognises(cls, data: bytes, source: str) -> bool:
        """Whether the first conversation has roles, and blocks or a system prompt beside it where Anthropic's has."""
        conversation = _first(data)
        return conversation is not None and has_blocks(conversation) is cls.of_anthropic

    @classmethod
    def read(cls, data: bytes, *, source: str) -> Imported:
        """A case for each conversation. Raises FormatError."""
        return _build_import(cls.name, data, source, read_anthropic if cls.of_anthropic else read_chat)

    @classmethod
    def write(cls, what: EvalSet | RecordedRun) -> bytes:
        """One conversation a line. Raises FormatError."""
        return _write_cases(what, write_anthropic if cls.of_anthropic else write_openai)


class OpenAiMessages(_Messages):
    """`[{"role", "content", "tool_calls"?}, ...]`, or objects with such a list under `messages`."""

    name = "openai-messages"
    title = "Messages, OpenAI style"
    of_anthropic = False


class AnthropicMessages(_Messages):
    """`{"system"?, "messages": [{"role", "content": [blocks]}]}`, or the list of messages alone."""

    name = "anthropic-messages"
    title = "Messages, Anthropic style"
    of_anthropic = True


class PydanticAiMessages(ReadOnly):
    """`[{"kind": "request", "parts": [...]}, {"kind": "response", "parts": [...]}, ...]`, one conversation."""

    title = "Messages of pydantic-ai"
    suffixes = (".json",)
    instead = "write an eval set as openai-messages"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the file is a list of requests and responses."""
        return is_pydantic(peek(data).document)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The one case of the conversation. Raises FormatError."""
        return _build_import("pydantic-ai", data, source, read_pydantic)


def _first(data: bytes) -> Any:
    """The first conversation, a list or an object; None when the file is something else."""
    value = peek(data).first
    if isinstance(value, list) and value and isinstance(value[0], dict) and "messages" in value[0]:
        value = value[0]
    messages = value.get("messages") if isinstance(value, dict) and not _OTHERS & set(value) else value
    if not isinstance(messages, list) or not messages:
        return None
    objects = [message for message in messages if isinstance(message, dict)]
    roles = [message.get("role") for message in objects if message.get("type") not in ITEMS]
    is_chat = bool(roles) and all(isinstance(role, str) and role in _ROLES for role in roles)
    return value if is_chat and any("content" in each for each in objects) else None


def _build_import(name: str, data: bytes, source: str, read_messages: _Read) -> Imported:
    notes = Notes()
    own_name = stem(source).removesuffix(".jsonl").removesuffix(".messages")
    cases: dict[str, Case] = {}
    for number, (place, raw) in enumerate(_conversations(data, source)):
        n_lost = -notes.count(NO_TEXT)
        case = _case(place, raw, f"{own_name}_{number + 1}", read_messages, notes)
        n_lost += notes.count(NO_TEXT)
        if n_lost or REVIEW_REASON in case.extra:  # a list of messages has no tags
            case = for_review(case, lost_words(n_lost) if n_lost else str(case.extra[REVIEW_REASON]))
        if case.id in cases:
            raise place.error(f"there are two conversations called {case.id!r}")
        cases[case.id] = case
    if not cases:
        raise FormatError("the file contains no conversation", source=source)
    new_cases, sentences = repeatable_cases([*cases.values()])
    return Imported(name, EvalSet(own_name, cases=new_cases), understood=sentences, refused=notes.sentences)


def _conversations(data: bytes, source: str) -> Iterator[tuple[JsonPosition, Any]]:
    for document in read_documents(data, source):
        place, value = JsonPosition(document), document.value
        if isinstance(value, list) and value and isinstance(value[0], dict) and "messages" in value[0]:
            yield from ((place.at(index), item) for index, item in enumerate(value))
        else:
            yield place, value


def _case(place: JsonPosition, raw: Any, default: str, read_messages: _Read, notes: Notes) -> Case:
    """The case of one conversation; the keys beside its messages stay with it."""
    fields = {"messages": raw} if isinstance(raw, list) else read_mapping(place, raw)
    at = place if isinstance(raw, list) else place.at("messages")
    system = fields.get("system")
    if not isinstance(raw, list) and system is not None:
        messages = (
            *read_messages(place, [{"role": "system", "content": system}], notes),
            *read_messages(at, fields.get("messages"), notes),
        )
    else:
        messages = read_messages(at, fields.get("messages"), notes)
    name = next((own for key in _NAMES if isinstance(own := fields.get(key), str) and own), default)
    extra = notes.unknown_keys(place, fields, _BESIDE)
    return case_of(name, turns_of(messages), [each.text for each in messages if each.speaker == "system"], extra)


def _write_cases(what: EvalSet | RecordedRun, write: Callable[[Case], dict[str, Any]]) -> bytes:
    if isinstance(what, RecordedRun):
        raise FormatError("lists of messages contain no verdicts; write a run as adk-results or osmosis-results")
    if not what.cases:
        raise FormatError("the eval set has no cases, and a file of no conversations cannot be read again")
    rows = []
    for number, case in enumerate(what.cases):
        check_conversation(case)
        own = {} if case.id == f"{what.id}_{number + 1}" else {"id": case.id}
        extra = {key: value for key, value in case.extra.items() if key != "system_prompt" and not key.startswith("$")}
        rows.append({**own, **write(case), **extra})
    return write_lines(rows, what.id)
