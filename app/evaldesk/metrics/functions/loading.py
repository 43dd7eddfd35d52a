"""A function of the user: imported once in a worker, with its kind by the name of its first parameter."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Literal, TypeAlias

from evaldesk.errors import MetricError, UsageError
from evaldesk.metrics.functions.import_guard import ChangedSourceError
from evaldesk.registry import import_target

Function: TypeAlias = Callable[..., Any]
Mode: TypeAlias = Literal["solution", "messages", "trial", "adk", "instance"]

_MODES: Mapping[str, Mode] = {
    "solution_str": "solution",
    "messages": "messages",
    "transcript": "trial",
    "case": "trial",
    "state": "trial",
    "eval_metric": "adk",
    "instance": "instance",
}
PASSED: Mapping[Mode, tuple[str, ...]] = {
    "solution": ("solution_str", "ground_truth", "extra_info"),
    "messages": ("messages", "ground_truth", "metadata"),
    "trial": ("transcript", "case", "state", "messages", "ground_truth", "extra_info"),
    "adk": ("eval_metric", "actual_invocations", "expected_invocations", "conversation_scenario"),
    "instance": ("instance",),
}
"""The parameters that a function of each kind is called with, by keyword."""
# A module of the user is imported once, also when two trial threads need it first.
_lock = Lock()
_as_source: set[str] = set()
_loaded: dict[tuple[str, str, str], Function | BaseException] = {}


@dataclass(frozen=True, slots=True)
class _Copy:
    """The files of the user's functions by path as they were at `taken_at_ns`; 0 where no copy was taken."""

    sources: Mapping[str, str] = field(default_factory=dict)
    taken_at_ns: int = 0

    def is_changed(self, path: str) -> bool:
        """Whether a file that was not copied has changed since; its change time cannot be set by a program."""
        if not self.taken_at_ns or path in self.sources:
            return False
        try:
            return os.stat(path).st_ctime_ns > self.taken_at_ns
        except OSError:
            return True


_copy = _Copy()


def load_function(target: str, root: str, source: str = "") -> Function:
    """The function that `target`, a `module:attr`, names, imported once with `root` first on `sys.path`.

    The module is that of `source` where there is one. Raises MetricError naming its fault, and the exception of its
    import again each time.
    """
    key = (target, root, source)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _execute(target, source) if source else _import(target, root)
    function = _loaded[key]
    if isinstance(function, BaseException):
        raise function
    return function


def use_copy(sources: Mapping[str, str], taken_at_ns: int) -> None:
    """Import the files of functions from this copy from now on, each byte one character of its source.

    A grader gets it with its first trial, and other trials begin beside that one: none of them may import before.
    """
    global _copy  # noqa: PLW0603 - of the process; replaced as a whole, since an import under way holds the lock
    _copy = _Copy(dict(sources), taken_at_ns)


def _is_of(file: object, root: str) -> bool:
    return isinstance(file, str) and file.startswith(root.rstrip(os.sep) + os.sep) and "site-packages" not in file


class _SourceLoader(SourceFileLoader):
    """Imports the copy of a source where there is one, and never a compiled form."""

    def get_data(self, path: str) -> bytes:
        """The source."""
        source = _copy.sources.get(path)
        return super().get_data(path) if source is None else source.encode("latin-1")

    def path_stats(self, path: Any) -> Any:
        """Nothing by which a compiled form would be taken."""
        raise OSError(f"{path}: compiled forms are not read")


_KINDS: Any = ((ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, SOURCE_SUFFIXES))


class _UnchangedFinder(FileFinder):
    """Finds the modules of a folder, except modules changed or made after the copy."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module; None for a changed one, which another place may have, else `_CopyFinder`."""
        spec = super().find_spec(fullname, target)
        if spec is None or spec.origin is None or not _copy.is_changed(spec.origin):
            return spec
        return None


