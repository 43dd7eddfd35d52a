"""A drawing of the agents of a trial or a run, with the number of calls between them and their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from evaldesk.model.agent_tree import AgentActions, AgentTotals
from evaldesk.model.conclusion import counted
from evaldesk.wording.words import duration_words

Layout: TypeAlias = Literal["wide", "narrow"]

MOST_DRAWN, DEEPEST = 24, 6
"""Agents of one drawing, and agents above another: the list below has all of them."""
WIDTH, HEIGHT = 136, 38
COLUMN, ROW, INDENT = 196, 48, 24
LONGEST_NAME = 14


@dataclass(frozen=True, slots=True)
class AgentBox:
    """An agent at the place of its upper left corner; `words` is its time."""

    name: str
    title: str
    words: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class AgentLink:
    """A line from a caller to its agent, with a count at the end of it; `is_call`: as a tool, and not a hand-over."""

    path: str
    x: int
    y: int
    count: str
    is_call: bool


@dataclass(frozen=True, slots=True)
class AgentGraph:
    """Boxes from left to right with links between them; `words` say the same in sentences."""

    boxes: tuple[AgentBox, ...]
    links: tuple[AgentLink, ...]
    words: str
    width: int
    height: int


def agent_graph(agents: Sequence[AgentActions | AgentTotals], layout: Layout = "wide") -> AgentGraph | None:
    """The drawing of a tree that is listed depth first; None where it has one agent, or too many to be read.

    A narrow one has a row for each agent, indented below its caller.
    """
    is_narrow, depths = layout == "narrow", [each.depth for each in agents]
    if not 1 < len(agents) <= MOST_DRAWN or max(depths) > DEEPEST:
        return None
    tops = [*map(float, range(len(depths)))] if is_narrow else _tops(depths)
    column = INDENT if is_narrow else COLUMN
    boxes = tuple(
        AgentBox(
            each.name if len(each.name) <= LONGEST_NAME else f"{each.name[: LONGEST_NAME - 1]}…",
            each.name,
            duration_words(each.duration_ms) if each.duration_ms else "",
            column * each.depth,
            round(top * ROW),
        )
        for each, top in zip(agents, tops, strict=True)
    )
    parents = _parents(depths)
    links = tuple(
        AgentLink(
            _path(boxes[parent], boxes[at], is_narrow=is_narrow),
            boxes[at].x + (WIDTH - 8 if is_narrow else -6),
            boxes[at].y + (16 if is_narrow else HEIGHT // 2 - 5),
            f"{agents[at].n_entries:,}×",
            is_call=bool(agents[at].tool),
        )
        for at, parent in enumerate(parents)
        if parent is not None
    )
    sentences = [
        f"{agents[parent].name} {_verb(each)} {each.name}, {counted(each.n_entries, 'time')}"
        for each, parent in zip(agents, parents, strict=True)
        if parent is not None
    ]
    width, height = column * max(depths) + WIDTH, round(max(tops) * ROW) + HEIGHT
    return AgentGraph(boxes, links, "; ".join(sentences) or "No agent called another one", width, height)


def _verb(agent: AgentActions | AgentTotals) -> str:
    return "calls" if agent.tool else "hands over to"


def _parents(depths: Sequence[int]) -> list[int | None]:
    """The place of the agent above each; None at the top."""
    places: dict[int, int] = {}
    parents: list[int | None] = []
    for at, depth in enumerate(depths):
        parents.append(places.get(depth - 1))
        places[depth] = at
    return parents


def _tops(depths: Sequence[int]) -> list[float]:
    """The row of each agent: one for each that calls nobody, and the middle of its agents for another."""
    is_leaf = [after <= before for before, after in pairwise([*depths, -1])]
    tops, row = [0.0] * len(depths), 0
    for at, is_last in enumerate(is_leaf):
        if is_last:
            tops[at], row = float(row), row + 1
    for at in range(len(depths) - 1, -1, -1):
        if not is_leaf[at]:
            below = [tops[other] for other in _children(depths, at)]
            tops[at] = (below[0] + below[-1]) / 2
    return tops


def _children(depths: Sequence[int], at: int) -> list[int]:
    children = []
    for other in range(at + 1, len(depths)):
        if depths[other] <= depths[at]:
            break
        if depths[other] == depths[at] + 1:
            children.append(other)
    return children


def _path(above: AgentBox, below: AgentBox, *, is_narrow: bool) -> str:
    """From the lower edge of the caller in a narrow drawing, else from its right one, to the left edge of the agent."""
    end = f"V{below.y + HEIGHT // 2}H{below.x}"
    if is_narrow:
        return f"M{above.x + INDENT // 2} {above.y + HEIGHT}{end}"
    return f"M{above.x + WIDTH} {above.y + HEIGHT // 2}H{above.x + WIDTH + 16}{end}"
