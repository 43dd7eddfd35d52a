"""Whether a function of the user is where its name says, found by reading files and never by importing them.

A run with a name that leads nowhere is refused before it costs anything. Errors that only an import can show are left
to it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from evaldesk import paths
from evaldesk.errors import MetricError, UsageError
from evaldesk.metrics.functions.loading import mode_by_names, mode_of
from evaldesk.process_setup import parsing

MAX_BYTES = 2_000_000


def check_function(target: str, root: str, folder: Path) -> str:
    """Look for `target`, a `module:attr`, in `root`, in `folder` and where Python looks.

    Gives the folder to import it from: `folder` where the module is there and not in `root`. Raises UsageError when
    there is no such module, when it is no Python, or when it defines no such name.
    """
    if paths.is_windows_path(target):
        raise UsageError(
            f"{target!r} is the path of a file; name the function as module:function, such as 'rewards:score', "
            "and start Evaldesk in the folder of the module",
            field="metric",
        )
    module, _, attribute = target.rpartition(":")
    if not (module and attribute):
        raise UsageError(
            f"Invalid eval function path {target!r}. Expected format: 'module:function' (e.g., "
            "'rewards:compute_reward')",
            field="metric",
        )
    if module in sys.modules:
        _check_function(getattr(sys.modules[module], attribute, None))
        return _place_of(module, root, folder)
    spec = _spec(module, [*filter(None, [root]), str(folder), *sys.path])
    if spec is None:
        places = " or ".join(dict.fromkeys(filter(None, [root, str(folder)])))
        raise UsageError(
            f"Cannot import module {module!r}: no {module.replace('.', '/')}.py in {places}", field="metric"
        )
    path = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    names = _names(path) if path else None
    name = attribute.partition(".")[0]
    if names is not None and name not in names:
        nearest = get_close_matches(name, names, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f". Available: {sorted(names)[:20]}"
        raise UsageError(f"Module {module!r} has no attribute {name!r}{hint}", field="metric")
    if path and names is not None:
        _check_definition(path, attribute)
    return _place_of(module, root, folder)


def check_source(target: str, source: str) -> None:
    """Raise UsageError for a source that is no Python, or does not define the function of `target`."""
    name = target.rpartition(":")[2]
    try:
        with parsing:
            body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"the source of {target.rpartition(':')[0]}, {line}", field="metric") from error
    if name not in set(_defined_names(body)):
        raise UsageError(f"the source of {target.rpartition(':')[0]} defines no function {name!r}", field="metric")


def _place_of(module: str, root: str, folder: Path) -> str:
    return next((place for place in (root, str(folder)) if place and _spec(module, [place])), root)


def _check_function(function: object) -> None:
    if callable(function):
        try:
            mode_of(function)
        except MetricError as error:
            raise UsageError(str(error), field="metric") from error


def _check_definition(path: Path, name: str) -> None:
    """Look at the parameters of a function that the file defines once, at its top and without a decorator."""
    try:
        with parsing:
            body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    definitions = [each for each in ast.walk(ast.Module(body, [])) if getattr(each, "name", "") == name]
    definition = definitions[0] if len(definitions) == 1 and definitions[0] in body else None
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) or definition.decorator_list:
        return
    parameters = definition.args
    positional_parameters = [*parameters.posonlyargs, *parameters.args]
    if not positional_parameters and parameters.vararg:
        return
    n_required = len(positional_parameters) - len(parameters.defaults)
    required_names = [each.arg for each in positional_parameters[:n_required]]
    required_names += [
        each.arg for each, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if default is None
    ]
    names, positional = (
        [each.arg for each in (*positional_parameters, *parameters.kwonlyargs)],
        [each.arg for each in parameters.posonlyargs],
    )
    try:
        mode_by_names(names, required_names=required_names, positional=positional)
    except MetricError as error:
        raise UsageError(str(error), field="metric") from error


def _spec(module: str, places: list[str]) -> ModuleSpec | None:
    """Where the module is; its parents are looked through and not imported."""
    spec: ModuleSpec | None = None
    name = ""
    search: list[str] | None = places
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        if search is None:
            return None
        try:
            spec = PathFinder.find_spec(name, search)
        except (ImportError, ValueError, OSError):
            return None
        if spec is None:
            return None
        search = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
    return spec


def _names(path: Path) -> set[str] | None:
    """The names that the file defines at its top; None when only running it could tell. Raises UsageError."""
    try:
        source = path.read_bytes()
        with parsing:
            tree = ast.parse(source) if len(source) <= MAX_BYTES else None
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: {error.msg}", field="metric") from error
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    names = set(_defined_names(tree.body)) if tree else {"*"}
    return None if names & {"*", "__getattr__"} else names


def _defined_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0]) for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
        elif isinstance(statement, ast.Expr):
            if _defines_by_hand(statement):
                yield "*"
        else:  # a name in an if, a try, a loop or a with may be defined
            yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))
            inner = (node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement)
            yield from _defined_names(inner)


def _defines_by_hand(statement: ast.stmt) -> bool:
    """Whether the statement may define names: `globals().update(...)`, `exec(...)`."""
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return bool(names & {"globals", "exec", "vars", "setattr", "locals"})
