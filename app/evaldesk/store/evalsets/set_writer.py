"""A large eval set as the bytes of its file, one case after the other, while its index is made beside it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaldesk.errors import FormatError
from evaldesk.formats import evalset_format, write_evalset
from evaldesk.formats.adk.case import read_case, write_case
from evaldesk.formats.adk.evalset import AdkStream
from evaldesk.model import Case, EvalSet
from evaldesk.model.stored import EvalSetFacts
from evaldesk.reading.json_stream import Item
from evaldesk.reading.json_text import to_text
from evaldesk.reading.shape import form_of
from evaldesk.reading.strict_json import JsonPosition, parse_json
from evaldesk.store.evalsets.case_index import IndexedCases, IndexRow, NewIndex, Span, SplicedCases

_BLOCK = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Style:
    """How the cases of a file are set out."""

    indent: str
    newline: str
    before: bytes
    between: bytes
    after: bytes

    @classmethod
    def of(cls, evalset: EvalSet) -> _Style:
        style = form_of(evalset.extra).get("style", {}) if evalset_format(evalset) == "adk" else {}
        indent, newline = str(style.get("indent", "  ")), str(style.get("newline", "\n"))
        inner, outer = (newline + indent * 2).encode(), (newline + indent).encode()
        return cls(indent, newline, inner, b"," + inner, outer)

    def text(self, case: Case, source: str) -> bytes:
        """The bytes of a case within its list. Raises FormatError."""
        case_text = to_text(write_case(case), {"indent": self.indent}, source)
        return case_text.replace(b"\n", (self.newline + self.indent * 2).encode())


class SetWriter:
    """Gives the bytes of a set in ADK's new form; cases that did not change are copied as they stand in their file.

    When all bytes were taken, `facts` tells of the set and `index` is finished. Raises FormatError, and OSError.
    """

    def __init__(
        self, evalset: EvalSet, source: str, index: NewIndex | None = None, *, cases: Iterable[Case] | None = None
    ) -> None:
        """`cases` stand for those of the set; each must be the same when it is read again."""
        self._evalset = evalset
        self._given = cases
        self._source = source
        self._index = index
        self._digest = hashlib.sha256()
        self._offset, self._line, self._column = 0, 1, 1
        self.facts = EvalSetFacts()

    @property
    def version(self) -> str:
        """The version of the file, when all of its bytes were taken."""
        return self._digest.hexdigest()[:32]

    @property
    def data(self) -> Iterable[bytes]:
        """The bytes of the file, as those of a small set."""
        return self

    def __iter__(self) -> Iterator[bytes]:
        block = bytearray()
        for part in self._parts():
            block += part
            if len(block) >= _BLOCK:
                yield bytes(block)
                block.clear()
        yield bytes(block)
        if self._index:
            self.facts = self._index.finish(replace(self._evalset, cases=()), self.version)

    def _parts(self) -> Iterator[bytes]:
        style = _Style.of(self._evalset)
        shell = write_evalset(replace(self._evalset, cases=()))
        stream = AdkStream(io.BytesIO(shell), self._source)
        list(stream)
        begin, end = stream.span
        yield self._pass_on(shell[:begin])
        n = 0
        cases = self._evalset.cases if self._given is None else self._given
        for data, row, case in _texts(cases, style, self._source):
            yield self._pass_on(style.between if n else style.before)
            self._note(data, row, case if self._given is not None else None)
            yield self._pass_on(data)
            n += 1
        yield self._pass_on(style.after if n else b"")
        yield self._pass_on(shell[end:])

    def _note(self, data: bytes, row: IndexRow | None, exact: Case | None) -> None:
        """Compare a new case with its text as read again, and put it into the index."""
        if row is None:
            document = parse_json(data, source=self._source)
            place = (self._offset, len(data), self._line, self._column)
            item = Item(document.value, document.text, self._source, ("eval_cases",), *place)
            read_back = read_case(JsonPosition(item), item.value)
            if exact is not None and read_back != exact:
                raise FormatError(f"ADK's form has other words for what case {exact.id!r} says", source=self._source)
            if self._index:
                self._index.add(item, read_back)
        elif self._index:
            self._index.copy(row, self._offset, self._line, self._column)

    def _pass_on(self, data: bytes) -> bytes:
        self._digest.update(data)
        self._offset += len(data)
        if (last := data.rfind(b"\n")) >= 0:
            self._line += data.count(b"\n")
            self._column = len(data[last + 1 :].decode()) + 1
        else:
            self._column += len(data.decode())
        return data


_Text: TypeAlias = tuple[bytes, IndexRow | None, Case | None]


def _texts(cases: Iterable[Case], style: _Style, source: str) -> Iterator[_Text]:
    """The bytes of each case, with its row in the old index when it comes from one, else the case itself."""
    if isinstance(cases, IndexedCases):
        yield from ((data, row, None) for data, row in cases.raw(range(len(cases))))
    elif isinstance(cases, Span):
        yield from ((data, row, None) for data, row in cases.cases.raw(cases.numbers))
    elif isinstance(cases, SplicedCases):
        for part in cases.parts:
            yield from _texts(part, style, source)
    else:
        yield from ((style.text(case, source), None, case) for case in cases)
