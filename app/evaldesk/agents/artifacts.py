"""Files that an agent makes, as events: a line of log with the name and the text of each."""

from __future__ import annotations

from evaldesk.model import Event
from evaldesk.model.transcript import ARTIFACTS

MAX_ARTIFACT = 20_000
"""The characters that are kept of each."""


def artifact_event(name: str, data: bytes | str, n_bytes: int | None = None) -> Event:
    """The event of a file; `data` may be its beginning, `n_bytes` is its size. That of bytes alone has its size."""
    if isinstance(data, bytes):
        try:
            data = data.decode("utf-8")
        except UnicodeDecodeError:
            data = f"{len(data) if n_bytes is None else n_bytes:,} bytes that are not text"
    return Event("log", author=ARTIFACTS, text=f"{name}:\n{data[:MAX_ARTIFACT]}")
