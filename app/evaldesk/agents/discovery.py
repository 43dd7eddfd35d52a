"""Discovery of agents on disk, without imports as in `adk web DIR`, and agents at an address or a command.

Each agent is played on its configured interpreter, or on the interpreter of its project, with the source folders of
the project.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from evaldesk import paths
from evaldesk.agents.agent import AGENTS, AgentKind, Project
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentRef, Container
from evaldesk.model.options import check_address
from evaldesk.paths import OURS
from evaldesk.registry import import_target

YAML_NAME = "root_agent.yaml"
FACTORY = "get_agent_async"  # of google-adk: a coroutine function that makes the agent
MAX_SOURCE = 1_000_000
PYTHON = Path("bin", "python")
PACKAGE_DEPTH = 3
"""Levels below a folder of source code: `src/shop/agents/support`."""
COLLECTION_DEPTH = 2
"""Levels below a root that has no agent of its own: `agents/shop`."""
NOT_SOURCE = ("tests", "test", "node_modules", "venv", "build", "dist", "site-packages")
MAX_MEMBERS = 200
MAX_ID = 80

_ROOT_AGENT = r"^(?:root_agent\b(?!\.)|(?:async\s+)?def\s+root_agent\b|from\s.*\broot_agent\b|.*\bas\s+root_agent\b)"
_ATTRIBUTES = (
    ("root_agent", re.compile(_ROOT_AGENT, re.MULTILINE)),
    ("agent", re.compile(r"^(?:agent\s*(?::[^=\n]+)?=(?!=)|(?:async\s+)?def\s+agent\b)", re.MULTILINE)),
    ("app", re.compile(r"^(?:app\s*(?::[^=\n]+)?=(?!=)|(?:async\s+)?def\s+app\b)", re.MULTILINE)),
    (FACTORY, re.compile(rf"^(?:async\s+def\s+{FACTORY}\b|from\s.*\b{FACTORY}\b)", re.MULTILINE)),
    ("root_agent", re.compile(r"\broot_agent\b")),
)

# An agent made of our own class asks its models through LiteLLM, which its environment need not have.
_NEEDS_LITELLM = re.compile(r"^[ \t]*(?:from[ \t]+evaldesk\b.*\bLlmAgent\b|import[ \t]+evaldesk\b)", re.MULTILINE)
_LEAVES = re.compile(r"^[ \t]*from[ \t]+\.\.", re.MULTILINE)
_NOT_IN_A_NAME = re.compile(r'[ $`!*@"\\\r\n\t]')


def find_agents(roots: Sequence[Path]) -> list[AgentRef]:
    """The agents under `roots`, by root and then by name; a root that is itself an agent's folder is that agent.

    An agent's folder has an `agent.py` or an `__init__.py` that mentions `root_agent` or defines `agent`, `app` or
    `get_agent_async`, or a `root_agent.yaml`. It lies in a root, or in a package below `src` or below a member of a
    workspace of uv; where none does, in a folder of a root. Ids are the names of the folders, made unique. The agents
    of a project file, such as `langgraph.json`, in a root or a folder of one come first, under their names there.
    """
    places = [root.resolve() for root in roots]
    folders = dict.fromkeys(folder for place in places for folder in _agent_folders(place))
    refs = [ref for folder in folders if (ref := _folder_ref(folder))]
    project_refs = [ref for place in places for ref in _projects_near(place)]
    if not refs and not project_refs:
        folders = dict.fromkeys(folder for place in places for folder in _in_packages(place, COLLECTION_DEPTH))
        refs = [ref for folder in folders if (ref := _folder_ref(folder))]
    named_files = {_file_of(ref) for ref in project_refs}
    return _with_unique_ids([*project_refs, *(ref for ref in refs if _file_of(ref) not in named_files)])


def agent_ref(spec: str) -> AgentRef:
    """The agent of a command-line spec: a folder, `module:attr`, `samples/NAME`, an address or a command.

    Raises UsageError with the target of the search.
    """
    remote = remote_ref(spec)
    if remote:
        return remote
    project_ref = _project_ref(spec)
    if project_ref:
        return project_ref
    folder = Path(spec).expanduser()
    if folder.name in ("__init__.py", "agent.py") and folder.is_file():  # as `adk eval` names an agent
        folder = folder.parent
    if folder.is_dir():
        ref = _folder_ref(folder.resolve())
        if ref:
            return ref
        inside = next((ref.folder for ref in find_agents([folder]) if ref.folder), "")
        hint = f"; name one of the agents in it, such as {folder / Path(inside).name}" if inside else ""
        raise UsageError(
            f"{spec}: no agent.py or __init__.py there defines root_agent, agent, app or {FACTORY}{hint}", field="agent"
        )
    name = spec.removeprefix("samples/")
    if name != spec:
        return _sample(name)
    if ":" in spec and not paths.is_windows_path(spec):
        return _module_ref(spec)
    forms = "neither a folder, nor module:attr, nor samples/NAME, nor an agent that evaldesk.toml declares"
    hint = paths.did_you_mean(folder, "")
    if folder.suffix == ".py" and folder.is_file():
        hint = f"name the agent that it defines, such as {'.'.join(Path(spec).with_suffix('').parts)}:root_agent"
    raise UsageError(f"{spec!r} is {forms}{hint and f'; {hint}'}", field="agent")


def _project_files(folder: Path) -> Iterator[tuple[AgentKind, Path]]:
    """The project files in the folder that name agents, each with its kind."""
    kinds = (kind for kind in AGENTS.builtin if kind.project_file)
    return ((kind, folder / kind.project_file) for kind in kinds if (folder / kind.project_file).is_file())


def _project(kind: AgentKind, path: Path) -> Project:
    reader = cast("Callable[[Path], Project]", import_target(kind.read_project))
    return reader(path)


def projects_in(folder: Path) -> Iterator[tuple[Path, Project]]:
    """The project files in the folder with their content; a file that cannot be read is left out."""
    for kind, path in _project_files(folder):
        with suppress(UsageError):
            yield path, _project(kind, path)


def _projects_near(root: Path) -> Iterator[AgentRef]:
    """The agents of project files in the root and its folders."""
    for folder in (root, *(child for child in sorted(_children(root)) if _may_be_agent(child))):
        for _, project in projects_in(folder):
            yield from project.agents


def _project_ref(spec: str) -> AgentRef | None:
    """The agent of `langgraph.json:NAME`, or the only one of such a file or of a folder with it; None for another spec.

    Raises UsageError with the names there are.
    """
    place, _, name = spec.rpartition(":") if ".json:" in spec else (spec, "", "")
    path = Path(place).expanduser().resolve()
    files = list(_project_files(path if path.is_dir() else path.parent))
    kind_path = next((each for each in files if path.is_dir() or each[1] == path), None)
    if kind_path is None or (path.is_dir() and _folder_ref(path)):
        return None
    refs = {ref.id: ref for ref in _project(*kind_path).agents}
    if not name and len(refs) == 1:
        return next(iter(refs.values()))
    if name not in refs:
        forms = ", ".join(f"{kind_path[1].name}:{each}" for each in refs) or "none"
        raise UsageError(f"{spec}: name one of its agents: {forms}", field="agent")
    return refs[name]


def _file_of(ref: AgentRef) -> Path:
    return Path(ref.root, *ref.target.partition(":")[0].split("."))


def _agent_folders(root: Path) -> Iterator[Path]:
    if _folder_ref(root):
        yield root
        return
    try:
        children = sorted(root.iterdir())
    except OSError:
        return
    yield from (child for child in children if _may_be_agent(child))
    for source in _sources(root):
        yield from _in_packages(source, PACKAGE_DEPTH)


def _may_be_agent(folder: Path) -> bool:
    return not folder.name.startswith((".", "_")) and folder.is_dir()


def _in_packages(folder: Path, depth: int) -> Iterator[Path]:
    """The outermost folders of agents below `folder`."""
    for child in sorted(_children(folder)):
        if not _may_be_agent(child) or child.is_symlink() or child.name in NOT_SOURCE:
            continue
        if _folder_ref(child):
            yield child
        elif depth > 1:
            yield from _in_packages(child, depth - 1)


def _folder_ref(folder: Path) -> AgentRef | None:
    for stem in ("agent", "__init__"):
        attribute = _attribute(folder / f"{stem}.py")
        if attribute:
            return _python_ref(folder, stem, attribute)
    if (folder / YAML_NAME).is_file():
        return AgentRef(agent_id(folder.name), YAML_NAME, root=str(folder.parent), folder=str(folder), kind="adk")
    return None


def _python_ref(folder: Path, stem: str, attribute: str) -> AgentRef:
    if "." in folder.name:  # no package can have such a name, so the file is imported as a module of its own
        return AgentRef(agent_id(folder.name), f"{stem}:{attribute}", root=str(folder), folder=str(folder))
    top = _top_package(folder)
    names = folder.relative_to(top.parent).parts
    module = ".".join(names if stem == "__init__" else (*names, stem))
    return AgentRef(agent_id(folder.name), f"{module}:{attribute}", root=str(top.parent), folder=str(folder))


def _top_package(folder: Path) -> Path:
    """The outermost package around the agent, if its code imports from it; else the folder itself."""
    top = folder
    if folder.is_relative_to(paths.samples()):  # their package is ours
        return folder
    while (top.parent / "__init__.py").is_file() and top.parent.name.isidentifier():
        top = top.parent
    if top == folder or not _imports_from(top.name, folder):
        return folder
    return top


def _imports_from(package: str, folder: Path) -> bool:
    """Whether a module of the agent imports from above its folder, relatively or by the name of the package."""
    by_name = re.compile(rf"^[ \t]*(?:from|import)[ \t]+{package}\b(?!\s*=)", re.MULTILINE)
    for path in sorted(_children(folder)):
        if path.suffix == ".py":
            source = _text(path)
            if _LEAVES.search(source) or by_name.search(source):
                return True
    return False


def _attribute(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_SOURCE:
            return None
        source = path.read_text("utf-8", errors="replace")
    except OSError:
        return None
    return next((name for name, pattern in _ATTRIBUTES if pattern.search(source)), None)


def _sample(name: str) -> AgentRef:
    samples = {ref.id: ref for ref in find_agents([paths.samples()])}
    if name not in samples:
        raise NotFoundError.among("sample agent", name, samples)
    return samples[name]


def _module_ref(spec: str) -> AgentRef:
    module, _, attribute = spec.partition(":")
    if not (module and attribute):
        raise UsageError(f"{spec!r} is not of the form module:attr", field="agent")
    here = Path.cwd()
    for root in (here, *source_folders(here)):
        file = root.joinpath(*module.split("."))
        if file.is_dir() or file.with_suffix(".py").is_file():
            folder = file if file.is_dir() else file.parent
            return AgentRef(agent_id(spec), spec, root=str(root), folder=str(folder))
    return AgentRef(agent_id(spec), spec, root=str(here))


def agent_id(name: str) -> str:
    """The name as an id: letters, digits, `_`, `.` and `-`."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "agent"


