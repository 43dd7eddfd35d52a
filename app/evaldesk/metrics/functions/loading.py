"""A function of the user: imported once in a worker, with its kind by the name of its first parameter."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from evaldesk.errors import MetricError, UsageError
from evaldesk.registry import import_target

Function: TypeAlias = Callable[..., Any]
Mode: TypeAlias = Literal["solution", "messages", "trial", "adk"]

_MODES: Mapping[str, Mode] = {
    "solution_str": "solution",
    "messages": "messages",
    "transcript": "trial",
    "case": "trial",
    "state": "trial",
    "eval_metric": "adk",
}
PASSED: Mapping[Mode, tuple[str, ...]] = {
    "solution": ("solution_str", "ground_truth", "extra_info"),
    "messages": ("messages", "ground_truth", "metadata"),
    "trial": ("transcript", "case", "state", "messages", "ground_truth", "extra_info"),
    "adk": ("eval_metric", "actual_invocations", "expected_invocations", "conversation_scenario"),
}
"""The parameters that a function of each kind is called with, by keyword."""
_lock = Lock()
_as_source: set[str] = set()
_read: dict[str, str] = {}
_expected: dict[str, str] = {}
_loaded: dict[tuple[str, str], Function | BaseException] = {}


def load_function(target: str, root: str, sources: Mapping[str, str] | None = None) -> Function:
    """The function that `target`, a `module:attr`, names, imported once with `root` first on `sys.path`.

    `sources` are files by their SHA-256, as `read_sources` gave them: a process that imports the function later
    imports the same. Raises MetricError naming its fault, and the exception of its import again each time.
    """
    key = (target, root)
    with _lock:
        expect_sources(sources)
        if key not in _loaded:
            found = _import(target, root)
            if isinstance(found, ChangedSourceError):  # it may be as it was, at the next trial
                raise found
            _loaded[key] = found
    found = _loaded[key]
    if isinstance(found, BaseException):
        raise found
    return found


def expect_sources(sources: Mapping[str, str] | None) -> None:
    """Let every import from now on find the files as they are in `sources`, where there are any.

    A grader is told them with its first trial and begins others beside that: none of these may import before.
    """
    global _expected  # noqa: PLW0603 - of the process; replaced as a whole, since an import under way holds the lock
    if sources:
        _expected = dict(sources)


def read_sources(root: str) -> dict[str, str]:
    """The files below `root` that this process imported, by the SHA-256 of what was read."""
    return {file: digest for file, digest in _read.copy().items() if _is_of(file, root)} if root else {}


class ChangedSourceError(MetricError):
    """A file of the user's functions is not what it was before the first trial."""


def _is_of(file: object, root: str) -> bool:
    return isinstance(file, str) and file.startswith(root.rstrip(os.sep) + os.sep) and "site-packages" not in file


class _SourceLoader(SourceFileLoader):
    """Imports what the source says, and said before the first trial: an agent may have changed it since."""

    def get_data(self, path: str) -> bytes:
        """The source. Raises ChangedSourceError."""
        data = super().get_data(path)
        digest = hashlib.sha256(data).hexdigest()
        if _expected.get(path, digest) != digest:
            raise ChangedSourceError(
                f"{Path(path).name} was changed while the run was played, so it does not grade a trial"
            )
        _read[path] = digest
        return data

    def path_stats(self, path: Any) -> Any:
        """Nothing by which a compiled form would be taken."""
        raise OSError(f"{path}: compiled forms are not read")


def _read_as_source(root: str) -> None:
    """Import modules below `root` from their sources from now on."""

    def finder(path: str) -> FileFinder:
        if path.rstrip(os.sep) != root.rstrip(os.sep) and not _is_of(path, root):
            raise ImportError(f"{path} is not below {root}")
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    for place in [place for place in sys.path_importer_cache.copy() if place == root or _is_of(place, root)]:
        del sys.path_importer_cache[place]


def mode_of(function: Function) -> Mode:
    """The kind of the function's input. Raises MetricError when no call can give what its parameters ask for."""
    try:
        names = list(inspect.signature(function).parameters)
        called = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError) as error:
        raise MetricError(f"the parameters of {function!r:.80} cannot be read: {error}") from error
    plain = [each for each in called if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return mode_by_names(
        names,
        needed=[each.name for each in plain if each.default is each.empty],
        positional=[each.name for each in plain if each.kind is each.POSITIONAL_ONLY],
    )


def mode_by_names(names: Sequence[str], *, needed: Sequence[str], positional: Sequence[str]) -> Mode:
    """The kind of the input of a function with these parameters; some have no default, some stand before a `/`.

    Raises MetricError when the first does not name a kind, or when no call can give what is needed.
    """
    if not names:
        raise MetricError("Eval function has no parameters. Expected (solution_str, ...) or (messages, ...)")
    if names[0] not in _MODES:
        raise MetricError(
            f"Cannot detect eval function mode: first parameter is {names[0]!r}. Expected 'solution_str' (simple mode) "
            "or 'messages' (full mode), or 'transcript', 'case' or 'state' to see the whole trial."
        )
    mode = _MODES[names[0]]
    lacking = [name for name in needed if name not in PASSED[mode]]
    if lacking:
        raise MetricError(
            f"the eval function needs {', '.join(lacking)}, which it is never given; it may have the parameters "
            f"{', '.join(PASSED[mode])}"
        )
    if positional:
        raise MetricError(f"the eval function is called by keyword; take out the `/` after {positional[-1]}")
    return mode


def _import(target: str, root: str) -> Function | BaseException:
    module, separator, name = target.rpartition(":")
    if not (module and separator and name):
        return MetricError(
            f"Invalid eval function path {target!r}. Expected format: 'module:function' (e.g., "
            "'rewards:compute_reward')"
        )
    if root and root not in _as_source:
        _as_source.add(root)
        _read_as_source(root)
    if root and root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        found = import_target(f"{module}:{name}")
    except UsageError:
        return MetricError(f"Module {module!r} has no attribute {name!r}. Available: {_available(module)}")
    except (Exception, SystemExit) as error:
        return error
    return found if callable(found) else MetricError(f"{name!r} in {module!r} is not callable")


def _available(module: str) -> list[str]:
    return [name for name in vars(sys.modules[module]) if not name.startswith("_")] if module in sys.modules else []
