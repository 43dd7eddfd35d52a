"""An endpoint of OpenAI's chat completions and responses and of Anthropic's messages that answers by its request.

It calls `roll_die` where the last message of the user wants a roll and no result follows, else it answers with the
result, or with the number of the user's messages. Where the request offers `final_answer` or `submit`, the answer is a
call of it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from evaldesk.llm.apis import Api, api_of

WANTS_ROLL = "Roll a d6"
TOOL = "roll_die"
TOKENS_IN, TOKENS_OUT = 11, 5
CODE = "Thought: I roll.\n<code>\nfinal_answer('got ' + str(roll_die(sides=6)))\n</code>"


@dataclass
class Exchange:
    """One request with its answer."""

    path: str
    request: dict[str, Any]
    answer: str


@dataclass
class FakeEndpoint:
    """The address, and all exchanges."""

    address: str = ""
    exchanges: list[Exchange] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """The answer: a text, or a call of a tool."""

    text: str = ""
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


def next_step(api: Api, request: Mapping[str, Any]) -> Step:
    """The answer to a request."""
    parts = [part for message in _messages(api, request) for part in _parts(message)]
    users = [at for at, (role, _) in enumerate(parts) if role == "user"]
    users = [at for at in users if "hello?" in parts[at][1] or WANTS_ROLL in parts[at][1]]
    last = max(users, default=-1)
    results = [text for role, text in parts[last + 1 :] if role == "tool"]
    tools = [_tool_name(tool) for tool in request.get("tools") or ()]
    tool = next((name for name in tools if name.endswith(TOOL)), "")
    is_roll = last >= 0 and WANTS_ROLL in parts[last][1]
    if is_roll and not results:
        if tool:
            return Step(tool=tool, args={"sides": 6})
        if not tools:
            return Step(CODE)
    answer = f"got {results[0]}" if is_roll and results else f"hello {len(users)}"
    if ending_tool := next((name for name in ("final_answer", "submit") if name in tools), ""):
        return Step(tool=ending_tool, args={"answer": answer})
    if not tools and "final_answer" in json.dumps(request):
        answer = f"<code>\nfinal_answer({answer!r})\n</code>"
    return Step(answer)


def _messages(api: Api, request: Mapping[str, Any]) -> list[Any]:
    raw = request.get("input" if api == "responses" else "messages")
    return raw if isinstance(raw, list) else [{"role": "user", "content": raw}]


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a message with their role; a result has the role of a tool."""
    if message.get("type") == "function_call_output":
        yield "tool", _text(message.get("output"))
        return
    role = {"tool": "tool", "tool-response": "tool", "user": "user"}.get(str(message.get("role")), "")
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, Mapping) and part.get("type") == "tool_result":
            yield "tool", _text(part.get("content"))
        elif role == "user":  # smolagents writes results and errors as texts, and joins messages
            for text in re.split(r"(?m)^(?=New task:|Observation:|Error:)", _text(part)):
                is_result = text.startswith(("Observation:", "Error:"))
                yield "tool" if is_result else role, text.removeprefix("Observation:").strip() if is_result else text
        else:
            yield role, _text(part)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(map(_text, value))
    if isinstance(value, Mapping):
        return str(value.get("text") or "")
    return str(value or "")


def _tool_name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name") or (tool.get("function") or {}).get("name") or "")


def answer_of(api: Api, request: Mapping[str, Any], step: Step, call_id: str) -> list[dict[str, Any]]:
    """The answer: one object, or those of a stream."""
    return {"chat": _chat, "responses": _response, "messages": _anthropic}[api](request, step, call_id)