def _with_unique_ids(refs: Iterable[AgentRef]) -> list[AgentRef]:
    unique: dict[str, AgentRef] = {}
    for ref in refs:
        number = 1
        agent_id = ref.id
        while agent_id in unique:
            number += 1
            agent_id = f"{ref.id}-{number}"
        unique[agent_id] = replace(ref, id=agent_id)
    return list(unique.values())


def remote_ref(spec: str) -> AgentRef | None:
    """The agent at an address, a command or a recording; None for any other spec.

    An address without a prefix is an OpenAI-compatible endpoint when it ends in `/v1`, else it follows
    docs/protocol.md. Raises UsageError for an invalid address or command.
    """
    if spec.startswith(("http://", "https://")):
        return remote_ref_of_kind(AGENTS.at_address(spec).name, spec)
    prefix, separator, target = spec.partition(":")
    kind = AGENTS.at_prefix(prefix) if separator else None
    if kind is None or (kind.target == "address" and not target.startswith("http")):
        return None
    return remote_ref_of_kind(kind.name, target.strip())


def remote_ref_of_kind(kind: str, target: str, own_id: str = "", options: str = "") -> AgentRef:
    """The agent of that remote kind at `target`. Raises UsageError."""
    form = AGENTS[kind].target
    if form == "command":
        if not target:
            raise UsageError("command: needs a command, such as command:python my_agent.py", field="agent")
        name = own_id or agent_id(target.rsplit(maxsplit=1)[-1])[:MAX_ID]
        return AgentRef(name, target, root=str(Path.cwd()), kind=kind, declared=options)
    if form == "file":
        path = Path(target).expanduser().resolve()
        if not path.is_file():
            raise UsageError(f"{target}: no file to replay", field="agent")
        return AgentRef(
            own_id or agent_id(path.stem)[:MAX_ID], str(path), root=str(path.parent), kind=kind, declared=options
        )
    return AgentRef(own_id or agent_id(_id_of_url(target))[:MAX_ID], target.rstrip("/"), kind=kind, declared=options)


