"""Endpoints that refuse a request for a field they do not know: told once, they are not sent it again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evaldesk.llm.call import ModelCall

OURS = ("seed", "stream_options")  # what we add without being asked; anything else a person asked for
_REFUSED = frozenset({400, 404, 422})


@dataclass(slots=True)
class Strictness:
    """The fields that each model at each address refused, in this process."""

    _refused: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)

    def unknown_to(self, call: ModelCall) -> frozenset[str]:
        """The fields to leave out."""
        return frozenset(self._refused.get((call.model, call.api_base), ()))

    def learn(self, call: ModelCall, error: BaseException) -> bool:
        """Whether `error` is about a field of ours that was not known to be refused: then asking again may help."""
        if getattr(error, "status_code", None) not in _REFUSED:
            return False
        said = f"{getattr(error, 'body', '')} {error}"
        named = {name for name in OURS if re.search(rf"\b{name}\b", said)}
        new = named - self.unknown_to(call)
        if new:
            self._refused.setdefault((call.model, call.api_base), set()).update(new)
        return bool(new)


STRICTNESS = Strictness()
