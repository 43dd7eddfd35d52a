"""Events of google-adk as ours, from the JSON that its server, its sessions and its results write.

(google-adk 2.13 events/event.py, models/llm_response.py; reference/adk.md 2.2)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import BadNumberError
from evaldesk.model import ErrorRecord, Event, JsonObject, JsonValue, ToolCall, Usage, Waiting
from evaldesk.model.decisions import ANSWER, APPROVAL, Decided, Decision
from evaldesk.model.json_text import json_line
from evaldesk.model.media import HELD, Media, base64_text, join_parts, split
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
    snake_case,
    text_of,
    wrong_value,
)
from evaldesk.transcripts.recorded import bad_number, usage_event, whole_number

REQUEST = "adk_request_"
CONFIRMATION = f"{REQUEST}confirmation"
"""How the names of the calls begin by which google-adk asks a person."""
NODE_CONFIRMATION = "wf_tool_confirmation:"
"""How the ids of requests begin by which a node of a workflow asks whether it may run (google-adk 2.13)."""

_TOKENS_IN = ("prompt_token_count", "tool_use_prompt_token_count")
_TOKENS_OUT = ("candidates_token_count", "thoughts_token_count", "total_token_count")


@dataclass(slots=True)
class AdkEvents:
    """Reads the events of a session one by one; a result finds the call that it answers in `calls`.

    `waiting` are the tools that wait for a person, by the id of their calls: for a confirmation, or because they run
    long. google-adk asks the person by a call of its own, which is no call of the agent, but is the one to be answered.
    """

    calls: dict[str, ToolCall] = field(default_factory=dict)
    requests: dict[str, Waiting] = field(default_factory=dict)

    def read(self, place: JsonPosition, raw: Any) -> Iterator[Event]:
        """The contents of an event: usage, text, calls and results, in either case, and an error at its end.

        A piece of a streamed answer is a partial message and nothing else. The price of a usage is not known here.
        Raises FormatError.
        """
        event = spelled(read_mapping(place, raw))
        author = read_optional_text(place.at("author"), event.get("author")) or ""
        content = event.get("content")
        parts = [] if content is None else read_parts(place.at("content"), content)
        text = message_text(parts)
        if event.get("partial"):
            if text:
                yield Event("agent_message", author=author, text=text, is_partial=True)
            return
        yield from self._usage(place, event, author)
        media = join_parts(message_parts([part for part in parts if not part.get("thought")]))[1]
        if (text or media) and author != "user":
            yield Event("agent_message", author=author, text=text, media=media)
        yield from _node_output(event, author, has_message=bool(text or media))
        unconfirmed = _keys(spelled(_dict(event.get("actions"))).get("requested_tool_confirmations"))
        pending_ids = unconfirmed | _keys(event.get("long_running_tool_ids"))
        for number, part in enumerate(parts):
            for part_event in self._part(place.at("content", "parts", number), part, author):
                yield self._note_waiting(part_event, pending_ids, unconfirmed)
        texts = [event[key] for key in ("error_code", "error_message") if event.get(key)]
        if texts:
            yield Event("error", author=author, error=ErrorRecord("model", ": ".join(map(str, texts))))

    def _note_waiting(self, event: Event, pending_ids: frozenset[str], unconfirmed: frozenset[str]) -> Event:
        """The event; a request to the person, and the result of a call that was not made, are told in a log."""
        call = event.call
        if call is None:
            return event
        if call.name.startswith(REQUEST):
            if event.kind == "tool_call":
                self._ask(call)
            else:
                self.requests = {key: each for key, each in self.requests.items() if each.id != (call.id or call.name)}
            original = _dict(spelled(_dict(call.args)).get("original_function_call"))
            return Event("log", author=event.author, text=f"{call.name}: {original.get('name', 'a decision')}")
        if call.id in pending_ids:
            choices = APPROVAL if call.id in unconfirmed else ANSWER
            self.requests.setdefault(call.id, Waiting(call.id, call.name, call.args, choices))
        if event.kind == "tool_result" and call.id in unconfirmed:
            return Event("log", author=event.author, text=f"{call.name} waits for a confirmation")
        return event

    def _ask(self, call: ToolCall) -> None:
        """Note a request to the person: for a confirmation of another call or of a node, or for an input."""
        args = spelled(_dict(call.args))
        original = spelled(_dict(args.get("original_function_call")))
        if (call.id or "").startswith(NODE_CONFIRMATION):
            payload = spelled(_dict(args.get("payload")))
            name, node_args = str(payload.get("tool_name") or call.name), _dict(payload.get("args"))
            self.requests[str(call.id)] = Waiting(str(call.id), name, node_args, APPROVAL, args.get("message"))
            return
        if not original:
            self.requests[call.id or call.name] = Waiting(
                call.id or call.name, call.name, call.args, ANSWER, args.get("message")
            )
            return
        hint = _dict(args.get("tool_confirmation")).get("hint")
        name = str(original.get("name") or call.name)
        self.requests[str(original.get("id") or call.id)] = Waiting(
            call.id or call.name, name, _dict(original.get("args")), APPROVAL, hint or None
        )

    def call(self, place: JsonPosition, raw: Any) -> ToolCall:
        """A function call, which a later result may answer. Raises FormatError."""
        raw = read_mapping(place, raw)
        args: JsonObject = read_optional_mapping(place.at("args"), raw.get("args")) or {}
        call_id = read_optional_text(place.at("id"), raw.get("id"))
        call = ToolCall(read_text(place.at("name"), raw.get("name", ABSENT)), args, call_id)
        self.calls[call.id or call.name] = call
        return call

    def result(self, place: JsonPosition, raw: Any, author: str = "") -> Event:
        """A function response; a value that ADK wrapped into an object is taken out again. Raises FormatError."""
        raw = read_mapping(place, raw)
        name = read_optional_text(place.at("name"), raw.get("name")) or ""
        call_id = read_optional_text(place.at("id"), raw.get("id"))
        response = read_optional_mapping(place.at("response"), raw.get("response"))
        call = self.calls.get(call_id or name) or ToolCall(name, id=call_id)
        is_error = response is not None and response.get("error") not in (None, "", False)
        return Event("tool_result", author=author, call=call, result=unwrap_result(response), is_error=is_error)

    def _part(self, place: JsonPosition, part: dict[str, Any], author: str) -> Iterator[Event]:
        for key, value in part.items():
            name = snake_case(key)
            if value is None:
                continue
            if name == "function_call":
                yield Event("tool_call", author=author, call=self.call(place.at(key), value))
            elif name == "function_response":
                yield self.result(place.at(key), value, author)
            elif name == "thought" and value and isinstance(part.get("text"), str):
                yield Event("log", author="thought", text=part["text"])
            elif name in ("executable_code", "code_execution_result") and isinstance(value, dict):
                title, text = (
                    ("runs code", value.get("code")) if "code" in value else ("code gave", value.get("output"))
                )
                yield Event("log", author=author, text=f"{title}:\n{text}")

    def _usage(self, place: JsonPosition, event: dict[str, Any], author: str) -> Iterator[Event]:
        raw = read_optional_mapping(place.at("usage_metadata"), event.get("usage_metadata"))
        if raw is None:
            return
        counts = spelled(raw)
        model = read_optional_text(place.at("model_version"), event.get("model_version")) or ""
        try:
            tokens_in = sum(whole_number(counts.get(key), key) for key in _TOKENS_IN)
            n_answer, thoughts, total = (whole_number(counts.get(key), key) for key in _TOKENS_OUT)
            # of LiteLLM's models google-adk tells thoughts that are counted in what was said, as the total shows
            tokens_out = n_answer if total == tokens_in + n_answer else n_answer + thoughts
            cached = whole_number(counts.get("cached_content_token_count"), "tokens_cached")
            usage: Usage | ErrorRecord = Usage(
                model,
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                tokens_cached=cached,
                tokens_reasoning=thoughts,
            )
        except BadNumberError as error:
            usage = bad_number(error)
        yield usage_event(usage, author)


_TRANSIENT_PREFIXES = ("temp:", "_adk", "__llm_request_key__")


def kept_state(state: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The state without keys of one invocation and without the own keys of google-adk's runner."""
    return {key: value for key, value in state.items() if not key.startswith(_TRANSIENT_PREFIXES)}


