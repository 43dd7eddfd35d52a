"""Shards of an eval set, which several machines play: the shard of each case."""

from __future__ import annotations

from hashlib import blake2b


def shard_of(shard: str) -> tuple[int, int]:
    """The number of a shard, from 1, and how many there are."""
    number, n = shard.split("/")
    return int(number), int(n)


# By the id alone, so that a new case moves no other: decision 507.
def place_of(case_id: str, n: int) -> int:
    """The shard of a case among `n`, from 0: BLAKE2b of its id, as a whole number with the highest byte first."""
    return int.from_bytes(blake2b(case_id.encode("utf-8", "surrogatepass")).digest(), "big") % n