def _id_of_url(url: str) -> str:
    parts = check_address(url, "agent", "http://127.0.0.1:8000")
    return f"{parts.hostname}{f'-{parts.port}' if parts.port else ''}{parts.path}"


def with_place(
    ref: AgentRef,
    python: str = "",
    container: Container | None = None,
    environment: Mapping[str, str] = os.environ,
) -> AgentRef:
    """The agent with its interpreter: its own, else `python`, the default of all agents, else its project's.

    Samples, remote agents and agents declared by a model in `evaldesk.toml` stay on Evaldesk's interpreter. An agent
    with an image, its own or the image of `container`, the default of all agents, is played in a container instead. A
    benchmark with an image for its commands only stays on this machine; its commands get the limits of `container`.
    """
    if ref.commands:
        ref = replace(ref, commands=commands_in(ref.commands.image, container or ref.commands))
    is_given = container and not ref.python and not ref.commands
    image = ref.container.image if ref.container else container.image if container and is_given else ""
    if image and is_imported(ref):
        return replace(ref, python="", container=replace(container or Container(), image=image))
    named_interpreter = ref.python or python
    if not is_imported(ref) or named_interpreter == OURS:
        return replace(ref, python="")
    interpreter = named_interpreter or project_python(Path(ref.folder or ref.root), environment)
    if (
        not interpreter
        or _is_own_interpreter(interpreter)
        or (not named_interpreter and _needs_litellm(ref) and not _has(interpreter, "litellm"))
    ):
        return replace(ref, python="")
    return replace(ref, python=interpreter)