def person_results(calls: Mapping[str, ToolCall], decided: Iterable[Decided]) -> Iterator[Event]:
    """The results that a person gave for calls that waited."""
    for request, decision in decided:
        if request.id in calls and decision.decision == "answer":
            yield Event("tool_result", call=calls[request.id], result=decision.answer)


def wrap_result(result: JsonValue) -> dict[str, JsonValue]:
    """The result of a tool as ADK has it, which wants an object."""
    return result if isinstance(result, dict) else {"result": result}


def unwrap_result(response: JsonValue) -> JsonValue:
    """The result of a tool, out of the object into which ADK wraps other values."""
    is_wrapped = isinstance(response, dict) and set(response) == {"result"} and not isinstance(response["result"], dict)
    return response["result"] if isinstance(response, dict) and is_wrapped else response


def function_response(request: Waiting, decision: Decision) -> JsonObject:
    """The decision as the function response by which a person's client answers google-adk (2.13 cli/cli.py)."""
    if decision.decision == "answer":
        return {"id": request.id, "name": request.tool, "response": wrap_result(decision.answer)}
    name = f"{REQUEST}input" if request.id.startswith(NODE_CONFIRMATION) else CONFIRMATION
    return {"id": request.id, "name": name, "response": {"confirmed": decision.decision == "approve"}}


