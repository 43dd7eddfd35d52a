"""Answers over HTTP as they come: unpacked piece by piece, and never to more than a limit."""

from __future__ import annotations

import zlib

from evaldesk.errors import NAME_LIMIT, TEXT_LIMIT, FormatError

MAX_ANSWER = 32 * 1024 * 1024
ASKED_FOR = "identity"
"""The value of `Accept-Encoding`: an answer that is packed all the same is unpacked within the limit."""

_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS


class Unpacker:
    """Unpacks one body, which is packed as its header `Content-Encoding` says. Errors are a FormatError."""

    def __init__(self, encoding: str | None, limit: int = MAX_ANSWER) -> None:
        name = (encoding or ASKED_FOR).strip().lower()
        if name not in {ASKED_FOR, "gzip", "x-gzip", "deflate"}:
            raise FormatError(f"the answer is packed as {name[:NAME_LIMIT]!r}; only gzip and deflate can be read")
        self._packed = None if name == ASKED_FOR else zlib.decompressobj(_ZLIB_OR_GZIP)
        self._limit = limit
        self._n_left = limit

    def feed(self, data: bytes) -> bytes:
        """The bytes that `data` unpacks to. Raises FormatError when it is damaged, or too much together."""
        if self._packed:
            try:
                data = self._packed.decompress(data, self._n_left + 1)
            except zlib.error as error:
                raise FormatError(f"the answer is damaged: {error}") from None
        self._n_left -= len(data)
        if self._n_left < 0:
            verb = "unpacks to" if self._packed else "has"
            raise FormatError(f"the answer {verb} more than {self._limit // 2**20} MiB, which is refused")
        return data


def redirect_refusal(status: int, location: str) -> str:
    """Why a redirect is not followed; of its target the scheme and the host are shown."""
    target = "/".join(location.split("/", 3)[:3])[:TEXT_LIMIT] if "://" in location else "another path"
    return (
        f"answered {status}, a redirect to {target}. Redirects are not followed: keys would be sent there. "
        "Name the final address itself"
    )
