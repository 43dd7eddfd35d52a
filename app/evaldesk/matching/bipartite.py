"""A maximum one-to-one matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def maximum_matching(edges: Sequence[Sequence[int]]) -> int:
    """Size of a maximum matching, by breadth-first augmenting paths; `edges[i]` are the partners that suit i.

    What a failed search has reached can never be freed again and is not searched twice.
    """
    owner: dict[int, int] = {}
    held: dict[int, int] = {}
    dead: set[int] = set()
    for start in range(len(edges)):
        reached: dict[int, int] = {}
        free = _free_call(start, edges, owner, dead, reached)
        if free is None:
            dead.update(reached)
        while free is not None:
            wish = reached[free]
            owner[free] = wish
            held[wish], free = free, held.get(wish)
    return len(owner)


def _free_call(
    start: int, edges: Sequence[Sequence[int]], owner: Mapping[int, int], dead: set[int], reached: dict[int, int]
) -> int | None:
    queue = [start]
    for wish in queue:
        for call in edges[wish]:
            if call in reached or call in dead:
                continue
            reached[call] = wish
            if call not in owner:
                return call
            queue.append(owner[call])
    return None
