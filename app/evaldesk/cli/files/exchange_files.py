"""The functions shared by the commands that read and write files of other tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.errors import DiskError, EvaldeskError, UsageError
from evaldesk.secrets import scrub
from evaldesk.wording.writer import show, show_document, show_progress, style

if TYPE_CHECKING:
    from evaldesk.desk.evalsets.exporting import ExportStream
    from evaldesk.settings import Settings


def open_home(workspace: str | None) -> Settings:
    """The settings of the workspace, by default the current folder. Raises UsageError."""
    from evaldesk.paths import workspace_folder
    from evaldesk.settings import read_settings

    home = workspace_folder(workspace)
    if not home.is_dir():
        raise UsageError(f"{home} is not a folder; name the folder that holds .evaldesk")
    return read_settings(home, (home,), environment=os.environ)


def show_words(recognised: Sequence[str], unchanged: Sequence[str] = (), refusals: Sequence[str] = ()) -> None:
    """The sentences about the contents of a file: understood, kept, refused."""
    for sentence in recognised:
        show(f"  {visible(sentence)}")
    for sentence in unchanged:
        show(f"  {style('kept: ', dim=True)}{visible(sentence)}")
    for sentence in refusals:
        show(f"  {style('refused: ', fg='yellow')}{visible(sentence)}")


def report(error: EvaldeskError) -> None:
    """An error in one line, on the stream for errors."""
    show(f"evaldesk: {visible(' '.join(scrub(str(error), os.environ).split()))}", err=True)


def show_masked(words: str) -> None:
    """List the secrets that a file does not hold, on the stream for errors."""
    if words:
        show(f"evaldesk: {visible(words)}", err=True)


def write_masked(data: bytes, output: str | None) -> None:
    """Write a text without its secrets, which are listed, to a file or standard output. Raises UsageError."""
    from evaldesk.desk.evalsets.masking import mask_file
    from evaldesk.durable_files import write_output

    masked_data = mask_file(data, os.environ)
    show_masked(masked_data.words)
    if output is None:
        text = masked_data.data.decode()
        show(text, nl=not text.endswith("\n"))
        return
    try:
        write_output(Path(output), masked_data.data)
    except DiskError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror or error}") from error
    show(f"Written: {output}", err=True)


def announced(file: ExportStream, clear: Callable[[], None] = lambda: None) -> Iterator[bytes]:
    """The parts of a file; its secrets are listed after the last part, before the file takes its place."""
    yield from file.parts
    clear()
    show_masked(file.masking_note)


class ProgressLine:
    """One line that changes with each percent, where standard error is a terminal; else nothing."""

    def __init__(self, *, is_shown: bool = True) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._last: tuple[str, int] | None = None

    def show(self, verb: str, unit: str, n_done: float, n_total: float, ending: str = "Ctrl-C cancels") -> None:
        """`Importing a.json: 5 of 10 cases, 50 %; Ctrl-C cancels`."""
        percent = int(100 * n_done / max(n_total, 1))
        if self._is_shown and (verb, percent) != self._last:
            self._last = verb, percent
            words = f"{verb}: {n_done:,.0f} of {n_total:,.0f} {unit}, {percent} %; {ending}"
            show_progress(words)

    def clear(self) -> None:
        """Take the line away."""
        if self._last:
            self._last = None
            show_progress("")


def _read_map(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    if value is None:
        return None
    from evaldesk.desk.imports.files import columns_of

    try:
        return dict(columns_of(value))
    except EvaldeskError as error:
        raise click.BadParameter(str(error)) from None


map_option = click.option(
    "--map",
    "columns",
    metavar="ROLE=COLUMN,...",
    callback=_read_map,
    help="The columns of a data set that no format knows: input=question,expected=answer. Roles: input or messages, "
    "expected, calls, id, tags, metadata, rows; a.b is b in a.",
)


def visible(text: str) -> str:
    """Text of a file without terminal control characters."""
    from evaldesk.wording.printable import printable

    return printable(text).replace("\n", "�").replace("\t", "�")


def write_bytes(
    data: bytes | Iterable[bytes], output: str | None, *, ending: str = "", is_forced: bool = False
) -> None:
    """Write to the file named, or to the stream as its `ending` allows; an existing file stays unless forced."""
    if output is None or output == "-":
        show_document((data,) if isinstance(data, bytes) else data, ending)
        return
    from evaldesk.durable_files import create_file, write_output

    path = Path(output)
    if os.path.lexists(path) and not is_forced:
        raise UsageError(f"{output} is there already; --force replaces it")
    if is_forced:
        write_output(path, data)
    else:
        create_file(path, data)
