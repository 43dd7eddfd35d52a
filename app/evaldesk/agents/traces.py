"""Tracebacks for authors of agents: the user's frames, without Evaldesk's."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from itertools import dropwhile
from pathlib import Path

from evaldesk import paths

_PACKAGE = str(paths.PACKAGE)
_SAMPLES = str(paths.samples())
_PYTHON = (f"{os.path.dirname(os.__file__)}{os.sep}", "<frozen ")


def error_words(error: BaseException) -> str:
    """`ValueError: no such city`; the type alone for an error without a message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def user_trace(error: BaseException) -> str:
    """The traceback of `error` and of its causes, without the frames of Evaldesk and of the import system."""
    summary = traceback.TracebackException.from_exception(error, compact=True)
    _trim(summary, depth=0)
    return "".join(summary.format())


def user_place(error: BaseException, root: str = "") -> str:
    """`agent.py, line 12`: the innermost frame of the user's code, relative to `root`; empty without one."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_relative(error.filename, root)}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_own_frame(frame.filename)]
    within = [frame for frame in frames if root and Path(frame.filename).is_relative_to(root)] or frames
    return f"{_relative(within[-1].filename, root)}, line {within[-1].lineno}" if within else ""


def user_frames(stack: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames from the first one of the user's code on, without frames of Evaldesk and of the import system."""
    frames = (frame for frame in stack if not _is_own_frame(frame.filename))
    return list(dropwhile(lambda frame: frame.filename.startswith(_PYTHON), frames))


def _trim(summary: traceback.TracebackException, depth: int) -> None:
    frames = [frame for frame in summary.stack if not _is_own_frame(frame.filename)]
    summary.stack = traceback.StackSummary.from_list(frames)
    for other in (summary.__cause__, summary.__context__):
        if other and depth < 10:
            _trim(other, depth + 1)


def _is_own_frame(filename: str) -> bool:
    if filename.startswith(("<frozen importlib", "<frozen runpy")) or "/importlib/" in filename:
        return True
    return filename.startswith(_PACKAGE) and not filename.startswith(_SAMPLES)


def _relative(filename: str, root: str) -> str:
    path = Path(filename)
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else path.name
