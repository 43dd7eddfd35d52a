"""The exceptions of our own client, and the fields that models refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.model import JsonObject

MAX_MESSAGE = 1000
MAX_TOKENS, MAX_COMPLETION = "max_tokens", "max_completion_tokens"
"""Two names of one limit; reasoning models accept only the second."""


class BrokenAnswerError(Exception):
    """An answer with status 200 and no usable content."""

    status_code = 200


class EndpointError(Exception):
    """An error status, with the message of its `body`; `key_name` is the variable for the API key."""

    def __init__(
        self, status_code: int, answer: bytes, headers: Mapping[str, str] | None = None, key_name: str = ""
    ) -> None:
        self.body = answer.decode("utf-8", "replace")
        super().__init__(_message(answer) or self.body[:MAX_MESSAGE] or f"the endpoint answered {status_code}")
        self.status_code = status_code
        self.headers = headers or {}
        self.key_name = key_name


def _message(answer: bytes) -> str:
    """The message in an error body of OpenAI, vLLM or Ollama; empty without one."""
    try:
        value: Any = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    for name in ("error", "message"):
        value = value.get(name, value) if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else ""


OWN_FIELDS = ("seed", "stream_options")
"""Fields added by Evaldesk; all others come from the user."""
OPTION_FIELDS = frozenset({"temperature", "top_p", MAX_TOKENS, MAX_COMPLETION, "reasoning_effort"})
MAY_REFUSE = frozenset({400, 404, 422})
"""The statuses of a possible refusal of a field."""
_UNSUPPORTED = re.compile(
    r"not? (?:longer )?support|unsupported|does not support|unrecognized|unknown|unexpected|not permitted|not allowed"
    r"|extra (?:inputs|fields)|deprecated|only the default",
    re.I,
)
"""Matches a refusal of a parameter, as opposed to a refusal of its value."""


@dataclass(slots=True)
class Strictness:
    """The refused fields by model and address, in this process."""

    _refused_fields: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)

    def unknown_to(self, model: str, address: str | None) -> frozenset[str]:
        """The fields to leave out."""
        return frozenset(self._refused_fields.get((model, address), ()))

    def learn(
        self, model: str, address: str | None, sent_fields: frozenset[str], status: int | None, text: str
    ) -> frozenset[str]:
        """Store and return the newly refused fields in an answer: a retry without them may help.

        A field of `sent_fields`, set by the user, counts if the model does not support it, not if its value is wrong.
        """
        if status not in MAY_REFUSE:
            return frozenset()
        known_fields = self.unknown_to(model, address)
        option_fields = sent_fields if _UNSUPPORTED.search(text) else ()
        new_fields = frozenset(
            {name for name in (*OWN_FIELDS, *option_fields) if re.search(rf"\b{name}\b", text)} - known_fields
        )
        if new_fields:
            self._refused_fields.setdefault((model, address), set()).update(new_fields)
        return new_fields


STRICTNESS = Strictness()


def without_fields(body: JsonObject, names: frozenset[str]) -> dict[str, Any]:
    """The request body without the fields; a refused `max_tokens` is renamed to its other name."""
    fields = {name: value for name, value in body.items() if name not in names}
    if MAX_TOKENS in names and MAX_TOKENS in body and MAX_COMPLETION not in names:
        fields.setdefault(MAX_COMPLETION, body[MAX_TOKENS])
    return fields


def dropped_fields_note(model: str, names: frozenset[str]) -> str:
    """The sentence on fields that are left out from now on; empty for a renamed field only."""
    fields = sorted(names - {*OWN_FIELDS, MAX_TOKENS})
    return f"{model} refuses {' and '.join(fields)}: from now on it is asked without" if fields else ""
