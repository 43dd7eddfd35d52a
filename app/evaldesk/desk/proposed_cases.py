"""The checks of a case that a coding agent proposes, beyond those of a file: its keys, messages and quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.formats import case_to_json, shown_extra
from evaldesk.formats.adk.events import events_key
from evaldesk.model import Case, JsonObject
from evaldesk.model.evalset import QUARANTINE
from evaldesk.reading.scenario import unknown_keys
from evaldesk.reading.values import snake_case

_CALL_KEYS = ("partial_args", "will_continue")
_EXPECTED_KEYS = ("tool_responses",)
_SESSION_KEYS = ("session_id",)
_RUBRIC_KEYS = ("rubric_id", "rubric_content", "description", "type")
_RUBRIC_CONTENT_KEYS = ("text_property",)
"""Of google-adk's Rubric (google-adk evaluation/eval_rubrics.py)."""
_EVENT_KEYS = ("author", "content")
_CONTENT_KEYS = ("parts", "role")
_PART_KEYS = (
    "text",
    "inline_data",
    "file_data",
    "function_call",
    "function_response",
    "thought",
    "thought_signature",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
    "media_resolution",
    "video_metadata",
    "part_metadata",
    "audio_transcription",
    "media_processing",
    "speech_metadata",
)
"""The keys of google-genai's Part (google-genai types.py)."""
_CONTENTS = ("user_content", "final_response")


def check_proposed(case: Case, before: Case | None) -> None:
    """Raise UsageError for a case that no coding agent may propose; `before` is the case that it would replace."""
    _check_messages(case, before)
    _check_keys(case, before)
    check_quarantine(case, before)


def check_quarantine(case: Case, before: Case | None) -> None:
    """Raise UsageError where a client would take a case out of the gates, which only a person does (decision 512)."""
    if adds_quarantine(case, before):
        raise UsageError(
            f"the tag {QUARANTINE} takes a case out of every gate; a person sets it on the page of its eval set",
            field="patch",
        )


def adds_quarantine(case: Case, before: Case | None) -> bool:
    """Whether the case would leave the gates."""
    return QUARANTINE in case.tags and not (before and QUARANTINE in before.tags)


def _check_messages(case: Case, before: Case | None) -> None:
    if not (case.turns or case.scenario) and (before is None or before.turns or before.scenario):
        raise UsageError("conversation: the case has no message of a user left; keep one turn at least", field="patch")


def _check_keys(case: Case, before: Case | None) -> None:
    """Raise UsageError for a key that no reader knows, unless the case had it at such a place before."""
    earlier_keys = {(_place_kind(place), key) for place, key in _unknown_keys(before)} if before else set()
    for place, key in _unknown_keys(case):
        if (_place_kind(place), key) not in earlier_keys:
            where = f" in {place}" if place else ""
            raise UsageError(f"unknown key {key!r:.200}{where}; a case has the keys that get_case gives", field="patch")


def _place_kind(place: str) -> str:
    """The place without its numbers."""
    return "".join(each for each in place if not each.isdigit())


def _unknown_keys(case: Case) -> Iterator[tuple[str, str]]:
    """The place of an object, empty for the case, and a key of it that no reader knows."""
    yield from _others("", case.extra, ())
    if case.initial_session:
        yield from _others("session_input", case.initial_session.extra, _SESSION_KEYS)
    for key in unknown_keys(case.scenario) if case.scenario else ():
        yield "conversation_scenario", key
    yield from _unknown_keys_of_rubrics("rubrics", case.rubrics)
    for at, turn in enumerate(case.turns):
        place = f"conversation[{at}]"
        yield from _unknown_keys_of_rubrics(f"{place}.rubrics", turn.rubrics)
        yield from _others(place, turn.extra, ())
        yield from _others(f"{place}.intermediate_data", turn.expected.extra, _EXPECTED_KEYS)
        for number, call in enumerate(turn.expected.tool_calls or ()):
            yield from _others(f"{place}.intermediate_data.tool_uses[{number}]", call.extra, _CALL_KEYS)
    value: Any = case_to_json(case)
    conversation = value.get("conversation")
    for at, each in enumerate(conversation if isinstance(conversation, list) else ()):
        for name, content in each.items():
            if not isinstance(content, dict):
                continue
            place = f"conversation[{at}].{name}"
            if snake_case(name) in _CONTENTS:
                yield from _unknown_keys_of_content(place, content)
            elif events := events_key(content):
                for number, event in enumerate(content[events]):
                    place_of_event = f"{place}.{events}[{number}]"
                    yield from _others(place_of_event, event, _EVENT_KEYS)
                    yield from _unknown_keys_of_content(f"{place_of_event}.content", event.get("content") or {})


def _unknown_keys_of_content(place: str, content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _others(place, content, _CONTENT_KEYS)
    parts = content.get("parts")
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        yield from _others(f"{place}.parts[{number}]", part, _PART_KEYS)


def _unknown_keys_of_rubrics(place: str, rubrics: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    for number, rubric in enumerate(rubrics):
        at = f"{place}[{number}]"
        yield from _others(at, rubric, _RUBRIC_KEYS)
        if isinstance(content := rubric.get("rubric_content"), dict):
            yield from _others(f"{at}.rubric_content", content, _RUBRIC_CONTENT_KEYS)


def _others(place: str, value: Any, known_keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    for key in shown_extra(value):
        if snake_case(key) not in known_keys:
            yield place, key
