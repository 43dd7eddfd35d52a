"""The APIs of models, told by the path of a request."""

from __future__ import annotations

from typing import Literal, TypeAlias

OWN_ADDRESSES: set[str] = set()
"""Hosts and ports of this process at which a model is asked by our own calls, which are told and recorded as such."""

Api: TypeAlias = Literal["chat", "responses", "messages", "generate"]


def api_of(path: str) -> Api | None:
    """The API that answers at the path; None for any other, such as a list of models."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "messages"
    return "generate" if path.endswith((":generateContent", ":streamGenerateContent")) else None


def model_in(path: str) -> str:
    """The model that the path names, as Google's do; empty where the body names it."""
    return path.partition("?")[0].rpartition("/models/")[2].partition(":")[0] if "/models/" in path else ""
