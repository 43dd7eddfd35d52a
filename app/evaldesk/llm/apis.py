"""The APIs of models, by the path of a request."""

from __future__ import annotations

from typing import Literal, TypeAlias

OWN_ADDRESSES: set[str] = set()
"""Hosts and ports of Evaldesk's own servers in this process; their model calls are recorded by our own client."""

Api: TypeAlias = Literal["chat", "responses", "messages", "generate"]


def api_of(path: str) -> Api | None:
    """The API of the path; None for other paths, such as a list of models."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "messages"
    return "generate" if path.endswith((":generateContent", ":streamGenerateContent")) else None


def model_in(path: str) -> str:
    """The model in the path, as in Google's API; empty for APIs with the model in the body."""
    return path.partition("?")[0].rpartition("/models/")[2].partition(":")[0] if "/models/" in path else ""
