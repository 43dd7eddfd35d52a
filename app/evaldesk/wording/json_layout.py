"""Values as JSON for a person: on one line, or laid out in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evaldesk.model.json_text import json_line

WIDTH = 72
STEP = 2


def as_json(value: object) -> str:
    """Readable JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def laid_out(value: object, *, width: int = WIDTH) -> str:
    """`value` as JSON in lines of about WIDTH characters; with `width=0` the outermost level is always opened."""
    return _laid_out(value, 0, width)


def _laid_out(value: object, indent: int, width: int) -> str:
    is_container = isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str))
    if not is_container or not value:
        return json_line(value)
    line = _line_within(value, width - indent)
    if line is not None:
        return line
    inner = indent + STEP
    if isinstance(value, Mapping):
        items = [f"{json_line(key)}: {_laid_out(item, inner, WIDTH)}" for key, item in value.items()]
        return _block("{", items, "}", indent)
    return _block("[", [_laid_out(item, inner, WIDTH) for item in value], "]", indent)  # type: ignore[attr-defined]


def _line_within(value: object, room: int) -> str | None:
    """The value on one line; None where it is longer than `room`."""
    parts = []
    for part in _parts(value):
        room -= len(part)
        if room < 0:
            return None
        parts.append(part)
    return "".join(parts)


def _parts(value: object) -> Iterator[str]:
    """The parts of `json_line`, one after the other."""
    if isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            yield f"{separator}{json_line(key)}: "
            yield from _parts(item)
            separator = ", "
        yield "}" if value else "{}"
    elif isinstance(value, Sequence) and not isinstance(value, str):
        separator = "["
        for item in value:
            yield separator
            yield from _parts(item)
            separator = ", "
        yield "]" if value else "[]"
    else:
        yield json_line(value)


def _block(start: str, items: Sequence[str], end: str, indent: int) -> str:
    separator = ",\n" + " " * (indent + STEP)
    return f"{start}\n{' ' * (indent + STEP)}{separator.join(items)}\n{' ' * indent}{end}"