def _chat(request: Mapping[str, Any], step: Step, call_id: str) -> list[dict[str, Any]]:
    message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
    if step.tool:
        function = {"name": step.tool, "arguments": json.dumps(step.args)}
        message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
    usage = {
        "prompt_tokens": TOKENS_IN,
        "completion_tokens": TOKENS_OUT,
        "total_tokens": TOKENS_IN + TOKENS_OUT,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    base = {"id": f"chatcmpl-{call_id}", "created": 1, "model": str(request.get("model"))}
    reason = "tool_calls" if step.tool else "stop"
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return [{**base, "object": "chat.completion", "choices": [choice], "usage": usage}]
    delta = {**message, "tool_calls": [{**call, "index": 0} for call in message.get("tool_calls", ())]}
    chunk = {**base, "object": "chat.completion.chunk"}
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta if step.tool else message}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]
    asks_usage = (request.get("stream_options") or {}).get("include_usage")
    return [*chunks, {**chunk, "choices": [], "usage": usage}] if asks_usage else chunks


def _response(request: Mapping[str, Any], step: Step, call_id: str) -> list[dict[str, Any]]:
    if step.tool:
        function = {"call_id": call_id, "name": step.tool, "arguments": json.dumps(step.args)}
        item: dict[str, Any] = {"type": "function_call", "id": f"fc_{call_id}", "status": "completed", **function}
    else:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        item = {"type": "message", "id": f"msg_{call_id}", "status": "completed", "role": "assistant"}
        item["content"] = content
    usage = {
        "input_tokens": TOKENS_IN,
        "output_tokens": TOKENS_OUT,
        "total_tokens": TOKENS_IN + TOKENS_OUT,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    response = {
        "id": f"resp_{call_id}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": str(request.get("model")),
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }
    if not request.get("stream"):
        return [response]
    return [
        {"type": "response.created", "sequence_number": 0, "response": {**response, "output": [], "usage": None}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
        {"type": "response.completed", "sequence_number": 3, "response": response},
    ]


def _anthropic(request: Mapping[str, Any], step: Step, call_id: str) -> list[dict[str, Any]]:
    block: dict[str, Any] = {"type": "text", "text": step.text}
    if step.tool:
        block = {"type": "tool_use", "id": f"toolu_{call_id}", "name": step.tool, "input": dict(step.args)}
    usage = {"input_tokens": TOKENS_IN - 3, "cache_read_input_tokens": 3, "output_tokens": TOKENS_OUT}
    message = {
        "id": f"msg_{call_id}",
        "type": "message",
        "role": "assistant",
        "model": str(request.get("model")),
        "content": [block],
        "stop_reason": "tool_use" if step.tool else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }
    if not request.get("stream"):
        return [message]
    delta = {"type": "text_delta", "text": step.text}
    if step.tool:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(dict(step.args))}
    start = {**block, "input": {}} if step.tool else {"type": "text", "text": ""}
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": usage},
        {"type": "message_stop"},
    ]


@contextmanager
def fake_endpoint() -> Iterator[FakeEndpoint]:
    """The endpoint while this lasts; `/v1` belongs to the address of OpenAI's clients."""
    endpoint, call_numbers = FakeEndpoint(), count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            api = api_of(self.path)
            request = json.loads(data or b"{}")
            if api not in ("chat", "responses", "messages"):
                self._send(404, "application/json", b'{"type": "error", "error": {"message": "unknown"}}')
                return
            values = answer_of(api, request, next_step(api, request), f"call_{next(call_numbers)}")
            if not request.get("stream"):
                text = json.dumps(values[0])
                self._send(200, "application/json", text.encode())
            else:
                events = [f"event: {value.get('type', 'message')}\n" if "type" in value else "" for value in values]
                lines = [f"{event}data: {json.dumps(each)}\n\n" for event, each in zip(events, values, strict=True)]
                text = "".join([*lines, "data: [DONE]\n\n" if api == "chat" else ""])
                self._send(200, "text/event-stream", text.encode())
            endpoint.exchanges.append(Exchange(self.path.partition("?")[0], request, text))

        def do_GET(self) -> None:
            self._send(404, "application/json", b"{}")

        do_HEAD = do_GET  # noqa: N815

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
