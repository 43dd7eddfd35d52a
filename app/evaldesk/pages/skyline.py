"""The picture of the versions of a set: as high as their cases, as wide as many runs used them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.model.conclusion import counted
from evaldesk.pages.set_versions import VersionLine

WIDTH, TOP, BASE, LEFT = 1376, 20.0, 70.0, 34.0
MOST_BLOCKS = 60
MOST_TICKS = 24
"""Runs of a version that are drawn; of more every few."""
LABEL_WIDTH = 64.0


@dataclass(frozen=True, slots=True)
class Block:
    """A version in the picture; places and sizes are in the units of its view box."""

    x: float
    y: float
    width: float
    height: float
    h_added: float
    h_changed: float
    h_removed: float
    ticks: tuple[float, ...]
    label: str
    noted_at: object
    is_picked: bool


@dataclass(frozen=True, slots=True)
class Skyline:
    """The blocks, oldest first, and the lines of the grid with their number of cases."""

    blocks: tuple[Block, ...]
    grid: tuple[tuple[float, int], ...]
    words: str


def skyline(lines: Sequence[VersionLine]) -> Skyline | None:
    """The picture of the newest MOST_BLOCKS versions; None below two."""
    oldest_first = list(reversed(lines[:MOST_BLOCKS]))
    most = max((line.version.n_cases for line in oldest_first), default=0)
    if len(oldest_first) < 2 or not most:
        return None
    step = _grid_step(most)
    scale = (BASE - TOP) / max(most, step)
    weights = [1.0 + min(len(line.run_ids), MOST_TICKS) for line in oldest_first]
    unit = (WIDTH - 10 - LEFT - 2.0 * len(oldest_first)) / sum(weights)
    x, blocks = LEFT + 1, []
    for line, weight in zip(oldest_first, weights, strict=True):
        version, width = line.version, weight * unit
        height = version.n_cases * scale
        n_ticks = min(len(line.run_ids), MOST_TICKS)
        blocks.append(
            Block(
                x=x,
                y=BASE - height,
                width=width,
                height=height,
                h_added=version.n_added * scale,
                h_changed=version.n_changed * scale,
                h_removed=version.n_removed * scale,
                ticks=tuple(x + (at + 0.5) * width / n_ticks for at in range(n_ticks)),
                label=counted(version.n_cases, "case") if width >= LABEL_WIDTH else "",
                noted_at=version.noted_at if width >= LABEL_WIDTH else None,
                is_picked=bool(line.letter),
            )
        )
        x += width + 2
    grid = tuple((BASE - at * scale, at) for at in range(0, most + 1, step))
    least = min(line.version.n_cases for line in oldest_first)
    sizes = counted(most, "case") if least == most else f"{least:,} to {counted(most, 'case')}"
    return Skyline(
        tuple(blocks), grid, f"{counted(len(oldest_first), 'version')} of {sizes}; wide where many runs used one"
    )


def _grid_step(most: int) -> int:
    step = 1
    while most / step > 3:
        step *= 5 if str(step)[0] == "1" else 2
    return step
