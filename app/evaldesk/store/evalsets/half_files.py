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
    open_brackets: list[bytes] = []
    last_text, array_name = b"", b""
    complete_text: bytes | None = None
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == b'"':  # no second one: the text ends inside it
            return HalfFile(complete_text)
        if token[1] is not None:
            last_text = token[1]
        elif sign in _OPENED:
            if not open_brackets or open_brackets.pop() != _OPENED[sign]:
                return None
            if sign == b"}" and open_brackets == [b"["]:
                complete_text = text[: token.end()] + b"]"
            elif sign == b"}" and open_brackets == [b"{", b"["] and array_name == _CASES:
                complete_text = text[: token.end()] + b"]}"
        else:
            if open_brackets == [b"{"]:
                array_name = last_text
            open_brackets.append(sign)
    return HalfFile(complete_text) if open_brackets else None
