"""Which of the old items the new items are, when a list was edited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any


def edited_pairs(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int | None, int | None]]:
    """Pairs (old index, new index) in order; None on a side means added or removed. Items are JSON values."""
    matcher = SequenceMatcher(
        None, [json.dumps(item) for item in old], [json.dumps(item) for item in new], autojunk=False
    )
    pairs: list[tuple[int | None, int | None]] = []
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        pairs.extend(zip_longest(range(old_start, old_end), range(new_start, new_end)))
    return pairs
