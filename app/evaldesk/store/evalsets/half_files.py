"""Eval set files that end too early, as a killed writer or a full disk leaves them, and the whole cases in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"|[\[\]{}"]', re.DOTALL)
_OPENED = {b"]": b"[", b"}": b"{"}
_CASES = b"eval_cases"


@dataclass(frozen=True, slots=True)
class HalfFile:
    """A JSON text that ends inside a value; `whole_cases` is the text up to its last whole case, None without one."""

    whole_cases: bytes | None


def half_file(data: bytes) -> HalfFile | None:
    """The whole cases of a truncated file; None for a complete text, or one with an earlier fault.

    An empty file is a half one, and so is one whose end is zeros, as a power failure leaves it.
    """
    text = data.rstrip(b"\0").removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return HalfFile(None)
    opened: list[bytes] = []
    last_text, array_name = b"", b""
    whole: bytes | None = None
    for found in _TOKEN.finditer(text):
        sign = found[0]
        if sign == b'"':  # no second one: the text ends inside it
            return HalfFile(whole)
        if found[1] is not None:
            last_text = found[1]
        elif sign in _OPENED:
            if not opened or opened.pop() != _OPENED[sign]:
                return None
            if sign == b"}" and opened == [b"["]:
                whole = text[: found.end()] + b"]"
            elif sign == b"}" and opened == [b"{", b"["] and array_name == _CASES:
                whole = text[: found.end()] + b"]}"
        else:
            if opened == [b"{"]:
                array_name = last_text
            opened.append(sign)
    return HalfFile(whole) if opened else None
