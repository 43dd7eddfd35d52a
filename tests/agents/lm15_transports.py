"""A stand-in for the transports of lm15, DSPy's client: the same classes and functions, one request a connection."""

from __future__ import annotations

from pathlib import Path

TYPES = """
from dataclasses import dataclass, field

@dataclass(slots=True)
class TransportRequest:
    method: str
    url: str
    headers: list = field(default_factory=list)
    body: bytes = b""

class _Response:
    def __init__(self, *, status, reason, headers, http_version, chunks, release):
        self.status, self.headers, self._chunks, self._release = status, headers, chunks, release

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name), None)

class TransportResponse(_Response):
    def __iter__(self):
        yield from self._chunks
        self._release(True)

    def read(self):
        return b"".join(self)

class AsyncTransportResponse(_Response):
    async def __aiter__(self):
        async for part in self._chunks:
            yield part
        await self._release(True)

    async def read(self):
        return b"".join([part async for part in self])
"""
ERRORS = '''
class ReadError(Exception):
    """The answer breaks off."""

class ReadTimeout(ReadError):
    """There was no answer in time."""
'''
SYNC = """
import socket
from urllib.parse import urlsplit
from ._types import TransportRequest, TransportResponse

def head_of(request):
    address = urlsplit(request.url)
    lines = [f"{request.method} {address.path} HTTP/1.0", f"Host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    return "\\r\\n".join([*lines, f"Content-Length: {len(request.body)}", "", ""]).encode()

def response_of(head):
    first, *lines = head.decode().split("\\r\\n")
    return int(first.split()[1]), [tuple(line.split(": ", 1)) for line in lines if line]

class StdlibTransport:
    def stream(self, request):
        address = urlsplit(request.url)
        own = socket.create_connection((address.hostname, address.port))
        own.sendall(head_of(request) + request.body)
        file = own.makefile("rb")
        head = b"".join(iter(file.readline, b"\\r\\n"))
        status, headers = response_of(head)
        chunks = iter(lambda: file.read(7), b"")
        closing = lambda _: (file.close(), own.close())
        return TransportResponse(
            status=status, reason="", headers=headers, http_version="HTTP/1.0", chunks=chunks, release=closing
        )
"""
ASYNC = """
import asyncio
from urllib.parse import urlsplit
from ._sync import head_of, response_of
from ._types import AsyncTransportResponse

class StdlibAsyncTransport:
    async def _do_stream(self, request):
        address = urlsplit(request.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(head_of(request) + request.body)
        status, headers = response_of((await reader.readuntil(b"\\r\\n\\r\\n"))[:-4])

        async def chunks():
            while part := await reader.read(7):
                yield part

        async def release(_):
            writer.close()
            await writer.wait_closed()

        return AsyncTransportResponse(
            status=status, reason="", headers=headers, http_version="HTTP/1.0", chunks=chunks(), release=release
        )
"""


def write_transports(folder: Path) -> None:
    """Write the package `lm15` into a folder."""
    package = folder / "lm15" / "transports"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    sources = {"__init__": "", "_types": TYPES, "_exceptions": ERRORS, "_sync": SYNC, "_async": ASYNC}
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