def commands_in(image: str, bounds: Container) -> Container:
    """The container for the commands of a script. Model calls come from the script, outside of the container."""
    return replace(bounds, image=image, network="none" if bounds.network == "model-only" else bounds.network)


def project_python(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The interpreter of the nearest project of uv, poetry or pipenv, or `.venv`, at or above the folder; else empty.

    The search ends at the root of the repository, below the home folder, and at folders of other users. No process is
    started.
    """
    for place in _places(folder.absolute(), environment):
        for venv in _environments(place, environment):
            if os.access(venv / PYTHON, os.X_OK) or (venv / PYTHON).is_symlink():  # one that leads nowhere is told
                return str(venv / PYTHON)
    return ""


def source_folders(folder: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The source folders of the projects at and above the folder, nearest first.

    A project has a `pyproject.toml`, `setup.py` or `Pipfile`; its code is in `src`, in the folders of its poetry table,
    and in the members of its uv workspace. Python 3.10 reads no TOML: there only `src` counts.
    """
    places = list(_places(folder.absolute(), environment))
    sources = [source for place in places for source in (*_project_folders(place), *_sources(place))]
    return list(dict.fromkeys(sources))


def source_folders_of(place: Path) -> list[Path]:
    """The source folders of the project in that very folder."""
    return list(dict.fromkeys(_sources(place)))


def _project_folders(place: Path) -> Iterator[Path]:
    """The folders that a project file of the place puts on `sys.path`."""
    for kind, path in _project_files(place):
        with suppress(UsageError):
            yield from _project(kind, path).folders


def _sources(place: Path) -> Iterator[Path]:
    """The source folders of the project in `place`, then of its workspace; none without a project."""
    if not any((place / name).is_file() for name in ("pyproject.toml", "setup.py", "Pipfile")):
        return
    table = _pyproject(place).get("tool")
    packages = _table(table, "poetry").get("packages")
    source_names = (
        [each.get("from") for each in packages if isinstance(each, dict)] if isinstance(packages, list) else []
    )
    for name in ("src", *(each for each in source_names if isinstance(each, str))):
        if (place / name).is_dir():
            yield place / name
    for member in _members(place, table):
        yield member / "src" if (member / "src").is_dir() else member


def _members(place: Path, table: object) -> list[Path]:
    """The members of a uv workspace: `[tool.uv.workspace] members = ["packages/*"]`, without its `exclude`."""
    workspace = _table(_table(table, "uv"), "workspace")
    excluded = {path for pattern in _patterns(workspace, "exclude") for path in place.glob(pattern)}
    paths = (path for pattern in _patterns(workspace, "members") for path in sorted(place.glob(pattern)))
    return list(
        islice((path for path in paths if path not in excluded and (path / "pyproject.toml").is_file()), MAX_MEMBERS)
    )


def _patterns(workspace: Mapping[str, Any], key: str) -> list[str]:
    """The glob patterns of a key, without absolute ones and ones with `..`."""
    value = workspace.get(key)
    patterns = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
    return [each for each in patterns if each and not Path(each).is_absolute() and ".." not in Path(each).parts]


def _pyproject(place: Path) -> Mapping[str, Any]:
    """The `pyproject.toml` of the project; empty when unreadable, as on a Python without tomllib."""
    try:
        from evaldesk.toml_text import parse_toml

        return parse_toml(_text(place / "pyproject.toml"))
    except (ImportError, ValueError):
        return {}


def _table(table: object, key: str) -> Mapping[str, Any]:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, dict) else {}


