"""Draw docs/architecture.svg, the rooms of evaldesk on their floors, from the import contract and the imports.

    python .ci/draw_floors.py            write the picture
    python .ci/draw_floors.py --check    fail where the committed picture is not what the imports say

A floor is a line of the layers contract in pyproject.toml. An arrow is drawn from a room to each room that it imports
and reaches by no other arrow, so the picture changes only where a dependency between rooms does.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX, GAP, TOP, LEFT = 1040, 52, 26, 14, 40, 20
LETTER = 7.4
INKS = ("#2a6f97", "#b5651d", "#4a7c3a", "#7a4ea3", "#a3364e", "#557a95", "#8a6d1c")

Graph = Mapping[str, frozenset[str]]


def main(arguments: Sequence[str]) -> int:
    """Write the picture, or compare it; 1 when it differs."""
    if "--check" not in arguments:
        PICTURE.write_text(picture(grimp.build_graph("evaldesk")), "utf-8")
        return 0
    finding = drift(grimp.build_graph("evaldesk"))
    sys.stdout.writelines(f"{line}\n" for line in finding)
    return 1 if finding else 0


def drift(graph: grimp.ImportGraph) -> list[str]:
    """The finding that the committed picture is not what the imports say; empty when it is."""
    committed = PICTURE.read_text("utf-8") if PICTURE.is_file() else ""
    if committed == picture(graph):
        return []
    name = PICTURE.relative_to(ROOT)
    return [f"{name}: the imports between rooms changed; run: .venv/bin/python .ci/draw_floors.py"]


def picture(graph: grimp.ImportGraph) -> str:
    """The SVG text of all rooms and of the arrows between them."""
    floors = [[room for room in floor if f"evaldesk.{room}" in graph.modules] for floor in read_floors()]
    imports = room_imports(graph, [room for floor in floors for room in floor])
    places = _places(floors)
    height = TOP + ROW * len(floors)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Rooms of evaldesk: each imports only rooms below it</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" fill="#333333">Rooms of app/evaldesk: each imports only rooms below it. '
        "Arrows that others imply are left out. Drawn by .ci/draw_floors.py.</text>",
    ]
    for number, (room, others) in enumerate(imports.items()):
        lines += [_arrow(places, room, other, INKS[number % len(INKS)]) for other in sorted(others)]
    for room, (x, y, width) in places.items():
        lines.append(
            f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="5" fill="#f4f1ea" stroke="#555555"/>'
            f'<text x="{x + width / 2:.0f}" y="{y + 18}" text-anchor="middle" fill="#111111">{escape(room)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def read_floors() -> list[list[str]]:
    """The layers of the first import contract, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    return [[room.strip(" ()") for room in layer.replace(":", "|").split("|")] for layer in layers]


def room_imports(graph: grimp.ImportGraph, rooms: Sequence[str]) -> Graph:
    """Each room with the rooms that it imports directly and reaches through no other room."""
    direct: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        room = _room(module)
        if room in direct:
            direct[room] |= {_room(other) for other in graph.find_modules_directly_imported_by(module)} & direct.keys()
            direct[room].discard(room)
    reached: dict[str, frozenset[str]] = {}
    for room in reversed(rooms):  # rooms below come first
        reached[room] = frozenset(direct[room]).union(*(reached.get(other, frozenset()) for other in direct[room]))
    return {
        room: frozenset(other for other in found if not any(other in reached[each] for each in found - {other}))
        for room, found in direct.items()
    }


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def _places(floors: Sequence[Sequence[str]]) -> dict[str, tuple[float, int, float]]:
    places: dict[str, tuple[float, int, float]] = {}
    for number, floor in enumerate(floors):
        widths = [len(room) * LETTER + 22 for room in floor]
        space = (WIDTH - 2 * LEFT - sum(widths)) / (len(floor) + 1)
        space = max(space, GAP)
        # Alternate floors lean left and right, so that fewer arrows pass behind a box.
        x = LEFT + space * (0.55 if number % 2 else 1.0)
        for room, width in zip(floor, widths, strict=True):
            places[room] = (x, TOP + ROW * number, width)
            x += width + space
    return places


def _arrow(places: Mapping[str, tuple[float, int, float]], room: str, other: str, ink: str) -> str:
    (x, y, width), (to_x, to_y, to_width) = places[room], places[other]
    ax, ay, bx, by = x + width / 2, y + BOX, to_x + to_width / 2, to_y
    bend = min(40, (by - ay) / 2)
    return (
        f'<path d="M{ax:.0f} {ay:.0f} C{ax:.0f} {ay + bend:.0f} {bx:.0f} {by - bend:.0f} {bx:.0f} {by - 4:.0f}" '
        f'fill="none" stroke="{ink}" stroke-width="1.3" opacity="0.75"/>'
        f'<path d="M{bx - 3:.0f} {by - 5:.0f} L{bx + 3:.0f} {by - 5:.0f} L{bx:.0f} {by:.0f} Z" fill="{ink}"/>'
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
