"""A long JSON list, or an object with one, read item by item: as strictly as a whole file, with the same errors.

Only one item is in memory at a time. An error names the line and the path in the file, as that of a whole reader does.
Why no library: decision 502.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from evaldesk.errors import FormatError
from evaldesk.reading.json_places import (
    JsonPath,
    after_space,
    find_place,
    first_fault,
    line_and_column,
    path_text,
    repeated_key,
)
from evaldesk.reading.strict_json import (
    DECODER,
    MAX_BYTES,
    RECORDED_DECODER,
    Document,
    RefusedError,
    check_depth,
    check_encoding,
    has_half_character,
    not_utf8,
    syntax_error,
)

CHUNK = 256 * 1024
_HEAD = 1_000
"""Characters that show the style of the file."""
_MARK = b"\xef\xbb\xbf"


class NotStreamedError(Exception):
    """The file is no object, or has no list of that key; the whole reader names the fault."""


@dataclass(frozen=True, slots=True)
class Item(Document):
    """One item of the list; `start` and `length` are its bytes in the file, `line` and `column` its first character."""

    path: JsonPath = ()
    start: int = 0
    length: int = 0
    line: int = 1
    column: int = 1

    @property
    def within(self) -> JsonPath:
        """Where in its file the item stands."""
        return self.path

    def error(self, message: str, path: JsonPath = ()) -> FormatError:
        """The error that says `message` of the value at `path` within the item."""
        line, column = _shift_place(find_place(self.text, path), self.line, self.column)
        where = path_text(self.path + path)
        return FormatError(message, source=self.source, path=where, line=line, column=column)


@dataclass(frozen=True, slots=True)
class Shell(Document):
    """The object without the items of its list. `text` is only its beginning and its last character."""

    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    place: tuple[int, int] = (1, 1)

    def error(self, message: str, path: JsonPath = ()) -> FormatError:
        """The error that says `message` of a value of the object."""
        line, column = self.places.get(str(path[0]), self.place) if path else self.place
        return FormatError(message, source=self.source, path=path_text(path), line=line, column=column)


class StreamedList:
    """The items under the key that `is_key` knows, in one pass over a file; then `shell` and `digest` are known.

    Without `is_key` the file is the list.
    Raises FormatError for the first fault, and NotStreamedError.
    """

    def __init__(
        self,
        file: BinaryIO,
        source: str,
        is_key: Callable[[str], bool] | None = None,
        *,
        chunk: int = CHUNK,
        max_item: int = MAX_BYTES,
        decoder: json.JSONDecoder = DECODER,
    ) -> None:
        self._text = _Window(file, source, chunk, max_item, decoder)
        self._source = source
        self._is_key = is_key
        self.shell = Shell(None)
        self.span = (0, 0)
        """The bytes between the brackets of the list."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes that were read, in hexadecimal digits."""
        return self._text.digest.hexdigest()

    def __iter__(self) -> Iterator[Item]:
        text = self._text
        if self._is_key is None:
            if text.next_sign() != "[":
                raise NotStreamedError
            yield from self._items(())
            if text.next_sign():
                raise text.fault("[]")
        else:
            yield from self._list_items(self._is_key)

    def _list_items(self, is_key: Callable[[str], bool]) -> Iterator[Item]:
        text = self._text
        if text.next_sign() != "{":
            raise NotStreamedError
        place = text.place()
        text.step()
        values: dict[str, Any] = {}
        places: dict[str, tuple[int, int]] = {}
        list_key = None
        while text.next_sign() != "}":
            if values:
                text.comma("}", '{"":0')
            key = self._key(values)
            places[key] = text.place()
            if list_key is None and is_key(key) and text.next_sign() == "[":
                list_key = key
                yield from self._items((key,))
                values[key] = []
            else:
                values[key] = text.value('{"":', 1, (key,))[0]
        text.step()
        if text.next_sign():
            raise text.fault("{}")
        if list_key is None:
            raise NotStreamedError
        self.shell = Shell(values, text.head + text.last, self._source, places=places, place=place)

    def _key(self, fields: dict[str, Any]) -> str:
        text, before = self._text, '{"":0,' if fields else "{"
        if text.next_sign() != '"':
            raise text.fault(before)
        line, column = text.place()
        key = str(text.value(before, 1, ())[0])
        if key in fields:
            reason = repeated_key(key)
            raise FormatError(reason, source=self._source, path=path_text((key,)), line=line, column=column)
        if text.next_sign() != ":":
            raise text.fault('{""')
        text.step()
        text.next_sign()
        return key

    def _items(self, within: JsonPath) -> Iterator[Item]:
        text, index = self._text, 0
        text.step()
        begin = text.offset
        while text.next_sign() != "]":
            if index:
                text.comma("]", "[0")
                text.next_sign()
            place, start = text.place(), text.offset
            value, raw, length = text.value("[0," if index else "[", len(within) + 1, (*within, index))
            yield Item(value, raw, self._source, (*within, index), start, length, *place)
            index += 1
        self.span = begin, text.offset
        text.step()