class _CopyFinder(MetaPathFinder):
    """Finds, after all other finders, the copy of a module that is not on the disk as it was."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The copied module. Raises ChangedSourceError for a changed module without a copy."""
        name = fullname.rpartition(".")[2]
        places = [place for place in (sys.path if path is None else path) if _is_source_place(place)]
        for place in places:
            folder = os.path.join(place, name)
            if (file := os.path.join(folder, "__init__.py")) in _copy.sources:
                return spec_from_file_location(
                    fullname, file, loader=_SourceLoader(fullname, file), submodule_search_locations=[folder]
                )
            if (file := f"{folder}.py") in _copy.sources:
                return spec_from_file_location(fullname, file, loader=_SourceLoader(fullname, file))
        for place in places:
            spec = FileFinder(place, *_KINDS).find_spec(fullname)
            if spec and spec.origin and _copy.is_changed(spec.origin):
                raise ChangedSourceError(
                    f"{Path(spec.origin).name} was changed or made while the run was played, and no copy of it was "
                    "taken before, so it does not grade a trial"
                )
        return None


def _is_source_place(place: str) -> bool:
    return any(place.rstrip(os.sep) == root.rstrip(os.sep) or _is_of(place, root) for root in _as_source)


def _read_as_source(root: str) -> None:
    """Import modules below `root` from their sources from now on."""
    if root in _as_source:
        return
    _as_source.add(root)

    def finder(path: str) -> FileFinder:
        if path.rstrip(os.sep) != root.rstrip(os.sep) and not _is_of(path, root):
            raise ImportError(f"{path} is not below {root}")
        return _UnchangedFinder(path, *_KINDS)

    sys.path_hooks.insert(0, finder)
    for place in [place for place in sys.path_importer_cache.copy() if place == root or _is_of(place, root)]:
        del sys.path_importer_cache[place]
    if not any(isinstance(each, _CopyFinder) for each in sys.meta_path):
        sys.meta_path.append(_CopyFinder())


def mode_of(function: Function) -> Mode:
    """The kind of the function's input. Raises MetricError when no kind of call has its parameters."""
    try:
        names = list(inspect.signature(function).parameters)
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError) as error:
        raise MetricError(f"the parameters of {function!r:.80} cannot be read: {error}") from error
    named_parameters = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return mode_by_names(
        names,
        required_names=[each.name for each in named_parameters if each.default is each.empty],
        positional=[each.name for each in named_parameters if each.kind is each.POSITIONAL_ONLY],
    )


def mode_by_names(names: Sequence[str], *, required_names: Sequence[str], positional: Sequence[str]) -> Mode:
    """The kind of the input of a function with these parameters; some have no default, some stand before a `/`.

    Raises MetricError when the first does not name a kind, or when no kind of call has the required ones.
    """
    if not names:
        raise MetricError("Eval function has no parameters. Expected (solution_str, ...) or (messages, ...)")
    if names[0] not in _MODES:
        raise MetricError(
            f"Cannot detect eval function mode: first parameter is {names[0]!r}. Expected 'solution_str' (simple mode) "
            "or 'messages' (full mode), or 'transcript', 'case' or 'state' to see the whole trial."
        )
    mode = _MODES[names[0]]
    lacking = [name for name in required_names if name not in PASSED[mode]]
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
    root = os.path.abspath(root) if root else ""
    search_path = os.environ.get("PYTHONPATH", "").split(os.pathsep) if root else []
    for place in filter(None, (root, *search_path)):
        _read_as_source(os.path.abspath(place))
    if root and root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        function = import_target(f"{module}:{name}")
    except UsageError:
        return MetricError(f"Module {module!r} has no attribute {name!r}. Available: {_available(module)}")
    except (Exception, SystemExit) as error:
        return error
    return function if callable(function) else MetricError(f"{name!r} in {module!r} is not callable")


def _execute(target: str, source: str) -> Function | BaseException:
    """The function that the source of a criterion defines."""
    module, _, name = target.rpartition(":")
    namespace: dict[str, Any] = {"__name__": module}
    try:
        exec(compile(source, f"<{module}>", "exec"), namespace)  # noqa: S102 - the user's own function, in a grader
    except (Exception, SystemExit) as error:
        return error
    function = namespace.get(name)
    return function if callable(function) else MetricError(f"the source of {module!r} defines no function {name!r}")


def _available(module: str) -> list[str]:
    return [name for name in vars(sys.modules[module]) if not name.startswith("_")] if module in sys.modules else []
