"""The parts of an agent's work that can be seen; what cannot be seen is not judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Part: TypeAlias = Literal["calls", "results", "inner_calls", "tokens", "state"]
Unseen: TypeAlias = Literal["calls", "results", "inner_calls", "tokens", "state", "memory"]
"""A part of one turn that could not be seen: `memory` is that of the agent's own object, beside session and state."""
Level: TypeAlias = Literal["whole", "part", "none"]

PARTS: tuple[Part, ...] = get_args(Part)
TITLES: Mapping[Part, str] = {
    "calls": "tool calls",
    "results": "results",
    "inner_calls": "inner calls",
    "tokens": "tokens",
    "state": "state",
}
_LEVELS: Mapping[Level, str] = {"whole": "seen", "part": "seen in part", "none": "not seen"}
_STEPS: Mapping[Part, str] = {
    "calls": (
        "The tool calls of this agent cannot be seen, so nothing is said of them. To make them seen, let it tell an "
        "event for each call (with `tells_calls` if it makes none), use a model client or gateway that Evaldesk sees, "
        "or install opentelemetry-sdk: docs/agents.md."
    ),
    "tokens": (
        "The tokens of this agent cannot be seen. To make them seen, let it tell a usage for each model call, or use a "
        "model client that Evaldesk sees: docs/agents.md."
    ),
    "state": (
        "The session state of this agent cannot be seen, so nothing is said of it. To make it seen, let the agent take "
        "the parameter `state`, or tell its state as an event: docs/agents.md."
    ),
}


CAPTURES: Mapping[str, str] = {
    "adapter": "inside its framework",
    "told": "as the agent reported it",
    "spans": "from its OpenTelemetry spans",
    "gateway": "from the requests of its model client",
    "answers": "by its answers alone",
}


def capture_words(captures: Iterable[str]) -> str:
    """`Recorded inside its framework and from its OpenTelemetry spans`; empty where it was not noted."""
    ways = [CAPTURES.get(each, each) for each in captures]
    return f"Recorded {_enumeration(ways)}" if ways else ""


@dataclass(frozen=True, slots=True)
class Visibility:
    """How far each part can be seen: `whole`, in `part` or `none`. Inner calls are those inside of a tool."""

    calls: Level = "whole"
    results: Level = "whole"
    inner_calls: Level = "part"
    tokens: Level = "whole"
    state: Level = "whole"

    def level(self, part: Part) -> Level:
        """The level of one part."""
        level: Level = getattr(self, part)
        return level

    def without(self, parts: Iterable[str]) -> Visibility:
        """The same, but for these parts, which cannot be seen."""
        unseen = {*parts}
        levels: list[Level] = ["none" if part in unseen else self.level(part) for part in PARTS]
        return Visibility(*levels)

    @property
    def words(self) -> str:
        """`tool calls and results seen; tokens seen in part; inner calls and state not seen`."""
        by_level = {level: [TITLES[part] for part in PARTS if self.level(part) == level] for level in _LEVELS}
        return "; ".join(f"{_enumeration(titles)} {_LEVELS[level]}" for level, titles in by_level.items() if titles)

    @property
    def steps(self) -> tuple[str, ...]:
        """A sentence for each part that cannot be seen and that metrics judge: how to make it seen."""
        return tuple(sentence for part, sentence in _STEPS.items() if self.level(part) == "none")

    def unseen_reason(self, parts: Iterable[Part]) -> str:
        """Why a metric of these parts cannot judge any trial; empty where it may."""
        return next((_STEPS[part] for part in parts if self.level(part) == "none"), "")

    def unjudged_reason(self, parts: Iterable[Part]) -> str:
        """Why a metric of these parts cannot judge the trial that was seen so; empty where it can.

        A trial whose tool calls were seen in some of its turns may have made any call in the others.
        """
        metric_parts = (*parts,)
        is_in_part = "calls" in metric_parts and self.calls == "part"
        return self.unseen_reason(metric_parts) or (f"In some turns only: {_STEPS['calls']}" if is_in_part else "")


def _enumeration(titles: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(titles[:-1]), titles[-1]]))


UNSEEN_CALLS = _STEPS["calls"]
UNSEEN_STATE = _STEPS["state"]
UNSEEN_TOKENS = _STEPS["tokens"]
