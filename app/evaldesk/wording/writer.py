"""The one writer of the streams of a command: it makes all text fit for a terminal and for the log of a build.

`tests/security/test_outgoing_text.py` finds every other place that writes. Only `style` makes escape sequences pass.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from evaldesk.wording.printable import html_document, in_one_line, json_document, printable, printable_parts

_MARK = f"\x1b{os.urandom(8).hex()};"
"""Begins the styles of this process: no text of an agent or a file can know it."""
_END = "m"
_ERASE_LINE = "\r\x1b[K"


def style(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Text with a colour or a weight, which `show` turns into escape sequences where the terminal has colours."""
    sample = click.style("\n", fg=fg, bold=bold, dim=dim)
    before, _, after = sample.partition("\n")
    return f"{_mark_sequences(before)}{text}{_mark_sequences(after)}"


def _mark_sequences(sequences: str) -> str:
    return sequences.replace("\x1b[", _MARK)


def show(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output, or to the stream for errors."""
    click.echo(_with_styles(text), err=err, nl=nl)


def _with_styles(text: str) -> str:
    first, *others = text.split(_MARK)
    if not others:
        return printable(text)
    codes, _, rests = zip(*(each.partition(_END) for each in others), strict=True)
    parts = printable_parts([first, *rests])
    return parts[0] + "".join(f"\x1b[{code}{_END}{part}" for code, part in zip(codes, parts[1:], strict=True))


def show_json(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> None:
    """Write a value as JSON."""
    click.echo(json_document(json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)))


def show_command(line: str, *, err: bool = False) -> None:
    """Write a workflow command of a build; the caller has escaped all values."""
    click.echo(line, err=err)


def show_progress(words: str) -> None:
    """Write over the line for progress on the stream for errors; no words take it away."""
    click.echo(_ERASE_LINE + in_one_line(words), err=True, nl=False)


def confirm(question: str, *, abort: bool = False, err: bool = False) -> bool:
    """Ask a person yes or no; raises click.Abort at a no if `abort`."""
    return click.confirm(printable(question), abort=abort, err=err)


def choose(question: str, answers: Sequence[str], default: str) -> str:
    """Ask a person for one of the answers."""
    answer: str = click.prompt(printable(question), type=click.Choice(answers), default=default)
    return answer


def show_document(parts: Iterable[bytes], file_name: str) -> None:
    """Write a file to standard output, part by part, as its kind allows; a packed one, such as Parquet, as it is."""
    ending = file_name.rpartition(".")[2]
    if ending in _PACKED:
        output = parts
    elif ending in _JSON:
        output = _encode_parts(parts, json_document, end_of=_before_hash)
    elif ending in _HTML:
        output = _encode_parts([b"".join(parts)], html_document, end_of=len)
    else:
        output = _encode_parts(parts, _printable_lines, end_of=_before_last_line)
    for part in output:
        click.echo(part, nl=False)


_PACKED, _JSON, _HTML = frozenset({"parquet"}), frozenset({"json", "jsonl"}), frozenset({"html"})


def _encode_parts(parts: Iterable[bytes], clean: Callable[[str], str], end_of: Callable[[str], int]) -> Iterator[bytes]:
    """The parts as clean text; text behind the place of `end_of` waits for the next part."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pending = ""
    for part in parts:
        text = pending + decoder.decode(part)
        end = end_of(text)
        pending = text[end:]
        yield clean(text[:end]).encode("utf-8", "backslashreplace")
    yield clean(pending + decoder.decode(b"", final=True)).encode("utf-8", "backslashreplace")


def _printable_lines(text: str) -> str:
    """Printable text; the line ends of CSV become those of a terminal."""
    return printable(text.replace("\r\n", "\n"))


def _before_hash(text: str) -> int:
    return len(text.rstrip("#"))


def _before_last_line(text: str) -> int:
    return text.rfind("\n") + 1
