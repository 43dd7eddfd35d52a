"""What an importer tells the person who imports: one sentence for each thing, however often it occurs."""

from __future__ import annotations

from dataclasses import dataclass, field

from evaldesk.formats.json_places import path_text
from evaldesk.formats.strict_json import Place


@dataclass(slots=True)
class Notes:
    """Counts of what was left out, each with the place where it was seen first."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def refuse(self, what: str, place: Place) -> None:
        """Note that `what`, such as "a part of a message that is no text", was left out at `place`."""
        self.counts[what] = self.counts.get(what, 0) + 1
        member = place.document.source.partition("!")[2]
        self.places.setdefault(what, ": ".join(filter(None, (member, path_text(place.path)))))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each kind of thing that was left out."""
        return tuple(f"Left out: {what}{self._where(what, n)}." for what, n in self.counts.items())

    def _where(self, what: str, n: int) -> str:
        times = f", {n} times, first" if n > 1 else ","
        return f"{times} at {self.places[what]}" if self.places[what] else (f", {n} times" if n > 1 else "")
