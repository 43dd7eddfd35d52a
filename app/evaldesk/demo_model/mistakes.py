"""The mistakes of the scripted model: which one a turn gets is decided by chance that a seed repeats."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEFAULT_SHARE = 0.25
OVERLOADED_SHARE = 0.06  # of the mistakes
VARIABLE = "EVALDESK_DEMO_MISTAKES"
OVERLOADED = "the scripted demo model pretends to be overloaded"


class Overloaded(Exception):  # noqa: N818 - it is the error of the pretended provider
    """The pretended provider refuses."""


@dataclass(frozen=True, slots=True)
class Slips:
    """The chance of one turn; every call within the turn sees the same. `share` of turns, 0 to 1, goes wrong."""

    share: float
    key: str

    def pick(self, kinds: Sequence[str]) -> str:
        """One of `kinds`, or empty when this turn goes well. Raises Overloaded now and then."""
        chance = self._chance("slip")
        if chance.random() >= self.share:
            return ""
        if chance.random() < OVERLOADED_SHARE:
            raise Overloaded
        return chance.choice(kinds) if kinds else ""

    def choose(self, choices: Sequence[int]) -> int:
        """One of `choices`."""
        return self._chance("choice").choice(choices)

    def _chance(self, purpose: str) -> random.Random:
        return random.Random(f"{self.key}/{purpose}")  # noqa: S311 - repeatable on purpose


def slips_of(seed: int | None, texts: Sequence[str], share: float) -> Slips:
    """The chance of the turn that answers the last of `texts`."""
    return Slips(min(1.0, max(0.0, share)), "\n".join((str(seed), *texts)))


def environment_share(environment: Mapping[str, str]) -> float:
    """The share that EVALDESK_DEMO_MISTAKES sets, or a quarter."""
    try:
        return float(environment.get(VARIABLE) or DEFAULT_SHARE)
    except ValueError:
        return DEFAULT_SHARE