class _Window:
    """The part of a text that is being read, and where its next character stands in the file."""

    def __init__(self, file: BinaryIO, source: str, chunk: int, max_item: int, decoder: json.JSONDecoder) -> None:
        self._file = file
        self._json = decoder
        self._source = source
        self._chunk = chunk
        self._max_item = max_item
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._raw_line, self._raw_column = 1, 0
        self._text, self._at, self._is_end = "", 0, False
        self._line, self._column = 1, 1
        self.digest = hashlib.sha256()
        self.last = ""
        first = file.read(4)
        check_encoding(first, source)
        self.offset = len(_MARK) if first.startswith(_MARK) else 0
        self._take(first, self.offset)
        while len(self._text) < _HEAD and self._more():
            pass
        self.head = self._text

    def next_sign(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            self._move(after_space(self._text, self._at))
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def step(self) -> None:
        """Go past one character."""
        self._move(self._at + 1)

    def comma(self, closing: str, before: str) -> None:
        """Go past a comma between two values. Raises FormatError for none, and for one before the `closing` sign."""
        if self.next_sign() != ",":
            raise self.fault(before)
        while (end := after_space(self._text, self._at + 1)) == len(self._text) and self._more():
            pass
        if self._text[end : end + 1] == closing:
            raise self.fault(before)
        self.step()

    def place(self) -> tuple[int, int]:
        """Line and column of the next character."""
        return self._line, self._column

    def value(self, before: str, depth: int, path: JsonPath) -> tuple[Any, str, int]:
        """The value that begins here, its text and the number of its bytes. Raises FormatError.

        `before` is a text that leads to the same place, `depth` the number of objects and lists around it.
        """
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if self._more():
                    continue
                raise self.fault(before) from None
            except RefusedError:
                raise self._fault_at(path) from None
            except RecursionError:
                check_depth(self._text[self._at :].encode(), self._source, depth)
                raise
            if end < len(self._text) or not self._more():
                break
        raw = self._text[self._at : end]
        data = raw.encode("utf-8", "surrogatepass")
        if len(data) > self._max_item:
            raise self._too_long()
        check_depth(data, self._source, depth)
        if has_half_character(raw):
            raise self._fault_at(path)
        self._move(end)
        return value, raw, len(data)

    def fault(self, before: str) -> FormatError:
        """The fault in the text from here on, when `before` stands before it."""
        probe = before + self._text[self._at :]
        try:
            self._json.decode(probe)
        except json.JSONDecodeError as error:
            return syntax_error(probe, error, self._source, lambda _, offset: self._place_of(offset - len(before)))
        except RefusedError:
            return self._fault_at(())
        return FormatError("a value that JSON cannot hold", source=self._source, line=self._line, column=self._column)

    def _fault_at(self, path: JsonPath) -> FormatError:
        fault = first_fault(self._text[self._at :], has_number_names=self._json is RECORDED_DECODER)
        if fault is None:
            return FormatError("a value that JSON cannot hold", source=self._source)
        line, column = self._place_of(fault.offset)
        where = path_text(path + fault.path)
        return FormatError(fault.reason, source=self._source, path=where, line=line, column=column)

    def _place_of(self, offset: int) -> tuple[int, int]:
        """Line and column of the character so far behind the next one."""
        return _shift_place(line_and_column(self._text[self._at :], offset), self._line, self._column)

    def _move(self, end: int) -> None:
        if end > self._at:
            passed = self._text[self._at : end]
            self.offset += len(passed.encode("utf-8", "surrogatepass"))
            self._line, self._column = _shift_place(line_and_column(passed, len(passed)), self._line, self._column)
            self._at = end

    def _more(self) -> bool:
        """Add text behind the window; False at the end of the file."""
        if self._is_end:
            return False
        self._text, self._at = self._text[self._at :], 0
        if len(self._text) > self._max_item:
            raise self._too_long()
        self._take(self._file.read(max(self._chunk, len(self._text))))
        return not self._is_end

    def _take(self, data: bytes, n_skipped: int = 0) -> None:
        self.digest.update(data)
        self._is_end = not data
        pending = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data[n_skipped:], final=self._is_end)
        except UnicodeDecodeError as error:
            line, column = self._raw_place(error.object[: error.start])
            raise not_utf8(error.object[error.start], self._source, line, column + 1) from None
        chunk = pending + data[n_skipped:]
        self._raw_line, self._raw_column = self._raw_place(chunk[: len(chunk) - len(self._decoder.getstate()[0])])
        self._text += text
        self.last = text[-1:] or self.last

    def _raw_place(self, data: bytes) -> tuple[int, int]:
        """The line at the end of `data`, which follows the decoded text, and the bytes of that line."""
        if b"\n" in data:
            return self._raw_line + data.count(b"\n"), len(data) - data.rfind(b"\n") - 1
        return self._raw_line, self._raw_column + len(data)

    def _too_long(self) -> FormatError:
        reason = f"one value has more than {self._max_item // 2**20} MiB, the most that is read"
        return FormatError(reason, source=self._source, line=self._line, column=self._column)


def _shift_place(place: tuple[int, int], line: int, column: int) -> tuple[int, int]:
    """A place in a text that begins at `line` and `column`."""
    return place[0] + line - 1, place[1] + (column - 1 if place[0] == 1 else 0)