def is_imported(ref: AgentRef) -> bool:
    """Whether a player imports code of the user for this agent."""
    folder = ref.folder or ref.root
    is_ours = bool(folder) and Path(folder).is_relative_to(paths.samples())
    return bool(ref.target and folder) and not is_ours and not AGENTS.is_remote(ref.kind)


def _is_own_interpreter(python: str) -> bool:
    """Whether it is the interpreter of this process: the same virtual environment, else the same file."""
    home = Path(python).parents[1]
    if (home / "pyvenv.cfg").is_file():
        return os.path.realpath(home) == os.path.realpath(sys.prefix)
    return sys.prefix == sys.base_prefix and os.path.realpath(python) == os.path.realpath(sys.executable)


def _needs_litellm(ref: AgentRef) -> bool:
    module = Path(ref.root, *ref.target.partition(":")[0].split("."))
    return any(_NEEDS_LITELLM.search(_text(file)) for file in (module.with_suffix(".py"), module / "__init__.py"))


def _has(python: str, package: str) -> bool:
    """Whether the environment has the folder of the package."""
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
    """The virtual environments of the project in `place`, by the rules of its tool."""
    if (place / "uv.lock").is_file() and environment.get("UV_PROJECT_ENVIRONMENT"):
        yield place / environment["UV_PROJECT_ENVIRONMENT"]
    yield place / ".venv"
    if (place / "Pipfile").is_file():
        yield from _of_pipenv(place, environment)
    if (place / "pyproject.toml").is_file():
        yield from _of_poetry(place, environment)


def _of_pipenv(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The environments of pipenv; each has the folder of its project in its file `.project`."""
    home = environment.get("HOME", "")
    shelf = Path(environment.get("WORKON_HOME") or Path(home, ".local", "share", "virtualenvs"))
    yield from (file.parent for file in sorted(shelf.glob("*/.project")) if _text(file).strip() == str(place))


def _of_poetry(place: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """The environments of poetry, named by the project, a digest of its folder, and the version of Python.

    (python-poetry/poetry src/poetry/utils/env/env_manager.py, generate_env_name)
    """
    name = _project_name(place)
    if not name:
        return
    home = Path(environment.get("HOME", ""))
    default_cache = home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "pypoetry"
    cache = Path(environment.get("POETRY_CACHE_DIR") or default_cache)
    shelf = Path(environment.get("POETRY_VIRTUALENVS_PATH") or cache / "virtualenvs")
    folder = os.path.normcase(os.path.realpath(place))
    digest = base64.urlsafe_b64encode(hashlib.sha256(folder.encode()).digest()).decode()[:8]
    stem = f"{_NOT_IN_A_NAME.sub('_', name.lower())[:42]}-{digest}-py"
    venvs = [each for each in _children(shelf) if each.name.startswith(stem)]
    yield from sorted(venvs, key=lambda each: _numbers(each.name[len(stem) :]), reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _project_name(place: Path) -> str:
    """The name of a project of poetry; empty for any other."""
    table = _pyproject(place)
    tool, project = _table(table, "tool"), _table(table, "project")
    if "poetry" not in tool and not (place / "poetry.lock").is_file():
        return ""
    names = (each.get("name") for each in (_table(tool, "poetry"), project))
    return next((name for name in names if isinstance(name, str)), "")


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[:MAX_SOURCE].decode("utf-8", "replace")
    except OSError:
        return ""
