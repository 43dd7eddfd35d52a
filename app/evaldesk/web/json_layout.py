"""JSON as a person would lay it out: what fits on a line stays on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaldesk.web.words import as_line

WIDTH = 72
STEP = 2


def laid_out(value: object, *, width: int = WIDTH) -> str:
    """`value` as JSON in lines of about WIDTH characters; with `width=0` the outermost level is always opened."""
    return _laid_out(value, 0, width)


def _laid_out(value: object, indent: int, width: int) -> str:
    line = as_line(value)
    is_container = isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str))
    if not is_container or not value or indent + len(line) <= width:
        return line
    inner = indent + STEP
    if isinstance(value, Mapping):
        items = [f"{as_line(key)}: {_laid_out(item, inner, WIDTH)}" for key, item in value.items()]
        return _block("{", items, "}", indent)
    return _block("[", [_laid_out(item, inner, WIDTH) for item in value], "]", indent)  # type: ignore[attr-defined]


def _block(start: str, items: Sequence[str], end: str, indent: int) -> str:
    separator = ",\n" + " " * (indent + STEP)
    return f"{start}\n{' ' * (indent + STEP)}{separator.join(items)}\n{' ' * indent}{end}"
