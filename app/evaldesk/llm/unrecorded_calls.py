"""Model requests of `http.client`, the library of `requests` and `urllib`, and of aiohttp.

Their answers are read as they pass by, and are not recorded: a replay refuses the request.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.client_wrapping import AIOHTTP
from evaldesk.llm.model_request import (
    END_MARK,
    ModelRequest,
    is_to_model,
    note_missed_call,
    refuse_in_replay,
    unrecorded_request,
)

_BEDROCK = "bedrock-runtime"
_BY_HTTP_CLIENT = "it is sent by http.client, as requests and urllib do"
_BY_AIOHTTP = "it is sent by aiohttp"
_OPEN_CALL = "_evaldesk_call"
_MAX_DECODED = 64 * 1024 * 1024
"""Bytes of an answer that are read; a longer one is a missed call."""


@dataclass(slots=True)
class _OpenCall:
    """A request between its first line and its answer: the parts of its body as they are sent."""

    path: str
    parts: list[bytes] = field(default_factory=list)
    has_head: bool = False
    is_sending: bool = False

    def take(self, data: object) -> None:
        """Take what is sent after the head; an open file or an iterator stays unread."""
        if self.has_head and isinstance(data, bytes | bytearray | memoryview):
            self.parts.append(bytes(data))
        self.has_head = True


# Private steps of a request, as `requests` and urllib3 share no public function below them: decision 105.
def watch_putrequest(putrequest: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the begin of a request of `http.client`."""

    @wraps(putrequest)
    def begin(connection: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        setattr(connection, _OPEN_CALL, None)
        host, path = f"{connection.host}:{connection.port}", urlsplit(url).path
        if method == "POST" and _BEDROCK in host:
            note_missed_call(_BY_HTTP_CLIENT)
        elif method == "POST" and is_to_model(host, path):
            refuse_in_replay(_BY_HTTP_CLIENT)
            setattr(connection, _OPEN_CALL, _OpenCall(path))
        return putrequest(connection, method, url, *args, **options)

    return begin


def watch_send(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sending of a part: the head of the request, then its body."""

    @wraps(send)
    def send_part(connection: Any, data: Any) -> Any:
        call = getattr(connection, _OPEN_CALL, None)
        if call is None or call.is_sending:  # the first part opens the connection, which may send to a proxy
            return send(connection, data)
        call.take(data)
        call.is_sending = True
        try:
            return send(connection, data)
        finally:
            call.is_sending = False

    return send_part


def watch_again(connection: Any, path: str) -> None:
    """Watch the next request on the connection, too, whose parts are sent without `putrequest`."""
    setattr(connection, _OPEN_CALL, _OpenCall(path))


def watch_getresponse(getresponse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for the answer, and copy its bytes as the agent reads them."""

    @wraps(getresponse)
    def get(connection: Any, *args: Any, **options: Any) -> Any:
        call = getattr(connection, _OPEN_CALL, None)
        setattr(connection, _OPEN_CALL, None)
        request = unrecorded_request(call.path, b"".join(call.parts), _BY_HTTP_CLIENT) if call else None
        if request is None:
            return getresponse(connection, *args, **options)
        try:
            response = getresponse(connection, *args, **options)
        except BaseException as error:
            request.record_error(error)
            raise
        original = getattr(response, "_original_response", response)  # urllib3 puts its own around it
        if not 200 <= response.status < 300:
            request.record_failure(f"HTTP {response.status}")
        elif original.fp is not None:
            original.fp = _CopyingFile(original.fp, original, request)
        return response

    return get


class _CopyingFile:
    """The file of an answer, whose bytes are kept as they are read, and reported when it is closed."""

    def __init__(self, file: Any, response: Any, request: ModelRequest) -> None:
        self._file = file
        self._request: ModelRequest | None = request
        self._parts: list[bytes] = []
        self._is_chunked, self._length = bool(response.chunked), response.length
        self._encoding = (response.getheader("content-encoding") or "").strip().lower()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, *args: Any) -> bytes:
        """Read and keep."""
        return self._keep(self._file.read(*args))

    def read1(self, *args: Any) -> bytes:
        """Read and keep."""
        return self._keep(self._file.read1(*args))

    def readline(self, *args: Any) -> bytes:
        """Read and keep."""
        return self._keep(self._file.readline(*args))

    def readinto(self, buffer: Any) -> int:
        """Read and keep."""
        n = int(self._file.readinto(buffer))
        self._keep(bytes(memoryview(buffer)[:n]))
        return n

    def close(self) -> None:
        """Report an answer that is whole; one that is not stays a pending request."""
        self._file.close()
        request, self._request = self._request, None
        if request is None:
            return
        data, self._parts = b"".join(self._parts), []
        body = without_chunks(data) if self._is_chunked else data if len(data) >= (self._length or 0) else None
        text = decoded_body(body, self._encoding) if body is not None else None
        if text is not None:
            request.report(text)
        elif END_MARK in data:
            request.report(decoded_body(data, self._encoding) or data)

    def _keep(self, data: bytes) -> bytes:
        if self._request and data:
            self._parts.append(data)
        return data


def without_chunks(data: bytes) -> bytes | None:
    """The body in chunks (RFC 9112, section 7.1); None without its last chunk."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        try:
            size = int(data[at:end].partition(b";")[0], 16) if end >= 0 else -1
        except ValueError:
            return None
        if size <= 0:
            return b"".join(parts) if size == 0 else None
        parts.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def decoded_body(data: bytes, encoding: str) -> bytes | None:
    """The body without its compression; None for one that is not known, broken or too long."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)  # by its head: gzip or zlib
    try:
        text = reader.decompress(data, _MAX_DECODED)
    except zlib.error:
        return None
    return None if reader.unconsumed_tail else text


def watch_aiohttp(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a request of aiohttp, and copy its answer as the agent reads it."""

    @wraps(send)
    async def request(session: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        address = urlsplit(str(str_or_url))
        model_request = None
        if is_to_model(address.netloc, address.path):
            model_request = unrecorded_request(address.path, sent_body(options), _BY_AIOHTTP)
        if model_request is None:
            return await send(session, method, str_or_url, **options)
        try:
            response = await send(session, method, str_or_url, **options)
        except BaseException as error:
            model_request.record_error(error)
            raise
        if response.ok:
            response.content = _copying_reader(sys.modules[f"{AIOHTTP}.streams"])(response.content, model_request)
        else:
            model_request.record_failure(f"HTTP {response.status}")
        return response

    return request


def sent_body(options: Mapping[str, Any]) -> bytes | Mapping[str, Any]:
    """The body of a request of aiohttp by its `json` or `data`; empty for one that is not read here."""
    content, data = options.get("json"), options.get("data")
    if isinstance(content, Mapping):
        return content
    return data.encode() if isinstance(data, str) else bytes(data) if isinstance(data, bytes | bytearray) else b""


_READS = ("read", "readany", "readline", "readuntil", "readexactly")


def _copying(name: str) -> Any:
    async def read(self: Any, *args: Any) -> bytes:
        return bytes(self._keep(await getattr(self._reader, name)(*args)))

    return read


@cache
def _copying_reader(streams: Any) -> Any:
    """A class of aiohttp's readers that keeps what is read, and reports it at the end."""

    reader_class = streams.StreamReader

    class CopyingReader:
        def __init__(self, reader: Any, request: ModelRequest) -> None:
            self._reader = reader
            self._request: ModelRequest | None = request
            self._parts: list[bytes] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        read, readany, readline, readuntil, readexactly = map(_copying, _READS)
        __aiter__, iter_any = reader_class.__aiter__, reader_class.iter_any  # they read by the functions above
        iter_chunked, iter_chunks = reader_class.iter_chunked, reader_class.iter_chunks

        async def readchunk(self) -> tuple[bytes, bool]:
            data, is_end = await self._reader.readchunk()
            return self._keep(data), is_end

        def read_nowait(self, *args: Any) -> bytes:
            return self._keep(self._reader.read_nowait(*args))

        def _keep(self, data: bytes) -> bytes:
            if self._request:
                self._parts.append(data)
                if self._reader.at_eof() or END_MARK in data:
                    request, self._request = self._request, None
                    request.report(b"".join(self._parts))
            return data

    return CopyingReader
