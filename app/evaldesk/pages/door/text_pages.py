"""Pages of a text by cursor: every byte of every line is on some page, and a long line does not fill many of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from evaldesk.pages.door.fit import size
from evaldesk.wording.shortened import length_words

Line: TypeAlias = Callable[[], str]
LONGEST_LINE = 4_000
"""Characters of a line that are on its first page; the cursor in its middle leads to the others."""
LEAST_BYTES = 200
LINES = 2**20
"""A cursor is the number of lines before it, and LINES times the characters before it in its line."""
MAX_CURSOR = 2**53 - 1


def page_of_lines(lines: Iterator[Line], cursor: int, n_bytes: int) -> tuple[str, int | None]:
    """The text from a cursor on in so many bytes of JSON, LEAST_BYTES at least, and the cursor of the next page.

    A line that is longer than LONGEST_LINE, or half a page, has its beginning and its end there, its length and digest,
    and the cursor of the part between them. From that cursor on it is whole, over as many pages as it needs.
    """
    n_left = max(n_bytes, LEAST_BYTES)
    n_skipped, first_line = divmod(cursor, LINES)
    page: list[str] = []
    for number, line in enumerate(islice(lines, first_line, None), first_line):
        text = line()
        if n_skipped:
            rest = text[n_skipped:]
            n_here = _n_within(rest, n_left)
            page.append(rest[:n_here])
            if n_here < len(rest):
                return page[0], number + LINES * (n_skipped + n_here)
            n_skipped = 0
        else:
            piece = _short(text, number, max(n_bytes, LEAST_BYTES) // 2)
            if page and size(piece) > n_left:
                return "\n".join(page), number
            page.append(piece)
        n_left -= size(page[-1])
    return "\n".join(page), None


def _short(text: str, number: int, n_bytes: int) -> str:
    """The line, or its beginning and end in so many bytes with the cursor of the part between them."""
    if len(text) <= LONGEST_LINE and size(text) <= n_bytes:
        return text
    head, tail = text[: LONGEST_LINE * 3 // 4], text[-LONGEST_LINE // 4 :]
    gap = f" […{length_words(text)}, cursor {{}} reads on…] "
    n_bytes_left = max(n_bytes - size(gap.format(MAX_CURSOR)), 0)
    head = head[: max(1, _n_within(head, n_bytes_left * 3 // 4))]
    tail = tail[::-1][: _n_within(tail[::-1], n_bytes_left // 4)][::-1]
    return f"{head}{gap.format(number + LINES * len(head))}{tail}"


def _n_within(text: str, n_bytes: int) -> int:
    """The most characters of the beginning of a text within some bytes of JSON, one at least."""
    most = min(len(text), n_bytes)
    return max(1, bisect_right(range(1, most + 1), n_bytes, key=lambda n: size(text[:n]))) if most else 0
