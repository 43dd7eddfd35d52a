"""The agent, the data set, the commit and the secrets that a run file names."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.desk.runs.file import RunFile
from evaldesk.engine.launch import placed
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.git import git_text
from evaldesk.model import AgentRef
from evaldesk.process_setup import parsing
from evaldesk.settings import Settings

ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
BASES = ("AgentWorkflow", "RolloutAgentLoop")
BACKENDS = ("LocalBackend", "create_rollout_server")
APPS = ("create_app",)
_STATUS = ("status", "--porcelain", "--ignore-submodules=dirty")
"""Without a look into submodules, where git would take their own configurations."""


def agent_of(file: RunFile) -> AgentRef:
    """The agent in the entrypoint, found by reading it: a backend or server, else the one class of a workflow.

    A class that is imported is found where the entrypoint gives it to a backend.

    Raises UsageError with the target of the search.
    """
    folder = (file.code_root or file.root) / "rollouts" / file.rollout
    if not folder.is_dir():
        names = sorted(each.name for each in folder.parent.glob("*/")) if folder.parent.is_dir() else []
        raise NotFoundError(
            f"{file.path}: {NotFoundError.among(f'rollout under {folder.parent}', file.rollout, names)}"
        )
    if ":" in file.entrypoint:
        return AgentRef(file.rollout, file.entrypoint, root=str(folder), folder=str(folder))
    path = folder / file.entrypoint
    if not path.is_file():
        raise UsageError(f"{file.path}: experiment.entrypoint: there is no {path}; name a file of the rollout")
    module = ".".join(Path(file.entrypoint).with_suffix("").parts)
    return AgentRef(file.rollout, f"{module}:{_attribute(path)}", root=str(folder), folder=str(folder))


def placed_agent(file: RunFile, settings: Settings, python: str | None, image: str | None) -> AgentRef:
    """The agent in the entrypoint, on the interpreter or in the image that a person or the file names.

    Raises UsageError.
    """
    return placed(agent_of(file), settings, python, image, file.run_options.get("environment"))


def dataset_path(file: RunFile) -> Path:
    """The file of the data set: a path, or a name under `data` or the rollout. Raises UsageError."""
    names = [file.dataset, *(f"{file.dataset}{ending}" for ending in ENDINGS)]
    folders = (
        file.root,
        file.root / "data",
        file.root / "rollouts" / file.rollout / "data",
        file.path.resolve().parent,
    )
    path = next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)
    if path is None:
        folder_names = ", ".join(str(folder) for folder in folders)
        raise UsageError(
            f"{file.path}: experiment.dataset: no file {file.dataset} ({', '.join(ENDINGS)}) in {folder_names}; "
            "a data set of the platform must be downloaded first"
        )
    return path


def at_revision(file: RunFile, worktrees: Path) -> tuple[RunFile, str]:
    """The file with the code of the revision it asks for, and the commit; empty outside of git.

    The revision that is checked out without changes is played where it is, any other from a git worktree of it under
    `worktrees`. Raises UsageError when there is no such revision.
    """
    head = git_head(file.root)
    revision = file.commit_sha or file.branch
    if revision is None:
        return file, head
    if not head:
        raise UsageError(f"{file.path}: asks for {revision}, but {file.root} is not a git checkout")
    names = (
        [file.commit_sha] if file.commit_sha else [f"refs/heads/{file.branch}", f"refs/remotes/origin/{file.branch}"]
    )
    commits = (git_text(file.root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}") for name in names)
    commit = next(filter(None, commits), "")
    if not commit:
        key = "commit_sha" if file.commit_sha else "branch"
        raise UsageError(f"{file.path}: experiment.{key}: {file.root} has no {revision}; git fetch, or change the file")
    if commit == head and not git_text(file.root, *_STATUS, "--", f"rollouts/{file.rollout}"):
        return file, commit
    tree = _worktree(file, commit, worktrees / commit)
    return replace(file, code_root=tree / git_text(file.root, "rev-parse", "--show-prefix")), commit


# The checkout of a person is never changed: decision 055.
def _worktree(file: RunFile, commit: str, folder: Path) -> Path:
    """A checkout of the commit; an earlier one is reused when nothing in it was changed."""
    if git_head(folder) == commit and not has_changes(folder):
        return folder
    if folder.exists():
        git_text(file.root, "worktree", "remove", "--force", str(folder))
    git_text(file.root, "worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
    if git_head(folder) != commit:
        raise UsageError(
            f"{file.path}: commit {commit[:7]} cannot be checked out to {folder}; "
            f"`git worktree add --detach {folder} {commit[:7]}` tells the reason"
        )
    return folder


def has_changes(folder: Path) -> bool:
    """Whether files of the working tree differ from its commit, or are not in it."""
    return bool(git_text(folder, *_STATUS))


def git_head(folder: Path) -> str:
    """The commit of the working tree at `folder`; empty outside of git."""
    return git_text(folder, "rev-parse", "HEAD")


def secrets_of(file: RunFile, file_secrets: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The values of the secrets: of `file_secrets` first, then the environment. Raises UsageError for missing ones."""
    values = {name: file_secrets.get(name) or environment.get(name, "") for name in file.secrets}
    names = [name for name, value in values.items() if not value]
    if names:
        raise UsageError(
            f"{file.path}: the environment has no {', '.join(names)}; export the missing ones, or name a file with "
            "--secrets-file"
        )
    return values


