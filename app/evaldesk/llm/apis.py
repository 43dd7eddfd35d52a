"""The APIs of models, told by the path of a request."""

from __future__ import annotations

from typing import Literal, TypeAlias

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
