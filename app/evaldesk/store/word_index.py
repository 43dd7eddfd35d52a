"""The index of words in runs, as each engine of a database keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

INBOX = 0
"""The number that conversations of the inbox have in the place of a run; their ids are the places."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a run is indexed: its totals then, and the time of the last trial that is in the index."""

    mark: str
    up_to: datetime | None = None


class WordIndex(Protocol):
    """Words and the numbers of the places that hold them; `refusal` says why there is none."""

    refusal: str

    def indexed_runs(self) -> Mapping[int, Seen]:
        """The runs that are in the index."""

    def put(self, run_id: int, progress: Seen, words: Sequence[tuple[int, Collection[str]]]) -> None:
        """Replace the words of some places in one short transaction."""

    def count(self, run_id: int) -> int:
        """The number of indexed places of a run."""

    def forget(self, run_id: int) -> bool:
        """Take some places of a run out, and at last the run; True while some are left."""

    def numbers(self, words: Sequence[str], but: Collection[int], limit: int) -> Sequence[int]:
        """The newest places with all words, the last one perhaps a beginning of a word, in no run of `but`."""

    def numbers_in(self, words: Sequence[str], spans: Sequence[tuple[int, int]], limit: int) -> Sequence[Sequence[int]]:
        """The places with all words in each span, from its first number to before its end; at most `limit` in each."""

    def newest_in(self, words: Sequence[str], first: int, end: int, limit: int) -> Sequence[int]:
        """The same places, the last ones first."""

    def size(self) -> int:
        """The bytes that it takes."""
