"""Numbers in addresses: `{run_id:number}` takes up to 15 digits, whole numbers that SQLite and browsers can hold."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class _NumberConvertor(Convertor[int]):
    """Starlette's own takes any number of digits, and Python refuses to read more than 4,300."""

    regex = "[0-9]{1,15}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


def number(name: str) -> str:
    """The part of a route's path that takes a number as the path parameter `name`."""
    return f"{{{name}:number}}"


register_url_convertor("number", _NumberConvertor())
