"""uvicorn's HTTP with what it does not bound: how long a request's head may take, and how large it may be."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0
MAX_HEAD = 64 * 1024


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection that does not bring the whole head of its next request in HEAD_S seconds.

    The clock starts with the connection, and with the first byte of every further request.
    """

    head_s = HEAD_S
    _head_timer: asyncio.TimerHandle | None = None
    _n_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is None:
            return
        self._n_head_bytes += len(data)
        if self._n_head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of this request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def _begin_head(self) -> None:
        if self._head_timer is None:
            self._n_head_bytes = 0
            self._head_timer = self.loop.call_later(self.head_s, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