def _node_output(event: dict[str, Any], author: str, *, has_message: bool) -> Iterator[Event]:
    """The output of a node of a workflow: the answer where it is that of the root, else a log, with the route it takes.

    The path of a node is `root@1/inner@1/node@2`, with the number of its run; `output_for` has the nodes that give the
    same output.
    """
    info = spelled(_dict(event.get("node_info")))
    names = [step.partition("@")[0] for step in str(info.get("path") or "").split("/")]
    output, route = event.get("output"), spelled(_dict(event.get("actions"))).get("route")
    if not names[0] or (output is None and route is None):
        return
    text = output if isinstance(output, str) else "" if output is None or has_message else json_line(output)
    if text and not has_message and any("/" not in str(path) for path in _items(info.get("output_for"))):
        yield Event("agent_message", author=author, text=text)
        return
    phrases = [
        f"gave {text}" if text and not has_message else "",
        f"takes the route {json_line(route)}" if route is not None else "",
    ]
    parent = names[-2] if len(names) > 1 else ""
    yield Event("log", author=names[-1], parent=parent, text=", ".join(filter(None, phrases)))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _keys(value: Any) -> frozenset[str]:
    """The ids of a list, or of an object by id; none of anything else."""
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list | dict) else frozenset()


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def spelled(raw: dict[str, Any]) -> dict[str, Any]:
    """The object with its keys in snake_case."""
    return {snake_case(key): value for key, value in raw.items()}


def read_parts(place: JsonPosition, raw: Any) -> list[dict[str, Any]]:
    """The parts of a content, each text checked. Null and absent parts are none."""
    raw = read_mapping(place, raw)
    parts = raw.get("parts")
    if parts is None:
        return []
    return list(read_list(place.at("parts"), parts, _read_part))


def parts_text(parts: Sequence[dict[str, Any]]) -> str | None:
    """The text as ADK's metrics see it: non-empty texts joined by newlines, thoughts included; None without any.

    (reference: google-adk 2.13 evaluation/final_response_match_v1.py)
    """
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "\n".join(text for text in texts if text) if texts else None


def message_parts(parts: Sequence[dict[str, Any]]) -> list[str | Media]:
    """The texts of a message, and its media, in order. A part whose bytes are no base64 is none.

    (google-genai types.Part: inline_data has bytes, file_data an address)
    """
    items: list[str | Media] = []
    for part in parts:
        text, media = part.get("text"), _media(spelled(part))
        if isinstance(text, str):
            items.append(text)
        elif media:
            items.append(media)
    return items


def _media(part: dict[str, Any]) -> Media | None:
    fields = spelled(_dict(part.get("inline_data") or part.get("file_data")))
    mime_type, name = fields.get("mime_type"), text_of(fields.get("display_name"))
    data, uri = fields.get("data"), fields.get("file_uri")
    data = base64_text(data) if isinstance(data, str) else None
    if not isinstance(mime_type, str) or not (data or (isinstance(uri, str) and uri)):
        return None
    if not data and str(uri).startswith(HELD):  # as we write what a run holds
        return Media(mime_type.lower(), str(uri), name=name)
    return Media(mime_type.lower(), data or "", "" if data else str(uri), name)


def written_parts(text: str, media: Sequence[Media]) -> list[dict[str, Any]]:
    """The parts of a user's message; bytes in the base64 for addresses, as google-genai writes them."""
    return [_write_part(part) for part in split(text, media)] if media else [{"text": text}]


def _write_part(part: str | Media) -> dict[str, Any]:
    if isinstance(part, str):
        return {"text": part}
    name = {"display_name": part.name} if part.name else {}
    if part.data and not part.is_held:
        data = part.data.replace("+", "-").replace("/", "_")
        return {"inline_data": {**name, "data": data, "mime_type": part.mime_type}}
    return {"file_data": {**name, "file_uri": part.uri or part.data, "mime_type": part.mime_type}}


def message_text(parts: Sequence[dict[str, Any]]) -> str:
    """The text that the agent said aloud: `parts_text` without thoughts."""
    return parts_text([part for part in parts if not part.get("thought")]) or ""


def _read_part(place: JsonPosition, raw: Any) -> dict[str, Any]:
    part = read_mapping(place, raw)
    text = part.get("text")
    if text is not None and not isinstance(text, str):
        raise wrong_value(place.at("text"), text, "a string")
    for key in part:
        if snake_case(key) in ("function_call", "function_response") and part[key] is not None:
            read_mapping(place.at(key), part[key])
    return part
