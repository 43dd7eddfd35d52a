"""How often the clients that other frameworks bring try again: as often as the run asks for."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

_own: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def heed_retries(client: Any, n_retries: int | None) -> None:
    """Let a client of OpenAI's or Anthropic's make try again `n_retries` times; None gives it its own number back."""
    if isinstance(getattr(client, "max_retries", None), int):
        own = _own.setdefault(client, client.max_retries)
        client.max_retries = own if n_retries is None else n_retries
