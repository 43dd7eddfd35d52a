"""The interpreter that an agent is played on: the one that is named for it, or the one of the project it is in."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from evaldesk import paths
from evaldesk.agents.agent import AGENTS
from evaldesk.interpreter_path import OURS
from evaldesk.model import AgentRef, Container
from evaldesk.toml_text import parse_toml

PYTHON = Path("bin", "python")
MAX_FILE = 1_000_000

# An agent made of our own class asks its models through LiteLLM, which its environment need not have.
_NEEDS_LITELLM = re.compile(r"^\s*(?:from\s+evaldesk\b.*\bLlmAgent\b|import\s+evaldesk\b)", re.MULTILINE)
_NOT_IN_A_NAME = re.compile(r'[ $`!*@"\\\r\n\t]')


def played_on(
    ref: AgentRef,
    python: str = "",
    container: Container | None = None,
    environment: Mapping[str, str] = os.environ,
) -> AgentRef:
    """The agent with its interpreter: its own, else `python`, which is named for all agents, else that of its project.

    Samples, agents at an address or a command and those that `evaldesk.toml` makes of a model stay on ours. An agent
    with an image, its own or that of `container`, which is given to all agents, is played in such a container instead.
    """
    image = ref.container.image if ref.container else container.image if container and not ref.python else ""
    if image and is_imported(ref):
        return replace(ref, python="", container=replace(container or Container(), image=image))
    named = ref.python or python
    if not is_imported(ref) or named == OURS:
        return replace(ref, python="")
    found = named or project_python(Path(ref.folder or ref.root), environment)
    if not found or _is_our_own(found) or (not named and _needs_litellm(ref) and not _has(found, "litellm")):
        return replace(ref, python="")
    return replace(ref, python=found)


def project_python(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The interpreter of the nearest project of uv, poetry or pipenv, or `.venv`, at or above the folder; else empty.

    The search ends with the repository, and below the home folder and folders of other users. Nothing is started.
    """
    for place in _places(folder.absolute(), environment):
        for found in _environments(place, environment):
            if os.access(found / PYTHON, os.X_OK):
                return str(found / PYTHON)
    return ""


def is_imported(ref: AgentRef) -> bool:
    """Whether a player imports code of the user for this agent."""
    folder = ref.folder or ref.root
    is_ours = bool(folder) and Path(folder).is_relative_to(paths.samples())
    return bool(ref.target and folder) and not is_ours and not AGENTS.is_remote(ref.kind)


def _is_our_own(python: str) -> bool:
    """Whether it is the interpreter of this process, or outside of virtual environments the same file."""
    home = Path(python).parents[1]
    if (home / "pyvenv.cfg").is_file():
        return os.path.realpath(home) == os.path.realpath(sys.prefix)
    return sys.prefix == sys.base_prefix and os.path.realpath(python) == os.path.realpath(sys.executable)


def _needs_litellm(ref: AgentRef) -> bool:
    module = Path(ref.root, *ref.target.partition(":")[0].split("."))
    return any(_NEEDS_LITELLM.search(_text(file)) for file in (module.with_suffix(".py"), module / "__init__.py"))


def _has(python: str, package: str) -> bool:
    """Whether the environment has the package, told by its folder."""
    return any(Path(python).parents[1].glob(f"lib/python3*/site-packages/{package}"))


def _places(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("HOME", "")
    owner = _owner(folder)
    for place in (folder, *folder.parents):
        if _owner(place) != owner or (str(place) == home and place != folder):
            return
        yield place
        if (place / ".git").exists():
            return


def _owner(folder: Path) -> int:
    try:
        return folder.stat().st_uid
    except OSError:
        return -1


def _environments(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The virtual environments of the project in `place`, as its tool names them."""
    if (place / "uv.lock").is_file() and environment.get("UV_PROJECT_ENVIRONMENT"):
        yield place / environment["UV_PROJECT_ENVIRONMENT"]
    yield place / ".venv"
    if (place / "Pipfile").is_file():
        yield from _of_pipenv(place, environment)
    if (place / "pyproject.toml").is_file():
        yield from _of_poetry(place, environment)


def _of_pipenv(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Pipenv writes the folder of its project into each of its environments."""
    home = environment.get("HOME", "")
    shelf = Path(environment.get("WORKON_HOME") or Path(home, ".local", "share", "virtualenvs"))
    yield from (file.parent for file in sorted(shelf.glob("*/.project")) if _text(file).strip() == str(place))


def _of_poetry(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Poetry names an environment after the project, a digest of its folder, and the version of Python.

    (python-poetry/poetry src/poetry/utils/env/env_manager.py, generate_env_name)
    """
    name = _project_name(place)
    if not name:
        return
    home = Path(environment.get("HOME", ""))
    usual = home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "pypoetry"
    cache = Path(environment.get("POETRY_CACHE_DIR") or usual)
    shelf = Path(environment.get("POETRY_VIRTUALENVS_PATH") or cache / "virtualenvs")
    folder = os.path.normcase(os.path.realpath(place))
    digest = base64.urlsafe_b64encode(hashlib.sha256(folder.encode()).digest()).decode()[:8]
    stem = f"{_NOT_IN_A_NAME.sub('_', name.lower())[:42]}-{digest}-py"
    found = [each for each in _children(shelf) if each.name.startswith(stem)]
    yield from sorted(found, key=lambda each: _numbers(each.name[len(stem) :]), reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _project_name(place: Path) -> str:
    """The name of a project of poetry; empty for any other."""
    try:
        table = parse_toml(_text(place / "pyproject.toml"))
    except ValueError:
        return ""
    tool, project = table.get("tool"), table.get("project")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    if not isinstance(poetry, dict) and not (place / "poetry.lock").is_file():
        return ""
    names = [each.get("name") for each in (poetry, project) if isinstance(each, dict)]
    return next((name for name in names if isinstance(name, str)), "")


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:MAX_FILE].decode("utf-8", "replace")
    except OSError:
        return ""
