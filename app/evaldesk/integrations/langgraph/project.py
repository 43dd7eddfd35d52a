"""`langgraph.json`: the graphs of a project of LangGraph, and the folders from which they import.

(langgraph-cli config.py and cli.py `dev`: the folder of the file and its local dependencies are on `sys.path`)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaldesk.agents.agent import Project
from evaldesk.agents.discovery import agent_id, source_folders_of
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef

MAX_FILE = 1_000_000


def read_project(path: Path) -> Project:
    """The graphs that the file names, in its order, its local dependencies and its environment.

    Graphs in other languages than Python are left out. Raises UsageError for no JSON object.
    """
    table = _table(path)
    names = table.get("dependencies")
    dependencies = [path.parent / each for each in names if _is_local(each)] if isinstance(names, list) else []
    folders = [path.parent, *(each.resolve() for each in dependencies if os.path.isdir(each))]
    graphs = table.get("graphs")
    roots = list(dict.fromkeys((*folders, *source_folders_of(path.parent))))
    pairs = graphs.items() if isinstance(graphs, dict) else ()
    refs = (_ref(path, str(name), _target(graph), roots) for name, graph in pairs)
    env = table.get("env")
    declared = env if isinstance(env, str | dict) else None
    return Project(tuple(ref for ref in refs if ref), tuple(dict.fromkeys(folders)), declared)


def _table(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_bytes()[:MAX_FILE])
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not read as JSON: {error}", field="agent") from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: must be an object with graphs, got {type(table).__name__}", field="agent")
    return table


def _is_local(dependency: object) -> bool:
    """Whether a dependency is a folder and no package of a registry: those of the project begin with a dot."""
    return isinstance(dependency, str) and dependency.startswith(".")


def _target(graph: object) -> str:
    """`./src/agent.py:graph`, also of an object with `path`."""
    value = graph.get("path") if isinstance(graph, dict) else graph
    return value if isinstance(value, str) and "\0" not in value else ""


def _ref(path: Path, name: str, target: str, roots: Sequence[Path]) -> AgentRef | None:
    """The agent of a graph: its file as a module of the packages around it, which LangGraph loads by its path."""
    place, _, attribute = target.rpartition(":")
    if not (place and attribute):
        return None
    if not ("/" in place or place.endswith(".py")):  # a module by its dotted name
        root = next((root for root in roots if any(_files(root, place))), path.parent)
        folder = next((file.parent for file in _files(root, place)), path.parent)
        return AgentRef(agent_id(name), f"{place}:{attribute}", root=str(root), folder=str(folder))
    file = (path.parent / place).resolve()
    if file.suffix != ".py":
        return None
    root = file.parent
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        root = root.parent
    module = ".".join(file.relative_to(root).with_suffix("").parts)
    return AgentRef(agent_id(name), f"{module}:{attribute}", root=str(root), folder=str(file.parent))


def _files(root: Path, module: str) -> Iterator[Path]:
    base = root.joinpath(*module.split("."))
    return (each for each in (base.with_suffix(".py"), base / "__init__.py") if os.path.isfile(each))
