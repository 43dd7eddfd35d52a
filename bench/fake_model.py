"""An OpenAI-compatible endpoint in a process of its own: every request is answered after a given delay.

Where there are tools, the answer to a user is a call of the first of them, and the answer to its result is text.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FUNCTION = {"name": "look_up", "arguments": '{"what": "it"}'}
TEXT = {"role": "assistant", "content": "hello"}
TOOL_CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]}
_ROLE = re.compile(rb'"role": ?"(\w+)"')


def _answer(message: Mapping[str, object], finish_reason: str) -> bytes:
    """The whole response, headers included."""
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }
    body = json.dumps(completion).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


TELLS = _answer(TEXT, "stop")
CALLS = _answer(TOOL_CALL, "tool_calls")


@contextmanager
def fake_model(delay_ms: int) -> Iterator[str]:
    """The address of an endpoint that takes `delay_ms` for each answer."""
    command = [sys.executable, "-m", "bench.fake_model", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class _Connection(asyncio.Protocol):
    """One kept-alive connection; requests come one after the other."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._received) < end + 4 + length:
                return
            body = self._received[end + 4 : end + 4 + length]
            self._received = self._received[end + 4 + length :]
            is_call = b'"tools"' in body and _ROLE.findall(body)[-1] == b"user"
            asyncio.get_running_loop().call_later(self._delay_s, self._send, CALLS if is_call else TELLS)

    def _send(self, answer: bytes) -> None:
        if isinstance(self._transport, asyncio.WriteTransport) and not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(delay_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(delay_s), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) / 1000))
