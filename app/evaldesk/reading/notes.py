"""The notes of an importer: one sentence for each kind, with its count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import NAME_LIMIT
from evaldesk.reading.json_places import path_text
from evaldesk.reading.strict_json import JsonPosition

_MAX_SENTENCES = 50


@dataclass(slots=True)
class Notes:
    """Counts of left-out parts, each with the place of the first one."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def refuse(self, what: str, place: JsonPosition) -> None:
        """Note that `what`, such as "a part of a message that is not text", was left out at `place`."""
        self.counts[what] = self.counts.get(what, 0) + 1
        where = path_text(place.document.within + place.path)
        self.places.setdefault(what, ": ".join(filter(None, (place.document.part, where))))

    def count(self, what: str) -> int:
        """How often `what` was left out so far."""
        return self.counts.get(what, 0)

    def unknown_keys(self, place: JsonPosition, raw: Mapping[str, Any], known_keys: Collection[str]) -> dict[str, Any]:
        """The keys of an object that are not `known`, to be kept as they are; names like `$form` are our own."""
        for key in raw:
            if key.startswith("$"):
                self.refuse(f"key {key[:NAME_LIMIT]!r}, a name that Evaldesk keeps for itself", place)
        return {key: value for key, value in raw.items() if key not in known_keys and not key.startswith("$")}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each kind of thing that was left out; of very many kinds the first."""
        kinds = list(self.counts.items())[:_MAX_SENTENCES]
        n_more = len(self.counts) - len(kinds)
        more = (f"Left out: {n_more} more kinds of things.",) if n_more else ()
        return (*(f"Left out: {what}{self._where(what, n)}." for what, n in kinds), *more)

    def _where(self, what: str, n: int) -> str:
        times = f", {n} times, first" if n > 1 else ","
        return f"{times} at {self.places[what]}" if self.places[what] else (f", {n} times" if n > 1 else "")