def read_secrets(text: str) -> dict[str, str]:
    """`NAME=value` lines, as a `.env` file has them. Raises UsageError with the line."""
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        text_line = line.strip().removeprefix("export ").strip()
        if not text_line or text_line.startswith("#"):
            continue
        name, sign, value = text_line.partition("=")
        if not sign or not name.strip().isidentifier():
            raise UsageError(f"--secrets-file, line {number}: wanted NAME=value")
        values[name.strip()] = _unquote(value.strip())
    return values


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _attribute(path: Path) -> str:
    try:
        with parsing:
            tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as Python: {error}") from error
    backends = [name for node in tree.body for name in _targets_of_call(node, BACKENDS)]
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and _extends(node, BASES)]
    loops = [name for node in tree.body for name in _targets_of_call(node, classes)]
    served_agents = [name for node in tree.body for name in _served_agents(node)]
    apps = [name for node in tree.body for name in _targets_of_call(node, APPS)]
    candidates = (
        backends[-1:]
        or loops
        or served_agents[-1:]
        or classes
        or apps[-1:]
        or _workflows(tree)
        or [name for name in _names(tree) if name in ("root_agent", "agent")]
    )
    if len(candidates) != 1:
        number = f"several ({', '.join(candidates)})" if candidates else f"no {' and no '.join(BASES)} subclass"
        raise UsageError(
            f'{path} has {number}; keep one, or name it: entrypoint = "{path.stem}:{next(iter(candidates), "Name")}"'
        )
    return candidates[0]


def _targets_of_call(node: ast.stmt, callables: Sequence[str]) -> list[str]:
    """The names that are assigned the result of one of `callables`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    is_theirs = _name_of_call(node.value) in callables
    return [target.id for target in node.targets if isinstance(target, ast.Name)] if is_theirs else []


def _workflows(tree: ast.Module) -> list[str]:
    """The names of the workflows that are given to a backend, in a function say."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_of_call(node) == BACKENDS[0])
    arguments = (keyword.value for call in calls for keyword in call.keywords if keyword.arg == "workflow")
    return sorted({value.id for value in arguments if isinstance(value, ast.Name)})


def _name_of_call(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else str(getattr(function, "id", ""))


def _served_agents(node: ast.stmt) -> list[str]:
    """`agent_loop` in `app = create_app(agent_loop)`: the argument is the agent, the application is none."""
    if not _targets_of_call(node, APPS) or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    return [argument.id for argument in node.value.args[:1] if isinstance(argument, ast.Name)]


def _extends(node: ast.ClassDef, names: Sequence[str]) -> bool:
    return any(
        (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) in names for base in node.bases
    )


def _names(tree: ast.Module) -> list[str]:
    variables = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    return [*variables, *(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]
